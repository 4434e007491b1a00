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
from ballista_py.scans.cut import TARGET_BYTES, cut, tasks_of
from ballista_py.scans.task import ScanTask
from ballista_py.scans.weighted_scheduler import ScanWorker, WeightedScheduler
from ballista_py.sql.legs import AT_SCHEDULER, legs_of_tasks, moved_leg, scanned_by
from ballista_py.sql.plan import Catalog, Fragment, Leg, LegProgress, QueryPlan
from ballista_py.sql.prune.scans import needs_of
from ballista_py.transport.arrow.door import read_rows


LITTLE_BYTES = 4 << 20  # are read by the scheduler before an executor has answered
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


@frozen(eq=False)
class LakeScans:
    """`LakeLegs` of a scheduler. Thread-safe. `sends` opens those at executors, `engine` runs those of its own."""

    snapshots: LakeSnapshots
    engine: Engine
    sends: LegOpener
    runtime: Runtime
    task_bytes: int = TARGET_BYTES
    little_bytes: int = LITTLE_BYTES

    def with_tasks(
        self, plan: QueryPlan, legs: tuple[Leg, ...], view: ClusterView, live: frozenset[Owner], *, told: bool
    ) -> tuple[QueryPlan, tuple[Leg, ...]]:
        """With the legs of all fragments of scanned tables, and notes about them; `told`, how many files were pruned.

        Where nobody else is there, or what is read is too little to pay for it, the scheduler runs them itself. Raises
        `SqlError` for files that executors need not find, and what looking for files raises.
        """
        catalog = view.catalog
        scans = [_Scan(f, name, self._tasks(f, name, catalog)) for f in plan.fragments for name in scanned_by(f, catalog)]
        executors = sorted(name for name, _ in live)
        cost = sum(one.cost for one in scans)
        notes: list[str] = []
        for one in scans:
            pin = catalog.scanned[one.table]
            alone = not any(table.whole for table in one.fragment.tables)
            little = alone and cost <= self.little_bytes
            if not little and executors:
                require_reachable(pin.of, view.addresses.values())
            legs = (*legs, *_legs(one, catalog, [] if little else executors))
            notes.append(self._note(one, pin, "" if executors and not little else _why_here(executors), told))
        return evolve(plan, notes=(*plan.notes, *notes)), legs

    def _note(self, one: _Scan, pin: PinnedSnapshot, here: str, told: bool) -> str:
        of = f" of {len(pin.snapshot.files()):,}" if told else ""
        where = f", {here}" if here else ""
        return (
            f"{one.fragment.name}: {pin.of.name} as of snapshot {pin.snapshot.id}, {one.files:,}{of} files, {one.cost:,} bytes "
            f"in {len(one.tasks):,} tasks{where}"
        )

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


def _legs(one: _Scan, catalog: Catalog, executors: Sequence[str]) -> tuple[Leg, ...]:
    if not one.tasks:  # everything was pruned
        return ()
    if not executors:
        return legs_of_tasks(one.fragment, catalog, [(AT_SCHEDULER, {one.table: one.tasks})])
    shares = WeightedScheduler().assign(one.tasks, [ScanWorker(id=name) for name in executors])
    made = [(name, {one.table: (task,)}) for name, share in shares.items() for task in share]
    return legs_of_tasks(one.fragment, catalog, made)


def _why_here(executors: Sequence[str]) -> str:
    why = "too little to pay for tasks elsewhere" if executors else "there is no executor"
    return f"read by the scheduler itself: {why}"


def require_reachable(table: ScannedTable, addresses: Iterable[str]) -> None:
    """Raise `SqlError` for a table of which executors at these addresses need not find the files.

    >>> table = ScannedTable(name="t", scan={"format": "delta", "path": "/lake/t"})
    >>> require_reachable(table, ["127.0.0.1:1", "localhost:2"])
    >>> require_reachable(table, ["10.0.0.7:1"])
    Traceback (most recent call last):
    ballista_py.errors.SqlError: table 't' is scanned where it lies (delta, /lake/t): executors on other machines need \
not find that folder; say 'shared': True of it if all of them do, or put it on an object store
    """
    place = str(table.scan.get("path") or "")
    is_local = place.startswith(("/", "file:"))
    hosts = {address.rpartition(":")[0].strip("[]") for address in addresses}
    if is_local and table.scan.get(SHARED) not in (True, "true") and not hosts <= _LOOPBACK:
        raise table.refused(
            "executors on other machines need not find that folder; say 'shared': True of it if all of them do, or put it "
            "on an object store"
        )


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
