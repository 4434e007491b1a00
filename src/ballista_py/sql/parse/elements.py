"""How many elements a text has, counted piece by piece.

The tokenizer is compiled and keeps the interpreter for as long as it reads: a megabyte of the shortest elements takes
it a second, in which the process answers nobody. Read in pieces, others come in between, and one that has too many is
refused before the rest of it is looked at.
"""

from __future__ import annotations

from functools import cache

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token
from sqlglot.tokens import Tokenizer

from ballista_py.errors import SqlError

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


__all__ = ["require_few_elements", "signs_of"]
