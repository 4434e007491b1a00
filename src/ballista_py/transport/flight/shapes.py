"""What commands look like: each field with its type, looked at before anybody uses one.

A command is JSON of a peer, which may be anything. What passes here has every field that it must have, each of the
type that the code behind it takes it for, and no longer than it may be; all else is the peer's error, in one line that
names the field, and no use to be sent again. Fields that are not named here are let through: a newer release may know
more.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from ballista_py.errors import InvalidData
from ballista_py.transport.flight.commands import (
    BASE,
    EXECUTE,
    EXPLAIN,
    REFRESH,
    RELOAD,
    REWRITE,
    SETTLE,
    WRITE,
)

MAX_NAME_CHARS = 1_024  # of whatever a client calls something: tables, tokens, dialects, options
MAX_KEPT_TOKEN_CHARS = 2_048  # as long as a client's can be, with what is added to it
MAX_TEXT_CHARS = 64 << 20  # of SQL and of what is coded as text; statements are measured by themselves
MAX_NUMBER = (1 << 63) - 1

# Raises `InvalidData`, naming the place, for what is none.
Check: TypeAlias = Callable[[Any, str], None]


def check_command(command: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless the command of a stream or write looks as its kind does."""
    kind = command.get("kind")
    if isinstance(kind, str) and kind in _COMMANDS:
        _COMMANDS[kind](command, "")
    elif kind is not None:
        _text(kind, "kind")


def check_question(name: str, body: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless the body of the question `name` looks as it does."""
    _QUESTIONS.get(name, _anything)(body, "")


def check_part(part: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless this is what a ticket says of its part of an answer."""
    _PART(part, "")


def check_answer(part: Mapping[str, Any]) -> None:
    """Raises `InvalidData` unless this is what a ticket says of the rows that a change returned."""
    _ANSWER(part, "")


def _refuse(place: str, wanted: str) -> None:
    raise InvalidData(f"the command is malformed: '{place}' must be {wanted}")


def _anything(_value: Any, _place: str) -> None:
    return None


def _base64(value: Any, place: str) -> None:
    _text(value, place)
    try:
        b64decode(value, validate=True)
    except ValueError:
        _refuse(place, "bytes in base64")


def _text(value: Any, place: str) -> None:
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARS:
        _refuse(place, f"a text of at most {MAX_TEXT_CHARS:,} characters")


def _kept_token(value: Any, place: str) -> None:
    if not isinstance(value, str) or len(value) > MAX_KEPT_TOKEN_CHARS:
        _refuse(place, f"a text of at most {MAX_KEPT_TOKEN_CHARS:,} characters")


def _name(value: Any, place: str) -> None:
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARS:
        _refuse(place, f"a text of at most {MAX_NAME_CHARS:,} characters")


def _path(value: Any, place: str) -> None:
    _name(value, place)
    if not value or not all(c.isalnum() or c in "-_@." for c in value) or ".." in value:
        _refuse(place, "a name without signs")


def _flag(value: Any, place: str) -> None:
    if not isinstance(value, bool):
        _refuse(place, "true or false")


def _count(value: Any, place: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NUMBER:
        _refuse(place, "a whole number, 0 or more")


def _number(value: Any, place: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
        _refuse(place, "a number")


def _digits(value: str, place: str) -> None:
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(MAX_NUMBER))):
        _refuse(place, "named by numbers")


def _maybe(check: Check) -> Check:
    return lambda value, place: None if value is None else check(value, place)


def _one_of(choices: Collection[str]) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or value not in choices:
            _refuse(place, f"one of {', '.join(choices)}")

    return check


def _list(item: Check) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, list | tuple):
            _refuse(place, "a list")
        for one in value:
            item(one, place)

    return check


def _mapping(item: Check, name: Check = _name) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            _refuse(place, "an object")
        for key, one in value.items():
            name(key, place)
            item(one, place)

    return check


