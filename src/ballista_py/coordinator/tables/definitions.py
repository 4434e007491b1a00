"""Making a table: describe its source, partition it on Spark, publish its map, then its name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import evolve

from ballista_py.coordinator.changes.postgres_writes import open_postgres_writer
from ballista_py.coordinator.changes.sources import open_changes, require_changes_known
from ballista_py.coordinator.tables.declarations import declare_table
from ballista_py.coordinator.tables.embedded_spark import EmbeddedPipeline, Source
from ballista_py.coordinator.tables.held_columns import require_columns, require_engines_hold
from ballista_py.coordinator.tables.replacements import ROWS, Named, TableReplacements
from ballista_py.coordinator.tables.source_refreshes import SourceRefreshes
from ballista_py.coordinator.tables.table_definitions import Guard, TableDefinitions, unguarded
from ballista_py.errors import (
    ConfigError,
    DocumentError,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
)
from ballista_py.partitions.bounds import columns_in, require_bounded, require_count
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.refresh import Refresh, Retention, WriteMode, WriteWait
from ballista_py.partitions.spec import PartitionBy
from ballista_py.partitions.table import (
    LATER,
    QUERY,
    Distribution,
    FileFormatName,
    TableSpec,
    check_names,
    follows_changes,
    table_folder,
)
from ballista_py.partitions.table import ROWS as ROWS_OF_VIEW
from ballista_py.partitions.write_modes import require_write_mode
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.spark.elsewhere import NO_SETTINGS, SparkSettings
from ballista_py.sql.column_types import require_kept_schema
from ballista_py.state.documents.claims import Claim, Spawn, claimed
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    SNAPSHOTS_PREFIX,
    ClusterDocument,
    PartitionMapDocument,
    TableDocument,
    partition_map_key,
    table_key,
)
from ballista_py.state.documents.object_state import SHARED, ObjectState
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.formats import require_held
from ballista_py.storage.partition_storage import RunAll, make_manifests
from ballista_py.threads import spawn
from ballista_py.work import require_wanted

if TYPE_CHECKING:
    from ballista_py.spark.jobs import Progress
    from ballista_py.spark.pipeline import RefreshMode
    from ballista_py.spark.report import MaterializeReport
    from ballista_py.spark.watermark import Watermark

_log = logging.getLogger(__name__)
INCARNATION_DIGITS = 12
Fill = Callable[[TableSpec], Mapping[tuple[Any, ...], float]]


class TableMaker:
    """Makes tables from this process. The embedded Spark starts with the first source and ends with `close`.

    `run_all` works as `map` does, on several at the same time; `spawn` starts a thread. `spark` is what Spark is given.
    """

    def __init__(
        self,
        store: ConditionalStore,
        runtime: Runtime,
        secrets: Mapping[str, Secret] | None = None,
        *,
        run_all: RunAll = map,
        spawn: Spawn = spawn,
        spark: SparkSettings = NO_SETTINGS,
    ) -> None:
        self._store = store
        self._secrets = secrets or {}
        self._run_all = run_all
        self._spawn = spawn
        self._runtime = runtime
        self._cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=runtime, retry=SHARED)
        self._replacements = TableReplacements(self._cluster, TableDefinitions(store, runtime))
        self._spark = EmbeddedPipeline(store, runtime, secrets=secrets, settings=spark)

    def create(
        self,
        name: str,
        source: Source | None,
        partition_by: PartitionBy,
        *,
        schema: pa.Schema | None = None,
        distribution: Distribution = "partitioned",
        colocate_with: str | None = None,
        primary_key: Sequence[str] = (),
        checks: Sequence[str] = (),
        file_format: FileFormatName = "parquet",
        incarnation: str | None = None,
        mark: str | None = None,
        progress: Progress | None = None,
        fill: Fill | None = None,
        replaces: bool = False,
        comment: str | None = None,
        refresh: Refresh | None = None,
        retention: Retention | None = None,
        write_mode: WriteMode = "read_only",
        write_wait: WriteWait = "visible",
        query: str | None = None,
        guard: Guard = unguarded,
    ) -> TableSpec:
        """Write the table's partitions, then its map, then publish its name. See `LocalCluster.create_table`.

        `mark` is remembered with the name; see `done`. `fill` writes the rows that the table is made of. If it
        `replaces`, it takes the place of a table of that name in one commit; no other table has its incarnation.

        Until the name is published nobody sees anything of the table; an attempt that failed can be repeated. Of
        several attempts at one name, each with an incarnation of its own, one succeeds and no other touches it.
        `guard` is asked of the very catalog that the name is put into; what it raises passes through.
        A table with a `query` is a materialized view of these columns; without a `fill` nobody reads it before its
        first run.
        """
        require_write_mode(name, write_mode, write_wait, source)
        columns, primary_key = self._columns(name, source, schema, primary_key, checks)
        require_held(name, file_format, columns)
        require_wanted()
        incarnation = incarnation or self._runtime.new_id()[:INCARNATION_DIGITS]

        def declare(cluster: ClusterDocument) -> TableSpec:
            guard(cluster)
            require_engines_hold(cluster, name, columns)
            declared = declare_table(
                cluster,
                name,
                columns,
                partition_by,
                distribution=distribution,
                colocate_with=colocate_with,
                source=source if query is None else _of_query(query, is_filled=fill is not None),
                incarnation=incarnation,
                primary_key=primary_key,
                checks=checks,
                file_format=file_format,
                replaces=replaces,
                comment=comment,
                refresh=refresh,
                retention=retention,
                write_mode=write_mode,
                write_wait=write_wait,
            )
            require_bounded(declared)
            return declared

        if write_mode == "write_through":
            self._prepare_writes(declare(self.cluster()))
        folder = f"{SNAPSHOTS_PREFIX}{table_folder(name, incarnation)}/"
        with claimed(self._store, folder, self._runtime, self._spawn) as claim:
            return self._make(declare, mark, progress, fill, claim, replaces)

    def scan(self, name: str, scan: Mapping[str, Any], *others: Any, **said: Any) -> None:
        """Give files that lie elsewhere a name. See `lake.definitions.declare_here`."""
        from ballista_py.coordinator.lake.definitions import declare_here  # with a parser, which others are spared

        declare_here(self, self._runtime, self._secrets, name, scan, others, **said)

    def _columns(
        self,
        name: str,
        source: Source | None,
        schema: pa.Schema | None,
        primary_key: Sequence[str],
        checks: Sequence[str],
    ) -> tuple[pa.Schema, Sequence[str]]:
        """The columns and the key of a table that is to be, which are such as tables may have.

        Raises `ConfigError` for neither or both of a source and a schema, and what the checks of columns raise.
        """
        if isinstance(source, Mapping) and source.get("format") == QUERY:
            raise ConfigError(
                f"table '{name}': what keeps the rows of a query is made by CREATE MATERIALIZED VIEW"
            )
        if source is None and schema is not None:
            columns = schema
        elif source is not None and schema is None:
            columns, primary_key = self._described(name, source, primary_key, checks)
        else:
            raise ConfigError(f"table '{name}' needs either a source, or a schema if it is a managed table")
        require_count(name, columns_in(columns.types))  # before it is tried whether engines hold them
        check_names(name, columns.names, managed=source is None)
        require_wanted()
        require_columns(name, columns)
        if source is None:
            require_kept_schema(name, columns)
        require_wanted()
        return columns, primary_key

    def _described(
        self, name: str, source: Source, primary_key: Sequence[str], checks: Sequence[str]
    ) -> tuple[pa.Schema, Sequence[str]]:
        """The columns and the key of a source's rows. Raises `ConfigError` for what only a managed table keeps."""
        opened = self._spark.opened_source(source)
        follows = isinstance(opened, Mapping) and follows_changes(opened)
        if isinstance(opened, Mapping):
            require_changes_known(name, opened)
        if checks or (primary_key and not follows):
            raise ConfigError(f"table '{name}' has a source: only a managed table can enforce keys and checks")
        if not follows:
            return self._spark.get().describe(name, opened), primary_key
        assert isinstance(opened, Mapping)
        with closing(open_changes(name, opened, self._runtime)) as followed:
            described = followed.describe(primary_key)
        return described.schema, described.primary_key

    def _prepare_writes(self, table: TableSpec) -> None:
        """See that statements can be written to the source of a table that is to be."""
        opened = self._spark.opened_source(table.source or {})
        assert isinstance(opened, Mapping)
        with closing(open_postgres_writer(table, opened)) as writer:
            writer.prepare()

    def _make(
        self,
        declare: Callable[[ClusterDocument], TableSpec],
        mark: str | None,
        progress: Progress | None,
        fill: Fill | None,
        claim: Claim,
        replaces: bool,
    ) -> TableSpec:
        """Write the partitions and the map of the table that `declare` gives, and publish its name."""
        table, before = declare(self.cluster()), self._revision()
        name, incarnation = table.name, table.incarnation
        described = ObjectState(self._store, table_key(table.folder), TableDocument, runtime=self._runtime)
        with suppress(ObjectExists, OutcomeUnknown):  # by an earlier attempt of the same statement
            described.create(TableDocument(table=table, catalog_revision=before))
        if table.map_apart:  # so that what is left of an attempt that ends here is known to be no table's
            self._propose(table, _first_map(table, {}))
        rows = self._write(table, progress) if fill is None else fill(table)
        first = _first_map(table, rows)
        self._propose(table, first)
        known = mark if mark is None or fill is None else f"{mark}{ROWS}{sum(rows.values()):.0f}"
        claim.confirm()
        require_wanted()  # from here on it is made, and stays
        if replaces:
            named = self._replacements.commit(name, declare, known)
        else:
            done = self._cluster.update(
                lambda cluster: cluster.with_table(_same_map(table, declare(cluster)), known)
            )
            named = Named(table=done.document.tables[name], replaced=None, revision=done.header.revision)
        # From here on the map can be taken by nobody else; whoever did so before has lost the race for the name.
        revision, replaced = named.revision, named.replaced.folder if named.replaced is not None else ""
        published = PartitionMapDocument(
            map=first, incarnation=incarnation, catalog_revision=revision, replaced=replaced
        )

        def publish(now: PartitionMapDocument) -> PartitionMapDocument:
            proven = max(now.catalog_revision, revision)
            if not _is_of(now, table):
                return published
            return evolve(now, published=True, catalog_revision=proven, replaced=replaced)

        self._map(table).update(publish)
        with suppress(StoreError, DocumentError):  # it proves less then
            described.update(lambda now: evolve(now, catalog_revision=max(now.catalog_revision, revision)))
        if named.replaced is not None:
            self._prove_end(named.replaced, revision)
        return named.table

    def refresh(
        self,
        name: str,
        *,
        mode: RefreshMode = "full",
        watermark: Watermark | None = None,
        token: str | None = None,
        progress: Progress | None = None,
        named: Callable[[], None] = lambda: None,
    ) -> MaterializeReport:
        """Bring the table up to its source and name its new partitions. See `LocalCluster.refresh_table`.

        New partitions are named, empty, before anything of the refresh can be seen; then `named` is called. What was
        overtaken by another run is run again, at most twice. One whose `token` counts already changes nothing.
        """
        table = self.cluster().tables.get(name)
        if table is None:
            raise ConfigError(f"there is no table '{name}'")
        if table.query is not None:
            raise ConfigError(
                f"'{name}' is a materialized view, which Spark does not fill: Client.refresh(…, 'full') makes it anew"
            )
        if table.by_changes:
            raise ConfigError(
                f"table '{name}' follows the changes of its source by itself: there is nothing to run"
            )
        runs = SourceRefreshes(self._store, self._runtime, self._spark, self._run_all)
        report = runs.run(table, mode=mode, watermark=watermark, token=token, progress=progress, named=named)
        _warn_of_skew(report)
        return report

    def done(self, *marks: str) -> int | None:
        """Of how many rows the statement of one of these marks has made its table (0: of none, or it has dropped one).

        None if it is not among the last 1,024 that made or dropped a table.
        """
        found = (known.partition(ROWS) for known in self.cluster().definitions)
        return next((int(rows or 0) for known, _, rows in found if known in marks), None)

    def note(self, mark: str) -> None:
        """Remember a statement that had nothing to do, as `done`."""
        self._cluster.update(lambda cluster: cluster.noted(mark))

    def drop(self, name: str, mark: str | None = None, guard: Guard = unguarded) -> bool:
        """Take the table out of the cluster, at once for every new statement; whether there was one.

        Its files stay until they are collected as garbage. `mark` is remembered in the same commit; see `done`.
        `guard` is asked of the very catalog that it is taken out of.
        """
        before = self.cluster()
        table = before.tables.get(name)
        if name in before.views:
            raise ConfigError(f"'{name}' is a view: drop it with DROP VIEW")
        if name in before.scanned:
            return self._drop_scanned(name, before.scanned[name].named, mark, guard)
        if table is None and name not in before.unreadable:
            return False

        def change(cluster: ClusterDocument) -> ClusterDocument:
            guard(cluster)
            now = cluster.tables.get(name)
            same = (now is None) == (table is None) and (now is None or table is None or _alike(now, table))
            return cluster.without_table(name, mark) if same else cluster

        dropped = self._cluster.update(change)
        if table is not None:
            self._prove_end(table, dropped.header.revision)
        return True

    def _drop_scanned(self, name: str, named: int, mark: str | None, guard: Guard) -> bool:
        """Take a scanned table out of the cluster, unless another one has its name by now; its files stay."""

        def change(cluster: ClusterDocument) -> ClusterDocument:
            guard(cluster)
            now = cluster.scanned.get(name)
            return cluster if now is None or now.named != named else cluster.without_scanned(name, mark)

        self._cluster.update(change)
        return True

    def drop_made(self, made: TableSpec) -> None:
        """Take a table that was made out of the cluster again, and no other that has its name by now."""

        def same(cluster: ClusterDocument) -> None:
            found = cluster.tables.get(made.name)
            if found is None or not _alike(found, made):
                raise ConfigError(f"table '{made.name}' is another one by now: it stays")

        with suppress(ConfigError):
            self.drop(made.name, guard=same)

    def _prove_end(self, table: TableSpec, revision: int) -> None:
        """Let the map of a table that is no more say so: a catalog that still has the table is known to be old then."""

        def change(now: PartitionMapDocument) -> PartitionMapDocument:
            if not _is_of(now, table):
                return now
            return evolve(now, catalog_revision=max(now.catalog_revision, revision), dropped=True)

        with suppress(ObjectMissing, DocumentError):
            self._map(table).update(change)

    def commit(self, change: Callable[[ClusterDocument], ClusterDocument]) -> ClusterDocument:
        """Make `change` of the newest catalog, in which it touches no table; the catalog with it."""
        return self._cluster.update(change).document

    def cluster(self) -> ClusterDocument:
        """`cluster.json` as it is now; an empty cluster before the first node joined."""
        try:
            return self._cluster.read().document
        except ObjectMissing:
            return ClusterDocument()

    def _revision(self) -> int:
        """Of `cluster.json`, as it is now."""
        try:
            return self._cluster.read().header.revision
        except ObjectMissing:
            return 0

    def instances(self) -> dict[str, str]:
        """The instance id of every member, by node id."""
        cluster = self.cluster()
        found = {
            id_: scheduler.instance_id for id_, scheduler in cluster.schedulers.items() if not scheduler.leaving
        }
        return found | {id_: executor.info.instance_id for id_, executor in cluster.executors.items()}

    def close(self) -> None:
        """End the embedded Spark session, if one was started."""
        self._spark.close()

    def _write(self, table: TableSpec, progress: Progress | None) -> Mapping[tuple[Any, ...], float]:
        """Make every partition's manifest; returns the rows of each by value."""
        if table.is_piped:
            report = self._spark.get().materialize(self._spark.opened(table), progress=progress)
            _warn_of_skew(report)
            return {value: float(written.rows) for value, written in report.partitions.items()}
        values = table.spec.static_values()
        if values is None:
            return {}  # its partitions come with its rows
        make_manifests(self._store, table, values, self._runtime, self._run_all)
        return dict.fromkeys(values, 0.0)

    def _propose(self, table: TableSpec, first: PartitionMap) -> None:
        """Write the first map, or over what another attempt at the name, or a dropped table, has left."""
        proposed = PartitionMapDocument(map=first, incarnation=table.incarnation, published=False)

        def change(_now: PartitionMapDocument) -> PartitionMapDocument:
            # Asked after the map was read: a name that is free now was not published before that.
            cluster = self.cluster()
            tables = cluster.tables
            cluster.require_no_view(table.name)
            if table.name in tables:
                raise ConfigError(f"table '{table.name}' exists already")
            if any(other.map_name == table.map_name for other in tables.values()):
                raise _renamed_meanwhile(table)
            return proposed

        state = self._map(table)
        if table.map_apart:  # nobody else writes it
            try:
                state.create(proposed)
            except ObjectExists:
                state.update(lambda _now: proposed)
            return
        try:  # first, because of a map that has seen many commits nobody can tell whether its creation was ours
            state.update(change)
        except ObjectMissing:
            try:
                state.create(proposed)
            except ObjectExists:
                state.update(change)

    def _map(self, table: TableSpec) -> ObjectState[PartitionMapDocument]:
        key = partition_map_key(table.map_name)
        return ObjectState(self._store, key, PartitionMapDocument, runtime=self._runtime)


