"""How fast `bucket` is, beside pyiceberg-core's bucket, polars' and DuckDB's own hashes, and Spark.

Run: python benches/bucket.py [--rows 4000000] [--spark]. Needs pyiceberg-core for the comparison with it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from _measure import claim, interleaved, show
from ballista_py.partitions.bucket import BucketUDF, bucket

BUCKETS = 64
Candidates = dict[str, Callable[[], Any]]


def iceberg(values: pa.Array) -> Candidates:
    """pyiceberg-core's bucket over the same array, if it is installed."""
    try:
        from pyiceberg_core import transform
    except ImportError:
        print("pyiceberg-core is not installed: its lines are left out (pip install pyiceberg-core)")
        return {}
    return {"pyiceberg-core bucket": lambda: transform.bucket(values, BUCKETS)}


def engines(values: pa.Array) -> Candidates:
    """What polars and DuckDB do with their own hash and a modulo."""
    import duckdb

    series = pl.Series(values)
    connection = duckdb.connect()
    connection.register("given", pa.table({"v": values}))
    sql = f"select count(*) from (select hash(v) % {BUCKETS} as b from given) where b >= 0"
    return {
        "polars hash % N": lambda: series.hash() % BUCKETS,
        "duckdb hash % N": lambda: connection.sql(sql).fetchall(),
    }


def integers(rows: int) -> None:
    chance = np.random.default_rng(1)
    numbers = chance.integers(-(1 << 62), 1 << 62, rows)
    values = pa.array(numbers)
    found = interleaved(
        {
            "bucket int64": lambda: bucket(BUCKETS, values),
            **iceberg(values),
            "numpy v % N, no hash": lambda: numbers % BUCKETS,
            **engines(values),
        }
    )
    show(f"int64, {rows:,} rows", found, rows, "bucket int64")
    bare = found["numpy v % N, no hash"] / found["bucket int64"]
    claim("at least 0.25x a bare numpy pass (v % N)", bare >= 0.25, f"{bare:.2f}x")
    against_iceberg(found, "bucket int64", 4)
    tracemalloc.start()
    bucket(BUCKETS, values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    claim("no more than one array of extra memory", peak <= values.nbytes, f"{peak / values.nbytes:.2f} arrays")


def texts(rows: int) -> None:
    values = pa.array([f"customer#{number * 7919 % rows:09d}" for number in range(rows)])
    found = interleaved(
        {"bucket string": lambda: bucket(BUCKETS, values), **iceberg(values), **engines(values)}, 5
    )
    show(f"string, {rows:,} rows of 18 bytes", found, rows, "bucket string")
    against_iceberg(found, "bucket string", 3)


def dictionaries(rows: int) -> None:
    words = pa.array([f"country-{number}" for number in range(200)])
    picks = pa.array(np.random.default_rng(2).integers(0, 200, rows, np.int32))
    encoded = pa.DictionaryArray.from_arrays(picks, words)
    plain = encoded.cast(pa.string())
    found = interleaved({"bucket dictionary": lambda: bucket(BUCKETS, encoded), **iceberg(plain)}, 5)
    show(f"dictionary of 200 strings, {rows:,} rows", found, rows, "bucket dictionary")
    against_iceberg(found, "bucket dictionary", 20)


def small() -> None:
    for name, values in (
        ("int64", pa.array(range(1_000))),
        ("string", pa.array([f"customer#{number:09d}" for number in range(1_000)])),
    ):
        repeated = {
            f"{label} x100": (lambda call=call: [call() for _ in range(100)])
            for label, call in {f"bucket {name}": lambda v=values: bucket(BUCKETS, v), **iceberg(values)}.items()
        }
        found = interleaved(repeated, 15)
        show(f"{name}, batches of 1,000 rows", found, 100_000, f"bucket {name} x100")
        against_iceberg(found, f"bucket {name} x100", 1)


def others(rows: int) -> None:
    chance = np.random.default_rng(3)
    numbers = pa.array(chance.integers(0, 20_000, rows, np.int32))
    cases = {
        "date": numbers.cast(pa.date32()),
        "double": pa.array(chance.standard_normal(rows)),
        "timestamp": numbers.cast(pa.int64()).cast(pa.timestamp("us")),
        "decimal(15, 2)": numbers.cast(pa.decimal128(15, 0)).cast(pa.decimal128(18, 2)),
        "decimal(30, 2)": numbers.cast(pa.decimal128(30, 0)).cast(pa.decimal128(38, 2)),
        "bool": pa.array(chance.integers(0, 2, rows).astype(np.bool_)),
    }
    found = interleaved({name: (lambda v=values: bucket(BUCKETS, v)) for name, values in cases.items()}, 5)
    show(f"other types, {rows:,} rows", found, rows, "double")


def against_iceberg(found: dict[str, float], ours: str, factor: float) -> None:
    peers = [name for name in found if name.startswith("pyiceberg-core")]
    for name in peers:
        times = found[name] / found[ours]
        claim(f"at least {factor}x pyiceberg-core", times >= factor, f"{times:.1f}x")


def in_spark(rows: int) -> None:
    """The native expression beside an Arrow UDF, over a Parquet file."""
    from pyspark.sql.functions import arrow_udf, col, expr

    from ballista_py.spark.session import embedded_session

    spark = embedded_session()
    native = BucketUDF(BUCKETS).spark_sql("v", pa.int64())
    by_udf = arrow_udf(lambda values: bucket(BUCKETS, values), "int")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "values.parquet")
        pq.write_table(pa.table({"v": pa.array(np.random.default_rng(4).integers(0, 1 << 62, rows))}), path)
        frame = spark.read.parquet(path).cache()
        frame.count()
        found = interleaved(
            {
                "spark native": lambda: frame.select(expr(native).alias("b")).agg({"b": "sum"}).collect(),
                "spark arrow_udf": lambda: frame.select(by_udf(col("v")).alias("b")).agg({"b": "sum"}).collect(),
            },
            5,
        )
    show(f"Spark, int64, {rows:,} rows", found, rows, "spark arrow_udf")
    times = found["spark arrow_udf"] / found["spark native"]
    claim("native at least 4x arrow_udf", times >= 4, f"{times:.1f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--spark", action="store_true", help="also measure Spark (starts a JVM)")
    options = parser.parse_args()
    integers(options.rows)
    texts(options.rows // 2)
    dictionaries(options.rows)
    small()
    others(options.rows // 4)
    if options.spark:
        in_spark(options.rows * 5)


if __name__ == "__main__":
    main()
