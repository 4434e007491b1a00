"""First placement, second thoughts: where largest-first left an executor too full, it exchanges items.

Only items that are placed anew take part: with others the cure would move more than it evens out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ballista_py.partitions.assignment.rebalance import gap, may_go
from ballista_py.partitions.assignment.state import PLACED, TOLERANCE, Floats, State

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
