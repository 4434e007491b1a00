"""Which tables needed nothing when they were last planned for, so that the same maps need not be planned for again.

A plan is a function of the maps of a co-location group and of the executors. While no partition is on its way, nothing
that executors report can change it. So where nothing was to be done, nothing is, until a map or an executor is another
one: no clock and no bound is needed for it to be true.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attrs import frozen

from ballista_py.partitions.assignment.assigner import Executor
from ballista_py.partitions.map import NOBODY, PartitionMap


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
