"""The life of one partition map as a stateful machine: executors come and go, plans land late, values vanish."""

from __future__ import annotations

import os
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ballista_py.partitions.assignment.assigner import AssignmentPlan, Executor, PartitionAssigner
from ballista_py.partitions.discovery import diff_partitions
from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.partitions.spec import PartitionSpec

SCHEMA = pa.schema([("region", pa.string())])
SPEC = PartitionSpec.parse(["region"], SCHEMA)
VALUES = [None, *"abcdefgh"]
IDS = ("e1", "e2", "e3", "e4")
CAP = 4


class MapLife(RuleBasedStateMachine):
    """Everything that may happen to a map, in any order; what no order may ever bring about is an invariant."""

    @initialize(values=st.sets(st.sampled_from(VALUES), min_size=2), replicas=st.integers(1, 2))
    def begin(self, values: set[Any], replicas: int) -> None:
        self.map = PartitionMap.build("t", SPEC, sorted(((v,) for v in values), key=str))
        self.assigner = PartitionAssigner(max_partitions_per_executor=CAP, replicas=replicas)
        self.starts = 0
        self.live = {"e1": Executor("e1", "i0")}
        self.late: list[AssignmentPlan] = []
        self.epochs: dict[Any, int] = {}
        self.owned: dict[tuple[Any, int], Owner] = {}

    @rule(name=st.sampled_from(IDS), capacity=st.sampled_from([0.5, 1.0, 2.0]))
    def start(self, name: str, capacity: float) -> None:
        """An executor joins, or restarts as a new instance."""
        self.starts += 1
        self.live[name] = Executor(name, f"i{self.starts}", capacity)

    @rule(name=st.sampled_from(IDS))
    def lose(self, name: str) -> None:
        self.live.pop(name, None)

    @rule(name=st.sampled_from(IDS))
    def join_and_take_over(self, name: str) -> None:
        """A whole move, in order: it joins, is named the target, has loaded, owns."""
        self.start(name, 2.0)
        self.assign(None)
        self.targets_have_loaded(1)

    @rule(limit=st.none() | st.integers(0, 3))
    def assign(self, limit: int | None) -> None:
        plan = self._plan(limit)
        self.map = self.map.apply(plan)

    @rule()
    def plan_and_be_late(self) -> None:
        """Another scheduler plans from this very map; its commit comes after whatever happens next."""
        self.late.append(self._plan(None))

    @precondition(lambda self: self.late)
    @rule()
    def a_late_plan_lands(self) -> None:
        self.map = self.map.apply(self.late.pop(0))

    @rule(step=st.integers(1, 3))
    def former_owners_have_heard(self, step: int) -> None:
        parting = [p for p in self.map.ids().tolist() if self.map.former(p) is not None]
        self.map = self.map.release(parting[::step])

    @rule()
    def hand_back(self) -> None:
        live = {executor.owner for executor in self.live.values()}
        after = self.map.hand_back(live)
        for partition in self.map.orphans(live).tolist():
            if self.map.former(partition) in live:
                assert after.owner(partition) == self.map.former(partition)
        self.map = after

    @rule(step=st.integers(1, 3))
    def targets_have_loaded(self, step: int) -> None:
        live = {executor.owner for executor in self.live.values()}
        ready = [p for p in self.map.ids().tolist() if self.map.target(p) in live]
        self.map = self.map.promote(ready[::step])

    @rule(values=st.sets(st.sampled_from(VALUES)), allow_empty=st.booleans())
    def discover(self, values: set[Any], allow_empty: bool) -> None:
        before = {self.map.value(p) for p in self.map.ids().tolist()}
        found = sorted(((v,) for v in values), key=str)
        self.map = self.map.apply_diff(diff_partitions(self.map, found), allow_empty=allow_empty)
        after = {self.map.value(p) for p in self.map.ids().tolist()}
        assert after >= set(found)
        assert after <= before | set(found)
        if not found and not allow_empty:
            assert after == before

    @rule()
    def read_back(self) -> None:
        written = orjson.loads(orjson.dumps(self.map.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY))
        assert PartitionMap.from_columns("t", 0, written) == self.map.with_revision(0)

    @invariant()
    def epochs_only_grow_and_have_one_owner_for_ever(self) -> None:
        for partition in self.map.ids().tolist():
            value, epoch, owner = self.map.value(partition), self.map.epoch(partition), self.map.owner(partition)
            assert epoch >= self.epochs.get(value, 0)
            self.epochs[value] = epoch
            if owner is not None:
                assert self.owned.setdefault((value, epoch), owner) == owner

    @invariant()
    def every_value_is_found_where_it_is(self) -> None:
        for partition in self.map.ids().tolist():
            assert self.map.index(self.map.value(partition)) == partition
            assert len(set(self.map.owners(partition))) == len(self.map.owners(partition))

    @invariant()
    def whoever_owns_is_found_by_its_partitions(self) -> None:
        owned = [p for p in self.map.ids().tolist() if self.map.owner(p) is not None]
        owners = {self.map.owner(p) for p in owned}
        found = sorted(p for owner in owners if owner is not None for p in self.map.owned_by(*owner).tolist())
        assert found == owned

    def teardown(self) -> None:
        """Left alone with enough executors, every partition gets a live owner, within the cap."""
        if not hasattr(self, "map"):
            return
        self.live = {name: Executor(name, f"end-{name}") for name in IDS}
        for _ in range(4):
            self.map = self.map.apply(self._plan(None))
            self.epochs_only_grow_and_have_one_owner_for_ever()
            self.map = self.map.promote(self.map.ids())
            self.epochs_only_grow_and_have_one_owner_for_ever()
        live = {executor.owner for executor in self.live.values()}
        assert all(self.map.owner(p) in live for p in self.map.ids().tolist())
        assert all(len(self.map.owned_by(*owner)) <= CAP for owner in live)

    def _plan(self, limit: int | None) -> AssignmentPlan:
        return self.assigner.assign(self.map, [self.live[name] for name in sorted(self.live)], limit=limit)


TestMapLife = MapLife.TestCase
TestMapLife.settings = settings(
    deadline=None, max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "40")), stateful_step_count=30
)
