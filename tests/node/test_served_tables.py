"""A table that every executor holds is waited for, but not for one that loads nothing."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from ballista_py.coordinator.tables.ddl import COPIES_MS, TableWrites
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.members.control import HeldPartitions
from ballista_py.state.ownership.table_status import table_status

PATIENCE_MS = 30_000.0
SPEC = TableSpec(
    name="t", schema=pa.schema([("id", pa.int64())]), spec=PartitionSpec.whole(), distribution="replicated"
)
MEMBERS = [("e1", "i1"), ("e2", "i2"), ("e3", "i3")]


class Clock(SystemRuntime):
    now = 0.0

    def monotonic_ms(self) -> float:
        return self.now

    def sleep_ms(self, ms: float) -> None:
        self.now += ms


class Cluster:
    """What a scheduler hears: from when on the owner of the table has loaded it, and the other executors."""

    def __init__(self, owner_ms: float, others_ms: float) -> None:
        self.clock, self._owner_ms, self._others_ms = Clock(), owner_ms, others_ms

    def reconcile_table(self, *tables):
        return {}

    def refresh(self, words=None):
        return SimpleNamespace(catalog=SimpleNamespace(tables={"t": SPEC}))

    def table_is_served(self, table: str, *, by_owners: bool = False) -> bool:
        owned = self.clock.now >= self._owner_ms
        return owned if by_owners else owned and self.clock.now >= self._others_ms


def waited_ms(owner_ms: float, others_ms: float) -> float:
    cluster = Cluster(owner_ms, others_ms)
    TableWrites(cluster, None, cluster, None, None, cluster.clock, PATIENCE_MS)._served("t")
    return cluster.clock.now


@pytest.mark.parametrize(
    ("owner_ms", "others_ms", "least", "most"),
    [
        (0, 0, 0, 0),
        (500, 900, 900, 1_000),  # who loads is waited for
        (500, 1e9, 500 + COPIES_MS, 700 + COPIES_MS),  # who never does is not, once the owner has it
        (29_500, 1e9, PATIENCE_MS, PATIENCE_MS + 100),
        (1e9, 0, PATIENCE_MS, PATIENCE_MS + 100),  # without its owner there is no table to ask
    ],
)
def test_copies_are_waited_for_only_a_while_after_the_owner(owner_ms, others_ms, least, most):
    assert least <= waited_ms(owner_ms, others_ms) <= most


@pytest.mark.parametrize(
    ("loaded", "owned", "ready"),
    [([], False, False), ([1, 2], False, False), ([0], True, False), ([0, 1, 2], True, True)],
)
def test_a_table_is_owned_where_its_owner_serves_it_and_ready_where_all_do(loaded, owned, ready):
    empty = PartitionMap.build("t", SPEC.spec, [()])
    pmap = empty.apply(PartitionAssigner().assign(empty, [Executor(*MEMBERS[0])]))
    held = {
        MEMBERS[n]: (HeldPartitions(table=SPEC.folder, revision=1, active=(0,), epochs=(pmap.epoch(0),)),)
        for n in loaded
    }
    status = table_status(SPEC, pmap, MEMBERS, held)
    assert (status.owned, status.ready) == (owned, ready)
