"""A client's statements are read and planned a few at once; no other client waits for them."""

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from ballista_py.coordinator.queries.statement_turns import AT_ONCE, LARGE_CHARACTERS, PlanningTurns
from ballista_py.errors import BallistaError, TimeLimit
from ballista_py.runtime import SystemRuntime
from ballista_py.work import Work, working

LARGE = "x" * LARGE_CHARACTERS


class Planning:
    """Statements that are planned until they are let go on."""

    def __init__(self) -> None:
        self.turns = PlanningTurns(SystemRuntime())
        self.began: list[str] = []
        self.came, self.go_on = threading.Semaphore(0), defaultdict(partial(threading.Semaphore, 0))

    def plan(self, client: str, statement: str, work: Work | None = None) -> str:
        with working(work or Work(SystemRuntime(), client=client)), self.turns.turn(statement):
            self.began.append(statement)
            self.came.release()
            assert self.go_on[client, statement == LARGE].acquire(timeout=60)
        return statement

    def end(self) -> None:
        for lane in list(self.go_on):
            self.go_on[lane].release(100)

    def have_begun(self, number: int) -> bool:
        return all(self.came.acquire(timeout=60) for _ in range(number)) and not self.came.acquire(timeout=0.1)


@pytest.fixture
def planning():
    return Planning()


@pytest.fixture
def pool(planning):
    with ThreadPoolExecutor(16) as made:
        try:
            yield made
        finally:
            planning.end()


def test_small_statements_of_one_client_come_in_the_order_of_asking_and_others_beside_them(planning, pool):
    first = [pool.submit(planning.plan, "a", str(number)) for number in range(AT_ONCE)]
    assert planning.have_begun(AT_ONCE)
    later = []
    for number in range(AT_ONCE, AT_ONCE + 3):
        later.append(pool.submit(planning.plan, "a", str(number)))
        waits_for(planning, ("a", False), number - AT_ONCE + 1)
    others = [pool.submit(planning.plan, "b", f"b{number}") for number in range(2)]
    assert planning.have_begun(2)
    large = pool.submit(planning.plan, "a", LARGE)
    assert planning.have_begun(1)
    planning.began.clear()
    for _ in later:
        planning.go_on["a", False].release()
        assert planning.have_begun(1)
    assert planning.began == ["4", "5", "6"]
    planning.end()
    assert [one.result() for one in (*first, *later, *others, large)]
    assert nobody(planning)
    assert not planning.turns._holders


def test_one_that_is_over_while_it_waits_keeps_no_turn(planning, pool):
    pool.submit(planning.plan, "a", LARGE)
    assert planning.have_begun(1)
    late, gone = Work(SystemRuntime(), client="a"), Work(SystemRuntime(), client="a")
    late.limit_to(1.0)
    with pytest.raises(TimeLimit):
        planning.plan("a", LARGE, late)
    waiting = pool.submit(planning.plan, "a", LARGE, gone)
    waits_for(planning, ("a", True), 1)
    gone.end(BallistaError("gone"))
    with pytest.raises(BallistaError, match="gone"):
        waiting.result()
    following = pool.submit(planning.plan, "a", LARGE)
    planning.go_on["a", True].release(2)
    assert following.result() == LARGE
    assert nobody(planning)


def test_one_that_ends_as_its_turn_comes_gives_it_to_the_next(planning, pool, monkeypatch):
    pool.submit(planning.plan, "a", LARGE)
    assert planning.have_begun(1)
    gone = Work(SystemRuntime(), client="a")
    waiting = pool.submit(planning.plan, "a", LARGE, gone)
    waits_for(planning, ("a", True), 1)
    following = pool.submit(planning.plan, "a", LARGE)
    waits_for(planning, ("a", True), 2)

    def check() -> None:
        if planning.turns.turns.waiting(("a", True)) < 2:  # it was given its turn
            raise BallistaError("gone")

    monkeypatch.setattr(gone, "check", check)
    planning.go_on["a", True].release(2)
    with pytest.raises(BallistaError, match="gone"):
        waiting.result()
    assert following.result() == LARGE
    assert nobody(planning)


def test_what_has_a_turn_waits_for_no_other(planning):
    work = Work(SystemRuntime(), client="a")
    with working(work), planning.turns.turn(LARGE), planning.turns.turn(LARGE), planning.turns.turn("small"):
        assert planning.turns.turns.taken(("a", True)) == 1
    assert nobody(planning)


def test_what_is_done_for_no_client_waits_for_nobody(planning):
    with planning.turns.turn(LARGE), planning.turns.turn(LARGE):
        assert nobody(planning)


def nobody(planning) -> bool:
    """Whether nobody has a turn or waits for one."""
    return not planning.turns.turns._held and not planning.turns.turns._waiting


def waits_for(planning, lane, number) -> None:
    """Return when so many wait."""
    for _ in range(6_000):
        if planning.turns.turns.waiting(lane) == number:
            return
        threading.Event().wait(0.01)
    pytest.fail("nobody waits")