def _warn_of_skew(report: MaterializeReport) -> None:
    if (skew := report.skew_text()) is not None:
        _log.warning(skew)


def _of_query(query: str, *, is_filled: bool) -> dict[str, str]:
    """The source of a materialized view, whose rows are there when it is made, or come by its first run."""
    return {"format": QUERY, "sql": query, **({} if is_filled else {ROWS_OF_VIEW: LATER})}


def _first_map(table: TableSpec, weights: Mapping[tuple[Any, ...], float]) -> PartitionMap:
    values = list(weights)
    return PartitionMap.build(
        table.map_name, table.spec, values, weights=[1.0 + weights[value] for value in values]
    )


def _same_map(table: TableSpec, now: TableSpec) -> TableSpec:
    """The declaration as of now. Raises `ConfigError` if its map would not be where the table was given one."""
    if now.map_name != table.map_name:
        raise _renamed_meanwhile(table)
    return now


def _renamed_meanwhile(table: TableSpec) -> ConfigError:
    return ConfigError(f"table '{table.name}' was made and renamed meanwhile: send the statement again")


def _alike(one: TableSpec, other: TableSpec) -> bool:
    return one.incarnation == other.incarnation


def _is_of(document: PartitionMapDocument, table: TableSpec) -> bool:
    return document.incarnation == table.incarnation
