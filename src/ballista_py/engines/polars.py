"""Polars behind the `Engine` protocol: loaded files as frames in memory, DuckDB's plan run by Polars.

Promises: the answer of a single DuckDB, in names, types and rows, or a `SqlError` that names what this engine does
not do exactly; a query sees exactly the files it names, whatever is loaded or unloaded meanwhile. Statements are
bound by DuckDB, so nothing is understood otherwise; `polars_plan` holds the list of operations, everything not on
it is refused. `docs/design/090-polars-engine.md` says why it is so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import polars as pl
import pyarrow as pa

from ballista_py.engines import polars_plan
from ballista_py.engines.loaded_engine import LoadedEngine
from ballista_py.engines.polars_query import PolarsQuery, require_held
from ballista_py.engines.polars_tables import FrameTables
from ballista_py.engines.polars_types import to_frame
from ballista_py.runtime import Runtime, SystemRuntime


class PolarsEngine(LoadedEngine):
    """An `Engine` that holds its partitions in memory. Safe to share between threads.

    It has no spill space and no bound: what is loaded and what a query gathers must fit in memory. Streams are read
    whole before a query over them gives its first row, and `cancel` is noticed between batches.

    >>> engine = PolarsEngine()
    >>> engine.create_table("t", pa.schema([("n", pa.int64())]))
    >>> [batch.to_pydict() for batch in engine.query("select count(*) as c from t", {"t": []}).batches()]
    [{'c': [0]}]
    >>> engine.close()
    """

    def __init__(self, *, runtime: Runtime | None = None) -> None:
        self._runtime = runtime or SystemRuntime()
        self._tables = FrameTables(self._runtime)
        super().__init__(self._tables, self._runtime)

    def tidy(self) -> None:
        """Nothing here waits for that."""

    def query(
        self,
        sql: str,
        scans: Mapping[str, Iterable[int]] | None = None,
        streams: Mapping[str, pa.RecordBatchReader | pa.Table] | None = None,
    ) -> PolarsQuery:
        """Bind `sql`, take its snapshot and translate its plan; it runs when its batches are read.

        Raises `SqlError` for what does not parse or bind and for what this engine does not do exactly, and
        `NotOwner` when a file of `scans` is not loaded.
        """
        self._require_open()
        scans, streams = scans or {}, streams or {}
        read = self._binder.check(sql, [*scans, *streams]).relations
        held = self._tables.snapshot({name: ids for name, ids in scans.items() if name in read})
        streams = {name: stream for name, stream in streams.items() if name in read}
        for name, stream in streams.items():
            require_held(name, stream.schema)
        schemas = {name: schema for name, (schema, _) in held.items()}
        schemas.update({name: stream.schema for name, stream in streams.items()})
        schema = self._binder.describe(sql, schemas)
        make = partial(polars_plan.translate, self._binder.plan(sql, schemas))
        empty = {name: to_frame(schemas[name].empty_table()).lazy() for name in schemas}
        make(empty)  # what is refused is refused now, not with the first batch
        query = PolarsQuery(schema, {name: _together(*each) for name, each in held.items()}, streams, make)
        self._runs(query)
        return query

    def close(self) -> None:
        """Release everything; running queries are cancelled. Closing twice is fine."""
        super().close()
        self._tables.clear()


def _together(schema: pa.Schema, frames: Sequence[pl.DataFrame]) -> pl.LazyFrame:
    """The frames as one relation; nothing is copied."""
    return (pl.concat(frames, rechunk=False) if frames else to_frame(schema.empty_table())).lazy()
