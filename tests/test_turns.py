"""Turns: a lane keeps no other waiting, and who has fewest is next."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ballista_py.errors import TimeLimit, TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.turns import Turns
from ballista_py.work import Work, working


class Held:
    """Blocks that last until they are let go on."""

    def __init__(self, in_all: int) -> None:
        self.turns = Turns(SystemRuntime(), in_all)
        self.order: list[str] = []
        self.go_on: dict[str, threading.Event] = {}
        self.pool = ThreadPoolExecutor(16)

    def begin(self, name: str, most: int = 2) -> None:
        lane, self.go_on[name] = name[0], threading.Event()
        before = self.turns.taken(lane) + self.turns.waiting(lane)
        self.pool.submit(self._hold, name, most)
        until(lambda: self.turns.taken(lane) + self.turns.waiting(lane) > before)

    def _hold(self, name: str, most: int) -> None:
        with self.turns.turn(name[0], most):
            self.order.append(name)
            self.go_on[name].wait(60)

    def end(self, name: str, then: int) -> list[str]:
        self.go_on[name].set()
        until(lambda: len(self.order) == then)
        return self.order


def until(condition) -> None:
    """Return when it holds."""
    for _ in range(6_000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it did not come to that")


@pytest.fixture
def held():
    made = Held(3)
    yield made
    for event in made.go_on.values():
        event.set()
    made.pool.shutdown()
    assert not made.turns._held
    assert not made.turns._waiting


def test_the_lane_with_the_fewest_turns_is_next_and_nobody_is_overtaken_in_his_own(held):
    for name in ("a1", "a2", "b1"):
        held.begin(name)
        until(lambda name=name: name in held.order)
    for name in ("b2", "a3", "c1", "a4"):
        held.begin(name)
    assert held.order == ["a1", "a2", "b1"]
    assert held.end("a1", then=4)[-1] == "c1"
    assert held.end("b1", then=5)[-1] == "b2"  # a has one as b had, and b2 asked first
    assert held.end("a2", then=6)[-1] == "a3"
    assert held.end("c1", then=7)[-1] == "a4"


def test_a_lane_takes_no_more_than_it_may_though_there_is_room(held):
    held.begin("a1", most=1)
    held.begin("a2", most=1)
    until(lambda: held.order == ["a1"])
    held.begin("b1")
    until(lambda: held.order == ["a1", "b1"])
    assert held.end("a1", then=3)[-1] == "a2"


def test_one_that_is_out_of_time_leaves_its_place(held):
    held.begin("a1", most=1)
    work = Work(SystemRuntime())
    work.limit_to(1.0)
    with working(work), pytest.raises(TimeLimit), held.turns.turn("a", 1):
        pytest.fail("it had a turn")
    assert held.turns.waiting("a") == 0
    held.begin("a2", most=1)
    assert held.end("a1", then=2)[-1] == "a2"


def test_what_has_begun_counts_only_while_memory_is_short_and_only_in_its_lane():
    short = threading.Event()
    turns = Turns(SystemRuntime(), 2, is_short=short.is_set)
    begun = [turns.take("a", 1)]
    turns.begun(begun[0])
    begun.append(turns.take("a", 1))
    turns.begun(begun[1])
    short.set()
    with pytest.raises(TryLater, match="2 answers of this client are under way at a node"):
        turns.take("a", 1, wait_ms=1)
    with turns.turn("b", 1):
        pass
    short.clear()
    with turns.turn("a", 1):
        pass
    short.set()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(turns.take, "a", 1)
        until(lambda: turns.waiting("a") == 1)
        for turn in begun:
            turns.over(turn)
        turns.over(waits.result(60))
    assert not turns._held


def test_a_turn_that_is_old_counts_no_more():
    turns = Turns(SystemRuntime(), 1, longest_ms=1.0)
    first = turns.take("a", 1)
    second = turns.take("a", 1)
    turns.over(second)
    turns.over(first)
    turns.over(first)
    assert not turns._held
