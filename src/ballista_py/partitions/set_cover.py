"""Chooses the fewest executors that together hold the partitions a query needs.

Greedy minimum set cover, found in three ways that give the same picks: partitions of one owner each need no
choice, few partitions are covered level by level of gain, many with counts in arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from attrs import frozen

from ballista_py.errors import PartitionsUnassigned
from ballista_py.one_line import one_line
from ballista_py.partitions.map import NOBODY, Owner, PartitionMap
from ballista_py.partitions.value_index import Ids

SHOWN_PARTITIONS = 5
# Below so many partitions, or so many per executor, lists are quicker than arrays.
LISTS_BELOW_PARTITIONS = 100
LISTS_BELOW_PER_EXECUTOR = 4


@frozen
class SetCoverSelector:
    """Greedy minimum set cover, ties by the smallest executor id; the same answer on every machine.

    >>> SetCoverSelector().select([3, 7, 9], {3: ["a", "b"], 7: ["b"], 9: ["c", "b"]})
    {'b': [3, 7, 9]}
    """

    def select(self, required: Sequence[int], owners: Mapping[int, Sequence[str]]) -> dict[str, list[int]]:
        """Executor id to its partitions, both ascending: each required partition stands in exactly one list.

        Raises `PartitionsUnassigned` if a required partition has no owner.
        """
        wanted = sorted(set(required))
        held = [owners.get(partition) or () for partition in wanted]
        uncovered = [partition for partition, names in zip(wanted, held, strict=True) if not names]
        if uncovered:
            raise unassigned(uncovered)
        names = sorted({name for row in held for name in row})
        places = {name: place for place, name in enumerate(names)}
        width = max((len(row) for row in held), default=1)
        holders = np.full((len(wanted), width), NOBODY, np.int32)
        for place in range(width):
            holders[:, place] = [places[row[place]] if place < len(row) else NOBODY for row in held]
        chosen = cover(holders, len(names))
        return {names[place]: [wanted[row] for row in rows.tolist()] for place, rows in chosen.items()}

    def select_from(self, pmap: PartitionMap, required: Ids, live: Collection[Owner]) -> dict[str, Ids]:
        """As `select`, over the owners and replicas of a map that are among the instances `live`, all in arrays.

        Raises `PartitionsUnassigned`, with the first few values, if nobody live holds a required partition.
        """
        wanted = np.unique(np.asarray(required, np.int32))
        names = sorted({executor_id for executor_id, _ in pmap.executors})
        renamed = [names.index(owner[0]) if owner in live else NOBODY for owner in pmap.executors]
        holders = np.array([*renamed, NOBODY], np.int32)[pmap.owner_index[wanted]]
        uncovered = wanted[(holders == NOBODY).all(axis=1)]
        if len(uncovered):
            raise unassigned(uncovered.tolist(), [pmap.path(p) for p in uncovered[:SHOWN_PARTITIONS].tolist()])
        return {names[place]: wanted[rows] for place, rows in cover(holders, len(names)).items()}


def unassigned(partitions: Sequence[int], shown: Sequence[str] | None = None) -> PartitionsUnassigned:
    """The error for partitions that nobody holds now; `shown` are the values of the first few."""
    named = [str(partition) for partition in list(partitions)[:SHOWN_PARTITIONS]] if shown is None else list(shown)
    more = ", …" if len(partitions) > len(named) else ""
    return PartitionsUnassigned(
        f"Cannot execute query: {len(partitions)} partition(s) not assigned to any executor "
        f"({', '.join(named)}{more})",
        partitions=[int(partition) for partition in partitions],
    )


def without_room(table: str, first: str, lacking: int, asked: int) -> PartitionsUnassigned:
    """The error for new partition values that no executor takes; `first` is one of those that are `lacking`.

    >>> print(without_room("t", "day=2024-01-01", 500, 1_500).message.partition(":")[0])
    500 of 1,500 new partition values of table 't' have no executor (day=2024-01-01 and others)
    """
    shown = one_line(first, 80)
    return PartitionsUnassigned(
        f"{lacking:,} of {asked:,} new partition values of table '{table}' have no executor ({shown} and others): "
        "there is none, or each holds as many partitions of the table as it may; add executors, raise "
        "max_partitions_per_executor of the schedulers, or partition the table by bucket(N, column)"
    )


def cover(holders: npt.NDArray[np.int32], count: int) -> dict[int, npt.NDArray[np.int64]]:
    """The greedy cover of the rows of `holders` (places below `count`, or -1): place to its rows, in order."""
    holders = _distinct(holders)
    if not (holders[:, 1:] >= 0).any():
        return _grouped(holders[:, 0], count)
    if len(holders) < max(LISTS_BELOW_PARTITIONS, LISTS_BELOW_PER_EXECUTOR * count):
        return _by_levels(holders, count)
    return _by_counts(holders, count)


def _by_counts(holders: npt.NDArray[np.int32], count: int) -> dict[int, npt.NDArray[np.int64]]:
    full = bool((holders >= 0).all())
    rows_of, ends = _rows_by_holder(holders, count)
    gains = np.diff(ends)
    chosen = np.full(len(holders), NOBODY, np.int32)
    left = len(holders)
    while left:
        # The first of the greatest: ties go to the smallest executor id.
        best = int(np.argmax(gains))
        rows = rows_of[ends[best] : ends[best + 1]]
        rows = rows[chosen.take(rows) == NOBODY]
        chosen[rows] = best
        left -= len(rows)
        held = holders.take(rows, axis=0).ravel()
        gains -= np.bincount(held if full else held[held >= 0], minlength=count)
    return _grouped(chosen, count)


def _by_levels(holders: npt.NDArray[np.int32], count: int) -> dict[int, npt.NDArray[np.int64]]:
    held: list[list[int]] = [[] for _ in range(count + 1)]
    for row, places in enumerate(holders.tolist()):
        for place in places:
            held[place].append(row)
    left = len(holders)
    # What each place would cover, or would have before other picks: looked at again when its turn comes.
    levels: list[list[int]] = [[] for _ in range(max(map(len, held[:count])) + 1)]
    for place in range(count):
        levels[len(held[place])].append(place)
    chosen = [NOBODY] * len(holders)
    for promised in range(len(levels) - 1, 0, -1):
        for place in sorted(levels[promised]):
            gain = [row for row in held[place] if chosen[row] < 0]
            if len(gain) != promised:
                levels[len(gain)].append(place)
                continue
            for row in gain:
                chosen[row] = place
            left -= promised
        if not left:
            break
    return _grouped(np.array(chosen, np.int32), count)


def _grouped(chosen: npt.NDArray[np.int32], count: int) -> dict[int, npt.NDArray[np.int64]]:
    order = np.argsort(chosen.astype(np.uint16) if count < 1 << 16 else chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=count))
    starts = ends - np.diff(ends, prepend=0)
    return {place: order[starts[place] : ends[place]] for place in np.flatnonzero(ends > starts).tolist()}


def _distinct(holders: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The rows without repeats, and with a holder in the first column."""
    distinct = holders
    for place in range(1, holders.shape[1]):
        again = (holders[:, :place] == holders[:, place : place + 1]).any(axis=1) & (holders[:, place] >= 0)
        if again.any():
            distinct = distinct.copy() if distinct is holders else distinct
            distinct[again, place] = NOBODY
    return distinct if (distinct[:, 0] >= 0).all() else -np.sort(-distinct, axis=1)


def _rows_by_holder(holders: npt.NDArray[np.int32], count: int) -> tuple[Ids, npt.NDArray[np.int64]]:
    """The rows of each holder, one holder after the other, and where each begins."""
    flat = holders.ravel()
    places = flat.astype(np.uint16) if count < 1 << 16 else np.where(flat < 0, count, flat)
    # What is held by nobody sorts last.
    order = np.argsort(places, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(flat[flat >= 0], minlength=count))])
    return (order[: ends[-1]] // holders.shape[1]).astype(np.int32), ends
