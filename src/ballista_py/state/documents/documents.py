"""The documents that a cluster keeps under its state location, and where each lies.

Values only: frozen, complete, equal by content. What may be done to them is decided by the modules that commit
them (`membership`, `reaper`, `executor_registry`, `partition_store`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import Factory, evolve, field, frozen

from ballista_py.errors import ConfigError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.scanned_table import ScannedTable
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import TableSpec, from_keys, in_keys
from ballista_py.state.documents.codec import AMONG, AS_READ, SET_ASIDE_OF, STANDS_AS
from ballista_py.state.members.control import ExecutorInfo

CLUSTER_KEY = "cluster.json"
HEARTBEATS_PREFIX = "heartbeats/"
MAPS_PREFIX = "accelerations/partitions/"
SNAPSHOTS_PREFIX = "snapshots/"
MAX_EXECUTORS = 10_000
REMEMBERED_LOSSES = 256
REMEMBERED_DROPS = 64
REMEMBERED_DEFINITIONS = 1_024
REMEMBERED_NAMES = 512


def heartbeat_key(scheduler_id: str) -> str:
    """Where the heartbeat document of a scheduler lies."""
    return f"{HEARTBEATS_PREFIX}{scheduler_id}.json"


def partition_map_key(map_name: str) -> str:
    """Where the partition map of a table lies; `map_name` is `TableSpec.map_name`."""
    return f"{MAPS_PREFIX}{in_keys(map_name)}.json"


def map_name_of(key: str) -> str:
    """The name of the partition map that lies under a key."""
    return from_keys(key.removeprefix(MAPS_PREFIX).removesuffix(".json"))


def table_of_map(map_name: str) -> str:
    """What the table of a partition map was called when it was made.

    >>> table_of_map("orders.5f2a"), table_of_map("orders")
    ('orders', 'orders')
    """
    return map_name.partition(".")[0]  # which the name of no table has


def table_key(folder: str) -> str:
    """Where a table's folder says what the table is; `folder` is `TableSpec.folder`."""
    return f"{SNAPSHOTS_PREFIX}{folder}/table.json"


@frozen(kw_only=True)
class SchedulerInfo:
    """One scheduler: `flight_address` answers queries, `control_address` hears executors (`host:port`).

    A `leaving` one acts no more; it stays listed until the leases that it granted are surely over.
    """

    scheduler_id: str
    instance_id: str
    flight_address: str = ""
    control_address: str = ""
    labels: Mapping[str, str] = Factory(dict)
    leaving: bool = False


@frozen(kw_only=True)
class AdmittedExecutor:
    """One executor of the cluster. `admitted` is the number of its newest admission, never used twice."""

    info: ExecutorInfo
    admitted: int


@frozen(kw_only=True)
class FormerName:
    """A name that a table had, which is known by its `folder`, and has no more."""

    name: str
    folder: str


@frozen(kw_only=True)
class AppliedApp:
    """The application that a cluster serves: the newest `revision` of its file that was begun.

    `digest` tells two files of one revision apart. `by` is the instance that applies it, or did; it alone commits
    changes for it. `complete` once every change is made. `datasets` are the tables that its revisions have named, each
    with its folder, or nothing as long as it is not known to be there. `settings` are what the file says of schedulers.
    """

    name: str
    revision: int
    digest: str
    by: str = ""
    complete: bool = False
    datasets: Mapping[str, str] = Factory(dict)
    settings: Mapping[str, str] = Factory(dict)


@frozen(kw_only=True)
class PoliciesMark:
    """Which policies a cluster has: their `number`, which grows with each change, and the digest of what they say."""

    number: int
    digest: str


