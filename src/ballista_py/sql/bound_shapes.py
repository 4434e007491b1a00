"""Changes that were found to bind, by their shape: what the next one of that shape need not be asked again."""

from __future__ import annotations

import re

import pyarrow as pa
from attrs import Factory, define

from ballista_py.remembered import Remembered
from ballista_py.sql.parse.shape import shape_of

MAX_REMEMBERED = 512
MAX_REMEMBERED_BYTES = 8 << 20
LEAST_BYTES = 2_048
# Constants between two of these go into the same types of integers; with as many digits, into the same decimals.
_LIMITS = (127, 255, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1)


# A text or a name in quotes as a whole, or a number that is no part of something else.
_NUMBER = re.compile(r"""'[^']*'|"[^"]*"|(?<![\w.])(?P<number>\d{1,18})(?![\w.])""", re.ASCII)


@define
class BoundShapes:
    """Safe to share between threads. The last few hundred are remembered.

    >>> schema = pa.schema([("v", pa.int8())])
    >>> known = BoundShapes()
    >>> known.add("update t set v = 1 where v = 7", schema)
    >>> [known.knows(f"update t set v = {v} where v = 9", schema) for v in (2, 300)]
    [True, False]
    """

    _known: Remembered[bool] = Factory(lambda: Remembered(MAX_REMEMBERED, MAX_REMEMBERED_BYTES))

    def add(self, text: str, schema: pa.Schema) -> None:
        """Remember that the text binds over a table of this schema."""
        self._known.put(_key(text, schema), True, LEAST_BYTES + 8 * len(text))

    def knows(self, text: str, schema: pa.Schema) -> bool:
        """Whether one was added that differs only in values of constants, which go into the same types."""
        return self._known.get(_key(text, schema)) is not None


def _key(text: str, schema: pa.Schema) -> tuple[object, ...]:
    """The text and the schema, with a class in place of every whole number in plain SQL."""
    if shape_of(text) is None:
        return text, schema
    classes: list[tuple[int, int]] = []

    def classed(found: re.Match[str]) -> str:
        if found["number"] is None:
            return found[0]
        classes.append(_class_of(found["number"]))
        return "\0"

    return _NUMBER.sub(classed, text), schema, *classes


def _class_of(constant: str) -> tuple[int, int]:
    number = int(constant)
    return len(constant), next((place for place, limit in enumerate(_LIMITS) if number <= limit), len(_LIMITS))
