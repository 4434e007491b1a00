"""The decision inside the assigner: which executor is to hold each item, in one role after the other.

Items with a holder stay, items without one go back to where they were or to the least loaded, and afterwards only
the excess is shed. The same input gives the same decision on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from ballista_py.partitions.assignment.first_fit import place
from ballista_py.partitions.assignment.rebalance import even_out, shed, swap
from ballista_py.partitions.assignment.state import (
    KEPT,
    PLACED,
    RETURNED,
    SHED,
    TOLERANCE,
    Counts,
    Fleet,
    Floats,
    Items,
    Places,
    State,
    improves,
    shares_zone,
)


@frozen(kw_only=True, eq=False)
class Balance:
    """The decision for one role: `home` per item (-1: no room), why (`KEPT`, …), and the loads that result."""

    home: Places
    before: Places
    reasons: npt.NDArray[np.int8]
    loads: Floats
    shares: Floats
    cap: int

    def explain(self, item: int, names: Sequence[str]) -> str:
        """The end of a sentence about one item."""
        home, before, reason = int(self.home[item]), int(self.before[item]), int(self.reasons[item])
        if home < 0:
            why = (
                "there is no executor" if not names else f"every executor drains or holds {self.cap:,} partitions"
            )
            return f"is not placed: {why}"
        load = f"whose load is {self.loads[home]:.6g} of a fair share of {self.shares[home]:.6g}"
        if reason == SHED:
            return f"moves from {names[before]} to {names[home]}, {load}: {names[before]} held more than its share"
        if reason == RETURNED:
            return f"returns to {names[home]}, {load}, which held it before it restarted"
        if reason == PLACED:
            return f"goes to {names[home]}, {load}: it had no live owner and that was the least loaded executor"
        return f"stays with {names[home]}, {load}: its owner is alive and has room"


def balance(items: Items, fleet: Fleet, taken: Places | None = None) -> Balance:
    """Holders for all items in one role; `taken` has a column of holders for each role decided before."""
    taken = np.empty((len(items.home), 0), np.int32) if taken is None else taken
    free, crowded = _apart(items, fleet, taken)
    state = State.of(free, fleet, taken)
    if fleet.capacities.any():
        _return_home(state, free)
        place(state, np.flatnonzero(state.home < 0), PLACED)
        shed(state)
        even_out(state)
        swap(state)
        _stay_if_still_crowded(state, crowded, items.home)
        before = np.where(_held_twice(items, taken), -1, items.home).astype(np.int32)
        if not (np.array_equal(state.home, before) or improves(state.home, before, state.weights, fleet, taken)):
            state = State.of(evolve(items, home=before), fleet, taken)
    moved = state.home != items.home
    reasons = np.where(moved, state.reasons, KEPT).astype(np.int8)
    reasons[moved & (items.home < 0) & (reasons == SHED)] = PLACED
    return Balance(
        home=state.home,
        before=items.home,
        reasons=reasons,
        loads=state.loads,
        shares=state.shares,
        cap=fleet.cap,
    )


def _apart(items: Items, fleet: Fleet, taken: Places) -> tuple[Items, Counts]:
    """The items, without a home those whose holder has them in another role or shares a zone without need.

    The second value names the latter.
    """
    crowded = np.empty(0, np.int64)
    if not taken.shape[1]:
        return items, crowded
    home = np.where(_held_twice(items, taken), -1, items.home).astype(np.int32)
    if fleet.zones is not None and len(fleet.zones):
        shared = np.flatnonzero(shares_zone(home, fleet.zones, taken))
        open_zones = set(fleet.zones[fleet.capacities > 0].tolist())
        held = np.where(taken[shared] >= 0, fleet.zones[taken[shared]], -1).tolist()
        crowded = shared[np.array([not open_zones.issubset(zones) for zones in held], np.bool_)]
        home[crowded] = -1
    return evolve(items, home=home), crowded


def _held_twice(items: Items, taken: Places) -> npt.NDArray[np.bool_]:
    """Which items are with an executor that holds them in another role."""
    return np.asarray((taken == items.home[:, None]).any(axis=1) & (items.home >= 0))


def _stay_if_still_crowded(state: State, crowded: Counts, home: Places) -> None:
    """What left its holder for the sake of another zone, and found none with room, stays where it was."""
    zones = state.fleet.zones
    if zones is None or not len(crowded):
        return
    for item in crowded[shares_zone(state.home[crowded], zones, state.taken[crowded])].tolist():
        if state.home[item] != home[item] and state.counts[home[item]] < state.fleet.cap:
            state.give(item, int(home[item]), KEPT)


def _return_home(state: State, items: Items) -> None:
    """Orphans whose executor restarted go back to it, as far as its share and the cap allow."""
    back = np.flatnonzero(state.home < 0)
    back = back[items.preferred[back] >= 0]
    back = back[(state.taken[back] != items.preferred[back][:, None]).all(axis=1)]
    if not len(back):
        return
    back = state.heaviest_first(back)
    back = back[np.argsort(items.preferred[back], kind="stable")]
    to = items.preferred[back]
    start = np.flatnonzero(np.diff(to, prepend=-1))
    lengths = np.diff(start, append=len(back))
    place_in_line = np.arange(len(back)) - np.repeat(start, lengths)
    sums = np.cumsum(state.weights[back])
    sums -= np.repeat(sums[start] - state.weights[back[start]], lengths)
    alone = (place_in_line == 0) & (state.counts[to] == 0) & (state.shares[to] > 0)
    fits = alone | (state.loads[to] + sums <= state.shares[to] * (1 + TOLERANCE))
    fits &= place_in_line < state.fleet.cap - state.counts[to]
    state.give_all(back[fits], to[fits], RETURNED)


def order_of(items: Items, changed: Counts) -> Counts:
    """The items to change, those without a live holder first, heavier before lighter, else as given."""
    orphaned = items.home[changed] < 0
    if len(changed) == 0 or (orphaned.all() and (items.weights[changed] == items.weights[changed[0]]).all()):
        return changed
    return changed[np.lexsort((-items.weights[changed], ~orphaned))]
