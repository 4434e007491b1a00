"""MERGE and its kin: rows brought together, changed as a whole, and prepared at the owners of what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import define, evolve, frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.running_statement import read_as_work
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.kept_rows import RowBudget
from ballista_py.coordinator.writes.owner_calls import Order, Outcome, OwnerCalls
from ballista_py.coordinator.writes.row_routes import distinct_values
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import General
from ballista_py.sql.parse.inserts import GIVEN_ROWS

BATCH_ROWS = 65_536
MIN_MEMORY_BYTES = 128 << 20  # below which DuckDB itself has no room to work in


@frozen(kw_only=True)
class StatementRows:
    """The rows of its table that a statement is run over: those of `partitions` that `where` may be true for.

    `where` calls the table `alias`. The statement `depends` on all that is in the partitions which it changes, though
    there be nothing yet, but for those that it has not read at all. `given` are rows that came with it.
    """

    partitions: Sequence[int]
    where: str | None = None
    alias: str = ""
    depends: bool = False
    given: pa.Table | None = None
    key: Sequence[str] = ()


@frozen
class PreparedPartitions:
    """What became of each partition, and what the statement did: rows affected, rows that it gives."""

    outcome: Outcome
    affected: int
    returned: pa.Table | None


Known = Callable[[Sequence[tuple[Any, ...]]], ClusterView]


@define
class GeneralWrites:
    """Prepares statements that no owner can run by itself. Thread-safe; holds at most `max_bytes` of rows."""

    queries: QueryService
    calls: OwnerCalls
    checks: RowChecks
    max_bytes: int

    def prepare(
        self,
        change: General,
        order: Order,
        view: ClusterView,
        reading: StatementRows,
        known: Known,
        keep: Callable[[pa.Table], None],
    ) -> PreparedPartitions:
        """Run the statement over the rows that it reads, `keep` those that it gives, and prepare what it changed.

        Files that lost a row are rewritten, if their partition holds the very files that it held when it was read;
        the others stay. Raises `MergeTooLarge` beyond `max_bytes`, and what the statement and the owners raise.
        """
        table = order.table
        rows, base = self.calls.base(order, view, reading.partitions, reading.where, reading.alias)
        budget = RowBudget(self.max_bytes)
        reader = pa.RecordBatchReader.from_batches(table.schema, self._rows(budget.counted(rows), table))
        others = {} if reading.given is None else {GIVEN_ROWS: reading.given.to_reader(BATCH_ROWS)}
        with ExitStack() as over:
            for name in change.sources:
                running = read_as_work(self.queries.run(f'select * from "{name}"'))
                over.callback(running.cancel)
                others[name] = pa.RecordBatchReader.from_batches(running.schema, budget.counted(running.batches()))
            memory_limit = f"{max(self.max_bytes, MIN_MEMORY_BYTES)}B"
            changed = over.enter_context(
                self.checks.engine.change(
                    change.text,
                    table.name,
                    reader,
                    others,
                    memory_limit=memory_limit,
                    key=reading.key,
                    returning=change.returning,
                )
            )
            if changed.returned is not None:
                keep(changed.returned)
            come = list(self.checks.batches(table, changed.come.to_batches()))
            view = self._view_with(view, table, come, known)
            touched = touched_files(base.read, changed.gone.to_numpy())
            pmap = view.catalog.maps[table.name]
            added = {partition for batch in come for partition in set(_ids(pmap, batch).tolist())}
            read = base.files
            if reading.depends:  # what has no files yet had no rows
                read = {partition: base.files.get(partition, []) for partition in base.files.keys() | added}
            changed_here = touched.files.keys() | added
            order = evolve(order, remove=touched.files, base={p: read[p] for p in changed_here if p in read})
            kept = (batch.cast(table.schema) for batch in changed.kept(touched.spans))
            batches = chain(kept, come)
            outcome = self.calls.send(order, view, batches, known, also=sorted(touched.files))
            return PreparedPartitions(outcome, changed.affected, changed.returned)

    def _view_with(
        self, view: ClusterView, table: TableSpec, come: Sequence[pa.RecordBatch], known: Known
    ) -> ClusterView:
        pmap = view.catalog.maps[table.name]
        new = [value for batch in come for value in distinct_values(pmap, batch) if pmap.index(value) is None]
        return known(list(dict.fromkeys(new))) if new else view

    def _rows(self, rows: Iterator[pa.RecordBatch], table: TableSpec) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield pa.RecordBatch.from_arrays(batch.columns[:-1], schema=table.schema)


def _ids(pmap: PartitionMap, batch: pa.RecordBatch) -> Any:
    return pmap.lookup(pmap.spec.evaluate(batch), batch.num_rows)


@frozen(kw_only=True)
class TouchedFiles:
    """The files that lost a row, by partition, and the `spans` of places (from, to) that all of their rows have."""

    files: Mapping[int, tuple[str, ...]]
    spans: tuple[tuple[int, int], ...]


def touched_files(read: Sequence[tuple[int, str, int]], gone: npt.NDArray[np.int64]) -> TouchedFiles:
    """The files among `read` (partition, file, rows; in the order of the rows) that hold one of the places `gone`.

    >>> found = touched_files([(0, "a", 10), (0, "b", 5), (1, "c", 5)], np.array([3, 4, 15]))
    >>> found.files, found.spans
    ({0: ('a',), 1: ('c',)}, ((0, 10), (15, 20)))
    """
    ends = np.cumsum([rows for _, _, rows in read], dtype=np.int64)
    assert len(gone) == 0 or gone.max() < ends[-1], "a row went that was not read"
    files: dict[int, tuple[str, ...]] = {}
    spans = []
    for place in np.unique(np.searchsorted(ends, gone, side="right")).tolist():
        partition, path, rows = read[place]
        files[partition] = (*files.get(partition, ()), path)
        spans.append((int(ends[place]) - rows, int(ends[place])))
    return TouchedFiles(files=files, spans=tuple(spans))
