"""An owner that may be a former one: it answers nothing that it cannot know."""

import pytest
from attrs import evolve

from ballista_py.errors import NotOwner
from ballista_py.storage.held.replicas import ReplicaReads
from ballista_py.storage.manifest import manifest_key


@pytest.fixture
def reads(world):
    for partition in (1, 2):
        world.put(partition, partition)
    tell(world, 1)
    world.holder.tick()
    asked = ReplicaReads(world.holder, world.store, world.clock)

    def read() -> list[int]:
        leg = world.leg((1, 1), (2, 1))
        asked.require_owner(leg)
        query = world.engine.query(leg.sql, world.holder.files_for(leg))
        return sorted(key for batch in query.batches() for key in batch.column(0).to_pylist())

    return read


def tell(world, revision, *parting, epoch=1):
    update = world.update(revision, (1, epoch, "owner"), (2, epoch, "owner"))
    assert world.holder.apply(evolve(update, parting=parting))


def take_over(world):
    """Another executor owns partition 1, and has acknowledged a row."""
    world.storage(1).activate(2)
    world.put(1, 11)


def test_an_owner_that_was_told_of_a_target_serves_until_another_one_has_begun(world, reads):
    tell(world, 2, 1)
    assert reads() == [1, 2]
    world.put(1, 3)  # its own, whoever says so
    world.holder.refresh("t")
    world.holder.tick()
    assert reads() == [1, 2, 3]
    take_over(world)
    with pytest.raises(NotOwner, match="another owner now: plan the query again") as refused:
        reads()
    assert refused.value.details["partitions"] == [1]


def test_what_is_not_on_its_way_costs_no_request(world, reads):
    tell(world, 2, 1)
    world.store.calls.clear()
    reads()
    assert world.store.calls == [("get_if_changed", manifest_key("t", "expr0=1"))]


def test_it_asks_on_when_the_move_is_called_off_and_not_under_a_later_epoch(world, reads):
    tell(world, 2, 1)
    tell(world, 3)
    assert world.holder.held()[0].parting == {1: 1}
    take_over(world)
    with pytest.raises(NotOwner, match="another owner now"):
        reads()
    tell(world, 4, epoch=3)
    assert world.holder.held()[0].parting == {}
    tell(world, 5, 2, epoch=3)
    assert world.holder.held()[0].parting == {2: 3}


def test_without_the_store_it_refuses_what_it_cannot_know(world, reads):
    tell(world, 2, 1)
    world.store.broken.add(manifest_key("t", "expr0=1"))
    with pytest.raises(NotOwner, match="cannot tell whether"):
        reads()


def test_what_it_says_is_its_own_and_of_the_partitions_that_it_owns(world, reads):
    update = world.update(2, (1, 1, "replica"), (2, 1, "owner"))
    world.holder.apply(evolve(update, parting=(1, 2)))
    assert world.holder.held()[0].parting == {2: 1}
