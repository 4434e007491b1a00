"""One decision a statement, whoever comes first, also when many come at once and replies are lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ballista_py.errors import TryLater
from ballista_py.state.memory import MemoryStore
from ballista_py.state.statements import MAX_SETTLED, Decision, Statements, StatementsDocument


def test_of_all_attempts_at_a_statement_one_counts():
    store = MemoryStore()

    def commit(number: int) -> bool:
        return Statements(store, "t").commit(f"a{number}", "token", affected=number).committed

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(commit, range(8))) == 1
    document = Statements(store, "t").read()
    assert document.sequence == 1
    assert document.of("token") is not None


def test_committing_and_aborting_meet_and_one_of_them_wins():
    for _ in range(20):
        store = MemoryStore()
        with ThreadPoolExecutor(2) as pool:
            committed = pool.submit(lambda s=store: Statements(s, "t").commit("a", "x", affected=1).committed)
            aborted = pool.submit(lambda s=store: Statements(s, "t").abort("a").committed)
            assert committed.result() == aborted.result()


def test_settled_decisions_are_forgotten_at_the_bound_and_others_never():
    document = StatementsDocument().decided(Decision(attempt="open", token="open", committed=True))
    for n in range(MAX_SETTLED + 5):
        document = document.decided(Decision(attempt=f"a{n}", token=f"t{n}", committed=False, settled=True))
    assert document.on("open") is not None
    assert document.on("a0") is None
    assert len(document.decisions) == MAX_SETTLED + 1


def test_too_many_unsettled_statements_are_refused(monkeypatch):
    monkeypatch.setattr("ballista_py.state.statements.MAX_UNSETTLED", 2)
    document = StatementsDocument()
    for n in range(2):
        document = document.decided(Decision(attempt=f"a{n}", token=f"t{n}", committed=True))
    with pytest.raises(TryLater):
        document.decided(Decision(attempt="a2", token="t2", committed=True))
    document.settled("a0").decided(Decision(attempt="a2", token="t2", committed=True))


def test_an_attempt_whose_abortion_may_be_forgotten_never_commits():
    document = StatementsDocument()
    begun = document.decisions_made
    document = document.decided(Decision(attempt="late", token="x", committed=False, settled=True))
    for n in range(MAX_SETTLED + 1):
        document = document.decided(Decision(attempt=f"a{n}", token=f"t{n}", committed=False, settled=True))
    assert document.on("late") is None
    document = document.decided(Decision(attempt="late", token="x", committed=True), begun)
    assert not document.on("late").committed
