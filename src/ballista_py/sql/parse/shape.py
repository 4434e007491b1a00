"""What statements have in common that differ only in the constants they compare with.

A shape is taken from the text alone, by rules so narrow that no two parsers of SQL can read them differently: text in
which any other lexer might see a comment, an escape or another kind of quote has no shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import field, frozen

MAX_CHARACTERS = 16_384
MAX_CONSTANTS = 64
INTEGER, LONG, TEXT = "integer", "long", "text"
_MAX_INTEGER = 2**31 - 1
# Dollars quote, backslashes escape, hashes count columns or comment; a semicolon ends a statement.
_PLAIN = re.compile(r"[\t\n\r -!%-:<-\[\]^_a-~\"]*\Z")
_COMMENT = re.compile(r"--|/\*")
_CONSTANT = r"""(?:(?P<number>0|[1-9][0-9]{0,17})(?![\w.'"])|(?P<text>'[^']*')(?!\s*['"(.]))"""
# A quoted name or text as a whole, or a constant right behind a comparison, which must not go on in any way.
_PIECE = re.compile(
    r"""(?P<left>(?:(?<=[\w\s)\]"'])(?:=|<>|!=|<=|>=|<|>)|(?<![\w.])(?P<word>in\s*\(|between\b|limit\b))\s*)"""
    rf"""{_CONSTANT}|'[^']*'|"[^"]*\"|(?P<quote>['"])""",
    re.ASCII | re.IGNORECASE,
)
# What stands between a constant and the next one, by the word that began: IN goes on, BETWEEN once.
_GOES_ON = {
    "i": re.compile(rf"(?P<left>\s*,\s*){_CONSTANT}", re.ASCII),
    "b": re.compile(rf"(?P<left>\s+and\s+){_CONSTANT}", re.ASCII | re.IGNORECASE),
}
_WORD = re.compile(r"\b(?:in|between|limit)\b", re.IGNORECASE)
_PERCENT = re.compile(r"\s*(?:%|percent)", re.IGNORECASE)
_PIVOT = re.compile("pivot", re.IGNORECASE)  # the values of its IN are names of columns


@frozen
class Shape:
    """`key` is equal for statements of one shape; `constants` are what each compares with, as they are written.

    Two statements of one shape have the same tokens but for the values of these constants, whose kind (`INTEGER` up to
    2^31 - 1, `LONG` up to 18 digits, `TEXT`) is the same, too. Each stands right of a comparison, in the list of an IN,
    behind BETWEEN or behind LIMIT.

    >>> one, two = shape_of("select a from t where b = 5"), shape_of("select a from t where b = 123")
    >>> one == two, two.constants, shape_of("select a from t where b = 5.5").constants
    (True, ('123',), ())
    >>> shape_of("select a from t where b in (1, 'x') and c between 2 and 3 limit 4").constants
    ('1', "'x'", '2', '3', '4')
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


def shapes_of(text: str) -> Iterator[Shape]:
    """The shapes of a statement with constants, the one with most of them first, then that of comparisons alone.

    Where a constant behind LIMIT or in a list is in nobody's way, more statements share the first.

    >>> [shape.constants for shape in shapes_of("select a from t where b = 5 limit 7")]
    [('5', '7'), ('5',)]
    """
    first = shape_of(text)
    if first is not None and first.constants:
        yield first
    fewer = shape_of(text, words=False) if _WORD.search(text) is not None else None
    if fewer is not None and fewer.constants and fewer != first:
        yield fewer


def shape_of(text: str, *, words: bool = True) -> Shape | None:
    """The shape of a statement; None for one that is long, or in which anything but plain SQL occurs.

    Without `words` only the constants of comparisons may differ.

    >>> shape_of("select a from t -- where b = 5") is None, shape_of("select 'a = 5' = '' from t").constants
    (True, ("''",))
    """
    if len(text) > MAX_CHARACTERS or _PLAIN.match(text) is None or _COMMENT.search(text) is not None:
        return None
    constants: list[str] = []
    kinds: list[str] = []
    pieces: list[str] = []
    start = place = 0
    goes_on: re.Pattern[str] | None = None
    pivots = _PIVOT.search(text) is not None
    while (found := (goes_on and goes_on.match(text, place)) or _PIECE.search(text, place)) is not None:
        follows, word = found.re is goes_on, (found.groupdict().get("word") or "").lower()
        if not follows and found["quote"] is not None:  # one that nothing closes
            return None
        place = found.end()
        constant = found["number"] or found["text"]
        if constant is None or (
            word and (not words or pivots or (word == "limit" and _PERCENT.match(text, place)))
        ):
            goes_on = None
            continue
        if not follows:
            goes_on = _GOES_ON.get(word[:1])
        elif goes_on is _GOES_ON["b"]:
            goes_on = None
        kinds.append(TEXT if found["text"] else INTEGER if int(constant) <= _MAX_INTEGER else LONG)
        constants.append(constant)
        pieces.append(text[start : found.end("left")])
        start = place
    if len(constants) > MAX_CONSTANTS:
        return None
    pieces.append(text[start:])
    key = "".join(f"{piece}\0{kind}\0" for piece, kind in zip(pieces, kinds, strict=False)) + pieces[-1]
    return Shape(key, tuple(constants), tuple(kinds), tuple(pieces))
