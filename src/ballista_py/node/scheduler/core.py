"""A scheduler without its ports and threads: the parts of the lower floors, wired, and their ticks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.cluster_view import ClusterView, Lakes
from ballista_py.coordinator.tables.embedded_spark import EmbeddedPipeline
from ballista_py.errors import DocumentError, Fenced, SqlError, StoreError, TryLater
from ballista_py.figures import UNSEEN, Figures
from ballista_py.logs import log_event
from ballista_py.node.config import NodeConfig
from ballista_py.node.secrets_file import read_secrets
from ballista_py.partitions.assignment.assigner import PartitionAssigner
from ballista_py.partitions.map import Owner
from ballista_py.partitions.scanned_table import SCANNED_TYPE, ScannedTable
from ballista_py.partitions.sql_view import TABLE_TYPE, VIEW_TYPE, SqlView
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import (
    AppDefinition,
    CancelTasks,
    Grant,
    Heartbeat,
    PollNow,
    RefreshDataset,
    Refusal,
    UpdatePartitions,
)
from ballista_py.state.members.executor_registry import ExecutorRegistry
from ballista_py.state.members.membership import Membership
from ballista_py.state.members.reaper import Reaper
from ballista_py.state.ownership.discovery import DISCOVERY_INTERVAL_MS, SourceWatch
from ballista_py.state.ownership.notifier import Notifier
from ballista_py.state.ownership.notify import Committed, desired, newer_than
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.ownership.reconciler import Reconciler, ReconcileReport
from ballista_py.state.ownership.table_status import table_status
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.partition_storage import RunAll, make_manifests

_log = logging.getLogger(__name__)
RESENDS_PER_TTL = 6

Message = Grant | Refusal | UpdatePartitions | PollNow | RefreshDataset | CancelTasks
Push = Callable[[str, Message], object]


class SchedulerCore:
    """What a scheduler does once it listens at the addresses in `info`. Thread-safe but for the ticks, of which
    each is called by one thread.

    `push(instance_id, message)` sends something to an executor; whether it arrives shows in its heartbeats.
    `wake_admission` and `wake_reconciler` ask for an early tick. `follows` says how refreshes of a table stand, and
    `seen` which rows about tables, with their names under a key, are the business of who asks.
    """

    def __init__(
        self,
        config: NodeConfig,
        info: SchedulerInfo,
        store: ConditionalStore,
        catalogs: Catalogs,
        push: Push,
        runtime: Runtime,
        run_all: RunAll = map,
        figures: Figures = UNSEEN,
    ) -> None:
        self._push = push
        self._figures = figures
        self._run_all = run_all
        self._store = store
        self._catalogs = catalogs
        self._runtime = runtime
        self.wake_admission: Callable[[], None] = lambda: None
        self.wake_reconciler: Callable[[], None] = lambda: None
        self.lakes: Lakes | None = None
        self.follows: Callable[[TableSpec], dict[str, Any]] = lambda _table: {"refresh": None, "retention": None}
        self.followed: Callable[[str], dict[str, Any]] = lambda _folder: {}
        self.seen: Callable[[Iterable[Mapping[str, Any]], str], list[dict[str, Any]]] = _all_of_them
        self.membership = Membership(store, info, ttl_ms=config.ttl_ms, skew_ms=config.skew_ms, runtime=runtime)
        self.registry = ExecutorRegistry(self.membership)
        self._reaper = Reaper(store, self.membership)
        self._sources = EmbeddedPipeline(
            store,
            runtime,
            discovery_timeout_ms=config.partition_discovery_timeout,
            secrets={} if config.secrets_file is None else read_secrets(config.secrets_file),
            settings=config.spark_settings(),
        )
        self._watch = SourceWatch(
            self._sources.find, config.partition_discovery_interval or DISCOVERY_INTERVAL_MS, runtime
        )
        self._reconciler = Reconciler(
            PartitionStore(store, guard=self.membership.require, runtime=runtime),
            self.membership,
            reports=self.registry.held,
            discover=self._watch.take,
            assigner=PartitionAssigner(
                max_partitions_per_executor=config.max_partitions_per_executor, replicas=config.replicas
            ),
            limit=config.max_partition_assignments_per_interval,
        )
        self._notifier = Notifier(runtime, config.ttl_ms / RESENDS_PER_TTL)
        self._reconciling = runtime.lock()
        self._unplaced: dict[str, int] = {}
        self._most_partitions = config.max_partitions_per_executor
        self._rounds = 0  # of `reconcile_all`, begun

    def join(self) -> None:
        """Become a member. Raises `AlreadyRegistered` while a live instance holds the id."""
        joined = self.membership.join()
        log_event(_log, "joined", instance=joined.instance_id, flight=joined.flight_address)
        for name, error in self._catalogs.examine().items():
            log_event(_log, "table_unusable", logging.ERROR, table=name, code=error.code, reason=error)

    def beat(self) -> None:
        """Prove that this scheduler lives; once it was fenced, join again as a new instance."""
        try:
            self.membership.beat(self.registry.silences)
        except Fenced as fenced:
            log_event(_log, "fenced", logging.ERROR, reason=fenced)
            self._figures.add("node_fences_hit")
            self.join()

    def heard(self, heartbeat: Heartbeat) -> Grant | Refusal | None:
        """Answer a heartbeat, and tell its executor what it does not yet hold as committed."""
        answer = self.registry.heard(heartbeat)
        if answer is None:
            self.wake_admission()
        elif isinstance(answer, Grant):
            self._notify(heartbeat)
        return answer

    def admit(self) -> None:
        """Admit whoever waits, and tell them."""
        report = self.registry.tick()
        for executor in report.admitted:
            log_event(_log, "executor_admitted", executor=executor.executor_id, instance=executor.instance_id)
        for executor in report.refused:
            log_event(_log, "executor_refused", logging.WARNING, executor=executor.executor_id)
        for instance, answer in report.answers.items():
            self._push(instance, answer)
        if report.admitted:
            self.wake_reconciler()

    def hurry(self) -> None:
        """While an executor drains, look at once what moved and what is to move next: it waits for that."""
        if any(heartbeat.executor.capacity == 0 for heartbeat in self.registry.newest()):
            self.wake_reconciler()

    def measure(self) -> None:
        """Let the planner know the sizes that executors report."""
        self._catalogs.measure(self.registry.held())

    def reap(self) -> None:
        """Look for the dead once."""
        report = self._reaper.tick()
        for scheduler_id in report.evicted:
            log_event(_log, "scheduler_evicted", logging.WARNING, scheduler=scheduler_id)
        for executor in report.lost:
            log_event(_log, "executor_lost", logging.WARNING, executor=executor.executor_id)
        if report.lost:
            self.wake_reconciler()

    def discover(self) -> None:
        """Look at the sources that are due for a look, if no scheduler with a smaller id is there to do it.

        Should two believe that of themselves, nothing comes of it but work: see `SourceWatch`.
        """
        if any(peer.scheduler_id < self.membership.scheduler_id for peer in self.membership.peers()):
            return
        catalog = self._catalogs.refresh().catalog
        report = self._watch.tick(catalog.tables, catalog.maps)
        for name, count in report.found.items():
            log_event(_log, "partitions_discovered", table=name, values=count)
        for name, error in report.errors.items():
            log_event(_log, "discovery_failed", logging.WARNING, table=name, code=error.code, reason=error)
        if report.found:
            self.wake_reconciler()

    def close(self) -> None:
        """End what the ticks have started."""
        self._sources.close()

    def reconcile(self) -> None:
        """Go once over all tables, within the limit of an interval, and tell the executors at once."""
        with self._reconciling:
            self._publish(self._reconciler.tick())

    def reconcile_all(self) -> dict[str, int]:
        """As `reconcile`, without the limit; returns the moves made, by table."""
        self.poll_now()
        with self._reconciling:
            self._rounds += 1
            report = self._reconciler.reconcile_all()
            self._publish(report)
        return {name: len(commit.assigned) + len(commit.targeted) for name, commit in report.commits.items()}

    def reconcile_table(self, *tables: str) -> None:
        """Bring these tables to where they should be, without the limit, and tell the executors what became of them.

        It costs as much as these tables do, however many others there are.
        """
        self.poll_now()
        with self._reconciling:
            report = self._reconciler.reconcile_tables(tables)
            self._publish(report, {*tables, *report.commits})

    def add_values(self, table: str, values: Sequence[tuple[Any, ...]]) -> None:
        """Give a table partitions for these values, with manifests and owners, and tell the owners."""
        spec = self._catalogs.known().catalog.tables.get(table)
        if spec is None:
            return
        make_manifests(self._store, spec, values, self._runtime, self._run_all)
        with self._reconciling:
            commit = self._reconciler.add_values(table, values)
            self._publish(ReconcileReport(commits={} if commit is None else {table: commit}), {table})

    def table_is_served(self, table: str, *, by_owners: bool = False) -> bool:
        """Whether every partition of the table is loaded at its owner, as far as this scheduler has heard.

        A replicated one is to be loaded at every executor, and nobody to hold what had the name before, or `by_owners`
        only where it is asked for by itself.
        """
        view = self._catalogs.refresh({table})
        found = view.catalog.tables.get(table)
        if found is None:
            return False
        status = table_status(found, view.catalog.maps[table], view.members, self.registry.held())
        if by_owners:
            return status.owned
        ended = {spec.folder for spec, _ in view.dropped.values() if spec.name == table}
        reports = (report for held in self.registry.held().values() for report in held)
        return status.ready and not any(r.table in ended and (r.active or r.loaded) for r in reports)

    def poll_now(self) -> None:
        """Let every executor say now what it holds."""
        for heartbeat in self.registry.newest():
            self._push(heartbeat.executor.instance_id, PollNow())

    def allocate(self, executor_id: str, instance_id: str) -> tuple[UpdatePartitions, ...]:
        """Assign all that has no owner; what this executor is to hold then.

        What has one moves within the limits of an interval, as ever. Raises `TryLater` before the executor was
        admitted.
        """
        if (executor_id, instance_id) not in self._catalogs.refresh().members:
            raise TryLater(f"executor '{executor_id}' is not admitted yet")
        rounds = self._rounds
        with self._reconciling:
            # A round that began after this call has answered it, too.
            if self._rounds == rounds and _has_orphans(self._catalogs.refresh()):
                self._rounds += 1
                self._publish(self._reconciler.reconcile_all())
        catalog = self._catalogs.known().catalog
        return tuple(desired(catalog.maps, catalog.tables, executor_id, instance_id))

    def refresh_dataset(self, table: str) -> int:
        """Let every executor compare what it holds of the table with the manifests; returns how many were told.

        Raises `SqlError` for a table that there is not.
        """
        if table not in self._catalogs.refresh({table}).catalog.tables:
            raise SqlError(f"there is no table '{table}'")
        executors = [heartbeat.executor for heartbeat in self.registry.newest()]
        for executor in executors:
            self._push(executor.instance_id, RefreshDataset(table))
        return len(executors)

    def cancel_tasks(self, task_ids: Sequence[str]) -> None:
        """Tell every executor that nobody waits for these tasks any more."""
        for heartbeat in self.registry.newest():
            self._push(heartbeat.executor.instance_id, CancelTasks(tuple(task_ids)))

    def definition(self) -> AppDefinition:
        """What the cluster serves now."""
        read = self.membership.cluster.read()
        tables = tuple(table for _, table in sorted(read.document.tables.items()))
        return AppDefinition(revision=read.header.revision, tables=tables, labels=read.document.labels)

    def _publish(self, report: ReconcileReport, only: Collection[str] | None = None) -> None:
        """Log what was done, read it back, and tell every executor what is now committed."""
        for name, commit in report.commits.items():
            given = len(commit.assigned) + len(commit.promoted)
            self._figures.add("scheduler_executor_assignments", given + len(commit.targeted), table=name)
            self._figures.add("scheduler_epochs_raised", given, table=name)
            log_event(
                _log,
                "partitions_assigned",
                table=name,
                revision=commit.map.revision,
                assigned=len(commit.assigned),
                targeted=len(commit.targeted),
                promoted=len(commit.promoted),
                called_off=len(commit.called_off),
                dropped=len(commit.dropped),
            )
        for name, error in report.errors.items():
            log_event(_log, "reconcile_failed", logging.WARNING, table=name, code=error.code, reason=error)
        for name, count in report.unplaced.items():
            log_event(_log, "partitions_unplaced", logging.WARNING, table=name, partitions=count)
        self._unplaced = {n: p for n, p in self._unplaced.items() if only is not None and n not in only}
        self._unplaced.update(report.unplaced)
        self._catalogs.refresh(only)
        for heartbeat in self.registry.newest():
            self._notify(heartbeat)

    def leave_executor(self, executor_id: str, instance_id: str) -> None:
        """Remove an executor that serves no more, and give its partitions away now."""
        self.registry.leave(executor_id, instance_id)
        log_event(_log, "executor_left", executor=executor_id, instance=instance_id)
        self.wake_reconciler()

    def forget_stream(self, executor: Owner) -> None:
        """A stream of that executor ended: whatever was sent may be lost."""
        self._notifier.forget(executor)

    def schedulers(self) -> Sequence[SchedulerInfo]:
        """The schedulers of the cluster, this one first."""
        return (self.membership.info, *self.membership.peers())

    def members(self) -> list[dict[str, Any]]:
        """Every node of the cluster, for people and clients."""
        cluster = self.membership.cluster.read().document
        view = self._catalogs.refresh()
        owned = {
            owner: sum(len(pmap.owned_by(*owner)) for pmap in view.catalog.maps.values()) for owner in view.members
        }
        schedulers = [
            _member(s.scheduler_id, "scheduler", s.flight_address, s.instance_id, 0)
            for _, s in sorted(cluster.schedulers.items())
        ]
        executors = [
            _member(
                id_, "executor", e.info.data_address, e.info.instance_id, owned.get((id_, e.info.instance_id), 0)
            )
            for id_, e in sorted(cluster.executors.items())
        ]
        return schedulers + executors

    def active_executors(self) -> int:
        """How many members this scheduler has granted a lease that may not be over."""
        members = self._catalogs.known().members
        heard = (one.executor for one in self.registry.newest())
        return sum((executor.executor_id, executor.instance_id) in members for executor in heard)

    def known(self) -> ClusterView:
        """The cluster as last read."""
        return self._catalogs.known()

    def view(self) -> ClusterView:
        """The cluster as the store has it now."""
        return self._catalogs.refresh()

    def tables(self) -> list[dict[str, Any]]:
        """Every table and how far its partitions are served."""
        view = self._catalogs.refresh()
        held = self.registry.held()
        rows = []
        for name, table in sorted(view.catalog.tables.items()):
            status = table_status(table, view.catalog.maps[name], view.members, held)
            rows.append(
                {
                    "table": name,
                    "type": TABLE_TYPE,
                    "distribution": table.distribution,
                    "partition_by": [key.expression for key in table.spec.keys],
                    "group": table.group,
                    "columns": [{"name": c.name, "type": str(c.type)} for c in table.schema],
                    "partitions": status.partitions,
                    "serving": status.serving,
                    "ready": status.ready,
                    "failed": {**status.failed, **self._without_room(name)},
                    **self.follows(table),
                    **({"changes": self.followed(table.folder)} if table.by_changes else {}),
                    **({} if table.query is None else {"sql": table.query}),
                }
            )
        return self.seen(rows, "table")

    def listed(self) -> list[dict[str, Any]]:
        """Every table and how far its partitions are served, then every view, which has none."""
        views = map(view_row, sorted(self.known().sql_views.values(), key=lambda one: one.name))
        return [*self.tables(), *self.seen(self.scanned(), "table"), *self.seen(views, "table")]

    def scanned(self) -> list[dict[str, Any]]:
        """Every table that is scanned where it lies; nobody serves a part of it."""
        view = self.known()
        if not view.scanned or self.lakes is None:
            return []
        columns = self.lakes.listed(view)
        return [scanned_row(one, columns[name].schema) for name, one in sorted(view.scanned.items())]

    def _without_room(self, table: str) -> dict[str, str]:
        count, most = self._unplaced.get(table, 0), self._most_partitions
        if not count:
            return {}
        way_out = f"add executors, or raise max_partitions_per_executor, which is {most}"
        return {"no owner": f"no executor has room for {count} partition(s): {way_out}"}

    def _notify(self, heartbeat: Heartbeat) -> None:
        executor = heartbeat.executor
        owner = (executor.executor_id, executor.instance_id)
        view = self._catalogs.known()
        if self._notifier.is_told(owner, _committed(view), heartbeat.held):
            return
        behind = newer_than(view.catalog.maps, view.catalog.tables, heartbeat.held)
        if behind:  # of those another scheduler has told it more than this one has read
            with suppress(StoreError, DocumentError):  # the next interval reads all
                view = self._catalogs.refresh(behind)
        for update in self._notifier.news(owner, _committed(view), heartbeat.held):
            self._push(executor.instance_id, update)


def _all_of_them(rows: Iterable[Mapping[str, Any]], _key: str) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


def view_row(one: SqlView) -> dict[str, Any]:
    """What is told of a view where tables are listed."""
    return {
        "table": one.name,
        "type": VIEW_TYPE,
        "distribution": "view",
        "partition_by": [],
        "group": None,
        "columns": [{"name": column.name, "type": str(column.type)} for column in one.schema],
        "partitions": 0,
        "serving": 0,
        "ready": True,
        "failed": {},
        "sql": one.sql,
    }


def scanned_row(one: ScannedTable, columns: pa.Schema) -> dict[str, Any]:
    """What is told of a scanned table where tables are listed; without columns it cannot be read now."""
    return {
        "table": one.name,
        "type": SCANNED_TYPE,
        "distribution": "scanned",
        "partition_by": [],
        "group": None,
        "columns": [{"name": column.name, "type": str(column.type)} for column in columns],
        "partitions": 0,
        "serving": 0,
        "ready": len(columns) > 0,
        "failed": {} if len(columns) else {"snapshot": "it cannot be read now: DESCRIBE says why"},
        "source": one.format,
    }


def _committed(view: ClusterView) -> Committed:
    return Committed(view.catalog.maps, view.catalog.tables, view.dropped)


def _has_orphans(view: ClusterView) -> bool:
    """Whether a partition of a partitioned table has no owner that is a member."""
    split = [
        pmap for name, pmap in view.catalog.maps.items() if view.catalog.tables[name].distribution != "replicated"
    ]
    return any(sum(len(pmap.owned_by(*member)) for member in view.members) < len(pmap) for pmap in split)


def _member(node_id: str, role: str, address: str, instance_id: str, partitions: int) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "role": role,
        "address": address,
        "instance_id": instance_id,
        "partitions": partitions,
    }
