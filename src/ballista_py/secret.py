"""`Secret`: a text that is used and never shown."""

from __future__ import annotations

from typing import NoReturn


class Secret:
    """A text that neither `repr`, `str`, formatting, logs nor pickling show: all of them say `***`, or refuse.

    Only `reveal` gives the text, so that every place which lets one out can be searched for. Two secrets are never
    equal, because comparing texts by `==` takes a time which tells how much of them is the same.

    >>> f"{Secret('hunter2')} {Secret('hunter2')!r}"
    '*** Secret(***)'
    >>> Secret("hunter2").reveal()
    'hunter2'
    """

    # Not an attrs class: `attrs.asdict` of whatever holds a secret would take it apart.
    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """The text. Whoever calls this takes care of it."""
        return self.__text

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "Secret(***)"

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
