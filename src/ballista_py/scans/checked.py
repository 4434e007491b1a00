"""What a message of somebody else has where: taken for what it is and for nothing that it might be made into; pure.

Every function is given the place of the value, as people would name it (`files[3].size`), for the error:
`InvalidData`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from ballista_py.errors import InvalidData
from ballista_py.one_line import one_line

MAX_WHOLE = (1 << 63) - 1
_SHOWN_CHARS = 200

T = TypeVar("T")


def refused(place: str, why: str) -> InvalidData:
    """The error about the value at that place."""
    return InvalidData(f"a scan task cannot be taken: {one_line(f'{place} {why}', _SHOWN_CHARS)}")


def whole(value: Any, place: str, most: int = MAX_WHOLE) -> int:
    """A whole number from 0 to `most`.

    >>> whole(3, "size"), whole(True, "size")
    Traceback (most recent call last):
    ballista_py.errors.InvalidData: a scan task cannot be taken: size is no whole number of at most 9223372036854775807
    """
    if type(value) is not int or not 0 <= value <= most:
        raise refused(place, f"is no whole number of at most {most}")
    return value


def flag(value: Any, place: str) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise refused(place, "is neither true nor false")
    return value


def text(value: Any, place: str, most: int) -> str:
    """A text of at most `most` bytes, which holds no NUL and can be sent."""
    if type(value) is not str or len(value) > most or "\x00" in value:
        raise refused(place, f"is no text of at most {most} bytes without NUL")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise refused(place, "holds what is no Unicode") from None
    if size > most:
        raise refused(place, f"is no text of at most {most} bytes without NUL")
    return value


def one_of(value: Any, place: str, known: Collection[str]) -> Any:
    """One of the words that are known."""
    if type(value) is not str or value not in known:
        raise refused(place, f"is none of {', '.join(known)}")
    return value


def items(value: Any, place: str, most: int) -> list[Any]:
    """A list of at most `most` values."""
    if type(value) is not list or len(value) > most:
        raise refused(place, f"is no list of at most {most} values")
    return value


def fields(value: Any, place: str, names: Collection[str]) -> dict[str, Any]:
    """An object that has exactly these fields."""
    if type(value) is not dict:
        raise refused(place, "is no object")
    wrong = sorted(value.keys() ^ set(names))
    if wrong:
        raise refused(f"{place}.{wrong[0]}", "is missing" if wrong[0] in names else "is not known")
    return value


def maybe(check: Callable[..., T], value: Any, place: str, *bounds: Any) -> T | None:
    """None, or what `check` makes of the value."""
    return None if value is None else check(value, place, *bounds)
