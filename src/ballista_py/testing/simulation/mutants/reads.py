"""Deliberate faults of read jobs: what the simulation of read jobs must find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import Any

from attrs import evolve, frozen

from ballista_py.coordinator.reads import snapshot
from ballista_py.coordinator.reads.snapshot import Snapshots, TableSnapshot
from ballista_py.errors import ObjectMissing, SnapshotGone
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.liveness import SKEW_MS
from ballista_py.storage.publication import visible_files
from ballista_py.storage.reads import leases
from ballista_py.storage.reads.files import ReadFiles
from ballista_py.storage.reads.leases import ReadDocument, ReadLeases
from ballista_py.testing.simulation.reads.simulation import ReadSimulation

Patch = tuple[Any, str, Any]
_in_force = ReadLeases._in_force
_end = ReadLeases.end
_decisions = Snapshots._decisions
_digested = ReadFiles.from_bytes.__func__  # type: ignore[attr-defined]


@frozen(kw_only=True)
class ReadMutant:
    """One deliberate fault; it shows in seeds of `hours`, or in those of minutes."""

    name: str
    what: str
    patches: tuple[Patch, ...]
    hours: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code within this block, for the whole process."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches:
                stack.callback(setattr, owner, name, owner.__dict__[name])
                setattr(owner, name, replacement)
            yield


def _still(*_arguments: Any) -> bool:
    return True


def _decisions_last(
    snapshots: Snapshots, table: TableSpec, pmap: PartitionMap, partitions: Sequence[int], **_how: bool
) -> TableSnapshot:
    fixed_ms = snapshots.runtime.monotonic_ms()
    found = list(snapshots.run_all(lambda one: snapshots._manifest(table, pmap, one), partitions))
    decisions = snapshots._decisions(table)
    visible = [[] if one is None else visible_files(one.document, decisions) for one in found]
    rows = [[file for file in files if file.rows] for files in visible]
    return TableSnapshot(files=dict(zip(partitions, rows, strict=True)), fixed_ms=fixed_ms)


class _Unasked:
    def __init__(self, *_arguments: Any) -> None:
        return

    def require(self, *_arguments: Any) -> None:
        return


def _older_decisions(snapshots: Snapshots, table: TableSpec) -> Any:
    known = vars(snapshots.runtime).setdefault("decisions", {})
    if table.folder not in known:
        known[table.folder] = _decisions(snapshots, table)
    return known[table.folder]


def _none_kept(*_arguments: Any) -> set[str]:
    return set()


def _renewed_after_its_end(reads: ReadLeases, read_id: str, client: str) -> ReadDocument:
    try:
        state = reads._state(read_id)
        return state.update(lambda now: evolve(now, renewals=now.renewals + 1, ended=False)).document
    except ObjectMissing:
        raise SnapshotGone("the read job is over") from None


def _by_own_clock(reads: ReadLeases, read_id: str, lying: Any, _now_ms: float) -> ReadDocument | None:
    return _in_force(reads, read_id, lying, reads._runtime.wall_ms())


def _ended_though_renewed(reads: ReadLeases, read_id: str, lying: Any, now_ms: float) -> ReadDocument | None:
    if lying.document is None:
        return None
    state = reads._state(read_id)
    try:
        seen = state.read().document
        if now_ms - lying.document.modified_ms > seen.lease_ms + SKEW_MS:
            seen = state.update(lambda now: evolve(now, ended=True)).document
    except ObjectMissing:
        return None
    return None if seen.ended else seen


def _as_listed(reads: ReadLeases, read_id: str, lying: Any, now_ms: float) -> ReadDocument | None:
    return _in_force(_AsListed(reads, lying), read_id, lying, now_ms)  # type: ignore[arg-type]


class _AsListed:
    def __init__(self, reads: ReadLeases, lying: Any) -> None:
        self._state = reads._state
        self._lying = lying

    def _listed(self, _read_id: str) -> Any:
        return self._lying.document


def _ended_by_anybody(reads: ReadLeases, read_id: str, _client: str) -> None:
    _end(reads, read_id, reads.read(read_id).client)


def _any_digest(kind: type[ReadFiles], data: bytes, _digest: str) -> ReadFiles:
    return _digested(kind, data, sha256(data).hexdigest())  # type: ignore[no-any-return]


def _never(*_arguments: Any) -> bool:
    return False


def _no_clocks(*_arguments: Any) -> list[str]:
    return []


READ_MUTANTS: tuple[ReadMutant, ...] = (
    ReadMutant(
        name="read-one-look",
        what="nobody looks a second time whether a table is as it was",
        patches=((Snapshots, "_still", _still),),
    ),
    ReadMutant(
        name="read-decisions-after-manifests",
        what="the decisions of a table are read when its manifests were",
        patches=((Snapshots, "of", _decisions_last),),
    ),
    ReadMutant(
        name="read-decisions-unproven",
        what="nobody asks whether decisions are older than manifests that were written under them",
        patches=((snapshot, "DecisionsCheck", _Unasked),),
    ),
    ReadMutant(
        name="read-decisions-remembered",
        what="a job is planned by decisions that were read for an earlier one",
        patches=((Snapshots, "_decisions", _older_decisions),),
    ),
    ReadMutant(
        name="read-leases-unasked",
        what="the collector does not ask what read jobs keep",
        patches=((ReadLeases, "kept", _none_kept),),
        hours=True,
    ),
    ReadMutant(
        name="read-lease-too-late",
        what="a lease counts however long after its files were looked for",
        patches=((leases, "TAKEN_WITHIN_MS", float("inf")),),
        hours=True,
    ),
    ReadMutant(
        name="read-renewed-after-its-end",
        what="a lease that was ended is renewed",
        patches=((ReadLeases, "renew", _renewed_after_its_end),),
        hours=True,
    ),
    ReadMutant(
        name="read-own-clock",
        what="a node's clock tells that a lease is over",
        patches=((ReadLeases, "_in_force", _by_own_clock),),
    ),
    ReadMutant(
        name="read-ended-though-renewed",
        what="a lease that was too old is ended, though it was renewed since it was looked at",
        patches=((ReadLeases, "_in_force", _ended_though_renewed),),
        hours=True,
    ),
    ReadMutant(
        name="read-as-listed",
        what="a lease that was too old when it was listed is ended, though it was renewed before it was read",
        patches=((ReadLeases, "_in_force", _as_listed),),
        hours=True,
    ),
    ReadMutant(
        name="read-ended-by-anybody",
        what="a client ends the job of another one",
        patches=((ReadLeases, "end", _ended_by_anybody),),
    ),
    ReadMutant(
        name="read-any-digest",
        what="what lies under the name of a job's files is taken for them",
        patches=((ReadFiles, "from_bytes", classmethod(_any_digest)),),
    ),
    ReadMutant(
        name="read-orphans-kept",
        what="files of a job that never got its lease lie for ever",
        patches=((leases, "_is_orphaned", _never),),
    ),
    ReadMutant(
        name="read-clocks-kept",
        what="what somebody made to look at the store's clock, and did not live to remove, lies for ever",
        patches=((leases, "left_clocks", _no_clocks),),
    ),
)


def read_caught_by(name: str, seeds: int) -> tuple[int, str] | None:
    """The first seed that finds the mutant of that name, of the first so many of its kind, and what it sees."""
    (mutant,) = (one for one in READ_MUTANTS if one.name == name)
    with mutant.applied():
        for seed in range(2 if mutant.hours else 1, 2 * seeds + 1, 2):
            wrong = ReadSimulation(seed).run().wrong
            if wrong:
                return seed, wrong[0]
    return None
