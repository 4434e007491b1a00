"""From fragments over scanned tables to legs of tasks, and the streams of those that a scheduler runs itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.lake.snapshots import SHARED, LakeSnapshots, PinnedSnapshot
from ballista_py.coordinator.lake.task_stream import TaskStream
from ballista_py.coordinator.queries.leg_opener import LegOpener
from ballista_py.coordinator.queries.run import Elsewhere, OpenLegs
from ballista_py.coordinator.queries.running_statement import FragmentStream
from ballista_py.engines.engine import Engine, RunningQuery
from ballista_py.engines.scan_streams import ScanStreams
from ballista_py.errors import TransportError
from ballista_py.partitions.map import Owner
from ballista_py.partitions.scanned_table import ScannedTable
from ballista_py.runtime import Runtime
from ballista_py.scans.cut import OPEN_BYTES, TARGET_BYTES, cut, tasks_of
from ballista_py.scans.guardrails import LEAST_BYTES, AtScheduler, OnExecutors, require_supported, where_to_scan
from ballista_py.scans.task import ScanTask
from ballista_py.scans.weighted_scheduler import ScanWorker, WeightedScheduler
from ballista_py.sql.legs import AT_SCHEDULER, legs_of_tasks, moved_leg, scanned_by
from ballista_py.sql.plan import Catalog, Fragment, Leg, LegProgress, QueryPlan
from ballista_py.sql.prune.scans import needs_of
from ballista_py.transport.arrow.door import read_rows

TASKS_EACH, LEAST_TASK_BYTES = 8, 8 << 20
MOST_CARRIED = 64 << 20  # of broadcasts, with all legs of one fragment together
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


@frozen(eq=False)
class LakeScans:
    """`LakeLegs` of a scheduler. Thread-safe. `sends` opens those at executors, `engine` runs those of its own."""

    snapshots: LakeSnapshots
    engine: Engine
    sends: LegOpener
    runtime: Runtime
    task_bytes: int = TARGET_BYTES

    def with_tasks(
        self, plan: QueryPlan, legs: tuple[Leg, ...], view: ClusterView, live: frozenset[Owner], *, told: bool
    ) -> tuple[QueryPlan, tuple[Leg, ...]]:
        """With the legs of all fragments of scanned tables, and notes about them; `told`, how many files were pruned.

        Where nobody else is there, or what is read is too little to pay for it, the scheduler runs them itself. Raises
        as `require_supported`, and what looking for files raises.
        """
        catalog = view.catalog
        scans = [
            _Scan(fragment, name, self._tasks(fragment, name, catalog, len(live)))
            for fragment in plan.fragments
            for name in scanned_by(fragment, catalog)
        ]
        workers = [ScanWorker(id=name) for name in sorted(name for name, _ in live)]
        notes: list[str] = []
        for one in scans:
            pin = catalog.scanned[one.table]
            where = where_to_scan(one.tasks, workers, least_bytes=min(LEAST_BYTES, self.task_bytes))
            if any(table.whole for table in one.fragment.tables) and workers:  # which the scheduler does not hold
                where = OnExecutors(tuple(worker.id for worker in workers), "beside replicated tables")
            if isinstance(where, OnExecutors):
                files = (file for task in one.tasks for file in task.files)
                require_supported(pin.of.name, files, is_shared=is_reached(pin.of, view.addresses.values()))
            legs = (*legs, *_legs(one, catalog, where))
            notes.append(self._note(one, pin, where, told))
        return evolve(plan, notes=(*plan.notes, *notes)), legs

    def _note(self, one: _Scan, pin: PinnedSnapshot, where: AtScheduler | OnExecutors, told: bool) -> str:
        of = f" of {len(pin.snapshot.files()):,}" if told else ""
        said = f"read by the scheduler itself: {where.reason}" if isinstance(where, AtScheduler) else where.reason
        read = f"{one.files:,}{of} files are read, {one.cost:,} bytes"
        return f"{one.fragment.name}: {pin.of.name} as of snapshot {pin.snapshot.id}, {read}; {said}"

    def _tasks(self, fragment: Fragment, name: str, catalog: Catalog, workers: int) -> tuple[ScanTask, ...]:
        pin, table = catalog.scanned[name], catalog.tables[name]
        guarded = name in catalog.barriers
        needs = needs_of(fragment.sql, name, pin.spec.schema, filtered=not guarded)
        columns = tuple(table.schema.names) if guarded else needs.columns
        files = pin.snapshot.files(needs.filter, columns)
        schema = pa.schema([pin.spec.schema.field(column) for column in columns])
        # Several for each executor, so that a slow one takes fewer; but none so small that it is asked for longer.
        share = sum(file.cost for file in files) // (TASKS_EACH * max(1, workers))
        groups = cut(
            files,
            min(self.task_bytes, max(LEAST_TASK_BYTES, share)),
            open_bytes=min(OPEN_BYTES, self.task_bytes // 4),
        )
        return tasks_of(
            fragment.name, groups, schema, needs.filter, lambda _path: self.snapshots.credentials(name)
        )

    def opener(self, view: ClusterView, plan: QueryPlan) -> OpenLegs:
        """What opens the legs of a plan: those of tasks are handed to executors one after the other."""
        fragments = {fragment.name: fragment for fragment in plan.fragments}

        def moved(leg: Leg, executor_id: str) -> Leg:
            return moved_leg(leg, fragments[leg.fragment], view.catalog, executor_id)

        def opened(legs: Sequence[Leg], addresses: Mapping[str, str]) -> FragmentStream:
            if legs[0].executor_id == AT_SCHEDULER:
                return OwnScan(legs[0], self.engine, self.runtime)
            members = {name: address for name, address in addresses.items() if name in _members(view)}
            legs = joined(legs, len(members))
            return TaskStream(legs, members, self.sends, moved, self.runtime, self.sends.spawn)

        def open_all(
            asked: Sequence[Sequence[Leg]], addresses: Mapping[str, str], elsewhere: Elsewhere
        ) -> list[FragmentStream]:
            others = [legs for legs in asked if not legs[0].scans]
            streams = iter(self.sends.open(others, addresses, elsewhere) if others else ())
            found: list[FragmentStream] = []
            try:
                for legs in asked:  # one by one: those that are open are cancelled if another is not
                    found += [opened(legs, addresses) if legs[0].scans else next(streams)]
            except BaseException:
                for stream in (*found, *streams):
                    stream.cancel()
                raise
            return found

        return open_all


@frozen
class _Scan:
    """The tasks of one fragment."""

    fragment: Fragment
    table: str
    tasks: tuple[ScanTask, ...]

    @property
    def cost(self) -> int:
        return sum(task.cost for task in self.tasks)

    @property
    def files(self) -> int:
        return len({file.path for task in self.tasks for file in task.files})


def _legs(one: _Scan, catalog: Catalog, where: AtScheduler | OnExecutors) -> tuple[Leg, ...]:
    if not one.tasks:  # everything was pruned
        return ()
    if isinstance(where, AtScheduler):
        return legs_of_tasks(one.fragment, catalog, [(AT_SCHEDULER, {one.table: one.tasks})])
    shares = WeightedScheduler().assign(one.tasks, [ScanWorker(id=name) for name in where.workers])
    made = [(name, {one.table: (task,)}) for name, share in shares.items() for task in share]
    return legs_of_tasks(one.fragment, catalog, made)


def is_reached(table: ScannedTable, addresses: Iterable[str]) -> bool:
    """Whether executors at these addresses find a folder of this machine: it is said to be shared, or they are here.

    >>> table = ScannedTable(name="t", scan={"format": "delta", "path": "/lake/t"})
    >>> is_reached(table, ["127.0.0.1:1", "localhost:2"]), is_reached(table, ["10.0.0.7:1"])
    (True, False)
    """
    hosts = {address.rpartition(":")[0].strip("[]") for address in addresses}
    return table.scan.get(SHARED) in (True, "true") or hosts <= _LOOPBACK


def joined(legs: Sequence[Leg], executors: int) -> Sequence[Leg]:
    """The legs, several tasks in one where each would carry so much along that it outweighs what is read."""
    carried = sum(map(len, legs[0].relations.values()))
    most = max(executors, MOST_CARRIED // max(1, carried))
    if len(legs) <= most:
        return legs
    ((table, _),) = legs[0].scans.items()
    by_executor: dict[str, list[Leg]] = {}
    for leg in legs:
        by_executor.setdefault(leg.executor_id, []).append(leg)
    share = -(-most // max(1, len(by_executor)))
    found: list[Leg] = []
    for own in by_executor.values():
        for group in (own[place::share] for place in range(min(share, len(own)))):
            tasks = [leg.scans[table][0] for leg in group]
            files = tuple(file for task in tasks for file in task.files)
            found.append(evolve(group[0], scans={table: (evolve(tasks[0], files=files),)}))
    return found


def _members(view: ClusterView) -> frozenset[str]:
    return frozenset(name for name, _ in view.members)


class OwnScan:
    """A leg that the scheduler runs itself, as `FragmentStream`."""

    def __init__(self, leg: Leg, engine: Engine, runtime: Runtime) -> None:
        self._runtime = runtime
        self._began_ms = runtime.monotonic_ms()
        self._scans = ScanStreams(leg.scans)
        sent = {name: read_rows(data, compressed=True) for name, data in leg.relations.items()}
        self._running: RunningQuery = engine.query(leg.sql, streams={**sent, **self._scans.readers()})
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
