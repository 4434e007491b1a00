"""The loops of a process."""

import threading

import pytest

from ballista_py.errors import StoreUnavailable
from ballista_py.node.loops import Loop
from ballista_py.runtime import SystemRuntime

LONG_MS = 600_000


def ticking(tick, interval_ms=LONG_MS, **more):
    return Loop("test", tick, interval_ms=interval_ms, runtime=SystemRuntime(), **more)


class Panic(BaseException):
    """What native code raises, which is no `Exception`."""


def test_the_first_tick_comes_at_once_and_a_poke_brings_the_next():
    ticks = threading.Semaphore(0)
    loop = ticking(ticks.release).start()
    assert ticks.acquire(timeout=60)
    loop.poke()
    assert ticks.acquire(timeout=60)
    assert not ticks.acquire(timeout=0.05)
    loop.stop()


def test_a_tick_that_raises_does_not_end_the_loop(caplog):
    ticks = threading.Semaphore(0)
    full = OSError(24, "Too many open files", "/secret/place")
    errors = iter([StoreUnavailable("the store is away"), full, MemoryError(), ValueError("a bug")])

    def tick():
        ticks.release()
        error = next(errors, None)
        if error is not None:
            raise error

    loop = ticking(tick, interval_ms=1).start()
    for _ in range(6):
        assert ticks.acquire(timeout=60)
    loop.stop()
    said = ["tick_failed", "tick_failed", "tick_failed", "tick_crashed"]
    assert [record.getMessage() for record in caplog.records] == said
    assert [record.exc_info is None for record in caplog.records] == [True, True, True, False]


def test_no_tick_comes_after_stop():
    ticks = []
    loop = ticking(lambda: ticks.append(1), interval_ms=1).start()
    loop.stop()
    seen = len(ticks)
    SystemRuntime().sleep_ms(30)
    assert len(ticks) == seen


@pytest.mark.parametrize("raised", [GeneratorExit(), StopIteration(), Panic("a panic of native code")])
def test_nothing_that_a_tick_raises_ends_the_loop(raised, caplog):
    ticks, ended = threading.Semaphore(0), []

    def tick():
        ticks.release()
        raise raised

    loop = ticking(tick, interval_ms=1, ended=lambda: ended.append(1)).start()
    for _ in range(20):
        assert ticks.acquire(timeout=60)
    loop.stop()
    assert not ended
    assert {record.getMessage() for record in caplog.records} == {"tick_crashed"}


def test_one_reason_is_logged_once_a_second_and_another_one_at_once(caplog):
    now = [0.0]

    class Clock(SystemRuntime):
        def monotonic_ms(self):
            return now[0]

    reasons = iter("aaabaa")
    loop = Loop("test", lambda: None, interval_ms=1, runtime=Clock())

    def tick():
        raise StoreUnavailable(next(reasons))

    loop._tick = tick
    for at in (0, 1, 2, 3, 999, 1_001):
        now[0] = float(at)
        loop._try_tick()
    said = [record.ballista_fields["reason"].message for record in caplog.records]
    assert said == ["a", "b", "a"]


def test_a_loop_that_ends_without_being_stopped_ends_the_node(caplog):
    ended = threading.Event()

    def tick():
        raise SystemExit(3)

    ticking(tick, ended=ended.set).start()
    assert ended.wait(60)
    assert "loop_ended" in [record.getMessage() for record in caplog.records]


def test_so_many_reasons_are_told_within_a_second_and_no_more(caplog, monkeypatch):
    monkeypatch.setattr("ballista_py.node.loops.MAX_REASONS", 2)
    monkeypatch.setattr("ballista_py.node.loops.SAME_REASON_MS", LONG_MS)
    ticks, reasons = threading.Semaphore(0), iter("abcd")

    def tick():
        ticks.release()
        reason = next(reasons, None)
        if reason is not None:
            raise StoreUnavailable(reason)

    loop = ticking(tick, interval_ms=1).start()
    for _ in range(6):
        assert ticks.acquire(timeout=60)
    loop.stop()
    assert [record.getMessage() for record in caplog.records] == ["tick_failed", "tick_failed"]
