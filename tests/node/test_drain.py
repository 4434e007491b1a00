"""How nodes go, with everything around them made up and a clock that is moved by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ballista_py.errors import NotOwner, TryLater
from ballista_py.node.drain import QUIET_MS, STALLED_MS, ExecutorDrain, SchedulerDrain, drained
from ballista_py.runtime import SystemRuntime


class Clock(SystemRuntime):
    now_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms


class Port:
    calls, refuses = 0, None

    def open_calls(self) -> int:
        return self.calls

    def drain(self, error) -> None:
        self.refuses = error


class Jobs:
    under_way, begins = 0, True

    def running(self) -> int:
        return self.under_way

    def begin_no_more(self) -> None:
        self.begins = False


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def port():
    return Port()


@pytest.fixture
def jobs():
    return Jobs()


@pytest.fixture
def scheduler(port, clock, jobs):
    return SchedulerDrain("s1", port, clock, jobs)


class Executor:
    """An executor that goes: what it owns, its two ports, and what it told others."""

    def __init__(self, clock) -> None:
        self.owned, self.ports, self.told = 3, (Port(), Port()), []
        holder = SimpleNamespace(owned_partitions=lambda: range(self.owned), ends=lambda: self.told.append("ends"))
        lease = SimpleNamespace(drain=lambda: self.told.append("drain"))
        self.drain = ExecutorDrain("e1", self.ports, lease, holder, lambda: self.told.append("poke"), clock)

    def refuses(self) -> list[bool]:
        return [isinstance(port.refuses, NotOwner) for port in self.ports]


@pytest.fixture
def executor(clock):
    return Executor(clock)


def test_a_scheduler_that_goes_takes_nothing_more_and_sends_clients_to_others(scheduler, port, jobs):
    assert not scheduler()
    assert isinstance(port.refuses, TryLater)
    assert not jobs.begins


def test_a_scheduler_is_gone_once_no_call_and_no_job_was_under_way_for_a_moment(scheduler, port, jobs, clock):
    port.calls = 1
    assert not scheduler()
    clock.now_ms += 10 * QUIET_MS
    assert not scheduler()
    port.calls, jobs.under_way = 0, 1
    clock.now_ms += 10 * QUIET_MS
    assert not scheduler()
    jobs.under_way = 0
    clock.now_ms += QUIET_MS - 1
    assert not scheduler()
    clock.now_ms += 1
    assert scheduler()


def test_an_executor_that_goes_says_so_once_and_at_once(executor):
    for _ in range(2):
        assert not executor.drain()
        assert executor.told == ["drain", "ends", "poke"]


def test_an_executor_serves_for_as_long_as_its_partitions_move_and_then_refuses_at_every_port(executor, clock):
    assert not executor.drain()
    for left in (2, 1):
        clock.now_ms += STALLED_MS - 1
        executor.owned = left
        assert not executor.drain()
        assert executor.refuses() == [False, False]
    executor.owned = 0
    assert executor.drain()
    assert executor.refuses() == [True, True]


def test_an_executor_is_not_gone_while_a_call_is_under_way_at_any_of_its_ports(executor):
    executor.owned = 0
    for port in executor.ports:
        port.calls = 1
        assert not executor.drain()
        port.calls = 0
    assert executor.drain()


def test_an_executor_whose_partitions_nobody_takes_gives_up(executor, clock):
    assert not executor.drain()
    clock.now_ms += STALLED_MS - 1
    assert not executor.drain()
    clock.now_ms += 1
    assert executor.drain()
    assert executor.refuses() == [True, True]


@pytest.mark.parametrize(
    ("done_ms", "hurried_ms", "found", "took_ms"),
    [(300, 9_999, True, 300), (9_999, 300, False, 300), (9_999, 9_999, False, 1_000)],
)
def test_a_drain_is_asked_until_it_is_done_or_its_time_is_over_or_somebody_is_in_a_hurry(
    clock, done_ms, hurried_ms, found, took_ms
):
    is_done = drained(lambda: clock.now_ms >= done_ms, 1_000, lambda: clock.now_ms >= hurried_ms, clock)
    assert (is_done, clock.now_ms) == (found, took_ms)
