"""`Secret`: a text that is used and never shown."""

from __future__ import annotations

from typing import Any, NoReturn

from attrs import field, frozen

_SHOWN = "***"


@frozen(repr=False, eq=False)
class Secret:
    """A text that neither `repr`, `str`, formatting, logs nor pickling show: all of them say `***`, or refuse.

    Only `reveal` gives the text, so that every place which lets one out can be searched for. Two secrets are never
    compared by `==`, because that takes a time which tells how much of them is equal: see `transport.tokens`.

    >>> f"{Secret('hunter2')} {Secret('hunter2')!r}"
    '*** Secret(***)'
    >>> Secret("hunter2").reveal()
    'hunter2'
    """

    _text: str = field()

    def reveal(self) -> str:
        """The text. Whoever calls this takes care of it."""
        return self._text

    def __str__(self) -> str:
        return _SHOWN

    def __repr__(self) -> str:
        return f"Secret({_SHOWN})"

    def __format__(self, spec: str) -> str:
        return format(_SHOWN, spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")

    def __getstate__(self) -> Any:
        raise TypeError("a secret is not pickled")
