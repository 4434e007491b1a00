"""A client of Spark Connect that reads a table of a cluster: two counts."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from ballista_py.spark import BallistaDataSource


def main(connect_url: str, url: str) -> None:
    spark = SparkSession.builder.remote(connect_url).create()
    spark.dataSource.register(BallistaDataSource)
    reader = spark.read.format("ballista").option("url", url)
    whole = reader.option("table", "t").load()
    few = reader.option("table", "t").option("filter", "id % 4 = 1").load()
    print(whole.count(), few.count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
