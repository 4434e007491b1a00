"""Messages of a log as a batch of changes of one table; pure.

The relation is held against the table each time that the log tells it: columns that were added, dropped or given
another type stop the table with the way out, as does a row that goes while the identity does not tell its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import Factory, define, field

from ballista_py.coordinator.changes.batches import keys_of
from ballista_py.coordinator.changes.pgoutput import (
    UNCHANGED,
    Cell,
    Cells,
    LoggedCommit,
    LoggedMessage,
    LoggedRelation,
    LoggedTruncate,
    Message,
    RowChange,
)
from ballista_py.coordinator.changes.postgres_types import column_type, values
from ballista_py.coordinator.changes.source import AT_COLUMN, ChangeBatch
from ballista_py.errors import SourceUnfit
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourcePosition

MAX_PLACE = 1 << 16  # beyond the columns of any relation
MESSAGE_PREFIX = "ballista_py"  # of messages in the log for the table whose folder they name
PADDED = 1042  # char(n)


@define
class LogRows:
    """Takes messages in, in their order, and gives what the transactions among them did to the table `there`.

    A transaction of messages alone counts if one of them is for this table (`SourceWriter.reached`). A column that the
    table has and the log does not tell yet is null if it is one of `later`.

    Raises `SourceUnfit`.
    """

    table: TableSpec
    there: str
    later: frozenset[str] = frozenset()
    _relation: LoggedRelation | None = field(default=None, init=False)
    _tells: bool = field(default=False, init=False)
    _places: dict[str, int] = field(factory=dict, init=False)
    _padded: set[str] = field(factory=set, init=False)
    _ops: list[str] = Factory(list)
    _old: list[Cells | None] = Factory(list)
    _new: list[Cells | None] = Factory(list)
    _unchanged: list[list[str] | None] = Factory(list)
    _at: list[int] = Factory(list)
    _is_ours: bool = field(default=False, init=False)
    _has_messages: bool = field(default=False, init=False)
    end: int | None = None

    def take(self, messages: Iterable[Message | None]) -> None:
        """Take messages in."""
        for message in messages:
            if isinstance(message, RowChange):
                self._row(message)
            elif isinstance(message, LoggedRelation):
                self._know(message)
            elif isinstance(message, LoggedCommit):
                if self._is_ours or not self._has_messages or len(self._ops) > len(self._at):
                    self.end = message.end
                self._at += [message.end] * (len(self._ops) - len(self._at))
                self._is_ours = self._has_messages = False
            elif isinstance(message, LoggedMessage):
                self._has_messages = True
                mine = message.prefix == MESSAGE_PREFIX and message.content == self.table.folder.encode()
                self._is_ours = self._is_ours or mine
            elif isinstance(message, LoggedTruncate):
                self._require(message.relation_ids)
                self._add("truncate", None, None, None)

    def batch(self, position: SourcePosition) -> ChangeBatch:
        """The changes of whole transactions, up to a position that is not before the last one's."""
        count = len(self._at)  # what comes after the last commit is no transaction yet
        schema, keys = self.table.schema, keys_of(self.table).schema
        changes = pa.table(
            {
                "op": pa.array(self._ops[:count], pa.string()),
                "old": self._structs(self._old[:count], keys),
                "new": self._structs(self._new[:count], schema),
                "unchanged": pa.array(self._unchanged[:count], pa.list_(pa.string())),
                AT_COLUMN: pa.array(self._at, pa.int64()),
            }
        )
        return ChangeBatch(changes=changes, position=position)

    def _structs(self, rows: Sequence[Cells | None], schema: pa.Schema) -> pa.Array:
        """The rows as structs of these columns, null where there is none."""
        told = [row for row in rows if row is not None]
        cells = list(zip_longest(*told))  # by column; a row from before a column was added is shorter
        arrays = []
        for column in schema:
            place = self._places.get(column.name, MAX_PLACE)
            texts = _texts(cells[place]) if place < len(cells) else pa.nulls(len(told), pa.string())
            if column.name in self._padded:  # the log tells the blanks that fill a char(n) up, a query does not
                texts = pc.utf8_rtrim(texts, characters=" ")
            arrays.append(values(self.there, column.name, texts, column.type))
        fields = [pa.field(column.name, column.type) for column in schema]
        found = pa.StructArray.from_arrays(arrays, fields=fields)
        if len(told) == len(rows):
            return found
        is_told = np.fromiter((row is not None for row in rows), np.bool_, len(rows))
        return found.take(pa.array(np.cumsum(is_told) - 1, mask=~is_told))

    def _know(self, relation: LoggedRelation) -> None:
        require_followed(self.table, self.there, relation, self.later)
        self._relation, self._tells = relation, False
        self._places = {column.name: place for place, column in enumerate(relation.columns)}
        self._padded = {column.name for column in relation.columns if column.type_id == PADDED}

    def _require(self, relation_ids: Sequence[int]) -> LoggedRelation:
        if self._relation is None or self._relation.relation_id not in relation_ids:
            raise SourceUnfit(
                f"the log of {self.there} tells changes of another table: give it a publication of its own"
            )
        return self._relation

    def _row(self, change: RowChange) -> None:
        relation = self._require([change.relation_id])
        count, old, new = len(relation.columns), change.old, change.new
        if (old is not None and len(old) != count) or (new is not None and len(new) != count):
            raise SourceUnfit(f"the log of {self.there} tells a row with other columns than the table has")
        if not (change.inserts or self._tells):  # an insert tells the key, whatever the identity
            told = [column.name for column in relation.columns if column.identifying]
            require_identity(self.table.primary_key, self.there, relation.identity, told)
            self._tells = True
        op = "delete" if new is None else "insert" if change.inserts else "update"
        unchanged = None
        if new is not None and UNCHANGED in new:
            new, unchanged = self._filled(new, old if change.whole else None)
        self._add(op, old, new, unchanged)

    def _filled(self, new: Cells, old: Cells | None) -> tuple[Cells, list[str] | None]:
        """The row with what the old one tells of what is unchanged, and the columns that nobody tells."""
        cells = [old[n] if cell is UNCHANGED and old is not None else cell for n, cell in enumerate(new)]
        assert self._relation is not None
        left = [
            column.name for column, cell in zip(self._relation.columns, cells, strict=True) if cell is UNCHANGED
        ]
        return tuple(cells), left or None

    def _add(self, op: str, old: Cells | None, new: Cells | None, unchanged: list[str] | None) -> None:
        self._ops.append(op)
        self._old.append(old)
        self._new.append(new)
        self._unchanged.append(unchanged)


