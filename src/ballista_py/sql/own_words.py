"""What an error says of a text that the user did not write is taken out of it before he is told.

Statements reach engines rewritten: as legs and merges, with literals for parameters, from another dialect. Promises
that a place (line and column) is told only if it is one of the text that was sent, and that no column or expression is
told that stands only in the rewritten text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from typing import TypeVar

from ballista_py.errors import BallistaError, SqlError
from ballista_py.sql.parse.edits import Edit, place_before
from ballista_py.sql.parse.quotes import settled
from ballista_py.work import writing

_POSITION = re.compile(r" \(line \d+, column \d+\)")
_PIECE = re.compile(r" when casting from source column (?P<column>.+)$| in expression \((?P<expression>.*)\)")

_NEAR = re.compile(r'near "(?P<word>.*)"')
CATALOG = "ballista"  # what every database is called by those who ask
MOST_COMPARED = 2_000  # names of tables, with one that there is not
NO_ROW_ID = "rowid cannot be used here: rows have no numbers, name them by their key"

AnyError = TypeVar("AnyError", bound=BallistaError)
Raised = TypeVar("Raised", bound=BaseException)


def meant(name: str, known: Iterable[str]) -> str:
    """What to add to an error about a name that there is not: the one that it is most like, if it is like any.

    >>> meant("evv", ["ev", "orders"]), meant("x", ["orders"])
    (": did you mean 'ev'?", '')
    """
    likely = [one for one in islice(known, MOST_COMPARED) if abs(len(one) - len(name)) <= len(name) // 2]
    found = get_close_matches(name.lower(), likely, 1)
    return f": did you mean '{found[0]}'?" if found and found[0] != name else ""


def without_position(error: AnyError) -> AnyError:
    """The same error without line and column: they are those of a text that the user did not write."""
    details = {key: value for key, value in error.details.items() if key not in ("line", "column")}
    return type(error)(_POSITION.sub("", error.message), **details)


def in_own_words(error: Raised, wrote: str) -> Raised:
    """The error of something that was made of `wrote`, as it may be said to its author; others as they are.

    >>> print(in_own_words(SqlError("No such date when casting from source column c0 (line 1, column 8)"), "select"))
    No such date
    """
    if not isinstance(error, SqlError):
        return error

    def kept(piece: re.Match[str]) -> str:
        said = re.escape(_squeezed(piece["column"] or piece["expression"]))
        return piece[0] if re.search(rf"(?<!\w){said}(?!\w)", _squeezed(wrote)) else ""

    told = without_position(error)
    return type(told)(_PIECE.sub(kept, told.message), **told.details)


def _squeezed(text: str) -> str:
    """Without case, and without blanks but between words."""
    return re.sub(r"(?<=\W)\s+|\s+(?=\W)", "", text.lower())


@contextmanager
def edited_places(text: str, edits: Sequence[Edit]) -> Iterator[None]:
    """Errors of what is done with the edited text tell the place in the text before, and no piece that it has not."""
    try:
        yield
    except SqlError as error:
        line, column = error.details.get("line"), error.details.get("column")
        told = in_own_words(error, text) if edits else error
        place = place_before(text, edits, int(line), int(column)) if edits and line and column else None
        if place is not None:
            line, column = place
            said = f"{told.message} (line {line}, column {column})"
            raise type(told)(said, **{**told.details, "line": line, "column": column}) from None
        raise told from None


@contextmanager
def own_places(wrote: object, text: str) -> Iterator[None]:
    """Errors of what is done with `text` lose their place in it, unless all stands there where the user wrote it."""
    try:
        yield
    except SqlError as error:
        own = text == wrote or (len(text) == len(str(wrote)) and text == settled(str(wrote)))
        raise error if own else _without_foreign_word(without_position(error), str(wrote)) from None


@contextmanager
def run_for(wrote: object, text: str) -> Iterator[None]:
    """Around the start of `text` for a user who `wrote` something else: as `own_places`, and `written` gives that.

    It is entered and left on one thread, so no generator may hold it.
    """
    with writing(str(wrote)), own_places(wrote, text):
        yield


def _without_foreign_word(error: SqlError, wrote: str) -> SqlError:
    """Where a syntax error is said to be near a literal that stands for a parameter, it is near that parameter.

    >>> print(_without_foreign_word(SqlError('syntax error at or near "NULL"'), "select * from ?"))
    syntax error at or near a parameter, which stands for a value and for nothing else
    """

    def told(near: re.Match[str]) -> str:
        own = near["word"].lower() in wrote.lower() or not re.search(r"[?$]", wrote)
        return near[0] if own else "near a parameter, which stands for a value and for nothing else"

    return type(error)(_NEAR.sub(told, error.message), **error.details)
