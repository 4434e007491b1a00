"""Of which snapshot a statement reads a table: `FOR VERSION AS OF 3`, `FOR TIMESTAMP AS OF '…'`, `AT (VERSION => 3)`.

The clause stands behind the name of a table. It is taken out of the text, with blanks in its place, before anybody
else reads that, so that nothing else moves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.kind import blank
from ballista_py.sql.parse.parsing import tokenized

MAY_TRAVEL = re.compile(r"\bAS\s+OF\b|\bAT\s*\(", re.IGNORECASE)
_VERSION, _TIMESTAMP = ("VERSION", "SYSTEM_VERSION"), ("TIMESTAMP", "SYSTEM_TIME")
_NAMES = (TokenType.STRING, TokenType.IDENTIFIER)
_WAYS = "FOR VERSION AS OF 3, FOR TIMESTAMP AS OF '2026-01-31 12:00:00', or AT (VERSION => 3)"


@frozen
class Travel:
    """Which snapshot is meant of the table whose name ends at a character: a `version`, or what was at a `timestamp`.

    A version is the text of a number, or of a name that the table gives to a snapshot; a timestamp the text of one.
    """

    behind: int
    version: str | None = None
    timestamp: str | None = None


def travels(sql: str) -> tuple[str, tuple[Travel, ...]]:
    """The text with blanks in the place of such clauses, and what they say, in their order.

    Raises `SqlError` for one that begins as such and says no snapshot.

    >>> travels("select * from trips for version as of 3 t")
    ('select * from trips                     t', (Travel(behind=19, version='3', timestamp=None),))
    >>> travels("select a as of from t")[1]
    ()
    """
    if not MAY_TRAVEL.search(sql):
        return sql, ()
    tokens = tokenized(sql)
    found: list[Travel] = []
    place = 1
    while place < len(tokens):
        clause = _clause(tokens, place)
        if clause is None:
            place += 1
            continue
        travel, end = clause
        start, stop = tokens[place].start, tokens[end - 1].end + 1
        sql = sql[:start] + blank(sql[start:stop]) + sql[stop:]
        found.append(travel)
        place = end
    return sql, tuple(found)


def _clause(tokens: Sequence[Token], place: int) -> tuple[Travel, int] | None:
    """The clause that begins at a token, and which token follows it; None if none does."""
    before = tokens[place - 1]
    if before.token_type == TokenType.STRING or not (
        before.token_type == TokenType.IDENTIFIER or before.text.isidentifier()
    ):
        return None
    behind = before.end + 1
    words = _words(tokens, place)
    start = 1 if words[:1] == ["FOR"] else 0
    for kinds in (_VERSION, _TIMESTAMP):
        for kind in kinds:
            if words[start : start + 3] == [kind, "AS", "OF"]:
                at = _token_at(tokens, place, start + 3)
                return _said(tokens, at, behind, kinds is _VERSION), at + 1
    if words[:2] == ["AT", "("] and words[2:3] and words[2] in (*_VERSION, *_TIMESTAMP):
        at = _token_at(tokens, place, 3)
        while at < len(tokens) and tokens[at].text in ("=", ">", "=>"):
            at += 1
        found = _said(tokens, at, behind, words[2] in _VERSION)
        if at + 1 >= len(tokens) or tokens[at + 1].token_type != TokenType.R_PAREN:
            raise SqlError(f"a snapshot of a table is named by one value: say {_WAYS}")
        return found, at + 2
    return None


def _said(tokens: Sequence[Token], place: int, behind: int, is_version: bool) -> Travel:
    if place < len(tokens) and not is_version and tokens[place].text.upper() in ("TIMESTAMP", "TIMESTAMPTZ"):
        raise SqlError(f"the timestamp of a snapshot is a text alone, without TIMESTAMP before it: say {_WAYS}")
    if place < len(tokens):
        token = tokens[place]
        is_text, is_number = token.token_type == TokenType.STRING, token.token_type == TokenType.NUMBER
        if is_version and (is_text or (is_number and token.text.isdigit())):
            return Travel(behind, version=token.text)
        if not is_version and is_text:
            return Travel(behind, timestamp=token.text)
    raise SqlError(f"a snapshot of a table is named by a number or a text: say {_WAYS}")


def _words(tokens: Sequence[Token], place: int) -> list[str]:
    """The next words in capitals; some tokens are several words."""
    found: list[str] = []
    for token in tokens[place : place + 5]:
        found += [""] if token.token_type in _NAMES else token.text.upper().split()
    return found


def _token_at(tokens: Sequence[Token], place: int, words: int) -> int:
    """Which token begins so many words behind a place."""
    while words > 0 and place < len(tokens):
        words -= 1 if tokens[place].token_type in _NAMES else len(tokens[place].text.split())
        place += 1
    return place
