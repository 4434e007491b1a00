"""The moment of a statement: what `now()` and `current_date` are, said once, so that whoever computes a share of it
computes with the same.

Queries have it in their tree, changes in their text, which owners run as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

import attrs
import pyarrow as pa
from attrs import frozen
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.partitions.columns import default_of
from ballista_py.sql.bind.query import Expr
from ballista_py.sql.parse.changes import Local, is_default, read_change
from ballista_py.sql.parse.edits import Edit, edited
from ballista_py.sql.parse.kind import tokens_of
from ballista_py.sql.parse.text import Statement
from ballista_py.sql.plan import Catalog

_IN_QUERIES = frozenset(("now", "get_current_timestamp", "transaction_timestamp"))
_QUERY_WORDS = frozenset(("current_timestamp", "current_date"))  # columns may be called so, too
_MENTIONED = re.compile(rf"\b({'|'.join(sorted(_IN_QUERIES | _QUERY_WORDS | {'today'}))})\b", re.IGNORECASE)
_TIMESTAMPTZ, _TIMESTAMP, _DATE, _TIMETZ, _TIME = "TIMESTAMPTZ", "TIMESTAMP", "DATE", "TIMETZ", "TIME"
_CALLS = {
    "now": _TIMESTAMPTZ, "get_current_timestamp": _TIMESTAMPTZ, "transaction_timestamp": _TIMESTAMPTZ,
    "today": _DATE, "current_date": _DATE, "get_current_time": _TIMETZ, "current_localtime": _TIME,
    "current_localtimestamp": _TIMESTAMP,
}  # fmt: skip
_WORDS = {
    "current_timestamp": _TIMESTAMPTZ, "current_date": _DATE, "current_time": _TIMETZ, "localtime": _TIME,
    "localtimestamp": _TIMESTAMP,
}  # fmt: skip
_AGE = "age"  # of one argument it is the time since then until today
# There is no constant that stands for a call of these.
_OTHERS = frozenset(("ago", "pg_conf_load_time", "pg_postmaster_start_time"))
OF_THE_MOMENT = frozenset((*_CALLS, *_WORDS, *_OTHERS, _AGE))
WORDS_OF_THE_MOMENT = frozenset(_WORDS)  # which need no brackets behind them
_WORD = re.compile(r"\w+")
_FORMS = {
    _TIMESTAMPTZ: "%Y-%m-%d %H:%M:%S.{ms}+00", _TIMESTAMP: "%Y-%m-%d %H:%M:%S.{ms}", _DATE: "%Y-%m-%d",
    _TIMETZ: "%H:%M:%S.{ms}+00", _TIME: "%H:%M:%S.{ms}",
}  # fmt: skip


def mentions_moment(sql: str) -> bool:
    """Whether a plan of the statement may depend on the time at which it was made.

    >>> mentions_moment("select now()"), mentions_moment("select known from t")
    (True, False)
    """
    return _MENTIONED.search(sql) is not None


def at_moment(statement: Statement, catalog: Catalog, moment_ms: int) -> Statement | None:
    """The statement with that moment as a constant; None if there is nothing to replace, or a name in doubt."""
    tree = statement.tree
    if tree is None or not mentions_moment(statement.text):
        return None
    if any(node.name.lower() in _QUERY_WORDS for node in tree.find_all(exp.Identifier)):
        return None
    if any(name.lower() in _QUERY_WORDS for table in catalog.tables.values() for name in table.schema.names):
        return None
    moment = datetime.fromtimestamp(moment_ms / 1e3, UTC)
    found: list[Expr] = []

    def replaced(node: Expr) -> Expr:
        made = _constant(node, moment)
        if made is not None:
            found.append(node)
        return node if made is None else made

    fresh = tree.transform(replaced)
    return attrs.evolve(statement, tree=fresh) if found else None


def said(moment_ms: int) -> str:
    """The moment in words, for the notes of a plan."""
    return f"the moment of the statement is {_text(datetime.fromtimestamp(moment_ms / 1e3, UTC))}"


def _constant(node: Expr, moment: datetime) -> Expr | None:
    if node.args.get("this") is not None and not isinstance(node, exp.Anonymous):
        return None
    called = isinstance(node, exp.Anonymous) and str(node.this).lower() in _IN_QUERIES and not node.expressions
    if called or isinstance(node, exp.CurrentTimestamp):
        return _cast(_text(moment), "TIMESTAMPTZ")
    if isinstance(node, exp.CurrentDate):
        return _cast(moment.date().isoformat(), "DATE")
    return None


def _cast(text: str, type_name: str) -> Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(type_name, dialect="duckdb"))


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1_000:03}+00"


class _InDoubtError(Exception):
    """A word may mean the moment, and no constant surely stands for it."""


@frozen
class Timed:
    """A change at one moment, by `edits` of the text of the one that it was."""

    change: Local
    edits: tuple[Edit, ...] = ()


def at_one_moment(change: Local, schema: pa.Schema, moment_ms: int) -> Timed | None:
    """The same change with the moment (since 1970, UTC) as a constant in each place that depends on it.

    The change itself if none does. None if it may depend on it in a way that is not known here: then one engine has to
    run all of it. `schema` is that of the table: its columns are read before words of the engine.
    """
    text, tokens = tokens_of(change.text)
    moment = datetime.fromtimestamp(moment_ms / 1_000, UTC)
    columns = {column.name.lower(): default_of(column) or "" for column in schema}
    for name, value in change.assignments or ():
        if is_default(value) and OF_THE_MOMENT.intersection(_WORD.findall(columns.get(name.lower(), "").lower())):
            return None
    try:
        edits = tuple(_edits(text, tokens, columns, moment))
        timed = read_change(edited(text, edits)) if edits else change
    except (_InDoubtError, SqlError):
        return None
    return Timed(timed, edits) if isinstance(timed, Local) and timed.table == change.table else None


def _edits(text: str, tokens: Sequence[Token], columns: Collection[str], moment: datetime) -> Iterator[Edit]:
    for place, token in enumerate(tokens):
        name = text[token.start : token.end + 1].strip('"').lower()
        if name not in OF_THE_MOMENT:
            continue
        called = _kind(tokens, place + 1) == TokenType.L_PAREN
        if TokenType.DOT in (_kind(tokens, place - 1), _kind(tokens, place + 1)):
            if called or name not in columns:
                raise _InDoubtError
        elif not called and name in _WORDS and name not in columns:
            yield token.start, token.end + 1, _said(moment, _WORDS[name])
        elif called and name == _AGE:
            if not _has_two(tokens, place + 2):
                start = tokens[place + 1].end + 1
                yield start, start, f"cast({_said(moment, _DATE)} as {_TIMESTAMP}), "
        elif called and name in _CALLS and _kind(tokens, place + 2) == TokenType.R_PAREN:
            yield token.start, tokens[place + 2].end + 1, _said(moment, _CALLS[name])
        elif called:
            raise _InDoubtError


def _kind(tokens: Sequence[Token], place: int) -> TokenType | None:
    return tokens[place].token_type if 0 <= place < len(tokens) else None


def _has_two(tokens: Sequence[Token], start: int) -> bool:
    """Whether a call whose first argument begins there has more than that one."""
    depth = 0
    for token in tokens[start:]:
        if token.token_type == TokenType.COMMA and depth == 0:
            return True
        opens = token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
        closes = token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
        depth += opens - closes
        if depth < 0:
            return False
    return False


def _said(moment: datetime, kind: str) -> str:
    text = moment.strftime(_FORMS[kind].format(ms=f"{moment.microsecond // 1_000:03}"))
    return f"cast('{text}' as {kind})"
