"""Nobody takes a partition over before its owner has said that it knows: so that no read is older than it is said."""

import pyarrow as pa
import pytest

from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.memory import MemoryStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
BUCKETS = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
E1, E2 = Executor("e1", "i1"), Executor("e2", "i2")


@pytest.fixture
def members():
    return {E1.owner, E2.owner}


@pytest.fixture
def partitions(members):
    return PartitionStore(MemoryStore(), members=lambda: members)


@pytest.fixture
def moving(partitions):
    """E1 owns four partitions at epoch 1; two of them are on their way to E2."""
    pmap = partitions.create(PartitionMap.build("t", BUCKETS, BUCKETS.static_values()))
    owned = partitions.commit(PartitionAssigner().assign(pmap, (E1,))).map
    return partitions.commit(PartitionAssigner().assign(owned, (E1, E2))).map


def promoted(partitions, pmap: PartitionMap, parting: dict[int, int], to: Executor = E2) -> list[int]:
    nothing = PartitionAssigner().assign(pmap, (E1, E2))
    loaded = dict.fromkeys(pmap.targeted_at(*to.owner).tolist(), to.owner)
    return partitions.commit(nothing, loaded=loaded, parting=parting).promoted.tolist()


def test_a_partition_moves_when_its_owner_has_said_that_it_was_told(partitions, moving):
    first, _ = moving.targeted_at(*E2.owner).tolist()
    assert promoted(partitions, moving, {}) == []
    assert promoted(partitions, moving, {first: 1}) == [first]


def test_what_was_said_of_an_earlier_epoch_counts_for_nothing(partitions, moving):
    first, second = moving.targeted_at(*E2.owner).tolist()
    assert promoted(partitions, moving, {first: 0, second: 2}) == []


def test_an_owner_that_is_no_member_need_not_be_waited_for(partitions, moving, members):
    members.discard(E1.owner)
    assert promoted(partitions, moving, {}) == moving.targeted_at(*E2.owner).tolist()
