"""Statements that change something, at a scheduler: split by partition, sent to the owners, complete or named.

A statement has a token. Every owner applies it once and answers the same again, so whoever lost a reply sends the
statement again with its token. Rows that were added in some partitions only raise `WriteIncomplete` naming the others,
and sending them again completes it. A statement that changes rows of several partitions, whose rows depend on what it
reads (INSERT … SELECT, MERGE, rows that move), or that is asked to be `atomic`, is decided once for all of its
partitions (`state.statements`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.engines.engine import Engine
from ballista_py.errors import (
    ConfigError,
    SqlError,
    WriteIncomplete,
)
from ballista_py.node.checks import RowChecks
from ballista_py.node.cluster_view import ClusterView, Views
from ballista_py.node.first_rows import FirstRows
from ballista_py.node.general_writes import GeneralWrites
from ballista_py.node.owner_calls import Order, OwnerCalls
from ballista_py.node.query_service import QueryService
from ballista_py.node.running_statement import Statement, read_as_work
from ballista_py.node.table_writes import TableWrites
from ballista_py.node.tables import TableMaker
from ballista_py.node.write_rounds import Growth, WriteRounds
from ballista_py.planning.kept_rows import KeptRows
from ballista_py.planning.resends import PATIENCE_MS
from ballista_py.planning.rewrite import Rewrite
from ballista_py.planning.sql.changes import (
    CopyFrom,
    CreateTable,
    DropTable,
    General,
    Insert,
    Local,
    Truncate,
    read_change,
    text_for_engine,
)
from ballista_py.planning.sql.local_changes import as_general, local_rewrite, touched_partitions
from ballista_py.planning.sql.own_words import without_position
from ballista_py.planning.table import TableSpec
from ballista_py.planning.types import require_kept
from ballista_py.planning.write_outcome import Outcome
from ballista_py.planning.write_tokens import token_for
from ballista_py.planning.write_ways import Way, way_of_local, way_of_rows
from ballista_py.runtime import Runtime
from ballista_py.state.store import ConditionalStore
from ballista_py.transport.commands import IngestMode


@define
class WriteService:
    """Runs statements that change something. Thread-safe."""

    views: Views
    store: ConditionalStore
    engine: Engine
    queries: QueryService
    calls: OwnerCalls
    tables: TableMaker
    growth: Growth
    runtime: Runtime
    max_bytes: int
    patience_ms: float = PATIENCE_MS
    instance: Callable[[], str] = str
    _general: GeneralWrites = field(init=False)
    _checks: RowChecks = field(init=False)
    _rounds: WriteRounds = field(init=False)
    _ddl: TableWrites = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._checks = RowChecks(self.engine)
        self._rounds = WriteRounds(
            self.views, self.store, self.calls, self.growth, self.runtime, self.patience_ms, self.instance
        )
        first = FirstRows(self.store, self.runtime, self.calls.run_all)
        self._ddl = TableWrites(
            self.views, self.tables, self.growth, self._checks, first, self.runtime, self.patience_ms
        )
        self._general = GeneralWrites(self.queries, self.calls, self._checks, self.max_bytes)

    def execute(self, statement: str, *, token: str | None = None, atomic: bool = False) -> int:
        """Run a statement (in the engine's dialect) that changes something; how many rows it affects.

        CREATE, DROP and TRUNCATE of a table count as the rows they touch. Raises `SqlError` for a statement that
        is wrong or changes nothing, `SchemaMismatch` for rows that the table refuses (nothing is applied then),
        `WriteIncomplete` naming the partitions that did not apply it.
        """
        plain = text_for_engine(statement)
        if plain is not None:
            self.engine.require_change(plain)
        change = read_change(statement)
        token = token_for(token or self.runtime.new_id(), "execute", statement, atomic)
        if isinstance(change, Insert):
            return self._insert(change, token, atomic)
        if isinstance(change, Local):
            return self._local(change, token)
        if isinstance(change, General):
            return self._whole(change, token)
        if isinstance(change, Truncate):
            return self._rewrite(self._table(change.table), None, Rewrite(), token)
        if isinstance(change, CreateTable):
            return self._create(change, token)
        if isinstance(change, DropTable):
            return self._ddl.drop(change, token)
        if isinstance(change, CopyFrom):
            raise SqlError("COPY reads a file of the client: send it with Client.sql, or use Client.ingest")
        raise SqlError("the statement changes nothing: send it as a query")

    def settle_left_over(self, schedulers: Collection[str]) -> int:
        """See `WriteRounds.settle_left_over`."""
        return self._rounds.settle_left_over(schedulers)

    def ingest(
        self,
        table: str,
        reader: pa.RecordBatchReader | Iterable[pa.RecordBatch],
        *,
        mode: IngestMode = "append",
        token: str | None = None,
        atomic: bool = False,
        schema: pa.Schema | None = None,
    ) -> int:
        """Take in rows for a table, all of them or none that is not named; how many they are.

        `append` wants the table to exist and `create` wants it not to; `replace` puts the rows in the place of all
        that are there; `create_append` makes the table if there is none. A table made here is kept whole by every
        executor, because rows do not say how to split them: create a partitioned one first.

        Raises `SchemaMismatch`, `ConfigError` for a table that is missing or exists, `WriteIncomplete`.
        """
        token = token_for(token or self.runtime.new_id(), "ingest", table.lower(), mode, atomic)
        columns = schema or getattr(reader, "schema", None)
        name = table.lower()
        if mode in ("create", "create_append"):
            earlier = self._ddl.done(name, token)
            if earlier is not None:
                return earlier
            if not self._ddl.exists(name):
                if columns is None:
                    raise ConfigError(f"table '{name}' cannot be created from rows without a schema")
                reader = KeptRows(iter(reader))
                try:
                    return self._ddl.make(name, columns, (), token=token, rows=reader)
                except ConfigError:  # somebody else made it meanwhile
                    if mode == "create" or not self._ddl.exists(name):
                        raise
            elif mode == "create":
                raise ConfigError(f"table '{name}' exists already")
        spec = self._table(name)
        replace = mode == "replace"
        return self._take_in(
            spec, reader, token, way_of_rows(spec, atomic=atomic, replace=replace), replace=replace
        )

    def _take_in(
        self, table: TableSpec, rows: Iterable[pa.RecordBatch], token: str, way: Way, *, replace: bool = False
    ) -> int:
        if way == "apply":
            return self._append(table, rows, token)
        return self._decided(table, rows, token, replace=replace)

    def _append(self, table: TableSpec, rows: Iterable[pa.RecordBatch], token: str) -> int:
        """Rows that each owner applies by itself. Tried again while the rows are few enough to be kept."""
        kept = KeptRows(self._checks.batches(table, rows))
        done: dict[int, int] = {}

        def one(view: ClusterView) -> Outcome:
            known = self._rounds.known(table)
            return self.calls.send(_order(table, token), view, kept, known, skip=frozenset(done))

        return self._rounds.until_done(table, one, done, repeatable=lambda: kept.repeatable)

    def _decided(self, table: TableSpec, rows: Iterable[pa.RecordBatch], token: str, *, replace: bool) -> int:
        return self._decided_checked(table, KeptRows(self._checks.batches(table, rows)), token, replace=replace)

    def _decided_checked(self, table: TableSpec, rows: KeptRows, token: str, *, replace: bool) -> int:
        def prepare(order: Order, view: ClusterView) -> Outcome:
            known = self._rounds.known(table)
            if not replace:
                return self.calls.send(order, view, rows, known)
            order = evolve(order, replace=True)
            everywhere = view.catalog.maps[table.name].ids().tolist()
            outcome = self.calls.send(order, view, rows, known, also=everywhere)
            return self._everywhere(order, outcome)

        return self._rounds.once(table, token, prepare, repeatable=lambda: rows.repeatable)

    def _everywhere(self, order: Order, outcome: Outcome) -> Outcome:
        """With partitions prepared, too, that others made meanwhile: of two that replace everything one waits."""
        while not outcome.errors:
            self.views.refresh()
            view = self._rounds.view(order.table)
            everywhere = view.catalog.maps[order.table.name].ids().tolist()
            lacking = [partition for partition in everywhere if partition not in outcome.affected]
            if not lacking:
                break
            outcome.take(self.calls.send(order, view, (), self._rounds.known(order.table), also=lacking))
        return outcome

    def _insert(self, change: Insert, token: str, atomic: bool) -> int:
        table = self._table(change.table)
        if not change.constant:
            earlier = self._rounds.statements(table).read().of(token)
            if earlier is not None:
                return self._decided_checked(table, KeptRows(iter(())), token, replace=False)
        self._checks.require_fitting(table, change, self.queries.describe(change.query))
        with self._running(change.query) as running:
            rows = self._checks.for_columns(table, change, running.schema, running.batches())
            way = way_of_rows(table, atomic=atomic, constant=change.constant)
            with closing(rows):
                return self._take_in(table, rows, token, way)

    @contextmanager
    def _running(self, query: str) -> Iterator[Statement]:
        """The query, open for as long as the block lasts: whoever leaves it early leaves nothing running."""
        running = read_as_work(self.queries.run(query))
        try:
            yield running
        finally:
            running.cancel()

    def _local(self, change: Local, token: str) -> int:
        table = self._table(change.table)
        if not self._checks.bind(change, table):
            return self._whole(as_general(change), token)
        touched = self._touched(table, change, self._rounds.view(table))
        if way_of_local(change, table, partitions=len(touched)) == "whole":
            return self._whole(as_general(change), token, change)
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        try:
            return self._rewrite(table, change, local_rewrite(change, table, types), token)
        except (SqlError, WriteIncomplete) as error:
            raise without_position(error) from None

    def _touched(self, table: TableSpec, change: Local | None, view: ClusterView) -> list[int]:
        """The partitions that the statement can touch; None for one that touches all."""
        pmap = view.catalog.maps[table.name]
        return pmap.ids().tolist() if change is None else list(touched_partitions(change, table, pmap))

    def _rewrite(self, table: TableSpec, change: Local | None, rewrite: Rewrite, token: str) -> int:
        """Have owners rewrite files: one partition by itself, several all or none."""
        touched = self._touched(table, change, self._rounds.view(table))
        if len(touched) <= 1:  # a partition that is made from now on has no row that the statement must see

            def one(view: ClusterView) -> Outcome:
                return self.calls.rewrite(_order(table, token), view, touched, rewrite)

            return self._rounds.until_done(table, one, {})
        met = False

        def prepare(order: Order, view: ClusterView) -> Outcome:
            nonlocal met
            wanted = self._touched(table, change, view)
            # Those that were in each other's way meet at their first partition, and have nothing to undo.
            parts = [wanted[:1], wanted[1:]] if met else [wanted]
            outcome, met = Outcome(), True
            for part in parts:
                if not outcome.errors:
                    outcome.take(self.calls.rewrite(order, view, part, rewrite))
            return outcome

        return self._rounds.once(table, token, prepare)

    def _whole(self, change: General, token: str, local: Local | None = None) -> int:
        table = self._table(change.table)
        self._bind_general(change)
        affected: list[int] = [0]

        def prepare(order: Order, view: ClusterView) -> Outcome:
            pmap = view.catalog.maps[table.name]
            read = pmap.ids().tolist() if local is None else list(touched_partitions(local, table, pmap))
            outcome, affected[0] = self._general.prepare(
                change, order, view, read, self._rounds.known(table), local
            )
            return outcome

        return self._rounds.once(table, token, prepare, affected=lambda: affected[0])

    def _bind_general(self, change: General) -> None:
        """Raise `SqlError`, with its position, unless the statement means something over the tables that there are."""
        try:
            self.engine.bind_change(change.text, self.views.current().catalog.schemas)
        except SqlError:
            self.engine.bind_change(change.text, self.views.refresh().catalog.schemas)

    def _create(self, change: CreateTable, token: str) -> int:
        earlier = self._ddl.done(change.table, token)
        if earlier is not None:
            return earlier
        if change.if_not_exists and self._ddl.exists(change.table):
            return 0
        if change.columns is not None:
            return self._make(change, self._checks.schema(change), token)
        if change.query is None:
            raise SqlError("CREATE TABLE needs columns or a query")
        for name, kind in self.queries.types(change.query):
            require_kept(change.table, name, kind)
        with self._running(change.query) as running:
            return self._make(change, running.schema, token, running.batches())

    def _make(
        self, change: CreateTable, schema: pa.Schema, token: str, rows: Iterable[pa.RecordBatch] | None = None
    ) -> int:
        return self._ddl.make(
            change.table,
            schema,
            change.partition_by,
            primary_key=change.primary_key,
            checks=change.checks,
            if_not_exists=change.if_not_exists,
            file_format=change.file_format,
            token=token,
            rows=rows,
        )

    def _table(self, name: str) -> TableSpec:
        for view in (self.views.current, self.views.refresh):
            found = view().catalog.tables.get(name)
            if found is not None and found.source is not None:
                raise SqlError(
                    f"table '{name}' is filled from its source: refresh it, or write to a managed table"
                )
            if found is not None:
                return found
        self.views.current().require_usable({name})
        reason = self.views.current().catalog.left_out.get(name)
        if reason is not None:
            raise SqlError(f"table '{name}' cannot be used: {reason}")
        raise SqlError(f"Table '{name}' does not exist")


def _order(table: TableSpec, token: str) -> Order:
    return Order(table=table, token=token)
