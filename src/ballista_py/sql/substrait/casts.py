"""Casts: those for which everybody means the same value, and what happens to one that does not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.calls import BOOL, Value, cast
from ballista_py.sql.substrait.kinds import in_engine, kind_of, shown

_types = pa.types
_NULL, _THROW = 1, 2
_DATE, _TIME = pa.date32(), pa.timestamp("us")
_UNITS = ("s", "ms", "us", "ns")
_FROM_TEXT = (pa.float32(), pa.float64(), _DATE, _TIME, BOOL)


def cast_value(value: Value, to: Any, failure: int) -> Value:
    """The value as another type: NULL or an error where it does not fit, as the plan says; an error if it says nothing.

    Raises `UnsupportedExpression` for a cast that others do in another way.
    """
    if failure not in (0, _NULL, _THROW):
        raise InvalidData("the plan is malformed: a cast that fails gives NULL or an error")
    kind = kind_of(to)
    if kind == value.kind:
        return value
    if not _is_plain(value.kind, kind):
        raise UnsupportedExpression(
            f"a cast from {shown(value.kind)} to {shown(kind)} is not taken, because it is done in several ways"
        )
    if _bounded(to):
        raise UnsupportedExpression(
            "a cast to a text or binary of a given length is not taken: cast it to the plain type"
        )
    if failure == _NULL:
        return Value(exp.TryCast(this=value.tree, to=in_engine(kind).copy()), kind)
    return Value(cast(value.tree, kind), kind)


def _is_local(kind: pa.DataType) -> bool:
    return bool(_types.is_timestamp(kind) and kind.tz is None)


def writes_alike(of: pa.DataType, to: pa.DataType, written: bool) -> bool:
    """Whether DataFusion casts as the engine does; `written` says that it is a literal, whose text is a plain one."""
    if of == pa.string():
        return written and to in (_DATE, _TIME)
    if _types.is_floating(of):
        return bool(to == pa.float64())
    if _types.is_decimal(of) and _types.is_decimal(to):
        return bool(to.scale >= of.scale)
    return _is_plain(of, to) and to not in (pa.float32(), BOOL)


def _bounded(to: Any) -> bool:
    return to.WhichOneof("kind") in ("varchar", "fixed_char", "fixed_binary")


def _is_plain(of: pa.DataType, to: pa.DataType) -> bool:
    if _types.is_integer(of):
        return bool(
            _types.is_integer(to) or _types.is_floating(to) or _types.is_decimal(to) or to in (pa.string(), BOOL)
        )
    if _types.is_floating(of):
        return bool(_types.is_floating(to) or _types.is_decimal(to))
    if _types.is_decimal(of):
        whole = _types.is_integer(to) and of.scale == 0
        return bool(_types.is_floating(to) or _types.is_decimal(to) or to == pa.string() or whole)
    if of == BOOL:
        return bool(_types.is_integer(to) or to == pa.string())
    if of == _DATE:
        return _is_local(to) or to == pa.string()
    if _is_local(of):
        return bool(to == _DATE or (_is_local(to) and _UNITS.index(to.unit) > _UNITS.index(of.unit)))
    if of == pa.string():
        return to in _FROM_TEXT
    return False
