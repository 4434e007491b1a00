"""A client of Spark Connect that runs the pipeline: `python connect_client.py sc://127.0.0.1:15002 FOLDER`."""

from __future__ import annotations

import json
import sys
import threading
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ballista_py.errors import ConfigError, TryLater
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.text.guard import TextGuard
from ballista_py.spark.watermark import Watermark
from ballista_py.state.stores.local import LocalStore


def main(url: str, folder: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    store = LocalStore(folder)
    pipeline = SparkPipeline(spark, store, spawn=spawn)
    said = {}

    def declare(name, frame, *keys):
        schema = pipeline.describe(name, frame)
        return TableSpec(name=name, schema=schema, spec=PartitionSpec.parse(list(keys), schema))

    frame = spark.range(0, 50_000, 1, 4).selectExpr("id", "concat('é', id % 3) as k")
    told = []
    buckets = declare("buckets", frame, "bucket(4, id)")
    report = pipeline.materialize(buckets, source=frame, progress=lambda done, total: told.append((done, total)))
    said["bucket rows"] = report.rows
    said["told in order"] = [done for done, _ in told] == sorted(done for done, _ in told)
    said["told the end"] = told[-1][0] == told[-1][1] > 4
    values = declare("values", frame, "k")
    said["values"] = sorted(value for (value,) in pipeline.discover(values, source=frame))
    few = frame.where("id < 100")
    said["rows"] = pipeline.refresh(values, source=few, watermark=Watermark("id")).rows
    more = frame.where("id < 120")
    append = {"mode": "append", "source": more, "watermark": Watermark("id")}
    said["appended"] = [pipeline.refresh(values, **append).rows for _ in range(2)]

    broken = spark.range(1_000).selectExpr("if(id = 999, raise_error('torn page'), id) as id", "'k' as k")
    try:
        pipeline.materialize(buckets, source=broken)
    except ConfigError as error:
        said["error"] = str(error)
    slow = sf.udf(lambda value: time.sleep(120) or value, "long")
    late = spark.range(0, 2, 1, 1).select(slow("id").alias("id"))
    hasty = SparkPipeline(spark, store, spawn=spawn, discovery_timeout_ms=1_500)
    started = time.monotonic()
    try:
        hasty.discover(declare("late", late, "id"), source=late)
    except TryLater as error:
        said["too late"] = str(error)
    said["cancelled soon"] = time.monotonic() - started < 100
    try:
        TextGuard(spark)
    except ConfigError as error:
        said["no statements"] = str(error)
    spark.conf.set("spark.sql.variable.substitute", "true")
    odd = spark.range(3).select(sf.col("id").alias("${env:HOME}"), sf.col("id").alias("id"))
    named = declare("odd", odd, '"${env:HOME}"')
    said["odd"] = sorted(value for (value,) in SparkPipeline(spark, store).discover(named, source=odd))
    print(json.dumps(said))


def spawn(target):
    threading.Thread(target=target, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
