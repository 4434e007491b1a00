"""Whoever looks sees all of his own tasks, and of others' what is named and nothing else; a viewer no values."""

from __future__ import annotations

import re

import attrs
import pyarrow as pa
import pytest

from ballista_py.node.status.seen_tasks import (
    OF_OTHERS,
    VIEWER,
    may_see_plan,
    plan_seen_by,
    seen_by,
    without_values,
)
from ballista_py.node.status.tasks import Tasks
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.parameters import bound
from ballista_py.state.members.control import TaskRecord
from ballista_py.work import Work, working

FULL = {
    field.name: {"int": 7, "float": 7.0}.get(str(field.type), f"{field.name} of ada")
    for field in attrs.fields(TaskRecord)
}
TASK = TaskRecord(**{**FULL, "user": "ada", "kind": "statement", "job_id": "", "labels": {"of": "ada"}})
PLAN = {
    "fragments": [{"name": "f", "sql": "select c0 from t where c1 = 'hidden'"}],
    "broadcasts": [{"name": "b", "sql": "select 'hidden'"}],
    "merge_sql": "select CAST(815 AS BIGINT) + c0",
    "notes": ["'hidden' was not pushed down"],
    "legs": [],
}


def test_others_see_the_fields_that_are_named_and_nothing_of_any_other():
    assert seen_by(TASK, "ada") == TASK
    seen = attrs.asdict(seen_by(TASK, "bob"))
    assert {name: value for name, value in seen.items() if name in OF_OTHERS} == {
        name: getattr(TASK, name) for name in OF_OTHERS
    }
    assert not any(value for name, value in seen.items() if name not in OF_OTHERS)


def test_a_viewer_sees_what_was_written_and_nothing_of_jobs():
    assert seen_by(TASK, VIEWER).text == TASK.text
    job = attrs.evolve(TASK, job_id="7")
    assert seen_by(job, VIEWER) == seen_by(attrs.evolve(TASK, text="", error_message=""), "bob")
    assert not may_see_plan("ada", "7", VIEWER)
    assert may_see_plan("ada", "7", "ada")
    assert not may_see_plan("ada", "", "bob")


@pytest.mark.parametrize("text", ["select cast(? as int)", "select $name", "ingest t", "insert into t from u"])
def test_an_error_which_may_tell_of_a_value_is_not_for_a_viewer(text):
    assert seen_by(attrs.evolve(TASK, text=text, error_message="no int: 'hidden'"), VIEWER).error_message == ""


@pytest.mark.parametrize("kind", ["leg", "base", "write", "apply", "rewrite", "job", "of a later release"])
def test_what_was_made_of_a_statement_has_no_values_for_a_viewer(kind):
    made = attrs.evolve(
        TASK, kind=kind, text="select c0 from t where c1 = 'hidden' and c2 > 815", error_message="hidden"
    )
    assert seen_by(made, VIEWER).text == "select c0 from t where c1 = ? and c2 > ?"
    assert seen_by(made, VIEWER).error_message == ""


def test_a_plan_has_its_values_for_the_client_alone():
    assert plan_seen_by(PLAN, "ada") == PLAN
    assert not re.search("hidden|815", str(plan_seen_by(PLAN, VIEWER)))


@pytest.mark.parametrize("is_over", [False, True])
def test_a_task_gives_its_plan_to_whom_it_may(is_over):
    tasks = Tasks("n1", SystemRuntime())
    with working(Work(SystemRuntime(), client="ada")):
        task = tasks.begin("statement", "select ?")
    task.plan = lambda: PLAN
    if is_over:
        task.end("done")
    assert tasks.plan_of(task.task_id, "ada") == PLAN
    assert tasks.plan_of(task.task_id, "bob") is None
    seen = tasks.plan_of(task.task_id, VIEWER)
    assert seen is not None
    assert "hidden" not in str(seen)


VALUES = [
    *(pa.scalar(v) for v in ("hidden", "it's hidden", "a\nhidden", 815, -815, 815.5, 8.15e300, b"\x08\x15", True)),
    pa.scalar([815, 8150]),
    pa.scalar({"a": "hidden"}),
    *(pa.scalar(815, kind) for kind in (pa.date32(), pa.timestamp("us", "UTC"), pa.duration("s"), pa.time32("s"))),
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_no_literal_of_a_parameter_is_left_wherever_its_text_is_cut(value):
    text = bound("select ? as a, c0 from t where b = ? and c1 is not null", {"1": value, "2": value})
    for end in range(len(text) + 1):
        assert not re.search(r"hidd|8\d|1972|13:|'", without_values(text[:end])), text[:end]


def test_names_stay_and_what_was_made_of_values_does_not():
    assert without_values('select c0, w12, t1.v_2 from "my table" where x = $1') == (
        'select c0, w12, t1.v_2 from "my table" where x = $1'
    )
    assert without_values('select "\'hidden\'", "(815 + 1)" from t') == 'select "?", "?" from t'
    assert without_values("select $$hidden$$, $a$hidden' $a$, e'\\'', 0xFF, .5, true") == "select ?, ?, ?, ?, ?, ?"
    assert without_values('"' * 100_000) == '"?"'
