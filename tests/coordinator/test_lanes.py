"""Slots that go on beside each other: a slow one keeps no quick one from its turn, and ends with what declared it."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from attrs import define, evolve, field

from ballista_py.coordinator.refreshes import schedule as schedules
from ballista_py.coordinator.refreshes.lanes import Lanes, RunningSlot
from ballista_py.coordinator.refreshes.schedule import Done, Schedule
from ballista_py.errors import SqlError
from ballista_py.memory_budget import MemoryBudget
from ballista_py.partitions.refresh import Retention
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents import slot_book
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.threads import spawn
from ballista_py.transport.flight.commands import as_part, lane_of, take_part
from ballista_py.work import Work, current_client, require_wanted, working

RUNTIME = SystemRuntime()
LANES = Lanes(quick=2, slow=1, slow_after_ms=200.0, limit_ms=2_000.0)


def table(name: str) -> TableSpec:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    retention = Retention(sql=f"delete from {name} where id < 0", every="1s")
    spec = PartitionSpec.parse(["bucket(2, id)"], schema)
    return TableSpec(name=name, schema=schema, spec=spec, incarnation="1", retention=retention)


def run(name: str, since_ms: float, slow: bool = False) -> RunningSlot:
    return RunningSlot(table(name), Work(RUNTIME), since_ms, slow)


def test_quick_and_slow_ones_have_places_of_their_own():
    assert LANES.may_begin(False, [run("a", 900)], 1_000)
    assert not LANES.may_begin(False, [run("a", 900), run("b", 950)], 1_000)
    assert LANES.may_begin(False, [run("a", 0), run("b", 950)], 1_000)  # the first has turned out to be slow
    assert not LANES.may_begin(True, [run("a", 0)], 1_000)
    assert not LANES.may_begin(True, [run("a", 999, slow=True)], 1_000)
    assert LANES.may_begin(False, [run("a", 999, slow=True), run("b", 999)], 1_000)


def test_what_is_late_and_what_has_no_place_of_the_slow_ones_is_ended():
    known, late, young = run("known", 500, slow=True), run("late", 100), run("young", 950)
    ended = LANES.to_end([young, late, known], 1_000)
    assert [one.table.name for one, _ in ended] == ["late"]  # the one that was known for it keeps its place
    assert "as another one does" in ended[0][1].message
    ((over, reason),) = LANES.to_end([run("over", 0)], 2_001)
    assert over.table.name == "over"
    assert "ended after 2 s" in reason.message


@define
class Played:
    """Work that is quick, or goes on until somebody ends it, by the name of the table."""

    done: list = field(factory=list)
    ended: list = field(factory=list)
    clients: set = field(factory=set)
    kind: str = "retention"
    failures: int = 1_000
    every: float | None = 50.0

    def every_ms(self, _table):
        return self.every

    def wanted(self, _table):
        return True

    declared = wanted

    def declaration(self, of):
        return of.retention

    def mode(self, _table):
        return "delete"

    def look(self, _table):
        return ""

    def run(self, of, _token, _mode):
        self.clients.add(current_client())
        try:
            if of.name.startswith("failing") and self.done.count(of.name) < self.failures:
                self.done.append(of.name)
                raise SqlError("'x' is no number")
            while of.name.startswith("endless"):
                require_wanted()
                RUNTIME.sleep_ms(5)
        except BaseException as error:
            self.ended.append((of.name, str(error)))
            raise
        self.done.append(of.name)
        return Done()


@pytest.fixture
def threads():
    """The threads that the schedule began: others of this process are not its own."""
    return []


@pytest.fixture
def schedule(threads):
    work = Played()

    def begin(function):
        def named():
            threads.append(threading.current_thread())
            function()

        spawn(named)

    made = Schedule(
        MemoryStore(), RUNTIME, work, begin, lambda: "i1", lambda: True, lambda: True, 5_000.0, lanes=LANES
    )
    yield made
    made.tick({})


def ticked(schedule, tables, holds):
    until_ms = RUNTIME.monotonic_ms() + 60_000
    while not holds():
        assert RUNTIME.monotonic_ms() < until_ms
        schedule.tick(tables)
        RUNTIME.sleep_ms(10)


def test_tables_that_never_end_keep_no_other_from_its_turn(schedule):
    tables = {name: table(name) for name in ("endless1", "endless2", "endless3", "quick")}
    work = schedule.work
    ticked(schedule, tables, lambda: work.done.count("quick") >= 5)
    assert set(work.done) == {"quick"}
    assert work.clients == {
        "cluster retention"
    }  # one client, whom no other one waits for, and no tokens file names
    names = [name for name, _ in work.ended]
    ticked(schedule, tables, lambda: any("ended after 2 s" in said for _, said in work.ended))
    assert set(names) <= {"endless1", "endless2", "endless3"}


def test_a_run_ends_when_its_table_goes_or_declares_something_else(schedule, threads):
    work, name = schedule.work, "endless1"
    tables = {name: table(name)}
    ticked(schedule, tables, lambda: work.clients)
    ticked(schedule, {}, lambda: work.ended)
    assert "does not declare this retention any more" in work.ended[0][1]
    ticked(schedule, tables, lambda: len(schedule._running) == 1)
    other = evolve(tables[name], retention=Retention(sql="delete from endless1 where id < 1", every="1s"))
    ticked(schedule, {name: other}, lambda: len(work.ended) == 2)
    ticked(schedule, {}, lambda: not any(one.is_alive() for one in threads))
    assert len(threads) >= 2


def test_executors_share_memory_between_those_for_whom_they_are_asked():
    work, budget = Work(RUNTIME), MemoryBudget(100, RUNTIME)
    with working(Work(RUNTIME, client="retention")):
        command = as_part({"kind": "rewrite"})
    take_part(work, command)
    with working(work):
        reservation = budget.begin(60)
    assert budget.ledger.held_by(lane_of("retention")) == 60
    assert budget.ledger.held_by("") == 0
    reservation.end()


def test_what_fails_again_and_again_in_the_same_words_is_logged_once_in_a_while(schedule, caplog):
    tables = {"failing": table("failing"), "nothing": table("nothing")}
    work = schedule.work
    with caplog.at_level("INFO"):
        ticked(schedule, tables, lambda: min(work.done.count(name) for name in tables) >= 4)
    said = [record.ballista_fields for record in caplog.records if record.getMessage() == "retention_done"]
    assert [one.get("reason", "") for one in sorted(said, key=lambda one: one["table"])] == [
        "'x' is no number",
        "",
    ]


def test_a_run_that_was_ended_says_why(schedule):
    tables = {name: table(name) for name in ("endless1", "endless2", "endless3")}
    ticked(schedule, tables, lambda: len(schedule.work.ended) >= 2)
    ticked(schedule, tables, lambda: any(d.last and d.last.error for d in schedule.known().values()))
    errors = {d.last.error for d in schedule.known().values() if d.last}
    assert all("ended after" in error or "takes longer" in error for error in errors if error), errors


def test_the_first_run_of_a_view_without_rows_is_tried_again_though_it_has_no_interval(schedule, monkeypatch):
    monkeypatch.setattr(slot_book, "RETRY_MS", 20.0)
    monkeypatch.setattr(schedules, "MAX_LOOK_MS", 20.0)
    work = schedule.work
    work.kind, work.every, work.failures = "refresh", None, 2
    view = evolve(table("failing"), source={"format": "query", "sql": "select 1", "rows": "later"}, retention=None)
    ticked(schedule, {"failing": view}, lambda: any(d.slot == 1 and d.over for d in schedule.known().values()))
    assert work.done == ["failing"] * 3
