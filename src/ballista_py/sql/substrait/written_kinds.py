"""Which type the engine gives an operation of two types, as far as a plan can say it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.substrait.kinds import UTC, decimal
from ballista_py.sql.substrait.written_pieces import TEXT_TIMES, Term, fits_whole, plain_text

_types = pa.types
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_INT64_DIGITS = 18
_TIMES = (pa.date32(), pa.timestamp("us"), pa.timestamp("us", UTC))


def comparison(left: Term, right: Term) -> pa.DataType:
    """The type in which two values are compared."""
    found = _both(left, right)
    if found is None:
        raise UnsupportedExpression("NULL compared with NULL has no type")
    return found


def common(values: Iterable[Term]) -> pa.DataType:
    """The type of a choice between values."""
    listed = list(values)
    found = listed[0]
    for one in listed[1:]:
        kind = _both(found, one)
        both_whole = found.whole is not None and one.whole is not None
        found = Term(found.message, kind, max(found.whole or 0, one.whole or 0, key=abs) if both_whole else None)
    if found.kind is None:
        raise UnsupportedExpression("a choice between NULLs has no type: cast one")
    return found.kind


def arithmetic(name: str, left: Term, right: Term) -> pa.DataType:
    """The type of a sum, difference, product, quotient of whole numbers, or rest."""
    kinds = [one.kind for one in (left, right) if one.kind is not None]
    if not kinds or any(not is_number(kind) for kind in kinds):
        raise UnsupportedExpression("only numbers are reckoned with")
    kind = _both(left, right)
    assert kind is not None
    if not _types.is_decimal(kind) or len(kinds) < 2:
        return kind
    first, second = (as_decimal(one) for one in kinds)
    if name == "multiply":
        return _capped(first.precision + second.precision, first.scale + second.scale, first, second)
    scale = max(first.scale, second.scale)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    if name in ("add", "subtract"):
        return _capped(whole + scale + 1, scale, first, second)
    return decimal(min(38, whole + scale), scale)


def _capped(digits: int, scale: int, first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """The engine stays in 64 bits where both sides are, and ends in an error where they do not do."""
    narrow = max(first.precision, second.precision) <= _INT64_DIGITS
    most = _INT64_DIGITS if narrow and digits > _INT64_DIGITS and scale < _INT64_DIGITS else 38
    return decimal(min(digits, most), scale)


def _both(left: Term, right: Term) -> pa.DataType | None:
    """The type that holds both; a whole number that the statement writes takes the type of the other, if it fits."""
    first, second = left.kind, right.kind
    if first == second or second is None:
        return first
    if first is None:
        return second
    if _types.is_integer(first) and _types.is_integer(second):
        for literal, other in ((left, second), (right, first)):
            if literal.whole is not None and fits_whole(literal.whole, other):
                return other
        return _wider(first, second)
    if is_number(first) and is_number(second):
        return _mixed(first, second)
    for literal, other in ((left, second), (right, first)):
        if other in TEXT_TIMES and plain_text(literal) is not None:
            return other
    if first in _TIMES and second in _TIMES and pa.timestamp("us", UTC) not in (first, second):
        return pa.timestamp("us")
    raise UnsupportedExpression(f"{first} beside {second} is not said in Substrait: cast one")


def _wider(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    if _types.is_signed_integer(first) != _types.is_signed_integer(second):
        raise UnsupportedExpression(f"{first} beside {second} is not said in Substrait: cast one")
    return first if first.bit_width >= second.bit_width else second


def _mixed(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    floats = [kind for kind in (first, second) if _types.is_floating(kind)]
    if floats:
        return pa.float64() if pa.float64() in floats else pa.float32()
    left, right = as_decimal(first), as_decimal(second)
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
    if digits > 38:
        raise UnsupportedExpression("decimals of more than 38 digits are not said in Substrait: cast them")
    return decimal(digits, scale)


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """The decimal that holds a number which is none."""
    return kind if _types.is_decimal(kind) else decimal(_DIGITS[kind.bit_width], 0)


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is of whole numbers, floats or decimals."""
    return bool(_types.is_integer(kind) or _types.is_floating(kind) or _types.is_decimal(kind))
