"""A partition that comes to an owner amid a leg: what waits in it may be decided, and nobody has looked."""

import pytest
from attrs import evolve

from ballista_py.errors import NotOwner
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.decided_files import LOOKS, decided_files
from ballista_py.storage.held.replicas import ReplicaReads
from ballista_py.storage.manifest import Prepared


def leg_as_of(world, sequence):
    leg = world.leg((1, 1))
    return evolve(leg, tables=tuple(evolve(table, sequence=sequence) for table in leg.tables))


def test_what_came_since_the_look_is_looked_at_first(world):
    world.put(1, 1)
    storage = world.storage(1)
    storage.activate(1)
    file = world.put_file(2)
    storage.prepare(Prepared(attempt="a", token="a", add=(file,), affected=1), epoch=1)
    decided = TableDecisions(world.store, "t").commit("a", "a", affected=1)
    leg = leg_as_of(world, decided.sequence)
    looked_at = world.holder.attempts(leg)  # nothing is held yet
    assert looked_at == frozenset()
    world.holder.apply(world.update(1, (1, 1, "owner")))
    world.holder.tick()
    assert world.holder.files_if(leg, looked_at) is None
    assert world.holder.attempts(leg) == {"a"}
    assert len(world.holder.files_if(leg, {"a"})["t"]) == 1  # whoever looked folds it in before
    storage.fold("a", epoch=1, sequence=decided.sequence)
    world.holder.refresh("t")
    world.holder.tick()
    assert len(world.holder.files_if(leg, frozenset())["t"]) == 2


def test_a_leg_without_a_moment_waits_for_no_decision(world):
    world.put(1, 1)
    world.storage(1).activate(1)
    world.storage(1).prepare(Prepared(attempt="a", token="a", add=(), affected=0), epoch=1)
    world.holder.apply(world.update(1, (1, 1, "owner")))
    world.holder.tick()
    assert world.holder.files_if(leg_as_of(world, None), frozenset()) is not None


def test_a_replica_that_came_since_it_was_to_be_asked_is_asked_first(world):
    world.put(1, 1)
    world.storage(1).activate(1)
    leg = leg_as_of(world, 3)
    reads = ReplicaReads(world.holder, world.store, world.clock)
    reads.freshen(leg)  # nothing is held yet
    world.holder.apply(world.update(1, (1, 1, "replica")))
    world.holder.tick()  # from a manifest that may be older than the leg's moment
    assert world.holder.files_if(leg, frozenset()) is None
    reads.freshen(leg)
    assert world.holder.files_if(leg, frozenset()) is not None


def test_a_leg_looks_again_until_it_has_looked_at_all_and_gives_up_in_the_end(world):
    world.put(1, 1)
    storage = world.storage(1)
    storage.activate(1)
    file = world.put_file(2)
    storage.prepare(Prepared(attempt="a", token="a", add=(file,), affected=1), epoch=1)
    leg = leg_as_of(world, TableDecisions(world.store, "t").commit("a", "a", affected=1).sequence)
    world.holder.apply(world.update(1, (1, 1, "owner")))
    looks = []

    def look():
        looks.append(world.holder.tick().hydrated)  # it comes here amid the first look
        if len(looks) == 2:
            storage.fold("a", epoch=1, sequence=1)
            world.holder.reload("t", [1])

    assert len(decided_files(world.holder, leg, look)["t"]) == 2
    assert looks == [1, 0]


def test_what_changes_all_the_time_is_planned_again(world):
    class Restless:
        def attempts(self, leg):
            return frozenset()

        def files_if(self, leg, looked_at):
            return None

    looks = []
    with pytest.raises(NotOwner, match="plan the query again"):
        decided_files(Restless(), world.leg((1, 1)), lambda: looks.append(1))
    assert len(looks) == LOOKS
