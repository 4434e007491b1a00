"""PySpark: the data pipeline that turns sources into partitions, and `bucket` inside Spark."""
