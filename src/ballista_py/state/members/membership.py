"""How a scheduler joins the cluster, proves that it lives, and stops when it can no longer prove it.

The heartbeat document of an id decides who holds the id: a late beat, an eviction and a takeover meet in it and
one of them wins. `cluster.json` only lists who won. Liveness is observation, never a comparison of two
machines' clocks, and a lease counts from the moment its beat was *sent*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from attrs import evolve, frozen

from ballista_py.errors import (
    AlreadyRegistered,
    Fenced,
    LeaseExpired,
    ObjectExists,
    ObjectMissing,
)
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    HeartbeatDocument,
    SchedulerInfo,
    heartbeat_key,
)
from ballista_py.state.documents.object_state import SHARED, ObjectState, Retry
from ballista_py.state.members.liveness import BEATS_PER_TTL, SKEW_MS, TTL_MS, Observer
from ballista_py.state.ownership.catalog_proof import read_catalog
from ballista_py.state.stores.store import ConditionalStore, check_key

_POLLS_PER_PATIENCE = 8
_CLAIM_TRIES = 64
JOIN_TRIES = 5


def _hears_nobody() -> Mapping[str, float]:
    return {}


@frozen
class _Standing:
    """What this process knows of its own membership. Replaced whole, so that readers need no lock."""

    instance_id: str = ""
    started_ms: float = 0.0
    lease_from_ms: float = float("-inf")
    fenced: bool = False


class Membership:
    """The place of one scheduler in the cluster. Safe to share between threads.

    `node` says who it is; its `instance_id` is ignored, each `join` makes a fresh one. Call `beat` every
    `beat_every_ms`, and act as a scheduler only while `valid()`.
    """

    def __init__(
        self,
        store: ConditionalStore,
        node: SchedulerInfo,
        *,
        ttl_ms: float = TTL_MS,
        skew_ms: float = SKEW_MS,
        runtime: Runtime | None = None,
        retry: Retry | None = None,
    ) -> None:
        check_key(node.scheduler_id)
        self.ttl_ms = ttl_ms
        self.skew_ms = skew_ms
        self.runtime: Runtime = runtime or SystemRuntime()
        self._node = node
        self._store = store
        self._retry = retry or SHARED
        self._lock = self.runtime.lock()
        self._standing = _Standing()
        self._open("")

    @property
    def scheduler_id(self) -> str:
        return self._node.scheduler_id

    @property
    def instance_id(self) -> str:
        """The instance of the newest `join`; empty before the first."""
        return self._standing.instance_id

    @property
    def info(self) -> SchedulerInfo:
        """This scheduler as `cluster.json` lists it."""
        return evolve(self._node, instance_id=self.instance_id)

    @property
    def cluster(self) -> ObjectState[ClusterDocument]:
        """`cluster.json`, with commits signed by this instance."""
        return self._cluster

    @property
    def patience_ms(self) -> float:
        """How long a member must have been silent before anybody may call it dead."""
        return self.ttl_ms + self.skew_ms

    @property
    def beat_every_ms(self) -> float:
        return self.ttl_ms / BEATS_PER_TTL

    def join(self) -> SchedulerInfo:
        """Become the live instance of this id and stand in `cluster.json`, which is made if it is missing.

        At once when the id is free or its holder has left; else this blocks until the holder has been silent for
        `patience_ms`, and raises `AlreadyRegistered` as soon as it shows life. Raises `DocumentLost` or
        `DocumentOlder` when `cluster.json` is missing, or knows less than what lies there. A store so slow that the
        lease is over before all is written is tried again, `JOIN_TRIES` times in all; then `LeaseExpired` is raised.
        """
        with suppress(ObjectMissing):  # where nothing lies yet
            read_catalog(self._store, runtime=self.runtime)  # a commit to an older copy would make it look newer
        for tries in range(1, JOIN_TRIES + 1):
            self._standing = _Standing(instance_id=self.runtime.new_id(), started_ms=self.runtime.monotonic_ms())
            self._open(self.instance_id)
            self._claim()
            try:
                self._announce()
                break
            except LeaseExpired:
                self.leave()  # so that the next try need not wait for this instance
                if tries == JOIN_TRIES:
                    raise
        return self.info

    def beat(self, silences: Callable[[], Mapping[str, float]] = _hears_nobody) -> None:
        """Prove that this instance lives, and publish for how long each executor (by instance id) was silent.

        `silences` is asked at the last moment before each attempt. Raises `Fenced` when the id was taken over, the
        instance was evicted or it has left: stop acting at once; `join` makes a new instance. Errors of the store
        pass through, and the lease runs on from the last beat that succeeded.
        """
        standing = self._standing
        sent_ms = standing.lease_from_ms

        def change(document: HeartbeatDocument) -> HeartbeatDocument:
            nonlocal sent_ms
            if document.instance_id != standing.instance_id or document.ended_by is not None:
                raise self.fence(standing.instance_id)
            sent_ms = self.runtime.monotonic_ms()
            return self._alive(standing, document.beats + 1, silences())

        if standing.fenced or not standing.instance_id:
            raise self._fenced_error()
        try:
            self._heartbeat.update(change)
        except ObjectMissing:
            raise self.fence(standing.instance_id) from None
        self._extend(standing.instance_id, sent_ms)

    def valid(self) -> bool:
        """Whether this instance may act now: its newest successful beat was sent less than `ttl_ms` ago."""
        return self.remaining_ms() > 0

    def remaining_ms(self) -> float:
        """How long the lease lasts from now on; 0 when it is over."""
        standing = self._standing
        if standing.fenced:
            return 0.0
        return max(0.0, self.ttl_ms - (self.runtime.monotonic_ms() - standing.lease_from_ms))

    def require(self) -> None:
        """Return if this instance may act now. Raises `Fenced` or `LeaseExpired`."""
        if self._standing.fenced:
            raise self._fenced_error()
        if not self.valid():
            raise LeaseExpired(
                f"scheduler '{self.scheduler_id}' has not proved for {self.ttl_ms:.0f} ms that it lives; it acts "
                "again after its next successful beat",
                scheduler_id=self.scheduler_id,
            )

    def guard(self, document: ClusterDocument, instance_id: str) -> None:
        """What every change of `cluster.json` starts with: `require`, and `Fenced` if we are not in it.

        `instance_id` is the instance that decided on the change: what it began is not for the one after it to end.
        """
        if instance_id != self.instance_id:
            raise self._fenced_error()
        self.require()
        found = document.schedulers.get(self.scheduler_id)
        if found is None or found.instance_id != instance_id:
            raise self.fence(instance_id)

    def peers(self) -> tuple[SchedulerInfo, ...]:
        """The other schedulers that `cluster.json` lists and that are not leaving, in order of their ids."""
        listed = self._cluster.read().document.schedulers
        others = (listed[id_] for id_ in sorted(listed) if id_ != self.scheduler_id)
        return tuple(other for other in others if not other.leaving)

    def leave(self) -> None:
        """Stop acting and free the id at once. Leaving twice is fine.

        `cluster.json` lists this scheduler as `leaving` until a reaper has waited out the leases that it granted.
        """
        instance_id = self.instance_id
        self.fence(instance_id)

        def end(document: HeartbeatDocument) -> HeartbeatDocument:
            mine = document.instance_id == instance_id and document.ended_by is None
            return evolve(document, ended_by=instance_id) if mine else document

        def mark(document: ClusterDocument) -> ClusterDocument:
            found = document.schedulers.get(self.scheduler_id)
            if found is None or found.instance_id != instance_id:
                return document
            return evolve(
                document, schedulers={**document.schedulers, self.scheduler_id: evolve(found, leaving=True)}
            )

        try:
            self._heartbeat.update(end)
            self._cluster.update(mark)
        except ObjectMissing:
            return

    def _open(self, instance_id: str) -> None:
        def state(key: str, kind: type) -> ObjectState:  # type: ignore[type-arg]
            return ObjectState(
                self._store, key, kind, runtime=self.runtime, retry=self._retry, committed_by=instance_id
            )

        self._cluster: ObjectState[ClusterDocument] = state(CLUSTER_KEY, ClusterDocument)
        self._heartbeat: ObjectState[HeartbeatDocument] = state(
            heartbeat_key(self.scheduler_id), HeartbeatDocument
        )

    def _claim(self) -> None:
        """Make the heartbeat document ours."""
        observer = Observer(self.runtime, self.patience_ms)
        first_version: str | None = None
        for _ in range(_CLAIM_TRIES):
            asked_ms = self.runtime.monotonic_ms()
            try:
                seen = self._heartbeat.read()
            except ObjectMissing:
                if self._claim_free():
                    return
                continue
            over = seen.document.ended_by is not None
            if over or observer.unchanged(self.scheduler_id, seen.version, asked_ms):
                self._take_over(seen.document)
                return
            first_version = first_version or seen.version
            if seen.version != first_version:
                break
            self.runtime.sleep_ms(self.patience_ms / _POLLS_PER_PATIENCE)
        raise self._registered()

    def _claim_free(self) -> bool:
        sent_ms = self.runtime.monotonic_ms()
        try:
            self._heartbeat.create(self._alive(self._standing, 1, {}))
        except ObjectExists:
            return False
        self._extend(self.instance_id, sent_ms)
        return True

    def _take_over(self, seen: HeartbeatDocument) -> None:
        sent_ms = self.runtime.monotonic_ms()

        def change(document: HeartbeatDocument) -> HeartbeatDocument:
            nonlocal sent_ms
            if document != seen:
                raise self._registered()
            sent_ms = self.runtime.monotonic_ms()
            return self._alive(self._standing, 1, {})

        self._heartbeat.update(change)
        self._extend(self.instance_id, sent_ms)

    def _announce(self) -> None:
        """Stand in `cluster.json`. The lease says that the id is still ours."""

        def change(document: ClusterDocument) -> ClusterDocument:
            self.require()
            return evolve(document, schedulers={**document.schedulers, self.scheduler_id: self.info})

        try:
            self._cluster.update(change)
        except ObjectMissing:
            try:
                self._cluster.create(change(ClusterDocument()))
            except ObjectExists:
                self._cluster.update(change)

    def _alive(self, standing: _Standing, beats: int, silences: Mapping[str, float]) -> HeartbeatDocument:
        return HeartbeatDocument(
            scheduler_id=self.scheduler_id,
            instance_id=standing.instance_id,
            beats=beats,
            uptime_ms=self.runtime.monotonic_ms() - standing.started_ms,
            silences=dict(silences),
            last_heartbeat_ms=self.runtime.wall_ms(),
        )

    def _extend(self, instance_id: str, sent_ms: float) -> None:
        with self._lock:
            standing = self._standing
            if standing.instance_id == instance_id and sent_ms > standing.lease_from_ms:
                self._standing = evolve(standing, lease_from_ms=sent_ms)

    def fence(self, instance_id: str) -> Fenced:
        """Stop acting as `instance_id` for ever; returns the error to raise."""
        with self._lock:
            if self._standing.instance_id == instance_id:
                self._standing = evolve(self._standing, fenced=True)
        return self._fenced_error()

    def _fenced_error(self) -> Fenced:
        return Fenced(
            f"scheduler '{self.scheduler_id}' no longer holds its id (it has left, was evicted or was replaced); "
            "it may join again as a new instance",
            scheduler_id=self.scheduler_id,
        )

    def _registered(self) -> AlreadyRegistered:
        return AlreadyRegistered(
            f"scheduler id {self.scheduler_id} is already registered", scheduler_id=self.scheduler_id
        )
