"""Types: those of Substrait, of Arrow and of the engine, of which the same values are held."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.messages import messages

UTC = "UTC"
MONTHS = pa.month_day_nano_interval()
MOST_DIGITS = 38
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_PLAIN = {
    "bool": pa.bool_(), "i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(),
    "fp32": pa.float32(), "fp64": pa.float64(), "string": pa.string(), "varchar": pa.string(),
    "fixed_char": pa.string(), "binary": pa.binary(), "fixed_binary": pa.binary(), "date": pa.date32(),
    "time": pa.time64("us"), "timestamp": pa.timestamp("us"), "timestamp_tz": pa.timestamp("us", UTC),
    "interval_year": MONTHS, "interval_day": MONTHS, "interval_compound": MONTHS,
}  # fmt: skip
# DataFusion writes 1 for what has no sign, and 1 to 3 for texts and bytes that are held in another way.
_UNSIGNED = {"i8": pa.uint8(), "i16": pa.uint16(), "i32": pa.uint32(), "i64": pa.uint64()}
_HELD_OTHERWISE = frozenset(["string", "binary"])
_IN_ENGINE = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.binary(): "BLOB",
    pa.date32(): "DATE", pa.time64("us"): "TIME", MONTHS: "INTERVAL",
    pa.timestamp("s"): "TIMESTAMP_S", pa.timestamp("ms"): "TIMESTAMP_MS", pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("ns"): "TIMESTAMP_NS", pa.timestamp("us", UTC): "TIMESTAMPTZ",
}  # fmt: skip
_SHORT = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float": "fp32", "double": "fp64",
    "string": "string", "binary": "binary", "date32[day]": "date", "month_day_nano_interval": "interval",
}  # fmt: skip


def kind_of(message: Any) -> pa.DataType:
    """The type that a message stands for.

    Raises `UnsupportedExpression` for one without a counterpart here, and `InvalidData` for an impossible one.
    """
    name = message.WhichOneof("kind")
    if name is None:
        raise InvalidData("the plan is malformed: a type says nothing")
    said = getattr(message, name)
    if name == "user_defined_type_reference" or name == "user_defined":
        raise UnsupportedExpression("types of somebody's own are not taken: send a plan with those of Substrait")
    variation = said.type_variation_reference
    if variation:
        return _varied(name, variation)
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "decimal":
        return decimal(said.precision, said.scale)
    if name in ("precision_timestamp", "precision_timestamp_tz", "precision_time"):
        return _precise(name, said.precision)
    if name == "list":
        return pa.list_(kind_of(said.type))
    if name == "struct":
        return pa.struct([(f"f{n}", kind_of(one)) for n, one in enumerate(said.types)])
    raise UnsupportedExpression(f"the type {name} is not taken: cast it to one that is")


def _varied(name: str, variation: int) -> pa.DataType:
    if name in _UNSIGNED and variation == 1:
        return _UNSIGNED[name]
    if name in _HELD_OTHERWISE and variation <= 3:
        return _PLAIN[name]
    raise UnsupportedExpression(f"variation {variation} of the type {name} is not known: send the plain type")


def decimal(precision: int, scale: int) -> pa.DataType:
    """The decimal type. Raises `InvalidData` for one that cannot be."""
    if not (1 <= precision <= MOST_DIGITS and 0 <= scale <= precision):
        raise InvalidData(
            f"the plan is malformed: there is no decimal of {precision} digits, {scale} behind the point"
        )
    return pa.decimal128(precision, scale)


def _precise(name: str, precision: int) -> pa.DataType:
    unit = _UNITS.get(precision)
    if unit == "us":
        return (
            pa.time64("us")
            if name == "precision_time"
            else pa.timestamp("us", UTC if name.endswith("tz") else None)
        )
    if unit is None or name != "precision_timestamp":
        raise UnsupportedExpression(f"{name} with {precision} digits is not taken: cast it to 6 digits")
    return pa.timestamp(unit)


@cache
def in_engine(kind: pa.DataType) -> exp.DataType:
    """The engine's type of the same values; whoever puts it into a tree copies it.

    >>> in_engine(pa.decimal128(10, 2)).sql("duckdb")
    'DECIMAL(10, 2)'
    """
    if pa.types.is_decimal(kind):
        return exp.DataType.build(f"DECIMAL({kind.precision}, {kind.scale})", dialect="duckdb")
    if pa.types.is_list(kind):
        return exp.DataType(
            this=exp.DataType.Type.LIST, expressions=[in_engine(kind.value_type).copy()], nested=True
        )
    if pa.types.is_struct(kind):
        fields = [
            exp.ColumnDef(this=exp.to_identifier(one.name, quoted=True), kind=in_engine(one.type).copy())
            for one in kind
        ]
        return exp.DataType(this=exp.DataType.Type.STRUCT, expressions=fields, nested=True)
    name = _IN_ENGINE.get(kind)
    if name is None:
        raise UnsupportedExpression(f"values of {kind} cannot be made here: read them from the table")
    return exp.DataType.build(name, dialect="duckdb")


def of_column(kind: pa.DataType) -> pa.DataType:
    """The type of a table's column, without how its values are held: dictionaries, views and large texts."""
    if pa.types.is_dictionary(kind):
        return of_column(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", UTC)  # the engine holds no other with a zone
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, of_column(one.type)) for one in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(of_column(kind.value_type))
    return kind


def fits(said: pa.DataType, held: pa.DataType) -> bool:
    """Whether a plan that takes a column for `said` may read one that is `held`; fields of structs go by their place.

    >>> fits(pa.struct([("f0", pa.int64())]), pa.struct([("x", pa.int64())])), fits(pa.int32(), pa.int64())
    (True, False)
    """
    if pa.types.is_struct(said) and pa.types.is_struct(held):
        return said.num_fields == held.num_fields and all(
            fits(said.field(n).type, held.field(n).type) for n in range(said.num_fields)
        )
    if pa.types.is_list(said) and pa.types.is_list(held):
        return fits(said.value_type, held.value_type)
    return bool(said == held)


def shown(kind: pa.DataType) -> str:
    """A type as Substrait calls it, for messages."""
    return _SHORT.get(str(kind), str(kind))


def names_taken(kind: pa.DataType) -> int:
    """How many names a column of this type takes in a list of names: its own and those of all fields within."""
    if pa.types.is_struct(kind):
        return 1 + sum(names_taken(one.type) for one in kind)
    if pa.types.is_list(kind):
        return names_taken(kind.value_type)
    return 1


def message_of(kind: pa.DataType, nullable: bool = True) -> Any:
    """The message of a type. Raises `UnsupportedExpression` for one that Substrait has no name for."""
    made = messages().type.Type()
    names = {
        held: name
        for name, held in reversed(_PLAIN.items())
        if name not in ("varchar", "fixed_char", "fixed_binary")
    }
    bare = {held: name for name, held in _UNSIGNED.items()}
    if pa.types.is_decimal(kind):
        made.decimal.precision, made.decimal.scale = kind.precision, kind.scale
        one = made.decimal
    elif pa.types.is_timestamp(kind):
        one = made.precision_timestamp_tz if kind.tz else made.precision_timestamp
        one.precision = {unit: digits for digits, unit in _UNITS.items()}[kind.unit]
    elif kind in bare:
        one = getattr(made, bare[kind])
        one.type_variation_reference = 1
    elif kind in names and kind != MONTHS:
        one = getattr(made, names[kind])
    else:
        raise UnsupportedExpression(f"values of {kind} cannot be said in Substrait")
    one.nullability = 1 if nullable else 2
    return made
