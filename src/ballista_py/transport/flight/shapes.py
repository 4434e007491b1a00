"""What commands look like: each field with its type, looked at before anybody uses one.

A command is JSON of a peer, which may be anything. What passes here has every field that it must have, each of the
type that the code behind it takes it for, and no longer than it may be; all else is the peer's error, in one line that
names the field, and no use to be sent again. Fields that are not named here are let through: a newer release may know
more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from ballista_py.partitions.refresh import ON_SCHEMA_CHANGE, REFRESH_MODES, WRITE_WAITS
from ballista_py.partitions.table import FILE_FORMATS, Distribution
from ballista_py.state.documents.jobs import MAX_NAME_CHARS
from ballista_py.transport.flight import shape_checks as shape
from ballista_py.transport.flight.commands import (
    ADOPT,
    APPLY,
    BASE,
    CANCEL,
    CANCEL_JOB,
    CLOSE_JOB,
    CREATE_TABLE,
    EXECUTE,
    EXPLAIN,
    JOB,
    JOB_ROWS,
    JOBS,
    REFRESH,
    RELOAD,
    REWRITE,
    SETTLE,
    SUBMIT_JOB,
    WRITE,
)

_MALFORMED = "the command is malformed"


def check_command(command: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless the command of a stream or write looks as its kind does."""
    kind = command.get("kind")
    with shape.said_of(_MALFORMED):
        if isinstance(kind, str) and kind in _COMMANDS:
            _COMMANDS[kind](command, "")
        elif kind is not None:
            shape.text(kind, "kind")


