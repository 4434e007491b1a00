"""MERGE and its kin: rows brought together, changed as a whole, and prepared at the owners of what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import define, evolve

from ballista_py.engines.duckdb_change import Changed, run_change
from ballista_py.errors import MergeTooLarge
from ballista_py.node.checks import RowChecks
from ballista_py.node.owner_calls import Order, Outcome, OwnerCalls
from ballista_py.node.query_service import ClusterView, QueryService
from ballista_py.node.row_routes import distinct_values
from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.sql.changes import General
from ballista_py.planning.sql.statement import ENGINE_DIALECT
from ballista_py.planning.table import TableSpec

Known = Callable[[Sequence[tuple[Any, ...]]], ClusterView]


@define
class GeneralWrites:
    """Prepares statements that no owner can run by itself. Thread-safe; holds at most `max_bytes` of rows."""

    queries: QueryService
    calls: OwnerCalls
    checks: RowChecks
    max_bytes: int

    def prepare(
        self, change: General, order: Order, view: ClusterView, partitions: Sequence[int], known: Known
    ) -> tuple[Outcome, int]:
        """Run the statement over the rows of `partitions` and prepare what it changed; and the rows it affects.

        A partition that lost or changed a row is rewritten from the very files that were read; to others rows are
        added. Raises `MergeTooLarge` beyond `max_bytes`, and what the statement and the owners raise.
        """
        table = order.table
        rows, base = self.calls.base(order, view, partitions)
        reader = pa.RecordBatchReader.from_batches(table.schema, self._limited(rows, table))
        others = {}
        for name in change.sources:
            running = self.queries.run(f'select * from "{name}"')
            others[name] = pa.RecordBatchReader.from_batches(running.schema, self._bounded(running.batches()))
        sql = change.tree.sql(ENGINE_DIALECT)
        with run_change(sql, table.name, reader, others, memory_limit=f"{self.max_bytes}B") as changed:
            come = list(self.checks.batches(table, changed.come.to_batches()))
            view = self._view_with(view, table, come, known)
            pmap = view.catalog.maps[table.name]
            rewritten = _partitions(pmap, changed.gone.cast(table.schema).to_batches())
            added = _partitions(pmap, come)
            read = base()
            order = evolve(
                order,
                replaced=frozenset(rewritten),
                base={p: read[p] for p in rewritten | added if p in read},
            )
            batches = self._after(changed, table, pmap, rewritten, come)
            return self.calls.send(order, view, batches, known, also=sorted(rewritten)), changed.affected

    def _after(
        self,
        changed: Changed,
        table: TableSpec,
        pmap: PartitionMap,
        rewritten: set[int],
        come: Sequence[pa.RecordBatch],
    ) -> Iterator[pa.RecordBatch]:
        """All rows of the partitions that are rewritten, and the new ones of the others."""
        for batch in self.checks.batches(table, changed.rows()):
            yield _filtered(pmap, batch, rewritten, inside=True)
        for batch in come:
            yield _filtered(pmap, batch, rewritten, inside=False)

    def _view_with(
        self, view: ClusterView, table: TableSpec, come: Sequence[pa.RecordBatch], known: Known
    ) -> ClusterView:
        pmap = view.catalog.maps[table.name]
        new = [value for batch in come for value in distinct_values(pmap, batch) if pmap.index(value) is None]
        return known(list(dict.fromkeys(new))) if new else view

    def _limited(self, rows: Iterator[pa.RecordBatch], table: TableSpec) -> Iterator[pa.RecordBatch]:
        for batch in self._bounded(rows):
            yield pa.RecordBatch.from_arrays(batch.columns[:-1], schema=table.schema)

    def _bounded(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in rows:
            size += batch.nbytes
            if size > self.max_bytes:
                raise MergeTooLarge(
                    f"the statement reads more than {self.max_bytes} bytes: narrow it, or raise max_merge_bytes"
                )
            yield batch


def _ids(pmap: PartitionMap, batch: pa.RecordBatch) -> Any:
    return pmap.lookup(pmap.spec.evaluate(batch), batch.num_rows)


def _partitions(pmap: PartitionMap, batches: Sequence[pa.RecordBatch]) -> set[int]:
    return {partition for batch in batches for partition in set(_ids(pmap, batch).tolist())}


def _filtered(pmap: PartitionMap, batch: pa.RecordBatch, chosen: set[int], *, inside: bool) -> pa.RecordBatch:
    keep = pa.array([(partition in chosen) == inside for partition in _ids(pmap, batch).tolist()], pa.bool_())
    return batch.filter(keep)
