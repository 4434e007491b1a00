"""What an executor was told to hold of one table and what it holds: values, and the decisions over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from attrs import Factory, evolve, frozen

from ballista_py.errors import BallistaError
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.estimate.statistics import Range
from ballista_py.sql.plan import LegTable
from ballista_py.state.members.control import HeldPartitions, PartitionAssignment, UpdatePartitions
from ballista_py.storage.formats.column_bounds import merged_ranges, some

MAX_TOLD = 64  # partitions whose ranges are looked at for those of a table
FIRST_RETRY_MS = 1_000.0
LONGEST_RETRY_MS = 30_000.0
MOST_EMPTY = 256  # tables


@frozen(kw_only=True)
class Held:
    """A partition as it was hydrated: for which assignment, from which revision of its manifest, which files.

    `version` is the store's of that manifest. A replica holds all that was committed before `checked_ms`, and all
    statements up to the sequence `known_to`.

    `prepared` are attempts at statements that are prepared there, `outside` those of the data pipeline. It holds
    files of the past until `past_ms` at most.
    """

    assignment: PartitionAssignment
    revision: int
    files: Mapping[str, int]  # path -> file id
    rows: int = 0
    bytes: int = 0
    ranges: Mapping[str, Range] = Factory(dict)
    prepared: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    sequence: int = 0
    readable_from: int = 0
    spans: Mapping[str, tuple[int, int | None, int]] = Factory(dict)  # path -> added, removed, file id
    version: str = ""
    checked_ms: float = float("-inf")
    known_to: int = -1
    past_ms: float | None = None

    def file_ids(self, sequence: int | None) -> list[int]:
        """The files that hold the rows as of `sequence` of the table's statements (None: as they are now)."""
        if sequence is None or sequence >= self.sequence:
            return list(self.files.values())
        return [
            file_id
            for added, removed, file_id in self.spans.values()
            if added <= sequence and (removed is None or sequence < removed)
        ]

    def loaded_paths(self) -> set[str]:
        """All files that it needs, those of earlier sequences too."""
        return self.files.keys() | self.spans.keys()


@frozen(kw_only=True)
class Failure:
    """Why an assignment could not be carried out, and when it is tried again.

    It is `damage` when something of the partition is lost or spoilt on the store, so that no other owner could either.
    """

    assignment: PartitionAssignment
    reason: str
    attempts: int
    retry_ms: float
    damage: BallistaError | None = None


