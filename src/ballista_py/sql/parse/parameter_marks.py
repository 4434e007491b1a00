"""Parameters apart from what stands behind them.

The tokenizer takes `$1,$` in `$1,$2` for the beginning of a quoted text, and `?::` for one word.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token

from ballista_py.errors import SqlError
from ballista_py.sql.parse.quotes import pieces_of

_MARK = re.compile(r"(?<!\w)\$\w++|\?(?=::)")


def marked_apart(sql: str) -> tuple[str, list[int]]:
    """The text with a blank behind each parameter that has none, and where those blanks are.

    >>> marked_apart("select $1,$2, '$1,', ?::int")
    ("select $1 ,$2 , '$1,', ? ::int", [9, 13, 24])
    >>> marked_apart("select $t$ $1,$2 $t$, $1")
    ('select $t$ $1,$2 $t$, $1', [])
    """
    if "?::" not in sql and sql.count("$") < 2:
        return sql, []
    pieces, blanks, done = [], list[int](), 0
    for start, stop in _between_quotes(sql):
        place = start
        while (mark := _MARK.search(sql, place, stop)) is not None:
            place = mark.end()
            following = sql[place : place + 1]
            if following and not following.isspace():
                pieces.append(sql[done:place])
                blanks.append(place + len(blanks))
                done = place
    return (sql, []) if not blanks else (" ".join([*pieces, sql[done:]]), blanks)


def _between_quotes(sql: str) -> Iterator[tuple[int, int]]:
    """From where to where neither texts nor names in quotes nor comments stand."""
    done = 0
    for piece in pieces_of(sql):
        yield done, piece.start
        done = piece.stop
    yield done, len(sql)


def tokens_apart(sql: str, tokenize: Callable[[str], list[Token]]) -> list[Token]:
    """The tokens of the text, as if a blank stood behind each parameter.

    Texts and names are what was written in every dialect: quotes are told apart here as the engine does, so a blank
    that has come into a token of another dialect is taken out again. Raises `SqlError` where that does not end it,
    and what `tokenize` raises.
    """
    apart, blanks = marked_apart(sql)
    tokens = tokenize(apart)
    if not blanks:
        return tokens
    inside = _inside(tokens, blanks)
    if inside:
        places = [blank - number for number, blank in enumerate(blanks) if blank not in inside]
        blanks = [place + number for number, place in enumerate(places)]
        tokens = tokenize(" ".join(sql[start:end] for start, end in pairwise((0, *places, len(sql)))))
        if _inside(tokens, blanks):
            raise SqlError(
                "the parameters of the statement cannot be told from its texts: put a blank behind each"
            )
    moved_back(tokens, sql, blanks)
    return tokens


def _inside(tokens: Sequence[Token], blanks: Sequence[int]) -> set[int]:
    """The blanks that stand in a token."""
    ends = [token.end for token in tokens]
    found = set()
    for blank in blanks:
        place = bisect_left(ends, blank)
        if place < len(tokens) and tokens[place].start <= blank:
            found.add(blank)
    return found


def moved_back(tokens: Sequence[Token], sql: str, blanks: Sequence[int]) -> None:
    """Let tokens of a text that was `marked_apart` say where they stand in the text without those blanks, `sql`."""
    lines, line, seen = list[int](), 1, 0
    for number, blank in enumerate(blanks):
        line += sql.count("\n", seen, blank - number)
        seen = blank - number
        lines.append(line)
    for token in tokens:
        before = bisect_left(blanks, token.start)
        token.end -= bisect_left(blanks, token.end)
        token.start -= before
        token.col -= before - bisect_left(lines, token.line)


__all__ = ["marked_apart", "tokens_apart"]
