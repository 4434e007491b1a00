"""Random rows of every type, and on how many of them Spark and Python disagree about the bucket.

Run by itself it asks a Spark Connect server: `python agreement.py sc://127.0.0.1:15002 FILE`; FILE holds the rows.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BUCKETS = 977
SEED = 20260101
SECONDS = "cast(id * 977 % 59999999 / 1000000 as decimal(8, 6))"
TIMES = f"make_time(cast(id % 24 as int), cast(id * 7 % 60 as int), {SECONDS})"


def random_rows(count: int) -> pa.Table:
    """One column per type that has buckets and that Parquet holds; every tenth value is null, some are extreme."""
    chance = np.random.default_rng(SEED)
    bits = chance.integers(-(1 << 63), (1 << 63) - 1, count, endpoint=True)
    micros = pa.array(bits // 8)  # Spark ends in the year 294247
    columns: dict[str, pa.Array] = {}
    for width in (8, 16, 32, 64):
        columns[f"i{width}"] = pa.array((bits >> (64 - width)).astype(f"int{width}"))
        if width < 64:
            columns[f"u{width}"] = pa.array((bits.view(np.uint64) >> np.uint64(64 - width)).astype(f"uint{width}"))
    doubles = bits.view(np.float64).copy()
    doubles[::97], doubles[1::97], doubles[2::97] = -0.0, 0.0, np.nan
    with np.errstate(all="ignore"):
        columns["f32"], columns["f64"] = pa.array(doubles.astype(np.float32)), pa.array(doubles)
    columns["bool"] = pa.array(bits % 2 == 0)
    columns["date"] = pa.array((bits % 2_932_896).astype(np.int32) - 719_162).cast(pa.date32())
    columns["zoned"] = micros.cast(pa.timestamp("us", "UTC"))
    columns["local"] = micros.cast(pa.timestamp("us"))
    columns["dec9"] = _decimals(bits % 10**9, pa.decimal128(9, 2))
    columns["dec18"] = _decimals(bits % 10**18, pa.decimal128(18, 6))
    columns["dec38"] = _decimals(bits, pa.decimal128(38, 10), bits[::-1] >> 4)
    lengths = bits % 40
    letters = ["", "a", "é", "日本", "😀", "null", " ", "%2F", "\\", "'"]
    columns["string"] = pa.array(
        [letters[n % 10] * int(n % 7) + (str(bit) if n % 3 else "") for n, bit in zip(lengths, bits, strict=True)]
    )
    columns["binary"] = pa.array([int(bit).to_bytes(8, "little", signed=True)[: bit % 9] for bit in bits.tolist()])
    nulls = pa.array(chance.integers(0, 10, count) == 0)
    return pa.table({name: pc.if_else(nulls, pa.scalar(None, c.type), c) for name, c in columns.items()})


def _decimals(low: np.ndarray, kind: pa.DataType, high: np.ndarray | None = None) -> pa.Array:
    words = np.empty((len(low), 2), np.int64)
    words[:, 0], words[:, 1] = low, (low >> 63) if high is None else high // 10**9
    return pa.Array.from_buffers(kind, len(low), [None, pa.py_buffer(words)])


def disagreements(spark: Any, path: str) -> dict[str, int]:
    """By type: the rows for which the native column or the SQL function differ from Python's bucket."""
    from ballista_py.partitions.bucket import bucket as expected_of
    from ballista_py.spark.bucket import bucket, register_bucket

    register_bucket(spark)
    spark.conf.set("spark.sql.timeType.enabled", "true")
    rows = pq.ParquetFile(path).metadata.num_rows
    frames = {name: spark.read.parquet(path).select(name) for name in pq.read_schema(path).names}
    frames["time"] = spark.range(rows).selectExpr(f"{TIMES} as time")
    found = {}
    for name, frame in frames.items():
        frame.createOrReplaceTempView("given")
        asked = spark.sql(f"select `{name}`, bucket({BUCKETS}, `{name}`) as in_sql from given")
        got = asked.withColumn("native", bucket(frame, BUCKETS, name)).toArrow()
        expected = pa.chunked_array([expected_of(BUCKETS, got[name])])
        assert len(got) == rows
        same = [pc.fill_null(pc.equal(got[way], expected), False) for way in ("in_sql", "native")]
        both_null = pc.and_(pc.is_null(expected), pc.and_(pc.is_null(got["in_sql"]), pc.is_null(got["native"])))
        found[name] = rows - pc.sum(pc.or_(pc.and_(*same), both_null)).as_py()
        assert name == "time" or got[name].null_count > 0
    return found


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    print(json.dumps(disagreements(SparkSession.builder.remote(sys.argv[1]).getOrCreate(), sys.argv[2])))