@frozen(kw_only=True)
class Holdings:
    """One table at one executor. A partition is *served* while what it was hydrated for is what is wanted.

    `parting` are partitions owned at that epoch of which it was told that another executor is to take them over. That
    stays with the epoch when the move is called off: a scheduler may hear later what was said of it before.
    """

    table: TableSpec
    revision: int = 0
    wanted: Mapping[int, PartitionAssignment] = Factory(dict)
    held: Mapping[int, Held] = Factory(dict)
    failures: Mapping[int, Failure] = Factory(dict)
    stale: frozenset[int] = frozenset()
    parting: Mapping[int, int] = Factory(dict)
    born: int = 0  # a leg that was planned from an older map means an earlier table of this name

    def told(self, update: UpdatePartitions) -> Holdings:
        """After an update; an older one than was heard changes nothing, and no epoch or definition ever falls.

        Of two tables that have the name one after the other, the one that got it later counts.
        """
        if update.table.folder != self.table.folder:
            if _order_of(update.table, update.revision) < _order_of(self.table, self.revision):
                return self
            return Holdings(table=update.table, born=update.revision).told(update)
        if update.revision < self.revision:
            return self
        wanted = {new.partition: self._newer(new) for new in update.partitions}
        return evolve(
            self,
            table=update.table if update.table.definition >= self.table.definition else self.table,
            revision=update.revision,
            wanted=wanted,
            held={p: held for p, held in self.held.items() if p in wanted},
            failures={p: failure for p, failure in self.failures.items() if failure.assignment == wanted.get(p)},
            stale=self.stale & wanted.keys(),
            parting=self._parting(wanted, update.parting),
        )

    def _parting(self, wanted: Mapping[int, PartitionAssignment], told: Iterable[int]) -> Mapping[int, int]:
        named = frozenset(told)
        return {
            p: new.epoch
            for p, new in wanted.items()
            if new.role == "owner" and (p in named or self.parting.get(p) == new.epoch)
        }

    def _newer(self, assignment: PartitionAssignment) -> PartitionAssignment:
        before = self.wanted.get(assignment.partition)
        return before if before is not None and before.epoch > assignment.epoch else assignment

    def to_hydrate(self, now_ms: float) -> list[PartitionAssignment]:
        """The assignments to carry out now, in order of their partitions."""
        return [
            wanted
            for partition, wanted in sorted(self.wanted.items())
            if (partition in self.stale or not self._is_hydrated(partition)) and self._is_due(partition, now_ms)
        ]

    def without_the_past(self, now_ms: float) -> Holdings:
        """With those partitions to be hydrated again that hold replaced files which no query can need any more."""
        over = [p for p, held in self.held.items() if held.past_ms is not None and held.past_ms <= now_ms]
        return self.refreshed(over) if over else self

    def replicas_checked_ms(self) -> float | None:
        """When the replica that has waited longest was compared with its manifest; None: there are no replicas."""
        return min(
            (held.checked_ms for held in self.held.values() if held.assignment.role == "replica"), default=None
        )

    def hydrated_count(self) -> int:
        """How many of the wanted partitions are held as they are wanted."""
        return len(self._hydrated)

    def _is_hydrated(self, partition: int) -> bool:
        return partition in self._hydrated

    @cached_property
    def _hydrated(self) -> frozenset[int]:
        return frozenset(p for p, held in self.held.items() if held.assignment == self.wanted.get(p))

    def _is_due(self, partition: int, now_ms: float) -> bool:
        failure = self.failures.get(partition)
        return failure is None or failure.retry_ms <= now_ms

    def hydrated(self, held: Held) -> Holdings:
        """With one partition hydrated, if that is still what is wanted."""
        partition = held.assignment.partition
        if self.wanted.get(partition) != held.assignment:
            return self
        return evolve(
            self,
            held={**self.held, partition: held},
            failures=_without(self.failures, partition),
            stale=self.stale - {partition},
        )

    def confirmed(self, partitions: Iterable[int], at_ms: float, sequence: int | None) -> Holdings:
        """With what is held of these known to be all that was committed before `at_ms`, and up to `sequence`."""
        newer = {
            partition: evolve(
                held,
                checked_ms=max(held.checked_ms, at_ms),
                known_to=held.known_to if sequence is None else max(held.known_to, sequence),
            )
            for partition in partitions
            if (held := self.held.get(partition)) is not None
        }
        return evolve(self, held={**self.held, **newer})

    def failed(
        self, assignment: PartitionAssignment, reason: str, now_ms: float, damage: BallistaError | None = None
    ) -> Holdings:
        """With one failure noted, to be tried again later and later."""
        partition = assignment.partition
        if self.wanted.get(partition) != assignment:
            return self
        before = self.failures.get(partition)
        attempts = before.attempts + 1 if before is not None else 1
        wait_ms = min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** min(attempts - 1, 16))
        failure = Failure(
            assignment=assignment, reason=reason, attempts=attempts, retry_ms=now_ms + wait_ms, damage=damage
        )
        return evolve(self, failures={**self.failures, partition: failure})

    def refreshed(self, partitions: Iterable[int] | None = None) -> Holdings:
        """With these (default: all) to be compared with their manifests again; what is held is served meanwhile."""
        stale = self.wanted.keys() if partitions is None else self.wanted.keys() & set(partitions)
        return evolve(self, stale=self.stale | stale)

    def folded(self, partitions: Iterable[int] | None = None) -> int:
        """The sequence of the newest statement that was folded into any of these (default: all) as they are held."""
        held = self.held.values() if partitions is None else [self.held[p] for p in partitions if p in self.held]
        return max((one.sequence for one in held), default=0)

    def emptied(self) -> Holdings:
        """With nothing held of what is wanted: it is hydrated anew."""
        return evolve(self, held={}, stale=frozenset())

    def is_behind(self, partition: int, epoch: int, revision: int) -> bool:
        """Whether what is held of the partition is from before this revision, committed by this very owner."""
        held, wanted = self.held.get(partition), self.wanted.get(partition)
        if wanted is None or wanted.role != "owner" or wanted.epoch != epoch:
            return False
        return held is not None and held.assignment == wanted and held.revision < revision

    def not_owned(self, wanted: LegTable) -> list[int]:
        """The partitions of a write that this executor may not change at the epochs asked for."""
        refused = set(wanted.partitions if self._is_another(wanted) else self._not_served(wanted))
        return [p for p in wanted.partitions if p in refused or self.wanted[p].role != "owner"]

    def not_served(self, wanted: LegTable) -> list[int]:
        """The partitions of a leg that this executor may not answer for.

        An owner answers for its very epoch. A replica, which nobody fences, answers for any epoch up to the newest
        that it was told.
        """
        if self._is_another(wanted) or wanted.definition != self.table.definition:
            return list(wanted.partitions)
        return self._not_served(wanted)

    def _is_another(self, wanted: LegTable) -> bool:
        """Whether another table of this name is meant. Earlier releases say so by the revision of its map alone."""
        if wanted.incarnation:
            return wanted.incarnation != self.table.incarnation
        return wanted.revision < self.born

    def _not_served(self, wanted: LegTable) -> list[int]:
        return [
            partition
            for partition, epoch in zip(wanted.partitions, wanted.epochs, strict=True)
            if not self._serves(partition, epoch)
            or (wanted.sequence is not None and wanted.sequence < self.held[partition].readable_from)
        ]

    def _serves(self, partition: int, epoch: int) -> bool:
        if not self._is_hydrated(partition):
            return False
        assignment = self.wanted[partition]
        if assignment.role == "replica":
            return epoch <= assignment.epoch
        return assignment.role == "owner" and epoch == assignment.epoch

    @cached_property
    def loaded_paths(self) -> frozenset[str]:
        """All files that its partitions need."""
        return frozenset(path for held in self.held.values() for path in held.loaded_paths())

    def file_ids(self, wanted: LegTable) -> list[int]:
        """The files of hydrated partitions, as of the leg's sequence."""
        return [file_id for p in wanted.partitions for file_id in self.held[p].file_ids(wanted.sequence)]

    @cached_property
    def report(self) -> HeldPartitions:
        """What heartbeats say of this table."""
        hydrated = sorted(self._hydrated)
        active = [p for p in hydrated if self.wanted[p].role != "target"]
        return HeldPartitions(
            table=self.table.folder,
            revision=self.revision,
            active=tuple(active),
            epochs=tuple(self.wanted[p].epoch for p in active),
            loaded=tuple(p for p in hydrated if self.wanted[p].role == "target"),
            parting=self.parting,
            failed={p: failure.reason for p, failure in sorted(self.failures.items())},
            rows=tuple(self.held[p].rows for p in active),
            bytes=tuple(self.held[p].bytes for p in active),
            ranges=merged_ranges(self.held[p].ranges for p in some(active, MAX_TOLD)),
        )


