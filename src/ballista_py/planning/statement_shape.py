"""What statements have in common that differ only in the constants they compare with.

A shape is taken from the text alone, by rules so narrow that no two parsers of SQL can read them differently: text in
which any other lexer might see a comment, an escape or another kind of quote has no shape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import field, frozen

MAX_CHARACTERS = 16_384
MAX_CONSTANTS = 32
INTEGER, LONG, TEXT = "integer", "long", "text"
_MAX_INTEGER = 2**31 - 1
# Dollars quote, backslashes escape, hashes count columns or comment; a semicolon ends a statement.
_PLAIN = re.compile(r"[\t\n\r -!%-:<-\[\]^_a-~\"]*\Z")
_COMMENT = re.compile(r"--|/\*")
# A quoted name or text as a whole, or a constant right behind a comparison, which must not go on in any way.
_PIECE = re.compile(
    r"""(?P<left>(?<=[\w\s)\]"'])(?:=|<>|!=|<=|>=|<|>)\s*)"""
    r"""(?:(?P<number>0|[1-9][0-9]{0,17})(?![\w.'"])|(?P<text>'[^']*')(?!\s*['"(.]))"""
    r"""|'[^']*'|"[^"]*\"|(?P<quote>['"])""",
    re.ASCII,
)


@frozen
class Shape:
    """`key` is equal for statements of one shape; `constants` are what each compares with, as they are written.

    Two statements of one shape have the same tokens but for the values of these constants, whose kind (`INTEGER` up to
    2^31 - 1, `LONG` up to 18 digits, `TEXT`) is the same, too. Each stands right of a comparison.

    >>> one, two = shape_of("select a from t where b = 5"), shape_of("select a from t where b = 123")
    >>> one == two, two.constants, shape_of("select a from t where b = 5.5").constants
    (True, ('123',), ())
    """

    key: str
    constants: tuple[str, ...] = field(eq=False)
    kinds: tuple[str, ...] = field(eq=False)
    _pieces: tuple[str, ...] = field(eq=False, repr=False)

    def filled(self, constants: Sequence[str]) -> str:
        """The statement of this shape with these constants.

        >>> shape_of("select 1 where 2 = 3").filled(["4"])
        'select 1 where 2 = 4'
        """
        return "".join(piece for pair in zip(self._pieces, (*constants, ""), strict=True) for piece in pair)


def shape_of(text: str) -> Shape | None:
    """The shape of a statement; None for one that is long, or in which anything but plain SQL occurs.

    >>> shape_of("select a from t -- where b = 5") is None, shape_of("select 'a = 5' = '' from t").constants
    (True, ("''",))
    """
    if len(text) > MAX_CHARACTERS or _PLAIN.match(text) is None or _COMMENT.search(text) is not None:
        return None
    constants: list[str] = []
    kinds: list[str] = []
    pieces: list[str] = []
    start = place = 0
    while (found := _PIECE.search(text, place)) is not None:
        if found["quote"] is not None:  # one that nothing closes
            return None
        place = found.end()
        constant = found["number"] or found["text"]
        if constant is None:
            continue
        kinds.append(TEXT if found["text"] else INTEGER if int(constant) <= _MAX_INTEGER else LONG)
        constants.append(constant)
        pieces.append(text[start : found.end("left")])
        start = place
    if len(constants) > MAX_CONSTANTS:
        return None
    pieces.append(text[start:])
    key = "".join(f"{piece}\0{kind}\0" for piece, kind in zip(pieces, kinds, strict=False)) + pieces[-1]
    return Shape(key, tuple(constants), tuple(kinds), tuple(pieces))
