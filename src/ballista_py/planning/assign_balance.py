"""The decision inside the assigner, over plain arrays: which executor is to be the home of each item.

An item is a partition, or the partitions of equal value of a co-location group. Items with a home stay, items
without one go to the executor they came from or to the least loaded, and afterwards only the excess is shed.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import define, frozen

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int32]
Order = npt.NDArray[np.int64]

TOLERANCE = 0.05
EMPTY_SHARE = 1e-3
ROUNDS_FROM_EXECUTORS = 48

KEPT, PLACED, RETURNED, SHED, STUCK = range(5)


@frozen(kw_only=True)
class Items:
    """What is to have a home. `home` is where it is or is heading to (-1: nowhere); only `settled` items may be
    moved on; `preferred` is where an orphan was before its executor restarted (-1: none)."""

    weights: Floats
    home: Places
    settled: npt.NDArray[np.bool_]
    preferred: Places


@frozen(kw_only=True)
class Fleet:
    """The executors: capacities and the most items one may hold. Equally loaded ones are taken in `rank` order."""

    capacities: Floats
    cap: int
    rank: npt.NDArray[np.int64]

    @classmethod
    def of(cls, capacities: Sequence[float], cap: int, name: str) -> Fleet:
        """A fleet whose first among equals depends on the table's name, so that small tables spread."""
        count = len(capacities)
        start = zlib.crc32(name.encode()) % count if count else 0
        rank = (np.arange(count) - start) % max(1, count)
        return cls(capacities=np.array(capacities, np.float64), cap=cap, rank=rank)


