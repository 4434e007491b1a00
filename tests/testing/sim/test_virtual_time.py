"""The virtual machine is a `Runtime`: its clocks, locks and conditions behave as those of a real one do."""

import pytest

from ballista_py.testing.simulation.machine import MAX_DRIFT, Machine
from ballista_py.testing.simulation.time import World


@pytest.fixture
def world():
    world = World(seed=3)
    yield world
    world.close()


@pytest.fixture
def machine(world):
    return Machine(world, "m")


def test_a_sleep_takes_as_long_by_the_machines_own_clock(world, machine):
    seen = []

    def work():
        before = machine.monotonic_ms()
        machine.sleep_ms(1_000)
        seen.append(machine.monotonic_ms() - before)

    machine.spawn(work)
    world.run(2_000)
    assert seen == [pytest.approx(1_000)]
    assert machine.rate != 1.0
    assert abs(machine.rate - 1) <= MAX_DRIFT


def test_a_paused_machine_does_nothing_until_the_pause_ends(world, machine):
    seen = []
    machine.spawn(lambda: (machine.sleep_ms(100), seen.append(world.now_ms)))
    world.run(50)
    machine.pause(5_000)
    world.run(10_000)
    assert seen == [5_050]


def test_a_dead_machine_never_acts_again(world, machine):
    seen = []
    machine.spawn(lambda: (machine.sleep_ms(100), seen.append(1)))
    world.run(50)
    machine.dead = True
    world.run(10_000)
    assert not seen


def test_a_lock_is_held_by_one_thread_across_a_sleep(world, machine):
    lock, seen = machine.lock(), []

    def work(name):
        with lock:
            seen.append(f"{name} in")
            machine.sleep_ms(10)
            seen.append(f"{name} out")

    for name in "abc":
        machine.spawn(lambda name=name: work(name))
    world.run(1_000)
    assert seen == ["a in", "a out", "b in", "b out", "c in", "c out"]


def test_a_condition_tells_a_notification_from_a_timeout(world, machine):
    changed, seen = machine.condition(), []

    def wait(timeout_ms):
        with changed:
            seen.append(changed.wait(timeout_ms))

    def notify():
        machine.sleep_ms(100)
        with changed:
            changed.notify_all()

    machine.spawn(lambda: wait(10))
    machine.spawn(lambda: wait(1_000))
    machine.spawn(lambda: wait(None))
    machine.spawn(notify)
    world.run(5_000)
    assert seen == [False, True, True]


def test_map_runs_the_calls_at_the_same_time_and_keeps_their_order(world, machine):
    seen = []

    def slow(item):
        machine.sleep_ms(100 - item)
        return item

    machine.spawn(lambda: seen.append((list(machine.map(slow, [1, 2, 3])), world.now_ms)))
    world.run(1_000)
    assert seen[0][0] == [1, 2, 3]
    assert seen[0][1] < 120


def test_what_a_thread_raises_ends_the_run(world, machine):
    def work():
        raise KeyError("x")

    machine.spawn(work)
    with pytest.raises(KeyError):
        world.run(1)
