"""A scheduler that begins read jobs, in virtual time: the real one but for SQL, which is played."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import pyarrow as pa
from attrs import define

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.reads.service import TableReads
from ballista_py.errors import BallistaError, ConfigError
from ballista_py.sql.plan import Catalog, Fragment, FragmentTable, QueryPlan
from ballista_py.state.documents.documents import PartitionMapDocument, partition_map_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.site import PARTITIONS
from ballista_py.testing.simulation.reads.site import ReadSite
from ballista_py.transport.security.signed_tickets import TicketSigner
from ballista_py.transport.table_read.tickets import READ_PURPOSE

TICK_MS = 60_000.0
LOOKS_SLOWLY = 0.25
SLOW_MS = 6_000.0  # from one manifest to the next
STANDS_STILL = 0.08


class ReadScheduler:
    """One process."""

    def __init__(self, site: ReadSite, name: str, still_ms: float) -> None:
        self.site = site
        self.machine = machine = Machine(site.world, name)
        self._still_ms = still_ms
        store = site.seen_by(machine)
        signer = TicketSigner(purpose=READ_PURPOSE, cluster_id="c", runtime=machine)
        queries = cast(QueryService, PlayedQueries(site, machine))
        self.reads = TableReads(queries, store, machine, signer, self._map)
        machine.spawn(self._tick)

    def _map(self, call: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """One after the other; now and then slowly, or with a long time between two."""
        slowly, machine = self.machine.random() < LOOKS_SLOWLY, self.machine
        for item in items:
            yield call(item)
            if slowly and not self.site.calm:
                machine.sleep_ms(SLOW_MS * machine.random())
        if not self.site.calm and machine.random() < STANDS_STILL:
            machine.sleep_ms(self._still_ms * machine.random())

    def _tick(self) -> None:
        machine = self.machine
        while not machine.stopping:
            with suppress(BallistaError):
                self.site.book.done["job removed"] += self.reads.tick()
            machine.sleep_ms(TICK_MS * self.site.pace * (0.5 + machine.random()))


@define
class PlayedQueries:
    """As much of a `QueryService` as read jobs ask for: the plan of `select * from` a table."""

    site: ReadSite
    machine: Machine

    @property
    def engine(self) -> PlayedQueries:
        """What tells columns."""
        return self

    @property
    def views(self) -> PlayedQueries:
        """What is known of the cluster."""
        return self

    def spelled(self, statement: str) -> str:
        """The statement."""
        return statement

    def describe(self, sql: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """All columns."""
        ((_, schema),) = schemas.items()
        return schema

    def planned(self, text: str, **_how: bool) -> tuple[QueryPlan, ClusterView]:
        """All rows of all partitions."""
        name = text.split()[-1]
        view = self.refresh([name])
        if name not in view.catalog.tables:
            raise ConfigError(f"there is no table '{name}'")
        read = FragmentTable(table=name, partitions=tuple(range(PARTITIONS)), total=PARTITIONS)
        fragment = Fragment(name="f", sql=text, tables=(read,))
        output = view.catalog.tables[name].schema
        return QueryPlan(sql=text, output=output, fragments=(fragment,), merge_sql=None), view

    def refresh(self, words: Iterable[str]) -> ClusterView:
        """The view, with the map of one table as it lies on the store."""
        (name,) = words
        table = self.site.tables.get(name)
        tables, maps = {}, {}
        if table is not None:
            key = partition_map_key(table.map_name)
            state = ObjectState(self.site.seen_by(self.machine), key, PartitionMapDocument, runtime=self.machine)
            tables, maps = {name: table}, {name: state.read().document.map}
        infos = [owner.lease.info for owner in self.site.owners]
        addresses = {info.executor_id: info.data_address for info in infos}
        return ClusterView(
            catalog=Catalog(tables=tables, maps=maps),
            members=frozenset((info.executor_id, info.instance_id) for info in infos),
            addresses=addresses,
            locations={name: f"grpc://{address}" for name, address in addresses.items()},
        )
