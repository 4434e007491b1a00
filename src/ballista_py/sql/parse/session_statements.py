"""Statements about a client's session: SET, RESET, PREPARE, EXECUTE, DEALLOCATE, read from their words. Pure.

They change nothing of a cluster. A client keeps its options and prepared texts itself, so that any scheduler can
answer what comes next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from attrs import frozen
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.partitions.refresh import WRITE_WAITS
from ballista_py.sql.dialects.names import known_dialect
from ballista_py.sql.parse.kind import blank, tokens_of
from ballista_py.sql.parse.parameters import places_of
from ballista_py.sql.parse.parsing import parsed_one
from ballista_py.sql.parse.quotes import first_place
from ballista_py.sql.parse.statement_text import StatementText

OPTIONS = ("dialect", "engine", "statement_timeout", "write_wait")
MAX_SHOWN = 100
# What a constant consists of: no name of a column, no call, no query.
_CONSTANT = (
    exp.Literal, exp.Null, exp.Boolean, exp.Neg, exp.Paren, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam,
    exp.Array, exp.Struct, exp.PropertyEQ, exp.Identifier, exp.Interval, exp.IntervalSpan, exp.Var, exp.ToMap,
)  # fmt: skip
ENGINES = ("auto", "duckdb", "spark")
_VERB = re.compile(r"([A-Za-z]++)\b")
_EXPLAINED = re.compile(r"EXPLAIN\s++(?:ANALYZE\s++)?(?=EXECUTE\b)", re.IGNORECASE)
_EXPLAINS = re.compile(r"EXPLAIN\s++(?:ANALYZE\s++)?", re.IGNORECASE)
_UNIT_S = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(us|ms|s|min|h|d|)", re.ASCII)


@frozen
class SetSessionOption:
    """An option of the session gets a value; None: it is as if it had never been set."""

    name: str
    value: str | float | None


@frozen
class ResetAll:
    """No option is set any more."""


@frozen
class Prepare:
    """A statement is kept under a name."""

    name: str
    statement: str


@frozen
class Execute:
    """The statement of that name is run, with these texts of SQL for its parameters, by their names."""

    name: str
    values: Mapping[str, str]


@frozen
class Deallocate:
    """The statement of that name is forgotten; None: all of them."""

    name: str | None


SessionStatement: TypeAlias = SetSessionOption | ResetAll | Prepare | Execute | Deallocate


def read_session_statement(sql: str) -> SessionStatement | None:
    """What a statement about the session says; None for another statement.

    Raises `SqlError` for an option that a session does not have, a value that it cannot take and any other form.

    >>> read_session_statement("SET statement_timeout = '5s'")
    SetSessionOption(name='statement_timeout', value=5.0)
    >>> read_session_statement("execute q(1, 'a')").values
    {'1': '1', '2': "'a'"}
    """
    verb = read_verb(sql)
    if not verb:
        return None
    found = _VERB.match(sql, first_place(sql))
    assert found is not None
    end = found.end()
    if not sql[end:].strip(" \t\r\n;"):
        raise _refusal(verb, "it needs a name")
    # Without the verb, because the tokenizer takes what follows some of them for one piece.
    text, tokens = tokens_of(blank(sql[:end]) + sql[end:])
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise SqlError("the text holds more than one statement: send them one by one")
    return _READ[verb](StatementText(text, tokens))


def read_verb(sql: str) -> str:
    """The first word of a statement about the session; nothing for another statement.

    >>> read_verb("-- for now\\nset dialect = spark"), read_verb("select 1")
    ('SET', '')
    """
    found = _VERB.match(sql, first_place(sql))
    return found[1].upper() if found is not None and found[1].upper() in _READ else ""


def require_no_session(sql: str, where: str) -> None:
    """Raise `SqlError` for a statement that is right and would have no effect, where each has a session of its own.

    >>> require_no_session("prepare q as select 1", "this page: use a client")
    Traceback (most recent call last):
    ballista_py.errors.SqlError: PREPARE is about a session, and none lasts in this page: use a client
    """
    if isinstance(read_session_statement(sql), SetSessionOption | ResetAll | Prepare):
        raise SqlError(f"{read_verb(sql)} is about a session, and none lasts in {where}")


def before_execute(sql: str) -> str:
    """What stands before the EXECUTE that an EXPLAIN is about; nothing for another statement.

    >>> before_execute("explain analyze execute q(1)"), before_execute("explain select 1")
    ('explain analyze ', '')
    """
    found = _EXPLAINED.match(sql, first_place(sql))
    return "" if found is None else sql[: found.end()]


def executed(sql: str, values: Mapping[str, str]) -> str:
    """The text of an EXECUTE: the prepared statement, or an EXPLAIN of it, with constants for its parameters.

    Raises `SqlError` as `with_values`, and for a value that is no constant.

    >>> executed("explain select * from t where id = $1", {"1": "7"})
    'explain select * from t where id = (7)'
    """
    for value in values.values():
        _require_constant(value)
    explains = _EXPLAINS.match(sql, first_place(sql))  # of which the tokenizer takes what follows for one piece
    head = "" if explains is None else sql[: explains.end()]
    return head + with_values(sql[len(head) :], values)


def with_values(sql: str, values: Mapping[str, str]) -> str:
    """A prepared statement with the texts of its values in the places of its parameters.

    Raises `SqlError` for a parameter without a value and a value without a parameter.

    >>> with_values("select $1 + ?", {"1": "2", "2": "3"})
    'select (2) + (3)'
    """
    written, done, used = [], 0, set()
    for place in places_of(sql):
        if place.name not in values:
            raise SqlError(f"EXECUTE gives no value for the parameter {place.name}")
        used.add(place.name)
        written += [sql[done : place.start], "(", values[place.name], ")"]
        done = place.stop
    unused = [name for name in values if name not in used]
    if unused:
        raise SqlError(f"EXECUTE gives a value for the parameter {unused[0]}, which the statement does not have")
    return "".join((*written, sql[done:]))


_FORMS = {
    "SET": "SET statement_timeout = '5s'",
    "RESET": "RESET statement_timeout, or RESET ALL",
    "PREPARE": "PREPARE q AS SELECT …",
    "EXECUTE": "EXECUTE q(1, 'a')",
    "DEALLOCATE": "DEALLOCATE q, or DEALLOCATE ALL",
}


def _set(statement: StatementText) -> SetSessionOption:
    tokens, place = statement.tokens, 0
    if statement.says(0, "SESSION") and len(tokens) > 1 and not statement.says(1, "="):
        place = 1
    name = _option("SET", tokens[place])
    place += 1
    if place >= len(tokens) or not (statement.says(place, "=") or statement.says(place, "TO")):
        raise _refusal("SET", "it needs a value")
    if len(tokens) != place + 2:
        raise _refusal("SET", f"'{name}' takes one value")
    if statement.says(place + 1, "DEFAULT"):
        return SetSessionOption(name, None)
    return SetSessionOption(name, _value(name, tokens[place + 1].text))


def _reset(statement: StatementText) -> SetSessionOption | ResetAll:
    _ends(statement, 1, "RESET")
    return (
        ResetAll() if statement.says(0, "ALL") else SetSessionOption(_option("RESET", statement.tokens[0]), None)
    )


def _option(verb: str, token: Token) -> str:
    name = token.text.lower()
    if name not in OPTIONS:
        why = f"the options of a session are {', '.join(OPTIONS)}; nodes are configured when they start"
        raise SqlError(f"{verb} {_shown(token.text)} cannot be run here: {why}")
    return name


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _refusal(verb: str, why: str) -> SqlError:
    return SqlError(f"{verb} cannot be run here: {why}, as in {_FORMS[verb]}")


def _value(name: str, text: str) -> str | float | None:
    if name == "dialect":
        return known_dialect(text) or None
    if name == "engine":
        if text.lower() not in ENGINES:
            raise SqlError(f"the engine '{_shown(text)}' is none of {', '.join(ENGINES)}")
        return text.lower()
    if name == "write_wait":
        if text.lower() not in WRITE_WAITS:
            raise SqlError(f"write_wait: '{_shown(text)}' is none of {', '.join(WRITE_WAITS)}")
        return text.lower()
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise SqlError(
            f"'{_shown(text)}' is no time: write milliseconds, or a number with its unit, as '5s' or '2min'"
        )
    return float(found[1]) * _UNIT_S[found[2]] or None


def _prepare(statement: StatementText) -> Prepare:
    name = _name(statement.tokens[0])
    found = next((place for place, word in statement.top_level(1) if word == "AS"), None)
    if found is None or found + 1 >= len(statement.tokens):
        raise _refusal("PREPARE", "it needs a statement")
    if found != 1:
        raise _refusal("PREPARE", "it takes no types, they are those of the values that EXECUTE gives")
    text = statement.plain[statement.tokens[found + 1].start :]
    if read_verb(text):
        raise SqlError(f"{read_verb(text)} cannot be prepared: prepare a query or a change of a table")
    return Prepare(name, text)


def _execute(statement: StatementText) -> Execute:
    tokens, name = statement.tokens, _name(statement.tokens[0])
    if len(tokens) == 1:
        return Execute(name, {})
    last_place = len(tokens) - 1
    if not statement.opens(1) or statement.group_end(1) != last_place:
        raise _refusal("EXECUTE", "it takes its values in brackets")
    values: dict[str, str] = {}
    for first, last in statement.pieces(1, last_place) if last_place > 2 else ():
        key = str(len(values) + 1)
        if last - first > 3 and statement.says(first + 2, ":="):
            key, first = tokens[first + 1].text, first + 2
        if last - first < 2:
            raise _refusal("EXECUTE", "a value is empty")
        value = statement.plain[tokens[first + 1].start : tokens[last - 1].end + 1]  # without a comment behind it
        _require_constant(value)
        if key in values:
            raise _refusal("EXECUTE", f"it has two values for the parameter {key}")
        values[key] = value
    return Execute(name, values)


def _require_constant(text: str) -> None:
    """Raise `SqlError` unless it is a value by itself: the name of a column would stand for that of each row."""
    try:
        tree = parsed_one(f"select {text}")
    except SqlglotError:
        raise _refusal("EXECUTE", f"'{_shown(text)}' is no value") from None
    used = {name for name, given in tree.args.items() if given}
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or used != {"expressions"}:
        raise _refusal("EXECUTE", f"'{_shown(text)}' is no value")
    nodes = tree.expressions[0].walk()
    if not all(isinstance(node, _CONSTANT) for node in nodes):
        raise _refusal("EXECUTE", f"it takes constants, and '{_shown(text)}' is none")


def _deallocate(statement: StatementText) -> Deallocate:
    name = 1 if statement.says(0, "PREPARE") and len(statement.tokens) > 1 else 0
    _ends(statement, name + 1, "DEALLOCATE")
    return Deallocate(None if statement.says(name, "ALL") else _name(statement.tokens[name]))


def _name(token: Token) -> str:
    return token.text.lower()


def _ends(statement: StatementText, place: int, verb: str) -> None:
    if place < len(statement.tokens):
        raise _refusal(verb, "it takes one name")


_READ: Mapping[str, Callable[[StatementText], SessionStatement]] = {
    "SET": _set, "RESET": _reset, "PREPARE": _prepare, "EXECUTE": _execute, "DEALLOCATE": _deallocate,
}  # fmt: skip
