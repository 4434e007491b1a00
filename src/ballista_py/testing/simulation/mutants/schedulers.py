"""Mutants of membership and the reaper. Each function gives what to replace: (owner, name, replacement)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from attrs import evolve

from ballista_py.errors import ObjectMissing
from ballista_py.state.documents.documents import (
    AdmittedExecutor,
    ClusterDocument,
    HeartbeatDocument,
    SchedulerInfo,
    heartbeat_key,
)
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import ExecutorInfo
from ballista_py.state.members.liveness import Observer
from ballista_py.state.members.membership import Membership
from ballista_py.state.members.reaper import Reaper

Patches = list[tuple[Any, str, Any]]


def takeover_at_once() -> Patches:
    def claim(self: Any) -> None:
        try:
            seen = self._heartbeat.read()
        except ObjectMissing:
            if self._claim_free():
                return
            seen = self._heartbeat.read()
        self._take_over(seen.document)

    return [(Membership, "_claim", claim)]


def successor_commits() -> Patches:
    def guard(self: Any, document: ClusterDocument, instance_id: str) -> None:
        real(self, document, self.instance_id)

    real = Membership.guard
    return [(Membership, "guard", guard)]


def impatient() -> Patches:
    def unchanged(self: Any, name: str, token: str, asked_ms: float) -> bool:
        self._patience_ms, patience_ms = self._patience_ms / 3, self._patience_ms
        try:
            return bool(real(self, name, token, asked_ms))
        finally:
            self._patience_ms = patience_ms

    real = Observer.unchanged
    return [(Observer, "unchanged", unchanged)]


def wall_clock_liveness() -> Patches:
    def look(self: Any, scheduler: SchedulerInfo) -> HeartbeatDocument | None:
        state = _heartbeat(self, scheduler)
        seen = state.read().document
        if scheduler.instance_id == self._membership.instance_id:
            return seen
        age_ms = self._runtime.wall_ms() - seen.last_heartbeat_ms
        if seen.ended_by is None and age_ms > self._membership.patience_ms:
            bury: HeartbeatDocument | None = self._bury(state, seen)
            return bury
        return None if seen.ended_by is not None else seen

    return [(Reaper, "_look", look)]


def no_tombstone() -> Patches:
    def bury(self: Any, state: Any, seen: HeartbeatDocument) -> None:
        return None

    return [(Reaper, "_bury", bury)]


def lease_from_reply() -> Patches:
    def extend(self: Any, instance_id: str, sent_ms: float) -> None:
        real(self, instance_id, self.runtime.monotonic_ms())

    real = Membership._extend
    return [(Membership, "_extend", extend)]


def own_ears_alone() -> Patches:
    def look(self: Any, scheduler: SchedulerInfo) -> HeartbeatDocument | None:
        seen: HeartbeatDocument | None = real(self, scheduler)
        if seen is None or scheduler.instance_id == self._membership.instance_id:
            return seen
        return evolve(seen, silences={}, uptime_ms=float("inf"))

    real = Reaper._look
    return [(Reaper, "_look", look)]


def heartbeats_first() -> Patches:
    """The tick judges by the heartbeats that the tick before read, and by a fresh `cluster.json`."""

    def look(self: Any, scheduler: SchedulerInfo) -> HeartbeatDocument | None:
        seen: HeartbeatDocument | None = real_look(self, scheduler)
        known = self.__dict__.setdefault("_read_before", {})
        before, known[scheduler.instance_id] = known.get(scheduler.instance_id), seen
        return seen if seen is None or before is None else before

    def remove(
        self: Any, dead: Collection[SchedulerInfo], lost: Collection[AdmittedExecutor], instance: str
    ) -> tuple[ExecutorInfo, ...]:
        cluster = self._membership.cluster.read().document
        names = {executor.info.executor_id for executor in lost}
        fresh = [executor for id_, executor in sorted(cluster.executors.items()) if id_ in names]
        gone: tuple[ExecutorInfo, ...] = real_remove(self, dead, fresh, instance)
        return gone

    real_look, real_remove = Reaper._look, Reaper._remove
    return [(Reaper, "_look", look), (Reaper, "_remove", remove)]


def eviction_unguarded() -> Patches:
    def remove(
        self: Any, dead: Collection[SchedulerInfo], silent: Collection[AdmittedExecutor], instance: str
    ) -> tuple[ExecutorInfo, ...]:
        def change(document: ClusterDocument) -> ClusterDocument:
            self._membership.guard(document, instance)
            for scheduler in dead:
                document = document.without_scheduler(scheduler.scheduler_id, scheduler.instance_id)
            ids = {executor.info.executor_id for executor in silent}
            here = {(i, e.info.instance_id) for i, e in document.executors.items() if i in ids}
            return document.without_executors(frozenset(here))

        self._membership.cluster.update(change)
        return tuple(executor.info for executor in silent)

    return [(Reaper, "_remove", remove)]


def _heartbeat(reaper: Any, scheduler: SchedulerInfo) -> ObjectState[HeartbeatDocument]:
    key = heartbeat_key(scheduler.scheduler_id)
    return ObjectState(reaper._store, key, HeartbeatDocument, runtime=reaper._runtime)
