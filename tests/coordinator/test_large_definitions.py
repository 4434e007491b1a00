"""Large definitions of one client take turns, however they are written; rows and other clients do not wait."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from ballista_py.coordinator.queries.statement_turns import LARGE_CHARACTERS, PlanningTurns
from ballista_py.coordinator.writes.owner_calls import OwnerCalls
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.coordinator.writes.whole_writes import Executed
from ballista_py.runtime import SystemRuntime
from ballista_py.work import Work, working

COLUMNS = ", ".join(f"column_{number} integer" for number in range(LARGE_CHARACTERS // 8))
LARGE = {
    "plain": f"create table t ({COLUMNS})",
    "remark": f"-- insert into t\n/* update */ CREATE TABLE t ({COLUMNS})",
    "remark in a remark": f"/* a /* b */ */ create table t ({COLUMNS})",
    "long remark": f"/*{'x' * LARGE_CHARACTERS}*/ create table t (a int)",
    "semicolon": f"; create table t ({COLUMNS})",
    "parenthesis": f"(create table t ({COLUMNS}))",
    "or replace": f"create or replace table t ({COLUMNS})",
    "with": f"with a as (select 1) create table t ({COLUMNS})",
    "alter": f"\ufeff alter table t add column ({COLUMNS})",
    "comment": f"comment on table t is '{'x' * LARGE_CHARACTERS}'",
    "drop": f"drop table if exists {', '.join(f't{number}' for number in range(2_000))}",
    "unknown": f"define {COLUMNS}",
}
ROWS = {
    "insert": f"insert into t values {', '.join('(1)' for _ in range(LARGE_CHARACTERS))}",
    "remark": f"/* create */ -- alter\n insert into t values {', '.join('(1)' for _ in range(LARGE_CHARACTERS))}",
    "with": f"with a as (select '{'x' * LARGE_CHARACTERS}' as b) update t set b = a.b from a",
    "small definition": "create table t (a int)",
}


class Doors(WriteService):
    """Carries out nothing: says what came in, and waits to be let go on."""

    def __init__(self) -> None:
        parts = dict.fromkeys(("views", "store", "engine", "tables", "growth"))
        queries = SimpleNamespace(plans=SimpleNamespace(turns=PlanningTurns(SystemRuntime())))
        super().__init__(
            **parts, queries=queries, calls=OwnerCalls(None, map), runtime=SystemRuntime(), max_bytes=1 << 20
        )
        self.inside: list[str] = []
        self.came, self.go_on = threading.Semaphore(0), threading.Event()

    def _carried_out(self, statement, token, atomic):
        self.inside.append(statement)
        self.came.release()
        assert self.go_on.wait(60)
        return Executed(0)

    def run_of(self, client: str, statement: str) -> Executed:
        with working(Work(SystemRuntime(), client=client)):
            return self.run(statement)


@pytest.fixture
def doors():
    made = Doors()
    yield made
    made.go_on.set()


@pytest.mark.parametrize("name", LARGE)
def test_a_second_large_definition_of_one_client_waits_for_the_first(doors, name):
    with ThreadPoolExecutor(4) as pool:
        try:
            first = pool.submit(doors.run_of, "a", LARGE["plain"])
            assert doors.came.acquire(timeout=60)
            second = pool.submit(doors.run_of, "a", LARGE[name])
            others = [pool.submit(doors.run_of, "b", one) for one in (*list(ROWS.values())[:1], LARGE["plain"])]
            assert all(doors.came.acquire(timeout=60) for _ in others)
            assert not doors.came.acquire(timeout=0.2)
        finally:
            doors.go_on.set()
        assert [one.result() for one in (first, second, *others)] == [Executed(0)] * 4
    assert len(doors.inside) == 4


@pytest.mark.parametrize("name", ROWS)
def test_rows_and_small_definitions_of_a_client_do_not_wait_for_his_large_definition(doors, name):
    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(doors.run_of, "a", LARGE["plain"])
            assert doors.came.acquire(timeout=60)
            second = pool.submit(doors.run_of, "a", ROWS[name])
            assert doors.came.acquire(timeout=60)
        finally:
            doors.go_on.set()
        assert [first.result(), second.result()] == [Executed(0)] * 2
