"""Writes at an executor: rows become files, files become one commit a partition, and then the commit is served.

Promises: what is acknowledged is committed under this owner's epoch and served here; a token is applied once; what
is refused or broken off is applied nowhere. What an attempt prepared is folded in or given up as was decided for
the whole statement; one that its scheduler will not decide any more is aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError, InvariantViolated, SchemaMismatch, TryLater, to_wire
from ballista_py.node.logs import log_event
from ballista_py.planning.conform import conform
from ballista_py.planning.query_plan import Leg, LegTable
from ballista_py.planning.sql.changes import Rewrite, file_pruner, key_sql
from ballista_py.planning.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.object_state import ObjectState, Versioned
from ballista_py.state.statements import Statements
from ballista_py.state.store import ConditionalStore
from ballista_py.state.undecided import LOOK_AFTER_MS, to_end
from ballista_py.storage.compaction import CompactionPolicy, to_compact
from ballista_py.storage.files import read_data_file
from ballista_py.storage.garbage import MAX_WRITE_MS
from ballista_py.storage.holder import Mapper, PartitionHolder
from ballista_py.storage.holdings import Holdings
from ballista_py.storage.manifest import DataFile, ManifestDocument, Prepared
from ballista_py.storage.partition_storage import PartitionStorage, applied
from ballista_py.storage.pruned_files import may_hold
from ballista_py.storage.row_spool import RowSpool
from ballista_py.transport.commands import PARTITION_COLUMN, WriteTarget

_log = logging.getLogger(__name__)
ATTEMPTS = 3


@frozen
class _Change:
    """What one statement does to one partition: files in, files out, rows affected."""

    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    affected: int = 0


_Landed: TypeAlias = tuple[int, Versioned[ManifestDocument]]  # rows affected, and the manifest then


class OwnerWrites:
    """The writes of one executor. Safe to share between threads; `tick` is called by one."""

    def __init__(
        self,
        holder: PartitionHolder,
        store: ConditionalStore,
        engine: Engine,
        runtime: Runtime,
        mapper: Mapper,
        instance: Callable[[], str],
        policy: CompactionPolicy | None = None,
        each: Mapper | None = None,
    ) -> None:
        """`mapper` runs requests to the store at the same time, and `each` the partitions of a statement.

        They must not share threads: the second waits for the first.
        """
        self._each_of: Mapper = each or map
        self._policy = policy or CompactionPolicy()
        self._holder = holder
        self._store = store
        self._engine = engine
        self._runtime = runtime
        self._map = mapper
        self._instance = instance
        self._lock = runtime.lock()
        self._turns: dict[str, Any] = {}
        self._undecided: dict[tuple[str, int, str], float] = {}
        self._cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=runtime)
        # By table and attempt: files that are loaded and wait for the decision.
        self._staged: dict[tuple[str, str], list[str]] = {}

    def write(self, target: WriteTarget, rows: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        """Take in rows (last column: the partition) and apply or prepare them; what became of each partition.

        Raises `NotOwner` for a table that is not held here, `LeaseExpired`, and what the stream of rows raises;
        nothing is applied then.
        """
        holdings = self._holder.owned(_part(target.table), target.incarnation)
        table = holdings.table
        spool = self._spool(table, self._map)
        started_ms = self._runtime.monotonic_ms()
        try:
            for batch in rows:
                spool.add(batch)
            files = spool.finish()
            if self._runtime.monotonic_ms() - started_ms > MAX_WRITE_MS:
                raise TryLater("the rows took too long: their files may count as garbage by now")
            asked = set(target.table.partitions)
            if not files.keys() <= asked:
                raise InvariantViolated(f"rows of table '{table.name}' came for partitions that were not named")
        except BaseException:
            self._discard(table, spool)
            raise

        def change(partition: int, here: Sequence[DataFile]) -> _Change:
            new = tuple(files.get(partition, ()))
            gone = [file.path for file in here] if target.replace else target.remove.get(partition, ())
            self._check_primary_key(table, partition, new, [file for file in here if file.path not in gone])
            return _Change(new, tuple(gone), sum(file.rows for file in new))

        touched = sorted(asked) if target.replace else sorted({*files, *target.remove, *target.base})
        blind = not (target.replace or target.remove or target.base or table.primary_key)
        try:
            return self._each(target, holdings, touched, change, alone=bool(table.primary_key), blind=blind)
        finally:
            self._unstage(target, table, [file.path for new in files.values() for file in new])

    def rewrite(self, target: WriteTarget, rewrite: Rewrite) -> dict[str, Any]:
        """Replace the files that hold rows of a predicate by files without them, or with them changed."""
        holdings = self._holder.owned(_part(target.table), target.incarnation)

        def change(partition: int, here: Sequence[DataFile]) -> _Change:
            done = self._rewritten(target, holdings.table, partition, here, rewrite)
            written.extend(file.path for file in done.add)
            return done

        written: list[str] = []
        try:
            return self._each(target, holdings, sorted(target.table.partitions), change, alone=True)
        finally:
            self._unstage(target, holdings.table, written)

    def catch_up(self, leg: Leg) -> None:
        """Fold in what is prepared in the partitions of a leg and was committed before the leg's sequence was taken.

        So a statement over several partitions is seen in all of them from the instant of its commit.
        """
        for wanted in leg.tables:
            asked = set(wanted.partitions)
            waiting = [(p, a) for name, p, a in self._holder.prepared() if name == wanted.table and p in asked]
            holdings = self._holder.holdings(wanted.table)
            if wanted.sequence is None or not waiting or holdings is None:
                continue
            decisions = self._statements(holdings.table).read()
            folded: dict[int, Versioned[ManifestDocument]] = {}
            for partition, attempt in waiting:
                decision = decisions.on(attempt)
                if decision is not None and decision.committed and decision.sequence <= wanted.sequence:
                    folded[partition] = self._settle(holdings, partition, attempt, decision.sequence)
            self._holder.publish(wanted.table, folded)

    def settle(self, target: WriteTarget, sequence: int | None) -> dict[str, Any]:
        """Fold in what was prepared under the attempt of `target` and committed as `sequence`, or give it up (None)."""
        attempt = target.attempt
        assert attempt is not None

        def one(partition: int) -> _Landed:
            holdings = self._holder.owned(_part(target.table, partition), target.incarnation)
            return 0, self._settle(holdings, partition, attempt, sequence)

        said = self._all_of(target, target.table.partitions, one)
        self._forget(target.table.table, attempt)
        return said

    def base(
        self, target: WriteTarget, where: str | None, alias: str
    ) -> tuple[dict[str, Any], Callable[[], Iterable[pa.RecordBatch]]]:
        """The files of these partitions, and the rows, file by file, of those that may hold some for `where`.

        See `commands.base_command`.
        """
        holdings = self._holder.owned(target.table, target.incarnation)
        table = holdings.table
        pruner = file_pruner(where, alias, table)
        trailer: dict[str, Any] = {"base": {}, "read": []}
        ids: list[tuple[int, int]] = []
        for partition in target.table.partitions:
            here = self._storage(holdings, partition)[0].read().document.files
            loaded = self._loaded(target, partition, here)
            trailer["base"][str(partition)] = [file.path for file in here]
            for file in may_hold(here, pruner):
                trailer["read"].append([partition, file.path, file.rows])
                ids.append((partition, loaded[file.path]))

        def rows() -> Iterable[pa.RecordBatch]:
            for partition, file_id in ids:
                for batch in self._all(table, [file_id]):
                    yield _tagged(batch, partition)

        return trailer, rows

    def tick(self) -> None:
        """Bring to an end what was prepared here, and is decided or never will be."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            found = {(name, p, attempt) for name, p, attempt in self._holder.prepared()}
            for key in found - self._undecided.keys():
                self._undecided[key] = now_ms
            for key in self._undecided.keys() - found:
                del self._undecided[key]
            since_ms = dict(self._undecided)
        for name in {name for (name, _, _), since in since_ms.items() if now_ms - since >= LOOK_AFTER_MS}:
            try:
                self._end_all(name, {key: since for key, since in since_ms.items() if key[0] == name}, now_ms)
            except BallistaError as error:
                log_event(_log, "settle_failed", logging.WARNING, table=name, code=error.code, reason=error)

    def _end_all(self, name: str, since_ms: Mapping[tuple[str, int, str], float], now_ms: float) -> None:
        """End what is to be ended of one table; one that cannot be keeps no other."""
        holdings = self._holder.holdings(name)
        if holdings is None:
            return
        decisions = self._statements(holdings.table).read()
        waiting = {attempt: since for (_, _, attempt), since in since_ms.items()}
        due = set(to_end(waiting, decisions, self._schedulers(), now_ms))
        for _, partition, attempt in sorted(key for key in since_ms if key[2] in due):
            try:
                self._end(name, partition, attempt)
            except BallistaError as error:
                log_event(_log, "settle_failed", logging.WARNING, table=name, code=error.code, reason=error)

    def _schedulers(self) -> set[str]:
        """The instances of the schedulers that are members now."""
        return {info.instance_id for info in self._cluster.read().document.schedulers.values()}

    def compact(self) -> int:
        """Merge the small files of one partition, if one has too many; how many files were merged.

        Reads go on over the old files, writes to the table wait.
        """
        for name, partition in self._holder.owned_partitions():
            holdings = self._holder.holdings(name)
            if holdings is None or partition not in holdings.held:
                continue
            if len(holdings.held[partition].files) >= self._policy.min_files:
                with self._turn(name):
                    merged = self._compact(holdings, partition)
                if merged:
                    self._holder.reload(name, [partition])
                    return merged
        return 0

    def _spool(self, table: TableSpec, run_all: Mapper) -> RowSpool:
        return RowSpool(
            self._store,
            table.folder,
            table.schema,
            self._runtime,
            run_all,
            file_format=table.file_format,
            on_file=lambda file, rows: self._holder.stage(table.name, file.path, rows),
        )

    def _discard(self, table: TableSpec, spool: RowSpool) -> None:
        self._holder.unstage(table.name, spool.discard())

    def _unstage(self, target: WriteTarget, table: TableSpec, paths: list[str]) -> None:
        """Unload what was written and not committed; what was prepared waits for its decision."""
        if target.attempt is None:
            self._holder.unstage(table.name, paths)
            return
        with self._lock:
            self._staged.setdefault((table.name, target.attempt), []).extend(paths)

    def _forget(self, table: str, attempt: str) -> None:
        """Unload what was prepared and is decided by now, unless it is served."""
        with self._lock:
            paths = self._staged.pop((table, attempt), [])
        self._holder.unstage(table, paths)

    def _compact(self, holdings: Holdings, partition: int) -> int:
        table = holdings.table
        storage, epoch = self._storage(holdings, partition)
        manifest = storage.read().document
        files = to_compact(manifest.files, manifest.prepared, self._policy)
        loaded = holdings.held[partition].files
        if not files or any(file.path not in loaded for file in files):
            return 0
        spool = RowSpool(
            self._store, table.folder, table.schema, self._runtime, self._map, file_format=table.file_format
        )
        for batch in self._all(table, [loaded[file.path] for file in files]):
            spool.add(_tagged(batch.cast(table.schema), partition))
        new = spool.finish().get(partition, [])
        if not storage.compact(add=new, remove=[file.path for file in files], epoch=epoch):
            spool.discard()
            return 0
        log_event(_log, "compacted", table=table.name, partition=partition, files=len(files), into=len(new))
        return len(files)

    def _end(self, name: str, partition: int, attempt: str) -> None:
        holdings = self._holder.holdings(name)
        if holdings is None or partition not in holdings.held:
            return
        decision = self._statements(holdings.table).abort(attempt)
        landed = self._settle(holdings, partition, attempt, decision.sequence if decision.committed else None)
        self._holder.publish(name, {partition: landed})
        self._forget(name, attempt)
        log_event(_log, "settled", table=name, partition=partition, committed=decision.committed)

    def _settle(
        self, holdings: Holdings, partition: int, attempt: str, sequence: int | None
    ) -> Versioned[ManifestDocument]:
        storage, epoch = self._storage(holdings, partition)
        if sequence is None:
            return storage.abandon(attempt, epoch=epoch)
        return storage.fold(attempt, epoch=epoch, sequence=sequence)

    def _each(
        self,
        target: WriteTarget,
        holdings: Holdings,
        partitions: Sequence[int],
        change: Callable[[int, Sequence[DataFile]], _Change],
        *,
        alone: bool,
        blind: bool = False,
    ) -> dict[str, Any]:
        """Commit the change of every partition; `alone` for what must not meet another statement of the table."""

        def one(partition: int) -> _Landed:
            mine = self._holder.owned(_part(target.table, partition), target.incarnation)
            return self._apply(target, mine, partition, change, blind)

        if not alone:
            return self._all_of(target, partitions, one)
        with self._turn(holdings.table.name):
            return self._all_of(target, partitions, one)

    def _all_of(
        self, target: WriteTarget, partitions: Sequence[int], one: Callable[[int], _Landed]
    ) -> dict[str, Any]:
        """What became of each partition: `{"7": {"affected": 3}}`, or `{"7": {"error": …}}` where `one` failed."""

        def tried(partition: int) -> _Landed | BallistaError:
            try:
                return one(partition)
            except BallistaError as error:
                return error

        said: dict[str, Any] = {}
        landed: dict[int, Versioned[ManifestDocument]] = {}
        for partition, outcome in zip(partitions, self._each_of(tried, partitions), strict=True):
            if isinstance(outcome, BallistaError):
                said[str(partition)] = {"error": to_wire(outcome)}
            else:
                said[str(partition)], landed[partition] = {"affected": outcome[0]}, outcome[1]
        self._holder.publish(target.table.table, landed)
        return said

    def _apply(
        self,
        target: WriteTarget,
        holdings: Holdings,
        partition: int,
        change: Callable[[int, Sequence[DataFile]], _Change],
        blind: bool,
    ) -> _Landed:
        """Commit or prepare the change of one partition. A `blind` one does not depend on what is there."""
        storage, epoch = self._storage(holdings, partition)
        for attempt in range(ATTEMPTS):
            here: tuple[DataFile, ...] = ()
            if not blind:
                found = storage.read()
                before = found.document.applied(target.token)
                if before is not None:
                    return before.affected, found
                here = found.document.files
                if holdings.table.primary_key and any(
                    p.attempt != target.attempt for p in found.document.prepared
                ):
                    raise TryLater(f"table '{holdings.table.name}' waits for the decision on another statement")
            done = change(partition, here)
            try:
                if target.attempt is not None:
                    return self._prepared(target, storage, epoch, partition, done)
                landed = storage.land(
                    add=done.add, remove=done.remove, epoch=epoch, token=target.token, affected=done.affected
                )
                return applied(landed.document, target.token).affected, landed
            except InvariantViolated:
                # The files to remove were replaced meanwhile (a refresh from the source): look again.
                if attempt == ATTEMPTS - 1 or not done.remove:
                    raise
                self._holder.reload(holdings.table.name, [partition])
        raise AssertionError("the loop returns or raises")

    def _prepared(
        self, target: WriteTarget, storage: PartitionStorage, epoch: int, partition: int, done: _Change
    ) -> _Landed:
        assert target.attempt is not None
        prepared = Prepared(
            attempt=target.attempt,
            token=target.token,
            add=done.add,
            remove=done.remove,
            affected=done.affected,
            prepared_at_ms=self._runtime.wall_ms(),
        )
        landed = storage.prepare(prepared, epoch=epoch, base=target.base.get(partition))
        before = landed.document.applied(target.token)
        return done.affected if before is None else before.affected, landed

    def _rewritten(
        self, target: WriteTarget, table: TableSpec, partition: int, here: Sequence[DataFile], rewrite: Rewrite
    ) -> _Change:
        if rewrite.count is None:
            return _Change((), tuple(file.path for file in here), sum(file.rows for file in here))
        here = may_hold(here, file_pruner(rewrite.where, rewrite.alias, table))
        loaded = self._loaded(target, partition, here)
        spool = self._spool(table, map)
        remove: list[str] = []
        affected = 0
        try:
            for file in here:
                scans = {table.name: [loaded[file.path]]}
                hits = self._count(rewrite.count, scans)
                if not hits:
                    continue
                remove.append(file.path)
                affected += hits
                for batch in self._rows(rewrite.rows or "", scans):
                    spool.add(_tagged(_checked(table, batch), partition))
            files = spool.finish().get(partition, [])
        except BaseException:
            self._discard(table, spool)
            raise
        return _Change(tuple(files), tuple(remove), affected)

    def _loaded(self, target: WriteTarget, partition: int, here: Sequence[DataFile]) -> Mapping[str, int]:
        """The ids of the files of a manifest, which are loaded if they were not."""
        for _ in range(ATTEMPTS):
            mine = self._holder.owned(_part(target.table, partition), target.incarnation)
            held = mine.held[partition].files
            if held.keys() >= {file.path for file in here}:
                return held
            self._holder.reload(target.table.table, [partition])
        raise InvariantViolated(f"partition {partition} of table '{target.table.table}' is being replaced")

    def _check_primary_key(
        self, table: TableSpec, partition: int, new: Sequence[DataFile], here: Sequence[DataFile]
    ) -> None:
        if not table.primary_key or not new:
            return
        holdings = self._holder.holdings(table.name)
        ids = holdings.held[partition].files if holdings is not None and partition in holdings.held else {}
        if any(file.path not in ids for file in here):
            raise TryLater(f"partition {partition} of table '{table.name}' is being loaded")
        old = [ids[file.path] for file in here]
        rows = pa.concat_tables(self._read(file, table) for file in new)
        doubled = self._rows(key_sql(table), {table.name: old}, {"__new": rows})
        first = next((batch.to_pylist()[0] for batch in doubled if batch.num_rows), None)
        if first is not None:
            key = ", ".join(f"{name} = {first[name]}" for name in table.primary_key)
            raise SchemaMismatch(
                f"the primary key of table '{table.name}' is taken: a row with {key} exists already"
            )

    def _read(self, file: DataFile, table: TableSpec) -> pa.Table:
        return read_data_file(self._store, file, table.schema)

    def _all(self, table: TableSpec, ids: list[int]) -> Iterable[pa.RecordBatch]:
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in table.schema.names)
        return self._rows(f"select {columns} from {table.name}", {table.name: ids})

    def _rows(
        self, sql: str, scans: Mapping[str, list[int]], streams: Mapping[str, pa.Table] | None = None
    ) -> Iterable[pa.RecordBatch]:
        return self._engine.query(sql, scans=scans, streams=streams).batches()

    def _count(self, sql: str, scans: Mapping[str, list[int]]) -> int:
        return sum(sum(batch.column(0).to_pylist()) for batch in self._rows(sql, scans))

    def _storage(self, holdings: Holdings, partition: int) -> tuple[PartitionStorage, int]:
        wanted = holdings.wanted[partition]
        storage = PartitionStorage(
            self._store,
            holdings.table.folder,
            wanted.path,
            runtime=self._runtime,
            committed_by=self._instance(),
        )
        return storage, wanted.epoch

    def _statements(self, table: TableSpec) -> Statements:
        return Statements(self._store, table.folder, runtime=self._runtime, committed_by=self._instance())

    def _turn(self, table: str) -> Any:
        """One statement at a time where one must see what the other did."""
        with self._lock:
            return self._turns.setdefault(table, self._runtime.lock())


def _part(table: LegTable, *partitions: int) -> LegTable:
    """Some of the partitions, each at the epoch that was asked for: what is damaged keeps nothing else from writes."""
    epochs = dict(zip(table.partitions, table.epochs, strict=True))
    return evolve(table, partitions=partitions, epochs=tuple(epochs[partition] for partition in partitions))


def _tagged(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    return batch.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows))


def _checked(table: TableSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
    return conform(table, batch)
