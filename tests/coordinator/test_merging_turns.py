"""Statements that merge have turns among those of their client, until their first rows are there."""

from types import SimpleNamespace

import pytest

from ballista_py.coordinator.queries import statement_turns
from ballista_py.coordinator.queries.statement_turns import MergingTurns
from ballista_py.errors import TimeLimit, TryLater
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import SystemRuntime
from ballista_py.work import Work, working

MERGES = SimpleNamespace(merge_sql="select", broadcasts=())
PASSES = SimpleNamespace(merge_sql=None, broadcasts=())


@pytest.fixture
def turns(monkeypatch):
    monkeypatch.setattr(statement_turns, "OF_CLIENT", 1)
    return MergingTurns(SystemRuntime())


def taken(turns, client="a"):
    return turns.turns.taken(client)


def a_work(client="a", limit_ms=None):
    work = Work(SystemRuntime(), client=client)
    work.limit_to(limit_ms)
    return work


def test_a_turn_lasts_until_the_first_rows(turns):
    with working(a_work()):
        turns.take(MERGES)
        turns.take(MERGES)  # within one call nothing waits for the call itself
        assert taken(turns) == 1
        turns.has_rows()
        turns.has_rows()
        assert taken(turns) == 0


def test_while_memory_is_short_a_statement_counts_until_its_call_is_over(turns, monkeypatch):
    monkeypatch.setattr(statement_turns, "WAIT_MS", 1.0)
    budget = MemoryBudget(1 << 30, SystemRuntime())
    turns = MergingTurns(SystemRuntime(), budget)
    first = a_work()
    with working(first):
        turns.take(MERGES)
        turns.has_rows()
    with working(second := a_work()):
        turns.take(MERGES)
    second.over()
    budget.press(pressed=False, is_full=True)
    with working(a_work()), pytest.raises(TryLater, match="1 answers of this client are under way at a node"):
        turns.take(MERGES)
    with working(other := a_work("b")):
        turns.take(MERGES)
    other.over()
    first.over()
    with working(last := a_work()):
        turns.take(MERGES)
    last.over()
    assert not turns.turns._held


def test_a_turn_of_a_call_that_is_over_is_given_back_though_no_row_was_asked_for(turns):
    work = a_work()
    with working(work):
        turns.take(MERGES)
    work.over()
    assert taken(turns) == 0
    with working(work):  # a thread of it that comes late
        turns.take(MERGES)
    assert taken(turns) == 0


def test_another_call_of_the_client_waits_what_passes_and_other_clients_do_not(turns):
    first = a_work()
    with working(first):
        turns.take(MERGES)
    with working(a_work(limit_ms=1.0)), pytest.raises(TimeLimit):
        turns.take(MERGES)
    with working(a_work(limit_ms=1.0)):
        turns.take(PASSES)
    with working(a_work("b", limit_ms=60_000.0)):
        turns.take(MERGES)
    turns.take(MERGES)  # for no call
    first.over()
    assert taken(turns) == 0
