"""Chooses the fewest executors that together hold the partitions a query needs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from attrs import frozen

from ballista_py.errors import PartitionsUnassigned

SHOWN_PARTITIONS = 5


@frozen
class SetCoverSelector:
    """Greedy minimum set cover, ties by the smallest executor id; the same answer on every machine.

    >>> SetCoverSelector().select([3, 7, 9], {3: ["a", "b"], 7: ["b"], 9: ["c", "b"]})
    {'b': [3, 7, 9]}
    """

    def select(self, required: Sequence[int], owners: Mapping[int, Sequence[str]]) -> dict[str, list[int]]:
        """Executor id to its partitions, ascending: each required partition stands in exactly one list.

        Raises `PartitionsUnassigned` if a required partition has no owner.
        """
        wanted = sorted(set(required))
        uncovered = [partition for partition in wanted if not owners.get(partition)]
        if uncovered:
            raise unassigned(uncovered)
        holders: dict[str, list[int]] = {}
        for partition in wanted:
            for executor_id in set(owners[partition]):
                holders.setdefault(executor_id, []).append(partition)
        return _greedy(wanted, holders)


def unassigned(partitions: Sequence[int]) -> PartitionsUnassigned:
    """The error for partitions that nobody holds now."""
    shown = ", ".join(str(partition) for partition in list(partitions)[:SHOWN_PARTITIONS])
    more = ", …" if len(partitions) > SHOWN_PARTITIONS else ""
    return PartitionsUnassigned(
        f"Cannot execute query: {len(partitions)} partition(s) not assigned to any executor ({shown}{more})",
        partitions=[int(partition) for partition in partitions],
    )


def _greedy(wanted: Sequence[int], holders: Mapping[str, list[int]]) -> dict[str, list[int]]:
    left = set(wanted)
    heap = [(-len(held), executor_id) for executor_id, held in holders.items()]
    heapq.heapify(heap)
    chosen: dict[str, list[int]] = {}
    while left:
        promised, executor_id = heapq.heappop(heap)
        gain = [partition for partition in holders[executor_id] if partition in left]
        if len(gain) != -promised:
            # An upper bound from before other picks: look again when its turn comes.
            heapq.heappush(heap, (-len(gain), executor_id))
            continue
        chosen[executor_id] = gain
        left.difference_update(gain)
    return dict(sorted(chosen.items()))