_WAY_OUT = "put it back there, and copy the table anew, because the log tells of it still; or make the table anew"


def require_followed(
    table: TableSpec, there: str, relation: LoggedRelation, later: frozenset[str] = frozenset()
) -> None:
    """Raise `SourceUnfit`, with the way out, unless the changes of a relation are changes of rows of the table.

    Columns that came to both of them `later` may be lacking.
    """
    columns = {column.name: column for column in relation.columns}
    added = next((name for name in columns if name not in table.schema.names), None)
    dropped = next((name for name in table.schema.names if name not in columns and name not in later), None)
    if added is not None or dropped is not None:
        what = f"has a column '{added}' more" if added is not None else f"has no column '{dropped}' any more"
        raise SourceUnfit(f"{there} {what} than table '{table.name}', which follows it: {_WAY_OUT}")
    for column in table.schema:
        if column.name in columns:
            known = columns[column.name]
            _require_type(table, there, column, column_type(there, column.name, known.type_id, known.modifier))


def require_declared(table: TableSpec, there: str, schema: pa.Schema) -> None:
    """Raise `SourceUnfit` unless a copy of these columns is one of the table, which may take new ones later."""
    takes_more = table.refresh is not None and table.refresh.on_schema_change == "append"
    added = next((name for name in schema.names if name not in table.schema.names and not takes_more), None)
    dropped = next((name for name in table.schema.names if name not in schema.names), None)
    if added is not None or dropped is not None:
        what = f"has a column '{added}' more" if added is not None else f"has no column '{dropped}' any more"
        raise SourceUnfit(f"{there} {what} than table '{table.name}', which follows it: make the table anew")
    for column in table.schema:
        _require_type(table, there, column, schema.field(column.name).type)


def _require_type(table: TableSpec, there: str, column: pa.Field, kind: pa.DataType) -> None:
    if kind != column.type:
        raise SourceUnfit(
            f"column '{column.name}' of {there} is {kind} now, and {column.type} in table '{table.name}', which "
            "follows it: make the table anew"
        )


def require_identity(primary_key: Sequence[str], there: str, identity: str, told: Sequence[str]) -> None:
    """Raise `SourceUnfit` unless the log tells these columns of a row that goes, or that changes one of them."""
    lacking = [name for name in primary_key if name not in told]
    if identity != "f" and lacking:
        raise SourceUnfit(
            f"the log of {there} does not tell column '{lacking[0]}' of rows that go, which is in the primary key of "
            f"the table here: run ALTER TABLE {there} REPLICA IDENTITY FULL there"
        )


def _texts(cells: Sequence[Cell]) -> pa.StringArray:
    """The texts of cells, null where there is none. Raises `SourceUnfit` for bytes that are no UTF-8."""
    if UNCHANGED in cells:
        cells = [None if cell is UNCHANGED else cell for cell in cells]
    try:
        return pa.array(cells, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise SourceUnfit("the source sent a text in its log that is no UTF-8") from None
