"""The commits of an owner's writes: one manifest a partition, under its epoch, served before they are acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from ballista_py.errors import BallistaError, InvariantViolated, SqlError, to_wire
from ballista_py.owner.changes import PartitionChange, affected_by, applied_before, is_free, part_of
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.object_state import Versioned
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.held.files import Mapper
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.held.holdings import Holdings
from ballista_py.storage.manifest import DataFile, ManifestDocument
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import caught_up
from ballista_py.storage.token_pages import TokenPages
from ballista_py.traces import spanned
from ballista_py.transport.flight.commands import WriteTarget
from ballista_py.work import require_wanted, runs_apart

ATTEMPTS = 3
MAX_TURNS = 1_024  # of tables that may be no more

Manifest: TypeAlias = Versioned[ManifestDocument]
Landed: TypeAlias = tuple[int, Manifest]  # rows affected, and the manifest then
MakeChange: TypeAlias = Callable[[int, Sequence[DataFile]], PartitionChange]


class OwnerCommits:
    """Safe to share between threads. `mapper` runs the partitions of a statement at the same time, on threads that
    may wait for those of others; `instance` is the owner's."""

    def __init__(
        self,
        holder: PartitionHolder,
        store: ConditionalStore,
        runtime: Runtime,
        mapper: Mapper,
        instance: Callable[[], str],
    ) -> None:
        self._holder = holder
        self._store = store
        self._runtime = runtime
        self._map = mapper
        self._instance = instance
        self._lock = runtime.lock()
        self._turns: dict[str, Any] = {}
        self._storages: WeakValueDictionary[tuple[str, str, str], PartitionStorage] = WeakValueDictionary()
        self._pages = TokenPages(store, runtime)

    def change(
        self,
        target: WriteTarget,
        partitions: Sequence[int],
        make: MakeChange,
        *,
        alone: bool,
        blind: bool = False,
        exact: bool = False,
        newest: bool = False,
    ) -> dict[str, Any]:
        """Commit, or prepare, what `make` says of each partition and its files; what became of each.

        One that is `alone` meets no other such statement of the table. A `blind` change is the same whatever is
        there. One that is `exact` was made from what is there by the definition that the target names. One that is
        made of the `newest` files sees what was committed after the sequence that the target names, too.
        """

        def one(partition: int) -> Landed:
            mine = self._holder.owned(part_of(target.table, partition), target.incarnation)
            return self._apply(target, mine, partition, make, blind, exact, newest)

        if target.attempt is not None:  # decided later, by a document that must not be an older one
            holdings = self._holder.owned(part_of(target.table), target.incarnation)
            self._holder.decisions.require(holdings.table.folder, holdings.folded())
        if not alone:
            return self.each(target, partitions, one)
        with self.turn(self._holder.owned(part_of(target.table), target.incarnation).table.folder):
            return self.each(target, partitions, one)

    def each(self, target: WriteTarget, partitions: Sequence[int], one: Callable[[int], Landed]) -> dict[str, Any]:
        """What became of each partition: `{"7": {"affected": 3}}`, or `{"7": {"error": …}}` where `one` failed.

        Of what is decided for all partitions together none is begun once the statement itself has failed in another;
        what runs apart, where each needs a process, is begun in one of them alone.
        One is `idle` where nothing of the target's attempt waits for a decision.
        What landed is served when this returns; raises `TryLater` when that cannot be.
        """

        failed: list[SqlError] = []
        is_prepared = target.attempt is not None

        def tried(partition: int) -> Landed | BallistaError:
            if failed:
                return failed[0]
            try:
                return one(partition)
            except BallistaError as error:
                if is_prepared and isinstance(error, SqlError):
                    failed.append(error)
                return error

        first = 1 if is_prepared and runs_apart() else 0
        outcomes = chain(map(tried, partitions[:first]), self._map(tried, partitions[first:]))
        said: dict[str, Any] = {}
        landed: dict[int, Manifest] = {}
        for partition, outcome in zip(partitions, outcomes, strict=True):
            if isinstance(outcome, BallistaError):
                said[str(partition)] = {"error": to_wire(outcome)}
            else:
                said[str(partition)], landed[partition] = {"affected": outcome[0]}, outcome[1]
                if target.attempt is not None and not outcome[1].document.waits_for(target.attempt):
                    said[str(partition)]["idle"] = True
        self._holder.publish(landed)
        return said

    def _apply(
        self,
        target: WriteTarget,
        holdings: Holdings,
        partition: int,
        make: MakeChange,
        blind: bool,
        exact: bool,
        newest: bool,
    ) -> Landed:
        storage, epoch = self.storage(holdings, partition)
        for attempt in range(ATTEMPTS):
            require_wanted()
            here: Sequence[DataFile] = ()
            if not blind:
                found = self.caught_up(holdings, partition)
                before = applied_before(
                    found.document,
                    target,
                    unique=bool(holdings.table.primary_key),
                    earlier=storage.applied(found.document, target.token),
                )
                if before is not None:
                    return before.affected, found
                here = found.document.files_at(None if newest else target.table.sequence)
            change = make(partition, here)
            self._holder.require_definition(target.table, exact=exact)
            if (
                target.attempt is not None
                and not blind
                and change == PartitionChange()
                and is_free(target, partition)
            ):
                return 0, found
            try:
                with self._holder.changing(target.table, exact=exact), spanned("commit", partition=partition):
                    landed = self._commit(target, storage, epoch, partition, change, newest)
                return affected_by(storage.applied(landed.document, target.token), change), landed
            except InvariantViolated:
                # The files to remove were replaced meanwhile (a refresh from the source): look again.
                if attempt == ATTEMPTS - 1 or not change.remove:
                    raise
                self._holder.reload(holdings.table.name, [partition])
        raise AssertionError("the loop returns or raises")

    def _commit(
        self,
        target: WriteTarget,
        storage: PartitionStorage,
        epoch: int,
        partition: int,
        change: PartitionChange,
        newest: bool,
    ) -> Manifest:
        if target.attempt is not None:
            prepared = change.prepared(target, self._runtime.wall_ms())
            base = target.base.get(partition, change.base)
            since = None if newest else target.table.sequence
            return storage.prepare(prepared, epoch=epoch, base=base, since=since)
        return storage.commit(
            add=change.add, remove=change.remove, epoch=epoch, token=target.token, affected=change.affected
        )

    def caught_up(self, holdings: Holdings, partition: int) -> Manifest:
        """The manifest with all that is decided by now: folded in or given up, and served.

        What a client saw of a statement over several partitions is here for whatever is read after that.
        """
        storage, epoch = self.storage(holdings, partition)
        found, changed = caught_up(storage, self.statements(holdings.table).read, epoch)
        if changed:
            self._holder.publish({partition: found})
        return found

    def settle(self, holdings: Holdings, partition: int, attempt: str, sequence: int | None) -> Manifest:
        """Fold in what is prepared there under the attempt, which committed as `sequence`, or give it up (None)."""
        storage, epoch = self.storage(holdings, partition)
        if sequence is None:
            return storage.abandon(attempt, epoch=epoch)
        return storage.fold(attempt, epoch=epoch, sequence=sequence)

    def storage(self, holdings: Holdings, partition: int) -> tuple[PartitionStorage, int]:
        """The storage of a partition, and the epoch under which it is owned.

        Statements that are under way at the same time share it, so that their changes of the manifest are committed
        together: apart from each other, many of them would lose race after race, and give up.
        """
        wanted = holdings.wanted[partition]
        key = holdings.table.folder, wanted.path, self._instance()
        with self._lock:
            storage = self._storages.get(key)
            if storage is None:
                storage = self._storages[key] = PartitionStorage(
                    self._store,
                    holdings.table.folder,
                    wanted.path,
                    runtime=self._runtime,
                    committed_by=key[2],
                    pages=self._pages,
                    memory=self._holder.memory,
                )
        return storage, wanted.epoch

    def statements(self, table: TableSpec) -> TableDecisions:
        """The decisions on the statements of a table."""
        return TableDecisions(self._store, table.folder, runtime=self._runtime, committed_by=self._instance())

    def turn(self, folder: str) -> Any:
        """A lock: one statement at a time of a table where one must see what the other did, whatever it is called."""
        with self._lock:
            if len(self._turns) >= MAX_TURNS:
                here = self._holder.told()
                self._turns = {known: lock for known, lock in self._turns.items() if known in here}
            return self._turns.setdefault(folder, self._runtime.lock())
