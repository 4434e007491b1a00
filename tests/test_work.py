"""The work of a call: stopped once, for the first reason, wherever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import ballista_py
from ballista_py.errors import BallistaError, SqlError, TimeLimit, TransportError, TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.work import Work, current_work, each_working, pause, stopped_by, working

RUNTIME = SystemRuntime()


def test_what_is_under_way_is_stopped_once_and_what_begins_later_at_once():
    work, stopped = Work(RUNTIME), []
    work.add_stop(lambda: stopped.append("first"))
    work.add_stop(lambda: stopped.append("done"))()
    work.end(TransportError("the client went away"))
    work.end(SqlError("another reason"))
    work.add_stop(lambda: stopped.append("late"))
    assert stopped == ["first", "late"]
    with pytest.raises(TransportError, match="the client went away"):
        work.check()


def test_the_earliest_of_several_limits_counts_and_says_how_to_raise_it():
    work = Work(RUNTIME)
    work.limit_to(None)
    assert work.left_ms() is None
    work.limit_to(3_600_000)
    work.limit_to(0.001)
    work.limit_to(7_200_000)
    while work.late() is None:
        pass
    with pytest.raises(TimeLimit, match="raise statement_timeout_ms"):
        work.check()


def test_work_that_nobody_waits_for_ends_where_it_is_looked_at():
    waited = [True]
    work = Work(RUNTIME, wanted=lambda: waited[0])
    work.check()
    waited[0] = False
    assert not work.is_abandoned
    with pytest.raises(Exception, match="nobody waits"):
        work.check()
    assert work.is_abandoned


def test_work_that_was_ended_before_nobody_waited_for_it_is_not_abandoned():
    work = Work(RUNTIME, wanted=lambda: False)
    work.end(TimeLimit("late"))
    with pytest.raises(TimeLimit):
        work.check()
    assert not work.is_abandoned


def test_a_thread_knows_its_work_and_no_other():
    one, other = Work(RUNTIME), Work(RUNTIME)
    assert current_work() is None
    with working(one):
        assert current_work() is one
        with working(other):
            assert current_work() is other
        assert current_work() is one
        seen = each_working(other, (current_work() for _ in range(2)))
        assert [next(seen), current_work(), next(seen)] == [other, one, other]
    assert current_work() is None


def test_what_is_done_is_not_stopped_any_more():
    work, stopped = Work(RUNTIME), []
    with working(work):
        with stopped_by(lambda: stopped.append("done")):
            pass
        with stopped_by(lambda: stopped.append("under way")):
            work.end(TransportError("over"))
        with pytest.raises(TransportError), stopped_by(lambda: None):
            raise AssertionError("nothing begins")
    assert stopped == ["under way"]


def test_whatever_a_scheduler_waits_for_it_waits_for_as_part_of_its_work():
    """A plain sleep would go on after the client has gone, and after the time of the statement."""
    folder = Path(ballista_py.__file__).parent / "coordinator"
    files = list(folder.rglob("*.py"))
    assert len(files) > 20
    sleeping = {file.name for file in files if ".sleep_ms(" in file.read_text()}
    # The end of a job is committed, also of one that was asked to end; and no client waits for what goes by a schedule.
    assert sleeping == {"attempt.py", "schedule.py", "works.py"}


def test_a_pause_ends_with_the_time_of_the_work_and_with_its_client():
    runtime = Slept()
    pause(runtime, 500)
    assert runtime.slept == [500]
    work = Work(runtime)
    work.limit_to(40)
    with working(work), pytest.raises(TimeLimit):
        pause(runtime, 500)
    assert runtime.slept[1] <= 40
    gone = Work(runtime, wanted=lambda: False)
    with working(gone), pytest.raises(BallistaError, match="nobody waits"):
        pause(runtime, 500)
    assert len(runtime.slept) == 2


def test_a_time_limit_that_is_over_says_what_was_waited_for():
    runtime = Slept()
    work = Work(runtime)
    work.limit_to(1_000)
    full = TryLater("the node has no disk space left: see /var/lib/node/held.db")
    with working(work):
        pause(runtime, 10, TryLater("the owner is being changed"))
        with pytest.raises(
            TimeLimit, match=r"\(it waited, because: the node has no disk space left: see a file of"
        ):
            pause(runtime, 3_000, full)


def test_a_time_limit_does_not_name_what_was_overcome():
    runtime = Slept()
    work = Work(runtime)
    work.limit_to(1_000)
    with working(work):
        pause(runtime, 10, TryLater("the node has no disk space left"))
        with pytest.raises(TimeLimit) as late:
            pause(runtime, 2_000)
    assert "waited" not in late.value.message


class Slept(SystemRuntime):
    """Notes how long it was asked to sleep, and is that much later at once."""

    def __init__(self):
        self.slept = []

    def monotonic_ms(self):
        return super().monotonic_ms() + sum(self.slept)

    def sleep_ms(self, ms):
        self.slept.append(ms)
