"""How old what a replica answers with may be, and how it finds out.

Nobody fences a replica and nobody has to tell it of a commit. So before it answers a leg over a table that is written
to, it compares what it holds with the manifest on the store, unless it began to do so at most `max_replica_lag_ms`
ago by its own clock. With 0, the default, every leg sees whatever was acknowledged before it was sent. A leg that is
read as of a sequence is compared at least once with a manifest that was read after that sequence was known, so a
statement over several partitions is never seen in some of them only. What was prepared and has committed counts
already, before its owner folds it in; a replica writes nothing.

An owner that was told that another executor is to take a partition over may be its former owner at any moment. Until it
is told more, it looks into the manifest whether a later owner has begun there, each time that it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ballista_py.errors import BallistaError, NotOwner, ObjectMissing
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.documents.decisions import StatementsDocument
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.held.holdings import Holdings
from ballista_py.storage.manifest import ManifestDocument, manifest_key
from ballista_py.storage.partition_storage import PartitionStorage


class ReplicaHolder(Protocol):
    """What is asked of the holder; `PartitionHolder` is one."""

    def holdings(self, table: str) -> Holdings | None: ...
    def reload(self, table: str, partitions: Iterable[int]) -> None: ...
    def confirm(self, table: TableSpec, partitions: Iterable[int], at_ms: float, sequence: int | None) -> None: ...


RunAll = Callable[[Callable[[int], bool], list[int]], Iterator[bool]]


class ReplicaReads:
    """Brings replicas up to date before they are read. Safe to share between threads. `run_all` works as `map`."""

    def __init__(
        self, holder: ReplicaHolder, store: ConditionalStore, runtime: Runtime, run_all: RunAll = map
    ) -> None:
        self._holder = holder
        self._store = store
        self._runtime = runtime
        self._run_all = run_all

    def freshen(self, leg: Leg) -> None:
        """Let every replica that the leg reads be as new as the leg asks for.

        Raises `NotOwner`, upon which the owners are asked, when the store does not say what is new.
        """
        for wanted in leg.tables:
            self._freshen(wanted, leg.max_replica_lag_ms)

    def require_owner(self, leg: Leg) -> None:
        """Raise `NotOwner` for what another executor has taken over since this one was told that it would."""
        for wanted in leg.tables:
            self._require_owner(wanted)

    def _require_owner(self, wanted: LegTable) -> None:
        holdings = self._holder.holdings(wanted.table)
        parting = [] if holdings is None else [p for p in wanted.partitions if p in holdings.parting]
        if holdings is None or not parting:
            return
        try:
            gone = list(self._run_all(lambda partition: self._is_taken_over(holdings, partition), parting))
        except BallistaError as error:
            raise NotOwner(
                f"partitions of table '{wanted.table}' are on their way to another owner, and the one before cannot "
                f"tell whether they are there ({error.message}): plan the query again",
                table=wanted.table,
                partitions=parting,
            ) from error
        if any(gone):
            raise NotOwner(
                f"partitions of table '{wanted.table}' have another owner now: plan the query again",
                table=wanted.table,
                partitions=[p for p, yes in zip(parting, gone, strict=True) if yes],
            )

    def _is_taken_over(self, holdings: Holdings, partition: int) -> bool:
        held, folder = holdings.held.get(partition), holdings.table.folder
        if held is None:  # refused anyway
            return False
        path = held.assignment.path
        if self._store.get_if_changed(manifest_key(folder, path), held.version) is None:
            return False
        found = PartitionStorage(self._store, folder, path, runtime=self._runtime).read()
        return found.document.epoch > holdings.parting[partition]

    def _freshen(self, wanted: LegTable, max_lag_ms: float) -> None:
        now_ms = self._runtime.monotonic_ms()
        holdings = self._holder.holdings(wanted.table)
        behind = [] if holdings is None else behind_of(holdings, wanted, now_ms, max_lag_ms)
        if holdings is None or not behind:
            return
        try:
            changed = list(self._run_all(lambda partition: self._has_changed(holdings, partition), behind))
            if any(changed):
                self._holder.reload(wanted.table, [p for p, yes in zip(behind, changed, strict=True) if yes])
        except BallistaError as error:
            raise NotOwner(
                f"replicas of table '{wanted.table}' cannot tell whether they are up to date ({error.message}): "
                "ask the owners",
                table=wanted.table,
                partitions=behind,
            ) from error
        self._holder.confirm(holdings.table, behind, now_ms, wanted.sequence)

    def _has_changed(self, holdings: Holdings, partition: int) -> bool:
        held = holdings.held[partition]
        if held.prepared:  # may have been decided without a change of the manifest
            return True
        key = manifest_key(holdings.table.folder, held.assignment.path)
        try:
            return self._store.get_if_changed(key, held.version) is not None
        except ObjectMissing:
            return True


def behind_of(holdings: Holdings, wanted: LegTable, now_ms: float, max_lag_ms: float) -> list[int]:
    """The partitions of a leg that are held as replicas and may be older than the leg allows; pure.

    A table that is filled from a source changes when it is refreshed, and its holders are told. A leg over an earlier
    table of the name is refused anyway, and its sequence means nothing here.
    """
    if holdings.table.is_piped or wanted.revision < holdings.born:
        return []
    return [
        partition
        for partition in wanted.partitions
        if (held := holdings.held.get(partition)) is not None
        and held.assignment.role == "replica"
        and (
            now_ms - held.checked_ms >= max_lag_ms
            or (wanted.sequence is not None and held.known_to < wanted.sequence)
        )
    ]


def with_committed(manifest: ManifestDocument, decisions: StatementsDocument) -> ManifestDocument:
    """The manifest as its owner will make it: what was prepared and is committed counts; pure."""
    for waiting in manifest.prepared:
        decision = decisions.on(waiting.attempt)
        if decision is not None and decision.committed:
            manifest = manifest.folded(waiting.attempt, manifest.epoch, decision.sequence)
        elif decision is not None:
            manifest = manifest.abandoned(waiting.attempt, manifest.epoch)
    return manifest
