"""From fragments over scanned tables to legs of tasks, and the streams of those that a scheduler runs itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.lake.snapshots import LakeSnapshots
from ballista_py.coordinator.lake.task_stream import TaskStream
from ballista_py.coordinator.queries.leg_opener import LegOpener
from ballista_py.coordinator.queries.run import Elsewhere, OpenLegs
from ballista_py.coordinator.queries.running_statement import FragmentStream
from ballista_py.engines.engine import Engine, RunningQuery
from ballista_py.engines.scan_streams import ScanStreams
from ballista_py.errors import TransportError
from ballista_py.partitions.map import Owner
from ballista_py.runtime import Runtime
from ballista_py.scans.cut import TARGET_BYTES, cut, tasks_of
from ballista_py.scans.task import ScanTask
from ballista_py.scans.weighted_scheduler import ScanWorker, WeightedScheduler
from ballista_py.sql.legs import AT_SCHEDULER, legs_of_tasks, moved_leg, scanned_by
from ballista_py.sql.plan import Catalog, Fragment, Leg, LegProgress, QueryPlan
from ballista_py.sql.prune.scans import needs_of


@define(eq=False)
class LakeScans:
    """`LakeLegs` of a scheduler. Thread-safe. `sends` opens those at executors, `engine` runs those of its own."""

    snapshots: LakeSnapshots
    engine: Engine
    sends: LegOpener
    runtime: Runtime
    task_bytes: int = TARGET_BYTES
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def legs(self, plan: QueryPlan, view: ClusterView, live: frozenset[Owner]) -> tuple[Leg, ...]:
        """The legs of all fragments of scanned tables. Raises what looking for files raises."""
        found: list[Leg] = []
        for fragment in plan.fragments:
            names = scanned_by(fragment, view.catalog)
            if names:
                found += self._legs(fragment, names, view.catalog, sorted(name for name, _ in live))
        return tuple(found)

    def _legs(
        self, fragment: Fragment, names: Sequence[str], catalog: Catalog, executors: Sequence[str]
    ) -> tuple[Leg, ...]:
        tasks = {name: self._tasks(fragment, name, catalog) for name in names}
        if not any(tasks.values()):
            return ()
        (name,) = names
        workers = [ScanWorker(id=one) for one in executors or [AT_SCHEDULER]]
        shares = WeightedScheduler().assign(tasks[name], workers)
        if not executors:
            return legs_of_tasks(fragment, catalog, [(AT_SCHEDULER, {name: shares[AT_SCHEDULER]})])
        made = [(one, {name: (task,)}) for one, share in shares.items() for task in share]
        return legs_of_tasks(fragment, catalog, made)

    def _tasks(self, fragment: Fragment, name: str, catalog: Catalog) -> tuple[ScanTask, ...]:
        pin, table = catalog.scanned[name], catalog.tables[name]
        guarded = name in catalog.barriers
        needs = needs_of(fragment.sql, name, pin.spec.schema, filtered=not guarded)
        columns = tuple(table.schema.names) if guarded else needs.columns
        files = pin.snapshot.files(needs.filter, columns)
        schema = pa.schema([pin.spec.schema.field(column) for column in columns])
        groups = cut(files, self.task_bytes)
        return tasks_of(fragment.name, groups, schema, needs.filter, lambda _path: self.snapshots.credentials(name))

    def opener(self, view: ClusterView, plan: QueryPlan) -> OpenLegs:
        """What opens the legs of a plan: those of tasks are handed to executors one after the other."""
        fragments = {fragment.name: fragment for fragment in plan.fragments}

        def moved(leg: Leg, executor_id: str) -> Leg:
            return moved_leg(leg, fragments[leg.fragment], view.catalog, executor_id)

        def opened(legs: Sequence[Leg], addresses: Mapping[str, str]) -> FragmentStream:
            if legs[0].executor_id == AT_SCHEDULER:
                return OwnScan(legs[0], self.engine, self.runtime)
            members = {name: address for name, address in addresses.items() if name in _members(view)}
            return TaskStream(legs, members, self.sends, moved, self.runtime, self.sends.spawn)

        def open_all(
            asked: Sequence[Sequence[Leg]], addresses: Mapping[str, str], elsewhere: Elsewhere
        ) -> list[FragmentStream]:
            others = [legs for legs in asked if not legs[0].scans]
            streams = iter(self.sends.open(others, addresses, elsewhere) if others else ())
            found: list[FragmentStream] = []
            try:
                for legs in asked:
                    found.append(opened(legs, addresses) if legs[0].scans else next(streams))
            except BaseException:
                for stream in (*found, *streams):
                    stream.cancel()
                raise
            return found

        return open_all


def _members(view: ClusterView) -> frozenset[str]:
    return frozenset(name for name, _ in view.members)


class OwnScan:
    """A leg that the scheduler runs itself, as `FragmentStream`."""

    def __init__(self, leg: Leg, engine: Engine, runtime: Runtime) -> None:
        self._runtime = runtime
        self._began_ms = runtime.monotonic_ms()
        self._scans = ScanStreams(leg.scans)
        self._running: RunningQuery = engine.query(leg.sql, streams=dict(self._scans.readers()))
        self._rows = self._bytes = 0
        self._ended = False
        self.error: BaseException | None = None
        self.schema = self._running.schema

    @property
    def bytes_received(self) -> int:
        """Nothing comes over the network."""
        return 0

    @property
    def progress(self) -> tuple[LegProgress, ...]:
        """What it has given so far."""
        took_ms = self._runtime.monotonic_ms() - self._began_ms
        return (LegProgress(rows=self._rows, bytes=self._bytes, took_ms=took_ms, ended=self._ended),)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows, lazily, once. Raises what the engine and the reader raise."""
        try:
            for batch in self._running.batches():
                self._rows += batch.num_rows
                self._bytes += batch.nbytes
                yield batch
            self._ended = True
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = self.error or error
            raise
        finally:
            self._scans.stop()

    def cancel(self) -> None:
        """Give up what was not read. From any thread, harmless after the end."""
        if not self._ended:
            self.error = self.error or TransportError("the legs were cancelled")
        self._scans.stop()
        self._running.cancel()
