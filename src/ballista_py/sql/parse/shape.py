"""What statements have in common that differ only in the constants they compare with.

A shape is taken from the text alone, by rules so narrow that no two parsers of SQL can read them differently: text in
which any other lexer might see a comment, an escape or another kind of quote has no shape.

Parameters apart from what stands behind them.

The tokenizer takes `$1,$` in `$1,$2` for the beginning of a quoted text, and `?::` for one word.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from attrs import field, frozen
from sqlglot.tokenizer_core import Token

from ballista_py.errors import SqlError
from ballista_py.sql.parse.quotes import pieces_of

__all__ = ["marked_apart", "tokens_apart"]


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
