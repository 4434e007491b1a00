"""Mutants of leases, fences, maps and notification. Each gives what to replace: (owner, name, replacement)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from ballista_py.errors import BallistaError
from ballista_py.partitions import moves as partition_changes
from ballista_py.partitions.assignment.assigner import AssignmentPlan
from ballista_py.partitions.map import PartitionMap
from ballista_py.state.members.control import Grant, Heartbeat, Refusal
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.members.executor_registry import ExecutorRegistry
from ballista_py.state.ownership import partition_store
from ballista_py.state.ownership.partition_store import Commit, PartitionStore
from ballista_py.storage import manifest
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.partition_storage import PartitionStorage

Patches = list[tuple[Any, str, Any]]


def grant_outlives_granter() -> Patches:
    def grant(self: Any, heartbeat: Heartbeat) -> Grant:
        return Grant(sequence=heartbeat.sequence, lease_ms=self._membership.ttl_ms)

    return [(ExecutorRegistry, "_grant", grant)]


def no_readmission() -> Patches:
    def answer(self: Any, known: Any, heartbeat: Heartbeat, now_ms: float) -> Any:
        return real(self, known, evolve(heartbeat, lapsed=False), now_ms)

    def hears(self: Any, known: Any, now_ms: float) -> bool:
        return known.granted_ms is not None

    real = ExecutorRegistry._answer
    return [(ExecutorRegistry, "_answer", answer), (ExecutorRegistry, "_hears", hears)]


def no_first_readmission() -> Patches:
    def answer(self: Any, known: Any, heartbeat: Heartbeat, now_ms: float) -> Any:
        if known.granted_ms is None and heartbeat.admitted:
            known.granted_ms, heartbeat = now_ms, evolve(heartbeat, lapsed=False)
        return real(self, known, heartbeat, now_ms)

    real = ExecutorRegistry._answer
    return [(ExecutorRegistry, "_answer", answer)]


def readmitted_without_beat() -> Patches:
    def tick(self: Any) -> Any:
        beat, self._membership.beat = self._membership.beat, lambda _: None
        try:
            return real(self)
        finally:
            self._membership.beat = beat

    real = ExecutorRegistry.tick
    return [(ExecutorRegistry, "tick", tick)]


def lease_from_receipt() -> Patches:
    def answered(self: Any, answer: Grant | Refusal) -> bool:
        if isinstance(answer, Grant) and answer.sequence in self._sent_ms:
            self._sent_ms[answer.sequence] = self._runtime.monotonic_ms()
        return bool(real(self, answer))

    real = ExecutorLease.answered
    return [(ExecutorLease, "answered", answered)]


def lost_goes_on() -> Patches:
    def drop_all(self: Any) -> None:
        return None

    def rejoin(self: Any) -> Any:
        until_ms = self._runtime.monotonic_ms() + 30_000.0
        info = real(self)
        self._standing = evolve(self._standing, until_ms=until_ms)
        return info

    real = ExecutorLease.rejoin
    return [(PartitionHolder, "drop_all", drop_all), (ExecutorLease, "rejoin", rejoin)]


def fence_removed() -> Patches:
    def require_epoch(document: Any, epoch: int, key: str) -> None:
        return None

    return [(manifest, "require_epoch", require_epoch)]


def no_activation() -> Patches:
    def activate(storage: PartitionStorage, epoch: int) -> Any:
        return storage.read()

    return [(PartitionStorage, "activate", activate)]


def epoch_unchecked() -> Patches:
    def still_fresh(pmap: PartitionMap, plan: AssignmentPlan) -> Any:
        return plan.partitions < len(pmap)

    def allowed(pmap: PartitionMap, plan: AssignmentPlan, members: Any) -> AssignmentPlan:
        return evolve(plan, epochs=pmap.epochs[plan.partitions]) if plan else plan

    return [(partition_changes, "_still_fresh", still_fresh), (partition_store, "_allowed", allowed)]


def former_forgotten() -> Patches:
    def promote(pmap: PartitionMap, partitions: Any) -> PartitionMap:
        after = real(pmap, partitions)
        return after.release(after.ids())

    real = partition_changes.promote
    return [(partition_changes, "promote", promote)]


def notify_before_commit() -> Patches:
    def commit(self: Any, plan: AssignmentPlan, **rest: Any) -> Commit:
        pmap = self.read(plan.base.table)
        members = frozenset(self._members())
        loaded, stalled, released = (rest.get(name) or {} for name in ("loaded", "stalled", "released"))
        planned = partition_store._decide(pmap, plan, loaded, stalled, released, members)
        try:
            return real(self, plan, **rest)
        except BallistaError:
            return evolve(planned, map=planned.map.with_revision(pmap.revision + 1))

    real = PartitionStore.commit
    return [(PartitionStore, "commit", commit)]


def promoted_at_same_epoch() -> Patches:
    def promote(pmap: PartitionMap, partitions: Iterable[int]) -> PartitionMap:
        return evolve(real(pmap, partitions), epochs=pmap.epochs)

    def objection(old: PartitionMap, new: PartitionMap) -> None:
        return None

    real = partition_changes.promote
    return [(partition_changes, "promote", promote), (partition_store, "epochs_objection", objection)]
