"""The loop that brings every table to where it should be: discover, diff, assign, commit, promote.

One tick makes at most one commit per table. It decides nothing itself: planning decides who gets what, the
partition store decides at the commit what of it still holds. Several schedulers may tick at once; what one of
them commits first, the others drop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import Factory, evolve, field, frozen

from ballista_py.errors import BallistaError, ConfigError, DocumentError, ObjectMissing, PlanningError, StoreError
from ballista_py.partitions.assignment.assigner import AssignmentPlan, Executor, PartitionAssigner
from ballista_py.partitions.discovery import PartitionDiff, added_partitions, diff_partitions
from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.partitions.set_cover import without_room
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import ClusterDocument, partition_map_key
from ballista_py.state.documents.lost_documents import require_proven
from ballista_py.state.members.control import HeldPartitions
from ballista_py.state.members.membership import Membership
from ballista_py.state.ownership.partition_store import Commit, PartitionStore, ready_to_move
from ballista_py.state.ownership.stalled_moves import MoveWatch, SettledTables
from ballista_py.state.ownership.table_status import Reports, loaded_in, newest_heard, parting_in, released_in

ASSIGNMENT_INTERVAL_MS = 30_000.0
MAX_ASSIGNMENTS_PER_INTERVAL = 100


@frozen(kw_only=True)
class Discovery:
    """The partition values that a source shows now, and optionally a weight for each.

    `after` is what the table's map counted as `discoveries` when this one began.
    """

    values: Sequence[tuple[Any, ...]]
    weights: Sequence[float] | None = None
    after: int | None = None


Discoverer = Callable[[TableSpec], Discovery | None]
ReportsOf = Callable[[], Mapping[Owner, Sequence[HeldPartitions]]]


@frozen(kw_only=True)
class ReconcileReport:
    """What one tick did, by table: `commits` that wrote something, and the `errors` of tables left as they were.

    `unplaced` counts the partitions for which no executor has room, `deferred` those left for a later tick by the
    limit. `maps` are the committed maps as this tick knows them.
    """

    commits: Mapping[str, Commit] = Factory(dict)
    errors: Mapping[str, BallistaError] = Factory(dict)
    unplaced: Mapping[str, int] = Factory(dict)
    deferred: Mapping[str, int] = Factory(dict)
    maps: Mapping[str, PartitionMap] = field(factory=dict, repr=False)

    @property
    def settled(self) -> bool:
        """Whether nothing was left to do."""
        return not (self.commits or self.errors or self.unplaced or self.deferred)


@frozen
class _Table:
    """One table within a tick: the committed map, and the map that the plan starts from."""

    spec: TableSpec
    committed: PartitionMap
    planned: PartitionMap
    diff: PartitionDiff | None
    loaded: Mapping[int, Owner]
    stalled: Mapping[int, Owner]
    released: Mapping[int, int]  # partition -> epoch
    parting: Mapping[int, int]  # partition -> epoch for which its owner said that it was told

    def handed_back(self, members: Collection[Owner]) -> _Table:
        """As it will be when what its owner lost is with its former owner again."""
        return evolve(self, planned=self.planned.hand_back(members))

    @property
    def changed(self) -> bool:
        """Whether there is something to commit before any plan."""
        return self.planned is not self.committed


@frozen(eq=False)
class _Read:
    """One table as a tick has read it, and how its source differs from that."""

    spec: TableSpec
    committed: PartitionMap
    diff: PartitionDiff | None


class Reconciler:
    """Assigns the partitions of all tables to the executors of the cluster. Not for several threads.

    `reports` tells what each executor holds (`ExecutorRegistry.held`); `discover` what the source of a table shows
    now, or None if there is nothing new to tell. Tables whose keys are static need no discovery. `moves` decides
    which moves have waited for their target long enough.
    """

    def __init__(
        self,
        partitions: PartitionStore,
        membership: Membership,
        *,
        reports: ReportsOf,
        discover: Discoverer | None = None,
        assigner: PartitionAssigner | None = None,
        limit: int | None = MAX_ASSIGNMENTS_PER_INTERVAL,
        moves: MoveWatch | None = None,
    ) -> None:
        self._partitions = partitions
        self._membership = membership
        self._reports = reports
        self._discover = discover or _nothing_new
        self._assigner = assigner or PartitionAssigner()
        self._limit = limit
        self._moves = moves or MoveWatch()
        self._settled = SettledTables()

    def tick(self) -> ReconcileReport:
        """Go once over all tables, with at most `limit` moves; partitions that are new come on top, and while an
        executor drains (its capacity is 0) there is no limit.

        Those have owners from the commit on that names them: nobody can ask a table in which one has none. Trouble
        with one table does not keep those outside its co-location group waiting. Raises `Fenced` or
        `LeaseExpired` when this scheduler may not act, and errors of the store if `cluster.json` cannot be read.
        """
        return self._run(self._limit)

    def reconcile_all(self) -> ReconcileReport:
        """As `tick`, without a bound on the moves."""
        return self._run(None)

    def reconcile_tables(self, names: Collection[str]) -> ReconcileReport:
        """As `reconcile_all`, of the tables of these names and of those in their groups; no other map is read."""
        return self._run(None, names)

    def add_values(self, name: str, values: Sequence[tuple[Any, ...]]) -> Commit | None:
        """Give a table partitions for these values and every one of them an owner, in one commit.

        Values that it has already, because another scheduler was quicker, are fine. None for a table that is no
        more. Raises `PartitionsUnassigned` where executors have no room for all of them: then it has none of them, for
        a table in which a partition has no owner answers no query. Raises what `tick` raises, and what keeps the table
        from being changed.
        """
        self._membership.require()
        cluster = self._membership.cluster.read().document
        if name not in cluster.tables:
            return None
        tick = _Tick()
        before = Reports(self._reports())
        specs = _with_mates(cluster, (name,))
        read = [self._read(spec, tick, before, values if spec.name == name else ()) for spec in specs]
        loaded = self._load(read, cluster.members())
        if name in tick.errors:
            raise tick.errors[name]
        document = self._membership.cluster.read().document
        executors = _executors(document)
        tables = [table.handed_back(document.members()) for table in loaded]
        plans = self._assigner.assign_group([table.planned for table in tables], executors, None)
        for table, plan in zip(tables, plans, strict=True):
            if table.spec.name == name:
                _require_room(table, plan, values)
                self._commit(table, plan, tick)
        if name in tick.errors:
            raise tick.errors[name]
        return tick.commits.get(name)

    def _run(self, left: int | None, only: Collection[str] | None = None) -> ReconcileReport:
        self._membership.require()
        cluster = self._membership.cluster.read().document
        tick = _Tick()
        before = Reports(self._reports())  # before the maps are read
        specs = _with_mates(cluster, cluster.tables if only is None else only)
        loaded = self._load([self._read(spec, tick, before) for spec in specs], cluster.members())
        # Members are read after the maps: so an owner in a map that is no member is one no more, not one to be.
        document = self._membership.cluster.read().document
        executors = _executors(document)
        if any(executor.capacity == 0 for executor in executors):
            left = None  # whoever drains waits for all of its partitions to move
        tables = {table.spec.name: self._handed_back(table, document, executors) for table in loaded}
        if only is None:
            self._settled.forget_all_but(tables)
        for group in _groups(tables, {cluster.tables[name].group for name in tick.errors}):
            if self._settled.has(_committed(group), executors) and not any(t.changed or t.diff for t in group):
                continue
            new = _added(group, self._assigner.replicas)
            limit = None if left is None else left + new
            try:
                plans = self._assigner.assign_group([table.planned for table in group], executors, limit)
            except PlanningError as error:
                tick.errors.update((table.spec.name, error) for table in group)
                continue
            self._note(group, executors, plans)
            resting = self._moves.resting(self._now_ms())
            for table, plan in zip(group, plans, strict=True):
                moves = self._commit(table, plan.without_moves_to(resting), tick)
                limit = None if limit is None else limit - moves
            left = None if left is None or limit is None else max(0, min(left, limit))
        return tick.report(tables)

    def _read(
        self, spec: TableSpec, tick: _Tick, before: Reports, added: Sequence[tuple[Any, ...]] = ()
    ) -> _Read | None:
        """The committed map of one table, and how its values differ from it; `before` was reported before."""
        try:
            committed = self._committed(spec)
            key = partition_map_key(spec.map_name)
            heard, who = newest_heard(spec.folder, before.of(spec.folder), committed.revision)
            require_proven(key, "revision", committed.revision, heard, f"executor '{who}', which says so,")
            found = None if added else self._discover(spec)
            diff = added_partitions(committed, added) if added else None
            if found is not None:
                diff = diff_partitions(committed, found.values, found.weights, after=found.after)
        except (StoreError, DocumentError, PlanningError, ConfigError) as error:
            tick.errors[spec.name] = error
            return None
        return _Read(spec, committed, diff)

    def _load(self, read: Sequence[_Read | None], members: Collection[Owner]) -> list[_Table]:
        """What to plan from, by what executors report now."""
        reports = Reports(self._reports())
        return [self._loaded(one, reports.of(one.spec.folder), members) for one in read if one is not None]

    def _loaded(
        self, read: _Read, reports: Mapping[Owner, Sequence[HeldPartitions]], members: Collection[Owner]
    ) -> _Table:
        spec, committed = read.spec, read.committed
        if read.diff is None and self._settled.knows(spec.name, committed):
            return _Table(
                spec, committed, committed, None, {}, {}, {}, {}
            )  # nothing moves: no report says anything
        planned = committed.apply_diff(read.diff) if read.diff else committed
        released = released_in(spec.folder, committed, reports)
        planned = planned.release(released) if released else planned
        parting = parting_in(spec.folder, planned, reports)
        loaded = ready_to_move(planned, loaded_in(spec.folder, planned, reports), parting, members)
        planned = planned.promote(loaded) if loaded else planned
        stalled = self._moves.stalled(planned, reports, self._now_ms(), spec.folder)
        planned = planned.call_off(stalled) if stalled else planned
        return _Table(spec, committed, planned, read.diff, loaded, stalled, released, parting)

    def _handed_back(self, table: _Table, cluster: ClusterDocument, executors: Sequence[Executor]) -> _Table:
        if not table.changed and self._settled.knows(table.spec.name, table.committed, executors):
            return table
        return table.handed_back(cluster.members())

    def _note(
        self, group: Sequence[_Table], executors: Sequence[Executor], plans: Sequence[AssignmentPlan]
    ) -> None:
        """Remember the maps of a group for which there was nothing to do, and in which nothing moves."""
        idle = not any(plan or plan.deferred or len(plan.unplaced) for plan in plans)
        if idle and not any(table.changed or table.diff for table in group):
            self._settled.note(_committed(group), executors)

    def _now_ms(self) -> float:
        return self._membership.runtime.monotonic_ms()

    def _committed(self, spec: TableSpec) -> PartitionMap:
        """The table's map; a static table without one gets it now, because its creator stopped half-way."""
        try:
            return self._partitions.read(spec.map_name, spec.incarnation)
        except ObjectMissing:
            values = spec.spec.static_values()
            if values is None or spec.map_apart:  # which was there before the table had its name
                raise
            return self._partitions.ensure(PartitionMap.build(spec.name, spec.spec, values), spec.incarnation)

    def _commit(self, table: _Table, plan: AssignmentPlan, tick: _Tick) -> int:
        """Commit what there is to commit for one table; returns how many moves that were."""
        name = table.spec.name
        tick.count(name, plan)
        if not (plan or table.changed):
            return 0
        try:
            commit = self._partitions.commit(
                plan,
                diff=table.diff,
                loaded=table.loaded,
                stalled=table.stalled,
                released=table.released,
                parting=table.parting,
            )
        except (StoreError, DocumentError) as error:
            tick.errors[name] = error
            return 0
        tick.maps[name] = commit.map
        if commit.map.revision != table.committed.revision:
            tick.commits[name] = commit
        return len(commit.assigned) + len(commit.targeted)


