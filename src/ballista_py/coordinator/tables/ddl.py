"""CREATE and DROP of managed tables, at a scheduler.

CREATE TABLE at a scheduler: of declared columns, of the rows of a query, or with the columns of other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.coordinator.cluster_view import Views, words_of
from ballista_py.coordinator.queries.first_rows import FirstRows
from ballista_py.coordinator.queries.running_statement import RunningStatement
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.tables.definitions import INCARNATION_DIGITS, TableMaker
from ballista_py.coordinator.tables.materialized_views import BY_ITSELF, query_of, require_other_reads
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.rounds import FIRST_WAIT_MS, Growth
from ballista_py.engines.engine import Engine
from ballista_py.errors import ConfigError, SqlError, UnsupportedExpression
from ballista_py.partitions.bounds import MAX_CHECK_CHARS, columns_in, require_chars, require_count
from ballista_py.partitions.columns import COMMENT, DEFAULT, comment_of, default_of, is_required, with_said
from ballista_py.partitions.new_table import NewTable
from ballista_py.partitions.refresh import Refresh, Retention
from ballista_py.partitions.scanned_table import ScannedTable
from ballista_py.partitions.spec import PartitionBy
from ballista_py.partitions.table import FILE_FORMATS, Distribution, FileFormatName, TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.column_types import require_kept_answer
from ballista_py.sql.own_words import without_position
from ballista_py.sql.parse.changes import DropTable, quoted, read_change, text_for_engine
from ballista_py.sql.parse.creates import COMMENTS, CONSTRAINTS, DEFAULTS, INDEXES, CreateLike, CreateTable, Like
from ballista_py.sql.parse.inserts import require_other_sources
from ballista_py.state.documents.write_tokens import PATIENCE_MS, of_nobody
from ballista_py.work import pause, require_wanted

Running = Callable[[str], AbstractContextManager[RunningStatement]]


@frozen
class TableCreates:
    """Carries out CREATE TABLE. Thread-safe. `running` runs a query until the end of its block."""

    ddl: TableWrites
    definitions: TableDefinitions
    queries: QueryService
    checks: RowChecks
    engine: Engine
    running: Running

    def create(self, change: CreateTable | CreateLike, token: str) -> int:
        """Make the table; how many rows it has. The same statement sent again does nothing."""
        earlier = self.ddl.done(change.table, token)
        if earlier is not None:
            return earlier
        if change.if_not_exists and self.ddl.exists_already(change.table, token):
            return 0
        if isinstance(change, CreateLike):
            return self._like(change, token)
        query = query_of(change, self.engine) if change.kept_up else None
        if query is not None:
            require_other_reads(change.table, query, self.queries.views.refresh(words_of(query)))
        if change.columns is not None:
            return self._make(change, self.checks.schema(change), token)
        if change.query is None:
            raise SqlError("CREATE TABLE needs columns or a query")
        if change.replaces:
            require_other_sources(change.table, change.query, whole_table=True)
        kinds = self.queries.types(change.query)
        require_count(change.table, len(kinds))
        for name, kind in kinds:
            require_kept_answer(change.table, name, kind)
        with self.running(change.query) as running:
            return self._make(change, running.schema, token, running.batches(), query=query)

    def asked(self, new: NewTable, schema: pa.Schema, token: str) -> int:
        """Make a table of these very columns, which nobody wrote as SQL; 0. The same sent again does nothing.

        What is SQL in it passes the guard as it would in a statement: its CHECKs are read as those of the statement
        that declares the same columns.
        """
        earlier = self.ddl.done(new.name, token)
        if earlier is not None:
            return earlier
        require_count(new.name, columns_in(schema.types))
        for check in new.checks:
            require_chars(check, MAX_CHECK_CHARS, f"a CHECK of table '{new.name}'")
        text = self._statement_of(new, schema)
        try:
            with self.queries.reading(text):
                self.engine.require_change(text_for_engine(text) or text)
                made = read_change(text)
        except SqlError as error:  # its place is one in a text that nobody wrote
            raise without_position(error) from None
        if not isinstance(made, CreateTable) or len(made.checks) != len(new.checks):
            raise SqlError(f"a CHECK of table '{new.name}' is no condition by itself: write each as one")
        if [name for name, _ in made.columns or ()] != schema.names:
            raise SqlError(f"the columns of table '{new.name}' cannot be told apart")
        return self.ddl.make(
            new.name,
            schema,
            new.partition_by,
            primary_key=new.primary_key,
            checks=made.checks,
            file_format=new.file_format,
            token=token,
            distribution=new.distribution,
            colocate_with=new.colocate_with,
            refresh=new.refresh,
            retention=new.retention,
        )

    def _statement_of(self, new: NewTable, schema: pa.Schema) -> str:
        kinds = self.engine.sql_types(schema)
        columns = [f"{quoted(field.name)} {kind}" for field, kind in zip(schema, kinds, strict=True)]
        checks = [f"CHECK ({check}\n)" for check in new.checks]
        return f"create table {quoted(new.name)} ({', '.join([*columns, *checks])})"

    def _like(self, change: CreateLike, token: str) -> int:
        """Make a table with the columns that others have as of now."""
        sources = [self._source(piece) for piece in change.pieces]
        require_count(change.table, sum(len(source.schema) for source in sources))
        pieces = list(zip(change.pieces, sources, strict=True))
        written = [self._written(piece, source) for piece, source in pieces]
        if change.whole:
            written = [f"({written[0]})"]
        try:
            text = change.expanded(written)
            self.engine.require_change(text_for_engine(text) or text)
            made = read_change(text)
            assert isinstance(made, CreateTable)
            declared = self.checks.schema(made)
        except SqlError as error:  # its place is one in a text that nobody wrote
            raise without_position(error) from None
        schema = _with_columns(declared, pieces)
        if not change.whole:
            return self._make(made, schema, token)
        (source,) = sources
        made = evolve(made, file_format=source.file_format)
        return self._make(made, schema, token, partition_by=_keys_of(source))

    def _source(self, piece: Like) -> TableSpec:
        found = self.definitions.newest(piece.source)
        if found is None:
            view = self.queries.views.refresh({piece.source})
            if piece.source in view.sql_views:
                raise SqlError(f"'{piece.source}' is a view: make a table of its rows with CREATE TABLE … AS")
            if piece.source in view.scanned:
                raise view.scanned[piece.source].refused("make a table of its rows with CREATE TABLE … AS")
            view.require_usable({piece.source})
            raise SqlError(f"Table '{piece.source}' does not exist")
        return found

    def _written(self, piece: Like, source: TableSpec) -> str:
        """The columns, and what else is copied, as a CREATE TABLE declares them."""
        kinds = self.engine.sql_types(source.schema)
        items = [
            f"{quoted(field.name)} {kind}{' NOT NULL' if _is_required(field, source) else ''}"
            + _default_text(field, piece.copied)
            for field, kind in zip(source.schema, kinds, strict=True)
        ]
        if INDEXES in piece.copied and source.primary_key:
            items.append(f"PRIMARY KEY ({', '.join(map(quoted, source.primary_key))})")
        if CONSTRAINTS in piece.copied:
            items += [f"CHECK ({check}\n)" for check in source.checks]
        return ", ".join(items)

    def _make(
        self,
        change: CreateTable,
        schema: pa.Schema,
        token: str,
        rows: Iterable[pa.RecordBatch] | None = None,
        partition_by: PartitionBy | None = None,
        query: str | None = None,
    ) -> int:
        try:
            return self.ddl.make(
                change.table,
                schema,
                change.partition_by if partition_by is None else partition_by,
                primary_key=change.primary_key,
                checks=change.checks,
                if_not_exists=change.if_not_exists,
                replaces=change.replaces,
                file_format=change.file_format,
                token=token,
                rows=rows,
                refresh=change.refresh if query is None else change.refresh or BY_ITSELF,
                retention=change.retention,
                query=query,
            )
        except UnsupportedExpression:  # of a table that is there, with other keys: nobody asked to change those
            if change.replaces or self.definitions.newest(change.table) is None:
                raise
            raise ConfigError(f"table '{change.table}' exists already") from None


def _is_required(field: pa.Field, table: TableSpec) -> bool:
    return is_required(field) or field.name in table.primary_key


def _default_text(field: pa.Field, copied: frozenset[str]) -> str:
    default = default_of(field)
    return "" if default is None or DEFAULTS not in copied else f" DEFAULT {default}"


def _keys_of(table: TableSpec) -> list[Mapping[str, str]]:
    return [{key.name: key.expression} for key in table.spec.keys]


def _with_columns(declared: pa.Schema, pieces: Iterable[tuple[Like, TableSpec]]) -> pa.Schema:
    """The declared columns, those that were copied with the very type and the comment that they have there.

    What a column is called in files of its own table is not copied, nor what it is where those lack it.
    """
    copied: dict[str, tuple[pa.Field, frozenset[str]]] = {}
    for piece, source in pieces:
        copied |= {field.name: (field, piece.copied) for field in source.schema}
    fields = []
    for field in declared:
        if field.name in copied:
            original, kept = copied[field.name]
            field = pa.field(field.name, original.type, field.nullable)
            if DEFAULTS in kept:
                field = with_said(field, DEFAULT, default_of(original))
            if COMMENTS in kept:
                field = with_said(field, COMMENT, comment_of(original))
        fields.append(field)
    return pa.schema(fields)


MARK_DIGITS = 16
COPIES_MS, LOOK_MS = 3_000.0, 500.0
MAX_DROPPED = 100  # at once: each is a commit of its own, and the last 1,024 are remembered


@frozen
class TableWrites:
    """Makes and ends tables, and tells the executors. Thread-safe."""

    views: Views
    tables: TableMaker
    growth: Growth
    checks: RowChecks
    first: FirstRows
    runtime: Runtime
    patience_ms: float = PATIENCE_MS

    def make(
        self,
        name: str,
        schema: pa.Schema,
        partition_by: PartitionBy,
        *,
        primary_key: Sequence[str] = (),
        checks: Sequence[str] = (),
        if_not_exists: bool = False,
        replaces: bool = False,
        file_format: str = "parquet",
        token: str,
        rows: Iterable[pa.RecordBatch] | None = None,
        distribution: Distribution | None = None,
        colocate_with: str | None = None,
        refresh: Refresh | None = None,
        retention: Retention | None = None,
        query: str | None = None,
    ) -> int:
        """Create a managed table, of `rows` if they are given; how many they are. `replaces` as `TableMaker.create`.

        It is seen with all of its rows, or not at all; with a `query` it is a materialized view. The same statement
        sent again is content, also if its table was dropped since. Without a `distribution` one without keys is kept
        whole by every executor.
        """
        earlier = self.done(name, token)
        if earlier is not None:
            return earlier
        # Two attempts of one statement read at different moments, so that each needs files of its own.
        incarnation = incarnation_of(token) if rows is None and not replaces else None
        self.checks.require_valid(name, schema, checks)
        if retention is not None:
            self.checks.require_retention(name, schema, retention)

        def fill(table: TableSpec) -> dict[tuple[Any, ...], float]:
            return self.first.write(table, self.checks.batches(table, rows or ()), token)

        try:
            self.tables.create(
                name,
                None,
                partition_by,
                schema=schema,
                distribution=distribution or ("partitioned" if partition_by else "replicated"),
                colocate_with=colocate_with,
                primary_key=primary_key,
                checks=checks,
                file_format=file_format_named(file_format),
                incarnation=incarnation,
                mark=mark_of(token),
                fill=None if rows is None else fill,
                replaces=replaces,
                refresh=refresh,
                retention=retention,
                query=query,
            )
        except ConfigError:
            found = self.views.refresh({name}).catalog.tables.get(name)
            earlier = self.tables.done(*marks_of(token))
            if earlier is None and (found is None or not (if_not_exists or found.incarnation == incarnation)):
                raise
            if earlier is None:
                self.tables.note(mark_of(token))
        self._served(name)
        return self.tables.done(*marks_of(token)) or 0

    def done(self, name: str, token: str) -> int | None:
        """Of how many rows the statement has made the table, which is served then; None if it has not yet."""
        earlier = self.tables.done(*marks_of(token))
        if earlier is not None:
            self._served(name)
        return earlier

    def _served(self, name: str) -> None:
        """Return when the table, if it is there, is served everywhere.

        Who is to hold a copy and loads nothing, because it hangs or is not what it says, is waited for no longer than
        `COPIES_MS` after the owners. A leg that comes to it before it has loaded the table is planned again.
        """
        self.growth.reconcile_table(name)
        if name not in self.views.refresh({name}).catalog.tables:
            return
        looked_ms = self.runtime.monotonic_ms()
        deadline_ms = looked_ms + self.patience_ms
        owned = False
        while not self.growth.table_is_served(name) and self.runtime.monotonic_ms() < deadline_ms:
            if self.runtime.monotonic_ms() - looked_ms > LOOK_MS:  # another client may have dropped it
                looked_ms = self.runtime.monotonic_ms()
                if name not in self.views.refresh({name}).catalog.tables:
                    return
            if not owned and self.growth.table_is_served(name, by_owners=True):
                owned = True
                deadline_ms = min(deadline_ms, self.runtime.monotonic_ms() + COPIES_MS)
            pause(self.runtime, FIRST_WAIT_MS)

    def drop(self, change: DropTable, token: str) -> int:
        """End tables; 0, as no row is counted. Raises `SqlError` when there is none, before any of several is ended.

        The same statement sent again does nothing, also if there is another table of that name by now.
        """
        if len(change.tables) > MAX_DROPPED:
            raise SqlError(f"DROP names {len(change.tables):,} tables, more than {MAX_DROPPED}: send several")
        table = {name: f" {name}" if len(change.tables) > 1 else "" for name in change.tables}
        marks = {name: marks_of(token, more) for name, more in table.items()}
        due = [name for name, known in marks.items() if self.tables.done(*known) is None]
        if not due:
            return 0
        view = self.views.refresh(due)
        there: dict[str, TableSpec | ScannedTable] = {**view.catalog.tables, **view.scanned}
        named = next((name for name in due if name in view.sql_views), None)
        if named is not None:
            kind = ", and no materialized one" if change.kept_up else ""
            raise SqlError(f"'{named}' is a view{kind}: drop it with DROP VIEW")
        plain = next(
            (name for name in due if change.kept_up and name in there and not _keeps_query(there[name])), None
        )
        if plain is not None:
            raise SqlError(f"'{plain}' is a table: drop it with DROP TABLE")
        missing = [name for name in due if name not in there and not change.if_exists]
        if missing and len(due) > 1:
            raise SqlError(f"table '{missing[0]}' does not exist: nothing was dropped")
        for name in due:
            require_wanted()
            if not self.tables.drop(name, marks[name][0]):
                if not change.if_exists:
                    raise SqlError(f"table '{name}' does not exist")
                self.tables.note(marks[name][0])
        self.growth.reconcile_table(*due)
        return 0

    def exists_already(self, name: str, token: str) -> bool:
        """Whether there is a table of that name, so that a statement that makes it if there is none is done."""
        found = self.exists(name)
        if found:
            self.tables.note(mark_of(token))
        return found

    def exists(self, name: str) -> bool:
        """Whether there is a table of that name now."""
        return name in self.views.refresh({name}).catalog.tables


def _keeps_query(table: TableSpec | ScannedTable) -> bool:
    return isinstance(table, TableSpec) and table.query is not None


def mark_of(token: str) -> str:
    """What is remembered of a statement that made or dropped a table."""
    return sha256(f"definition {token}".encode()).hexdigest()[:MARK_DIGITS]


def marks_of(token: str, table: str = "") -> tuple[str, ...]:
    """The mark of a statement, and the one that releases gave it which did not tell clients apart."""
    return mark_of(f"{token}{table}"), mark_of(f"{of_nobody(token)}{table}")


def file_format_named(name: str) -> FileFormatName:
    """The file format of that name. Raises `SqlError` for one that there is not."""
    for known in FILE_FORMATS:
        if known == name:
            return known
    raise SqlError(f"no file format '{name}': a table is kept as {' or '.join(FILE_FORMATS)}")


def incarnation_of(token: str) -> str:
    """That of the table which the statement makes, however often it is sent."""
    return sha256(token.encode()).hexdigest()[:INCARNATION_DIGITS]