def _fields(
    required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, others: bool = True
) -> Check:
    """An object with these fields; the optional ones may be missing, and null only where `_maybe` says so."""
    known = {**required, **(optional or {})}

    def check(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            _refuse(place or "it", "an object")
        for name, one in known.items():
            where = f"{place}.{name}" if place else name
            if name in value:
                one(value[name], where)
            elif name in required:
                _refuse(where, "there")
        if not others and not known.keys() >= value.keys():
            _refuse(place, f"an object of {', '.join(known)}")

    return check


def _epoch_each(check: Check) -> Check:
    """A table whose partitions have an epoch each."""

    def paired(value: Any, place: str) -> None:
        check(value, place)
        if len(value["epochs"]) != len(value["partitions"]):
            _refuse(f"{place}.epochs" if place else "epochs", "a list of one number a partition")

    return paired


_TABLE = {"table": _name, "revision": _count, "partitions": _list(_count), "epochs": _list(_count)}
_LEG = _fields(
    {
        "fragment": _name,
        "executor_id": _name,
        "sql": _text,
        "tables": _list(
            _epoch_each(_fields(_TABLE, {"sequence": _maybe(_count), "at_replicas": _count, "definition": _count}))
        ),
    },
    {"relations": _mapping(_base64), "max_replica_lag_ms": _number},
)
_FILES = _mapping(_list(_name), _digits)


def _incarnation_each(check: Check) -> Check:
    """A command that, if it knows the incarnation of a table of its leg, knows those of all."""

    def complete(value: Any, place: str) -> None:
        check(value, place)
        tables = {table["table"] for table in value["leg"]["tables"]}
        if "incarnations" in value and not tables <= value["incarnations"].keys():
            _refuse("incarnations", "an object with all tables of the leg")

    return complete


_TARGET = _epoch_each(
    _fields(
        {**_TABLE, "incarnation": _name, "token": _kept_token},
        {
            "sequence": _maybe(_count),
            "definition": _count,
            "attempt": _maybe(_name),
            "replace": _flag,
            "remove": _FILES,
            "base": _FILES,
        },
    )
)
_REWRITE = _fields(
    {},
    {"count": _maybe(_text), "rows": _maybe(_text), "deletes": _flag, "where": _maybe(_text), "alias": _name},
    others=False,
)
_STATEMENT = {"query": _text}
_ASKED = {"dialect": _maybe(_name), "engine": _maybe(_name)}
_MODES = _one_of(("append", "create", "replace", "create_append", "upsert"))

_COMMANDS: Mapping[str, Check] = {
    "sql": _fields(_STATEMENT, {**_ASKED, "token": _maybe(_name), "made": _flag, "atomic": _flag}),
    EXECUTE: _fields({**_STATEMENT, "token": _name}, {**_ASKED, "atomic": _flag, "made": _flag}),
    "ingest": _fields({"table": _name, "mode": _MODES, "token": _name}, {"atomic": _flag, "made": _flag}),
    "leg": _incarnation_each(
        _fields({"leg": _LEG}, {"task": _name, "output": _base64, "incarnations": _mapping(_name)})
    ),
    BASE: _fields({"target": _TARGET, "where": _maybe(_text), "alias": _name}),
    WRITE: _fields({"target": _TARGET}),
    REWRITE: _fields({"target": _TARGET, "rewrite": _REWRITE}),
    SETTLE: _fields({"target": _TARGET, "sequence": _maybe(_count)}),
    RELOAD: _fields({"table": _name, "partitions": _list(_count)}),
}
_ANSWER = _fields({"folder": _path, "attempt": _path}, others=False)
_PART = _fields({"partitions": _mapping(_list(_count)), "sequences": _mapping(_count), "tables": _mapping(_name)})
_QUESTIONS: Mapping[str, Check] = {
    EXPLAIN: _fields(_STATEMENT, {**_ASKED, "analyze": _flag}),
    REFRESH: _fields({"table": _name}),
}