def _order_of(table: TableSpec, revision: int) -> tuple[int, int]:
    """Which of two tables of one name is the later one; those that earlier releases made share one map."""
    return table.named, 0 if table.named else revision


def _without(failures: Mapping[int, Failure], partition: int) -> Mapping[int, Failure]:
    if partition not in failures:
        return failures
    return {p: failure for p, failure in failures.items() if p != partition}


def told(tables: dict[str, Holdings], update: UpdatePartitions) -> dict[str, Holdings]:
    """What is held after an update; itself if that changes nothing. A table that was renamed is held under one name."""
    name, folder = update.table.name, update.table.folder
    known = next((one for key, one in tables.items() if key != name and one.table.folder == folder), None)
    if known is not None and known.table.named >= update.table.named:
        return tables
    before = tables.get(name) or Holdings(table=update.table)
    after = before.told(update)
    if after is before:
        return tables
    return with_told({key: one for key, one in tables.items() if one is not known}, after)


def with_told(tables: Mapping[str, Holdings], told: Holdings) -> dict[str, Holdings]:
    """What is held, with what was told of one table, in the order in which they were told last.

    Of the tables of which nothing is here only the last are kept: most of them were dropped long ago. Of the others an
    update that comes late is known by its revision; later than so many more it is known by its epochs alone, which
    whatever is read and written names.
    """
    found = {**{name: one for name, one in tables.items() if name != told.table.name}, told.table.name: told}
    for name in [name for name, one in found.items() if not (one.wanted or one.held)][:-MOST_EMPTY]:
        del found[name]
    return found
