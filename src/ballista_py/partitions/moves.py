"""How a partition map becomes the next one: a plan applied, a move gone through its steps, a discovery taken in."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ballista_py.errors import PlanningError
from ballista_py.partitions.map import MISSING, NOBODY, REMOVED, Owner, PartitionMap, value_columns

if TYPE_CHECKING:
    from ballista_py.partitions.assignment.plan import AssignmentPlan
    from ballista_py.partitions.discovery import PartitionDiff

Places = npt.NDArray[np.int32]


def apply_plan(pmap: PartitionMap, plan: AssignmentPlan) -> PartitionMap:
    """See `PartitionMap.apply`."""
    if plan.base.table != pmap.table:
        raise PlanningError(f"a plan for table '{plan.base.table}' was applied to table '{pmap.table}'")
    if not len(plan.partitions):
        return pmap
    executors, places = _places(pmap.executors, [(e.executor_id, e.instance_id) for e in plan.executors])
    rank = max(pmap.owner_index.shape[1], int(plan.slots.max()) + 1)
    owners = np.full((len(pmap), rank), NOBODY, np.int32)
    owners[:, : pmap.owner_index.shape[1]] = pmap.owner_index
    targets, formers, epochs = pmap.target_index.copy(), pmap.former_index.copy(), pmap.epochs.copy()
    fresh = _still_fresh(pmap, plan)
    if not fresh.any():
        return pmap
    ids, slots, to = plan.partitions[fresh], plan.slots[fresh], places[plan.to[fresh]]
    moved = plan.moved[fresh]

    targets[ids[moved]] = to[moved]
    for slot in range(rank):
        here = (slots == slot) & ~moved
        if (
            slot
        ):  # an owner becomes a replica once its target has taken over; before, nobody would own the partition
            here &= owners[ids, 0] != to
        _hold(owners, ids[here], slot, to[here])
    first = ids[(slots == 0) & ~moved]
    epochs[first] += 1
    targets[first] = formers[first] = NOBODY
    return _changed(pmap, executors, owners, targets, formers, epochs)


def promote(pmap: PartitionMap, partitions: Iterable[int]) -> PartitionMap:
    """See `PartitionMap.promote`."""
    ids = np.unique(np.fromiter(partitions, np.int32))
    ids = ids[pmap.target_index[ids] != NOBODY]
    if not len(ids):
        return pmap
    owners, targets, epochs = pmap.owner_index.copy(), pmap.target_index.copy(), pmap.epochs.copy()
    formers = pmap.former_index.copy()
    changed = ids[owners[ids, 0] != targets[ids]]
    formers[changed] = owners[changed, 0]
    _hold(owners, changed, 0, targets[changed])
    epochs[changed] += 1
    targets[ids] = NOBODY
    return _changed(pmap, pmap.executors, owners, targets, formers, epochs)


def call_off(pmap: PartitionMap, partitions: Iterable[int]) -> PartitionMap:
    """See `PartitionMap.call_off`."""
    ids = np.unique(np.fromiter(partitions, np.int32))
    if not (pmap.target_index[ids] != NOBODY).any():
        return pmap
    targets = pmap.target_index.copy()
    targets[ids] = NOBODY
    return _changed(pmap, pmap.executors, pmap.owner_index, targets, pmap.former_index, pmap.epochs)


def release(pmap: PartitionMap, partitions: Iterable[int]) -> PartitionMap:
    """See `PartitionMap.release`."""
    ids = np.unique(np.fromiter(partitions, np.int32))
    if not (pmap.former_index[ids] != NOBODY).any():
        return pmap
    formers = pmap.former_index.copy()
    formers[ids] = NOBODY
    return _changed(pmap, pmap.executors, pmap.owner_index, pmap.target_index, formers, pmap.epochs)


def hand_back(pmap: PartitionMap, live: Collection[Owner]) -> PartitionMap:
    """See `PartitionMap.hand_back`."""
    orphans = pmap.orphans(live)
    orphans = orphans[pmap.former_index[orphans] != NOBODY]
    ids = np.array([p for p in orphans.tolist() if pmap.former(p) in live], np.int32)
    if not len(ids):
        return pmap
    owners, targets, epochs = pmap.owner_index.copy(), pmap.target_index.copy(), pmap.epochs.copy()
    formers = pmap.former_index.copy()
    _hold(owners, ids, 0, formers[ids])
    epochs[ids] += 1
    targets[ids] = formers[ids] = NOBODY
    return _changed(pmap, pmap.executors, owners, targets, formers, epochs)


def _changed(
    pmap: PartitionMap,
    executors: tuple[Owner, ...],
    owners: Places,
    targets: Places,
    formers: Places,
    epochs: npt.NDArray[np.int64],
) -> PartitionMap:
    """The map with these columns; `executors` in order, without those that hold nothing: one form per meaning."""
    used = np.zeros(len(executors) + 1, np.bool_)
    for column in (*owners.T, targets, formers):
        used[column] = True
    order = sorted(np.flatnonzero(used[:-1]).tolist(), key=lambda place: executors[place])
    renamed = np.full(len(executors) + 1, NOBODY, np.int32)
    renamed[order] = np.arange(len(order))
    return attrs.evolve(
        pmap,
        executors=tuple(executors[place] for place in order),
        owner_index=renamed[owners],
        target_index=renamed[targets],
        former_index=renamed[formers],
        epochs=epochs,
    )


def _hold(owners: Places, ids: Places, slot: int, holders: Places) -> None:
    """Put the holders into one slot of each partition, and out of any other that they had."""
    rows = owners[ids]
    rows[rows == holders[:, None]] = NOBODY
    rows[:, slot] = holders
    owners[ids] = rows


def apply_diff(pmap: PartitionMap, diff: PartitionDiff, allow_empty: bool) -> PartitionMap:
    """See `PartitionMap.apply_diff`."""
    if diff.table != pmap.table:
        raise PlanningError(f"a discovery of table '{diff.table}' was applied to table '{pmap.table}'")
    flags = pmap.flags.copy()
    owners, targets, epochs = pmap.owner_index.copy(), pmap.target_index.copy(), pmap.epochs.copy()
    formers = pmap.former_index.copy()
    flags[diff.returned] &= ~np.uint8(MISSING)
    latest = diff.after is None or diff.after == pmap.discoveries
    if latest and (allow_empty or not diff.empty):
        live = (flags & REMOVED) == 0
        # Removed only if the mark of the earlier discovery still stands: another scheduler may have cleared it.
        gone = diff.vanished[((flags[diff.vanished] & MISSING) != 0) & live[diff.vanished]]
        flags[diff.missing[live[diff.missing]]] |= MISSING
        flags[gone] |= REMOVED
        owners[gone] = NOBODY
        targets[gone] = formers[gone] = NOBODY
        epochs[gone] += 1
    if not np.array_equal(flags, pmap.flags):
        pmap = attrs.evolve(pmap, flags=flags, discoveries=pmap.discoveries + 1)
    return _append(_changed(pmap, pmap.executors, owners, targets, formers, epochs), diff)


def _append(pmap: PartitionMap, diff: PartitionDiff) -> PartitionMap:
    values = value_columns(pmap.spec, diff.added)
    known = pmap.lookup(values, len(diff.added))
    new = np.flatnonzero(known == NOBODY)
    if not len(new):
        return pmap
    take = pa.array(new)
    added = [column.take(take) for column in values]
    count = len(new)
    width = pmap.owner_index.shape[1]
    return attrs.evolve(
        pmap,
        columns=tuple(pa.concat_arrays([old, more]) for old, more in zip(pmap.columns, added, strict=True)),
        owner_index=np.concatenate([pmap.owner_index, np.full((count, width), NOBODY, np.int32)]),
        target_index=np.concatenate([pmap.target_index, np.full(count, NOBODY, np.int32)]),
        former_index=np.concatenate([pmap.former_index, np.full(count, NOBODY, np.int32)]),
        epochs=np.concatenate([pmap.epochs, _first_epochs(pmap, [diff.added[place] for place in new])]),
        weights=np.concatenate([pmap.weights, np.array(diff.added_weights, np.float64)[new]]),
        flags=np.concatenate([pmap.flags, np.zeros(count, np.uint8)]),
    )


def _first_epochs(pmap: PartitionMap, values: list[tuple[object, ...]]) -> npt.NDArray[np.int64]:
    """A value that comes back after its removal goes on from its old epoch, because its manifest remembers it."""
    last: dict[str, int] = {}
    for partition in np.flatnonzero(pmap.flags & REMOVED).tolist():
        path = pmap.path(partition)
        last[path] = max(last.get(path, 0), pmap.epoch(partition))
    return np.array([last.get(pmap.spec.path(value), 0) if last else 0 for value in values], np.int64)


def _still_fresh(pmap: PartitionMap, plan: AssignmentPlan) -> npt.NDArray[np.bool_]:
    """Which moves still find what they were planned from: the epoch, the holder of the slot, the target."""
    ids, slots = plan.partitions, plan.slots
    fresh: npt.NDArray[np.bool_] = ids < len(pmap)
    ids = np.where(fresh, ids, 0)
    fresh &= pmap.epochs[ids] == plan.epochs
    fresh &= (pmap.flags[ids] & REMOVED) == 0
    if pmap is plan.base:
        return fresh
    _, places = _places(pmap.executors, plan.base.executors)
    places = np.append(places, np.int32(NOBODY))
    then, now = plan.base, pmap
    fresh &= _slot(now.owner_index, ids, slots) == places[_slot(then.owner_index, plan.partitions, slots)]
    fresh &= ~plan.moved | (now.target_index[ids] == places[then.target_index[plan.partitions]])
    return fresh


def _slot(owners: Places, ids: Places, slots: npt.NDArray[np.int8]) -> Places:
    width = owners.shape[1]
    return np.where(slots < width, owners[ids, np.minimum(slots, width - 1)], np.int32(NOBODY))


def _places(known: tuple[Owner, ...], wanted: Iterable[Owner]) -> tuple[tuple[Owner, ...], Places]:
    """`known` with what it lacks of `wanted` behind it, and the place of each wanted one in it."""
    places = {owner: place for place, owner in enumerate(known)}
    found = [places.setdefault(owner, len(places)) for owner in wanted]
    return tuple(places), np.array(found, np.int32)
