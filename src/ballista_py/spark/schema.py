"""Spark's types as Arrow types: those that the Parquet files of a partition hold when anything else reads them.

Promises that a table declared with these types reads the same from Spark, DuckDB and Arrow. A type that Parquet
files do not carry faithfully (intervals, variants, times of day, untyped nulls) is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from ballista_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_PLAIN: dict[str, Callable[[], pa.DataType]] = {
    "boolean": pa.bool_,
    "byte": pa.int8,
    "short": pa.int16,
    "integer": pa.int32,
    "long": pa.int64,
    "float": pa.float32,
    "double": pa.float64,
    "string": pa.string,
    "char": pa.string,
    "varchar": pa.string,
    "binary": pa.binary,
    "date": pa.date32,
    "timestamp": lambda: pa.timestamp("us", "UTC"),
    "timestamp_ntz": lambda: pa.timestamp("us"),
}


def arrow_schema(schema: StructType, required: frozenset[str] = frozenset()) -> pa.Schema:
    """The Arrow schema of rows that Spark describes so. `required` names columns that surely hold no null.

    Spark calls every column of a file nullable, so what a file's own schema promises comes in by `required`.
    Raises `ConfigError` naming a column whose type cannot be kept.
    """
    return pa.schema(
        [
            pa.field(
                field.name, arrow_type(field.dataType, field.name), field.nullable and field.name not in required
            )
            for field in schema.fields
        ]
    )


def arrow_type(kind: DataType, column: str) -> pa.DataType:
    """The Arrow type of values of Spark's `kind`. Raises `ConfigError` naming `column` if there is none."""
    from pyspark.sql import types

    if isinstance(kind, types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, types.ArrayType):
        return pa.list_(arrow_type(kind.elementType, column))
    if isinstance(kind, types.StructType):
        return pa.struct([(field.name, arrow_type(field.dataType, column)) for field in kind.fields])
    if isinstance(kind, types.MapType):
        return pa.map_(arrow_type(kind.keyType, column), arrow_type(kind.valueType, column))
    plain = _PLAIN.get(kind.typeName())
    if plain is None:
        raise ConfigError(
            f"column '{column}' has Spark type {kind.simpleString()}, which tables cannot hold: cast it"
        )
    return plain()
