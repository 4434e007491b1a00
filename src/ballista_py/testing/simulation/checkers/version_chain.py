"""Whether what clients saw of one object can have happened on a store that never loses, repeats or hides a write.

Every state of the object has a version of its own, and every write names the version that it wrote over. So a
history is linearizable if the versions form one chain and no request that began after another had ended saw less
of the chain. That takes n log n, where a general search explodes exactly on the histories that are wrong.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from ballista_py.testing.simulation.history import INF, Accessed


def chain_objection(accesses: Iterable[Accessed]) -> tuple[float, str] | None:
    """When and why the accesses of one key cannot have happened, or None if they can.

    A write whose sender never learned its fate (`end_ms` infinite) counts if somebody saw it, or wrote over it.
    """
    known = _joined(accesses)
    places, broken = _places([access for access in known if access.kind == "write"])
    if broken is not None:
        return broken
    unseen = next((access for access in known if access.kind == "read" and access.version not in places), None)
    if unseen is not None:
        return unseen.at_ms, f"'{unseen.key}' was read as {unseen.version}, which nobody wrote"
    return _order_objection(known, places)


def _joined(accesses: Iterable[Accessed]) -> list[Accessed]:
    """One access for each write: that which knows when it ended, if there is one."""
    writes: dict[str, Accessed] = {}
    joined: list[Accessed] = []
    for access in accesses:
        if access.kind == "read":
            joined.append(access)
        elif access.version not in writes or access.end_ms < writes[access.version].end_ms:
            writes[access.version] = access
    return [*joined, *writes.values()]


def _places(writes: Sequence[Accessed]) -> tuple[dict[str, int], tuple[float, str] | None]:
    """The place of each version in the one chain, or why there is none."""
    after: dict[str | None, Accessed] = {}
    for write in sorted(writes, key=lambda write: write.at_ms):
        other = after.setdefault(write.base, write)
        if other is not write:
            what = f"'{write.key}': {other.version} ({other.node}) and {write.version} ({write.node})"
            return {}, (write.at_ms, f"{what} were both written over {write.base}: one update is lost")
    places: dict[str, int] = {}
    version: str | None = None
    while version in after and len(places) <= len(writes):
        version = after[version].version
        places[version] = len(places)
    stray = next((write for write in writes if write.version not in places), None)
    if stray is not None:
        return {}, (stray.at_ms, f"'{stray.key}' was written over {stray.base}, which never was its state")
    return places, None


def _order_objection(accesses: list[Accessed], places: dict[str, int]) -> tuple[float, str] | None:
    """The first access that began after another had ended and yet comes before it in the chain."""
    ended: list[tuple[float, int]] = []
    reached = -1
    for access in sorted(accesses, key=lambda access: access.at_ms):
        while ended and ended[0][0] < access.at_ms:
            reached = max(reached, heapq.heappop(ended)[1])
        place = places[access.version]
        if place < reached or (place == reached and access.kind == "write"):
            verb = "read" if access.kind == "read" else "written"
            return access.at_ms, f"'{access.key}' was {verb} as {access.version} after a later state was known"
        if access.end_ms < INF:
            heapq.heappush(ended, (access.end_ms, place))
    return None
