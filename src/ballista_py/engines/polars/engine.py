"""Polars behind the `Engine` protocol: loaded files as frames in memory, DuckDB's plan run by Polars.

Promises: the answer of a single DuckDB, in names, types and rows, or a `SqlError` that names what this engine does
not do exactly; a query sees exactly the files it names, whatever is loaded or unloaded meanwhile. Statements are
bound by DuckDB, so nothing is understood otherwise; `polars_plan` holds the list of operations, everything not on
it is refused. `docs/design/090-polars-engine.md` says why it is so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import polars as pl
import pyarrow as pa

from ballista_py.engines.apart.large import BATCH_ROWS, FEED_BYTES, given_by, largest_given, way_of, with_largest
from ballista_py.engines.apart.workers import Workers
from ballista_py.engines.duckdb.guard import GuardedSelect
from ballista_py.engines.engine import RunningQuery
from ballista_py.engines.loaded_engine import LoadedEngine
from ballista_py.engines.polars import plan as polars_plan
from ballista_py.engines.polars.query import PolarsQuery, require_held
from ballista_py.engines.polars.tables import FrameTables
from ballista_py.engines.polars.types import to_batch, to_frame
from ballista_py.partitions.value_sizes import windows
from ballista_py.runtime import Runtime, SystemRuntime


class PolarsEngine(LoadedEngine):
    """An `Engine` that holds its partitions in memory. Safe to share between threads.

    It has no spill space and no bound: what is loaded and what a query gathers must fit in memory. Streams are read
    whole before a query over them gives its first row, and `cancel` is noticed between batches. With `workers` a query
    that joins, or may multiply, runs in a process that ends with it.

    >>> engine = PolarsEngine()
    >>> engine.create_table("t", pa.schema([("n", pa.int64())]))
    >>> [batch.to_pydict() for batch in engine.query("select count(*) as c from t", {"t": []}).batches()]
    [{'c': [0]}]
    >>> engine.close()
    """

    def __init__(self, *, workers: Workers | None = None, runtime: Runtime | None = None) -> None:
        self._runtime = runtime or SystemRuntime()
        self._tables = FrameTables(self._runtime)
        super().__init__(self._tables, self._runtime, workers)

    def tidy(self) -> None:
        """Nothing here waits for that."""

    def query(
        self,
        sql: str,
        scans: Mapping[str, Iterable[int]] | None = None,
        streams: Mapping[str, pa.RecordBatchReader | pa.Table] | None = None,
    ) -> RunningQuery:
        """Bind `sql`, take its snapshot and translate its plan; it runs when its batches are read.

        Raises `SqlError` for what does not parse or bind and for what this engine does not do exactly, and
        `NotOwner` when a file of `scans` is not loaded.
        """
        self._require_open()
        scans, streams = scans or {}, streams or {}
        statement = self._binder.check(sql, [*scans, *streams])
        read = statement.relations
        held = self._tables.snapshot({name: ids for name, ids in scans.items() if name in read})
        streams = {name: stream for name, stream in streams.items() if name in read}
        for name, stream in streams.items():
            require_held(name, stream.schema)
        given = given_by(statement, scans, streams, self._tables.schema, self._tables.large)
        way = way_of(
            given,
            copies=statement.copies,
            growth=statement.growth,
            joined=statement.sources > 1,
            threads=os.cpu_count() or 1,
            vector_rows=BATCH_ROWS,
        )
        largest = largest_given(given, statement.growth, steady=statement.steady)
        if self._workers is not None and (statement.is_apart(given.schemas) or statement.sources > 1 or way.apart):
            return self._query_apart(self._workers, sql, statement, held, streams, largest)
        schemas = {name: schema for name, (schema, _) in held.items()}
        schemas.update({name: stream.schema for name, stream in streams.items()})
        schema = self._binder.describe(sql, schemas)
        make = partial(polars_plan.translate, self._binder.plan(sql, schemas))
        empty = {name: to_frame(schemas[name].empty_table()).lazy() for name in schemas}
        make(empty)  # what is refused is refused now, not with the first batch
        frames = {name: _together(*each) for name, each in held.items()}
        query = PolarsQuery(with_largest(schema, largest), frames, streams, make, way.batch_rows)
        self._runs(query, takes_much=statement.gathers or bool(given.largest))
        return query

    def _query_apart(
        self,
        workers: Workers,
        sql: str,
        statement: GuardedSelect,
        held: Mapping[str, tuple[pa.Schema, Sequence[pl.DataFrame]]],
        streams: Mapping[str, pa.RecordBatchReader | pa.Table],
        largest: int,
    ) -> RunningQuery:
        """The query in a process of its own: Polars neither counts nor stops what a join makes."""
        relations = dict(streams)
        for name, (schema, frames) in held.items():
            columns = statement.columns_of(schema)
            narrow = pa.schema([schema.field(column) for column in columns])
            relations[name] = pa.RecordBatchReader.from_batches(narrow, _batches(frames, columns, narrow))
        query = workers.query(sql, relations, lambda: None)
        query.schema = with_largest(query.schema, largest)
        self._runs(query, takes_much=False)
        return query

    def close(self) -> None:
        """Release everything; running queries are cancelled. Closing twice is fine."""
        super().close()
        self._tables.clear()


def _batches(
    frames: Sequence[pl.DataFrame], columns: Sequence[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for frame in frames:
        narrow = frame.select(columns)
        sizes = narrow.with_columns(_SIZE.alias("size of a row"))["size of a row"].to_numpy()
        for start, end in windows(sizes, FEED_BYTES, BATCH_ROWS):
            yield to_batch(narrow.slice(start, end - start), schema)


_SIZE = pl.sum_horizontal(
    pl.lit(0.0),
    pl.col(pl.String).str.len_bytes().cast(pl.Float64),
    pl.col(pl.Binary).bin.size().cast(pl.Float64),
)


def _together(schema: pa.Schema, frames: Sequence[pl.DataFrame]) -> pl.LazyFrame:
    """The frames as one relation; nothing is copied."""
    return (pl.concat(frames, rechunk=False) if frames else to_frame(schema.empty_table())).lazy()
