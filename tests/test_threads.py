"""Many calls of one caller leave room in a pool for those of others."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from ballista_py.runtime import SystemRuntime
from ballista_py.threads import map_some
from ballista_py.work import Work, carried, current_work, working


def test_results_come_in_order_and_all_of_them():
    with ThreadPoolExecutor(4) as pool:
        assert list(map_some(pool, lambda n: n * n, range(50), 3)) == [n * n for n in range(50)]


def test_another_caller_is_answered_while_a_thousand_calls_of_one_are_not_done():
    go = Event()
    with ThreadPoolExecutor(3) as pool, ThreadPoolExecutor(1) as caller:
        many = caller.submit(lambda: list(map_some(pool, lambda _: go.wait(), range(1_000), 2)))
        assert list(map_some(pool, str, [7], 2)) == ["7"]
        assert not many.done()
        go.set()
        assert len(many.result()) == 1_000


def test_what_has_not_begun_when_one_raises_never_does():
    begun = []

    def call(n):
        begun.append(n)
        raise ValueError(n)

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="0"):
        list(map_some(pool, call, range(100), 2))
    assert len(begun) <= 2


def test_the_work_goes_along():
    work = Work(SystemRuntime())
    with working(work):
        call = carried(lambda _: current_work())
    with ThreadPoolExecutor(1) as pool:
        assert list(map_some(pool, call, [1], 1)) == [work]
