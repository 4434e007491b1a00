"""Debezium's envelopes, with or without their schema, and what a run of them did to a table; pure.

Bytes of a log are from outside: what is no envelope, or of a kind that is not known here, raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from attrs import Factory, define, field, frozen

from ballista_py.coordinator.changes.batches import keys_of
from ballista_py.coordinator.changes.debezium_types import EventColumn, columns_of_schema, values
from ballista_py.coordinator.changes.source import AT_COLUMN, ChangeBatch
from ballista_py.errors import SourceUnfit
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourcePosition

UNCHANGED: Final = "__debezium_unavailable_value"
_UNCHANGED_BYTES: Final = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="  # the same, as a column of bytes has it
_OPS: Final = {"c": "insert", "r": "insert", "u": "update", "d": "delete", "t": "truncate"}
_BEGUN: Final = ("true", "first", "first_in_data_collection")
Row = Mapping[str, Any]


@frozen(kw_only=True)
class Envelope:
    """One change. `fields` is the schema of its rows, if it tells one; `transaction` what it was a part of."""

    op: str
    before: Row | None
    after: Row | None
    fields: Sequence[Mapping[str, Any]] | None = field(default=None, eq=False)
    transaction: str | None = None
    snapshot: str = "false"

    @property
    def reads(self) -> bool:
        """Whether it tells a row that was there already, as the first of a log do."""
        return self.op == "r"

    @property
    def more_to_read(self) -> bool:
        """Whether the connector says that it has not read all rows yet."""
        return self.reads and self.snapshot in _BEGUN


def read_envelope(place: str, data: bytes | None) -> Envelope | None:
    """The envelope in some bytes; None for a tombstone, which says again that a row has gone. Raises `SourceUnfit`."""
    if data is None:
        return None
    try:
        found = orjson.loads(data)
    except (ValueError, RecursionError):
        raise SourceUnfit(f"{place} is no JSON of UTF-8 that can be read: is it whole?") from None
    fields = None
    if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
        fields, found = _row_fields(found["schema"]), found["payload"]
    if found is None:
        return None
    wrong = f"{place} is no envelope of Debezium: write its events as they are, without ExtractNewRecordState"
    if not isinstance(found, dict) or not isinstance(found.get("op"), str):
        raise SourceUnfit(wrong)
    before, after, source = found.get("before"), found.get("after"), found.get("source") or {}
    if not all(row is None or isinstance(row, dict) for row in (before, after)) or not isinstance(source, dict):
        raise SourceUnfit(wrong)
    op = found["op"]
    if op not in _OPS:
        raise SourceUnfit(f"{place} has the op {op[:40]!r}, which is none of c, u, d, r and t")
    if (
        (after is None) != (op in ("d", "t"))
        or (op == "d" and before is None)
        or (op == "t" and before is not None)
    ):
        raise SourceUnfit(
            f"{place} has the op '{op}' and {'no ' if after is None else 'a '}row after it, and "
            f"{'no ' if before is None else 'a '}row before it: have the database's log tell keys of rows that go "
            "(REPLICA IDENTITY)"
        )
    return Envelope(
        op=op,
        before=before,
        after=after,
        fields=fields,
        transaction=_transaction(found, source),
        snapshot=str(source.get("snapshot", "false")).lower(),
    )


def _row_fields(schema: Any) -> Sequence[Mapping[str, Any]] | None:
    """The fields of the rows before and after, which are the same."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    for found in fields if isinstance(fields, list) else ():
        if isinstance(found, dict) and found.get("field") == "after" and isinstance(found.get("fields"), list):
            rows: list[Mapping[str, Any]] = [part for part in found["fields"] if isinstance(part, dict)]
            return rows
    return None


def _transaction(envelope: Row, source: Row) -> str | None:
    told = envelope.get("transaction")
    if isinstance(told, dict) and told.get("id") is not None:
        return str(told["id"])
    number = source.get("txId", source.get("gtid"))
    return None if number is None else str(number)