def _require_room(table: _Table, plan: AssignmentPlan, values: Sequence[tuple[Any, ...]]) -> None:
    """Raise `PartitionsUnassigned` if a partition of these values that is new would have no owner."""
    unplaced = set(plan.unplaced.tolist())
    lacking = [
        value
        for value in values
        if table.planned.index(value) in unplaced and table.committed.index(value) is None
    ]
    if lacking:
        shown = ", ".join(f"{key.expression}={v}" for key, v in zip(table.spec.spec.keys, lacking[0], strict=True))
        raise without_room(table.spec.name, shown, len(lacking), len(values))


def _committed(group: Sequence[_Table]) -> dict[str, PartitionMap]:
    return {table.spec.name: table.committed for table in group}


def _added(group: Sequence[_Table], replicas: int) -> int:
    """How many holders the partitions need that the tables of a group get in this tick."""
    return replicas * sum(len(table.diff.added) for table in group if table.diff is not None)


class _Tick:
    """What a tick has done so far."""

    def __init__(self) -> None:
        self.commits: dict[str, Commit] = {}
        self.errors: dict[str, BallistaError] = {}
        self.unplaced: dict[str, int] = {}
        self.deferred: dict[str, int] = {}
        self.maps: dict[str, PartitionMap] = {}

    def count(self, name: str, plan: AssignmentPlan) -> None:
        if len(plan.unplaced):
            self.unplaced[name] = len(plan.unplaced)
        if plan.deferred:
            self.deferred[name] = plan.deferred

    def report(self, tables: Mapping[str, _Table]) -> ReconcileReport:
        maps = {name: self.maps.get(name, table.committed) for name, table in tables.items()}
        return ReconcileReport(
            commits=self.commits, errors=self.errors, unplaced=self.unplaced, deferred=self.deferred, maps=maps
        )


def _nothing_new(_: TableSpec) -> None:
    return None


def _executors(cluster: ClusterDocument) -> list[Executor]:
    return [
        Executor(id_, found.info.instance_id, found.info.capacity, found.info.labels)
        for id_, found in sorted(cluster.executors.items())
    ]


def _groups(tables: Mapping[str, _Table], incomplete: Collection[str | None]) -> list[list[_Table]]:
    """Tables that share owners, each group in order of names; a table without a group is one of its own.

    A group of which a map could not be read waits: its other tables would be given owners that the missing one
    has not.
    """
    groups: dict[tuple[str, str], list[_Table]] = {}
    for name, table in sorted(tables.items()):
        if table.spec.group is not None and table.spec.group in incomplete:
            continue
        key = ("group", table.spec.group) if table.spec.group is not None else ("table", name)
        groups.setdefault(key, []).append(table)
    return list(groups.values())


def _with_mates(cluster: ClusterDocument, names: Collection[str]) -> list[TableSpec]:
    """The tables of these names and all that share a group with one of them, by name."""
    groups = {cluster.tables[name].group for name in names if name in cluster.tables} - {None}
    return [spec for name, spec in sorted(cluster.tables.items()) if name in names or spec.group in groups]
