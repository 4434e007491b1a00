"""What a statement, a heartbeat and an interval cost does not grow with tables that they have nothing to do with."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.node.config import NodeConfig
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.partitions.assignment.assigner import PartitionAssigner
from ballista_py.partitions.discovery import added_partitions
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, SchedulerInfo
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import Grant, HeldPartitions, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.ownership import notifier
from ballista_py.state.ownership.notify import desired
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.memory import MemoryStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string())])
STATIC = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
GROWING = PartitionSpec.parse(["day"], SCHEMA)
FEW, MANY = 3, 20


class ReadStore(MemoryStore):
    """Counts what is read of it."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def get(self, *arguments):
        self.reads += 1
        return super().get(*arguments)

    def counted(self, call):
        self.reads = 0
        call()
        return self.reads


class Cluster:
    """A scheduler, an executor that holds all that it is told to, and so many tables."""

    def __init__(self, count, spec=STATIC):
        self.store, runtime = ReadStore(), SystemRuntime()
        names = [f"t{n}" for n in range(count)]
        tables = {
            name: TableSpec(name=name, schema=SCHEMA, spec=spec, group=name, incarnation=name) for name in names
        }
        ObjectState(self.store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument(tables=tables))
        values = spec.static_values() if spec.is_static else [("monday",)]
        for name in names:
            PartitionStore(self.store).create(PartitionMap.build(name, spec, values), name)
        self.maker, self.catalogs = TableMaker(self.store, runtime), Catalogs(self.store, runtime)
        config = NodeConfig(
            role="scheduler",
            node_id="s1",
            state_location="memory://x",
            allow_insecure_connections=True,
            ttl_ms=3_600_000,
        )
        info = SchedulerInfo(scheduler_id="s1", instance_id="")
        self.pushed = []
        self.lease, self.held = ExecutorLease("e1", "h:1", runtime=runtime), {}
        self.core = SchedulerCore(config, info, self.store, self.catalogs, self.push, runtime)
        self.core.join()
        self.beat()
        self.core.admit()
        self.beat()
        self.core.reconcile_all()
        self.settle()

    def push(self, _to, said):
        if isinstance(said, Grant):
            self.lease.answered(said)
        else:
            self.pushed.append(said)

    def beat(self):
        answer = self.core.heard(self.lease.heartbeat(tuple(self.held.values())))
        if isinstance(answer, Grant):
            self.lease.answered(answer)

    def settle(self):
        """The executor takes in what it was told, and says so."""
        for update in [said for said in self.pushed if isinstance(said, UpdatePartitions)]:
            ids = tuple(a.partition for a in update.partitions)
            epochs = tuple(a.epoch for a in update.partitions)
            report = HeldPartitions(table=update.table.folder, revision=update.revision, active=ids, epochs=epochs)
            self.held[update.table.folder] = report
        self.pushed.clear()
        self.beat()

    def create(self, name):
        self.maker.create(name, None, ["bucket(4, id)"], schema=SCHEMA)
        self.core.reconcile_table(name)
        assert not self.core.table_is_served(name)
        self.settle()
        assert self.core.table_is_served(name)

    def drop(self, name):
        assert self.maker.drop(name)
        self.core.reconcile_table(name)
        assert [(u.table.name, u.partitions) for u in self.pushed if isinstance(u, UpdatePartitions)] == [
            (name, ())
        ]


def test_create_and_drop_read_as_many_documents_with_many_tables_as_with_few():
    few, many = Cluster(FEW), Cluster(MANY)
    reads = [cluster.store.counted(lambda c=cluster: c.create("one")) for cluster in (few, many)]
    assert reads[0] == reads[1]
    reads = [cluster.store.counted(lambda c=cluster: c.drop("one")) for cluster in (few, many)]
    assert reads[0] == reads[1]


def test_a_heartbeat_that_says_nothing_new_reads_and_compares_nothing(monkeypatch):
    cluster = Cluster(MANY, GROWING)
    cluster.settle()
    beat = cluster.lease.heartbeat(tuple(cluster.held.values()))
    cluster.core.heard(beat)
    compared = []
    monkeypatch.setattr(notifier, "is_settled", lambda *_: compared.append(_) or True)
    monkeypatch.setattr(notifier, "desired_of", lambda *_: compared.append(_))
    answers = []
    assert (
        cluster.store.counted(
            lambda: answers.extend(cluster.core.heard(evolve(beat, sequence=s)) for s in range(99, 199))
        )
        == 0
    )
    assert {type(answer) for answer in answers} == {Grant}
    assert not compared
    assert not cluster.pushed


