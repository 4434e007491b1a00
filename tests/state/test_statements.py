"""One decision a statement, whoever comes first, also when many come at once and replies are lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ballista_py.errors import TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.decisions import (
    LOOK_MS,
    MAX_SETTLED,
    Decision,
    KnownDecisions,
    StatementsDocument,
    TableDecisions,
)
from ballista_py.state.documents.write_tokens import TOKENS_KEPT_MS
from ballista_py.state.stores.memory import MemoryStore


def test_of_all_attempts_at_a_statement_one_counts():
    store = MemoryStore()

    def commit(number: int) -> bool:
        return TableDecisions(store, "t").commit(f"a{number}", "token", affected=number).committed

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(commit, range(8))) == 1
    document = TableDecisions(store, "t").read()
    assert document.sequence == 1
    assert document.of("token") is not None


def test_committing_and_aborting_meet_and_one_of_them_wins():
    for _ in range(20):
        store = MemoryStore()
        with ThreadPoolExecutor(2) as pool:
            committed = pool.submit(lambda s=store: TableDecisions(s, "t").commit("a", "x", affected=1).committed)
            aborted = pool.submit(lambda s=store: TableDecisions(s, "t").abort("a").committed)
            assert committed.result() == aborted.result()


def test_settled_decisions_are_forgotten_at_the_bound_and_others_never():
    document = StatementsDocument().decided(Decision(attempt="open", token="open", committed=True))
    for n in range(MAX_SETTLED + 5):
        document = document.decided(Decision(attempt=f"a{n}", token=f"t{n}", committed=False, settled=True))
    assert document.on("open") is not None
    assert document.on("a0") is None
    assert len(document.decisions) == MAX_SETTLED + 1


def test_too_many_unsettled_statements_are_refused(monkeypatch):
    monkeypatch.setattr("ballista_py.state.documents.decisions.MAX_UNSETTLED", 2)
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


def test_the_floor_is_the_number_of_the_newest_decision_that_was_forgotten(monkeypatch):
    monkeypatch.setattr("ballista_py.state.documents.decisions.MAX_SETTLED", 2)
    document = StatementsDocument()
    for n in range(1, 6):
        document = document.decided(Decision(attempt=f"a{n}", token=f"t{n}", committed=False, settled=True))
        assert [decision.number for decision in document.decisions] == list(range(max(1, n - 1), n + 1))
        assert document.floor == max(0, n - 2)


def test_what_committed_is_known_as_long_as_it_may_be_sent_again_and_the_last_thousand_longer(monkeypatch):
    class Clock(SystemRuntime):
        now_ms = 0.0

        def monotonic_ms(self) -> float:
            return self.now_ms

    monkeypatch.setattr("ballista_py.state.documents.decisions.MAX_SETTLED", 10)
    store, clock = MemoryStore(), Clock()
    statements = TableDecisions(store, "t", runtime=clock, old=KnownDecisions(clock).old)
    elsewhere = TableDecisions(store, "t")  # of a process that does not tell what is old

    def commit(first: int, count: int, by: TableDecisions) -> None:
        for n in range(first, first + count):
            by.commit(f"a{n}", f"t{n}", affected=n, settled=True)

    commit(0, 100, statements)
    commit(100, 4, elsewhere)
    clock.now_ms = LOOK_MS
    commit(104, 1, statements)  # knows of those before it from here on
    clock.now_ms += TOKENS_KEPT_MS - 1
    commit(105, 1, statements)
    assert statements.read().of("t0").affected == 0
    clock.now_ms += 2
    commit(106, 1, statements)
    left = statements.read()
    assert left.of("t0") is None
    assert left.of("t105") is not None
    clock.now_ms += 2 * TOKENS_KEPT_MS
    commit(107, 1, statements)
    assert [d.token for d in statements.read().decisions][-10:] == [f"t{n}" for n in range(98, 108)]
    assert statements.read().floor > 0


def test_where_no_more_decisions_can_be_remembered_statements_are_refused(monkeypatch):
    for bound in ("MAX_REMEMBERED", "MAX_SETTLED", "MAX_UNSETTLED"):
        monkeypatch.setattr(f"ballista_py.state.documents.decisions.{bound}", 3)
    statements = TableDecisions(MemoryStore(), "t")
    for n in range(9):
        statements.commit(f"a{n}", f"t{n}", affected=1, settled=True)
    with pytest.raises(TryLater, match="remembered"):
        statements.commit("a9", "t9", affected=1)
    assert not statements.abort("a9").committed
    assert statements.read().of("t0") is not None


@pytest.mark.parametrize(("begun", "commits"), [(6, True), (5, True), (4, False)])
def test_an_attempt_commits_only_if_nothing_that_was_decided_after_it_began_is_forgotten(begun, commits):
    document = StatementsDocument(decisions_made=7, floor=5)
    wanted = Decision(attempt="a", token="t", committed=True)
    assert document.decided(wanted, begun).on("a").committed is commits
