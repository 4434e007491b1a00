"""Statements that change something, at a scheduler: split by partition, sent to the owners, complete or named.

A statement has a token. Every owner applies it once and answers the same again, so whoever lost a reply sends the
statement again with its token. What was applied in some partitions only raises `WriteIncomplete` naming the others,
and sending it again completes it. A statement whose rows depend on what it reads (INSERT … SELECT, MERGE, rows that
move), or that is asked to be `atomic`, is decided once for all of its partitions (`state.statements`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import pyarrow as pa
from attrs import define, field

from ballista_py.engines.engine import Engine
from ballista_py.errors import (
    ConfigError,
    SqlError,
)
from ballista_py.node.checks import RowChecks
from ballista_py.node.cluster_view import ClusterView, Views
from ballista_py.node.general_writes import GeneralWrites
from ballista_py.node.owner_calls import Order, OwnerCalls
from ballista_py.node.query_service import QueryService
from ballista_py.node.table_writes import TableWrites, incarnation_of
from ballista_py.node.tables import TableMaker
from ballista_py.node.write_rounds import PATIENCE_MS, Growth, WriteRounds
from ballista_py.planning.kept_rows import KeptRows
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
)
from ballista_py.planning.sql.local_changes import as_general, local_rewrite, touched_partitions
from ballista_py.planning.table import TableSpec, table_folder
from ballista_py.planning.write_outcome import Outcome
from ballista_py.planning.write_ways import Way, way_of_local, way_of_rows
from ballista_py.runtime import Runtime
from ballista_py.state.statements import Statements
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
        self._ddl = TableWrites(self.views, self.tables, self.growth, self._checks, self.runtime, self.patience_ms)
        self._general = GeneralWrites(self.queries, self.calls, self._checks, self.max_bytes)

    def execute(self, statement: str, *, token: str | None = None, atomic: bool = False) -> int:
        """Run a statement (in the engine's dialect) that changes something; how many rows it affects.

        CREATE, DROP and TRUNCATE of a table count as the rows they touch. Raises `SqlError` for a statement that
        is wrong or changes nothing, `SchemaMismatch` for rows that the table refuses (nothing is applied then),
        `WriteIncomplete` naming the partitions that did not apply it.
        """
        change = read_change(statement)
        token = token or self.runtime.new_id()
        if isinstance(change, Insert):
            return self._insert(change, token, atomic)
        if isinstance(change, Local):
            return self._local(change, token, atomic)
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
        token = token or self.runtime.new_id()
        columns = schema or getattr(reader, "schema", None)
        name = table.lower()
        if mode in ("create", "create_append") and not self._ddl.exists(name):
            if columns is None:
                raise ConfigError(f"table '{name}' cannot be created from rows without a schema")
            self._ddl.make(name, columns, (), if_not_exists=mode == "create_append", token=token)
        elif mode == "create" and self._table(name).incarnation != incarnation_of(token):
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
        def prepare(attempt: str, view: ClusterView) -> Outcome:
            order = Order(table=table, token=token, attempt=attempt, replace=replace)
            also = view.catalog.maps[table.name].ids().tolist() if replace else ()
            return self.calls.send(order, view, rows, self._rounds.known(table), also=also)

        return self._rounds.once(table, token, prepare, repeatable=lambda: rows.repeatable)

    def _insert(self, change: Insert, token: str, atomic: bool) -> int:
        table = self._table(change.table)
        if not change.constant:
            earlier = self._rounds.statements(table).read().of(token)
            if earlier is not None:
                return self._decided_checked(table, KeptRows(iter(())), token, replace=False)
        running = self.queries.run(change.query)
        rows = self._checks.for_columns(table, change, running.schema, running.batches())
        return self._take_in(table, rows, token, way_of_rows(table, atomic=atomic, constant=change.constant))

    def _local(self, change: Local, token: str, atomic: bool) -> int:
        table = self._table(change.table)
        self._checks.bind(change, table)
        way = way_of_local(change, table, atomic=atomic)
        if way == "whole":
            return self._whole(as_general(change), token, change)
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        return self._rewrite(table, change, local_rewrite(change, table, types), token, atomic=way == "decide")

    def _rewrite(
        self, table: TableSpec, change: Local | None, rewrite: Rewrite, token: str, *, atomic: bool = False
    ) -> int:
        done: dict[int, int] = {}

        def partitions(view: ClusterView) -> list[int]:
            pmap = view.catalog.maps[table.name]
            touched = pmap.ids().tolist() if change is None else touched_partitions(change, table, pmap)
            return [partition for partition in touched if partition not in done]

        def prepare(attempt: str, view: ClusterView) -> Outcome:
            order = Order(table=table, token=token, attempt=attempt)
            return self.calls.rewrite(order, view, partitions(view), rewrite)

        if atomic:
            return self._rounds.once(table, token, prepare)
        return self._rounds.until_done(
            table, lambda view: self.calls.rewrite(_order(table, token), view, partitions(view), rewrite), done
        )

    def _whole(self, change: General, token: str, local: Local | None = None) -> int:
        table = self._table(change.table)
        affected: list[int] = [0]

        def prepare(attempt: str, view: ClusterView) -> Outcome:
            order = Order(table=table, token=token, attempt=attempt)
            pmap = view.catalog.maps[table.name]
            read = pmap.ids().tolist() if local is None else list(touched_partitions(local, table, pmap))
            outcome, affected[0] = self._general.prepare(
                change, order, view, read, self._rounds.known(table), local
            )
            return outcome

        return self._rounds.once(table, token, prepare, affected=lambda: affected[0])

    def _create(self, change: CreateTable, token: str) -> int:
        if change.if_not_exists and self._ddl.exists(change.table, but=token):
            return 0
        rows: Iterable[pa.RecordBatch] | None = None
        if change.columns is not None:
            schema = self._checks.schema(change.columns)
        elif change.query is not None:
            running = self.queries.run(change.query)
            schema, rows = running.schema, running.batches()
        else:
            raise SqlError("CREATE TABLE needs columns or a query")
        self._ddl.make(
            change.table,
            schema,
            change.partition_by,
            primary_key=change.primary_key,
            checks=change.checks,
            if_not_exists=change.if_not_exists,
            file_format=change.file_format,
            token=token,
        )
        if rows is None:
            return 0
        folder = table_folder(change.table, incarnation_of(token))
        earlier = Statements(self.store, folder, runtime=self.runtime).read().of(token)
        if earlier is not None and not self._ddl.exists(change.table):
            return earlier.affected
        return self._decided(self._table(change.table), rows, token, replace=False)

    def _table(self, name: str) -> TableSpec:
        for view in (self.views.current, self.views.refresh):
            found = view().catalog.tables.get(name)
            if found is not None and found.source is not None:
                raise SqlError(
                    f"table '{name}' is filled from its source: refresh it, or write to a managed table"
                )
            if found is not None:
                return found
        raise SqlError(f"Table '{name}' does not exist")


def _order(table: TableSpec, token: str) -> Order:
    return Order(table=table, token=token)