@frozen(kw_only=True)
class ClusterDocument:
    """`cluster.json`: who belongs to the cluster and which tables it has. `ClusterDocument()` is an empty cluster.

    `admissions` counts all admissions and re-admissions of executors. `lost_instances` are the instance ids
    that were removed last, oldest first; none of them is ever admitted again. `dropped` are the tables that were
    dropped last and whose names are free, and, by their folders, those that others took the place of, so that executors
    can be told. `namings` counts how often a table was given a name. `definitions` are marks of the last
    statements that made or dropped a table, some with the number of its first rows, so that one sent again does
    nothing. `former_names` are those that tables lost last, oldest first, to another one or to none: a statement that
    is sent again may have been for such a table. `labels` belong to the application. `app` is the application file that
    was applied last: here, because what applies it commits tables under the condition that it is still the newest.
    `views` and `scanned` tables have names as tables do, and none has that of another; in the JSON they stand among the
    tables, so that a release that does not know them keeps their names, too.
    `policies` are those that schedulers have to know at least, so that an older copy of them opens nothing.
    `unreadable` are tables, as JSON, that this release cannot read; it keeps them, and their names, and may drop them.
    """

    document_kind: ClassVar[str] = "cluster"
    schema_version: ClassVar[int] = 1

    schedulers: Mapping[str, SchedulerInfo] = Factory(dict)
    executors: Mapping[str, AdmittedExecutor] = Factory(dict)
    tables: Mapping[str, TableSpec] = field(factory=dict, metadata={AS_READ: True})
    labels: Mapping[str, str] = Factory(dict)
    admissions: int = 0
    lost_instances: tuple[str, ...] = ()
    dropped: Mapping[str, TableSpec] = field(factory=dict, metadata={AS_READ: True})
    definitions: tuple[str, ...] = ()
    namings: int = 0
    former_names: tuple[FormerName, ...] = ()
    app: AppliedApp | None = None
    views: Mapping[str, SqlView] = field(
        factory=dict, metadata={AMONG: "tables", STANDS_AS: "view", AS_READ: True}
    )
    scanned: Mapping[str, ScannedTable] = field(
        factory=dict, metadata={AMONG: "tables", STANDS_AS: "scanned", AS_READ: True}
    )
    unreadable: Mapping[str, Any] = field(factory=dict, metadata={SET_ASIDE_OF: "tables"})
    policies: PoliciesMark | None = None

    def require_no_view(self, name: str) -> None:
        """Raise `ConfigError` if a view has the name, which a table is to have, or a scanned table."""
        if name in self.views:
            raise ConfigError(f"'{name}' is a view: take another name, or drop it with DROP VIEW")
        if name in self.scanned:
            raise ConfigError(f"table '{name}' exists already: it is scanned where it lies")

    def members(self) -> frozenset[tuple[str, str]]:
        """The executors of the cluster as (executor id, instance id)."""
        return frozenset((id_, executor.info.instance_id) for id_, executor in self.executors.items())

    def admit(self, info: ExecutorInfo) -> ClusterDocument:
        """With one admission more: of a new executor, or again of one that is here."""
        number = self.admissions + 1
        admitted = AdmittedExecutor(info=info, admitted=number)
        return evolve(self, admissions=number, executors={**self.executors, info.executor_id: admitted})

    def without_executors(self, instances: frozenset[tuple[str, str]]) -> ClusterDocument:
        """Without these (executor id, instance id), which will never be admitted again."""
        gone = sorted(instances & self.members())
        if not gone:
            return self
        names = {executor_id for executor_id, _ in gone}
        return evolve(
            self,
            executors={id_: kept for id_, kept in self.executors.items() if id_ not in names},
            lost_instances=(*self.lost_instances, *(i for _, i in gone))[-REMEMBERED_LOSSES:],
        )

    def with_view(self, view: SqlView, mark: str | None = None) -> ClusterDocument:
        """With a view, in the place of the one of its name if there is one; `mark` is that of its statement."""
        named = evolve(view, named=self.namings + 1)
        views = {**self.views, view.name: named}
        return evolve(self, views=views, namings=named.named, definitions=self._marked(mark))

    def with_commented_view(self, name: str, text: str | None, mark: str | None = None) -> ClusterDocument:
        """With other words about a view that it has; its query is the same."""
        views = {**self.views, name: evolve(self.views[name], comment=text)}
        return evolve(self, views=views, definitions=self._marked(mark))

    def without_view(self, name: str, mark: str | None = None) -> ClusterDocument:
        """Without that view; `mark` is that of the statement that drops it."""
        left = {known: view for known, view in self.views.items() if known != name}
        return evolve(self, views=left, definitions=self._marked(mark))

    def with_scanned(self, table: ScannedTable, mark: str | None = None) -> ClusterDocument:
        """With a scanned table, in the place of the one of its name; `mark` is that of its statement."""
        named = evolve(table, named=self.namings + 1)
        scanned = {**self.scanned, table.name: named}
        return evolve(self, scanned=scanned, namings=named.named, definitions=self._marked(mark))

    def without_scanned(self, name: str, mark: str | None = None) -> ClusterDocument:
        """Without that scanned table, whose files stay; `mark` is that of the statement that drops it."""
        left = {known: table for known, table in self.scanned.items() if known != name}
        return evolve(self, scanned=left, definitions=self._marked(mark))

    def with_table(self, table: TableSpec, mark: str | None = None) -> ClusterDocument:
        """With one table more, under a name that is free; `mark` is that of the statement that makes it."""
        left = {name: spec for name, spec in self.dropped.items() if name != table.name}
        named = evolve(table, named=self.namings + 1)
        return evolve(
            self,
            tables={**self.tables, table.name: named},
            dropped=left,
            definitions=self._marked(mark),
            namings=named.named,
            former_names=tuple(one for one in self.former_names if one != _former(table)),
        )

    def with_replaced(self, table: TableSpec, mark: str | None = None) -> ClusterDocument:
        """With a table in the place of the one of its name, which is remembered as dropped."""
        before = self.tables[table.name]
        dropped = dict([*self.dropped.items(), (before.folder, before)][-REMEMBERED_DROPS:])
        return evolve(self, dropped=dropped, former_names=self._having_lost(before)).with_table(table, mark)

    def without_table(self, name: str, mark: str | None = None) -> ClusterDocument:
        """Without that table, which is remembered as dropped; `mark` is that of the statement that drops it."""
        if name in self.unreadable:
            kept = {other: table for other, table in self.unreadable.items() if other != name}
            return evolve(self, unreadable=kept, definitions=self._marked(mark))
        if name not in self.tables:
            return self
        dropped = {**self.dropped, name: self.tables[name]}
        last = dict(list(dropped.items())[-REMEMBERED_DROPS:])
        left = {n: t for n, t in self.tables.items() if n != name}
        lost = self._having_lost(self.tables[name])
        return evolve(self, tables=left, dropped=last, definitions=self._marked(mark), former_names=lost)

    def with_altered(self, table: TableSpec, mark: str | None = None) -> ClusterDocument:
        """With another definition of a table that it has; `mark` is that of the statement that alters it."""
        return evolve(self, tables={**self.tables, table.name: table}, definitions=self._marked(mark))

    def with_renamed(self, name: str, table: TableSpec, mark: str | None = None) -> ClusterDocument:
        """With a table of that name under another one, which is free; its group is what it was."""
        left = {known: spec for known, spec in self.tables.items() if known != name}
        lost = self._having_lost(self.tables[name])
        return evolve(self, tables=left, former_names=lost).with_table(table, mark)

    def _having_lost(self, table: TableSpec) -> tuple[FormerName, ...]:
        lost = _former(table)
        return (*(one for one in self.former_names if one != lost), lost)[-REMEMBERED_NAMES:]

    def noted(self, mark: str) -> ClusterDocument:
        """With the mark of a statement that had nothing to do: sent again, it does nothing, whatever there is then."""
        return self if mark in self.definitions else evolve(self, definitions=self._marked(mark))

    def _marked(self, mark: str | None) -> tuple[str, ...]:
        return self.definitions if mark is None else (*self.definitions, mark)[-REMEMBERED_DEFINITIONS:]

    def without_scheduler(self, scheduler_id: str, instance_id: str) -> ClusterDocument:
        """Without that scheduler, if it is still that instance."""
        found = self.schedulers.get(scheduler_id)
        if found is None or found.instance_id != instance_id:
            return self
        return evolve(self, schedulers={i: s for i, s in self.schedulers.items() if i != scheduler_id})


