"""Afterwards: sheds what executors hold above their share, and evens loads out with as few moves as that takes.

First placement, second thoughts: where largest-first left an executor too full, it exchanges items.

Only items that are placed anew take part: with others the cure would move more than it evens out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from attrs import define

from ballista_py.partitions.assignment.first_fit import place
from ballista_py.partitions.assignment.state import (
    KEPT,
    PLACED,
    SHED,
    TOLERANCE,
    Counts,
    Flags,
    Floats,
    Places,
    State,
)

MAX_ITEMS = 20_000
MAX_STEPS = 512
MAX_PARTNERS = 64


def swap(state: State) -> None:
    """Exchange items of the fullest executor for lighter ones of others until loads are within the tolerance."""
    if len(state.home) > MAX_ITEMS or not state.homeless.any() or not (state.shares > 0).any():
        return
    for _ in range(MAX_STEPS):
        levels = np.divide(state.loads, state.shares, out=np.zeros(len(state.shares)), where=state.shares > 0)
        donor = int(np.argmax(levels))
        if levels[donor] <= 1 + TOLERANCE:
            return
        best = min(_exchanges(state, donor, levels), default=None)
        if best is None or best[0] >= levels[donor] * (1 - 1e-9):
            return
        _, _, heavy, light, receiver = best
        state.give(heavy, receiver, PLACED)
        if light >= 0:
            state.give(light, donor, PLACED)


def _exchanges(state: State, donor: int, levels: Floats) -> Iterator[tuple[float, int, int, int, int]]:
    """Per partner the best exchange: the higher level after it, rank, item to give, one to take (or -1), who."""
    mine = np.flatnonzero(state.homeless & (state.home == donor))
    for receiver in np.lexsort((state.fleet.rank, levels))[:MAX_PARTNERS].tolist():
        if receiver == donor or state.shares[receiver] <= 0:
            continue
        even, _ = gap(state, donor, receiver)
        gives = mine[may_go(state, mine, receiver)]
        theirs = np.flatnonzero(state.homeless & (state.home == receiver))
        theirs = theirs[may_go(state, theirs, donor)]
        takes = np.concatenate([theirs, [-1]]) if state.counts[receiver] < state.fleet.cap else theirs
        if not len(gives) or not len(takes):
            continue
        weights = np.where(takes >= 0, state.weights[takes], 0.0)
        off = np.abs(state.weights[gives][:, None] - weights[None, :] - even)
        give, take = np.unravel_index(int(np.argmin(off)), off.shape)
        delta = float(state.weights[gives[give]] - weights[take])
        after = max(
            (state.loads[donor] - delta) / state.shares[donor],
            (state.loads[receiver] + delta) / state.shares[receiver],
        )
        yield float(after), int(state.fleet.rank[receiver]), int(gives[give]), int(takes[take]), receiver


def shed(state: State) -> None:
    """Takes the excess from every executor above its share, its cap or its drain, and places it anew."""
    cap = state.fleet.cap
    room_left = int(np.maximum(0, cap - state.counts)[state.shares > 0].sum())
    over = (state.loads > state.shares * (1 + TOLERANCE)) | (state.counts > cap)
    if not over.any() or not (state.shares > 0).any():
        return
    before = state.home.copy()
    holdings = HeldItems.of(state)
    taken: list[Counts] = []
    for executor in np.flatnonzero(over).tolist():
        mine = state.heaviest_first(holdings.movable(executor))
        excess = float(state.loads[executor] - state.shares[executor])
        surplus = int(state.counts[executor]) - (cap if state.shares[executor] > 0 else 0)
        # What is above the cap needs room elsewhere; all else makes room for another where it was.
        forced = min(max(0, surplus), room_left)
        room_left -= forced
        drained = state.shares[executor] == 0
        taken.append(mine[:forced] if drained else _excess(state.weights, mine, excess, forced))
    items = np.concatenate(taken)
    crowded = state.counts > cap
    state.take_back(items)
    place(state, items, SHED)
    # From one that is too full to another that is: where all room is taken that would only exchange items, for ever.
    free = (state.home[items] >= 0) & (state.shares[before[items]] > 0) & ~crowded[before[items]]
    idle = items[free & over[state.home[items]]]
    _undo(state, idle, before)
    stranded = items[state.home[items] < 0]
    state.give_all(stranded, before[stranded], SHED)


def _undo(state: State, items: Counts, before: Places) -> None:
    """Give the items back to whom they were with, as far as there is room."""
    after = state.home[items].copy()
    state.take_back(items)
    for item, new in zip(items.tolist(), after.tolist(), strict=True):
        old = int(before[item])
        if state.counts[old] < state.fleet.cap:
            state.give(item, old, KEPT)
        else:
            state.give(item, new, SHED)


def even_out(state: State) -> None:
    """Moves single items from the fullest to the emptiest executors until loads are within the tolerance."""
    if not (state.shares > 0).any():
        return
    levels = Levels.of(state)
    holdings: HeldItems | None = None
    for _ in range(4 * len(state.shares) + 64):
        donor, receiver = levels.fullest(), levels.emptiest()
        high, low = levels.donors[donor], levels.receivers[receiver]
        uneven = high > 1 + TOLERANCE or low < 1 - TOLERANCE
        if not uneven or high <= 1 or not np.isfinite(low) or donor == receiver:
            break
        holdings = holdings or HeldItems.of(state)
        item = _best_step(state, holdings.movable(donor), donor, receiver)
        if item is None:
            levels.donors[donor] = -np.inf
            continue
        state.give(item, receiver, SHED)
        levels.update(state, donor, receiver)


@define(eq=False)
class HeldItems:
    """Which movable items each executor held when this was made, as far as it holds them still."""

    state: State
    order: Counts
    ends: Counts
    moved_in: dict[int, list[int]]

    @classmethod
    def of(cls, state: State) -> HeldItems:
        homes = state.home
        narrow = homes.astype(np.uint16) if len(state.loads) < 1 << 16 else homes
        placed = np.argsort(narrow, kind="stable")
        # Items without a home are last: -1 is the greatest unsigned number.
        placed = placed[: int(np.count_nonzero(homes >= 0))] if narrow is not homes else placed[homes[placed] >= 0]
        return cls(state, placed, np.cumsum(np.bincount(homes[placed], minlength=len(state.loads))), {})

    def movable(self, executor: int) -> Counts:
        start = int(self.ends[executor - 1]) if executor else 0
        mine = self.order[start : int(self.ends[executor])]
        here: Counts = mine[self.state.movable[mine] & (self.state.home[mine] == executor)]
        return here


@define(eq=False)
class Levels:
    """Loads relative to shares, for finding the fullest donor and the emptiest receiver."""

    donors: Floats
    receivers: Floats
    by_rank: Counts

    @classmethod
    def of(cls, state: State) -> Levels:
        shares = state.shares
        relative = np.divide(state.loads, shares, out=np.full(len(shares), -np.inf), where=shares > 0)
        closed = (shares <= 0) | (state.counts >= state.fleet.cap)
        return cls(relative, np.where(closed, np.inf, relative), np.argsort(state.fleet.rank))

    def fullest(self) -> int:
        return int(np.argmax(self.donors))

    def emptiest(self) -> int:
        return int(self.by_rank[np.argmin(self.receivers[self.by_rank])])

    def update(self, state: State, *changed: int) -> None:
        for executor in changed:
            level = state.loads[executor] / state.shares[executor]
            self.donors[executor] = level
            self.receivers[executor] = level if state.counts[executor] < state.fleet.cap else np.inf


def _excess(weights: Floats, mine: Counts, excess: float, at_least: int) -> Counts:
    """The heaviest items that together stay within `excess`, and then the lightest until there are `at_least`."""
    chosen: list[Counts] = []
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


def _best_step(state: State, mine: Counts, donor: int, receiver: int) -> int | None:
    """The item whose move evens the two best: the largest up to the even point, else the smallest that helps."""
    mine = mine[may_go(state, mine, receiver)]
    even, helps = gap(state, donor, receiver)
    weights = state.weights[mine]
    within = np.flatnonzero(weights <= even)
    if len(within):
        return int(mine[within[np.argmax(weights[within])]])
    beyond = np.flatnonzero(weights < helps * (1 - 1e-9))
    return int(mine[beyond[np.argmin(weights[beyond])]]) if len(beyond) else None


def gap(state: State, donor: int, receiver: int) -> tuple[float, float]:
    """How much weight makes the two even, and how much at most lowers the higher of them."""
    give, take = state.fleet.capacities[donor], state.fleet.capacities[receiver]
    even = (state.loads[donor] * take - state.loads[receiver] * give) / (give + take)
    return float(even), float(state.loads[donor] / give * take - state.loads[receiver])


def may_go(state: State, items: Counts, receiver: int) -> Flags:
    """Whether the receiver holds none of the items in another role, and shares no zone with them that is new."""
    taken = state.taken[items]
    apart = np.asarray((taken != receiver).all(axis=1))
    zones = state.fleet.zones
    if zones is None or not taken.shape[1]:
        return apart
    held = np.where(taken >= 0, zones[taken], -1)
    shared = (held == zones[state.home[items]][:, None]).any(axis=1)
    return np.asarray(apart & (shared | (held != zones[receiver]).all(axis=1)))
