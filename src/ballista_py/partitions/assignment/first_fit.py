"""First placement: each item, largest first, onto the executor that is least loaded for its capacity then."""

from __future__ import annotations

import heapq

import numpy as np

from ballista_py.partitions.assignment.state import Counts, Places, State

ROUNDS_FROM_EXECUTORS = 48


def place(state: State, items: Counts, reason: int) -> None:
    """Give every item a holder; those for which nobody has room stay without."""
    usable = np.flatnonzero(state.fleet.capacities > 0)
    if not len(items) or not len(usable):
        return
    items = state.heaviest_first(items)
    usable = usable[np.argsort(state.fleet.rank[usable])]
    if state.taken.shape[1]:
        homes = _apart(state, items, usable)
    elif len(usable) >= ROUNDS_FROM_EXECUTORS:
        homes = _by_rounds(state, items, usable)
    else:
        homes = _by_heap(state, items, usable)
    state.give_all(items, homes, reason)


def _by_heap(state: State, items: Counts, usable: Counts) -> Places:
    capacities = state.fleet.capacities[usable].tolist()
    loads, room = state.loads[usable].tolist(), (state.fleet.cap - state.counts[usable]).tolist()
    heap = [(loads[rank] / capacities[rank], rank) for rank in range(len(usable)) if room[rank] > 0]
    heapq.heapify(heap)
    homes = np.full(len(items), -1, np.int32)
    ranks: list[int] = []
    for weight in state.weights[items].tolist():
        if not heap:
            break
        rank = heap[0][1]
        ranks.append(rank)
        loads[rank] += weight
        room[rank] -= 1
        if room[rank] > 0:
            heapq.heapreplace(heap, (loads[rank] / capacities[rank], rank))
        else:
            heapq.heappop(heap)
    homes[: len(ranks)] = usable[np.array(ranks, np.int64)]
    return homes


def _by_rounds(state: State, items: Counts, usable: Counts) -> Places:
    """The picks of `_by_heap`, found in runs.

    The executors in order of load take one item each, for as long as the next of them is still less loaded than
    every one that was just given an item.
    """
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
        stops = sorted_keys[1:] >= np.minimum.accumulate(after)[:-1]
        run = int(np.argmax(stops)) + 1 if stops.any() else len(order)
        run = min(run, int(np.searchsorted(sorted_keys, np.inf)))
        if not run:
            break
        order = order[:run]
        homes[done : done + run] = order
        loads[order] += weights[done : done + run]
        room[order] -= 1
        keys[order] = np.where(room[order] > 0, loads[order] / capacities[order], np.inf)
        done += run
    return np.where(homes >= 0, usable[homes], -1).astype(np.int32)


def _apart(state: State, items: Counts, usable: Counts) -> Places:
    """As `_by_heap`, never onto an executor that holds the item already, and in another zone if one has room."""
    capacities = state.fleet.capacities[usable].tolist()
    loads, room = state.loads[usable].tolist(), (state.fleet.cap - state.counts[usable]).tolist()
    zones = list(range(len(usable))) if state.fleet.zones is None else state.fleet.zones[usable].tolist()
    rank_of = np.full(len(state.loads) + 1, -1, np.int64)
    rank_of[usable] = np.arange(len(usable))
    held = rank_of[state.taken[items]].tolist()
    all_zones = [*zones, None]
    heap = [(loads[rank] / capacities[rank], rank) for rank in range(len(usable)) if room[rank] > 0]
    heapq.heapify(heap)
    homes = np.full(len(items), -1, np.int32)
    for number, (weight, ranks) in enumerate(zip(state.weights[items].tolist(), held, strict=True)):
        near = {all_zones[rank] for rank in ranks}
        passed: list[tuple[float, int]] = []
        chosen = None
        while heap:
            entry = heapq.heappop(heap)
            if entry[1] not in ranks and zones[entry[1]] not in near:
                chosen = entry
                break
            passed.append(entry)
        if chosen is None:
            chosen = next((entry for entry in passed if entry[1] not in ranks), None)
        for entry in passed:
            if entry is not chosen:
                heapq.heappush(heap, entry)
        if chosen is None:
            continue
        rank = chosen[1]
        homes[number] = usable[rank]
        loads[rank] += weight
        room[rank] -= 1
        if room[rank] > 0:
            heapq.heappush(heap, (loads[rank] / capacities[rank], rank))
    return homes
