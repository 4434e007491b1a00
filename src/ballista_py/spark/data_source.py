"""Spark reads and writes tables of a cluster: each task fetches its part from an executor, or puts its rows there.

All parts that are read show one instant, and all rows that are written are there at one. Register it once, and use it::

    from ballista_py.spark import BallistaDataSource

    spark.dataSource.register(BallistaDataSource)
    rows = spark.read.format("ballista").option("url", "ballista://scheduler:50051").option("table", "orders").load()
    rows.write.format("ballista").option("url", …).option("table", "copy").mode("append").save()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import pyarrow as pa

from ballista_py.agents.done_here import done_here
from ballista_py.agents.read_job import Consistency, ReadJob, ReadPartition, read_job, rows_of, schema_of_read
from ballista_py.agents.table_changes import changes_schema
from ballista_py.errors import ConfigError, MissingExtra
from ballista_py.spark.change_stream import ALL, INSERTS, ChangesReader
from ballista_py.spark.data_sink import BallistaStreamWriter, BallistaWriter
from ballista_py.spark.pushed_filters import condition_of
from ballista_py.transport.security.credentials import Tls

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        Filter,
        InputPartition,
    )
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType
except ImportError as error:
    raise MissingExtra.of("pyspark", "spark") from error

OPTIONS = {
    "url": "a scheduler, or several with commas: ballista://host:port",
    "table": "the table to read, or to write",
    "query": "or a query over one table, in the SQL of the cluster",
    "columns": "of a table, with commas; all without it",
    "filter": "of a table: a condition in the SQL of the cluster, which is decided there",
    "push": "full (as it is without it): the cluster does what the options say; none: it gives columns as they lie on "
    "disk, and workers do the rest; filters: the cluster decides Spark's filters, too. Spark 4.3 then applies them to "
    "every later use of the dataframe as well: load it anew for each use",
    "encodings": "forms in which rows that nobody processes may come, with commas, the one liked best first: parquet, "
    "vortex (files as they lie on disk, decoded by workers), arrow, arrow+lz4, arrow+zstd; without it as they lie on "
    "disk, but from executors of the same machine",
    "changes": "of readStream: inserts (as it is without it): rows that come, and one that goes is an error; all: rows "
    "that come and that go, with a column _change that says which",
    "startingfrom": "of readStream: begin (as it is without it): rows that are there come first; now",
    "consistency": "snapshot (as it is without it) or decided",
    "maxpartitions": "at most so many partitions",
    "targetbytes": "of data files, for each partition",
    "lease": "for how many seconds files are kept without a task that reads (3600)",
    "token": "who you are to a cluster that asks for it",
    "writetoken": "of a write: the same one again is the same write, which happens once (a new one)",
    "tlsca": "the authority that signed the certificates of nodes: a file that every worker has",
}
SPARKS_OWN = {"path", "checkpointlocation", "queryname"}  # options that come along
PUSHES = ("full", "filters", "none")
LEASE_S, STREAM_LEASE_S = 3_600.0, 86_400.0


class BallistaDataSource(DataSource):
    """The format `ballista`; `OPTIONS` are its options. Raises `ConfigError` for one that it does not know."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.asked = _checked({name.lower(): value for name, value in options.items()})

    @classmethod
    def name(cls) -> str:
        return "ballista"

    def schema(self) -> StructType:
        """The columns, as the cluster has them now. Raises `ConfigError` for a type that Spark does not have."""
        asked = self.asked
        if "path" in asked:
            raise ConfigError(
                "the format 'ballista' reads no path: load() takes none, name a 'table' or a 'query'"
            )
        found = schema_of_read(asked["url"], asked.get("query"), **_what(asked, asked.get("filter", "")))
        return _spark_schema(changes_schema(found) if asked.get("changes") == ALL else found)

    def reader(self, schema: StructType) -> DataSourceReader:
        # Spark 4.3 keeps what was pushed for other uses of the dataframe: nobody gets that unasked.
        if "changes" in self.asked or "startingfrom" in self.asked:
            raise ConfigError("the options 'changes' and 'startingFrom' are for readStream")
        kind = PushingReader if self.asked.get("push") == "filters" else BallistaReader
        return kind(self.asked, schema)

    def streamReader(self, schema: StructType) -> ChangesReader:  # noqa: N802 - the name is Spark's
        """What reads the changes of a table. Raises `ConfigError` for options that do not go with it."""
        asked = self.asked
        wrong = sorted(asked.keys() & {"query", "columns", "filter", "push", "maxpartitions", "targetbytes"})
        if wrong:
            raise ConfigError(f"a stream is of a whole table, without the option '{wrong[0]}': select in Spark")
        for name, known in (("changes", (INSERTS, ALL)), ("startingfrom", ("begin", "now"))):
            if asked.get(name, known[0]) not in known:
                raise ConfigError(f"the option '{name}' is {' or '.join(known)}, not '{asked[name]}'")
        who = {
            "url": asked["url"],
            "table": asked["table"],
            "consistency": _consistency(asked),
            "lease": float(_number(asked, "lease") or STREAM_LEASE_S),
            "token": asked.get("token"),
            "tls": _what(asked, "")["tls"],
        }
        start = asked.get("startingfrom", "begin")
        return ChangesReader(who, schema, asked.get("changes", INSERTS), start, _spark_schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Begin a write; raises as `write_job`."""
        return BallistaWriter.begun(self.asked, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return BallistaStreamWriter(self.asked, overwrite=overwrite)


class TaskPart(InputPartition):
    """What one task reads: a partition of the read job, or all of them where a `remainder` puts them together.

    `given` are the columns of their rows, which the remainder calls `relation`.
    """

    def __init__(
        self,
        number: int,
        parts: tuple[ReadPartition, ...],
        given: pa.Schema,
        remainder: str = "",
        relation: str = "",
    ) -> None:
        super().__init__(number)
        self.parts = parts
        self.given = given
        self.remainder = remainder
        self.relation = relation


class BallistaReader(DataSourceReader):
    """Reads what the options say."""

    def __init__(self, asked: dict[str, str], schema: StructType) -> None:
        self.asked = asked
        self.columns = schema
        self.conditions = [f"({asked['filter']}\n)"] if asked.get("filter", "").strip() else []

    def partitions(self) -> list[InputPartition]:
        """Begin the read job; its files are kept while tasks read, and for `lease` seconds after."""
        job = _begun(self.asked, " AND ".join(self.conditions), _number(self.asked, "lease") or LEASE_S)
        if _spark_schema(job.schema) != self.columns:
            job.close()
            raise ConfigError(
                "the columns of the dataframe are not those that the cluster gives: the table was altered since, or "
                "schema() said others; load it again, without schema()"
            )
        if job.remainder is not None:
            return [TaskPart(0, job.partitions, job.given, job.remainder, job.relation)]
        parts: list[InputPartition] = [TaskPart(one.number, (one,), job.given) for one in job.partitions]
        return parts or [TaskPart(0, (), job.given)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, on a worker."""
        assert isinstance(partition, TaskPart)
        wanted = to_arrow_schema(self.columns, timezone="UTC")
        process = self.asked.get("push") != "none"
        rows = rows_of(partition.parts, process=process)
        if partition.remainder:
            given = pa.RecordBatchReader.from_batches(partition.given, rows)
            rows = iter(done_here(partition.remainder, partition.relation, given).to_batches())
        for batch in rows:
            columns = [column.cast(kind) for column, kind in zip(batch.columns, wanted.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


class PushingReader(BallistaReader):
    """Lets the cluster decide those filters of Spark that mean the same there."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - the name is Spark's
        """Take over what can be said in SQL with the same meaning; the others are given back."""
        if "table" not in self.asked:
            yield from filters
            return
        for one in filters:
            condition = condition_of(one)
            if condition is None:
                yield one
            else:
                self.conditions.append(condition)


def _checked(asked: dict[str, str]) -> dict[str, str]:
    unknown = sorted(asked.keys() - OPTIONS.keys() - SPARKS_OWN)
    if unknown:
        raise ConfigError(
            f"the format 'ballista' has no option '{unknown[0]}': take one of {', '.join(sorted(OPTIONS))}"
        )
    if "url" not in asked:
        raise ConfigError("the format 'ballista' needs the option 'url': ballista://host:port of a scheduler")
    if "query" in asked and ("columns" in asked or "filter" in asked):
        raise ConfigError("the options 'columns' and 'filter' are for a table: write them into the query")
    if ("table" in asked) == ("query" in asked):
        raise ConfigError("the format 'ballista' needs one of the options 'table' and 'query'")
    if "columns" in asked and not _names(asked["columns"]):
        raise ConfigError("the option 'columns' names no column: leave it away for all of them")
    if asked.get("push", "full") not in PUSHES:
        raise ConfigError(f"the option 'push' is {', '.join(PUSHES)}, not '{asked['push']}'")
    return asked


def _begun(asked: dict[str, str], condition: str, lease: float) -> ReadJob:
    return read_job(
        asked["url"],
        asked.get("query"),
        max_partitions=_number(asked, "maxpartitions"),
        target_bytes=_number(asked, "targetbytes"),
        consistency=_consistency(asked),
        lease=lease,
        encodings=_names(asked["encodings"]) if "encodings" in asked else None,
        **_what(asked, condition),
    )


def _consistency(asked: dict[str, str]) -> Consistency:
    found = asked.get("consistency", "snapshot")
    if found not in ("snapshot", "decided"):
        raise ConfigError(f"the option 'consistency' is snapshot or decided, not '{found}'")
    return found  # type: ignore[return-value]


def _what(asked: dict[str, str], condition: str) -> dict[str, Any]:
    """What is read, and who reads it."""
    return {
        "table": asked.get("table"),
        "columns": _names(asked.get("columns", "")),
        "filter": condition,
        "token": asked.get("token"),
        "tls": Tls(ca_file=asked["tlsca"]) if "tlsca" in asked else None,
    }


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _number(asked: dict[str, str], name: str) -> int | None:
    text = asked.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"the option '{name}' is a number from 1 on, not '{text}'")
    return int(text)


def _spark_schema(schema: pa.Schema) -> StructType:
    twice = [name for name, count in Counter(name.lower() for name in schema.names).items() if count > 1]
    if twice:
        raise ConfigError(
            f"two columns are called '{twice[0]}', and a dataframe has each name once: rename one in 'query'"
        )
    try:
        return from_arrow_schema(schema, prefer_timestamp_ntz=True)
    except Exception as error:  # pyspark has no one class for these
        said: Any = str(error).splitlines()[0]
        raise ConfigError(f"Spark has no type for a column: {said}; cast it in the option 'query'") from None
