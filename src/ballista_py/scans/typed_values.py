"""Single Arrow values of flat types: compared exactly, and as JSON that reads back to the same value; pure.

Arrow's own comparison takes NaN for another NaN's stranger and 0.0 for -0.0; here two values are the same exactly if
they have one type and one bit pattern; all NaN are one. As JSON a value is a number, a text or a boolean, as its type
has it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types

from ballista_py.errors import InvalidData

MAX_VALUE_BYTES = 64 << 10


def key_of(value: pa.Scalar) -> tuple[str, Any]:
    """What two values have in common exactly if they are the same.

    >>> key_of(pa.scalar(float("nan"))) == key_of(pa.scalar(float("nan")))
    True
    >>> key_of(pa.scalar(0.0)) == key_of(pa.scalar(-0.0))
    False
    """
    return str(value.type), to_plain(value)


def to_plain(value: pa.Scalar) -> Any:
    """The value as JSON has it; None for null. Raises `InvalidData` for a value of a type that is not flat.

    >>> to_plain(pa.scalar(1.5)), to_plain(pa.scalar(b"ab")), to_plain(pa.scalar(Decimal("1.50")))
    ('0x1.8000000000000p+0', 'YWI=', '1.50')
    """
    kind = value.type
    if not is_flat(kind):
        raise InvalidData(f"a value of the type {kind} cannot be in a scan task")
    if not value.is_valid:
        return None
    if _is_counted(kind):
        return int(value.value)
    if types.is_floating(kind):
        return float(value.as_py()).hex()
    found = value.as_py()
    if isinstance(found, bytes):
        return b64encode(found).decode()
    return str(found) if isinstance(found, Decimal) else found


def from_plain(plain: Any, kind: pa.DataType) -> pa.Scalar:
    """The value of that type which `to_plain` gave. Raises `InvalidData` for anything that it would not give.

    >>> from_plain("0x1.8000000000000p+0", pa.float64())
    <pyarrow.DoubleScalar: 1.5>
    """
    try:
        made = _made(plain, kind)
        if to_plain(made) == plain and type(to_plain(made)) is type(plain):
            return made
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
        pass
    raise InvalidData(f"a value of a scan task is none of the type {kind}")


def is_flat(kind: pa.DataType) -> bool:
    """Whether single values of the type can be told: numbers, booleans, texts, bytes, dates and times."""
    return bool(
        types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        or types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind) or types.is_string(kind)
        or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )  # fmt: skip


def _is_counted(kind: pa.DataType) -> bool:
    """Dates and times: whole numbers of days or other units, which Python's own types may not reach."""
    return bool(types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind))


def _made(plain: Any, kind: pa.DataType) -> pa.Scalar:
    if not is_flat(kind) or (isinstance(plain, str) and len(plain) > 2 * MAX_VALUE_BYTES):
        raise ValueError
    if plain is None:
        return pa.scalar(None, kind)
    if _is_counted(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array([plain], whole).view(kind)[0]
    if types.is_floating(kind):
        return pa.scalar(float.fromhex(plain), pa.float64()).cast(kind)
    if types.is_decimal(kind):
        return pa.scalar(Decimal(plain), kind)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind):
        return pa.scalar(plain, kind)
    return pa.scalar(b64decode(plain, validate=True), kind)
