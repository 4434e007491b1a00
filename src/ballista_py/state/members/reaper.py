"""Who must go: schedulers that stopped beating, and executors that no live scheduler hears.

The order is the safety: `cluster.json` is read first, the heartbeat documents second; a dead scheduler's heartbeat
becomes a tombstone before anything follows from its death; one commit, guarded by what was read first, removes
whom it may. Re-admitting an executor therefore meets its loss in `cluster.json`, and one of them wins.

Each scheduler looks after those that follow it in the order of their ids, so that what all of them read grows as their
number, not as its square. It looks at everybody only while it has not heard an executor itself for too long: to lose
one takes the word of all.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import evolve, frozen

from ballista_py.errors import ObjectExists, ObjectMissing, OutcomeUnknown, RetriesExhausted, StoreUnavailable
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
from ballista_py.state.stores.store import ConditionalStore

WATCHED = 3  # schedulers that one looks after: if all of them die at once, the next ones are looked after then


@frozen(kw_only=True)
class ReapReport:
    """What one tick did: schedulers evicted and kept (by id), executors lost."""

    evicted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    lost: tuple[ExecutorInfo, ...] = ()


def silent_executors(
    cluster: ClusterDocument, heartbeats: Collection[HeartbeatDocument], patience_ms: float
) -> tuple[AdmittedExecutor, ...]:
    """The executors that every one of the live schedulers' `heartbeats` itself says were silent too long.

    Nobody extrapolates past a document: its scheduler may have heard the executor since. Without any document
    nobody is silent.
    """
    if not heartbeats:
        return ()
    return tuple(
        executor
        for _, executor in sorted(cluster.executors.items())
        if all(heard.silence_ms(executor.info.instance_id) > patience_ms for heard in heartbeats)
    )


def following(names: Collection[str], own: str, count: int) -> tuple[str, ...]:
    """The names that come after one's own, in their order and from the last on to the first; at most `count`.

    >>> following(["s1", "s2", "s3", "s4"], "s3", 2)
    ('s4', 's1')
    """
    ordered = sorted(set(names) - {own})
    after = [name for name in ordered if name > own]
    return tuple([*after, *ordered][:count])[: len(ordered)]


class Reaper:
    """Removes dead members. Each scheduler runs one; several at once do no harm. Not for several threads."""

    def __init__(self, store: ConditionalStore, membership: Membership) -> None:
        self._store = store
        self._membership = membership
        self._runtime = membership.runtime
        self._observer = Observer(self._runtime, membership.patience_ms)
        self._heartbeats: dict[tuple[str, str], ObjectState[HeartbeatDocument]] = {}

    def tick(self) -> ReapReport:
        """Look once, and remove whom the looks so far condemn.

        Raises `LeaseExpired` or `Fenced` when this scheduler may not act, and errors of the store; a later tick
        takes up where this one stopped.
        """
        self._membership.require()
        instance = self._membership.instance_id
        cluster = self._membership.cluster.read().document  # first
        self._membership.guard(cluster, instance)
        self._observer.keep_only(cluster.schedulers)
        self._heartbeats = {k: state for k, state in self._heartbeats.items() if k[1] in cluster.schedulers}
        live: list[HeartbeatDocument] = []
        dead: list[SchedulerInfo] = []
        patience_ms = self._membership.patience_ms
        own = self._membership.scheduler_id
        sure = self._looked([cluster.schedulers[own]], live, dead)  # second
        suspected = sure and bool(silent_executors(cluster, live, patience_ms))
        others = following(cluster.schedulers, own, len(cluster.schedulers) if suspected else WATCHED)
        sure = self._looked([cluster.schedulers[name] for name in others], live, dead) and sure
        lost = silent_executors(cluster, live, patience_ms) if sure and suspected else ()
        gone = self._remove(dead, lost, instance) if dead or lost else ()
        names = {scheduler.scheduler_id for scheduler in dead}
        kept = tuple(sorted(cluster.schedulers.keys() - names))
        return ReapReport(evicted=tuple(sorted(names)), kept=kept, lost=gone)

    def _looked(
        self, schedulers: Collection[SchedulerInfo], live: list[HeartbeatDocument], dead: list[SchedulerInfo]
    ) -> bool:
        """Look at each, and put down what became of it; whether that is known of all."""
        sure = True
        for scheduler in schedulers:
            try:
                heard = self._look(scheduler)
            except (StoreUnavailable, OutcomeUnknown, RetriesExhausted):
                sure = False
                continue
            if heard is None:
                dead.append(scheduler)
            else:
                live.append(heard)
        return sure

    def _look(self, scheduler: SchedulerInfo) -> HeartbeatDocument | None:
        """The newest heartbeat of a live scheduler, or None for one that can never beat again."""
        state = self._heartbeat_of(scheduler.scheduler_id)
        asked_ms = self._runtime.monotonic_ms()
        try:
            read = state.read()
            seen, version = read.document, read.version
        except ObjectMissing:
            seen, version = HeartbeatDocument(scheduler_id=scheduler.scheduler_id, instance_id=""), ""
        mine = scheduler.instance_id == self._membership.instance_id
        if mine and (seen.instance_id != scheduler.instance_id or seen.ended_by is not None):
            raise self._membership.fence(scheduler.instance_id)
        evicted = seen.ended_by is not None and seen.ended_by != seen.instance_id
        if evicted:
            return None
        silent = self._observer.unchanged(scheduler.scheduler_id, version, asked_ms)
        if not silent or mine:
            return seen
        if seen.ended_by is not None:  # it left, and the leases that it granted are over by now
            return None
        return self._bury(state, seen)

    def _heartbeat_of(self, scheduler_id: str) -> ObjectState[HeartbeatDocument]:
        mine = self._membership.instance_id
        found = self._heartbeats.get((mine, scheduler_id))
        if found is None:
            found = self._heartbeats[mine, scheduler_id] = ObjectState(
                self._store,
                heartbeat_key(scheduler_id),
                HeartbeatDocument,
                runtime=self._runtime,
                committed_by=mine,
            )
        return found

    def _bury(self, state: ObjectState[HeartbeatDocument], seen: HeartbeatDocument) -> HeartbeatDocument | None:
        """Put a tombstone over exactly the document seen silent; a beat that came first is returned instead."""
        tombstone = evolve(seen, ended_by=self._membership.instance_id)
        try:
            if not seen.instance_id:
                state.create(tombstone)
                return None
            after = state.update(lambda document: tombstone if document == seen else document).document
        except (ObjectExists, ObjectMissing):
            return seen
        return None if after == tombstone else after

    def _remove(
        self, dead: Collection[SchedulerInfo], silent: Collection[AdmittedExecutor], instance: str
    ) -> tuple[ExecutorInfo, ...]:
        """One commit without the dead and the silent, as far as they still are what was read first."""
        lost: tuple[ExecutorInfo, ...] = ()

        def change(document: ClusterDocument) -> ClusterDocument:
            nonlocal lost
            self._membership.guard(document, instance)
            for scheduler in dead:
                document = document.without_scheduler(scheduler.scheduler_id, scheduler.instance_id)
            lost = tuple(
                executor.info
                for executor in silent
                if document.executors.get(executor.info.executor_id) == executor
            )
            return document.without_executors(frozenset((i.executor_id, i.instance_id) for i in lost))

        self._membership.cluster.update(change)
        return lost
