"""The types of values, as far as another dialect's text must be read by them.

Integers have a number of bits, decimals a precision and a scale. A `quotient` is what PostgreSQL keeps as an exact
numeric of many digits and the engine as a DOUBLE; size 1 says that nothing was computed with it yet. `parameter` is a
value that comes with the statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import pyarrow as pa
from attrs import frozen

Family: TypeAlias = Literal[
    "int", "decimal", "double", "float", "quotient", "text", "bool", "date", "timestamp", "timestamptz", "bytes",
    "null", "parameter", "unknown",
]  # fmt: skip


@frozen
class ValueType:
    """A family of values and its size: bits of an integer, digits of a decimal, of them `scale` behind the point."""

    family: Family
    size: int = 0
    scale: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether it is an integer or a decimal."""
        return self.family in ("int", "decimal")

    @property
    def is_number(self) -> bool:
        """Whether one can compute with it."""
        return self.family in ("int", "decimal", "double", "float", "quotient")

    @property
    def is_moment(self) -> bool:
        """Whether it is a date or a timestamp."""
        return self.family in ("date", "timestamp", "timestamptz")


TINYINT, SMALLINT, INTEGER, BIGINT = (ValueType("int", bits) for bits in (8, 16, 32, 64))
DOUBLE, FLOAT, TEXT, BOOL = ValueType("double"), ValueType("float"), ValueType("text"), ValueType("bool")
DATE, TIMESTAMP, TIMESTAMPTZ = ValueType("date"), ValueType("timestamp"), ValueType("timestamptz")
BYTES, NULL, PARAMETER, UNKNOWN = (ValueType(name) for name in ("bytes", "null", "parameter", "unknown"))
QUOTIENT, COMPUTED = ValueType("quotient", 1), ValueType("quotient")
_NAMES = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
_OTHERS = {
    "double": "DOUBLE", "quotient": "DOUBLE", "float": "FLOAT", "text": "VARCHAR", "bool": "BOOLEAN", "date": "DATE",
    "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ", "bytes": "BLOB",
}  # fmt: skip
# How many digits an integer has at most.
DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def engine_name(kind: ValueType) -> str:
    """What the type is called in the engine's SQL.

    >>> engine_name(ValueType("decimal", 9, 2)), engine_name(BIGINT)
    ('DECIMAL(9, 2)', 'BIGINT')
    """
    if kind.family == "int":
        return _NAMES[kind.size]
    if kind.family == "decimal":
        return f"DECIMAL({kind.size}, {kind.scale})"
    return _OTHERS[kind.family]


def of_arrow(kind: pa.DataType) -> ValueType:
    """The type of a table's column; `UNKNOWN` for those that other dialects cannot name here."""
    types = pa.types
    if types.is_signed_integer(kind):
        return ValueType("int", kind.bit_width)
    if types.is_decimal(kind):
        return ValueType("decimal", kind.precision, kind.scale)
    if types.is_timestamp(kind):
        return TIMESTAMP if kind.tz is None else TIMESTAMPTZ
    told = (
        (types.is_float64, DOUBLE), (types.is_float32, FLOAT), (types.is_boolean, BOOL), (types.is_date, DATE),
        (types.is_string, TEXT), (types.is_large_string, TEXT), (types.is_string_view, TEXT),
        (types.is_binary, BYTES), (types.is_large_binary, BYTES),
    )  # fmt: skip
    return next((found for is_it, found in told if is_it(kind)), UNKNOWN)


def common(kinds: Iterable[ValueType]) -> ValueType | None:
    """The type that values of all these have together; None where the dialects and the engine could disagree.

    >>> common([INTEGER, BIGINT, NULL]), common([INTEGER, TEXT])
    (ValueType(family='int', size=64, scale=0), None)
    """
    found = [kind for kind in kinds if kind.family != "null"]
    if not found:
        return NULL
    families = {kind.family for kind in found}
    if len(families) == 1:
        if families == {"decimal"}:
            return _decimal(found)
        return None if families & {"unknown"} else max(found, key=lambda kind: kind.size)
    if families == {"int", "decimal"}:
        return _decimal(found)
    if families <= {"int", "decimal", "double", "float"}:
        return DOUBLE
    if families <= {"int", "decimal", "quotient"}:
        return COMPUTED
    if families <= {"date", "timestamp", "timestamptz"}:
        return TIMESTAMPTZ if "timestamptz" in families else TIMESTAMP
    return None


def as_decimal(kind: ValueType) -> ValueType:
    """The decimals that hold an integer type."""
    return kind if kind.family == "decimal" else ValueType("decimal", DIGITS[kind.size], 0)


def _decimal(kinds: Iterable[ValueType]) -> ValueType | None:
    found = [as_decimal(kind) for kind in kinds]
    scale = max(kind.scale for kind in found)
    size = max(kind.size - kind.scale for kind in found) + scale
    return ValueType("decimal", size, scale) if size <= 38 else None
