"""The judge that is given to others: what overlaps is found, what does not is not, lost updates are named."""

import pytest

from ballista_py.errors import BallistaError, VersionConflict
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing import (
    Faults,
    History,
    Machine,
    Record,
    VirtualStore,
    World,
    check_requests,
    first_failure,
    lying_store,
)


@pytest.fixture
def world():
    world = World(3)
    yield world
    world.close()


def test_two_may_hold_one_thing_one_after_the_other_and_not_at_once(world):
    record, a, b = Record(), Machine(world, "a"), Machine(world, "b")
    record.holds("door", a, a.monotonic_ms() + 1_000)
    record.holds("window", b, b.monotonic_ms() + 9_000)
    world.run(2_000)
    record.holds("door", b, b.monotonic_ms() + 5_000)
    assert record.problems() == []
    world.run(3_000)
    record.holds("door", a, a.monotonic_ms() + 500)
    (problem,) = record.problems()
    assert problem.startswith("'door' was held by b and a at once from 3.000 s to 3.")


def test_a_span_goes_by_the_clock_of_its_machine(world):
    machine, record = Machine(world, "a"), Record()
    record.holds("door", machine, machine.monotonic_ms() + 1_000)
    (held,) = record.holdings
    assert held.until_ms - held.from_ms == pytest.approx(1_000 / machine.rate)


def test_what_is_extended_is_one_span_and_what_is_given_up_or_over_ends(world):
    record, a, b = Record(), Machine(world, "a"), Machine(world, "b")
    record.holds("door", a, a.monotonic_ms() - 1)
    assert record.holdings == []
    record.holds("door", a, a.monotonic_ms() + 5_000)
    world.run(1_000)
    record.holds("door", a, a.monotonic_ms() + 9_000)
    record.holds("door", a, a.monotonic_ms() + 1)
    assert len(record.holdings) == 1
    world.run(2_000)
    record.ends("door", a)
    record.ends("door", a)
    record.holds("door", b, b.monotonic_ms() + 9_000)
    assert record.problems() == []
    assert next(holding.until_ms for holding in record.holdings) == 2_000
    assert [line.split("  ")[-1] for line in record.timeline()] == [
        "holds 'door'",
        "gives 'door' up",
        "holds 'door'",
    ]


def _count_up(seed, lie, key="count.json"):
    """Three machines add one to a document again and again; what is wrong with what they saw."""
    world, history = World(seed), History()
    store = MemoryStore(runtime=Machine(world, "store"))
    store = lying_store(lie, store, seed=seed) if lie else store

    def live(machine):
        seen = VirtualStore(machine, store, history, Faults)
        while True:
            try:
                found = seen.get(key)
                seen.replace(key, found.data + machine.new_id().encode(), found.version)
            except VersionConflict:
                continue
            except BallistaError:
                machine.sleep_ms(100)

    founder = Machine(world, "founder")
    founder.spawn(lambda: VirtualStore(founder, store, history, Faults.none).create(key, b"0"))
    world.run(1_000)
    for name in "abc":
        machine = Machine(world, name)
        machine.spawn(lambda machine=machine: live(machine))
    try:
        world.run(20_000)
    finally:
        world.close()
    return check_requests(history)


def test_a_store_that_loses_updates_or_goes_back_is_found_out_by_what_its_clients_saw():
    assert first_failure(lambda seed: _count_up(seed, None), seeds=5) is None
    for lie, word in (("replaces-over", "lost"), ("stale-reads", "later state")):
        failure = first_failure(lambda seed, lie=lie: _count_up(seed, lie), seeds=20)
        assert failure is not None
        assert word in failure.problems[0]


@pytest.mark.parametrize("key", ["count", "jobs/1", "count.txt", "a/b.arrow"])
def test_objects_of_any_name_are_judged(key):
    assert _count_up(1, None, key) == []
    failure = first_failure(lambda seed: _count_up(seed, "replaces-over", key), seeds=20)
    assert failure is not None
    assert "lost" in failure.problems[0]
