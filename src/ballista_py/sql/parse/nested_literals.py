"""Lists, structs and maps as literals of exactly their own type, whatever is in them.

The values are written as they are, and the whole is cast once: an empty list, or a field that is null in it, says
nothing of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.sql.bind.query import Expr
from ballista_py.sql.parse.parsing import ENGINE_DIALECT

MAX_VALUES = 100_000  # of all parameters, wherever they are named: each becomes a literal and then a tree
_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
_NAMES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_null, "INT"),
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_floating, "FLOAT"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_duration, "INTERVAL"),
    (pa.types.is_interval, "INTERVAL"),
    *((test, "TEXT") for test in _TEXTS),
    *((test, "BLOB") for test in _BYTES),
)


def is_nested(kind: pa.DataType) -> bool:
    """Whether values of this type are lists, structs or maps."""
    return is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists, however Arrow keeps them."""
    return any(test(kind) for test in _LISTS)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text."""
    return any(test(kind) for test in _TEXTS)


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type are bytes."""
    return any(test(kind) for test in _BYTES)


def held_by(value: pa.Scalar) -> int:
    """How many values the parameter holds, itself or all that is within it.

    >>> held_by(pa.scalar(7)), held_by(pa.scalar([1, 2, 3]))
    (1, 3)
    """
    if pa.types.is_dictionary(value.type) and value.is_valid:
        value = value.dictionary[value.index.as_py()]
    if not value.is_valid or not is_nested(value.type):
        return 1
    if pa.types.is_struct(value.type):
        return sum((held_by(value[place]) for place in range(value.type.num_fields)), 1)
    return max(1, _count(value.values))


def nested_literal(value: pa.Scalar, literal: Callable[[pa.Scalar], Expr]) -> Expr:
    """The value as a tree; `literal` writes what is no list, struct or map.

    Raises `SqlError` as that does, and for one that holds too many values before any of them is written.
    """
    values = held_by(value)
    if values > MAX_VALUES:
        raise SqlError(
            f"a parameter holds {values:,} values, more than {MAX_VALUES:,}: ingest them into a table and join it"
        )
    return exp.Cast(this=_content(value, literal), to=engine_type(value.type))


def engine_type(kind: pa.DataType) -> exp.DataType:
    """The engine's type for values of an Arrow type. Raises `SqlError` for a type that it has not.

    >>> engine_type(pa.struct([("a b", pa.list_(pa.uint8()))])).sql("duckdb")
    'STRUCT("a b" UTINYINT[])'
    """
    types = pa.types
    if types.is_dictionary(kind):
        return engine_type(kind.value_type)
    if is_list(kind):
        return _of(exp.DataType.Type.ARRAY, engine_type(kind.value_type))
    if types.is_map(kind):
        return _of(exp.DataType.Type.MAP, engine_type(kind.key_type), engine_type(kind.item_type))
    if types.is_struct(kind):
        fields = [
            exp.ColumnDef(this=exp.to_identifier(field.name, quoted=True), kind=engine_type(field.type))
            for field in kind
        ]
        if not fields or len({field.name.lower() for field in kind}) < len(fields):
            raise SqlError(f"a parameter of type {kind} cannot be bound: its fields need names that differ")
        return _of(exp.DataType.Type.STRUCT, *fields)
    return exp.DataType.build(_name(kind), dialect=ENGINE_DIALECT)


def _count(found: pa.Array | None) -> int:
    """How many values an array holds, with all that is within them; in no time that grows with them."""
    if found is None:
        return 0
    kind = found.type
    if is_list(kind):
        return len(found) + _count(found.flatten())
    if pa.types.is_map(kind):
        return len(found) + _count(found.keys) + _count(found.items)
    if pa.types.is_struct(kind):
        return len(found) + sum(_count(found.field(place)) for place in range(kind.num_fields))
    return len(found)


def _content(value: pa.Scalar, literal: Callable[[pa.Scalar], Expr]) -> Expr:
    kind = value.type
    if pa.types.is_integer(kind) and value.is_valid:  # the cast of the whole gives it its type
        number = value.as_py()
        return exp.Literal.number(number) if number >= 0 else exp.Neg(this=exp.Literal.number(-number))
    if not value.is_valid or not is_nested(kind):
        return literal(value)
    if is_list(kind):
        return exp.Array(expressions=[_content(item, literal) for item in value.values])
    if pa.types.is_struct(kind):
        return exp.Struct(
            expressions=[
                exp.PropertyEQ(
                    this=exp.to_identifier(field.name, quoted=True), expression=_content(value[place], literal)
                )
                for place, field in enumerate(kind)
            ]
        )
    entries = value.values
    keys, items = (exp.Array(expressions=[_content(one, literal) for one in entries.field(n)]) for n in (0, 1))
    return exp.Map(keys=keys, values=items)


def _name(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_integer(kind):
        name = _INTEGERS[kind.bit_width]
        return f"U{name}" if types.is_unsigned_integer(kind) else name
    if types.is_decimal(kind):
        return f"DECIMAL({min(38, kind.precision)}, {kind.scale})"
    if types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
    for test, name in _NAMES:
        if test(kind):
            return name
    raise SqlError(f"a parameter of type {kind} cannot be bound")


def _of(kind: Any, *parts: Expr) -> exp.DataType:
    return exp.DataType(this=kind, expressions=list(parts), nested=True)
