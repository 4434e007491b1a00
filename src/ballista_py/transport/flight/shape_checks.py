"""What JSON of a peer may look like: checks of values, and of objects that are made of them.

A check raises `Misshapen`, naming the place, for a value that is not what the code behind it takes it for.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

from ballista_py.errors import InvalidData

MAX_NAME_CHARS = 1_024  # of whatever a client calls something: tables, tokens, dialects, options
MAX_KEPT_TOKEN_CHARS = 2_048  # as long as a client's can be, with what is added to it
MAX_TEXT_CHARS = 64 << 20  # of SQL and of what is coded as text; statements are measured by themselves
MAX_NUMBER = (1 << 63) - 1

Check: TypeAlias = Callable[[Any, str], None]


class Misshapen(Exception):
    """The value at `place` is not what it must be."""

    def __init__(self, place: str, wanted: str) -> None:
        super().__init__(f"'{place}' must be {wanted}")


@contextmanager
def said_of(what: str) -> Iterator[None]:
    """Let a misshapen value in the block be an `InvalidData` that says `what` it is in."""
    try:
        yield
    except Misshapen as error:
        raise InvalidData(f"{what}: {error}") from None


def refuse(place: str, wanted: str) -> NoReturn:
    raise Misshapen(place, wanted)


def anything(_value: Any, _place: str) -> None:
    return None


def base64(value: Any, place: str) -> None:
    text(value, place)
    try:
        b64decode(value, validate=True)
    except ValueError:
        refuse(place, "bytes in base64")


def text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        refuse(place, "a text")
    if len(value) > MAX_TEXT_CHARS:
        refuse(place, f"shorter than {MAX_TEXT_CHARS >> 20} MiB")


def shorter(most_chars: int) -> Check:
    """A text of at most so many characters."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or len(value) > most_chars:
            refuse(place, f"a text of at most {most_chars:,} characters")

    return check


kept_token = shorter(MAX_KEPT_TOKEN_CHARS)
name = shorter(MAX_NAME_CHARS)


def token(value: Any, place: str) -> None:
    """Of a statement: an empty one would stand for every statement of somebody who forgot it, or for none."""
    name(value, place)
    if not value:
        refuse(place, "a text of one character or more: leave it out to have one made")


def path(value: Any, place: str) -> None:
    name(value, place)
    if not value.strip(".") or not all(c.isalnum() or c in "-_@." for c in value) or ".." in value:
        refuse(place, "a name without signs")


def flag(value: Any, place: str) -> None:
    if not isinstance(value, bool):
        refuse(place, "true or false")


def count(value: Any, place: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NUMBER:
        refuse(place, "a whole number, 0 or more")


def number(value: Any, place: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
        refuse(place, "a number")


def digits(value: str, place: str) -> None:
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(MAX_NUMBER))):
        refuse(place, "named by numbers")


def maybe(check: Check) -> Check:
    return lambda value, place: None if value is None else check(value, place)


def one_of(choices: Collection[str]) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or value not in choices:
            refuse(place, f"one of {', '.join(choices)}")

    return check


def one_type_of(of_text: Check, of_object: Check) -> Check:
    """A text or an object."""
    return lambda value, place: (of_text if isinstance(value, str) else of_object)(value, place)


def list_of(item: Check) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, list | tuple):
            refuse(place, "a list")
        for one in value:
            item(one, place)

    return check


def mapping_of(item: Check, name: Check = name) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            refuse(place, "an object")
        for key, one in value.items():
            name(key, place)
            item(one, place)

    return check


def fields(
    required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, others: bool = True
) -> Check:
    """An object with these fields; the optional ones may be missing, and null only where `maybe` says so."""
    known = {**required, **(optional or {})}

    def check(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            refuse(place or "it", "an object")
        for name, one in known.items():
            where = f"{place}.{name}" if place else name
            if name in value:
                one(value[name], where)
            elif name in required:
                refuse(where, "there")
        if not others and not known.keys() >= value.keys():
            refuse(place, f"an object of {', '.join(known)}")

    return check