@define
class EventRows:
    """Takes envelopes in, in their order, and gives what they did to the table that follows the log `there`.

    `declared` are the columns of envelopes without a schema. A column that the table has and an envelope lacks is null
    if it is one of `later`, which is asked where that is so. Raises `SourceUnfit`.
    """

    table: TableSpec
    there: str
    declared: tuple[EventColumn, ...] | None = None
    later: Callable[[], frozenset[str]] = frozenset
    _columns: tuple[EventColumn, ...] = field(default=(), init=False)
    _known: Any = field(default=None, init=False)
    _ops: list[str] = Factory(list)
    _old: list[Row | None] = Factory(list)
    _new: list[Row | None] = Factory(list)
    _unchanged: list[list[str] | None] = Factory(list)
    _at: list[int] = Factory(list)
    _parts: list[pa.Table] = Factory(list)

    def __len__(self) -> int:
        return len(self._ops) + sum(map(len, self._parts))

    def take(self, place: str, envelope: Envelope, at: int) -> None:
        """Take in one envelope, of a transaction whose commit position is `at`."""
        self._know(place, envelope)
        unchanged: list[str] | None = None
        new = envelope.after
        if new is not None:
            new, unchanged = self._row(place, new, envelope)
        self._ops.append(_OPS[envelope.op])
        self._old.append(self._key(place, envelope))
        self._new.append(new)
        self._unchanged.append(unchanged)
        self._at.append(at)

    def batch(self, position: SourcePosition) -> ChangeBatch:
        """The changes so far, of whole transactions."""
        self._finish()
        return ChangeBatch(changes=pa.concat_tables(self._parts), position=position)

    def _finish(self) -> None:
        schema, keys = self.table.schema, keys_of(self.table).schema
        part = {
            "op": pa.array(self._ops, pa.string()),
            "old": self._structs(self._old, keys),
            "new": self._structs(self._new, schema),
            "unchanged": pa.array(self._unchanged, pa.list_(pa.string())),
            AT_COLUMN: pa.array(self._at, pa.int64()),
        }
        self._parts.append(pa.table(part))
        self._ops, self._old, self._new, self._unchanged, self._at = [], [], [], [], []

    def _structs(self, rows: Sequence[Row | None], schema: pa.Schema) -> pa.Array:
        known = {column.name: column for column in self._columns}
        arrays = [
            values(self.there, known[column.name], [None if row is None else row.get(column.name) for row in rows])
            if column.name in known
            else pa.nulls(len(rows), column.type)
            for column in schema
        ]
        fields = [pa.field(column.name, array.type) for column, array in zip(schema, arrays, strict=True)]
        return pa.StructArray.from_arrays(
            arrays, fields=fields, mask=pa.array([row is None for row in rows], pa.bool_())
        )

    def _know(self, place: str, envelope: Envelope) -> None:
        """Hold what the envelope says of its columns against the table, where it is not what the last one said."""
        if envelope.op == "t" or (self._columns and envelope.fields == self._known):
            return
        if envelope.fields is None and self.declared is None:
            raise SourceUnfit(
                f"{place} has no schema: declare its columns in the source as columns, or have the connector write "
                "schemas (value.converter.schemas.enable=true)"
            )
        columns = (
            self.declared if self.declared is not None else columns_of_schema(self.there, envelope.fields or ())
        )
        lacking = set(self.table.schema.names) - {column.name for column in columns}
        require_columns(self.table, place, columns, self.later() if lacking else frozenset())
        if self._ops:
            self._finish()
        self._columns, self._known = columns, envelope.fields

    def _row(self, place: str, row: Row, envelope: Envelope) -> tuple[Row, list[str] | None]:
        """The row with what the one before tells of what is unchanged, and the columns that nobody tells."""
        names = {column.name for column in self._columns}
        if row.keys() != names:
            odd = sorted(row.keys() ^ names)[0]
            raise SourceUnfit(
                f"{place} {'has' if odd in row else 'lacks'} the column '{odd[:60]}', which its columns "
                f"{'lack' if odd in row else 'have'}: declare what the events have, and make the table anew"
            )
        left = [name for name, value in row.items() if value in (UNCHANGED, _UNCHANGED_BYTES)]
        if not left:
            return row, None
        before = envelope.before or {}
        kept = {name: before.get(name) for name in left}
        lacking = [name for name in left if name not in before or kept[name] in (UNCHANGED, _UNCHANGED_BYTES)]
        if lacking and envelope.op != "u":
            raise SourceUnfit(f"{place} leaves out column '{lacking[0][:60]}' of a row that is new")
        return {**row, **kept, **dict.fromkeys(lacking)}, lacking or None

    def _key(self, place: str, envelope: Envelope) -> Row | None:
        """The key before the change, where it goes or may be another one."""
        before = envelope.before
        if before is None or envelope.op not in ("u", "d"):
            return None
        key = {name: before.get(name) for name in self.table.primary_key}
        lacking = next((name for name, value in key.items() if value is None), None)
        if lacking is None:
            return key
        if envelope.op == "d":
            raise SourceUnfit(
                f"{place} deletes a row and does not tell its '{lacking}', which is in the primary key of table "
                f"'{self.table.name}': have the log tell it (REPLICA IDENTITY FULL), then copy the table anew"
            )
        return None


def require_columns(
    table: TableSpec, place: str, columns: Sequence[EventColumn], later: frozenset[str] = frozenset()
) -> None:
    """Raise `SourceUnfit` unless rows of these columns are rows of the table, but for those that came `later`."""
    known = {column.name: column for column in columns}
    added = next((name for name in known if name not in table.schema.names), None)
    dropped = next((name for name in table.schema.names if name not in known and name not in later), None)
    if added is not None or dropped is not None:
        what = f"has a column '{added}' more" if added is not None else f"has no column '{dropped}' any more"
        raise SourceUnfit(f"{place} {what} than table '{table.name}', which follows it: make the table anew")
    for column in table.schema:
        if column.name in known and known[column.name].kind != column.type:
            raise SourceUnfit(
                f"column '{column.name}' of {place} is {known[column.name].kind} now, and {column.type} in table "
                f"'{table.name}', which follows it: make the table anew"
            )
