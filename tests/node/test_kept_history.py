"""The history that is appended to a table: each task once."""

from __future__ import annotations

import pytest

from ballista_py.errors import OutcomeUnknown, SqlError
from ballista_py.node.scheduler import kept_history
from ballista_py.node.scheduler.kept_history import KeptHistory
from ballista_py.node.status.tasks import Tasks
from ballista_py.runtime import SystemRuntime
from ballista_py.work import Work, working


class Table:
    """Appends once a token, and loses the reply as often as it is told to."""

    def __init__(self):
        self.by_token, self.sent, self.lost, self.made = {}, [], 0, 0

    def make(self):
        self.made += 1

    def append(self, rows, token):
        self.sent.append(token)
        kept = self.by_token.setdefault(token, rows)
        assert kept.equals(rows), "another batch under the same token"
        if self.lost:
            self.lost -= 1
            raise OutcomeUnknown("no reply came")

    def ids(self):
        return [span for rows in self.by_token.values() for span in rows["span_id"].to_pylist()]


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def kept(table):
    return KeptHistory(table.append, table.make, lambda: "i1", SystemRuntime())


def test_what_was_not_acknowledged_is_sent_again_as_it_was_and_before_all_else(table, kept):
    tasks = Tasks("s1", SystemRuntime(), kept.ended)
    for number in range(3):
        tasks.begin("statement", f"select {number}").end("done")
    table.lost = 2
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            kept.tick()
        tasks.begin("statement", "select 9").end("done")
    assert kept.tick() == 3
    assert kept.tick() == 2
    assert kept.tick() == 0
    assert table.sent == ["history/i1/1"] * 3 + ["history/i1/2"]
    assert sorted(table.ids()) == sorted(record.span_id for record in tasks.last(10))
    assert table.made == 1


def test_what_waits_is_bounded_and_what_is_left_out_is_counted(table, monkeypatch):
    monkeypatch.setattr(kept_history, "MAX_PENDING", 5)
    monkeypatch.setattr(kept_history, "MAX_BATCH", 3)
    dropped = []
    kept = KeptHistory(table.append, table.make, lambda: "i1", SystemRuntime(), dropped.append)
    tasks = Tasks("s1", SystemRuntime(), kept.ended)
    for number in range(8):
        tasks.begin("statement", f"select {number}").end("done")
    assert sum(dropped) == 3
    assert (kept.tick(), kept.tick(), kept.tick()) == (3, 2, 0)
    inputs = [text for rows in table.by_token.values() for text in rows["input"].to_pylist()]
    assert sorted(inputs) == [f"select {number}" for number in range(3, 8)]


def test_whoever_may_read_the_table_reads_no_error_of_a_client(table, kept):
    runtime = SystemRuntime()
    tasks = Tasks("s1", runtime, kept.ended)
    for client in ("ada", ""):
        with working(Work(runtime, client=client)):
            tasks.begin("statement", "select ?").failed(SqlError("row 0 (s = secret) violates a check"))
    kept.tick()
    (rows,) = table.by_token.values()
    said = {row["user"]: row["error_message"] for row in rows.to_pylist()}
    assert said["ada"] is None
    assert "secret" in said[None]  # nobody is told from others there
