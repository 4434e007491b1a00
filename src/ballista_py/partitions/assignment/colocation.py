"""Maps of a co-location group side by side: what is decided once per value becomes moves in every map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import frozen

from ballista_py.errors import PlanningError
from ballista_py.partitions.assignment.balance import Balance, balance, order_of
from ballista_py.partitions.assignment.plan import AssignmentPlan, Executor
from ballista_py.partitions.assignment.state import Counts, Fleet, Floats, Items, Places
from ballista_py.partitions.map import NOBODY, Owner, PartitionMap
from ballista_py.partitions.value_index import ValueIndex

Flags = npt.NDArray[np.bool_]


@frozen(kw_only=True, eq=False)
class Holders:
    """Who holds each item in one role, one column per map; places in the list of live executors, or -1.

    `previous` names the live executor of the same id as the last holder, whatever its instance. `parting` is set
    where a live former owner may not know yet that it handed the partition over: it must not go on from there.
    """

    now: Places
    targets: Places
    previous: Places
    parting: Flags


@frozen(kw_only=True, eq=False)
class Group:
    """Row i of `members` holds the partition of item i in each map, or -1; `roles` has owners, then replicas."""

    maps: tuple[PartitionMap, ...]
    executors: tuple[Executor, ...]
    members: Places
    weights: Floats
    roles: tuple[Holders, ...]

    @classmethod
    def of(cls, maps: Sequence[PartitionMap], executors: tuple[Executor, ...], replicas: int) -> Group:
        """The group as it stands; raises `PlanningError` for maps whose keys do not correspond."""
        members = _aligned(maps)
        known = [_places_of(pmap.executors, executors) for pmap in maps]
        weights = np.stack(
            [_column(pmap.weights, members[:, place], 0.0) for place, pmap in enumerate(maps)], axis=1
        )
        roles = tuple(_holders(maps, members, known, slot) for slot in range(replicas))
        return cls(maps=tuple(maps), executors=executors, members=members, weights=weights, roles=roles)

    def plans(self, cap: int, label: str | None, limit: int | None) -> list[AssignmentPlan]:
        """Decide role by role, and cut what is to change to `limit` moves."""
        zones = None if label is None else [executor.labels.get(label, "") for executor in self.executors]
        name = min(pmap.table for pmap in self.maps)
        fleet = Fleet.of([executor.capacity for executor in self.executors], cap, name, zones)
        decisions: list[Balance] = []
        changes: list[tuple[Flags, Counts, Counts]] = []
        for slot in range(len(self.roles)):
            taken = np.stack([decision.home for decision in decisions], axis=1) if decisions else None
            items = self._items(slot, taken)
            decisions.append(balance(items, fleet, taken))
            change, order = self._changes(slot, decisions[-1], items)
            taken_order = _within(order, change, limit)
            limit = None if limit is None else limit - int(change[taken_order].sum())
            changes.append((change, order, taken_order))
        return [self._plan(place, tuple(decisions), changes) for place in range(len(self.maps))]

    def _items(self, slot: int, taken: Places | None) -> Items:
        role = self.roles[slot]
        aimed, owned = _heaviest(role.targets, self.weights), _heaviest(role.now, self.weights)
        home = np.where(aimed >= 0, aimed, owned)
        if role.parting.any():  # what must not go on draws its siblings to where it is
            pinned = _heaviest(np.where(role.parting, role.now, NOBODY), self.weights)
            home = np.where(pinned >= 0, pinned, home)
        if not slot and len(self.roles) > 1:
            # Whoever reads it already is warm: it becomes the owner of an orphan.
            for replica in self.roles[1:]:
                home = np.where(home >= 0, home, _heaviest(replica.now, self.weights))
        if taken is None:
            taken = np.empty((len(home), 0), np.int32)
        agreed = ((role.now == home[:, None]) | (self.members < 0)).all(axis=1)
        weights = self.weights[:, 0] if len(self.maps) == 1 else self.weights.sum(axis=1)
        previous = _heaviest(role.previous, self.weights)
        settled = agreed & (aimed < 0) & ~role.parting.any(axis=1)
        return Items(weights=weights, home=home, settled=settled, preferred=previous)

    def _changes(self, slot: int, decision: Balance, items: Items) -> tuple[Flags, Counts]:
        """Which partitions change, and the items that do in the order in which they matter."""
        role, wanted = self.roles[slot], decision.home[:, None]
        present = (self.members >= 0) & (wanted >= 0)
        # A live owner keeps serving: it gets a target, unless it has that one already.
        change = present & (role.now != wanted) & ~((role.now >= 0) & ((role.targets == wanted) | role.parting))
        # A move to another target is called off by naming the owner as the target.
        change |= present & (role.now == wanted) & (role.targets >= 0) & (role.targets != wanted)
        return change, order_of(items, np.flatnonzero(change.any(axis=1)))

    def _plan(
        self, place: int, decisions: tuple[Balance, ...], changes: Sequence[tuple[Flags, Counts, Counts]]
    ) -> AssignmentPlan:
        pmap, ids = self.maps[place], self.members[:, place]
        chosen = [taken[change[taken, place]] for change, _, taken in changes]
        items = np.concatenate(chosen)
        partitions = ids[items]
        homes = [decision.home[rows] for decision, rows in zip(decisions, chosen, strict=True)]
        owned = self.roles[0].now[chosen[0], place] >= 0
        wanted = sum(int(change[:, place].sum()) for change, _, _ in changes)
        lacking = [(ids >= 0) & (decision.home < 0) for decision in decisions]
        return AssignmentPlan(
            base=pmap,
            executors=self.executors,
            partitions=partitions,
            slots=np.repeat(np.arange(len(chosen), dtype=np.int8), [len(rows) for rows in chosen]),
            to=np.concatenate(homes),
            epochs=pmap.epochs[partitions],
            moved=np.concatenate([owned, np.zeros(len(items) - len(owned), np.bool_)]),
            unplaced=np.sort(ids[lacking[0]]),
            unreplicated=sum(int(lack.sum()) for lack in lacking[1:]),
            deferred=wanted - len(items),
            decisions=decisions,
            items=ids,
        )


def _within(order: Counts, change: Flags, limit: int | None) -> Counts:
    """The first items of `order` whose moves stay within the limit; the first one whole, if any limit is left."""
    if limit is None or not len(order):
        return order
    spent = np.cumsum(change[order].sum(axis=1))
    count = int(np.searchsorted(spent, limit, side="right"))
    return order[: max(count, 1)] if limit > 0 else order[:0]


def _aligned(maps: Sequence[PartitionMap]) -> Places:
    """One row per value of the group, in the order of their first appearance by table name."""
    if len(maps) == 1:
        return maps[0].ids()[:, None]
    by_name = sorted(range(len(maps)), key=lambda place: maps[place].table)
    first = maps[by_name[0]]
    for pmap in maps:
        if not first.spec.colocates_with(pmap.spec):
            raise PlanningError(
                f"tables '{first.table}' and '{pmap.table}' cannot share a co-location group: their keys differ"
            )
    ids = {place: maps[place].ids() for place in by_name}
    length = sum(len(found) for found in ids.values())
    joined = [
        _joined(
            [maps[place].columns[key].take(pa.array(ids[place])) for place in by_name], first.spec.keys[key].type
        )
        for key in range(len(first.spec.keys))
    ]
    codes = ValueIndex.of(joined, np.zeros(length, np.int32)).codes(joined, length)
    _, earliest, items = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(earliest), np.int64)
    rank[np.argsort(earliest, kind="stable")] = np.arange(len(earliest))
    members = np.full((len(earliest), len(maps)), NOBODY, np.int32)
    start = 0
    for place in by_name:
        end = start + len(ids[place])
        members[rank[items[start:end]], place] = ids[place]
        start = end
    return members


def _joined(columns: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    # Integers of other widths count as the same key.
    kind = pa.int64() if pa.types.is_integer(kind) else kind
    return pa.concat_arrays([column.cast(kind) for column in columns])


def _holders(
    maps: Sequence[PartitionMap], members: Places, known: Sequence[tuple[Places, Places]], slot: int
) -> Holders:
    now, targets, previous, parting = [], [], [], []
    for place, (pmap, (instances, ids)) in enumerate(zip(maps, known, strict=True)):
        rows = members[:, place]
        held = (
            pmap.owner_index[:, slot] if slot < pmap.owner_index.shape[1] else np.full(len(pmap), NOBODY, np.int32)
        )
        owner = _column(held, rows, NOBODY)
        now.append(instances[owner])
        previous.append(ids[owner])
        aimed = _column(pmap.target_index, rows, NOBODY)
        targets.append(instances[np.where((aimed == owner) | (slot > 0), NOBODY, aimed)])
        former = _column(pmap.former_index, rows, NOBODY)
        parting.append((instances[former] >= 0) & (slot == 0))
    return Holders(
        now=np.stack(now, axis=1),
        targets=np.stack(targets, axis=1),
        previous=np.stack(previous, axis=1),
        parting=np.stack(parting, axis=1),
    )


def _column(values: npt.NDArray[np.generic], rows: Places, missing: float) -> npt.NDArray[np.generic]:
    """The values of the rows, `missing` for -1."""
    if len(rows) == len(values) and (len(rows) == 0 or (rows[-1] == len(rows) - 1 and (rows >= 0).all())):
        ascending = bool((np.diff(rows) == 1).all())
        if ascending:
            return values
    if not len(values):  # a table that was just made: its partitions come with its rows
        return np.full(len(rows), missing, values.dtype)
    found = values[rows]
    found[rows < 0] = missing
    return found


def _places_of(known: tuple[Owner, ...], executors: tuple[Executor, ...]) -> tuple[Places, Places]:
    """For each owner that a map knows: the live executor of that instance, and of that id; -1 behind the last."""
    by_owner = {executor.owner: place for place, executor in enumerate(executors)}
    by_id = {executor.executor_id: place for place, executor in enumerate(executors)}
    same_instance = [by_owner.get(owner, NOBODY) for owner in known]
    same_id = [by_id.get(owner[0], NOBODY) for owner in known]
    return np.array([*same_instance, NOBODY], np.int32), np.array([*same_id, NOBODY], np.int32)


def _heaviest(places: Places, weights: Floats) -> Places:
    """Per row the executor that stands for most weight, the smallest one among equals; -1 if there is none."""
    if places.shape[1] == 1:
        return places[:, 0]
    best = np.full(len(places), NOBODY, np.int32)
    best_weight = np.full(len(places), -1.0)
    for column in places.T:
        weight = np.where(places == column[:, None], weights, 0.0).sum(axis=1)
        better = (column >= 0) & ((weight > best_weight) | ((weight == best_weight) & (column < best)))
        best, best_weight = np.where(better, column, best), np.where(better, weight, best_weight)
    return best
