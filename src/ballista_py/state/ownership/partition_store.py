"""The committed partition maps: read, create, and change by plans, promotions and discoveries.

A commit decides on the map as it is at that very commit, and asks `cluster.json` only after it has read that
map. So "its owner is no member" is certain: an owner is a member before a map names it, and an instance that
was removed never becomes one again. Whatever was planned from an older state of a partition is dropped and
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from ballista_py.errors import DocumentLost, NotOwner, ObjectExists, ObjectMissing, OutcomeUnknown
from ballista_py.partitions.assignment.assigner import AssignmentPlan
from ballista_py.partitions.discovery import PartitionDiff
from ballista_py.partitions.map import NOBODY, Owner, PartitionMap
from ballista_py.partitions.table import table_folder
from ballista_py.partitions.value_index import Ids
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    SNAPSHOTS_PREFIX,
    ClusterDocument,
    PartitionMapDocument,
    partition_map_key,
    table_of_map,
)
from ballista_py.state.documents.fence import HasEpoch, activate
from ballista_py.state.documents.lost_documents import way_out
from ballista_py.state.documents.object_state import SHARED, ObjectState, Retry, Versioned
from ballista_py.state.ownership.catalog_proof import require_proven_catalog
from ballista_py.state.stores.store import ConditionalStore

D = TypeVar("D", bound=HasEpoch)
_NONE: Ids = np.empty(0, np.int32)


def _ids() -> Ids:
    return _NONE


@frozen(kw_only=True)
class Commit:
    """What one commit did to one table's map, by partition id; `map` is the map that it left.

    `assigned` have a new owner, `targeted` a new target, `promoted` got their target as owner, `called_off` lost
    it; `returned` went back to the owner that had handed them over. `dropped` were planned, and left out because
    the partition or the membership had changed since.
    """

    map: PartitionMap
    assigned: Ids = field(factory=_ids, eq=False)
    targeted: Ids = field(factory=_ids, eq=False)
    promoted: Ids = field(factory=_ids, eq=False)
    called_off: Ids = field(factory=_ids, eq=False)
    returned: Ids = field(factory=_ids, eq=False)
    dropped: Ids = field(factory=_ids, eq=False)


class PartitionStore:
    """The partition maps of one cluster, each by its name (`TableSpec.map_name`). Safe to share between threads.

    `guard` is called in every change and raises when this process may not act (`Membership.require`). `members`
    tells the live (executor id, instance id); without it `cluster.json` does.
    """

    def __init__(
        self,
        store: ConditionalStore,
        *,
        guard: Callable[[], None] | None = None,
        members: Callable[[], Collection[Owner]] | None = None,
        runtime: Runtime | None = None,
        retry: Retry | None = None,
        committed_by: str = "",
    ) -> None:
        self._store = store
        self._guard = guard or (lambda: None)
        self._runtime = runtime or SystemRuntime()
        self._retry = retry or SHARED
        self._committed_by = committed_by
        self._cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=self._runtime, retry=self._retry)
        self._told_members = members
        self._lock = self._runtime.lock()
        self._states: dict[str, ObjectState[PartitionMapDocument]] = {}
        self._read: dict[str, tuple[PartitionMapDocument, PartitionMap]] = {}  # the same document is the same map

    def read(self, map_name: str, incarnation: str | None = None) -> PartitionMap:
        """The committed map at its revision. Raises `ObjectMissing`, also for the map of another incarnation."""
        found = self._state(map_name).read()
        return self._understood(map_name, found, incarnation)

    def _understood(
        self, map_name: str, found: Versioned[PartitionMapDocument], incarnation: str | None
    ) -> PartitionMap:
        if incarnation not in (None, found.document.incarnation):
            name = table_of_map(map_name)
            raise ObjectMissing(f"the partition map of table '{name}' is that of an earlier table of its name")
        with self._lock:
            known = self._read.get(map_name)
            if known is None or known[0] is not found.document:
                known = self._read[map_name] = (found.document, _map_of(found))
            return known[1]

    def create(self, pmap: PartitionMap, incarnation: str = "") -> PartitionMap:
        """Commit the first map of a table. Raises `ObjectExists`."""
        first = PartitionMapDocument(map=pmap.with_revision(0), incarnation=incarnation)
        return _map_of(self._state(pmap.table).create(first))

    def ensure(self, pmap: PartitionMap, incarnation: str = "") -> PartitionMap:
        """The committed map of the table; `pmap` becomes it if there is none yet.

        Raises `DocumentLost` when there was one: its partitions lie there, under epochs that a new one would repeat.
        """
        folder = f"{SNAPSHOTS_PREFIX}{table_folder(pmap.table, incarnation)}/"
        key = partition_map_key(pmap.table)
        try:
            self._store.get(key)
        except ObjectMissing:
            if next(iter(self._store.list(folder)), None) is not None:
                raise DocumentLost(f"document '{key}' is gone: {way_out()}", key=key) from None
        try:
            return self.create(pmap, incarnation)
        except (ObjectExists, OutcomeUnknown):  # of many commits nobody can tell whether the first one was ours
            return self.read(pmap.table, incarnation)

    def commit(
        self,
        plan: AssignmentPlan,
        *,
        diff: PartitionDiff | None = None,
        loaded: Mapping[int, Owner] | None = None,
        stalled: Mapping[int, Owner] | None = None,
        released: Mapping[int, int] | None = None,
        parting: Mapping[int, int] | None = None,
    ) -> Commit:
        """Apply a discovery, promotions and a whole plan to the table of `plan` in one conditional write.

        First `diff`; then each partition in `loaded` is promoted if the executor named there still is its
        target, and its owner is no member or has said that it was told: `parting` names the epoch for which it did.
        Each in `stalled` loses that one as its target; each in `released` no longer has a former owner
        if its epoch still is the one named, and whose owner is gone goes back to its former one; then the moves,
        but for those whose partition no longer has the epoch, owner and target that it was planned from, whose new
        owner is no member, that would take a partition from a member that is not told to give it up, or move one
        on that a member may still serve at its former epoch. Raises what `ObjectState.update` and `guard` raise.
        """
        table = plan.base.table
        done: list[Commit] = []

        def change(document: PartitionMapDocument) -> PartitionMapDocument:
            self._guard()
            fresh = document.map if diff is None else document.map.apply_diff(diff)
            members, revision = self._members(document)
            ready = ready_to_move(fresh, loaded or {}, parting or {}, members)
            done[:] = [_decide(fresh, plan, ready, stalled or {}, released or {}, members)]
            if done[0].map == document.map:
                return document
            return evolve(document, map=done[0].map, catalog_revision=max(revision, document.catalog_revision))

        landed = self._state(table).update(change)
        return evolve(done[0], map=_map_of(landed))

    def activate(self, table: str, partition: int, owner: Owner, fenced: ObjectState[D]) -> int:
        """Make `owner` the one whose writes `fenced` accepts, if it owns the partition; returns its epoch.

        `fenced` is any document with a field `epoch` that the owner's later writes check (`fence.require_epoch`).
        From the return on nothing stamped with an older epoch is accepted there. Raises `NotOwner` when the
        committed map names somebody else, `Fenced` when a later owner was activated already, and what
        `ObjectState.update` raises; after any of them the owner must not serve.
        """
        pmap = self.read(table)
        if partition >= len(pmap) or pmap.owner(partition) != owner:
            raise NotOwner(
                f"'{owner[0]}' does not own partition {partition} of table '{table}' at revision {pmap.revision}",
                table=table,
                partition=partition,
                revision=pmap.revision,
            )
        epoch = pmap.epoch(partition)
        activate(fenced, epoch)
        return epoch

    def _members(self, document: PartitionMapDocument) -> tuple[frozenset[Owner], int]:
        """The members and the revision of the catalog, read after the map, which must not know of a newer one."""
        if self._told_members is not None:
            return frozenset(self._told_members()), 0
        cluster = self._cluster.read()
        require_proven_catalog(cluster.header.revision, document.map.table, document.catalog_revision)
        return cluster.document.members(), cluster.header.revision

    def _state(self, table: str) -> ObjectState[PartitionMapDocument]:
        with self._lock:
            found = self._states.get(table)
            if found is None:
                found = self._states[table] = ObjectState(
                    self._store,
                    partition_map_key(table),
                    PartitionMapDocument,
                    runtime=self._runtime,
                    retry=self._retry,
                    committed_by=self._committed_by,
                    invariant=lambda old, new: epochs_objection(old.map, new.map),
                )
            return found


def epochs_objection(old: PartitionMap, new: PartitionMap) -> str | None:
    """What is wrong with a map following another, or None: epochs only grow, and with each change of owner."""
    count = len(old)
    if len(new) < count or new.spec != old.spec:
        return f"the map of table '{table_of_map(old.table)}' would lose partitions or change its keys"
    if (new.epochs[:count] < old.epochs).any():
        return f"an epoch of table '{table_of_map(old.table)}' would fall"
    places = {owner: place for place, owner in enumerate(old.executors)}
    known = np.array([*(places.get(owner, NOBODY - 1) for owner in new.executors), NOBODY], np.int32)
    changed = known[new.owner_index[:count, 0]] != old.owner_index[:, 0]
    if (changed & (new.epochs[:count] == old.epochs)).any():
        return f"a partition of table '{table_of_map(old.table)}' would change its owner without a new epoch"
    return None


def ready_to_move(
    pmap: PartitionMap, loaded: Mapping[int, Owner], parting: Mapping[int, int], members: Collection[Owner]
) -> dict[int, Owner]:
    """What may be promoted of `loaded`: an owner that serves on must know first that it may be a former one."""
    return {
        p: target
        for p, target in loaded.items()
        if p < len(pmap) and (pmap.owner(p) not in members or parting.get(p) == pmap.epoch(p))
    }


def _decide(
    pmap: PartitionMap,
    plan: AssignmentPlan,
    loaded: Mapping[int, Owner],
    stalled: Mapping[int, Owner],
    released: Mapping[int, int],
    members: frozenset[Owner],
) -> Commit:
    heard = [p for p, epoch in sorted(released.items()) if p < len(pmap) and pmap.epoch(p) == epoch]
    pmap = pmap.release(heard) if heard else pmap
    ready = [partition for partition in _aimed(pmap, loaded) if loaded[partition] in members]
    promoted = pmap.promote(ready) if ready else pmap
    lost = _aimed(promoted, stalled)
    promoted = promoted.call_off(lost) if lost else promoted
    owned = promoted.hand_back(members)
    returned = np.flatnonzero(owned.epochs != promoted.epochs).astype(np.int32)
    allowed = _allowed(owned, plan, members)
    after = owned.apply(allowed) if allowed else owned
    assigned, targeted = _done(after, allowed)
    ids = allowed.partitions
    return Commit(
        map=after if assigned.any() or targeted.any() else owned,
        assigned=ids[assigned],
        targeted=ids[targeted],
        promoted=np.array(ready, np.int32),
        called_off=np.array(lost, np.int32),
        returned=returned,
        dropped=np.setdiff1d(plan.partitions, ids[assigned | targeted]).astype(np.int32),
    )


def _aimed(pmap: PartitionMap, targets: Mapping[int, Owner]) -> list[int]:
    """The partitions whose target still is the one named."""
    return [p for p, owner in sorted(targets.items()) if p < len(pmap) and pmap.target(p) == owner]


def _done(after: PartitionMap, plan: AssignmentPlan) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which moves of the plan the map shows as done: new holders, and new targets."""
    places = {owner: place for place, owner in enumerate(after.executors)}
    wanted = np.array([*(places.get(e.owner, NOBODY - 1) for e in plan.executors), NOBODY - 1], np.int32)[plan.to]
    holder = after.owner_index[plan.partitions, np.minimum(plan.slots, after.owner_index.shape[1] - 1)]
    stepped = (plan.slots > 0) | (after.epochs[plan.partitions] == plan.epochs + 1)
    return ~plan.moved & stepped & (holder == wanted), plan.moved & (after.target_index[plan.partitions] == wanted)


def _allowed(pmap: PartitionMap, plan: AssignmentPlan, members: frozenset[Owner]) -> AssignmentPlan:
    """The plan without moves to strangers, of partitions that a living owner, or former owner, still serves."""
    if not plan:
        return plan
    welcome = np.array([executor.owner in members for executor in plan.executors], np.bool_)
    lives = np.array([*(owner in members for owner in pmap.executors), False], np.bool_)
    inside = plan.partitions < len(pmap)
    ids = np.where(inside, plan.partitions, 0)
    served, parting = lives[pmap.owner_index[ids, 0]], lives[pmap.former_index[ids]]
    keep = inside & welcome[plan.to] & ((plan.slots > 0) | np.where(plan.moved, ~parting, ~served))
    return plan.only(keep)


def _map_of(versioned: Versioned[PartitionMapDocument]) -> PartitionMap:
    return versioned.document.map.with_revision(versioned.header.revision)