def test_a_report_that_differs_costs_a_look_at_its_table_alone(monkeypatch):
    cluster = Cluster(MANY)
    looks = []
    is_settled = notifier.is_settled
    monkeypatch.setattr(notifier, "is_settled", lambda u, r: looks.append(u.table.name) or is_settled(u, r))
    cluster.held["t7-t7"] = evolve(cluster.held["t7-t7"], active=(), epochs=())
    cluster.beat()
    assert looks == ["t7"]


def test_an_interval_plans_for_no_table_in_which_nothing_changed(monkeypatch):
    cluster = Cluster(MANY)
    cluster.core.reconcile()
    planned = []
    assign = PartitionAssigner.assign_group

    def counted(self, maps, *arguments):
        planned.extend(pmap.table for pmap in maps)
        return assign(self, maps, *arguments)

    monkeypatch.setattr(PartitionAssigner, "assign_group", counted)
    cluster.core.reconcile()
    assert not planned
    other = ExecutorLease("e2", "h:2", runtime=SystemRuntime())
    cluster.core.heard(other.heartbeat())
    cluster.core.admit()
    cluster.core.reconcile()
    assert len(set(planned)) == MANY  # another executor may take over some of each


def test_a_statement_asks_for_the_maps_of_the_tables_that_it_may_name_only():
    cluster = Cluster(MANY, GROWING)
    catalogs = cluster.catalogs
    catalogs.refresh()
    assert cluster.store.counted(lambda: catalogs.current({"select", "t3"})) == 1
    assert cluster.store.counted(lambda: catalogs.current(())) == 0
    before = catalogs.known()
    for name in ("t3", "t4"):
        cluster.core._reconciler.add_values(name, [("tuesday",)])
    assert len(catalogs.current({"t3"}).catalog.maps["t3"]) == 2
    assert len(catalogs.current({"t3"}).catalog.maps["t4"]) == 1
    assert len(catalogs.refresh({"t9"}).catalog.maps["t4"]) == 1
    assert len(catalogs.current({"t4"}).catalog.maps["t4"]) == 2
    assert len(before.catalog.maps["t3"]) == 1


def test_a_table_that_the_catalog_has_since_is_read_whatever_a_refresh_is_for():
    cluster = Cluster(FEW)
    cluster.catalogs.refresh()
    cluster.maker.create("other", None, ["bucket(4, id)"], schema=SCHEMA)
    assert "other" in cluster.catalogs.refresh({"t1"}).catalog.tables
    cluster.maker.drop("t2")
    view = cluster.catalogs.refresh(())
    assert "t2" not in view.catalog.tables
    assert "t2" in view.dropped


def test_a_scheduler_reads_the_map_of_which_an_executor_knows_more():
    cluster = Cluster(FEW, GROWING)
    another = PartitionStore(cluster.store, members=lambda: [("e1", cluster.lease.info.instance_id)])
    base = another.read("t1")
    another.commit(PartitionAssigner().assign(base, ()), diff=added_partitions(base, [("tuesday",)]))
    cluster.beat()
    assert len(cluster.catalogs.known().catalog.maps["t1"]) == 1
    cluster.held["t1-t1"] = evolve(cluster.held["t1-t1"], revision=base.revision + 1)
    assert cluster.store.counted(cluster.beat) <= 3
    assert len(cluster.catalogs.known().catalog.maps["t1"]) == 2


@pytest.mark.parametrize("count", [FEW, MANY])
def test_what_is_announced_is_what_is_desired(count):
    cluster = Cluster(count)
    catalog = cluster.catalogs.known().catalog
    instance = cluster.lease.info.instance_id
    updates = desired(catalog.maps, catalog.tables, "e1", instance)
    assert {u.table.folder: tuple(a.epoch for a in u.partitions) for u in updates} == {
        folder: report.epochs for folder, report in cluster.held.items()
    }
