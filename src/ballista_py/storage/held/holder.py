"""What an executor holds: it takes in assignments, hydrates partitions and says which files a leg reads.

Promises: a partition that is owned is served only after its fence was raised to the assignment's epoch and then
everything its manifest had committed was loaded; a leg gets files only while the lease is valid and this executor
serves every partition of it at the very epochs that were asked for. It starts no thread: `apply`, `tick` and the
heartbeat loop are called by the node. What to hold is decided by the schedulers; what to do next, by `holdings`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from attrs import evolve, frozen

from ballista_py.errors import BallistaError, NotOwner, TableAltered, TryLater
from ballista_py.figures import UNSEEN, Figures
from ballista_py.partitions.columns import is_same
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.documents.lost_documents import DocumentMemory
from ballista_py.state.documents.object_state import Versioned
from ballista_py.state.members.control import HeldPartitions, PartitionAssignment, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.decisions_check import DecisionsCheck, Waiting, has_unasked_replicas, waiting_in
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.files import LoadedFiles, Loader, Mapper
from ballista_py.storage.held.holdings import Holdings, told
from ballista_py.storage.held.hydration import HydrationMeter, HydrationProgress
from ballista_py.storage.held.loads import LoadFigures, PartitionLoad, PartitionLoads, held_of, in_parts, reason_of
from ballista_py.storage.held.seen import SeenManifests
from ballista_py.storage.manifest import ManifestDocument

_log = logging.getLogger(__name__)
MAX_BATCH_PARTITIONS = 64
MAX_NAMED = 5


@frozen(kw_only=True)
class TickReport:
    """What one tick did. `waiting` counts the partitions that are wanted and not hydrated, the failed ones too."""

    hydrated: int = 0
    failed: int = 0
    altered: int = 0
    unloaded_files: int = 0
    waiting: int = 0


class PartitionHolder:
    """One executor's partitions. Safe to share between threads; ticks run one at a time.

    `mapper` runs store requests of one tick at the same time (default: `map`). `figures` are told what was loaded.
    `files` are those that the loader has: what is about to be committed is staged there.

    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> class Nowhere:
    ...     def create_table(self, table, schema): pass
    ...     def drop_table(self, table): pass
    ...     def load(self, table, files): return 0
    ...     def unload(self, table, file_ids): pass
    >>> holder = PartitionHolder(ExecutorLease("executor-1", ""), MemoryStore(), Nowhere())
    >>> holder.tick(), holder.held()
    (TickReport(hydrated=0, failed=0, altered=0, unloaded_files=0, waiting=0), ())
    """

    def __init__(
        self,
        lease: ExecutorLease,
        store: ConditionalStore,
        loader: Loader,
        *,
        cache: FileCache | None = None,
        runtime: Runtime | None = None,
        mapper: Mapper = map,
        figures: Figures = UNSEEN,
    ) -> None:
        self._lease = lease
        self._store = store
        self._runtime = runtime or SystemRuntime()
        self._meter = HydrationMeter(self._runtime)
        self._figures = LoadFigures(figures, self._meter, self._runtime)
        self._lock = self._runtime.lock()
        self._ticking = self._runtime.lock()  # outer of the two
        self._tables: dict[str, Holdings] = {}
        self._unmade: dict[str, str] = {}  # why the engine's table could not be made, as it is told
        self._ends = False
        self._changing: Counter[tuple[str, int]] = Counter()  # commits under way, by folder and definition
        self.files = LoadedFiles(
            loader, cache or FileCache(store, runtime=self._runtime), self._meter, mapper, self._runtime
        )
        self.memory = DocumentMemory()
        self.decisions = DecisionsCheck(store, self._runtime, self.memory, mapper)
        self.seen = SeenManifests(store, self.memory, lease.info.executor_id, self._runtime, mapper)
        checks = self.memory, self.decisions, self.seen
        self._loads = PartitionLoads(lease, store, self.files, self._runtime, mapper, *checks)

    def apply(self, update: UpdatePartitions) -> bool:
        """Take in what one table's partitions here shall be; False if the update is old or for another instance.

        What is no longer wanted as it was hydrated is not served from this moment on; the next tick does the rest.
        """
        with self._lock:
            if update.instance_id != self._lease.info.instance_id:
                return False
            before, self._tables = self._tables, told(self._tables, update)
            return self._tables is not before

    def refresh(self, table: str) -> None:
        """Let the next tick compare the table's partitions with their manifests, because the data was renewed."""
        with self._lock:
            if table in self._tables:
                self._tables[table] = self._tables[table].refreshed()

    def owned(self, wanted: LegTable, incarnation: str = "") -> Holdings:
        """What is held of the table, if this executor owns these partitions at these epochs and may change them.

        Raises `LeaseExpired`, and `NotOwner` naming table and partitions.
        """
        with self._lock:
            self._lease.require()
            holdings = self._tables.get(wanted.table)
            refused = list(wanted.partitions) if holdings is None else holdings.not_owned(wanted)
            if holdings is None or refused or holdings.table.incarnation != incarnation:
                raise self._not_owner(wanted.table, refused or wanted.partitions)
            if holdings.table.definition and not self._is_shown(holdings):
                raise self._not_owner(wanted.table, wanted.partitions)
            return holdings

    def require_definition(self, wanted: LegTable, *, exact: bool) -> None:
        """Raise `TableAltered` unless what was made by the definition in `wanted` may be committed, or read, still.

        With `exact` it must be the newest one. `NotOwner` for one of which this executor was not told yet.
        """
        with self._lock:
            self._require_definition(wanted, exact)

    def _require_definition(self, wanted: LegTable, exact: bool) -> int:
        holdings = self._tables.get(wanted.table)
        if holdings is None or wanted.definition > holdings.table.definition:
            raise self._not_owner(wanted.table, wanted.partitions)
        table = holdings.table
        is_another = wanted.incarnation not in ("", table.incarnation)
        if is_another or wanted.definition < (table.definition if exact else table.accepts_from):
            since = f"{'replaced' if is_another else 'altered'} since the statement was planned: plan it again"
            raise TableAltered(f"table '{table.name}' was {since}", table=table.name)
        return table.definition

    @contextmanager
    def changing(self, wanted: LegTable, *, exact: bool) -> Iterator[None]:
        """The block commits what was made by the definition in `wanted`, if that is let through (`require_definition`).

        No newer definition is told to be held before the block ends.
        """
        with self._lock:
            definition = self._require_definition(wanted, exact)
            key = (self._tables[wanted.table].table.folder, definition)
            self._changing[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._changing[key] -= 1
                if not self._changing[key]:
                    del self._changing[key]

    def holdings(self, table: str) -> Holdings | None:
        """What is held of a table, if it is known."""
        with self._lock:
            return self._tables.get(table)

    def owned_partitions(self) -> list[tuple[str, int]]:
        """Table and number of every partition that is served here as its owner."""
        with self._lock:
            return [
                (name, partition)
                for name, holdings in sorted(self._tables.items())
                for partition, held in sorted(holdings.held.items())
                if held.assignment.role == "owner"
            ]

    def prepared(self, *, outside: bool = False) -> list[tuple[str, int, str]]:
        """Table, partition and attempt of every statement that is prepared in a partition owned here.

        Those of the data pipeline, which belong to nobody here, are listed apart (`outside`).
        """
        with self._lock:
            return [
                (name, partition, attempt)
                for name, holdings in sorted(self._tables.items())
                for partition, held in sorted(holdings.held.items())
                if held.assignment.role == "owner"
                for attempt in (held.outside if outside else held.prepared)
            ]

    def reload(self, table: str, partitions: Iterable[int]) -> None:
        """Hold what the manifests of these partitions say now, before it returns.

        Raises `TryLater` when one of them cannot be loaded; what was held of it before is still served then.
        """
        asked = frozenset(partitions)
        with self._ticking:
            with self._lock:
                holdings = self._tables.get(table)
                if holdings is None:
                    return
                holdings = self._tables[table] = holdings.refreshed(asked)
            todo = [wanted for p, wanted in sorted(holdings.wanted.items()) if p in asked]
            for start in range(0, len(todo), MAX_BATCH_PARTITIONS):
                self._hydrate(table, holdings.table.folder, todo[start : start + MAX_BATCH_PARTITIONS])
            with self._lock:
                after = self._tables.get(table)
                late = sorted(asked & after.stale) if after is not None else []
        if late:
            why = "".join(f": {after.failures[p].reason}" for p in late[:1] if after and p in after.failures)
            raise TryLater(f"{len(late)} partition(s) of table '{table}' could not be loaded again{why}")

    def publish(self, committed: Mapping[int, Versioned[ManifestDocument]]) -> None:
        """Hold what this owner has just committed to a table, by partition, before it returns, as `reload` does.

        What is held from a later commit stays. The table may be called otherwise by now. Raises `TryLater` as `reload`.
        """
        with self._ticking:
            with self._lock:
                folder = next((found.document.table for found in committed.values()), None)
                table = next((name for name, one in self._tables.items() if one.table.folder == folder), None)
            if folder is None or table is None:
                return
            self._show(table)
            with self._lock:
                holdings, now_ms = self._tables[table], self._runtime.wall_ms()
                works = [
                    PartitionLoad(
                        holdings.wanted[p],
                        manifest=found.document.current(now_ms),
                        revision=found.header.revision,
                        version=found.version,
                    )
                    for p, found in sorted(committed.items())
                    if holdings.table.folder == folder  # and not a later table of this name
                    and p in holdings.wanted
                    and holdings.is_behind(p, found.document.epoch, found.header.revision)
                ]
            done = self._loads.load(table, works) if works else []
            self._settle(table, folder, done, newest=False)
        failed = next((work for work in done if work.reason), None)
        if failed is not None:
            partition = failed.assignment.partition
            raise TryLater(f"partition {partition} of table '{table}' could not be loaded again: {failed.reason}")

    def confirm(self, table: TableSpec, partitions: Iterable[int], at_ms: float, sequence: int | None) -> None:
        """Note that what is held of these is all that their manifests held after `at_ms`, and up to `sequence`."""
        with self._lock:
            holdings = self._tables.get(table.name)
            if holdings is not None and holdings.table.folder == table.folder:
                self._tables[table.name] = holdings.confirmed(partitions, at_ms, sequence)

    def forget(self, table: str) -> None:
        """Stop holding a table that was dropped; it may be told again from revision 1."""
        with self._lock:
            self._tables.pop(table, None)
            self._unmade.pop(table, None)

    def drop_all(self) -> None:
        """Serve and want nothing, at once; the next tick unloads. To be called before the lease rejoins."""
        with self._lock:
            self._tables.clear()

    def ends(self) -> None:
        """From now on what others take over stays loaded: the process ends, and the next one may be given it back."""
        self._ends = True

    def held(self) -> tuple[HeldPartitions, ...]:
        """What heartbeats report."""
        with self._lock:
            return tuple(self._report(holdings) for _, holdings in sorted(self._tables.items()))

    def _report(self, holdings: Holdings) -> HeldPartitions:
        """What heartbeats say of a table; nothing is active while commits by an older definition are under way."""
        table = holdings.table
        is_late = any(folder == table.folder and made < table.definition for folder, made in self._changing)
        if table.definition and (is_late or not self._is_shown(holdings)):
            return evolve(holdings.report, active=(), epochs=(), rows=(), bytes=(), loaded=())
        return holdings.report

    def told(self) -> Mapping[str, tuple[int, Mapping[int, int]]]:
        """By folder, how many partitions are wanted, and those, with their epochs, that another one is to take over."""
        with self._lock:
            return {one.table.folder: (len(one.wanted), one.parting) for one in self._tables.values()}

    def replica_ages_ms(self) -> dict[str, float]:
        """By table, for how long the replica that waited longest has not been compared with its manifest."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            checked = {name: holdings.replicas_checked_ms() for name, holdings in sorted(self._tables.items())}
        return {name: now_ms - at_ms for name, at_ms in checked.items() if at_ms is not None}

    def progress(self) -> HydrationProgress:
        """How far the executor is with what it was told to hold."""
        with self._lock:
            wanted = sum(len(holdings.wanted) for holdings in self._tables.values())
            hydrated = sum(holdings.hydrated_count() for holdings in self._tables.values())
        return self._meter.progress(wanted, hydrated)

    def files_for(self, leg: Leg) -> dict[str, list[int]]:
        """The file ids that hold exactly the rows of the leg's partitions, by table.

        Raises `LeaseExpired` while there is no valid lease, and `NotOwner` naming table and partitions when this
        executor does not serve all of them at the epochs asked for.
        """
        with self._lock:
            return self._files_for(leg)

    def waiting(self, leg: Leg) -> frozenset[Waiting]:
        """The attempts at statements that wait for a decision in what a leg reads here as its owner, by partition."""
        with self._lock:
            return waiting_in(leg, self._tables)

    def files_if(self, leg: Leg, undecided: Collection[Waiting]) -> dict[str, list[int]] | None:
        """What `files_for` gives, or None where something waits in a partition that is not known to be `undecided`
        there, or a replica was not compared with its manifest since the leg's moment was known.

        A partition may have come here since: then nobody has looked whether what waits in it is decided.
        """
        with self._lock:
            known = waiting_in(leg, self._tables) <= frozenset(undecided) and not has_unasked_replicas(
                leg, self._tables
            )
            return self._files_for(leg) if known else None

    def _files_for(self, leg: Leg) -> dict[str, list[int]]:
        self._lease.require()
        return {wanted.table: self._files_of(wanted) for wanted in leg.tables}

    def check_decisions(self, leg: Leg) -> None:
        """Raise `DocumentLost` or `DocumentOlder` where a leg is to be read by decisions older than what is held."""
        self.decisions.check_leg(leg, {wanted.table: self.holdings(wanted.table) for wanted in leg.tables})

    def _files_of(self, wanted: LegTable) -> list[int]:
        holdings = self._tables.get(wanted.table)
        missing = list(wanted.partitions) if holdings is None else holdings.not_served(wanted)
        if holdings is not None and not missing and self._is_shown(holdings):
            return holdings.file_ids(wanted)
        raise self._not_owner(wanted.table, missing)

    def _not_owner(self, table: str, missing: Sequence[int]) -> BallistaError:
        """What to raise: where the owner cannot serve what is lost or spoilt, nobody can."""
        holdings = self._tables.get(table)
        failures = holdings.failures if holdings is not None else {}
        for failure in (failures[p] for p in missing if p in failures):
            if failure.damage is not None and failure.assignment.role == "owner":
                where = f"partition {failure.assignment.partition} of table '{table}'"
                return type(failure.damage)(
                    f"{where} could not be loaded: {failure.reason}", **failure.damage.details
                )
        reasons = [f"; partition {p} could not be loaded: {failures[p].reason}" for p in missing if p in failures]
        unmade = self._unmade.get(table, "")
        named = ", ".join(map(str, missing[:MAX_NAMED])) + (", …" if len(missing) > MAX_NAMED else "")
        return NotOwner(
            f"executor '{self._lease.info.executor_id}' does not serve partition(s) {named} of table "
            f"'{table}' at the epochs asked for: plan the query again{(*reasons, unmade)[0]}",
            table=table,
            partitions=list(missing),
        )

    def tick(self) -> TickReport:
        """Carry out what is due: unload what is not wanted, hydrate what is. Failures are kept for the heartbeats
        and tried again later; they never stop the other partitions."""
        with self._ticking:
            if self.files.were_lost():
                with self._lock:
                    self._tables = {name: holdings.emptied() for name, holdings in self._tables.items()}
            unloaded = self._unload()
            altered = self._prepare_all()
            hydrated = failed = 0
            for table, folder, batch in self._batches():
                done, failures = self._hydrate(table, folder, batch)
                hydrated, failed = hydrated + done, failed + failures
            unloaded += self._unload()
            return TickReport(
                hydrated=hydrated, failed=failed, altered=altered, unloaded_files=unloaded, waiting=self._waiting()
            )

    def _batches(self) -> list[tuple[str, str, list[PartitionAssignment]]]:
        """What is due, by table and the folder of its present incarnation."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            self._tables = {name: holdings.without_the_past(now_ms) for name, holdings in self._tables.items()}
            due = [
                (name, held.table.folder, held.to_hydrate(now_ms)) for name, held in sorted(self._tables.items())
            ]
        return [
            (name, folder, todo[start : start + MAX_BATCH_PARTITIONS])
            for name, folder, todo in due
            for start in range(0, len(todo), MAX_BATCH_PARTITIONS)
        ]

    def _waiting(self) -> int:
        with self._lock:
            return sum(len(h.to_hydrate(float("inf"))) for h in self._tables.values())

    def _hydrate(self, table: str, folder: str, batch: Sequence[PartitionAssignment]) -> tuple[int, int]:
        """Hydrate the assignments; returns how many succeeded and how many failed.

        Those of a table that was dropped meanwhile are let be, though another one of its name has the same.
        """
        with self._lock:
            holdings = self._tables.get(table)
        if holdings is None or holdings.table.folder != folder:
            return 0, 0
        try:
            self._prepare(holdings.table)
        except Exception as error:
            self._settle(table, folder, [PartitionLoad(a, reason=reason_of(error)) for a in batch])
            return 0, len(batch)
        works = self._loads.read(holdings.table, batch)
        done = 0
        for part in in_parts(works):
            outcome = self._figures.loaded(table, part, self._loads.load)
            self._settle(table, folder, outcome)
            done += sum(not work.reason for work in outcome)
        return done, len(works) - done

    def _prepare_all(self) -> int:
        """Make every table that is known, so that a leg may also read none of its partitions here; how many it made,
        or gave other columns."""
        with self._lock:
            known = list(self._tables)
        return sum(self._show(name) for name in known)

    def _show(self, name: str) -> bool:
        """Have the engine's table as the table is by the newest definition that was told; whether that was new."""
        with self._lock:
            holdings = self._tables.get(name)
        if holdings is None or self._is_shown(holdings):
            return False
        try:
            self._prepare(holdings.table)
        except Exception as error:
            _log.warning("table_failed", exc_info=error)
            kept = [PartitionLoad(wanted, reason=reason_of(error)) for wanted in holdings.wanted.values()]
            self._settle(name, holdings.table.folder, kept)
            return False
        return True

    def _prepare(self, table: TableSpec) -> None:
        """Have the engine's table; what was held of it is not, if it had to be made anew or could not be made."""
        kept, reason = False, ""
        try:
            kept = self.files.prepare(table.name, table.schema, table.definition)
        except Exception as error:
            reason = f"; it could not be loaded: {reason_of(error)}"
            raise
        finally:
            with self._lock:
                self._unmade[table.name] = reason
                holdings = self._tables.get(table.name)
                if holdings is not None and not kept:
                    self._tables[table.name] = evolve(holdings, held={})

    def _settle(self, table: str, folder: str, works: Sequence[PartitionLoad], *, newest: bool = True) -> None:
        """Publish what became of the works in `folder`; those that are not the `newest` leave what is stale so."""
        now_ms = self._runtime.monotonic_ms()
        loaded = self.files.ids(table)
        with self._lock:
            holdings = self._tables.get(table)
            if holdings is None or holdings.table.folder != folder:
                return  # dropped, or another table: the next tick begins anew
            stale = holdings.stale
            for work in works:
                if work.reason or work.manifest is None:
                    holdings = holdings.failed(work.assignment, work.reason, now_ms, work.damage)
                    continue
                holdings = holdings.hydrated(held_of(work, loaded, holdings.table.schema, now_ms))
            self._tables[table] = holdings if newest else evolve(holdings, stale=stale)

    def _is_shown(self, holdings: Holdings) -> bool:
        """Whether the engine has the table with the columns that were told last."""
        table = holdings.table
        schema = self.files.schema(table.name)
        is_newest = self.files.definition(table.name) == table.definition
        return schema is not None and is_newest and is_same(schema, table.schema)

    def _unload(self) -> int:
        """Unload every file that no hydrated partition names; returns how many."""
        if self._ends:
            return 0
        with self._lock:
            needed = {name: holdings.loaded_paths for name, holdings in self._tables.items()}
        return self.files.keep_only(needed)
