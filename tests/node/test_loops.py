"""The loops of a process."""

import threading

from ballista_py.errors import StoreUnavailable
from ballista_py.node.loops import Loop
from ballista_py.runtime import SystemRuntime

LONG_MS = 600_000


def ticking(tick, interval_ms=LONG_MS):
    return Loop("test", tick, interval_ms=interval_ms, runtime=SystemRuntime())


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
    errors = iter([StoreUnavailable("the store is away"), ValueError("a bug")])

    def tick():
        ticks.release()
        error = next(errors, None)
        if error is not None:
            raise error

    loop = ticking(tick, interval_ms=1).start()
    for _ in range(4):
        assert ticks.acquire(timeout=60)
    loop.stop()
    assert [record.getMessage() for record in caplog.records] == ["tick_failed", "tick_crashed"]


def test_no_tick_comes_after_stop():
    ticks = []
    loop = ticking(lambda: ticks.append(1), interval_ms=1).start()
    loop.stop()
    seen = len(ticks)
    SystemRuntime().sleep_ms(30)
    assert len(ticks) == seen
