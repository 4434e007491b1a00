"""A statement as a client posts it: text, or JSON with parameters and what else is said of it. Nothing else is read."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NoReturn

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import InvalidData, SqlError
from ballista_py.node.http.errors import HttpRefused
from ballista_py.partitions.refresh import WRITE_WAITS
from ballista_py.sql.parse.given_values import marked
from ballista_py.transport.flight import shape_checks as shape
from ballista_py.transport.flight.wire import has_more_values
from ballista_py.transport.flight_sql.statement import SqlStatement, ipc_bytes

MAX_TEXT_BYTES = 1 << 20  # as long as a statement may be
MAX_JSON_BYTES = 4 << 20  # with its parameters, and what JSON writes with more bytes
MAX_VALUES = 100_000
TEXTS = ("text/plain", "application/sql")
JSON = "application/json"
_MOST_S = 1e9


@frozen(kw_only=True)
class PostedStatement:
    """A statement and how it is to be run, as of `Client.sql`; `token` None: it has none."""

    statement: SqlStatement
    engine: str | None = None
    timeout_ms: float | None = None
    token: str | None = field(default=None, repr=False)
    atomic: bool = False
    wait: str = ""


def max_body_bytes(content_type: str) -> int:
    """How long a body of this type may be. Raises `HttpRefused` for a type that is not taken."""
    kind = _kind(content_type)
    if kind in TEXTS:
        return MAX_TEXT_BYTES
    if kind == JSON:
        return MAX_JSON_BYTES
    raise HttpRefused(415, f"a statement is posted as {', '.join(TEXTS)} or {JSON}", "invalid_data")


def read_statement(content_type: str, body: bytes) -> PostedStatement:
    """The statement in a body. Raises `InvalidData` for what is none, and `SqlError` for an empty one.

    >>> read_statement("text/plain", b"select 1").statement.query
    'select 1'
    """
    text = _text_of(content_type, body)
    if _kind(content_type) != JSON:
        return PostedStatement(statement=SqlStatement(query=_whole(text)))
    return _from_json(text, body)


def _text_of(content_type: str, body: bytes) -> str:
    """A body as text. Raises `InvalidData`."""
    charset = content_type.lower().partition("charset=")[2].strip(' "').partition(";")[0].strip(' "')
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise InvalidData("the body must be UTF-8")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise InvalidData("the body is not UTF-8") from None
    return text


def read_job(content_type: str, body: bytes) -> dict[str, Any]:
    """The body of the action `submit_job` that a posted job means. Raises as `read_statement`.

    >>> read_job("application/json", b'{"sql": "select ?", "parameters": [1], "priority": 9}')["priority"]
    9
    """
    text = _text_of(content_type, body)
    if _kind(content_type) != JSON:
        return {"query": _whole(text)}
    said = _said(text, body, _JOB_FIELDS)
    row = _row(said.get("parameters"))
    asked = {
        name: said[name]
        for name in ("dialect", "engine", "name", "priority", "job_id")
        if said.get(name) is not None
    }
    parameters = "" if row is None else b64encode(ipc_bytes(row)).decode()
    return {"query": _whole(said.get("sql") or ""), "parameters": parameters, **asked}


def _from_json(text: str, body: bytes) -> PostedStatement:
    said = _said(text, body, _FIELDS)
    timeout = said.get("timeout")
    if timeout is not None and not 0 < timeout <= _MOST_S:
        raise SqlError("a timeout is a positive number of seconds")
    return PostedStatement(
        statement=SqlStatement(
            query=_whole(said.get("sql") or ""),
            dialect=said.get("dialect"),
            parameters=_row(said.get("parameters")),
        ),
        engine=said.get("engine"),
        timeout_ms=None if timeout is None else timeout * 1e3,
        token=said.get("token"),
        atomic=bool(said.get("atomic")),
        wait=said.get("wait") or "",
    )


def _said(text: str, body: bytes, fields: Mapping[str, shape.Check]) -> dict[str, Any]:
    """The object in a body, which has these fields and no others. Raises `InvalidData`."""
    if has_more_values(body, MAX_VALUES):
        raise InvalidData(f"the body has more than {MAX_VALUES:,} values: load them into a table and join it")
    try:
        said = json.loads(
            text, object_pairs_hook=_once, parse_int=_integer, parse_float=_float, parse_constant=_no_number
        )
        if "\\u" in text:
            json.dumps(said, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except RecursionError:
        raise InvalidData("the body is nested too deep") from None
    except UnicodeEncodeError:
        raise InvalidData("a text of the body has half of a surrogate pair (\\ud800 to \\udfff)") from None
    except ValueError:
        raise InvalidData("the body is not valid JSON") from None
    if not isinstance(said, dict):
        raise InvalidData('the body must be a JSON object: {"sql": "select …", "parameters": […]}')
    unknown = sorted(set(said) - fields.keys())
    if unknown:
        raise InvalidData(f"the body has a field that is not known here; known are {', '.join(fields)}")
    with shape.said_of("the body is malformed"):
        for name, check in fields.items():
            check(said.get(name), name)
    return said


def _parameters(value: Any, place: str) -> None:
    if value is not None and not isinstance(value, list | dict):
        shape.refuse(place, "a list of values, or an object of them by name")


_FIELDS: Mapping[str, shape.Check] = {
    "sql": shape.text,
    "parameters": _parameters,
    "dialect": shape.maybe(shape.name),
    "engine": shape.maybe(shape.name),
    "timeout": shape.maybe(shape.number),
    "token": shape.maybe(shape.token),
    "atomic": shape.maybe(shape.flag),
    "wait": shape.maybe(shape.one_of(WRITE_WAITS)),
}


_JOB_FIELDS: Mapping[str, shape.Check] = {
    "sql": shape.text,
    "parameters": _parameters,
    "dialect": shape.maybe(shape.name),
    "engine": shape.maybe(shape.name),
    "name": shape.maybe(shape.name),
    "priority": shape.maybe(shape.count),
    "job_id": shape.maybe(shape.name),
}


def _row(values: Sequence[Any] | Mapping[str, Any] | None) -> pa.RecordBatch | None:
    """The parameters as one row, by name or in order, as `given_values` tells them apart."""
    if not values:
        return None
    if isinstance(values, Mapping):
        named = [(marked(name), value) for name, value in values.items()]
    else:
        named = [(str(number), value) for number, value in enumerate(values, 1)]
    for name, value in named:
        if not isinstance(value, str | int | float | bool | None):
            raise InvalidData(
                f"parameter {name[: shape.MAX_NAME_CHARS]!a} is a list or an object; send null, true, false, "
                "a number or a text (a date or a decimal as text)"
            )
    return pa.RecordBatch.from_arrays([pa.array([value]) for _, value in named], names=[name for name, _ in named])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidData("an object of the body names a field twice")
    return found


def _integer(digits: str) -> int:
    if (
        len(digits) > len(str(shape.MAX_NUMBER)) + 1
        or not -shape.MAX_NUMBER - 1 <= int(digits) <= shape.MAX_NUMBER
    ):
        raise InvalidData("a whole number of the body has more than 64 bits: send it as a text and CAST it")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise InvalidData("a number of the body is beyond DOUBLE: send it as a text and CAST it")
    return value


def _no_number(_word: str) -> NoReturn:
    raise InvalidData("NaN and Infinity are not JSON: send a text and CAST it")


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _whole(text: str) -> str:
    if not text.strip():
        raise SqlError("the statement is empty")
    return text
