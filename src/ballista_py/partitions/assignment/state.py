"""The working state of one assignment: items, executors, and who is to hold what, as plain arrays.

An item is a partition, or the partitions of equal value of a co-location group. `assign_place` and `assign_even`
change the state; `assign_balance` runs them in order.

Whether one decision of the assigner is better than another: what ends its moves.

Each step looks only at a few executors, so two of them could undo each other for ever. What is strictly better by one
order over all states cannot come back to where it was.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import define, frozen

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TOLERANCE = 0.05
EMPTY_SHARE = 1e-3
KEPT, PLACED, RETURNED, SHED = range(4)


@frozen(kw_only=True, eq=False)
class Items:
    """What is to have a holder. `home` is where it is or is heading to (-1: nowhere); only `settled` items may be
    moved on; `preferred` is where an orphan was before its executor restarted (-1: none)."""

    weights: Floats
    home: Places
    settled: Flags
    preferred: Places


@frozen(kw_only=True, eq=False)
class Fleet:
    """The executors: capacities, the most items one may hold, and the zone of each (None: nobody asked).

    Equally loaded ones are taken in the order of `rank`.
    """

    capacities: Floats
    cap: int
    rank: Counts
    zones: Places | None = None

    @classmethod
    def of(cls, capacities: Sequence[float], cap: int, name: str, zones: Sequence[str] | None = None) -> Fleet:
        """A fleet whose first among equals depends on the table's name, so that small tables spread."""
        count = len(capacities)
        start = zlib.crc32(name.encode()) % count if count else 0
        numbers = {zone: number for number, zone in enumerate(sorted(set(zones or ())))}
        return cls(
            capacities=np.array(capacities, np.float64),
            cap=cap,
            rank=(np.arange(count) - start) % max(1, count),
            zones=None if zones is None else np.array([numbers[zone] for zone in zones], np.int32),
        )


@define(eq=False, kw_only=True)
class State:
    """Who is to hold what by now. `taken` names, per item, the executors that hold it in another role.

    `movable` items may go elsewhere; `homeless` ones had no holder before, so that going anywhere costs the same.
    """

    weights: Floats
    home: Places
    movable: Flags
    homeless: Flags
    reasons: npt.NDArray[np.int8]
    loads: Floats
    counts: Counts
    shares: Floats
    fleet: Fleet
    taken: Places

    @classmethod
    def of(cls, items: Items, fleet: Fleet, taken: Places) -> State:
        """The state before any decision; holders in other roles count as load."""
        count = len(fleet.capacities)
        weights = _effective(items.weights)
        placed = items.home >= 0
        homes, own = (items.home, weights) if placed.all() else (items.home[placed], weights[placed])
        loads = np.bincount(homes, own, count).astype(np.float64)
        counts = np.bincount(homes, minlength=count)
        for column in taken.T:
            held = column >= 0
            loads += np.bincount(column[held], weights[held], count)
            counts += np.bincount(column[held], minlength=count)
        total = float(fleet.capacities.sum())
        roles = 1 + taken.shape[1]
        return cls(
            weights=weights,
            home=items.home.copy(),
            movable=items.settled | ~placed,
            homeless=~placed,
            reasons=np.full(len(weights), KEPT, np.int8),
            loads=loads,
            counts=counts,
            shares=roles * float(weights.sum()) * fleet.capacities / total if total else np.zeros(count),
            fleet=fleet,
            taken=taken,
        )

    def give(self, item: int, place: int, reason: int) -> None:
        """Make `place` the holder of one item."""
        old = int(self.home[item])
        if old >= 0:
            self.loads[old] -= self.weights[item]
            self.counts[old] -= 1
        self.home[item] = place
        self.reasons[item] = reason
        self.loads[place] += self.weights[item]
        self.counts[place] += 1

    def take_back(self, items: Counts) -> None:
        """Leave the items without a holder."""
        self._count(items, -1)
        self.home[items] = -1

    def give_all(self, items: Counts, homes: Places, reason: int) -> None:
        """Make `homes` the holders of items that have none; -1 leaves one without."""
        self.home[items] = homes
        given = items[homes >= 0]
        self.reasons[given] = reason
        self._count(given, 1)

    def heaviest_first(self, items: Counts) -> Counts:
        """The items by weight, those of equal weight in order."""
        weights = self.weights[items]
        if len(items) < 2 or (weights[1:] <= weights[:-1]).all():
            return items
        return items[np.argsort(-weights, kind="stable")]

    def _count(self, items: Counts, sign: int) -> None:
        homes, count = self.home[items], len(self.loads)
        self.loads += sign * np.bincount(homes, self.weights[items], count)
        self.counts += sign * np.bincount(homes, minlength=count)


def _effective(weights: Floats) -> Floats:
    """Weights for balancing: an empty partition still costs a little, so that empty ones spread as well."""
    total = float(weights.sum())
    if total == 0:
        return np.ones(len(weights))
    least = EMPTY_SHARE * total / len(weights)
    return weights if float(weights.min()) >= least else np.asarray(np.maximum(weights, least))


DIGITS = 9


def improves(new: Places, old: Places, weights: Floats, fleet: Fleet, taken: Places) -> bool:
    """Whether the holders `new` are strictly better than `old` (-1: nobody), given the holders in other roles.

    First it counts who has no holder, then what is above the cap, what is on drained executors, what shares a zone
    without need, and at last the loads relative to capacities, the highest first.
    """
    fewer = int((old < 0).sum()) - int((new < 0).sum())
    if fewer:
        return fewer > 0
    return _standing(new, weights, fleet, taken) < _standing(old, weights, fleet, taken)


def shares_zone(home: Places, zones: Places, taken: Places) -> Flags:
    """Which items have a holder whose zone is that of a holder in another role."""
    held = np.where(taken >= 0, zones[taken], -1)
    return np.asarray((held == zones[home][:, None]).any(axis=1) & (home >= 0))


def _standing(home: Places, weights: Floats, fleet: Fleet, taken: Places) -> tuple[float, ...]:
    count = len(fleet.capacities)
    loads, counts = np.zeros(count), np.zeros(count, np.int64)
    for column in (home, *taken.T):
        held = column >= 0
        loads += np.bincount(column[held], weights[held], count)
        counts += np.bincount(column[held], minlength=count)
    usable = fleet.capacities > 0
    over = int(np.maximum(0, counts - fleet.cap).sum())
    drained = int(counts[~usable].sum())
    crowded = 0 if fleet.zones is None else int(shares_zone(home, fleet.zones, taken).sum())
    total = float(weights.sum())
    levels = loads[usable] / fleet.capacities[usable] / (total or 1.0)
    # Rounded, or sums in another order would be called better.
    return over, drained, crowded, *np.round(np.sort(levels)[::-1], DIGITS).tolist()
