"""Decides which executor owns which partition: little movement, even loads, the same plan on every machine.

This module turns maps into the plain arrays that `assign_balance` decides over, and its decisions into moves. It
does not commit: a plan is applied to the map it was made from, or to a later one that drops what no longer fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import Factory, field, frozen

from ballista_py.errors import PlanningError
from ballista_py.planning.assign_balance import Balance, Fleet, Items, balance
from ballista_py.planning.partition_index import Ids, ValueIndex
from ballista_py.planning.partition_map import NOBODY, Owner, PartitionMap

MAX_PARTITIONS_PER_EXECUTOR = 1_000


@frozen
class Executor:
    """A live executor. `capacity` is its share relative to the others; 0 drains it."""

    executor_id: str
    instance_id: str = ""
    capacity: float = field(default=1.0)
    labels: Mapping[str, str] = field(default=Factory(dict), hash=False)

    @capacity.validator
    def _check_capacity(self, _attribute: object, value: float) -> None:
        if not 0 <= value < float("inf"):
            raise PlanningError(
                f"executor '{self.executor_id}': capacity must be a finite number >= 0, not {value}"
            )

    @property
    def owner(self) -> Owner:
        """As partition maps name it."""
        return (self.executor_id, self.instance_id)


@frozen
class Move:
    """One decision of a plan. `epoch` is the one planned from.

    `assign`: `to` owns the partition from now on, at epoch + 1. `move`: `to` becomes the target, and the owner
    serves until it is promoted. `slot` 0 is the owner, higher ones are read replicas.
    """

    partition: int
    value: tuple[Any, ...]
    from_owner: Owner | None
    to: Executor
    epoch: int
    kind: Literal["assign", "move"]
    slot: int = 0


@frozen(kw_only=True, eq=False)
class AssignmentPlan:
    """What to change in `base`. The arrays have one row per move; `moves` shows them as values.

    `unplaced` are the partitions without a live owner that no executor has room for; `deferred` counts those
    that the limit left for the next cycle.
    """

    base: PartitionMap
    executors: tuple[Executor, ...]
    partitions: Ids
    slots: npt.NDArray[np.int8]
    to: npt.NDArray[np.int32]
    epochs: npt.NDArray[np.int64]
    moved: npt.NDArray[np.bool_]
    unplaced: Ids
    deferred: int
    decision: Balance = field(repr=False)
    item_of: npt.NDArray[np.int64] = field(repr=False)

    @property
    def moves(self) -> Moves:
        """The moves in the order in which they matter: orphans first, heaviest first."""
        return Moves(self)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(len(self.partitions))

    def explain(self, partition: int) -> str:
        """One sentence that says where the partition is going to be and why."""
        item = int(self.item_of[partition])
        if item < 0:
            return f"partition {partition} was removed from table '{self.base.table}'"
        name = f"partition {partition} ({self.base.path(partition)}) of table '{self.base.table}'"
        return f"{name} {self.decision.explain(item, [e.executor_id for e in self.executors])}"


@frozen
class Moves(Sequence[Move]):
    """The moves of a plan, made one by one as they are looked at."""

    plan: AssignmentPlan

    def __len__(self) -> int:
        return len(self.plan.partitions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        plan, partition = self.plan, int(self.plan.partitions[index])
        slot = int(plan.slots[index])
        width = plan.base.owner_index.shape[1]
        held = int(plan.base.owner_index[partition, slot]) if slot < width else NOBODY
        return Move(
            partition=partition,
            value=plan.base.value(partition),
            from_owner=None if held == NOBODY else plan.base.executors[held],
            to=plan.executors[int(plan.to[index])],
            epoch=int(plan.epochs[index]),
            kind="move" if plan.moved[index] else "assign",
            slot=slot,
        )

    def __iter__(self) -> Iterator[Move]:
        for index in range(len(self)):
            yield self[index]


@frozen
class PartitionAssigner:
    """Plans owners: largest first onto the least loaded at first, afterwards as little movement as balance allows.

    >>> from ballista_py.planning.partition_spec import PartitionSpec
    >>> spec = PartitionSpec.parse(["bucket(4, id)"], pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    >>> events = PartitionMap.build("events", spec, spec.static_values())
    >>> events = events.apply(PartitionAssigner().assign(events, [Executor("e1"), Executor("e2")]))
    >>> sorted(events.owner(i)[0] for i in range(4))
    ['e1', 'e1', 'e2', 'e2']
    """

    max_partitions_per_executor: int = MAX_PARTITIONS_PER_EXECUTOR
    replicas: int = 1

    def assign(
        self, pmap: PartitionMap, executors: Sequence[Executor], limit: int | None = None
    ) -> AssignmentPlan:
        """The next moves for one table over the live `executors`, at most `limit` of them (None: no limit).

        What has a live owner stays unless loads are uneven; what has none is placed; the cap per executor holds.
        The same input gives the same plan on every machine and in every order of `executors`.
        """
        return self.assign_group([pmap], executors, limit)[0]

    def assign_group(
        self, maps: Sequence[PartitionMap], executors: Sequence[Executor], limit: int | None = None
    ) -> list[AssignmentPlan]:
        """One plan per map of a co-location group, in order: partitions of equal value get equal owners.

        Weights count summed over the group. Maps that disagree now (a commit to one has not landed) converge: an
        orphan joins the owner that its siblings have. A value is moved in all maps or in none, so `limit` may be
        exceeded by one value's moves.
        """
        fleet_of = tuple(sorted(executors, key=lambda e: e.owner))
        if len({executor.executor_id for executor in fleet_of}) != len(fleet_of):
            raise PlanningError("two live executors have one id")
        group = _Group.of(maps, fleet_of)
        decision = balance(group.items, group.fleet(self.max_partitions_per_executor))
        return group.plans(decision, limit)


@frozen(kw_only=True)
class _Group:
    """Maps side by side: row i of `members` holds the partition of item i in each map, or -1."""

    maps: tuple[PartitionMap, ...]
    executors: tuple[Executor, ...]
    members: npt.NDArray[np.int32]
    owners: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    items: Items

    @classmethod
    def of(cls, maps: Sequence[PartitionMap], executors: tuple[Executor, ...]) -> _Group:
        members = _aligned(maps)
        weights = np.zeros(members.shape)
        owners = np.full(members.shape, NOBODY, np.int32)
        targets = np.full(members.shape, NOBODY, np.int32)
        previous = np.full(members.shape, NOBODY, np.int32)
        for place, pmap in enumerate(maps):
            ids = members[:, place]
            present = ids >= 0
            weights[present, place] = pmap.weights[ids[present]]
            same_instance, same_id = _places_of(pmap.executors, executors)
            owners[present, place] = same_instance[pmap.owner_index[ids[present], 0]]
            targets[present, place] = same_instance[pmap.target_index[ids[present]]]
            previous[present, place] = same_id[pmap.owner_index[ids[present], 0]]
        aimed, owned = _heaviest(targets, weights), _heaviest(owners, weights)
        home = np.where(aimed >= 0, aimed, owned)
        agreed = ((owners == home[:, None]) | (members < 0)).all(axis=1)
        items = Items(
            weights=weights.sum(axis=1),
            home=home,
            settled=agreed & (aimed < 0),
            preferred=_heaviest(previous, weights),
        )
        return cls(
            maps=tuple(maps), executors=executors, members=members, owners=owners, targets=targets, items=items
        )

    def fleet(self, cap: int) -> Fleet:
        name = min((pmap.table for pmap in self.maps), default="")
        return Fleet.of([executor.capacity for executor in self.executors], cap, name)

    def plans(self, decision: Balance, limit: int | None) -> list[AssignmentPlan]:
        wanted = decision.home[:, None]
        present = self.members >= 0
        change = present & (wanted >= 0) & (self.owners != wanted)
        # A live owner keeps serving: it gets a target, unless it has that one already.
        change &= ~((self.owners >= 0) & (self.targets == wanted))
        order = decision.order(self.items)
        cost = change.sum(axis=1)[order]
        order, cost = order[cost > 0], cost[cost > 0]
        taken = order
        if limit is not None:
            before = np.cumsum(cost) - cost
            fits = (before + cost <= limit) | ((before == 0) & (limit > 0))
            taken = order[: int(np.argmin(fits))] if not fits.all() else order
        return [
            self._plan(place, decision, taken[change[taken, place]], int(change[:, place].sum()))
            for place in range(len(self.maps))
        ]

    def _plan(self, place: int, decision: Balance, items: npt.NDArray[np.int64], wanted: int) -> AssignmentPlan:
        pmap, ids = self.maps[place], self.members[:, place]
        item_of = np.full(len(pmap), -1, np.int64)
        present = np.flatnonzero(ids >= 0)
        item_of[ids[present]] = present
        partitions = ids[items]
        return AssignmentPlan(
            base=pmap,
            executors=self.executors,
            partitions=partitions,
            slots=np.zeros(len(items), np.int8),
            to=decision.home[items],
            epochs=pmap.epochs[partitions],
            moved=self.owners[items, place] >= 0,
            unplaced=np.sort(ids[present][decision.home[present] < 0]),
            deferred=wanted - len(items),
            decision=decision,
            item_of=item_of,
        )


def _aligned(maps: Sequence[PartitionMap]) -> npt.NDArray[np.int32]:
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
    columns = {
        place: [column.take(pa.array(maps[place].ids())) for column in maps[place].columns] for place in by_name
    }
    joined = [pa.concat_arrays([columns[place][key] for place in by_name]) for key in range(len(first.spec.keys))]
    lengths = [len(maps[place].ids()) for place in by_name]
    codes = ValueIndex.of(joined, np.zeros(sum(lengths), np.int32)).codes(joined, sum(lengths))
    _, earliest, items = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(earliest), np.int64)
    rank[np.argsort(earliest, kind="stable")] = np.arange(len(earliest))
    members = np.full((len(earliest), len(maps)), -1, np.int32)
    start = 0
    for place, length in zip(by_name, lengths, strict=True):
        members[rank[items[start : start + length]], place] = maps[place].ids()
        start += length
    return members


def _places_of(
    known: tuple[Owner, ...], executors: tuple[Executor, ...]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """For each owner that a map knows: the live executor of that instance, and of that id; -1 behind the last."""
    by_owner = {executor.owner: place for place, executor in enumerate(executors)}
    by_id = {executor.executor_id: place for place, executor in enumerate(executors)}
    same_instance = [by_owner.get(owner, NOBODY) for owner in known]
    same_id = [by_id.get(owner[0], NOBODY) for owner in known]
    return np.array([*same_instance, NOBODY], np.int32), np.array([*same_id, NOBODY], np.int32)


def _heaviest(places: npt.NDArray[np.int32], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Per row the executor that stands for most weight, the smallest one among equals; -1 if there is none."""
    if places.shape[1] == 1:
        return places[:, 0].copy()
    best = np.full(len(places), NOBODY, np.int32)
    best_weight = np.full(len(places), -1.0)
    for column in places.T:
        weight = np.where(places == column[:, None], weights, 0.0).sum(axis=1)
        better = (column >= 0) & ((weight > best_weight) | ((weight == best_weight) & (column < best)))
        best, best_weight = np.where(better, column, best), np.where(better, weight, best_weight)
    return best
