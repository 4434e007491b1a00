"""Whether one decision of the assigner is better than another: what ends its moves.

Each step looks only at a few executors, so two of them could undo each other for ever. What is strictly better by one
order over all states cannot come back to where it was.
"""

from __future__ import annotations

import numpy as np

from ballista_py.partitions.assignment.state import Flags, Fleet, Floats, Places

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
