"""What is refused of another dialect's statement, as its user wrote it: parsers call many things by other names."""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token

from ballista_py.errors import SqlError, UnsupportedExpression
from ballista_py.sql.parse.parsing import tokenized

MAX_SHOWN = 80
_SAID = re.compile(r"'(?P<piece>.*)'(?P<rest> is not known to mean the same here as in the dialect .*)", re.DOTALL)
_CUT = "…"


def in_own_words(error: UnsupportedExpression, sql: str, dialect: str) -> UnsupportedExpression:
    """The error with the piece as it stands in `sql`, or said to be how a piece of it is read.

    >>> said = "'{}' is not known to mean the same here as in the dialect 'postgres': …"
    >>> print(in_own_words(UnsupportedExpression(said.format("F(A, 2)")), "select f( a,2 )", "postgres"))
    'f( a,2 )' is not known to mean the same here as in the dialect 'postgres': …
    >>> print(in_own_words(UnsupportedExpression(said.format("POWER(2, 3)")), "select 2^3", "postgres"))
    what is read as 'POWER(2, 3)' is not known to mean the same here as in the dialect 'postgres': …
    """
    found = _SAID.fullmatch(error.message)
    if found is None:
        return error
    own = _as_written(found["piece"], sql, dialect)
    shown = f"what is read as '{found['piece']}'" if own is None else f"'{own}'"
    return UnsupportedExpression(shown + found["rest"], **error.details)


def _as_written(piece: str, sql: str, dialect: str) -> str | None:
    """Where the words of a piece, which may be cut, stand in the text one after the other; None if they do not."""
    is_cut = piece.endswith(_CUT)
    try:
        wanted, tokens = tokenized(piece.removesuffix(_CUT), dialect), tokenized(sql, dialect)
    except SqlError:  # a piece that was cut amid a text
        return None
    words = [_word(token) for token in (wanted[:-1] if is_cut else wanted)]
    said = [_word(token) for token in tokens]
    for place in range(len(said) - len(words) + 1 if words else 0):
        if said[place : place + len(words)] == words:
            end = len(sql) if is_cut else tokens[place + len(words) - 1].end + 1
            own = " ".join(sql[tokens[place].start : end].split())
            return own if len(own) <= MAX_SHOWN else own[: MAX_SHOWN - 1] + _CUT
    return None


def _word(token: Token) -> str:
    return token.text.upper()


__all__ = ["in_own_words"]
