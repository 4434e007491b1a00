"""Rows that a client sends for a table, as they are: taken in, put in the place of others, or made a table of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from attrs import define, evolve

from ballista_py.coordinator.tables.ddl import TableWrites
from ballista_py.coordinator.writes.change_writes import ChangeWrites, numbered
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.overwrites import every_partition
from ballista_py.coordinator.writes.row_writes import RowWrites
from ballista_py.coordinator.writes.sent_again import SentAgain, looked_at
from ballista_py.coordinator.writes.target_tables import PlannedAgain
from ballista_py.coordinator.writes.whole_writes import WholeWrites
from ballista_py.coordinator.writes.write_ways import way_of_rows
from ballista_py.errors import ConfigError, SchemaMismatch, SqlError
from ballista_py.partitions.conform import check_columns
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.write_tokens import WriteToken
from ballista_py.transport.flight.commands import IngestMode


@define(eq=False)
class Ingests:
    """Takes them in. Thread-safe. `table` gives the one of a name that is written to, or raises `SqlError`;
    `through` takes in rows of a table that is written through, and gives None for any other."""

    ddl: TableWrites
    rows: RowWrites
    whole: WholeWrites
    keyed: ChangeWrites
    sent_again: SentAgain
    again: PlannedAgain
    table: Callable[[str], TableSpec]
    through: Callable[[str, KeptRows, IngestMode, WriteToken], int | None] = lambda *_: None

    def take_in(
        self,
        name: str,
        reader: Iterator[pa.RecordBatch],
        mode: IngestMode,
        token: WriteToken,
        atomic: bool,
        columns: pa.Schema | None,
    ) -> int:
        """Take in rows with these columns, under a token; how many they are. See `WriteService.ingest`."""
        kept = KeptRows(iter(numbered(reader)) if mode == "changes" else reader)
        if mode in ("create", "create_append", "replace"):
            made = self._made(name, kept, mode, token, columns)
            if made is not None:
                return made
        rows, times = KeptRows(iter(kept)), 0

        def once() -> int:
            nonlocal token, times
            token, times = evolve(token, again=True) if times else token, times + 1
            return self._once(name, rows, mode, token, atomic, columns)

        return self.again.until_done(once, {name}, lambda: rows.repeatable)

    def _made(
        self, name: str, rows: KeptRows, mode: IngestMode, token: WriteToken, columns: pa.Schema | None
    ) -> int | None:
        """Make the table of the rows; None if it is there, or a table that lost its name took them before."""
        earlier = self.ddl.done(name, token.kept)
        if earlier is not None:
            return earlier
        if self.ddl.exists(name):
            if mode == "create":
                raise ConfigError(f"table '{name}' exists already")
            return None
        if mode != "create" and self.sent_again.of_rows(name, "", rows, token) is not None:
            return None
        if columns is None:
            raise ConfigError(f"table '{name}' cannot be created from rows without a schema")
        try:
            return self.ddl.make(name, columns, (), token=token.kept, rows=rows)
        except ConfigError:  # somebody else made it meanwhile
            if mode == "create" or not self.ddl.exists(name):
                raise
        return None

    def _once(
        self,
        name: str,
        rows: KeptRows,
        mode: IngestMode,
        token: WriteToken,
        atomic: bool,
        columns: pa.Schema | None,
    ) -> int:
        written = self.through(name, rows, mode, token)
        if written is not None:
            return written
        spec, found = looked_at(
            lambda: self.table(name), lambda folder: self.sent_again.of_rows(name, folder, rows, token)
        )
        if found is not None:
            if found.table is None or found.decision is not None:
                return self.sent_again.told(found, token).affected
            spec = found.table  # what is lacking there is added
        assert spec is not None
        if mode == "replace" and columns is not None and not self._fits(spec, rows, columns, token):
            earlier = self.sent_again.of_refused_rows(spec, rows, token)
            if earlier is None:
                self.sent_again.require_no_others(spec, rows, token)
                earlier = self._in_its_place(spec, rows, token, columns)
            return earlier
        try:
            if mode == "changes":
                return self.keyed.apply(spec, rows, token)
            shaped = self.rows.shape_of(spec, rows, columns, token)
            if mode == "upsert":
                return self.whole.upsert(spec, rows, token, shaped).affected
            replaced = every_partition if mode == "replace" else None
            way = way_of_rows(spec, atomic=atomic, replace=replaced is not None)
            return self.rows.take_in(spec, rows, token, way, replaced=replaced, told=False, shaped=shaped)
        except (SqlError, SchemaMismatch):  # they may have been right when they were sent first
            earlier = self.sent_again.of_refused_rows(spec, rows, token)
            if earlier is None:
                raise
            return earlier

    def _fits(self, table: TableSpec, rows: KeptRows, columns: pa.Schema, token: WriteToken) -> bool:
        """Whether rows of these columns are rows of the table, or of an earlier definition of it."""
        try:
            check_columns(table, columns)
        except SchemaMismatch:
            try:
                return token.given and self.rows.shape_of(table, rows, columns, token) is not None
            except SchemaMismatch:
                return False
        return True

    def _in_its_place(self, table: TableSpec, rows: KeptRows, token: WriteToken, columns: pa.Schema) -> int:
        """Put a table with these columns in the place of the one that has others, as CREATE OR REPLACE does.

        It is split as that one was, as far as it has the columns for that.
        """
        kept = all(
            column.name in columns.names and columns.field(column.name).type == column.type
            for column in table.spec.columns
        )
        keys = [{key.name: key.expression} for key in table.spec.keys] if kept else []
        return self.ddl.make(
            table.name, columns, keys, replaces=True, file_format=table.file_format, token=token.kept, rows=rows
        )
