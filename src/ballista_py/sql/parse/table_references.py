"""Where a statement reads tables, told by its words; pure.

The engine knows more syntax than the parser here, and a name that WITH gives stands for no table within its brackets.
So the words are read, one after the other: a place counts if a table is read there, and nothing else can stand there.
A place that is not found is no harm: whoever put something in the place of others meets the name later, and refuses it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Literal

from attrs import define, evolve, frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.sql.parse.table_names import CATALOG, SCHEMA

Form = Literal["item", "whole"]
"""How the name stands there: as an item of FROM, or behind TABLE or SUMMARIZE, as a query of its own."""

_OURS = ((), (SCHEMA,), (CATALOG,), (CATALOG, SCHEMA))
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)
_QUERIES = frozenset(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "SUMMARIZE", "PIVOT", "PIVOT_WIDER", "UNPIVOT"))
_PIVOTS = frozenset(("PIVOT", "PIVOT_WIDER", "UNPIVOT", "PIVOT_LONGER"))
_CHANGED = frozenset(("INTO", "UPDATE", "TRUNCATE", "OVERWRITE"))
_DEFINED = frozenset(("CREATE", "REPLACE", "DROP", "ALTER", "TRUNCATE", "OVERWRITE", "INTO", "TEMP", "TEMPORARY"))
_SETS = frozenset(("UNION", "EXCEPT", "INTERSECT", "MINUS"))
_ENDS_LIST = frozenset((
    "SELECT", "WHERE", "GROUP", "ORDER", "HAVING", "SET", "VALUES", "RETURNING", "LIMIT", "OFFSET", "QUALIFY",
    "WINDOW", "WHEN", "FETCH", *_SETS,
))  # fmt: skip
# What can follow an item of FROM and is no name for it.
_NO_ALIAS = _ENDS_LIST | frozenset((
    "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "ASOF", "POSITIONAL", "SEMI", "ANTI", "OUTER", "ON",
    "USING", "TABLESAMPLE", "FROM", "FOR", "AT", "LATERAL", "BY", "DO", *_PIVOTS,
))  # fmt: skip
_NO_NAMES = _QUERIES | _PIVOTS | frozenset(("LATERAL", "ONLY", "SAMPLE"))


@frozen
class TableReference:
    """A table that a statement reads: its name in lower case, and from which character up to which one it is named.

    With `has_alias` the statement gives it another name there. `given` are the names that WITH gives to queries there.
    """

    name: str
    start: int
    end: int
    form: Form
    has_alias: bool
    given: frozenset[str] = frozenset()


@define
class _Level:
    """What is known of the words of one pair of brackets, as far as they were read."""

    is_query: bool = False
    wants_table: bool = False
    in_list: bool = False  # of FROM or USING, where a comma goes on
    is_pivot: bool = False  # which has columns behind ON and USING
    given: frozenset[str] = frozenset()


def table_references(tokens: Sequence[Token]) -> list[TableReference]:
    """The tables that the statement of these tokens reads, each as often as it does, in their order.

    >>> from ballista_py.sql.parse.parsing import tokenized
    >>> text = "with a as (select * from b) select * from a, (c join d using (e)), range(f) where g in (table h)"
    >>> [found.name for found in table_references(tokenized(text))]
    ['b', 'c', 'd', 'h']
    """
    return list(_Reader(tokens).group(0, len(tokens), _Level(is_query=True)))


def read_names(tokens: Sequence[Token]) -> frozenset[str]:
    """The names of the tables that are read."""
    return frozenset(found.name for found in table_references(tokens))


@frozen
class _Reader:
    tokens: Sequence[Token]

    def group(self, start: int, end: int, level: _Level) -> Iterator[TableReference]:
        """What is read between two tokens, which no bracket is open in or closed."""
        place = start
        while place < end:
            token, word = self.tokens[place], self._word(place)
            if token.token_type in _OPENING:
                close = self._close(place)
                yield from self.group(place + 1, close, self._inner(place, level))
                level.wants_table = False
                place = close + 1
            elif word == "WITH" and level.is_query and (after := self._names_given(place)) is not None:
                yield from self._common_tables(place, after, level)
                place = after
            elif level.wants_table and word not in _NO_NAMES and self._is_name(place):
                place = yield from self._item(place, level)
            else:
                self._step(place, word, level)
                place += 1

    def _step(self, place: int, word: str, level: _Level) -> None:
        """Take in one word outside of brackets."""
        before = self._word(place - 1) if place else ""
        if word in _QUERIES and (level.is_query or level.wants_table):
            level.is_query = True
        if self.tokens[place].token_type == TokenType.COMMA:
            level.wants_table = level.in_list
            return
        if word in ("LATERAL", "ONLY"):
            return
        level.wants_table = False
        if not level.is_query and not level.in_list:
            return
        if word == "FROM":
            level.in_list = level.wants_table = before != "DISTINCT"
        elif word in ("JOIN", "SUMMARIZE") or (word in _PIVOTS and not level.in_list):
            level.wants_table, level.is_pivot = True, level.is_pivot or word in _PIVOTS
        elif word == "TABLE":
            level.wants_table = before not in _DEFINED and not self._defines(place)
        elif word == "USING" and not level.is_pivot:
            follows = self._word(place + 1) if place + 1 < len(self.tokens) else ""
            if follows != "SAMPLE" and not self._lists_columns(place + 1):
                level.wants_table = level.in_list = True
        elif word in _ENDS_LIST or (word == "ON" and level.is_pivot):
            level.in_list = False
            level.is_pivot = level.is_pivot and word not in _SETS

    def _defines(self, place: int) -> bool:
        """Whether TABLE at a place is a word of CREATE, DROP, ALTER, COMMENT ON or TRUNCATE, and no query."""
        first = self._word(0)
        return place < 4 and first in (
            "CREATE",
            "DROP",
            "ALTER",
            "COMMENT",
            "TRUNCATE",
            "DESCRIBE",
            "DESC",
            "SHOW",
        )

    def _lists_columns(self, place: int) -> bool:
        """Whether brackets open at a place that hold no query: the columns of JOIN … USING."""
        if place >= len(self.tokens) or self.tokens[place].token_type != TokenType.L_PAREN:
            return False
        inner = place
        while inner < len(self.tokens) and self.tokens[inner].token_type == TokenType.L_PAREN:
            inner += 1
        return inner >= len(self.tokens) or self._word(inner) not in _QUERIES

    def _inner(self, place: int, level: _Level) -> _Level:
        """With what the words within the brackets that open at a place begin."""
        first = place + 1
        while first < len(self.tokens) and self.tokens[first].token_type == TokenType.L_PAREN:
            first += 1
        is_query = first < len(self.tokens) and self._word(first) in _QUERIES
        joined = level.wants_table and self.tokens[place].token_type == TokenType.L_PAREN
        return _Level(is_query=is_query, wants_table=joined, in_list=joined and not is_query, given=level.given)

    def _item(self, place: int, level: _Level) -> Generator[TableReference, None, int]:
        """The table that is named at a place; gives the place behind it."""
        words, last = self._dotted(place)
        after = last + 1
        behind = self.tokens[after].token_type if after < len(self.tokens) else None
        if behind == TokenType.COLON:  # `alias: table`
            return after + 1
        level.wants_table = False
        is_changed = self._is_changed(place)
        is_call = behind == TokenType.L_PAREN and not is_changed
        name = words[-1]
        shadowed = len(words) == 1 and name in level.given
        if not is_changed and not is_call and not shadowed and words[:-1] in _OURS:
            whole = self._word(place - 1) in ("TABLE", "SUMMARIZE") if place else False
            first = place - 1 if whole and self._word(place - 1) == "TABLE" else place
            form: Form = "whole" if whole else "item"
            has_alias = self._has_alias(place, after)
            yield TableReference(
                name, self.tokens[first].start, self.tokens[last].end + 1, form, has_alias, level.given
            )
        return after

    def _has_alias(self, place: int, after: int) -> bool:
        """Whether a name is given to the item of FROM that ends before a token."""
        if place and self.tokens[place - 1].token_type == TokenType.COLON:
            return True
        if after >= len(self.tokens):
            return False
        token, word = self.tokens[after], self._word(after)
        if token.token_type in _QUOTED or word == "AS":
            return True
        return self._is_name(after) and word not in _NO_ALIAS

    def _is_changed(self, place: int) -> bool:
        """Whether the table at a place is one that the statement changes."""
        if not place:
            return False
        word = self._word(place - 1)
        return word in _CHANGED or (word == "FROM" and place > 1 and self._word(place - 2) == "DELETE")

    def _names_given(self, place: int) -> int | None:
        """Which token follows the names that the WITH at a place gives; None for a WITH that gives none."""
        at = place + 1 + (self._word(place + 1) == "RECURSIVE")
        while True:
            body = self._body(at)
            if body is None:
                return None
            at = self._close(body) + 1
            if at >= len(self.tokens) or self.tokens[at].token_type != TokenType.COMMA:
                return at
            at += 1

    def _body(self, place: int) -> int | None:
        """Where the brackets open that a name at a place is given to, as `name [(columns)] [USING KEY (…)] AS … (`."""
        if place >= len(self.tokens) or not self._is_name(place):
            return None
        at = place + 1
        if self._opens(at):
            at = self._close(at) + 1
        if self._word(at) == "USING" and self._word(at + 1) == "KEY" and self._opens(at + 2):
            at = self._close(at + 2) + 1
        if self._word(at) != "AS":
            return None
        at += 1
        while self._word(at) in ("NOT", "MATERIALIZED"):
            at += 1
        return at if self._opens(at) else None

    def _common_tables(self, place: int, end: int, level: _Level) -> Iterator[TableReference]:
        """What the queries behind WITH read; their names are given from each on, and to itself behind RECURSIVE."""
        recursive = self._word(place + 1) == "RECURSIVE"
        at = place + 1 + recursive
        while at < end:
            body = self._body(at)
            assert body is not None
            name = frozenset((self.tokens[at].text.lower(),))
            inner = self._inner(body, evolve(level, wants_table=False))
            inner.given = level.given | name if recursive else level.given
            yield from self.group(body + 1, self._close(body), inner)
            level.given |= name
            at = self._close(body) + 2

    def _opens(self, place: int) -> bool:
        return place < len(self.tokens) and self.tokens[place].token_type == TokenType.L_PAREN

    def _close(self, place: int) -> int:
        """Which token closes the bracket that opens at a place; the number of all if none does."""
        depth = 0
        for at in range(place, len(self.tokens)):
            kind = self.tokens[at].token_type
            depth += (kind in _OPENING) - (kind in _CLOSING)
            if depth == 0:
                return at
        return len(self.tokens)

    def _word(self, place: int) -> str:
        """The word at a place in capitals, the first one where the parser takes several for one; no name in quotes."""
        if not 0 <= place < len(self.tokens) or self.tokens[place].token_type in _QUOTED:
            return ""
        return (self.tokens[place].text.upper().split() or [""])[0]

    def _is_name(self, place: int) -> bool:
        token = self.tokens[place]
        if token.token_type == TokenType.IDENTIFIER:
            return True
        return token.token_type != TokenType.STRING and token.text.isidentifier()

    def _dotted(self, place: int) -> tuple[tuple[str, ...], int]:
        """The words of the name that begins at a place, and its last token."""
        words = [self.tokens[place].text.lower()]
        while (
            place + 2 < len(self.tokens)
            and self.tokens[place + 1].token_type == TokenType.DOT
            and self._is_name(place + 2)
        ):
            place += 2
            words.append(self.tokens[place].text.lower())
        return tuple(words), place
