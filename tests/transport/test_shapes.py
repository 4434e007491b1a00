"""A command that is not what its kind looks like is its sender's error, before anybody uses it."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import pytest
from attrs import asdict, evolve

from ballista_py.errors import InvalidData, TransportError
from ballista_py.node.executor.answers import ExecutorAnswers
from ballista_py.node.scheduler.answers import SchedulerAnswers
from ballista_py.sql.plan import Leg, LegTable, leg_from_json
from ballista_py.sql.rewrite import Rewrite
from ballista_py.transport.flight.commands import (
    EXPLAIN,
    JOB,
    REFRESH,
    IngestMode,
    WriteTarget,
    apply_command,
    base_command,
    execute_command,
    ingest_command,
    leg_command,
    sql_command,
    write_command,
)
from ballista_py.transport.flight.shapes import check_command, check_part, check_question
from ballista_py.transport.flight.wire import from_json, to_json

TABLE = LegTable(table="t", revision=7, partitions=(0, 3), epochs=(1, 2))
LEG = Leg(fragment="f0", executor_id="e1", sql="select 1", tables=(TABLE,), relations={"b": b"rows"})
TARGET = WriteTarget(
    table=TABLE, incarnation="5f", token="k", attempt="a", remove={3: ("f",)}, base={0: ("g", "h")}
)
BOTH = tuple(evolve(TABLE, table=name) for name in "tu")
REWRITE = asdict(
    Rewrite(
        count="select count(*) from t",
        places="select place from t",
        rows="select * from t",
        deletes=True,
        where="true",
        alias="t",
    )
)
GOOD = [
    sql_command("select 1"),
    sql_command("select 1", "spark", "auto"),
    execute_command("delete from t", None, "k", atomic=True),
    ingest_command("t", "append", "k"),
    {**leg_command(LEG, "task-1"), "output": "AAAA", "incarnations": {"t": "5f"}},
    {**leg_command(evolve(LEG, tables=BOTH), "task-1"), "incarnations": {"t": "5f", "u": "60"}},
    write_command(TARGET),
    apply_command(TARGET),
    base_command(TARGET, "a > 1", "x"),
    {"kind": "rewrite", "target": TARGET.to_json(), "rewrite": REWRITE},
    {"kind": "settle", "target": TARGET.to_json(), "sequence": None},
    {"kind": "reload", "table": "t", "partitions": [1, 2]},
]
PART = {"partitions": {"t": [0, 1]}, "sequences": {"t": 3}, "tables": {"t": "5f"}, "more": 1}


def as_received(command: Any) -> dict[str, Any]:
    return from_json(to_json(command))


def use(command: dict[str, Any]) -> None:
    """What nodes do with a command that passed."""
    kind, tables = command.get("kind"), []
    if "leg" in command:
        tables += leg_from_json(command["leg"]).tables
        known = command.get("incarnations")
        assert known is None or all(known[table.table] is not None for table in tables)
    if "target" in command and kind != "sql":
        tables.append(WriteTarget.from_json(command["target"]).table)
    assert all(dict(zip(table.partitions, table.epochs, strict=True)) is not None for table in tables)
    if kind == "rewrite":
        found = Rewrite(**command["rewrite"])
        texts = (found.count, found.places, found.rows, found.where)
        assert all(text is None or isinstance(text, str) for text in texts)
        assert isinstance(found.deletes, bool)
    if kind == "base":
        assert command["where"] is None or isinstance(command["where"] + command["alias"], str)
    if kind == "settle":
        assert command["sequence"] is None or command["sequence"] >= 0


@pytest.mark.parametrize("command", GOOD, ids=lambda command: command["kind"])
def test_what_our_own_clients_and_nodes_send_passes(command):
    check_command(as_received(command))
    use(as_received(command))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inner for place in places(item, (*path, name)))]


STRANGE = (
    None, True, -1, 1 << 63, 1.5, 1e300, "", "x", "x" * 2_000, "é\0",
    [], [None], [[]], {}, {"a": 1}, {"1": ["f"]}, {"a": ["f"]}, {"a": None},
)  # fmt: skip
GONE = object()


def refusal(command: Any) -> str | None:
    try:
        check_command(command)
    except InvalidData as error:
        return str(error)
    return None


# What may be longer than a name: SQL, and rows that are coded as text.
LONG = {"query", "sql", "where", "rows", "count", "places", "b", "output"}


@pytest.mark.parametrize("command", GOOD, ids=lambda command: command["kind"])
def test_whatever_is_called_something_in_a_command_has_a_bound(command):
    for *path, last in filter(None, places(as_received(command))):
        changed = copy.deepcopy(as_received(command))
        holder = changed
        for step in path:
            holder = holder[step]
        if isinstance(holder[last], str) and last != "kind":
            holder[last] = "x" * 100_000
            assert (refusal(changed) is None) == (last in LONG), (*path, last)


WITHOUT_TEXTS = {"kind": "rewrite", "target": TARGET.to_json(), "rewrite": asdict(Rewrite(alias="t"))}


@pytest.mark.parametrize("command", [*GOOD, WITHOUT_TEXTS], ids=lambda command: command["kind"])
def test_a_command_with_any_field_changed_or_gone_is_usable_or_refused_in_one_line(command):
    for *path, last in filter(None, places(as_received(command))):
        for strange in (*STRANGE, GONE):
            changed = copy.deepcopy(as_received(command))
            holder = changed
            for step in path:
                holder = holder[step]
            if strange is GONE:
                del holder[last]
            else:
                holder[last] = strange
            refused = refusal(changed)
            if refused is not None:
                assert refused.isprintable()
            elif changed.get("kind") == command["kind"]:
                use(changed)


@pytest.mark.parametrize("mode", get_args(IngestMode))
def test_rows_may_be_sent_in_every_mode_that_there_is(mode):
    check_command(as_received(ingest_command("t", mode, "k")))


def test_a_wait_may_be_a_fraction_of_a_millisecond():
    check_question(JOB, {"job_id": "j", "wait_ms": 12.5})


@pytest.mark.parametrize(
    ("name", "body"),
    [
        (EXPLAIN, {}),
        (EXPLAIN, {"query": 1}),
        (EXPLAIN, {"query": "x", "analyze": "no"}),
        (REFRESH, {"table": None}),
    ],
)
def test_a_question_that_is_not_as_it_should_be_is_refused(name, body):
    with pytest.raises(InvalidData, match="the command is malformed: '"):
        check_question(name, body)


@pytest.mark.parametrize(
    "wrong",
    [{"partitions": {"t": [-1]}}, {"partitions": {"t": 1}}, {"sequences": {"t": 1e300}}, {"tables": []}],
)
def test_a_part_that_no_scheduler_wrote_is_refused(wrong):
    check_part(PART)
    with pytest.raises(InvalidData, match="the command is malformed: '"):
        check_part({**PART, **wrong})


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"1" * 5_000, b"[" * 100_000, b'{"a": NaN}', b'{"a": "\\ud800"}', b"{" * 9_999]
)
def test_what_is_no_json_object_is_the_senders_error(data):
    with pytest.raises(TransportError, match="not a JSON object"):
        from_json(data)


def test_numbers_that_no_machine_word_holds_are_no_counts():
    command = json.loads(json.dumps(GOOD[-1]))
    for number in (10**30, -1, 1.0, True):
        with pytest.raises(InvalidData, match="partitions"):
            check_command(as_received({**command, "partitions": [number if number != 10**30 else 1e30]}))


class Nothing:
    """Rows that nobody may ask for."""

    schema = None


@pytest.mark.parametrize(
    "command",
    [
        {"kind": "execute", "query": "delete from t"},
        {"kind": "execute", "query": 5, "token": "k"},
        {"kind": "ingest", "table": "t", "mode": "sideways", "token": "k"},
        {"kind": "sql", "query": None},
        {"kind": "leg"},
        {"kind": "leg", "leg": []},
        {"kind": "write", "target": {"table": "t"}},
        {"kind": "settle", "target": None},
        {"kind": "settle", "target": TARGET.to_json()},
        {"kind": "base", "target": TARGET.to_json()},
        {"kind": "write", "target": {**TARGET.to_json(), "epochs": [1]}},
        {"kind": 7},
    ],
)
def test_nodes_look_at_a_command_before_they_use_it(command):
    scheduler = SchedulerAnswers(node_id="s", cluster_id="c", tasks=None, shown_tasks=list)
    executor = ExecutorAnswers("e", engine=None, tasks=None)
    for answer in (
        lambda: scheduler.stream(command, None),
        lambda: scheduler.write(command, Nothing(), None),
        lambda: executor.stream(command, None),
        lambda: executor.write(command, Nothing(), None),
    ):
        with pytest.raises(InvalidData, match="the command is malformed: '"):
            answer()


def test_the_name_of_a_job_has_the_bound_that_is_said():
    check_question("submit_job", {"query": "select 1", "name": "n" * 200})
    for name in (5, "n" * 201):
        with pytest.raises(InvalidData, match=r"name.* at most 200 characters"):
            check_question("submit_job", {"query": "select 1", "name": name})
