"""How Polars holds DuckDB's types here: decimals as whole numbers of their last place, HUGEINT as 128 bits.

Polars rounds and widens decimals by rules of its own, so it never sees one. Whatever is not in the list is refused
by name, so that no value is held in a form that compares or adds otherwise than DuckDB's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
from attrs import frozen

from ballista_py.errors import SqlError

MAX_NARROW_DIGITS = 18
_UNSCALED = pa.decimal128(38, 0)
_PLAIN: dict[str, pl.DataType] = {
    "BOOLEAN": pl.Boolean(), "TINYINT": pl.Int8(), "SMALLINT": pl.Int16(), "INTEGER": pl.Int32(),
    "BIGINT": pl.Int64(), "UTINYINT": pl.UInt8(), "USMALLINT": pl.UInt16(), "UINTEGER": pl.UInt32(),
    "UBIGINT": pl.UInt64(), "HUGEINT": pl.Int128(), "FLOAT": pl.Float32(), "DOUBLE": pl.Float64(),
    "VARCHAR": pl.String(), "BLOB": pl.Binary(), "DATE": pl.Date(), "TIME": pl.Time(),
    "TIMESTAMP": pl.Datetime("us"), "TIMESTAMP WITH TIME ZONE": pl.Datetime("us", "UTC"),
}  # fmt: skip
INTEGERS = frozenset(name for name, held in _PLAIN.items() if held.is_integer())
FLOATS = frozenset(("FLOAT", "DOUBLE"))


def refused(piece: str) -> SqlError:
    """The error for what this engine does not do exactly as a single DuckDB does."""
    return SqlError(f"the polars engine does not run {piece}; executors with 'engine: duckdb' do")


@frozen
class Kind:
    """A type of DuckDB that this engine holds; `width` and `scale` are those of a decimal."""

    name: str
    width: int = 0
    scale: int = 0

    @classmethod
    def of(cls, written: dict[str, Any]) -> Kind:
        """The kind of a type as plans write it. Raises `SqlError` for one that is not held."""
        name = str(written.get("id"))
        if name == "DECIMAL":
            info = written["type_info"]
            return cls(name, int(info["width"]), int(info.get("scale", 0)))
        if name not in _PLAIN or (name == "VARCHAR" and "type_info" in written):
            raise refused(f"values of type {name}")
        return cls(name)

    @property
    def held(self) -> pl.DataType:
        """The type of the column that holds it."""
        if self.name == "DECIMAL":
            return pl.Int64() if self.width <= MAX_NARROW_DIGITS else pl.Int128()
        return _PLAIN[self.name]

    @property
    def is_integer(self) -> bool:
        """Whether it is a whole number of at most 128 bits."""
        return self.name in INTEGERS

    @property
    def is_float(self) -> bool:
        """Whether it is a binary fraction, whose equality is not the equality of its bits."""
        return self.name in FLOATS

    def __str__(self) -> str:
        return f"DECIMAL({self.width},{self.scale})" if self.name == "DECIMAL" else self.name


def why_not_held(schema: pa.Schema) -> str | None:
    """The first column of `schema` that this engine cannot hold, in words, or None."""
    for field in schema:
        if not _is_held(field.type):
            return f"column '{field.name}' is {field.type}"
    return None


def _is_held(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_decimal128(kind):
        return bool(kind.scale >= 0)
    if types.is_timestamp(kind):
        return bool(kind.unit == "us" and kind.tz in (None, "UTC"))
    return bool(
        types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or (types.is_time64(kind) and kind.unit == "us")
        or (types.is_dictionary(kind) and types.is_string(kind.value_type))
    )


def to_frame(table: pa.Table) -> pl.DataFrame:
    """The rows as this engine holds them. The types must be held (`why_not_held`)."""
    columns = [_to_series(name, column) for name, column in zip(table.column_names, table.columns, strict=True)]
    return pl.DataFrame(columns, height=table.num_rows)


def _to_series(name: str, column: pa.ChunkedArray) -> pl.Series:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if not pa.types.is_decimal(kind):
        return pl.Series(name, column)
    wide = pl.Series(name, _as_type(column, _UNSCALED)).cast(pl.Int128)
    return wide.cast(pl.Int64) if kind.precision <= MAX_NARROW_DIGITS else wide


def to_batch(frame: pl.DataFrame, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of `frame` under the names and types of `schema`, column by column."""
    columns = [_to_array(series, kind) for series, kind in zip(frame.get_columns(), schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _to_array(series: pl.Series, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        # A decimal of 38 digits without a scale is the same 16 bytes as the one that is meant.
        return _one(_as_type(pa.chunked_array([series.cast(pl.Decimal(38, 0)).to_arrow()]), kind))
    return _one(pa.chunked_array([series.to_arrow()])).cast(kind)


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same 16 bytes of every value as a decimal of another form."""
    chunks = [
        pa.Array.from_buffers(kind, len(chunk), chunk.buffers(), chunk.null_count, chunk.offset)
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, kind)


def _one(column: pa.ChunkedArray) -> pa.Array:
    chunks: Sequence[pa.Array] = column.chunks
    return chunks[0] if len(chunks) == 1 else column.combine_chunks()
