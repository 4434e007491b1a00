"""An INSERT of more new partition values than its executors have room for says so, and what to do."""

import pyarrow as pa
import pytest

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.writes.rounds import WriteRounds
from ballista_py.errors import PartitionsUnassigned
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Catalog
from ballista_py.state.stores.memory import MemoryStore

SCHEMA = pa.schema([("day", pa.string())])
TABLE = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["day"], SCHEMA))


class Clock(SystemRuntime):
    """Waiting takes no time."""

    def __init__(self):
        self.now_ms = 0.0

    def monotonic_ms(self):
        return self.now_ms

    def sleep_ms(self, duration_ms):
        self.now_ms += duration_ms


class Site:
    """One executor, which takes `room` partitions; values get partitions as soon as they are asked for."""

    def __init__(self, room):
        self.assigner = PartitionAssigner(max_partitions_per_executor=room)
        self.map = PartitionMap.build("t", TABLE.spec, [])

    def add_values(self, _table, values):
        every = {*(self.map.value(one) for one in self.map.ids().tolist()), *values}
        self.map = PartitionMap.build("t", TABLE.spec, sorted(every))
        self.map = self.map.apply(self.assigner.assign(self.map, [Executor("e1", "i1")]))

    def refresh(self, words=None):
        catalog = Catalog(tables={"t": TABLE}, maps={"t": self.map})
        return ClusterView(catalog=catalog, members=frozenset({("e1", "i1")}), addresses={})

    current = refresh


def test_values_beyond_the_room_of_all_executors_are_counted_and_the_way_out_is_said():
    site, runtime = Site(room=3), Clock()
    rounds = WriteRounds(site, MemoryStore(), None, site, runtime, 1_000)
    ask = rounds.known(TABLE)
    assert len(ask([("a",), ("b",)]).catalog.maps["t"]) == 2
    with pytest.raises(PartitionsUnassigned) as raised:
        ask([("c",), ("d",), ("e",)])
    said = str(raised.value)
    assert said.startswith("2 of 3 new partition values of table 't' have no executor (day=")
    assert "add executors, raise max_partitions_per_executor of the schedulers, or partition the table by" in said
    assert runtime.now_ms > 1_000
