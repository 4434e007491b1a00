"""`bucket(N, value)`: the hash that decides which partition a row belongs to, for every type and every engine.

It promises that the bucket of a value never changes: not between releases, machines, engines or the Arrow layouts
of one value. It equals Spark's `pmod(xxhash64(canonical), N)`. The forms of the types live in `bucket_arrays`,
the arithmetic in `bucket_hash`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.partitions.bucket_hash import bucket_array, check_bucket_type, is_bytes
from ballista_py.partitions.values import key_type

if TYPE_CHECKING:
    import polars as pl

HASH_NAME = "xxh64-42/1"
MAX_BUCKETS = 1_000_000


def check_num_buckets(num_buckets: object) -> int:
    """`num_buckets` if it is an integer from 1 to 1,000,000; raises `UnsupportedExpression` otherwise."""
    if isinstance(num_buckets, bool) or not isinstance(num_buckets, int | np.integer):
        raise UnsupportedExpression(f"bucket needs an integer literal as its first argument, not {num_buckets!r}")
    if not 1 <= num_buckets <= MAX_BUCKETS:
        raise UnsupportedExpression(f"bucket takes 1 to {MAX_BUCKETS:,} buckets, not {num_buckets:,}")
    return int(num_buckets)


def bucket(num_buckets: int, values: pa.Array | pa.ChunkedArray | pl.Series) -> pa.Int32Array:
    """The bucket of every value, 0 to `num_buckets` - 1, in order; null for null.

    Equal values of the integer types have equal buckets whatever their width, so have equal strings whatever
    their Arrow layout (dictionary, view, large). Memory beyond the result stays below a megabyte for numbers.

    Raises `UnsupportedExpression` for a nested or unknown type or an unusable `num_buckets`, and `SchemaMismatch`
    for an unsigned value of 2^63 or more and a timestamp that microseconds cannot hold.

    >>> bucket(16, pa.array([1, None, 7])).to_pylist()
    [2, None, 1]
    """
    num_buckets = check_num_buckets(num_buckets)
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_arrow()
    check_bucket_type(values.type)
    if isinstance(values, pa.ChunkedArray):
        chunks = [bucket_array(num_buckets, chunk) for chunk in values.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], pa.int32())
    return bucket_array(num_buckets, values)


def bucket_scalar(num_buckets: int, value: Any, arrow_type: pa.DataType) -> int | None:
    """The bucket of one Python value of a column of `arrow_type`; None for None.

    Raises what `bucket` raises, and `SchemaMismatch` if the value is not one of that type.

    >>> bucket_scalar(16, 7, pa.int32()) == bucket_scalar(16, 7, pa.int64())
    True
    """
    try:
        array = pa.array([value], type=arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaMismatch(f"{value!r} is not a value of type {arrow_type}") from error
    found: int | None = bucket(num_buckets, array)[0].as_py()
    return found


@frozen
class BucketUDF:
    """`bucket` with a fixed number of buckets, as each engine wants it.

    >>> BucketUDF(16).spark_sql("id", pa.int32())
    'cast(pmod(if(id is null, null, xxhash64(cast(id as bigint))), 16) as int)'
    """

    num_buckets: int = field(converter=check_num_buckets)

    def __call__(self, values: pa.Array | pa.ChunkedArray | pl.Series) -> pa.Int32Array:
        """As `bucket(num_buckets, values)`."""
        return bucket(self.num_buckets, values)

    def spark_sql(self, column: str, arrow_type: pa.DataType) -> str:
        """Native Spark SQL for the bucket of `column` (SQL text) that holds what Arrow calls `arrow_type`."""
        check_bucket_type(arrow_type)
        if pa.types.is_dictionary(arrow_type):
            arrow_type = arrow_type.value_type
        argument = column
        if pa.types.is_integer(arrow_type):
            argument = f"cast({column} as bigint)"
        elif pa.types.is_floating(arrow_type):
            argument = f"cast({column} as double)"
        elif is_bytes(arrow_type):
            argument = f"cast({column} as binary)"
        return f"cast(pmod(if({column} is null, null, xxhash64({argument})), {self.num_buckets}) as int)"

    def polars(self, expression: pl.Expr, dtype: Any) -> pl.Expr:
        """The bucket of `expression`, a polars expression of type `dtype`, as Int32; it works lazily."""
        import polars as pl

        check_bucket_type(pl.Series([], dtype=dtype).to_arrow().type)

        def buckets(values: pl.Series) -> pl.Series:
            return pl.Series(values.name, pl.from_arrow(bucket(self.num_buckets, values)))

        return expression.map_batches(buckets, return_dtype=pl.Int32(), is_elementwise=True)

    def duckdb_name(self, arrow_type: pa.DataType) -> str:
        """The SQL function under which `duckdb` registers, one per number of buckets and type.

        >>> BucketUDF(16).duckdb_name(pa.decimal128(10, 2))
        'bucket_16_decimal_10_2'
        """
        return f"bucket_{self.num_buckets}_" + re.sub(r"\W+", "_", _duckdb_type(arrow_type).lower()).strip("_")

    def duckdb(self, connection: Any, arrow_type: pa.DataType) -> None:
        """Have the SQL function `duckdb_name(arrow_type)` on a DuckDB `connection`; one that is there is kept."""
        check_bucket_type(arrow_type)
        name = self.duckdb_name(arrow_type)
        known = "select count(*) from duckdb_functions() where function_name = ?"
        if connection.execute(known, [name]).fetchall() != [(0,)]:
            return

        def buckets(values: Any) -> pa.Array | pa.ChunkedArray:
            return self(values)

        connection.create_function(
            name,
            buckets,
            [_duckdb_type(arrow_type)],
            "INTEGER",
            type="arrow",
            null_handling="special",
        )


def _duckdb_type(arrow_type: pa.DataType) -> str:
    of, kind = pa.types, key_type(arrow_type)
    if of.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if of.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
    named = {"bool": "BOOLEAN", "date32[day]": "DATE", "string": "VARCHAR", "binary": "BLOB"}
    named |= {"float": "FLOAT", "double": "DOUBLE", "time64[us]": "TIME", "time64[ns]": "TIME_NS"}
    named |= {
        f"int{bits}": name for bits, name in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INTEGER"), (64, "BIGINT"))
    }
    named |= {f"uint{bits}": f"U{named[f'int{bits}']}" for bits in (8, 16, 32, 64)}
    return named[str(kind)]
