"""Decides which executor owns which partition: little movement, even loads, the same plan on every machine.

It does not commit: a plan is applied to the map it was made from, or to a later one, which leaves out what no
longer fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from ballista_py.errors import PlanningError
from ballista_py.partitions.assignment.colocation import Group
from ballista_py.partitions.assignment.plan import AssignmentPlan, Executor, Move
from ballista_py.partitions.map import PartitionMap

__all__ = ["MAX_PARTITIONS_PER_EXECUTOR", "AssignmentPlan", "Executor", "Move", "PartitionAssigner"]

MAX_PARTITIONS_PER_EXECUTOR = 1_000
MAX_REPLICAS = 16


@frozen
class PartitionAssigner:
    """Plans owners: largest first onto the least loaded at first, afterwards as little movement as balance allows.

    `max_partitions_per_executor` bounds what one executor holds of a table, replicas included; what is above it
    already moves as far as others have room. With `replicas` > 1 each partition has that many holders, all on
    different executors, and in different values of the label `spread_label` as far as there are any.

    >>> import pyarrow as pa
    >>> from ballista_py.partitions.spec import PartitionSpec
    >>> spec = PartitionSpec.parse(["bucket(4, id)"], pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    >>> events = PartitionMap.build("events", spec, spec.static_values())
    >>> events = events.apply(PartitionAssigner().assign(events, [Executor("e1"), Executor("e2")]))
    >>> sorted(events.owner(i)[0] for i in range(4))
    ['e1', 'e1', 'e2', 'e2']
    """

    max_partitions_per_executor: int = field(default=MAX_PARTITIONS_PER_EXECUTOR)
    replicas: int = field(default=1)
    spread_label: str | None = None

    @max_partitions_per_executor.validator
    def _check_cap(self, _attribute: object, value: int) -> None:
        if value < 1:
            raise PlanningError(f"max_partitions_per_executor must be at least 1, not {value}")

    @replicas.validator
    def _check_replicas(self, _attribute: object, value: int) -> None:
        if not 1 <= value <= MAX_REPLICAS:
            raise PlanningError(f"replicas must be 1 to {MAX_REPLICAS}, not {value}")

    def assign(
        self, pmap: PartitionMap, executors: Sequence[Executor], limit: int | None = None
    ) -> AssignmentPlan:
        """The next moves for one table over the live `executors`, at most `limit` of them (None: no limit).

        What has a live owner stays unless loads are uneven; what has none is placed; the cap per executor holds.
        The same input gives the same plan on every machine and in every order of `executors`.

        Raises `PlanningError` if two executors have one id.
        """
        return self.assign_group([pmap], executors, limit)[0]

    def assign_group(
        self, maps: Sequence[PartitionMap], executors: Sequence[Executor], limit: int | None = None
    ) -> list[AssignmentPlan]:
        """One plan per map of a co-location group, in order: partitions of equal value get equal owners.

        Weights count summed over the group. Maps that disagree now (a commit to one has not landed) converge: an
        orphan joins the owner that its siblings have. A value changes in all maps or in none, so one value may
        exceed a `limit` that is smaller than the group.

        Raises `PlanningError` if two executors have one id, or if the keys of the maps do not correspond.
        """
        fleet = tuple(sorted(executors, key=lambda executor: executor.owner))
        if len({executor.executor_id for executor in fleet}) != len(fleet):
            raise PlanningError("two live executors have one id: each id is one process")
        if not maps:
            return []
        group = Group.of(maps, fleet, self.replicas)
        return group.plans(self.max_partitions_per_executor, self.spread_label, limit)
