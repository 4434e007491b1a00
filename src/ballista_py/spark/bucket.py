"""`bucket` inside Spark: as a native column, and as a function of Spark SQL.

Both give what `ballista_py.partitions.bucket` gives, null for null. The native column is several times faster,
because no row leaves the JVM; the SQL function is for queries that are written by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ballista_py.errors import UnsupportedExpression
from ballista_py.partitions.bucket import BucketUDF
from ballista_py.partitions.bucket import bucket as bucket_of
from ballista_py.partitions.expression.nodes import quote_name
from ballista_py.spark.schema import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def bucket(df: DataFrame, num_buckets: int, column: str) -> Column:
    """The bucket of the top-level column `column` of `df` as a native expression of type int.

    Raises `UnsupportedExpression` for a column that is not there, a type that has no buckets, and an unusable
    `num_buckets`.
    """
    from pyspark.sql import functions as sf

    kinds = {field.name: field.dataType for field in df.schema.fields}
    if column not in kinds:
        raise UnsupportedExpression(f"bucket: there is no column '{column}'")
    kind = kinds[column]
    # Tables cannot hold times of day (Spark does not write them to Parquet), yet they have buckets.
    held = pa.time64("ns") if kind.typeName() == "time" else arrow_type(kind, column)
    return sf.expr(BucketUDF(num_buckets).spark_sql(quote_name(column, "`", always=True), held))


def register_bucket(spark: SparkSession) -> None:
    """Make `bucket(N, value)` a function of this session's SQL, for every type that has buckets.

    It gives the partition in which a table split by `bucket(N, column)` has the value. N must be one number for all
    rows of a query. A value without a bucket fails the query with the reason. The partition transform of that name in
    `PARTITIONED BY (bucket(4, id))` stays what it is. Needs the extra `spark`.
    """
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import IntegerType

    # pyspark's stubs know pandas types only.
    spark.udf.register("bucket", arrow_udf(_bucket_rows, IntegerType()))  # type: ignore[call-overload]


def _bucket_rows(num_buckets: pa.Array, values: pa.Array) -> pa.Array:
    distinct = pc.unique(num_buckets).to_pylist()
    if len(distinct) > 1:
        raise UnsupportedExpression("bucket needs one number of buckets for all rows, not a column")
    return bucket_of(distinct[0], values) if distinct else pa.array([], pa.int32())
