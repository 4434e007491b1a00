"""Statements that change something, at a scheduler: split by partition, sent to the owners, complete or named.

A statement has a token. Every owner applies it once and answers the same again, so whoever lost a reply sends the
statement again with its token. What was applied in some partitions only raises `WriteIncomplete` naming the others,
and sending it again completes it. A statement whose rows depend on what it reads (INSERT … SELECT, MERGE, rows that
move), or that is asked to be `atomic`, is decided once for all of its partitions (`state.statements`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from attrs import define, field

from ballista_py.engines.engine import Engine
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    OwnershipError,
    PartitionsUnassigned,
    RetriesExhausted,
    SqlError,
    StoreError,
    TransportError,
    TryLater,
    WriteError,
    WriteIncomplete,
)
from ballista_py.node.checks import RowChecks
from ballista_py.node.general_writes import GeneralWrites
from ballista_py.node.owner_calls import Order, Outcome, OwnerCalls, named
from ballista_py.node.query_service import ClusterView, QueryService, Views
from ballista_py.node.tables import INCARNATION_DIGITS, TableMaker
from ballista_py.planning.partition_spec import PartitionBy
from ballista_py.planning.sql.changes import (
    CopyFrom,
    CreateTable,
    DropTable,
    General,
    Insert,
    Local,
    Rewrite,
    Truncate,
    as_general,
    local_rewrite,
    moves_rows,
    read_change,
    touched_partitions,
)
from ballista_py.planning.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.statements import Statements
from ballista_py.state.store import ConditionalStore
from ballista_py.transport.commands import IngestMode

PATIENCE_MS = 30_000.0
FIRST_WAIT_MS = 50.0
LONGEST_WAIT_MS = 1_000.0
REPEATABLE_BYTES = 64 << 20
_WORTH_ANOTHER_TRY = (OwnershipError, TransportError, PartitionsUnassigned, StoreError, RetriesExhausted)


class Growth(Protocol):
    """What a scheduler does so that rows have somewhere to go."""

    def add_values(self, table: str, values: Sequence[tuple[Any, ...]]) -> None:
        """Give the table partitions for these values, and every partition an owner; returns when committed."""
        ...

    def table_is_served(self, table: str) -> bool:
        """Whether every partition of the table is loaded at its owner."""
        ...

    def reconcile_all(self) -> Mapping[str, int]: ...


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
    _general: GeneralWrites = field(init=False)
    _checks: RowChecks = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._checks = RowChecks(self.engine)
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
            return self._drop(change)
        if isinstance(change, CopyFrom):
            raise SqlError("COPY reads a file of the client: send it with Client.sql, or use Client.ingest")
        raise SqlError("the statement changes nothing: send it as a query")

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
        if mode in ("create", "create_append") and not self._exists(name):
            if columns is None:
                raise ConfigError(f"table '{name}' cannot be created from rows without a schema")
            self._make(name, columns, (), if_not_exists=mode == "create_append", token=token)
        elif mode == "create" and self._table(name).incarnation != _incarnation(token):
            raise ConfigError(f"table '{name}' exists already")
        spec = self._table(name)
        if mode == "replace" or atomic:
            return self._decided(spec, reader, token, replace=mode == "replace")
        return self._append(spec, reader, token)

    def _append(self, table: TableSpec, rows: Iterable[pa.RecordBatch], token: str) -> int:
        """Rows that each owner applies by itself. Tried again while the rows are few enough to be kept."""
        checked = self._checks.batches(table, rows)
        head, rest = _head(checked)
        done: dict[int, int] = {}
        if table.primary_key and rest is None and head:
            return self._decided_checked(table, lambda: iter(head), token, replace=False)

        def one(view: ClusterView) -> Outcome:
            batches = head if rest is None else chain(head, rest)
            known = self._known(table)
            return self.calls.send(_order(table, token), view, batches, known, skip=frozenset(done))

        return self._until_done(table, one, done, repeatable=rest is None)

    def _until_done(
        self,
        table: TableSpec,
        one: Callable[[ClusterView], Outcome],
        done: dict[int, int],
        *,
        repeatable: bool = True,
    ) -> int:
        """Call `one` with fresh views until every partition applied its share; the rows affected."""
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        wait_ms = FIRST_WAIT_MS
        view = self._view(table)
        while True:
            errors: Mapping[int, BallistaError] = {}
            try:
                outcome = one(view)
                done.update(outcome.affected)
                errors = {p: e for p, e in outcome.errors.items() if p not in done}
                if not errors:
                    self.calls.reload(self._view(table), table, sorted(done))
                    return sum(done.values())
            except _WORTH_ANOTHER_TRY as error:
                if not repeatable or self.runtime.monotonic_ms() > deadline_ms:
                    if not done:
                        raise
                    raise self._incomplete(table, view, {}, done, error) from error
            worst = next((e for e in errors.values() if not isinstance(e, _WORTH_ANOTHER_TRY)), None)
            over = worst is not None or not repeatable or self.runtime.monotonic_ms() > deadline_ms
            if errors and over:
                first = worst or next(iter(errors.values()))
                if worst is not None and not done and len(errors) == 1:
                    raise worst
                raise self._incomplete(table, view, errors, done, first)
            self.runtime.sleep_ms(wait_ms)
            wait_ms = min(LONGEST_WAIT_MS, 2 * wait_ms)
            self.views.refresh()
            view = self._view(table)

    def _incomplete(
        self,
        table: TableSpec,
        view: ClusterView,
        errors: Mapping[int, BallistaError],
        done: Mapping[int, int],
        reason: BallistaError,
    ) -> WriteError:
        if isinstance(reason, WriteError) and not done:
            return reason
        names = named(view.catalog.maps[table.name], list(errors))
        where = f"partitions {', '.join(names)}" + (" and others" if len(errors) > len(names) else "")
        return WriteIncomplete(
            f"table '{table.name}': {len(errors) or 'some'} partition(s) did not apply the statement, "
            f"{len(done)} did ({where if names else 'which is not known'}: {reason.message}); "
            "send it again with the same token",
            table=table.name,
            partitions=names,
        )

    def _decided(self, table: TableSpec, rows: Iterable[pa.RecordBatch], token: str, *, replace: bool) -> int:
        checked = self._checks.batches(table, rows)
        head, rest = _head(checked)
        if rest is None:
            return self._decided_checked(table, lambda: iter(head), token, replace=replace)
        used: list[bool] = []

        def once() -> Iterator[pa.RecordBatch]:
            if used:
                raise TryLater("the rows were too many to be kept: send the statement again with the same token")
            used.append(True)
            return chain(head, rest)

        return self._decided_checked(table, once, token, replace=replace)

    def _decided_checked(
        self, table: TableSpec, rows: Callable[[], Iterator[pa.RecordBatch]], token: str, *, replace: bool
    ) -> int:
        def prepare(attempt: str, view: ClusterView) -> Outcome:
            order = Order(table=table, token=token, attempt=attempt, replace=replace)
            also = view.catalog.maps[table.name].ids().tolist() if replace else ()
            return self.calls.send(order, view, rows(), self._known(table), also=also)

        return self._once(table, token, prepare)

    def _once(
        self,
        table: TableSpec,
        token: str,
        prepare: Callable[[str, ClusterView], Outcome],
        affected: Callable[[], int] | None = None,
    ) -> int:
        """Prepare an attempt everywhere, decide it, have it folded in; attempt it again where that may help."""
        statements = self._statements(table)
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        wait_ms = FIRST_WAIT_MS
        while True:
            earlier = statements.read().of(token)
            if earlier is not None:
                view = self._view(table)
                everywhere = view.catalog.maps[table.name].ids().tolist()
                if not earlier.settled:
                    self._fold(table, token, earlier.attempt, everywhere)
                return earlier.affected
            attempt = self.runtime.new_id()
            view = self._view(table)
            try:
                outcome = prepare(attempt, view)
                error = next(
                    iter(sorted(outcome.errors.values(), key=lambda e: isinstance(e, _WORTH_ANOTHER_TRY))), None
                )
                if error is not None:
                    self._give_up(table, statements, attempt, token, list(outcome.affected))
                    raise error
            except _WORTH_ANOTHER_TRY:
                if self.runtime.monotonic_ms() > deadline_ms:
                    raise
            else:
                total = sum(outcome.affected.values()) if affected is None else affected()
                decision = statements.commit(attempt, token, affected=total)
                if decision.committed:
                    self._fold(table, token, attempt, sorted(outcome.affected))
                    return total
                self._give_up(table, statements, attempt, token, list(outcome.affected))
            self.runtime.sleep_ms(wait_ms * (0.5 + self.runtime.random()))
            wait_ms = min(LONGEST_WAIT_MS, 2 * wait_ms)
            self.views.refresh()

    def _fold(self, table: TableSpec, token: str, attempt: str, partitions: Sequence[int]) -> None:
        """Have a decided attempt folded in where it was prepared. It counts, whatever happens here."""
        waiting = set(partitions)

        def one(view: ClusterView) -> Outcome:
            order = Order(table=table, token=token, attempt=attempt)
            outcome = self.calls.settle(order, view, sorted(waiting), committed=True)
            waiting.difference_update(outcome.affected)
            return outcome

        self._until_done(table, one, {})
        self._statements(table).settle(attempt)

    def _give_up(
        self, table: TableSpec, statements: Statements, attempt: str, token: str, partitions: Sequence[int]
    ) -> None:
        """Abort an attempt. Owners that cannot be told find out by themselves."""
        statements.abort(attempt, token)
        try:
            order = Order(table=table, token=token, attempt=attempt)
            self.calls.settle(order, self._view(table), partitions, committed=False)
        except BallistaError:
            return

    def _insert(self, change: Insert, token: str, atomic: bool) -> int:
        table = self._table(change.table)
        if not change.constant:
            earlier = self._statements(table).read().of(token)
            if earlier is not None:
                return self._decided_checked(table, lambda: iter(()), token, replace=False)
        running = self.queries.run(change.query)
        rows = self._checks.for_columns(table, change, running.schema, running.batches())
        if change.constant and not atomic:
            return self._append(table, rows, token)
        return self._decided(table, rows, token, replace=False)

    def _local(self, change: Local, token: str, atomic: bool) -> int:
        table = self._table(change.table)
        self._checks.bind(change, table)
        if moves_rows(change, table):
            return self._whole(as_general(change), token, change)
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        rewrite = local_rewrite(change, table, types)
        risky = change.assignments is not None and (
            table.is_constrained or any(not f.nullable for f in table.schema)
        )
        if risky and table.is_constrained:
            return self._whole(as_general(change), token, change)
        return self._rewrite(table, change, rewrite, token, atomic=atomic or risky)

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
            return self._once(table, token, prepare)
        return self._until_done(
            table, lambda view: self.calls.rewrite(_order(table, token), view, partitions(view), rewrite), done
        )

    def _whole(self, change: General, token: str, local: Local | None = None) -> int:
        table = self._table(change.table)
        affected: list[int] = [0]

        def prepare(attempt: str, view: ClusterView) -> Outcome:
            order = Order(table=table, token=token, attempt=attempt)
            pmap = view.catalog.maps[table.name]
            read = pmap.ids().tolist() if local is None else list(touched_partitions(local, table, pmap))
            outcome, affected[0] = self._general.prepare(change, order, view, read, self._known(table))
            return outcome

        return self._once(table, token, prepare, affected=lambda: affected[0])

    def _create(self, change: CreateTable, token: str) -> int:
        if change.if_not_exists and self._exists(change.table):
            return 0
        rows: Iterable[pa.RecordBatch] | None = None
        if change.columns is not None:
            schema = self._checks.schema(change.columns)
        elif change.query is not None:
            running = self.queries.run(change.query)
            schema, rows = running.schema, running.batches()
        else:
            raise SqlError("CREATE TABLE needs columns or a query")
        self._make(
            change.table,
            schema,
            change.partition_by,
            primary_key=change.primary_key,
            checks=change.checks,
            if_not_exists=change.if_not_exists,
            token=token,
        )
        return 0 if rows is None else self._decided(self._table(change.table), rows, token, replace=False)

    def _make(
        self,
        name: str,
        schema: pa.Schema,
        partition_by: PartitionBy,
        *,
        primary_key: Sequence[str] = (),
        checks: Sequence[str] = (),
        if_not_exists: bool = False,
        token: str,
    ) -> None:
        """Create a managed table; the same statement sent again finds its own table and is content."""
        incarnation = _incarnation(token)
        self._checks.require_valid(name, schema, checks)
        try:
            self.tables.create(
                name,
                None,
                partition_by,
                schema=schema,
                distribution="partitioned" if partition_by else "replicated",
                primary_key=primary_key,
                checks=checks,
                incarnation=incarnation,
            )
        except ConfigError:
            found = self.views.refresh().catalog.tables.get(name)
            if found is None or not (if_not_exists or found.incarnation == incarnation):
                raise
        self.growth.reconcile_all()
        self.views.refresh()
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        while not self.growth.table_is_served(name) and self.runtime.monotonic_ms() < deadline_ms:
            self.runtime.sleep_ms(FIRST_WAIT_MS)

    def _drop(self, change: DropTable) -> int:
        if self.tables.drop(change.table) is None and not change.if_exists:
            raise SqlError(f"table '{change.table}' does not exist")
        self.growth.reconcile_all()
        self.views.refresh()
        return 0

    def _known(self, table: TableSpec) -> Callable[[Sequence[tuple[Any, ...]]], ClusterView]:
        """Gives views in which values have partitions with owners, making them if need be."""

        def known(values: Sequence[tuple[Any, ...]]) -> ClusterView:
            self.growth.add_values(table.name, values)
            deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
            while True:
                self.views.refresh()
                view = self._view(table)
                pmap = view.catalog.maps[table.name]
                found = [pmap.index(value) for value in values]
                lacking = [
                    v for v, p in zip(values, found, strict=True) if p is None or pmap.owner(p) not in view.members
                ]
                if not lacking:
                    return view
                if self.runtime.monotonic_ms() > deadline_ms:
                    raise PartitionsUnassigned(
                        f"table '{table.name}': no executor takes the partition of {lacking[0]}: add executors"
                    )
                self.runtime.sleep_ms(FIRST_WAIT_MS)
                self.growth.add_values(table.name, lacking)

        return known

    def _view(self, table: TableSpec) -> ClusterView:
        """A view that has the very table. Raises `SqlError` when it was dropped."""
        for view in (self.views.current, self.views.refresh):
            found = view()
            now = found.catalog.tables.get(table.name)
            if now is not None and now.incarnation == table.incarnation:
                return found
        raise SqlError(f"table '{table.name}' does not exist any more")

    def _table(self, name: str) -> TableSpec:
        for view in (self.views.current, self.views.refresh):
            found = view().catalog.tables.get(name)
            if found is not None:
                return found
        raise SqlError(f"Table '{name}' does not exist")

    def _exists(self, name: str) -> bool:
        return name in self.views.refresh().catalog.tables

    def _statements(self, table: TableSpec) -> Statements:
        return Statements(self.store, table.folder, runtime=self.runtime)


def _incarnation(token: str) -> str:
    """That of the table which the statement makes, however often it is sent."""
    return sha256(token.encode()).hexdigest()[:INCARNATION_DIGITS]


def _order(table: TableSpec, token: str) -> Order:
    return Order(table=table, token=token)


def _head(
    batches: Iterator[pa.RecordBatch],
) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """The batches if they are few enough to be kept, else the first of them and the others."""
    head: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        head.append(batch)
        size += batch.nbytes
        if size >= REPEATABLE_BYTES:
            return head, batches
    return head, None
