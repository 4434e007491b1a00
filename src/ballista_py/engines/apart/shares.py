"""How much a process of the engine may take, and what a node may reserve for all of them and for the rest."""

from __future__ import annotations

OVER_BYTES = 512 << 20  # what a node may take beyond what it is given, for a moment
OWN_BYTES = 256 << 20  # of a node before it does anything
PROCESS_BYTES = 64 << 20  # of its own, before it has done anything
MIN_SHARE_BYTES = 128 << 20  # below which an engine has no room to work in
BESIDE = 10  # how much below the node a process is, which answers lookups and heartbeats meanwhile
MAX_TRIAL_S = 20  # of computing, in which a text is read, bound and tried


def least_budget(max_bytes: int) -> int:
    """What all that is reserved at a node may be together, of a node that may take `max_bytes`.

    A small one may reserve more than it has, so that a process finds room, but no more than it may exceed that by, less
    what a node takes before it does anything.

    >>> [least_budget(mb << 20) >> 20 for mb in (1, 128, 256, 512, 4096)]
    [257, 384, 512, 576, 4096]
    """
    return max(max_bytes, min(3 * (PROCESS_BYTES + MIN_SHARE_BYTES), max_bytes + OVER_BYTES - OWN_BYTES))