def check_question(name: str, body: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless the body of the question `name` looks as it does."""
    with shape.said_of(_MALFORMED):
        _QUESTIONS.get(name, shape.anything)(body, "")


def check_part(part: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless this is what a ticket says of its part of an answer."""
    with shape.said_of(_MALFORMED):
        _PART(part, "")


def check_answer(part: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless this is what a ticket says of the rows that a change returned."""
    with shape.said_of(_MALFORMED):
        _ANSWER(part, "")


def check_job_part(part: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless this is what a ticket says of a job and a chunk of its result."""
    with shape.said_of(_MALFORMED):
        _JOB_PART(part, "")


def _epoch_each(check: shape.Check) -> shape.Check:
    """A table whose partitions have an epoch each."""

    def paired(value: Any, place: str) -> None:
        check(value, place)
        if len(value["epochs"]) != len(value["partitions"]):
            shape.refuse(f"{place}.epochs" if place else "epochs", "a list of one number a partition")

    return paired


_TABLE = {
    "table": shape.name,
    "revision": shape.count,
    "partitions": shape.list_of(shape.count),
    "epochs": shape.list_of(shape.count),
}
_LEG = shape.fields(
    {
        "fragment": shape.name,
        "executor_id": shape.name,
        "sql": shape.text,
        "tables": shape.list_of(
            _epoch_each(
                shape.fields(
                    _TABLE,
                    {
                        "sequence": shape.maybe(shape.count),
                        "at_replicas": shape.count,
                        "definition": shape.count,
                        "incarnation": shape.name,
                    },
                )
            )
        ),
    },
    {
        "relations": shape.mapping_of(shape.base64),
        "max_replica_lag_ms": shape.number,
        "scans": shape.mapping_of(shape.list_of(shape.base64)),
    },
)
_FILES = shape.mapping_of(shape.list_of(shape.name), shape.digits)


def _incarnation_each(check: shape.Check) -> shape.Check:
    """A command that, if it knows the incarnation of a table of its leg, knows those of all."""

    def complete(value: Any, place: str) -> None:
        check(value, place)
        tables = {table["table"] for table in value["leg"]["tables"]}
        if "incarnations" in value and not tables <= value["incarnations"].keys():
            shape.refuse("incarnations", "an object with all tables of the leg")

    return complete


_TARGET = _epoch_each(
    shape.fields(
        {**_TABLE, "incarnation": shape.name, "token": shape.kept_token},
        {
            "sequence": shape.maybe(shape.count),
            "definition": shape.count,
            "attempt": shape.maybe(shape.name),
            "replace": shape.flag,
            "remove": _FILES,
            "base": _FILES,
        },
    )
)
_REWRITE = shape.fields(
    {},
    {
        "count": shape.maybe(shape.text),
        "places": shape.maybe(shape.text),
        "rows": shape.maybe(shape.text),
        "deletes": shape.flag,
        "where": shape.maybe(shape.text),
        "alias": shape.name,
    },
    others=False,
)
_STATEMENT = {"query": shape.text}
_ASKED = {"dialect": shape.maybe(shape.name), "engine": shape.maybe(shape.name), "parameters": shape.base64}
_WITH_VALUES = {**_ASKED, "values": shape.mapping_of(shape.text)}
_JOB = {"job_id": shape.name}
_MODES = shape.one_of(("append", "create", "replace", "create_append", "upsert", "changes"))

_REFRESH_DECLARED = shape.fields(
    {},
    {
        "mode": shape.one_of(REFRESH_MODES),
        **{name: shape.maybe(shape.name) for name in ("every", "time_column", "overlap")},
        "on_schema_change": shape.one_of(ON_SCHEMA_CHANGE),
    },
    others=False,
)
_RETENTION_DECLARED = shape.fields({"sql": shape.text}, {"every": shape.name}, others=False)
_AGAIN = {"made": shape.flag, "again": shape.flag, "wait": shape.maybe(shape.one_of(WRITE_WAITS))}
_COMMANDS: Mapping[str, shape.Check] = {
    "sql": shape.fields(
        _STATEMENT, {**_WITH_VALUES, **_AGAIN, "token": shape.maybe(shape.token), "atomic": shape.flag}
    ),
    EXECUTE: shape.fields({**_STATEMENT, "token": shape.token}, {**_WITH_VALUES, **_AGAIN, "atomic": shape.flag}),
    "ingest": shape.fields(
        {"table": shape.name, "mode": _MODES, "token": shape.token}, {**_AGAIN, "atomic": shape.flag}
    ),
    CREATE_TABLE: shape.fields(
        {"table": shape.name, "token": shape.token},
        {
            **_AGAIN,
            "partition_by": shape.list_of(shape.one_type_of(shape.name, shape.mapping_of(shape.name))),
            "distribution": shape.one_of(get_args(Distribution)),
            "colocate_with": shape.maybe(shape.name),
            "primary_key": shape.list_of(shape.name),
            "checks": shape.list_of(shape.text),
            "file_format": shape.one_of(FILE_FORMATS),
            "refresh": shape.maybe(_REFRESH_DECLARED),
            "retention": shape.maybe(_RETENTION_DECLARED),
        },
    ),
    "leg": _incarnation_each(
        shape.fields(
            {"leg": _LEG},
            {
                "task": shape.name,
                "lane": shape.name,
                "output": shape.base64,
                "incarnations": shape.mapping_of(shape.name),
            },
        )
    ),
    JOB_ROWS: shape.fields({"job_id": shape.name}, {"chunk": shape.maybe(shape.count)}),
    BASE: shape.fields({"target": _TARGET, "where": shape.maybe(shape.text), "alias": shape.name}),
    **dict.fromkeys((WRITE, APPLY), shape.fields({"target": _TARGET})),
    ADOPT: shape.fields(
        {
            "target": _TARGET,
            "files": shape.mapping_of(shape.list_of(shape.mapping_of(shape.anything)), shape.digits),
        }
    ),
    REWRITE: shape.fields({"target": _TARGET, "rewrite": _REWRITE}),
    SETTLE: shape.fields({"target": _TARGET, "sequence": shape.maybe(shape.count)}),
    RELOAD: shape.fields({"table": shape.name, "partitions": shape.list_of(shape.count)}),
}
_JOB_PART = shape.fields({"job": shape.name, "chunk": shape.maybe(shape.count)}, others=False)
_ANSWER = shape.fields({"folder": shape.path, "attempt": shape.path}, others=False)
_PART = shape.fields(
    {
        "partitions": shape.mapping_of(shape.list_of(shape.count)),
        "sequences": shape.mapping_of(shape.count),
        "tables": shape.mapping_of(shape.name),
    }
)
_QUESTIONS: Mapping[str, shape.Check] = {
    EXPLAIN: shape.fields(_STATEMENT, {**_WITH_VALUES, "analyze": shape.flag}),
    REFRESH: shape.fields({"table": shape.name}, {"mode": shape.maybe(shape.one_of(("full", "append")))}),
    SUBMIT_JOB: shape.fields(
        _STATEMENT,
        {
            **_ASKED,
            "name": shape.shorter(MAX_NAME_CHARS),
            "priority": shape.count,
            "job_id": shape.maybe(shape.name),
        },
    ),
    JOB: shape.fields(_JOB, {"wait_ms": shape.number, "state": shape.name}),
    JOBS: shape.fields({}, {"state": shape.maybe(shape.name)}),
    **dict.fromkeys((CANCEL_JOB, CLOSE_JOB), shape.fields(_JOB)),
    CANCEL: shape.fields({"task": shape.name}),
}
