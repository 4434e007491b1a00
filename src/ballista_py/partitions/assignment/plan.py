"""What an assignment takes and gives: live executors in, a plan of moves out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from attrs import Factory, evolve, field, frozen

from ballista_py.errors import PlanningError
from ballista_py.partitions.assignment.balance import Balance
from ballista_py.partitions.map import NOBODY, Owner, PartitionMap
from ballista_py.partitions.value_index import Ids


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
    serves until it is promoted; a `move` to the owner calls off the one under way. `slot` 0 is the owner, higher
    ones are read replicas, which change at once and leave the epoch alone.
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

    `to` indexes `executors`; `moved` tells `move` from `assign`. `unplaced` are the partitions without a live
    owner that no executor has room for, `unreplicated` counts the read replicas for which there is none, and
    `deferred` the moves that the limit left for the next cycle.
    """

    base: PartitionMap
    executors: tuple[Executor, ...]
    partitions: Ids
    slots: npt.NDArray[np.int8]
    to: npt.NDArray[np.int32]
    epochs: npt.NDArray[np.int64]
    moved: npt.NDArray[np.bool_]
    unplaced: Ids
    unreplicated: int = 0
    deferred: int = 0
    decisions: tuple[Balance, ...] = field(repr=False)
    items: Ids = field(repr=False)

    @property
    def moves(self) -> Moves:
        """The moves in the order in which they matter: owners before replicas, orphans first, heaviest first."""
        return Moves(self)

    def without_moves_to(self, owners: Collection[Owner]) -> AssignmentPlan:
        """The plan without moves of live partitions to these executors; orphans still go to them."""
        if not owners or not self:
            return self
        shunned = np.array([executor.owner in owners for executor in self.executors], np.bool_)
        return self.only(~(self.moved & shunned[self.to]))

    def only(self, keep: npt.NDArray[np.bool_]) -> AssignmentPlan:
        """The plan with some of its moves, one flag per move."""
        return evolve(
            self,
            partitions=self.partitions[keep],
            slots=self.slots[keep],
            to=self.to[keep],
            epochs=self.epochs[keep],
            moved=self.moved[keep],
        )

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(len(self.partitions))

    def explain(self, partition: int) -> str:
        """One sentence that says where the partition is going to be and why."""
        found = np.flatnonzero(self.items == partition)
        if not len(found):
            return f"partition {partition} is not in table '{self.base.table}'"
        item = int(found[0])
        names = [executor.executor_id for executor in self.executors]
        name = f"partition {partition} ({self.base.path(partition)}) of table '{self.base.table}'"
        replicas = [names[decision.home[item]] for decision in self.decisions[1:] if decision.home[item] >= 0]
        more = f"; replicas on {', '.join(replicas)}" if replicas else ""
        return f"{name} {self.decisions[0].explain(item, names)}{more}"


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
