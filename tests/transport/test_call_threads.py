"""The threads of calls: never more than allowed, none idle for long, and what fails is told to whoever waits."""

from __future__ import annotations

import threading
import time

import pytest

from ballista_py.transport.flight.call_threads import CallThreads


def spawn(function):
    threading.Thread(target=function, daemon=True).start()


def test_a_burst_takes_as_many_threads_as_allowed_and_what_is_beyond_waits_for_one():
    threads = CallThreads(spawn, limit=3)
    go, begun = threading.Event(), []

    def work(number):
        begun.append(number)
        assert go.wait(30)
        return number

    done = [threads.submit(work, number) for number in range(5)]
    while len(begun) < 3:
        time.sleep(0.001)
    assert len(threads) == 3
    assert sorted(begun) == [0, 1, 2]
    go.set()
    assert [future.result(30) for future in done] == [0, 1, 2, 3, 4]
    assert len(threads) == 3


def test_after_a_burst_the_threads_end_though_a_little_work_comes_all_the_time():
    """Were work given to whoever waited longest, none of them would ever be idle for long."""
    threads = CallThreads(spawn, limit=50, idle_s=0.3)
    together = threading.Barrier(20)
    for future in [threads.submit(together.wait, 30) for _ in range(20)]:
        future.result(30)
    assert len(threads) == 20
    until = time.monotonic() + 60
    while len(threads) > 2 and time.monotonic() < until:
        threads.submit(time.monotonic).result(30)
        time.sleep(0.01)
    assert len(threads) <= 2


def test_what_a_task_raises_and_a_thread_that_cannot_be_had_are_told():
    def fail():
        raise ValueError("no")

    threads = CallThreads(spawn, limit=1)
    with pytest.raises(ValueError, match="no"):
        threads.submit(fail).result(30)
    assert threads.submit(len, "four").result(30) == 4

    def none_left(_function):
        raise RuntimeError("can't start new thread")

    threads = CallThreads(none_left, limit=1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't start"):
            threads.submit(len, "")
    assert len(threads) == 0
