"""What a node did is remembered, bounded, and each task ends once."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import ballista_py
from ballista_py.errors import BallistaError, SqlError
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.tasks import MAX_REMEMBERED, MAX_TEXT_CHARS, Tasks
from ballista_py.runtime import SystemRuntime
from ballista_py.work import Work, working

BATCH = pa.record_batch({"n": [1, 2, 3]})


@pytest.fixture
def tasks():
    return Tasks("n1", SystemRuntime())


def test_a_task_read_to_its_end_is_done_with_its_rows(tasks):
    task = tasks.begin("statement", "select\n  1")
    assert [record.outcome for record in tasks.last(5)] == ["running"]
    assert list(task.follow([BATCH, BATCH])) == [BATCH, BATCH]
    (record,) = tasks.last(5)
    assert (record.node_id, record.text, record.rows, record.outcome) == ("n1", "select 1", 6, "done")
    assert tasks.running() == 0


def test_an_error_and_a_reader_that_stops_end_it_too(tasks):
    def failing(error):
        yield BATCH
        raise error

    for error, outcome in ((SqlError("no"), "planning.sql"), (RuntimeError("secret"), "error")):
        with pytest.raises(type(error)):
            list(tasks.begin("leg", "x").follow(failing(error)))
        assert tasks.last(1)[0].outcome == outcome
    stopped = tasks.begin("leg", "x").follow([BATCH, BATCH])
    next(stopped)
    stopped.close()
    assert tasks.last(1)[0].outcome == "cancelled"


def test_cancelling_by_name_stops_every_task_of_that_name_and_no_other(tasks):
    stopped = []
    for task_id, name in (("a", 1), ("a", 2), ("b", 3)):
        tasks.begin("leg", "x", task_id, lambda name=name: stopped.append(name))
    assert tasks.cancel(["a", "nobody"]) == 2
    assert sorted(stopped) == [1, 2]
    assert tasks.running() == 1


def test_a_task_that_was_cancelled_before_its_work_began_is_stopped_when_it_begins(tasks):
    task = tasks.begin("leg", "x", "a")
    tasks.cancel(["a"])
    stopped = []
    task.attach(lambda: stopped.append(1))
    assert stopped == [1]


def test_what_is_remembered_is_bounded_and_the_newest_comes_first(tasks):
    for number in range(MAX_REMEMBERED + 5):
        tasks.begin("leg", f"{number} " + "x" * 1_000).end("done")
    found = tasks.last(10**6)
    assert len(found) == MAX_REMEMBERED
    assert found[0].text.startswith(f"{MAX_REMEMBERED + 4} ")
    assert len(found[0].text) == MAX_TEXT_CHARS
    assert tasks.last(0) == tasks.last(-1) == ()


def test_metrics_count_tasks_once_and_leave_out_a_gauge_that_fails():
    metrics = NodeMetrics("n1", "executor")
    tasks = Tasks("n1", SystemRuntime(), metrics.ended)
    task = tasks.begin("leg", "x")
    list(task.follow([BATCH]))
    task.end("cancelled")
    metrics.gauge("good", "Good.", ("table",), lambda: {("t",): 4.0})
    metrics.gauge("bad", "Bad.", (), lambda: 1 / 0)
    text = metrics.text().decode()
    assert 'node_tasks_total{node_id="n1",role="executor",status="done"} 1.0' in text
    assert 'executor_tasks_total{node_id="n1",role="executor",status="done"} 1.0' in text
    assert 'node_task_rows_total{kind="leg"} 3.0' in text
    assert 'executor_task_duration_ms_count{kind="leg"} 1.0' in text
    assert 'good{table="t"} 4.0' in text
    assert "cancelled" not in text
    assert "bad" not in text


def test_every_answer_of_a_task_ends_the_task_when_it_is_cancelled_before_its_first_batch():
    answers = 0
    for path in Path(ballista_py.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "asks.begin(" in text else ():
            if isinstance(node, ast.FunctionDef) and "asks.begin(" in (
                source := ast.get_source_segment(text, node)
            ):
                if ".whole()" in source:  # ends with its block
                    continue
                answers += 1
                assert "cancel=task.cancelled" in source or "task.end(CANCELLED)" in source, path.name
    assert answers == 6


def test_what_fails_because_nobody_waits_for_it_was_cancelled():
    tasks, ends = Tasks("n", SystemRuntime()), []
    tasks.ended = lambda record: ends.append(record.outcome)
    for wanted in (False, True):
        work = Work(SystemRuntime(), wanted=lambda wanted=wanted: wanted)
        with working(work):
            task = tasks.begin("leg", "x")
            with suppress(BallistaError):
                work.check()
            task.failed(SqlError("whatever it meets then"))
    assert ends == ["cancelled", SqlError.code]
