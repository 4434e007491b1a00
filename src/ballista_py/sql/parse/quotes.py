"""Where texts, names and comments of a statement begin and end: the one place that tells it from characters; pure.

DuckDB does so twice. Before its parser reads a text it makes plain blanks of the odd ones (`ODD_BLANKS`) that stand
outside of quotes, and that first look knows neither `/* … */` nor `\\'` of an `e'…'`, and loses its way in `$$$$`:
behind a comment with an odd number of quotes it takes what is in quotes for what is not, and writes blanks into values.
So no such text is given to it, or to anybody else who counts quotes: `settled` is what a text is before values come
into it, and `require_settled` stands before the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

from ballista_py.errors import SqlError

ODD_BLANKS = "\u00a0\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff"  # as a class of characters
_ODD = re.compile(f"[{ODD_BLANKS}]")
_INSIDE = rf"(?:[\w$]|(?![{ODD_BLANKS}])[^\x00-\x7f])"  # what a name without quotes goes on with
_DOLLARS = r"\$(?:[^\W\d]\w*+)?\$"
_SIGN = re.compile(rf"""['"]|--|/\*|(?<!{_INSIDE}){_DOLLARS}""")
_NEXT = re.compile(_DOLLARS)  # right behind the end of another
_IS_ESCAPED = re.compile(rf"(?<!{_INSIDE})[eE]\Z")
_TEXT = re.compile(r"'(?:[^']|'')*+'")
_ESCAPED_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*+'", re.DOTALL)
_NAME = re.compile(r'"(?:[^"]|"")*+"')
_COMMENT = re.compile(r"/\*|\*/")
_LINE_END = re.compile(r"[\r\n]|\Z")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_BLANKS = re.compile(rf"[\s{ODD_BLANKS}]*+")
_NO_WORDS = re.compile(r"[^\w \t\r\n.,:]")  # in a comment; letters stay, for those who read them later
_MAY_BE_UNSETTLED = re.compile(rf"--|/\*|\\'|{_DOLLARS}")


@frozen
class Piece:
    """A text, a name or a comment from `start` on and before `stop`.

    `sign` is how it begins: `'`, `e'`, `"`, `$`, `--` or `/*`.
    """

    sign: str
    start: int
    stop: int

    @property
    def is_comment(self) -> bool:
        return self.sign in ("--", "/*")


def pieces_of(sql: str, start: int = 0) -> Iterator[Piece]:
    """What stands in quotes or is a comment, in its order, as the engine tells them; up to one that nothing closes.

    >>> text = "a$b$c 'it''s' /* '/**/ */ e'\\\\'' -- x"
    >>> [text[one.start : one.stop] for one in pieces_of(text)]
    ["'it''s'", "/* '/**/ */", "'\\\\''", '-- x']
    """
    place = start
    while (found := _NEXT.match(sql, place) or _SIGN.search(sql, place)) is not None:
        piece = _piece(sql, found)
        if piece is None:
            return
        yield piece
        place = piece.stop


def _piece(sql: str, found: re.Match[str]) -> Piece | None:
    sign, start, end = found[0], found.start(), found.end()
    if sign == "--":
        line = _LINE_END.search(sql, end)
        return Piece(sign, start, len(sql) if line is None else line.start())
    if sign == "/*":
        stop = _end_of_comment(sql, end)
        return None if stop < 0 else Piece(sign, start, stop)
    if sign[0] == "$":
        close = sql.find(sign, end)
        return None if close < 0 else Piece("$", start, close + len(sign))
    if sign == '"':
        closed = _NAME.match(sql, start)
    elif _IS_ESCAPED.search(sql, max(0, start - 2), start):
        sign, closed = "e'", _ESCAPED_TEXT.match(sql, start)
    else:
        closed = _TEXT.match(sql, start)
    return None if closed is None else Piece(sign, start, closed.end())


def _end_of_comment(sql: str, place: int) -> int:
    depth = 1
    for sign in _COMMENT.finditer(sql, place):
        depth += 1 if sign[0] == "/*" else -1
        if not depth:
            return sign.end()
    return -1


def first_place(sql: str, start: int = 0) -> int:
    """Where the first character is, from `start` on, that is neither blank nor in a comment.

    >>> first_place("/* a /* b */ */ -- c\\n select 1")
    22
    """
    place = _end_of_blanks(sql, start)
    while sql.startswith(("--", "/*"), place):
        found = _SIGN.match(sql, place)
        piece = None if found is None else _piece(sql, found)
        if piece is None:
            return place
        place = _end_of_blanks(sql, piece.stop)
    return place


def _end_of_blanks(sql: str, place: int) -> int:
    found = _BLANKS.match(sql, place)
    return place if found is None else found.end()


def settled(sql: str) -> str:
    """The same statement on the same lines, with quotes that count alike for everybody.

    Of comments only words stay, an escaped quote is a double one, a text in dollars stands in quotes, and odd blanks
    outside of quotes are plain ones; values and names stay what they are. Only a text in dollars with several quotes
    takes more characters than before. From something that nothing closes on the text comes back as it is.

    >>> settled("/* don't */ select e'it\\\\'s', 'it''s' -- it's")
    "/* don t */ select e'it''s', 'it''s' -- it s"
    """
    if sql.isascii() and _MAY_BE_UNSETTLED.search(sql) is None:
        return sql
    made: list[str] = []
    done = 0
    for piece in pieces_of(sql):
        inside = sql[piece.start : piece.stop]
        if piece.is_comment:
            close = "*/" if piece.sign == "/*" else ""
            words = inside[2 : len(inside) - len(close)]
            inside = f"{piece.sign}{_NO_WORDS.sub(' ', words)}{close}"
        elif piece.sign == "e'":
            inside = _ESCAPE.sub(lambda one: "''" if one[1] == "'" else one[0], inside)
        elif piece.sign == "$":
            inside = _in_quotes(inside)
        made += [_ODD.sub(" ", sql[done : piece.start]), inside]
        done = piece.stop
    rest = sql[done:]
    return "".join((*made, rest if _SIGN.search(rest) else _ODD.sub(" ", rest)))


def _in_quotes(inside: str) -> str:
    """A text in dollars as one in quotes, at least as long."""
    width = inside.index("$", 1) + 1
    value = inside[width : len(inside) - width].replace("'", "''")
    return f"'{value}'".ljust(len(inside))


def require_settled(sql: str) -> None:
    """Raise `SqlError` for a text of which the engine might take what is in quotes for what is not, and change it."""
    if not sql.isascii() and _ODD.search(sql) is not None and settled(sql) != sql:
        raise SqlError(
            "the text has blanks of other kinds than the plain one, and quotes in comments, in dollars or behind "
            "backslashes, so that the engine would read it otherwise than it is written: leave out its comments, and "
            "put texts in single quotes"
        )


__all__ = ["ODD_BLANKS", "Piece", "first_place", "pieces_of", "require_settled", "settled"]
