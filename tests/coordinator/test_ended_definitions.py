"""A statement that makes very much ends at its time limit wherever it is, and has made all of it or nothing."""

import pyarrow as pa
import pytest

from ballista_py.coordinator.queries.first_rows import FirstRows
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.errors import ObjectMissing, TimeLimit
from ballista_py.partitions.map import PartitionMap
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.partition_storage import PartitionStorage, make_manifests
from ballista_py.storage.row_spool import RowSpool
from ballista_py.work import Work, working

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = pa.table({"id": range(60)}, schema=SCHEMA)
RUNTIME = SystemRuntime()
PARTITIONS = 60


class EndingStore:
    """A store at whose n-th write the time of the work is over; it counts the writes after that."""

    def __init__(self, work: Work, writes: int) -> None:
        self.inner, self.later, self.removed = MemoryStore(), 0, 0
        self._work, self._left = work, writes

    def __getattr__(self, name):
        verb = getattr(self.inner, name)
        if name == "delete":
            self.removed += 1
        if name not in ("create", "replace"):
            return verb

        def counted(*arguments):
            self._left -= 1
            self.later += self._left < 0
            if self._left == 0:
                self._work.end(TimeLimit("its time is over"))
            return verb(*arguments)

        return counted


def started(writes: int) -> tuple[Work, EndingStore]:
    work = Work(RUNTIME)
    store = EndingStore(work, writes)
    ObjectState(store.inner, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
    return work, store


def make_buckets(store) -> None:
    TableMaker(store, RUNTIME).create("t", None, [f"bucket({PARTITIONS}, id)"], schema=SCHEMA)


def make_of_rows(store) -> None:
    first = FirstRows(store, RUNTIME, map)
    TableMaker(store, RUNTIME).create(
        "t", None, ["id"], schema=SCHEMA, fill=lambda table: first.write(table, ROWS.to_batches(), "copy")
    )


@pytest.mark.parametrize("make", [make_buckets, make_of_rows])
@pytest.mark.parametrize("writes", [3, 20, 55])
def test_a_table_of_many_partitions_ends_soon_and_is_not_there(make, writes):
    work, store = started(writes)
    with working(work), pytest.raises(TimeLimit):
        make(store)
    assert store.later <= 3  # the claim, and what was under way
    assert TableMaker(store.inner, RUNTIME).cluster().tables == {}
    make(store.inner)
    assert "t" in TableMaker(store.inner, RUNTIME).cluster().tables


def test_a_table_whose_time_is_over_before_it_has_its_name_never_gets_it(monkeypatch):
    work, store = started(10_000)
    whole = PartitionMap.build

    def late(*arguments, **more):
        work.end(TimeLimit("its time is over"))
        return whole(*arguments, **more)

    monkeypatch.setattr(PartitionMap, "build", late)
    with working(work), pytest.raises(TimeLimit):
        make_buckets(store)
    assert TableMaker(store.inner, RUNTIME).cluster().tables == {}


def test_new_values_get_no_manifests_once_nobody_waits():
    work, store = started(5)
    table = _table()
    values = [(n,) for n in range(40)]
    with working(work), pytest.raises(TimeLimit):
        make_manifests(store, table, values, RUNTIME)
    assert store.later == 0
    PartitionStorage(store, table.folder, table.spec.path((4,)), runtime=RUNTIME).read()
    with pytest.raises(ObjectMissing):
        PartitionStorage(store, table.folder, table.spec.path((5,)), runtime=RUNTIME).read()


def test_rows_over_many_partitions_leave_no_file_once_nobody_waits():
    work, store = started(5)
    table = _table()
    spool = RowSpool(store, table.folder, SCHEMA, RUNTIME)
    spool.add(ROWS.to_batches()[0].append_column("__partition", pa.array(range(60), pa.int32())))
    with working(work):
        with pytest.raises(TimeLimit):
            spool.finish()
        spool.discard()
    assert store.later == 0
    assert store.removed == 5  # nothing is asked of the store for what was never begun
    assert not [entry for entry in store.inner.list("snapshots/") if entry.key.endswith(".parquet")]


def _table():
    store = MemoryStore()
    ObjectState(store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
    return TableMaker(store, RUNTIME).create("t", None, ["id"], schema=SCHEMA)
