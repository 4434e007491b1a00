"""`readStream` of a table: which rows came and went since the batch before, each once, whatever is killed.

An offset of Spark is a place in the history of the table, so a batch that is read again is the same. Places are kept
while the stream asks for new ones: one that stood for longer than `lease` cannot go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ballista_py.agents.read_job import source_of
from ballista_py.agents.table_changes import (
    DELETE,
    ChangedPartition,
    TableChanges,
    TablePlace,
    changes_between,
    table_place,
)
from ballista_py.errors import ConfigError, MissingExtra, Unsupported

try:
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType
except ImportError as error:
    raise MissingExtra.of("pyspark", "spark") from error

ALL, INSERTS = "all", "inserts"
Offset = dict[str, Any]
BEGIN: Offset = {"read_id": "", "mark": "", "taken_ms": 0.0}


class ChangedPart(InputPartition):
    """What one task reads: what changed in a partition of the table."""

    def __init__(self, number: int, changed: ChangedPartition) -> None:
        super().__init__(number)
        self.changed = changed


class ChangesReader(DataSourceStreamReader):
    """Reads changes of a table. `who` says which one, and who reads it, as `table_place` takes it.

    With `kind` `all` rows have a column `_change`; with `inserts` they have not, and a row that went is an error.
    """

    def __init__(
        self,
        who: Mapping[str, Any],
        schema: StructType,
        kind: str,
        start: str,
        spark_schema: Callable[..., StructType],
    ) -> None:
        self._who = dict(who)
        self._columns = schema
        self._kind = kind
        self._start = start
        self._spark_schema = spark_schema
        self._places: dict[str, TablePlace] = {}  # in the order of the table's history
        self._jobs: dict[str, TableChanges] = {}  # up to which place

    def initialOffset(self) -> Offset:  # noqa: N802 - the name is Spark's, as those of all methods below
        """Before the first row, or where the table is now."""
        return dict(BEGIN) if self._start == "begin" else self._offset(table_place(**self._who))

    def latestOffset(self, start: Offset, limit: object) -> Offset:  # noqa: N802
        """Where the table is now; `start` if nothing was changed since. Raises `SnapshotGone` if that is over."""
        if not start["read_id"]:
            return self._offset(table_place(**self._who))
        known = self._place_of(start)
        known.renew()
        return self._offset(known.later())

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """A task for each partition of the table that was changed between two offsets."""
        if start["read_id"] == end["read_id"]:
            return []
        since = self._place_of(start) if start["read_id"] else None
        job = changes_between(since, self._place_of(end), lease=self._who["lease"])
        self._jobs[end["read_id"]] = job
        found = job.schema if self._kind == ALL else pa.schema(list(job.schema)[:-1])
        if self._spark_schema(found).simpleString() != self._columns.simpleString():  # streams know no NOT NULL
            raise ConfigError(
                "the table was altered since the stream began: begin it anew, with another checkpoint"
            )
        return [ChangedPart(number, changed) for number, changed in enumerate(job.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one partition, on a worker."""
        assert isinstance(partition, ChangedPart)
        wanted = to_arrow_schema(self._columns, timezone="UTC")
        for batch in partition.changed.batches():
            if (
                self._kind == INSERTS
                and batch.num_rows
                and batch.column(batch.num_columns - 1)[0].as_py() == DELETE
            ):
                raise Unsupported(
                    f"rows of table '{self._who['table']}' were changed or went, and the stream is of rows that come: "
                    "read it with the option changes=all, which says in a column what each row is"
                )
            columns = [
                column.cast(kind) for column, kind in zip(batch.columns[: len(wanted)], wanted.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    def commit(self, end: Offset) -> None:
        """Let go of what lies before an offset: Spark asks for the one after it before it says so."""
        known = list(self._places)
        if end["read_id"] in known:
            before = known[: known.index(end["read_id"])]
            for read_id in before:
                self._places.pop(read_id).close()
            for read_id in [one for one in self._jobs if one in {*before, end["read_id"]}]:
                self._jobs.pop(read_id).close()

    def stop(self) -> None:
        """Let go of the last batch. The place where the stream goes on is kept until its lease ends."""
        for job in self._jobs.values():
            job.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_jobs": {}, "_places": {}}

    def _offset(self, place: TablePlace) -> Offset:
        self._places[place.read_id] = place
        return {"read_id": place.read_id, "mark": place.mark.hex(), "taken_ms": place.taken_ms}

    def _place_of(self, offset: Offset) -> TablePlace:
        """The place of an offset, which may be of a process that is no more."""
        known = self._places.get(offset["read_id"])
        if known is None:
            who = self._who
            columns = to_arrow_schema(self._columns, timezone="UTC")
            known = TablePlace(
                source=source_of(who["url"], who["token"], who["tls"]),
                table=who["table"],
                read_id=offset["read_id"],
                mark=bytes.fromhex(offset["mark"]),
                schema=columns if self._kind == INSERTS else pa.schema(list(columns)[:-1]),
                lease_ms=int(who["lease"] * 1e3),
                taken_ms=offset["taken_ms"],
                consistency=who["consistency"],
            )
            self._places[known.read_id] = known
        return known
