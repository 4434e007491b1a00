"""The moment of a change that several compute, each a share of its rows: said once in its text, as one engine does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.partitions.columns import default_of
from ballista_py.sql.parse.changes import Local, is_default, read_change
from ballista_py.sql.parse.edits import Edit, edited
from ballista_py.sql.parse.kind import tokens_of

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
_WORD = re.compile(r"\w+")
_FORMS = {
    _TIMESTAMPTZ: "%Y-%m-%d %H:%M:%S.{ms}+00", _TIMESTAMP: "%Y-%m-%d %H:%M:%S.{ms}", _DATE: "%Y-%m-%d",
    _TIMETZ: "%H:%M:%S.{ms}+00", _TIME: "%H:%M:%S.{ms}",
}  # fmt: skip


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