@frozen(kw_only=True, eq=False)
class Balance:
    """The decision: `home` per item (-1: no room), why (`KEPT`, …), and the loads that result."""

    home: Places
    before: Places
    reasons: npt.NDArray[np.int8]
    loads: Floats
    shares: Floats
    counts: npt.NDArray[np.int64]
    cap: int

    def order(self, items: Items) -> Order:
        """The items, those without a live home first, heavier before lighter, else as given."""
        changed = np.flatnonzero((self.reasons != KEPT) | ~items.settled)
        orphaned = self.before[changed] < 0
        return changed[np.lexsort((changed, -items.weights[changed], ~orphaned))]

    def explain(self, item: int, names: Sequence[str]) -> str:
        """The end of a sentence about one item."""
        home, before, reason = int(self.home[item]), int(self.before[item]), int(self.reasons[item])
        if home < 0:
            why = (
                "there is no executor" if not names else f"every executor holds {self.cap:,} partitions or drains"
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


def balance(items: Items, fleet: Fleet) -> Balance:
    """Homes for all items: nothing twice, the cap kept, deterministic."""
    weights = _effective(items.weights)
    state = _State.of(items, weights, fleet)
    if len(fleet.capacities) and fleet.capacities.any():
        _return_home(state, items)
        _place(state, np.flatnonzero(state.home < 0), PLACED)
        _shed(state, items)
        _even_out(state, items)
    return Balance(
        home=state.home,
        before=items.home,
        reasons=state.reasons,
        loads=state.loads,
        shares=state.shares,
        counts=state.counts,
        cap=fleet.cap,
    )


@define(eq=False)
class _State:
    weights: Floats
    home: Places
    reasons: npt.NDArray[np.int8]
    loads: Floats
    counts: npt.NDArray[np.int64]
    shares: Floats
    fleet: Fleet

    @classmethod
    def of(cls, items: Items, weights: Floats, fleet: Fleet) -> _State:
        count = len(fleet.capacities)
        placed = items.home >= 0
        homes = items.home[placed]
        total = fleet.capacities.sum()
        return cls(
            weights=weights,
            home=items.home.copy(),
            reasons=np.full(len(weights), KEPT, np.int8),
            loads=np.bincount(homes, weights[placed], count).astype(np.float64),
            counts=np.bincount(homes, minlength=count),
            shares=weights.sum() * fleet.capacities / total if total else np.zeros(count),
            fleet=fleet,
        )

    def give(self, item: int, place: int, reason: int) -> None:
        old = int(self.home[item])
        if old >= 0:
            self.loads[old] -= self.weights[item]
            self.counts[old] -= 1
        self.home[item] = place
        self.reasons[item] = reason
        self.loads[place] += self.weights[item]
        self.counts[place] += 1

    def recount(self) -> None:
        placed = self.home >= 0
        count = len(self.loads)
        self.loads = np.bincount(self.home[placed], self.weights[placed], count).astype(np.float64)
        self.counts = np.bincount(self.home[placed], minlength=count)


def _effective(weights: Floats) -> Floats:
    """Weights for balancing: an empty partition still costs a little, so that empty ones spread as well."""
    total = float(weights.sum())
    if total == 0:
        return np.ones(len(weights))
    return np.asarray(np.maximum(weights, EMPTY_SHARE * total / len(weights)))


def _heaviest_first(state: _State, items: Order) -> Order:
    weights = state.weights[items]
    if len(items) and (weights == weights[0]).all():
        return items
    return items[np.argsort(-weights, kind="stable")]


def _return_home(state: _State, items: Items) -> None:
    """Orphans whose executor restarted go back to it, as far as its share and the cap allow."""
    back = np.flatnonzero((state.home < 0) & (items.preferred >= 0))
    limit = state.shares * (1 + TOLERANCE)
    for item in _heaviest_first(state, back).tolist():
        place = int(items.preferred[item])
        empty = state.counts[place] == 0
        fits = state.loads[place] + state.weights[item] <= limit[place] or (empty and state.shares[place] > 0)
        if fits and state.counts[place] < state.fleet.cap:
            state.give(item, place, RETURNED)


def _place(state: _State, items: Order, reason: int) -> None:
    """Each item, largest first, onto the executor that is least loaded for its capacity then."""
    items = _heaviest_first(state, items)
    usable = np.flatnonzero(state.fleet.capacities > 0)
    if not len(items) or not len(usable):
        return
    usable = usable[np.argsort(state.fleet.rank[usable])]
    homes = (
        _by_rounds(state, items, usable)
        if len(usable) >= ROUNDS_FROM_EXECUTORS
        else _by_heap(state, items, usable)
    )
    state.home[items] = homes
    state.reasons[items[homes >= 0]] = reason
    state.recount()


def _by_heap(state: _State, items: Order, usable: Order) -> Places:
    capacities = state.fleet.capacities[usable].tolist()
    loads, room = state.loads[usable].tolist(), (state.fleet.cap - state.counts[usable]).tolist()
    heap = [(loads[rank] / capacities[rank], rank) for rank in range(len(usable)) if room[rank] > 0]
    heapq.heapify(heap)
    homes: list[int] = []
    for weight in state.weights[items].tolist():
        if not heap:
            break
        rank = heap[0][1]
        homes.append(rank)
        loads[rank] += weight
        room[rank] -= 1
        if room[rank] > 0:
            heapq.heapreplace(heap, (loads[rank] / capacities[rank], rank))
        else:
            heapq.heappop(heap)
    placed = np.full(len(items), -1, np.int32)
    placed[: len(homes)] = usable[homes] if homes else -1
    return placed


def _by_rounds(state: _State, items: Order, usable: Order) -> Places:
    """The picks of `_by_heap`, found in runs: the executors in order of load take one item each, for as long as
    the next of them is still less loaded than every one that was just given an item."""
    capacities, loads = state.fleet.capacities[usable], state.loads[usable]
    room = state.fleet.cap - state.counts[usable]
    keys = np.where(room > 0, loads / capacities, np.inf)
    weights = state.weights[items]
    homes = np.full(len(items), -1, np.int32)
    done = 0
    while done < len(items):
        order = np.argsort(keys, kind="stable")[: len(items) - done]
        sorted_keys = keys[order]
        after = sorted_keys + weights[done : done + len(order)] / capacities[order]
        lowest = np.minimum.accumulate(after)
        stops = np.flatnonzero(sorted_keys[1:] >= lowest[:-1])
        order = order[: stops[0] + 1] if len(stops) else order
        order = order[: np.searchsorted(sorted_keys[: len(order)], np.inf)]
        if not len(order):
            break
        homes[done : done + len(order)] = order
        loads[order] += weights[done : done + len(order)]
        room[order] -= 1
        keys[order] = np.where(room[order] > 0, loads[order] / capacities[order], np.inf)
        done += len(order)
    return np.where(homes >= 0, usable[homes], -1).astype(np.int32)


def _shed(state: _State, items: Items) -> None:
    """Takes from every overfull executor the excess over its share and places it anew."""
    cap = state.fleet.cap
    over = (state.loads > state.shares * (1 + TOLERANCE)) | (state.counts > cap)
    if not over.any():
        return
    movable = items.settled & (state.home >= 0)
    taken: list[Order] = []
    for place in np.flatnonzero(over).tolist():
        mine = _heaviest_first(state, np.flatnonzero(movable & (state.home == place)))
        excess = state.loads[place] - state.shares[place]
        keep = cap if state.shares[place] > 0 else 0
        taken.append(_excess(state.weights, mine, excess, int(state.counts[place]) - keep))
    shed = np.concatenate(taken)
    if not len(shed):
        return
    before = state.home[shed].copy()
    state.home[shed] = -1
    state.recount()
    _place(state, shed, SHED)
    stranded = state.home[shed] < 0
    state.home[shed[stranded]] = before[stranded]
    back = state.home[shed] == before
    state.reasons[shed[back]] = KEPT
    state.recount()


def _excess(weights: Floats, mine: Order, excess: float, at_least: int) -> Order:
    """The heaviest items that together stay within `excess`, and then the lightest until there are `at_least`."""
    chosen: list[Order] = []
    start, left = 0, excess * (1 + 1e-12)
    own = weights[mine]
    while start < len(mine):
        start += int(np.searchsorted(-own[start:], -left))
        sums = np.cumsum(own[start:])
        count = int(np.searchsorted(sums, left, side="right"))
        if not count:
            break
        chosen.append(mine[start : start + count])
        left -= float(sums[count - 1])
        start += count
    picked = np.concatenate(chosen) if chosen else mine[:0]
    if len(picked) < at_least:
        rest = mine[~np.isin(mine, picked)]
        picked = np.concatenate([picked, rest[max(0, len(rest) - (at_least - len(picked))) :]])
    return picked


def _even_out(state: _State, items: Items) -> None:
    """Moves single items from the fullest to the emptiest executor until loads are within the tolerance."""
    shares = state.shares
    relative = np.divide(state.loads, shares, out=np.full(len(shares), -np.inf), where=shares > 0)
    donors = relative.copy()
    own: dict[int, Order] = {}
    for _ in range(4 * len(shares) + 64):
        donor = int(np.argmax(donors))
        open_to = np.where((shares > 0) & (state.counts < state.fleet.cap), relative, np.inf)
        receiver = int(np.lexsort((state.fleet.rank, open_to))[0])
        uneven = donors[donor] > 1 + TOLERANCE or open_to[receiver] < 1 - TOLERANCE
        if not uneven or not np.isfinite(open_to[receiver]) or donors[donor] <= 1 or donor == receiver:
            return
        if donor not in own:
            own[donor] = np.flatnonzero(items.settled & (state.home == donor))
        mine = own[donor][state.home[own[donor]] == donor]
        item = _best_step(state, mine, donor, receiver)
        if item is None:
            donors[donor] = -np.inf
            continue
        state.give(item, receiver, SHED if items.home[item] >= 0 else PLACED)
        if state.home[item] == items.home[item]:
            state.reasons[item] = KEPT
        for place in (donor, receiver):
            relative[place] = donors[place] = state.loads[place] / shares[place]


def _best_step(state: _State, mine: Order, donor: int, receiver: int) -> int | None:
    """The item whose move evens the two best: the largest up to the even point, else the smallest that helps."""
    give, take = state.fleet.capacities[donor], state.fleet.capacities[receiver]
    even = (state.loads[donor] * take - state.loads[receiver] * give) / (give + take)
    helps = state.loads[donor] / give * take - state.loads[receiver]
    weights = state.weights[mine]
    within = np.flatnonzero(weights <= even)
    if len(within):
        return int(mine[within[np.argmax(weights[within])]])
    beyond = np.flatnonzero(weights < helps * (1 - 1e-9))
    return int(mine[beyond[np.argmin(weights[beyond])]]) if len(beyond) else None
