"""Which moves make no progress: their target neither loads the partition nor says that it did.

A move costs nothing while it waits, because the old owner serves on; but it keeps the partition from going anywhere
else. So a target that stands still, or says that it cannot, loses its move, and gets no other for a while.

Which tables needed nothing when they were last planned for, so that the same maps need not be planned for again.

A plan is a function of the maps of a co-location group and of the executors. While no partition is on its way, nothing
that executors report can change it. So where nothing was to be done, nothing is, until a map or an executor is another
one: no clock and no bound is needed for it to be true.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attrs import define, field, frozen

from ballista_py.partitions.assignment.assigner import Executor
from ballista_py.partitions.map import NOBODY, Owner, PartitionMap
from ballista_py.state.members.control import HeldPartitions


@frozen(eq=False)
class _Settled:
    """One table, by the very map, the names of all that share its owners, and the executors that there were."""

    map: PartitionMap
    mates: tuple[str, ...]
    executors: tuple[Executor, ...]


class SettledTables:
    """Remembers the maps for which there was nothing to do. Not for several threads."""

    def __init__(self) -> None:
        self._known: dict[str, _Settled] = {}

    def knows(self, name: str, pmap: PartitionMap, executors: Sequence[Executor] | None = None) -> bool:
        """Whether nothing in this very map is on its way, so that no report says anything of it; with `executors`, and
        whether all that own its partitions are among those."""
        known = self._known.get(name)
        if known is None or known.map is not pmap:
            return False
        return executors is None or known.executors == tuple(executors)

    def has(self, group: Mapping[str, PartitionMap], executors: Sequence[Executor]) -> bool:
        """Whether nothing is to be done for these very maps of one co-location group, with these executors."""
        mates = tuple(group)
        return all(
            (known := self._known.get(name)) is not None
            and known.map is pmap
            and known.mates == mates
            and known.executors == tuple(executors)
            for name, pmap in group.items()
        )

    def note(self, group: Mapping[str, PartitionMap], executors: Sequence[Executor]) -> None:
        """There was nothing to do for these maps. Those in which something moves are not remembered."""
        if all(is_quiet(pmap) for pmap in group.values()):
            for name, pmap in group.items():
                self._known[name] = _Settled(pmap, tuple(group), tuple(executors))

    def forget_all_but(self, names: Collection[str]) -> None:
        """Keep nothing of tables that are no more."""
        self._known = {name: known for name, known in self._known.items() if name in names}


def is_quiet(pmap: PartitionMap) -> bool:
    """Whether no partition of the map is on its way, so that no report can change anything about it."""
    return bool((pmap.target_index == NOBODY).all() and (pmap.former_index == NOBODY).all())


MOVE_TIMEOUT_MS = 600_000.0
FAILED_MOVE_MS = 60_000.0
COOL_DOWN_MS = 600_000.0


@define
class _Waiting:
    """The partitions that one target has yet to load of one table, and when it last got one of them done."""

    partitions: frozenset[int]
    since_ms: float


@define
class MoveWatch:
    """Remembers, on one clock, since when moves stand still. Not for several threads; each scheduler has its own.

    A target that loaded none of its partitions of a table for `timeout_ms` loses all of them; one that reports a
    failure loses that partition when the failure has lasted for `failed_ms`. Either way no move goes there for
    `cool_down_ms`.
    """

    timeout_ms: float = MOVE_TIMEOUT_MS
    failed_ms: float = FAILED_MOVE_MS
    cool_down_ms: float = COOL_DOWN_MS
    _waiting: dict[tuple[str, Owner], _Waiting] = field(factory=dict, init=False)
    _failing: dict[tuple[str, Owner, int], float] = field(factory=dict, init=False)
    _resting: dict[Owner, float] = field(factory=dict, init=False)

    def stalled(
        self,
        pmap: PartitionMap,
        reports: Mapping[Owner, Sequence[HeldPartitions]],
        now_ms: float,
        folder: str | None = None,
    ) -> dict[int, Owner]:
        """The moves of the table to call off now, by partition, with the target that loses it.

        `folder` is what reports call the table (default: its name).
        """
        table = pmap.table
        found: dict[int, Owner] = {}
        waiting = _targets(pmap)
        self._waiting = {key: seen for key, seen in self._waiting.items() if key[0] != table or key[1] in waiting}
        failing: dict[tuple[str, Owner, int], float] = {}
        for target, partitions in waiting.items():
            seen = self._waiting.get((table, target))
            if seen is None or seen.partitions - partitions:
                seen = _Waiting(partitions, now_ms)
            self._waiting[table, target] = _Waiting(partitions, seen.since_ms)
            if now_ms - seen.since_ms >= self.timeout_ms:
                found.update(dict.fromkeys(partitions, target))
            for partition in partitions & _failed(folder or table, reports.get(target, ())):
                since_ms = failing[table, target, partition] = self._failing.get(
                    (table, target, partition), now_ms
                )
                if now_ms - since_ms >= self.failed_ms:
                    found[partition] = target
        self._failing = {key: since for key, since in self._failing.items() if key[0] != table} | failing
        self._resting.update((target, now_ms + self.cool_down_ms) for target in found.values())
        return found

    def resting(self, now_ms: float) -> frozenset[Owner]:
        """The executors that no move goes to now."""
        self._resting = {owner: until for owner, until in self._resting.items() if now_ms < until}
        return frozenset(self._resting)


def _targets(pmap: PartitionMap) -> dict[Owner, frozenset[int]]:
    """Which partitions each executor is to take over and does not own yet."""
    moving = (pmap.target_index != NOBODY) & (pmap.target_index != pmap.owner_index[:, 0])
    places = set(pmap.target_index[moving].tolist())
    return {
        pmap.executors[place]: frozenset(((pmap.target_index == place) & moving).nonzero()[0].tolist())
        for place in sorted(places)
    }


def _failed(table: str, held: Sequence[HeldPartitions]) -> set[int]:
    return {partition for report in held if report.table == table for partition in report.failed}