def _former(table: TableSpec) -> FormerName:
    return FormerName(name=table.name, folder=table.folder)


@frozen(kw_only=True)
class HeartbeatDocument:
    """`heartbeats/{scheduler_id}.json`: proof of life of one scheduler, and what it hears.

    `beats` grows by one with each beat. `silences` say, by instance id of an executor, for how long this
    scheduler had granted it nothing when it beat; for one that is not named that is all of `uptime_ms`. A
    document with `ended_by` is a tombstone: the instance left (`ended_by` is itself) or was evicted, and never
    beats again. `last_heartbeat_ms` is wall time, for people.
    """

    document_kind: ClassVar[str] = "heartbeat"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # whoever misses its own is fenced

    scheduler_id: str
    instance_id: str
    beats: int = 0
    uptime_ms: float = 0.0
    silences: Mapping[str, float] = Factory(dict)
    ended_by: str | None = None
    last_heartbeat_ms: int = 0

    @property
    def own_key(self) -> str:
        return heartbeat_key(self.scheduler_id)

    def silence_ms(self, executor_instance: str) -> float:
        """How long that executor had gone without a grant of this scheduler, at this beat."""
        return self.silences.get(executor_instance, self.uptime_ms)


@frozen(kw_only=True)
class PartitionMapDocument:
    """`accelerations/partitions/{table}.json`: which executor holds which partition of one table.

    The revision of `map` is not kept twice: it is the header's, and 0 here. `incarnation` is that of the table
    that the map is for; to a table of another one this is no map. It is `published` once the table's name is, and
    `dropped` once that is free again, or another table's. `replaced` is the folder of the table that had the name until
    this one got it.
    `catalog_revision` is one that `cluster.json` had before this map was committed: an older catalog is a wrong one.
    """

    document_kind: ClassVar[str] = "partition_map"
    schema_version: ClassVar[int] = 1
    reads_back: ClassVar[bool] = False  # a map checks its columns when it is made, and may have a million rows

    map: PartitionMap
    incarnation: str = ""
    published: bool = True
    catalog_revision: int = 0
    dropped: bool = False
    replaced: str = ""

    @property
    def own_key(self) -> str:
        return partition_map_key(self.map.table)


@frozen(kw_only=True)
class TableDocument:
    """`snapshots/{folder}/table.json`: what the table is whose partitions lie there, in case the catalog is lost.

    `catalog_revision` is one that `cluster.json` had before this was written: an older catalog is a wrong one.
    """

    document_kind: ClassVar[str] = "table"
    schema_version: ClassVar[int] = 1

    table: TableSpec
    catalog_revision: int = 0

    @property
    def own_key(self) -> str:
        return table_key(self.table.folder)
