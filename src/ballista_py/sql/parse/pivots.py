"""PIVOT without IN: which values become columns is asked first, then they are written out; pure.

DuckDB makes several statements of such a text. Here the values are the answer of a query of their own, and the text
with them in it is one query, with the columns that DuckDB would give, in its order. A row of another value, which came
in between, is an error of that query, never left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.kind import tokens_of, verb_place
from ballista_py.sql.parse.statement_text import StatementText

MAX_VALUES = 1_000
MAX_VALUES_CHARS = 262_144
MAX_PIVOTS = 8
MAX_ASKED = 16
OVERTAKEN = "a value came in while PIVOT without IN was asking which there are"
_MENTIONED = re.compile(r"\bpivot(?:_wider)?\b", re.IGNORECASE)
_PIVOTS = ("PIVOT", "PIVOT_WIDER")
_ENDS_LIST = (
    "USING", "GROUP BY", "ORDER BY", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "RETURNING", "ON",
    "ON CONFLICT", ";",
)  # fmt: skip
_NO_SOURCE = ("JOIN", "FROM", "SELECT", ",", ";", "WHERE", "ON CONFLICT", "PIVOT", "UNPIVOT", "USING")
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
NOBODY = "\x02"  # the only value where there is none: its columns are left out again


@frozen
class OpenPivot:
    """One PIVOT of a text that lacks the values of some of its expressions.

    `asked` are the queries for them, each of one column of texts; `items` are the places of the expressions, `start`
    and `stop` those of the whole PIVOT.
    """

    text: str
    asked: tuple[str, ...]
    items: tuple[tuple[int, int], ...]
    start: int
    stop: int

    @property
    def left_out(self) -> str:
        """The text with another query in place of the PIVOT."""
        return f"{self.text[: self.start]}select 1{self.text[self.stop :]}"

    def closed(self, values: Sequence[Sequence[str]]) -> str:
        """The text with these values. Raises `SqlError` for so many that nobody could read them."""
        count = 1
        for found in values:
            count *= len(found)
        if count > MAX_VALUES:
            raise SqlError(
                f"PIVOT without IN would give {count:,} columns or more, {MAX_VALUES:,} are the most: say with IN "
                "which values become columns, or GROUP BY them"
            )
        if sum(len(value) for found in values for value in found) > MAX_VALUES_CHARS:
            raise SqlError(
                "PIVOT without IN would give columns with very long names: say with IN which values it is for"
            )
        empty = not all(values)
        made, place = "", self.start
        for (start, stop), found in zip(self.items, values, strict=True):
            listed = ", ".join(map(_literal, [NOBODY] if empty else found))
            value = f"cast(({self.text[start:stop]}\n) as varchar)"
            known = f"in ({', '.join(map(_literal, found))}) is not false" if found else "is null"
            checked = f"case when {value} {known} then {value} else error({_literal(OVERTAKEN)}) end"
            made += f"{self.text[place:start]} ({checked}) in ({listed})"
            place = stop
        made += self.text[place : self.stop]
        if empty:
            # What no condition reads would not be computed, nor a row of another value be seen.
            looked = f"(columns('^{NOBODY}') is null)::varchar <> ''"
            made = f"select * not like '{NOBODY}%' from ({made}) where {looked}"
        return self.text[: self.start] + made + self.text[self.stop :]


def mentions_pivot(sql: str) -> bool:
    """Whether the text may have a PIVOT at all.

    >>> mentions_pivot("select 1"), mentions_pivot("Pivot t on a")
    (False, True)
    """
    return _MENTIONED.search(sql) is not None


def open_pivot(sql: str) -> OpenPivot | None:
    """The first PIVOT to be closed, which lies in no other one and reads none that is open; None if there is none.

    >>> open_pivot("pivot t on a, b in (1) using sum(c)").closed([["x", "y"]])[-43:]
    ") end) in ('x', 'y'), b in (1) using sum(c)"
    >>> open_pivot("select * from t pivot (sum(c) for a in (1, 2))") is None
    True
    """
    if not mentions_pivot(sql):
        return None
    text, tokens = tokens_of(sql)
    whole = StatementText(text, tokens)
    places = [place for place, token in enumerate(tokens) if _says(token, _PIVOTS)]
    if len(places) > MAX_PIVOTS:
        raise SqlError(f"the statement has {len(places)} PIVOTs, {MAX_PIVOTS} are the most")
    found = [each for each in (_read(whole, place) for place in places) if each is not None]
    if not found:
        return None
    first = found[0]  # what WITH gives it stands before it, what it reads behind it
    while inner := [each for each in found if first.reads(each.place)]:
        first = inner[0]
    return first.asked_in(whole)


def any_values(sql: str) -> str:
    """The text with a value in place of all that would be asked for, to be looked at and not to be run."""
    for _ in range(MAX_PIVOTS + 1):
        found = open_pivot(sql)
        if found is None:
            break
        sql = found.closed([["value"]] * len(found.asked))
    return sql


@frozen
class _Lacking:
    """Where a PIVOT lacks values: tokens, each range from one up to, not including, another."""

    place: int
    on: int
    items: tuple[tuple[int, int], ...]
    last: int

    def reads(self, place: int) -> bool:
        """Whether this token stands behind the word and in the query for the values."""
        return any(start <= place < stop for start, stop in ((self.place + 1, self.on), *self.items))

    def asked_in(self, text: StatementText) -> OpenPivot:
        tokens, given = text.tokens, _given(text, self.place)
        source = text.plain[tokens[self.place + 1].start : tokens[self.on].start]
        places = tuple((tokens[start].start, tokens[stop - 1].end + 1) for start, stop in self.items)
        asked = tuple(
            f"{given}select v from (select distinct cast(({text.plain[start:stop]}\n) as varchar) as v "
            f"from {source}\n) where v is not null order by v limit {MAX_VALUES + 1}"
            for start, stop in places
        )
        end = _end_of_group(tokens, self.last)
        return OpenPivot(text.plain, asked, places, tokens[self.place].start, tokens[end - 1].end + 1)


def _read(text: StatementText, place: int) -> _Lacking | None:
    """What lacks values in the PIVOT at a token; None if nothing, or if it is of another form."""
    tokens = text.tokens
    on = _end_of_source(tokens, place + 1)
    if on is None:
        return None
    items, last = _items(tokens, on)
    lacking = tuple((start, stop) for start, stop in items if not _has_values(tokens, start, stop))
    if not lacking:
        return None
    if len(lacking) > MAX_ASKED:
        raise SqlError(
            f"PIVOT without IN over {len(lacking)} expressions cannot be run here, {MAX_ASKED} are the most"
        )
    return _Lacking(place, on, lacking, last)


def _end_of_source(tokens: Sequence[Token], start: int) -> int | None:
    """Which token is the ON behind the relation that begins at a token; None if that is no PIVOT of one relation."""
    depth = 0
    for place in range(start, len(tokens)):
        token = tokens[place]
        depth -= token.token_type in _CLOSING
        if depth < 0 or (depth == 0 and _says(token, _NO_SOURCE)):
            return None
        if depth == 0 and _says(token, ("ON",)):
            return place if place > start else None
        depth += token.token_type in _OPENING
    return None


def _items(tokens: Sequence[Token], on: int) -> tuple[list[tuple[int, int]], int]:
    """The expressions behind ON, from and up to which token; and which token ends them."""
    found, depth, start = [], 0, on + 1
    for place in range(on + 1, len(tokens) + 1):
        token = tokens[place] if place < len(tokens) else None
        closes = token is not None and token.token_type in _CLOSING
        ends = token is None or (depth == 0 and (closes or _says(token, _ENDS_LIST)))
        if ends or (depth == 0 and token is not None and token.token_type == TokenType.COMMA):
            if place > start:
                found.append((start, place))
            start = place + 1
        if ends or token is None:
            return found, place
        depth += (token.token_type in _OPENING) - closes
    return found, len(tokens)


def _has_values(tokens: Sequence[Token], start: int, stop: int) -> bool:
    depth = 0
    for place in range(start, stop):
        token = tokens[place]
        depth -= token.token_type in _CLOSING
        if depth == 0 and _says(token, ("IN",)) and not _says(tokens[place - 1], ("NOT",)):
            return True
        depth += token.token_type in _OPENING
    return False


def _end_of_group(tokens: Sequence[Token], start: int) -> int:
    """Which token closes the brackets that a token stands in, or follows the query; or the number of all."""
    depth = 0
    for place in range(start, len(tokens)):
        depth += (tokens[place].token_type in _OPENING) - (tokens[place].token_type in _CLOSING)
        behind = _says(tokens[place], ("RETURNING", "ON CONFLICT", ";")) or (
            _says(tokens[place], ("ON",)) and place + 1 < len(tokens) and _says(tokens[place + 1], ("CONFLICT",))
        )
        if depth < 0 or (depth == 0 and behind):
            return place
    return len(tokens)


def _given(text: StatementText, pivot: int) -> str:
    """WITH and all that it names where the PIVOT stands, before it."""
    tokens, items, recursive = text.tokens, list[str](), ""
    for start in _enclosing(tokens, pivot):
        verb = start if _says_with(tokens, start) else None
        if verb is None:  # behind INSERT INTO t or CREATE TABLE t AS
            continue
        first = verb + 1
        if _says(tokens[first], ("RECURSIVE",)):
            recursive, first = "recursive ", first + 1
        end = _end_of_with(tokens, verb)
        pieces = list(text.pieces(first - 1, min(pivot, end)))
        items += [text.between(*piece) for piece in (pieces if end <= pivot else pieces[:-1])]
    return f"with {recursive}{', '.join(items)} " if items else ""


def _says_with(tokens: Sequence[Token], place: int) -> bool:
    return place + 1 < len(tokens) and _says(tokens[place], ("WITH",))


def _end_of_with(tokens: Sequence[Token], start: int) -> int:
    """Which token the statement begins with that a WITH stands before."""
    place = verb_place(tokens[start:])
    return start + place if place else len(tokens)


def _enclosing(tokens: Sequence[Token], place: int) -> Iterator[int]:
    """At which tokens the texts begin that hold a place: the whole one, then those in brackets around it."""
    opened = list[int]()
    for number in range(place):
        if tokens[number].token_type in _OPENING:
            opened.append(number + 1)
        elif tokens[number].token_type in _CLOSING and opened:
            opened.pop()
    yield from _beginnings(tokens, 0, (opened or [place])[0])
    yield from opened


def _beginnings(tokens: Sequence[Token], start: int, stop: int) -> Iterator[int]:
    """The whole text, or what begins with WITH behind the first words of a change."""
    yield start
    if _says(tokens[start], ("CREATE", "INSERT")):
        yield from (place for place in range(start + 1, stop) if _says(tokens[place], ("WITH",)))


def _says(token: Token, words: Sequence[str]) -> bool:
    plain = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
    return plain and token.text.upper() in words


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
