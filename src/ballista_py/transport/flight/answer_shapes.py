"""What the answers of nodes look like: trailers, results and replies, looked at before anybody uses one.

A node whose key was stolen may say anything. What passes here has every field that its reader takes from it, of the
type that it takes it for; fields that no reader knows are left out. All else is an `InvalidData` that names the node
and the field: asked again, the same node would say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
    INGEST,
    JOB,
    JOB_ROWS,
    JOBS,
    LEG,
    MEMBERS,
    RECONCILE_ALL,
    REFRESH,
    RELOAD,
    REWRITE,
    SETTLE,
    SQL,
    SUBMIT_JOB,
    TABLES,
    TASKS,
    WRITE,
)

Known = Callable[[Any, str], dict[str, Any]]
"""The fields that its reader knows of an object that was said at this place. Raises `Misshapen`."""

_ERROR_CHARS = 1 << 20
_MOST_ROWS = 1 << 50


def known_trailer(kind: object, end: Mapping[str, Any], address: str) -> tuple[int, dict[str, Any]]:
    """How many rows the node at `address` says that it sent, and what it says at their end. Raises `InvalidData`."""
    with shape.said_of(_no_node_says(address)):
        shape.fields({"rows": shape.count}, {"trailer": shape.maybe(shape.mapping_of(shape.anything))})(end, "")
        return end["rows"], _TRAILERS.get(kind, _all)(end.get("trailer") or {}, "trailer")


def known_result(kind: object, result: object, address: str) -> dict[str, Any]:
    """What the node at `address` made of a command without an answer in rows. Raises `InvalidData`."""
    with shape.said_of(_no_node_says(address)):
        return _RESULTS.get(kind, _all)(result, "result")


def known_reply(question: str, reply: Mapping[str, Any], address: str) -> dict[str, Any]:
    """What the node at `address` said to a question. Raises `InvalidData`."""
    with shape.said_of(_no_node_says(address)):
        return _REPLIES.get(question, _all)(reply, "")


def _no_node_says(address: str) -> str:
    return f"node {address} answered with what no node of ballista_py says"


def _all(said: Any, place: str) -> dict[str, Any]:
    shape.mapping_of(shape.anything, shape.text)(said, place)
    return dict(said)


def _only(required: Mapping[str, shape.Check], optional: Mapping[str, shape.Check] | None = None) -> Known:
    check = shape.fields(required, optional)
    names = (*required, *(optional or {}))

    def known(said: Any, place: str) -> dict[str, Any]:
        check(said, place)
        return {name: said[name] for name in names if name in said}

    return known


def _read_file(value: Any, place: str) -> None:
    """Partition, file and rows of a file that was read."""
    if not isinstance(value, list) or len(value) != 3:
        shape.refuse(place, "a list of partition, file and rows")
    partition, file, rows = value
    shape.count(partition, place)
    shape.name(file, place)
    _rows(rows, place)


def _error_text(value: Any, place: str) -> None:
    if not isinstance(value, str) or len(value) > _ERROR_CHARS:
        shape.refuse(place, "a text")


def _rows(value: Any, place: str) -> None:
    """A number of rows of which many can be added."""
    shape.count(value, place)
    if value > _MOST_ROWS:
        shape.refuse(place, f"at most {_MOST_ROWS}")


_APPLIED = _only({"affected": _rows}, {"idle": shape.flag})
_FAILED = _only(
    {
        "error": shape.fields(
            {"code": shape.name, "message": _error_text, "details": shape.mapping_of(shape.anything)}
        )
    }
)


def _by_partition(said: Any, place: str) -> dict[str, Any]:
    """What became of each partition: rows affected, or an error."""
    shape.mapping_of(shape.mapping_of(shape.anything), shape.digits)(said, place)
    return {
        partition: (_FAILED if "error" in outcome else _APPLIED)(outcome, f"{place}.{partition}")
        for partition, outcome in said.items()
    }


_JOB_ROW = shape.fields(
    {
        "job_id": shape.name,
        "state": shape.name,
        "chunks": shape.count,
        "rows": shape.count,
        "bytes": shape.count,
        "attempt": shape.count,
        "error": shape.maybe(shape.fields({"code": shape.name, "message": _error_text})),
    }
)
_OBJECTS = shape.list_of(shape.mapping_of(shape.anything))
_TRAILERS: Mapping[object, Known] = {
    LEG: _only({}),
    BASE: _only(
        {
            "base": shape.mapping_of(shape.list_of(shape.name), shape.digits),
            "read": shape.list_of(_read_file),
        }
    ),
    SQL: _all,
    JOB_ROWS: _all,
}
_RESULTS: Mapping[object, Known] = {
    **dict.fromkeys((WRITE, APPLY, ADOPT, REWRITE, SETTLE), _by_partition),
    **dict.fromkeys((EXECUTE, INGEST), _only({"affected": _rows})),
    RELOAD: _only({}),
    CREATE_TABLE: _only({}),
}
_REPLIES: Mapping[str, Known] = {
    EXPLAIN: _all,
    MEMBERS: _only({"rows": _OBJECTS}, {"cluster": shape.maybe(shape.name)}),
    **dict.fromkeys((TABLES, TASKS), _only({"rows": _OBJECTS})),
    JOBS: _only({"rows": shape.list_of(_JOB_ROW)}),
    **dict.fromkeys((SUBMIT_JOB, JOB, CANCEL_JOB, CLOSE_JOB), _only({"job": _JOB_ROW})),
    RECONCILE_ALL: _only({"moves": shape.mapping_of(shape.count)}),
    REFRESH: _only({"executors": shape.count}, {"asked": shape.count}),
    CANCEL: _only({"cancelled": shape.flag}),
}
