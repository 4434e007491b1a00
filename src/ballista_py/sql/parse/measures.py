"""What a text will stand for once it is parsed: its elements, types that are read twice, windows that have a name.

How many elements a text has, counted piece by piece.

The tokenizer is compiled and keeps the interpreter for as long as it reads: a megabyte of the shortest elements takes
it a second, in which the process answers nobody. Read in pieces, others come in between, and one that has too many is
refused before the rest of it is looked at.

How often a text is read: what looks like a type before a bracket is read as a type first, and then again.

`array[array[…]]` or `date(date(…))` doubles at each level, in compiled code that nothing ends: 60 levels kept a thread
of the node for ever. In the place of a type (`x::map(int, struct(a int))`) it is read once.

How much text windows that have a name stand for: the engine's parser puts each in the place of its name.

`select sum(a) over w, sum(b) over w, … from t window w as (…)` is as long as the definition times its uses. It is made
while the text is read, in the node itself, where nothing interrupts it: 9,000 characters took half a minute and 1.4 GB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

from attrs import Factory, define
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from ballista_py.errors import SqlError

__all__ = ["require_few_elements", "require_few_readings", "signs_of"]


PIECE_CHARACTERS = 65_536
_LETTERS = bytes(code for code in range(256) if code >= 128 or chr(code).isalnum() or chr(code) == "_")
_READ_TWICE = 4  # of one piece, at most: some numbers are written as several elements


def signs_of(text: str) -> int:
    """How many characters stand between words, blanks among them; all beyond ASCII count as letters.

    >>> signs_of("a + 'b_1'"), signs_of("größer")
    (5, 0)
    """
    return len(text.encode(errors="replace").translate(None, _LETTERS))


def require_few_elements(sql: str, dialect: Dialect, most: int) -> None:
    """Raise `SqlError` for a text of more than `most` elements, or some more: pieces overlap.

    What follows a command that the parser takes as one text counts by its elements, too.

    >>> require_few_elements("select " + "1," * 200_000 + "1", Dialect.get_or_raise("spark"), 100_000)
    Traceback (most recent call last):
    ballista_py.errors.SqlError: the statement has more than 100,000 elements
    """
    place, size, found, spare = 0, PIECE_CHARACTERS, 0, 0
    if len(sql) <= PIECE_CHARACTERS:
        return
    while place < len(sql):
        is_last = place + size >= len(sql)
        tokens, whole = _tokens(sql[place : place + size], dialect)
        if is_last or not whole:
            complete, next_place = len(tokens), tokens[-1].end + 1 if tokens else 0
        else:  # the last one may go on in the next piece
            complete, next_place = max(0, len(tokens) - 1), tokens[-1].start if tokens else 0
        found += complete
        spare += _READ_TWICE
        if found > most + spare:
            raise SqlError(f"the statement has more than {most:,} elements")
        if is_last:
            return
        place += next_place
        size = PIECE_CHARACTERS if next_place else 2 * size


def _tokens(text: str, dialect: Dialect) -> tuple[list[Token], bool]:
    """The elements of a piece, and whether it was read to its end: its last one may be cut in two."""
    tokenizer = _without_commands(type(dialect))(dialect=dialect)
    try:
        return tokenizer.tokenize(text), True
    except (TokenError, RecursionError):
        return tokenizer.tokens, False


@cache
def _without_commands(dialect: type[Dialect]) -> type[Tokenizer]:
    """The tokenizer of a dialect, to which all that follows a command is made of elements, too."""
    return type("Elements", (dialect.tokenizer_class,), {"COMMANDS": set()})


MAX_READINGS = 500_000  # of elements, some seconds
MAX_LEVELS = 30
_FEW_TOKENS = 16  # in which no level is deep
_AGAIN = 2.5  # times that a level is read, as measured
_OPENS = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE))
_CLOSES = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE))
_BEFORE_TYPES = frozenset((
    TokenType.VAR, TokenType.IDENTIFIER, TokenType.DCOLON, TokenType.ALIAS,
))  # fmt: skip
_NESTED = frozenset((TokenType.MAP, TokenType.STRUCT, TokenType.UNION))
_TYPES = frozenset(Parser.TYPE_TOKENS)


def require_few_readings(tokens: Sequence[Token]) -> None:
    """Raise `SqlError` for types and lists in each other that would be read too often."""
    if len(tokens) < _FEW_TOKENS:
        return
    opened: list[tuple[bool, bool]] = []  # whether it is read again, and whether it holds types
    levels, readings = 0, 0.0
    for place, token in enumerate(tokens):
        kind = token.token_type
        if kind in _OPENS:
            name = tokens[place - 1].token_type if place else None
            before = tokens[place - 2].token_type if place > 1 else None
            is_typed = name in _TYPES
            in_map = name in _NESTED and bool(opened) and opened[-1][1]
            is_type = is_typed and kind == TokenType.L_PAREN and (before in _BEFORE_TYPES or in_map)
            again = is_typed and not is_type
            opened.append((again, is_type and name == TokenType.MAP))
            levels += again
        elif kind in _CLOSES and opened:
            levels -= opened.pop()[0]
        readings += _AGAIN**levels if levels <= MAX_LEVELS else MAX_READINGS
        if readings > MAX_READINGS:
            raise SqlError(
                "calls or lists that begin with the name of a type, such as array[…] or date(…), stand in each other "
                "too deep: write [ ] for lists, or compute the inner ones in a subquery"
            )


MAX_WRITTEN_WINDOWS = 20_000  # elements beyond those of the text
_SETS = frozenset((TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT))


@define
class _Level:
    """What stands between two parentheses so far, or outside of all: one SELECT and its windows, or a part of one."""

    elements: int = 0
    is_select: bool = False
    has_windows: bool = False
    defines: str = ""  # the window whose definition it is
    uses: Counter[str] = Factory(Counter)
    windows: dict[str, int] = Factory(dict)

    def written(self) -> int:
        """The elements that its windows become where they are used, beyond one time each."""
        return sum(size * max(0, self.uses[name] - 1) for name, size in self.windows.items())

    def next_select(self) -> None:
        """Forget the windows of a SELECT after which another one comes."""
        self.elements += self.written()
        self.has_windows = False
        self.uses, self.windows = Counter(), {}


def require_few_windows(tokens: Sequence[Token]) -> None:
    """Raise `SqlError` where windows that have a name become too many elements where they are used."""
    if not any(token.token_type == TokenType.WINDOW for token in tokens):
        return
    levels = [_Level()]
    for place, token in enumerate(tokens):
        kind, here = token.token_type, levels[-1]
        here.elements += 1
        if kind == TokenType.L_PAREN:
            levels.append(_opened(tokens, place, here))
        elif kind == TokenType.R_PAREN and len(levels) > 1:
            _close(levels.pop(), levels[-1])
        elif kind == TokenType.SELECT:
            here.is_select = True
        elif kind == TokenType.WINDOW:
            here.has_windows = True
        elif kind in _SETS:
            here.next_select()
        elif kind == TokenType.OVER and place + 1 < len(tokens):
            here.uses[tokens[place + 1].text.lower()] += 1
    while len(levels) > 1:
        _close(levels.pop(), levels[-1])
    levels[0].next_select()
    if levels[0].elements > len(tokens) + MAX_WRITTEN_WINDOWS:
        raise SqlError(
            f"windows that have a name stand for more than {MAX_WRITTEN_WINDOWS:,} elements where they are used: "
            "compute what they are made of in a subquery, or use them less often"
        )


def _opened(tokens: Sequence[Token], place: int, around: _Level) -> _Level:
    level = _Level()
    defines = around.has_windows and place >= 2 and tokens[place - 1].token_type == TokenType.ALIAS
    if defines:  # WINDOW name AS (
        level.defines = tokens[place - 2].text.lower()
    if (defines or tokens[place - 1].token_type == TokenType.OVER) and place + 1 < len(tokens):
        base = tokens[place + 1].text.lower()  # the window that it extends, if there is one of that name
        if defines:
            level.elements += around.windows.get(base, 0)
        else:
            around.uses[base] += 1
    return level


def _close(level: _Level, around: _Level) -> None:
    size = level.elements + level.written()
    around.elements += size
    if level.defines:
        around.windows[level.defines] = around.windows.get(level.defines, 0) + size
    if not level.is_select:  # a part of the SELECT around it
        around.uses.update(level.uses)
