"""The partitions of an executor: what holds, reads and changes them, and the ticks by which they are looked after."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
from attrs import asdict

from ballista_py.engines.engine import Engine
from ballista_py.figures import UNSEEN, Figures
from ballista_py.logs import log_event
from ballista_py.owner.pipeline_runs import OutsideRuns
from ballista_py.owner.staged_rows import StagedRows
from ballista_py.owner.writes import OwnerWrites
from ballista_py.runtime import Runtime
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.held.replicas import ReplicaReads
from ballista_py.storage.row_spool import spool_bytes
from ballista_py.threads import map_some
from ballista_py.work import carried

_log = logging.getLogger(__name__)
STORE_WORKERS = 8
AT_ONCE = 6  # for one statement, so that very many partitions of it leave room for others

In = TypeVar("In")
Out = TypeVar("Out")


class StoreThreads:
    """The threads by which an executor's requests to the store overlap, from construction until `close`.

    Those for writes are others, so that reads do not wait for them.
    """

    def __init__(self) -> None:
        self._reads = ThreadPoolExecutor(STORE_WORKERS, thread_name_prefix="store")
        self._writes = ThreadPoolExecutor(STORE_WORKERS, thread_name_prefix="write")

    def close(self) -> None:
        """Wait for no request to the store any more."""
        self._reads.shutdown(wait=False, cancel_futures=True)
        self._writes.shutdown(wait=False, cancel_futures=True)

    def map(self, call: Callable[[In], Out], items: Iterable[In], /) -> Iterator[Out]:
        """What `call` gives for each item, in order, many at the same time, as part of the work of this thread."""
        return map_some(self._reads, carried(call), items, AT_ONCE)

    def each(self, call: Callable[[In], Out], items: Iterable[In], /) -> Iterator[Out]:
        """As `map`, for the files of a write."""
        return map_some(self._writes, carried(call), items, AT_ONCE)


class ExecutorPartitions:
    """What `lease` lets an executor hold; its requests to the store overlap by `threads`."""

    def __init__(
        self,
        lease: ExecutorLease,
        store: ConditionalStore,
        engine: Engine,
        cache: FileCache,
        runtime: Runtime,
        threads: StoreThreads,
        max_bytes: int,
        figures: Figures = UNSEEN,
    ) -> None:
        """`max_bytes` is what the node may take; `figures` are told what is loaded and written."""
        self._engine = engine
        self._told: Mapping[str, Any] = {}
        self.holder = PartitionHolder(
            lease, store, engine, cache=cache, runtime=runtime, mapper=threads.map, figures=figures
        )
        self.replica_reads = ReplicaReads(self.holder, store, runtime, threads.map)
        self.writes = OwnerWrites(
            self.holder,
            store,
            engine,
            runtime,
            threads.map,
            lambda: lease.info.instance_id,
            each=threads.each,
            spool_bytes=spool_bytes(max_bytes),
            figures=figures,
        )
        self.staged = StagedRows(store, engine, runtime, threads.map, spool_bytes(max_bytes), figures)
        self.runs = OutsideRuns(self.holder, store, runtime, lambda: lease.info.instance_id)

    def shown(self) -> dict[str, Any]:
        """What is held, for people."""
        return {
            "held": [
                {
                    "table": held.table,
                    "revision": held.revision,
                    "active": list(held.active),
                    "epochs": list(held.epochs),
                    "loaded": list(held.loaded),
                    "failed": {str(partition): why for partition, why in held.failed.items()},
                }
                for held in self.holder.held()
            ]
        }

    def hold(self) -> bool:
        """Bring what is held closer to what is wanted; whether that changed what there is to say of it."""
        report = self.holder.tick()
        if report.hydrated or report.failed:
            log_event(_log, "hydrated", partitions=report.hydrated, failed=report.failed, waiting=report.waiting)
            pa.default_memory_pool().release_unused()  # what decoding took; only on Linux would it go by itself
        told, self._told = self._told, self.holder.told()
        return (
            bool(report.hydrated or report.failed or report.altered or report.unloaded_files) or told != self._told
        )

    def compact(self) -> None:
        """Merge small files, one partition after the other, while there are any; then tidy the engine up."""
        while (done := self.writes.compact()) is not None:
            log_event(_log, "compacted", **asdict(done))
        self._engine.tidy()

    def settle(self) -> None:
        """End the attempts at statements that nobody else will."""
        for ended in self.writes.tick():
            if ended.error is None:
                committed = ended.committed
                log_event(_log, "settled", table=ended.table, partition=ended.partition, committed=committed)
            else:
                code, reason = ended.error.code, ended.error
                log_event(_log, "settle_failed", logging.WARNING, table=ended.table, code=code, reason=reason)
