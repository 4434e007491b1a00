"""The rows that a Polars engine holds: one frame a loaded file, in memory, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl
import pyarrow as pa
from attrs import Factory, define

from ballista_py.engines.apart.large import LargeByFile
from ballista_py.engines.polars.types import to_frame, why_not_held
from ballista_py.errors import ConfigError, NotOwner, SchemaMismatch
from ballista_py.partitions.columns import initial_of, is_same, stored_name, two_alike
from ballista_py.partitions.value_sizes import LargeValues
from ballista_py.runtime import Runtime
from ballista_py.storage.formats.files import Loadable


@define
class HeldFrames:
    """One table: its columns and the frame of each loaded file."""

    schema: pa.Schema
    files: dict[int, pl.DataFrame] = Factory(dict)
    large: LargeByFile = Factory(LargeByFile)


class FrameTables:
    """Every table of an engine. Safe to share between threads; a file is there whole or not at all."""

    def __init__(self, runtime: Runtime) -> None:
        self._tables: dict[str, HeldFrames] = {}
        self._lock = runtime.lock()
        self._loading = runtime.lock()  # outer of the two

    def create(self, table: str, schema: pa.Schema) -> None:
        """See `LoadedEngine.create_table`."""
        reason = why_not_held(schema)
        if reason is not None:
            raise SchemaMismatch(
                f"table '{table}' cannot be held by the polars engine: {reason}; executors with 'engine: duckdb' "
                "hold it",
                table=table,
            )
        if len({name.lower() for name in schema.names}) < len(schema):
            raise SchemaMismatch(f"table '{table}' has {two_alike(schema.names)}", table=table)
        with self._loading, self._lock:
            found = self._tables.setdefault(table, HeldFrames(schema))
            if not is_same(found.schema, schema):
                raise SchemaMismatch(f"table '{table}' is held with other columns: drop it first", table=table)

    def alter(self, table: str, schema: pa.Schema) -> bool:
        """See `LoadedEngine.alter_table`."""
        if why_not_held(schema) is not None:
            return False
        with self._loading:
            with self._lock:
                before = self._tables.get(table)
            if before is None:
                return False
            columns = _columns(before.schema, schema)
            if columns is None:
                return False
            made = HeldFrames(
                schema,
                {file_id: frame.select(columns) for file_id, frame in before.files.items()},
                before.large.under(schema.names),
            )
            with self._lock:
                self._tables[table] = made
        return True

    def drop(self, table: str) -> None:
        """Forget a table; a missing one is fine."""
        with self._loading, self._lock:
            self._tables.pop(table, None)

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        """See `LoadedEngine.load`."""
        with self._loading:
            with self._lock:
                held = self._tables.get(table)
                if held is None:
                    raise ConfigError(f"table '{table}' was not created in this engine")
                wanted = {file.file_id: file for file in files if file.file_id not in held.files}
            large = LargeByFile()
            made = {file_id: _read(file, held.schema, large) for file_id, file in wanted.items()}
            with self._lock:
                held.files.update(made)
                held.large.take(large)
        return sum(frame.height for frame in made.values())

    def unload(self, table: str, file_ids: Iterable[int]) -> None:
        """See `LoadedEngine.unload`."""
        with self._loading, self._lock:
            held = self._tables.get(table)
            if held is not None:
                for file_id in file_ids:
                    held.files.pop(file_id, None)
                    held.large.forget(file_id)

    def clear(self) -> None:
        """Let go of every table; queries that run finish undisturbed."""
        with self._lock:
            self._tables.clear()

    def snapshot(self, scans: Mapping[str, Iterable[int]]) -> dict[str, tuple[pa.Schema, list[pl.DataFrame]]]:
        """The frames of exactly these files. Raises `NotOwner` when one of them is not loaded (any more)."""
        with self._lock:
            return {table: self._frames(table, set(ids)) for table, ids in scans.items()}

    def large(self, table: str, file_ids: Iterable[int], columns: Iterable[str]) -> LargeValues:
        """The large values in these columns of loaded files."""
        with self._lock:
            held = self._tables.get(table)
            found = {} if held is None else held.large.of(file_ids, columns)
        return LargeValues.all_of(found.values())

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table. Raises `NotOwner` when it is not held (any more)."""
        with self._lock:
            return self._frames(table, set())[0]

    def _frames(self, table: str, wanted: set[int]) -> tuple[pa.Schema, list[pl.DataFrame]]:
        held = self._tables.get(table)
        missing = wanted - held.files.keys() if held is not None else wanted
        if held is None or missing:
            raise NotOwner(
                f"{len(missing)} file(s) of table '{table}' are not loaded here: plan the query again", table=table
            )
        return held.schema, [held.files[file_id] for file_id in sorted(wanted)]


def _columns(before: pa.Schema, after: pa.Schema) -> list[pl.Expr] | None:
    """The columns `after` out of those `before`.

    None if nobody says what older rows have in one of them, all are new, so that none says how many rows there are, or
    Polars does not cast as Arrow does.
    """
    had = {stored_name(column): column for column in before}
    if not any(stored_name(column) in had for column in after):
        return None
    empty = to_frame(after.empty_table())
    found = []
    for column in after:
        old = had.get(stored_name(column))
        if old is not None:
            if old.type != column.type and pa.types.is_decimal(column.type):
                return None  # which Polars makes other numbers of
            one = pl.col(old.name)
            one = one if old.type == column.type else one.cast(empty.schema[column.name])
            found.append(one.alias(column.name))
            continue
        initial = initial_of(column)
        if initial is None:
            return None
        value = to_frame(pa.table([initial], schema=pa.schema([column]))).to_series()
        found.append(pl.lit(value).first().alias(column.name))
    return found


def _read(file: Loadable, schema: pa.Schema, large: LargeByFile) -> pl.DataFrame:
    """The rows of a file as one frame, converted batch by batch so that they are in memory once."""
    frames = []
    for batch in file.batches(schema):
        large.note(file.file_id, batch)
        frames.append(to_frame(pa.Table.from_batches([batch])))
    if not frames:
        return to_frame(schema.empty_table())
    return pl.concat(frames, rechunk=len(frames) > 1)
