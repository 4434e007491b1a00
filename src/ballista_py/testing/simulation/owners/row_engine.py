"""An engine for virtual owners: it keeps rows, gives back all of them, and runs the changes that it was told by name.

Real engines block a thread, so they cannot live in virtual time; what they compute is tested elsewhere. The rows here
are real ones, in real files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from ballista_py.errors import ConfigError, NotOwner, SqlError
from ballista_py.partitions.columns import restored
from ballista_py.storage.formats.files import Loadable

Program = Callable[[pa.Table], pa.Table]


@define
class Answer:
    """A query that is over: its rows."""

    rows: pa.Table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        return iter(self.rows.to_batches())

    def cancel(self) -> None:
        """Does nothing: it is over."""


@define
class RowEngine:
    """Rows by table and file. `programs` say by the text of a statement what it makes of rows."""

    programs: Mapping[str, Program]
    _schemas: dict[str, pa.Schema] = field(factory=dict)
    _rows: dict[tuple[str, int], pa.Table] = field(factory=dict)

    def create_table(self, table: str, schema: pa.Schema) -> None:
        self._schemas[table] = schema

    def alter_table(self, table: str, schema: pa.Schema) -> bool:
        mine = [key for key in self._rows if key[0] == table]
        try:
            altered = {key: _altered(self._rows[key], schema) for key in mine}
        except (KeyError, pa.ArrowException):  # these are rows of another table
            return False
        self._rows.update(altered)
        self._schemas[table] = schema
        return True

    def drop_table(self, table: str) -> None:
        self._schemas.pop(table, None)
        for key in [key for key in self._rows if key[0] == table]:
            del self._rows[key]

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        schema, count = self._schemas.get(table), 0
        if schema is None:
            raise ConfigError(f"table '{table}' was not created in this engine")
        for file in files:
            rows = pa.Table.from_batches(file.batches(schema), schema)
            self._rows[table, file.file_id] = rows
            count += rows.num_rows
        return count

    def unload(self, table: str, file_ids: Iterable[int]) -> None:
        for file_id in file_ids:
            self._rows.pop((table, file_id), None)

    def rows(self, table: str, file_ids: Iterable[int]) -> pa.Table:
        """All rows of these files, which are loaded."""
        file_ids = list(file_ids)
        if any((table, file_id) not in self._rows for file_id in file_ids):
            raise NotOwner(f"a file of table '{table}' is not loaded any more", table=table)
        empty = self._schemas[table].empty_table()
        wanted = [(table, file_id) for file_id in file_ids]
        if not all(one in self._rows for one in wanted):  # as the real one, of what was unloaded meanwhile
            raise NotOwner(f"file(s) of table '{table}' are not loaded here: plan the query again", table=table)
        return pa.concat_tables([empty, *(self._rows[one] for one in wanted)])

    def query(
        self, sql: str, scans: Mapping[str, Iterable[int]] | None = None, streams: Mapping[str, Any] | None = None
    ) -> Answer:
        """All rows of what is scanned, as the program of that name changes them; keys that are taken, for a stream.

        Of a stream alone, all of its rows.
        """
        if streams and not scans:
            ((_, rows),) = streams.items()
            return Answer(pa.Table.from_batches(rows, rows.schema))
        ((table, ids),) = (scans or {}).items()
        rows = self.rows(table, ids)
        if streams:
            ((_, new),) = streams.items()
            counts = pc.value_counts(pa.chunked_array([*new["name"].chunks, *rows["name"].chunks], pa.string()))
            doubled = [one["values"] for one in counts.to_pylist() if one["counts"] > 1]
            mine = set(new["name"].to_pylist())
            taken = [{"part": new["part"][0].as_py(), "name": name} for name in doubled if name in mine]
            return Answer(pa.Table.from_pylist(taken, schema=new.schema))
        if sql in self.programs:
            return Answer(self.programs[sql](rows))
        if not sql.startswith("select"):
            raise SqlError(f"no virtual owner knows what '{sql}' means")
        return Answer(rows)


def _altered(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([restored(batch, schema, rows.schema) for batch in rows.to_batches()], schema)
