"""A partition that comes to an owner amid a leg: what waits in it may be decided, and nobody has looked."""

import pytest
from attrs import evolve

from ballista_py.errors import NotOwner
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.decisions_check import LOOKS, decided_files
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
    looked_at = world.holder.waiting(leg)  # nothing is held yet
    assert looked_at == frozenset()
    world.holder.apply(world.update(1, (1, 1, "owner")))
    world.holder.tick()
    assert world.holder.files_if(leg, looked_at) is None
    assert world.holder.waiting(leg) == {("t", 1, "a")}
    assert world.holder.files_if(leg, {("t", 2, "a"), ("t", 1, "b")}) is None
    assert len(world.holder.files_if(leg, {("t", 1, "a")})["t"]) == 1  # whoever looked folds it in before
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
        return ()

    assert len(decided_files(world.holder, leg, look)["t"]) == 2
    assert looks == [1, 0]


def test_what_changes_all_the_time_is_planned_again(world):
    class Restless:
        def waiting(self, leg):
            return frozenset()

        def files_if(self, leg, undecided):
            return None

    looks = []
    with pytest.raises(NotOwner, match="plan the query again"):
        decided_files(Restless(), world.leg((1, 1)), lambda: looks.append(1) or ())
    assert len(looks) == LOOKS


def test_an_attempt_that_was_looked_at_in_one_partition_is_looked_at_in_another_that_comes_with_it(world):
    """By the attempt alone the second partition would be read as it was before the statement, the first as after it."""
    decisions = TableDecisions(world.store, "t")
    for partition in (1, 2):
        world.put(partition, partition)
        world.storage(partition).activate(1)
        add = (world.put_file(partition),)
        world.storage(partition).prepare(Prepared(attempt="a", token="a", add=add, affected=1), epoch=1)
    sequence = decisions.commit("a", "a", affected=2).sequence
    leg = world.leg((1, 1), (2, 1))
    leg = evolve(leg, tables=tuple(evolve(table, sequence=sequence) for table in leg.tables))
    world.holder.apply(world.update(1, (1, 1, "owner"), (2, 1, "owner")))
    world.holder.reload("t", [1])
    looks = []

    def look():
        looks.append(sorted(p for _, p, _ in world.holder.waiting(leg)))
        counts = world.holder.waiting(leg)
        for _, partition, attempt in counts:
            world.storage(partition).fold(attempt, epoch=1, sequence=sequence)
        world.holder.reload("t", [p for _, p, _ in counts])
        if len(looks) == 1:  # the other one comes, from a manifest of a moment ago
            world.holder.tick()
        return counts

    files = decided_files(world.holder, leg, look)
    assert looks == [[1], [2]]
    assert len(files["t"]) == 4


def test_what_was_found_to_count_and_waits_nevertheless_is_not_read_without_it(world):
    world.put(1, 1)
    storage = world.storage(1)
    storage.activate(1)
    storage.prepare(Prepared(attempt="a", token="a", add=(world.put_file(2),), affected=1), epoch=1)
    sequence = TableDecisions(world.store, "t").commit("a", "a", affected=1).sequence
    world.holder.apply(world.update(1, (1, 1, "owner")))
    world.holder.tick()
    leg, looks = leg_as_of(world, sequence), []

    def look():
        looks.append(1)
        if len(looks) == 3:  # until then what was folded in does not come to be held
            storage.fold("a", epoch=1, sequence=sequence)
            world.holder.reload("t", [1])
        return {("t", 1, "a")}

    assert len(decided_files(world.holder, leg, look)["t"]) == 2
    assert len(looks) == 3
