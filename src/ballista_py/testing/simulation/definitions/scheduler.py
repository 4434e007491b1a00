"""A scheduler in virtual time: real catalogs, rounds, definitions and replacements; SQL and its engine are played."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.first_rows import FirstRows
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.tables.alterations import TableAlterations
from ballista_py.coordinator.tables.ddl import TableWrites
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.owner_calls import WORTH_ANOTHER_TRY, Order, Outcome, OwnerCalls, owners_of
from ballista_py.coordinator.writes.rounds import WriteRounds
from ballista_py.coordinator.writes.sent_again import FormerTables, looked_at
from ballista_py.coordinator.writes.target_tables import PlannedAgain
from ballista_py.errors import BallistaError, SqlError
from ballista_py.partitions.map import Owner
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.alterations import AlterTable
from ballista_py.sql.parse.changes import DropTable
from ballista_py.sql.plan import LegTable
from ballista_py.sql.rewrite import Rewrite
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import PATIENCE_MS, WriteToken
from ballista_py.state.members.control import HeldPartitions
from ballista_py.state.ownership.notifier import Notifier
from ballista_py.state.ownership.notify import Committed
from ballista_py.state.ownership.table_status import table_status
from ballista_py.testing.simulation.definitions.owner import DefinitionOwner, OwnerPool
from ballista_py.testing.simulation.definitions.site import KEYS, DefinitionSite
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.row_engine import Answer

TICK_MS = 3_000.0
RESEND_MS = 5_000.0
REPLAN_MS = 500.0
SETTLES = 0.1
_COUNT = re.compile(r'from "([^"]+)" where "([^"]+)" is null')
Rows = Callable[[TableSpec], pa.RecordBatch]


class VirtualScheduler:
    """One process. What it is asked may raise whatever a scheduler raises."""

    def __init__(self, site: DefinitionSite, name: str) -> None:
        self.site = site
        self.machine = machine = Machine(site.world, name)
        self.instance_id = machine.new_id()
        store, run_all = site.seen_by(machine), _run_all(machine)
        self.catalogs = Catalogs(store, machine)
        self.calls = OwnerCalls(cast(Any, OwnerPool(site, machine)), run_all)
        self.rounds = WriteRounds(
            self.catalogs, store, self.calls, self, machine, instance=lambda: self.instance_id
        )
        maker, definitions = TableMaker(store, machine, spawn=machine.spawn), TableDefinitions(store, machine)
        checks, queries = cast(RowChecks, PlayedChecks()), cast(QueryService, PlayedQueries(self))
        self.alterations = TableAlterations(self.catalogs, maker, definitions, self, queries, checks, machine)
        first = FirstRows(store, machine, run_all)
        self.ddl = TableWrites(self.catalogs, maker, self, checks, first, machine)
        self.again = PlannedAgain(self.catalogs, self.rounds, definitions, machine, PATIENCE_MS)
        self.former = FormerTables(
            self.catalogs, store, machine, TokenClaims(store, machine), run_all, self.table_is_served
        )
        self._notifier = Notifier(machine, RESEND_MS)
        self._held: dict[Owner, tuple[HeldPartitions, ...]] = {}
        self._owners: dict[Owner, DefinitionOwner] = {}
        machine.spawn(self._live)

    # What executors are told, and what they say.

    def hear(self, owner: DefinitionOwner, held: tuple[HeldPartitions, ...]) -> None:
        """Take in what an owner says that it holds; tell it what it is to hold instead."""
        name = (owner.lease.info.executor_id, owner.lease.info.instance_id)
        self._held[name], self._owners[name] = held, owner
        self._tell(self.catalogs.known(), name)

    def _tell(self, view: ClusterView, name: Owner) -> None:
        held = self._held.get(name)
        if name not in view.members or held is None:
            return
        maps, tables = view.catalog.maps, view.catalog.tables
        committed = Committed(maps=maps, tables=tables, dropped=view.dropped)
        owner = self._owners[name]
        for update in self._notifier.news(name, committed, held):
            self.site.send(owner.machine, lambda update=update: owner.hear(update))  # type: ignore[misc]

    def _live(self) -> None:
        while not self.machine.stopping:
            with suppress(BallistaError):
                self._publish()
                if self.machine.random() < SETTLES:
                    live = {scheduler.instance_id for scheduler in self.site.schedulers}
                    self.rounds.settle_left_over(live)
            self.machine.sleep_ms(TICK_MS * (0.5 + self.machine.random()))

    def _publish(self) -> None:
        view = self.catalogs.refresh()
        self._held = {name: held for name, held in self._held.items() if name in view.members}
        for name in list(self._held):
            self._tell(view, name)

    # What a scheduler does so that rows have somewhere to go (`Growth`).

    def add_values(self, table: str, values: Sequence[tuple[Any, ...]]) -> None:
        """Nothing is to be added: all partitions are known beforehand."""
        self.site.assign()

    def reconcile_table(self, *tables: str) -> None:
        """Give them owners, and tell executors."""
        self.site.assign()
        self._publish()

    def table_is_served(self, table: str, *, by_owners: bool = False) -> bool:
        """As a node tells it, by what was heard."""
        view = self.catalogs.refresh({table})
        found = view.catalog.tables.get(table)
        if found is None:
            return False
        status = table_status(found, view.catalog.maps[table], view.members, self._held)
        ended = {spec.folder for spec, _ in view.dropped.values() if spec.name == table}
        reports = [r for name, held in self._held.items() if name in view.members for r in held]
        left = any(r.table in ended and (r.active or r.loaded) for r in reports)
        return status.owned if by_owners else status.ready and not left

    # Statements.

    def read(self, name: str) -> tuple[TableSpec | None, pa.Table]:
        """A table by the definition that it has, and its rows, as a query reads them; None if there is none."""
        deadline_ms = self.machine.monotonic_ms() + PATIENCE_MS
        view, is_fresh = self.catalogs.current({name}), False
        while True:
            table = view.catalog.tables.get(name)
            if table is None and is_fresh:
                return None, pa.table({})
            if table is not None:
                sequence = self.catalogs.sequences({name}).get(name)
                newest = self.catalogs.definitions({name}).get(name, 0)
                if is_fresh or newest <= table.definition:
                    try:
                        return table, self.rows(view, table, sequence)
                    except WORTH_ANOTHER_TRY:
                        if self.machine.monotonic_ms() > deadline_ms:
                            raise
                        self.machine.sleep_ms(REPLAN_MS)
            view, is_fresh = self.catalogs.refresh({name}), True

    def rows(self, view: ClusterView, table: TableSpec, sequence: int | None) -> pa.Table:
        """All rows of a table by this view."""
        pmap, found = view.catalog.maps[table.name], []
        for executor_id, partitions in owners_of(view, table.name, pmap.ids().tolist()).items():
            leg = LegTable(
                table=table.name,
                revision=pmap.revision,
                partitions=tuple(partitions),
                epochs=tuple(pmap.epoch(partition) for partition in partitions),
                sequence=sequence,
                definition=table.definition,
                incarnation=table.incarnation,
            )
            owner = self.site.addresses[view.addresses[executor_id]]
            found.append(self.site.call(self.machine, owner, lambda o=owner, leg=leg: o.read(leg)))  # type: ignore[misc]
        return pa.concat_tables(found)

    def insert(self, name: str, token: str, rows: Rows, *, atomic: bool, again: bool) -> str:
        """Add rows to the table of that name; the folder of the table in which they are."""

        def run(table: TableSpec, mine: WriteToken) -> None:
            batch, done = rows(table), dict[int, int]()
            known = self.rounds.known(table)

            def one(view: ClusterView) -> Outcome:
                order = Order(table=table, token=mine.kept)
                return self.calls.send(order, view, [batch], known, skip=frozenset(done))

            if atomic:
                self.rounds.once(
                    table, mine.kept, lambda order, view: self.calls.send(order, view, [batch], known)
                )
            else:
                self.rounds.until_done(table, one, done)

        return self._changed(name, token, run, again)[0]

    def rewrite(
        self, name: str, token: str, made: Callable[[TableSpec], Rewrite], *, again: bool
    ) -> tuple[str, int]:
        """Have all partitions of the table of that name rewritten; its folder, and how many rows that were."""

        def run(table: TableSpec, mine: WriteToken) -> int:
            rewrite = made(table)

            def prepare(order: Order, view: ClusterView) -> Outcome:
                return self.calls.rewrite(order, view, view.catalog.maps[name].ids().tolist(), rewrite)

            return self.rounds.once(table, mine.kept, prepare).affected

        return self._changed(name, token, run, again)

    def _changed(
        self, name: str, token: str, change: Callable[[TableSpec, WriteToken], int | None], again: bool
    ) -> tuple[str, int]:
        """Do a change to whatever has the name, unless it was done before to what had it then; see `WriteService`."""
        mine, times = WriteToken(token, ("execute", token), again=again), 0

        def run() -> tuple[str, int]:
            nonlocal mine, times
            mine, times = evolve(mine, again=True) if times else mine, times + 1
            table, found = looked_at(lambda: self._table(name), lambda folder: self.former.of(name, folder, mine))
            if found is not None:
                return found.folder, found.affected
            assert table is not None
            return table.folder, change(table, mine) or 0

        return self.again.until_done(run, {name})

    def _table(self, name: str) -> TableSpec:
        for view in (self.catalogs.current, self.catalogs.refresh):
            found = view({name}).catalog.tables.get(name)
            if found is None:
                continue
            self.catalogs.sequences({name})
            if self.catalogs.definitions({name}).get(name, 0) > found.definition:
                found = self.catalogs.refresh({name}).catalog.tables.get(name)
            if found is not None:
                return found
        raise SqlError(f"Table '{name}' does not exist")

    def alter(self, change: AlterTable, token: str) -> None:
        """ALTER TABLE."""
        self.alterations.alter(change, token)

    def drop(self, name: str, token: str) -> None:
        """DROP TABLE."""
        self.ddl.drop(DropTable(tables=(name,)), token)

    def replace(self, name: str, token: str, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        """CREATE OR REPLACE TABLE … AS rows."""
        self.ddl.make(name, schema, KEYS, replaces=True, token=token, rows=[batch])


@frozen
class PlayedQueries:
    """The one query that definitions ask."""

    scheduler: VirtualScheduler

    def run(self, sql: str) -> Answer:
        """How many rows have no value in a column."""
        found = _COUNT.search(sql)
        assert found is not None
        table, rows = self.scheduler.read(found[1])
        if table is None:
            raise SqlError(f"Table '{found[1]}' does not exist")
        if found[2] not in rows.schema.names:
            raise SqlError(f"no column '{found[2]}'")
        return Answer(pa.table({"count": [rows[found[2]].null_count]}))


class PlayedChecks:
    """What an engine says of types and constants; all columns but the key are whole numbers."""

    def type_of(self, table: str, column: str, kind: str) -> pa.DataType:
        """The type of that name."""
        return {"int": pa.int32(), "bigint": pa.int64()}[kind]

    def constant(self, column: pa.Field, text: str | None) -> pa.Array:
        """The value of a constant."""
        return pa.array([None if text is None else int(text)], column.type)

    def require_valid(self, table: str, schema: pa.Schema, checks: Sequence[str]) -> None:
        """There are no conditions."""

    def batches(self, table: TableSpec, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows, which fit."""
        return iter(rows)


def _run_all(machine: Machine) -> Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]:
    """`map` on threads of the machine; of what calls raise the first in order is raised, once all are done."""

    def run_all(call: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        def tried(item: Any) -> Any:
            try:
                return call(item), None
            except BallistaError as error:
                return None, error

        done = list(machine.map(tried, items))
        for _, error in done:
            if error is not None:
                raise error
        return [found for found, _ in done]

    return run_all
