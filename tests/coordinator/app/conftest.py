"""Applications and those who apply them, over a store in memory and a real engine for types."""

from __future__ import annotations

import pytest
from attrs import evolve

from ballista_py.coordinator.app.applying import AppApplier
from ballista_py.coordinator.app.declared import Declarations
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, SchedulerInfo
from ballista_py.state.documents.object_state import SHARED, ObjectState
from ballista_py.state.documents.policies import PolicyShelf
from ballista_py.state.stores.memory import MemoryStore


class Cluster:
    """A catalog, and the schedulers that are its members."""

    def __init__(self, declarations: Declarations) -> None:
        self.declarations = declarations
        self.store = MemoryStore()
        self.runtime = SystemRuntime()
        self.state = ObjectState(self.store, CLUSTER_KEY, ClusterDocument)
        self.state.create(ClusterDocument())

    def join(self, *instances: str) -> None:
        members = {name: SchedulerInfo(scheduler_id=name, instance_id=name) for name in instances}
        self.state.update(lambda now: evolve(now, schedulers={**now.schedulers, **members}))

    def evict(self, instance: str) -> None:
        self.state.update(lambda now: now.without_scheduler(instance, instance))

    def applier(self, instance: str, store=None, **options) -> AppApplier:
        store = store or self.store
        return AppApplier(
            me=instance,
            catalog=ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=self.runtime, retry=SHARED),
            tables=TableMaker(store, self.runtime, spawn=lambda _call: None),
            definitions=TableDefinitions(store, self.runtime),
            declarations=self.declarations,
            policies=PolicyShelf(store, self.runtime),
            **options,
        )

    @property
    def maker(self) -> TableMaker:
        return TableMaker(self.store, self.runtime, spawn=lambda _call: None)

    @property
    def now(self) -> ClusterDocument:
        return self.state.read().document


@pytest.fixture(scope="session")
def declarations():
    engine = DuckDBEngine()
    yield Declarations(RowChecks(engine))
    engine.close()


@pytest.fixture
def new_cluster(declarations):
    """Makes clusters of two schedulers, "one" and "two"."""

    def make() -> Cluster:
        made = Cluster(declarations)
        made.join("one", "two")
        return made

    return make


@pytest.fixture
def cluster(new_cluster) -> Cluster:
    return new_cluster()
