"""`LocalCluster`: schedulers and executors as real processes on this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import finalize

import orjson
import pyarrow as pa

from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.embedded_spark import Source
from ballista_py.errors import BallistaError, ConfigError, SourceError, TransportError, TryLater
from ballista_py.node.config import EngineName
from ballista_py.node.local.nodes import LocalNodes, Processes, app_files
from ballista_py.node.local.status_reader import read_status, told_ports
from ballista_py.node.local.waiting import missing_after, not_applied, not_loaded, wait_until_copied
from ballista_py.node.secrets_file import read_secrets
from ballista_py.partitions.columns import plain
from ballista_py.partitions.new_table import NewTable
from ballista_py.partitions.refresh import Refresh, Retention, WriteMode, WriteWait
from ballista_py.partitions.spec import PartitionBy
from ballista_py.partitions.table import Distribution, FileFormatName
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.spark.elsewhere import NO_SETTINGS, SparkSettings
from ballista_py.state.stores.store import open_store
from ballista_py.transport.client.client import Client, connect
from ballista_py.transport.client.given import Parameters, Rows
from ballista_py.transport.client.session import require_lasting
from ballista_py.transport.flight.commands import IngestMode
from ballista_py.transport.security.credentials import Tls

if TYPE_CHECKING:
    from ballista_py.spark.jobs import Progress
    from ballista_py.spark.pipeline import RefreshMode
    from ballista_py.spark.report import MaterializeReport
    from ballista_py.spark.watermark import Watermark
    from ballista_py.transport.security.certificates import CertificateFolder

TTL_MS = 3_000
SKEW_SHARE = 1 / 6
NAMED_TIMEOUT_MS = 10_000.0
LOAD_TIMEOUT_MS = 600_000


class LocalCluster:
    """A cluster of real processes on this machine, for development, tests and small installations.

    Used as a context manager it is up inside the block and gone after it. `state_location` is a URL, of a remote store
    with `store_options` for its client (`docs/guide-stores.md`); None takes a temporary folder that is removed at the
    end. A cluster started on the state of an earlier one serves its tables. Nodes are named `scheduler-1`, …,
    `executor-1`, …. Leases last `ttl_ms`; a dead node's partitions have new owners a little more than `ttl_ms` +
    `skew_ms` after its death. Executors share the cores and the memory of the machine (`node_options={"memory-limit":
    "2GB"}` gives each so much) and run their legs on `engine`; what Polars does not do exactly as DuckDB fails with an
    error that names it. `detached` nodes outlive this process. With `tls` nodes prove themselves to each other by
    certificates made for this cluster, and `tls` holds what a client needs to trust them; otherwise all is plain TCP
    on the loopback interface. `ports` says by node which ports it was given. `app` is an application file that
    schedulers apply, or one for each by its name; the cluster has started when it is applied and its tables are
    served. `spark` says which Spark this process and schedulers use. The process of a node gets the environment of
    this one, and what `node_environment` gives for its name. With `processes="one"` all nodes are one process, which
    takes a third of the memory, and start and end together. `token` is what this process shows to schedulers that ask
    for one.

    Raises `ConfigError` when the state location cannot be used or a node does not come up.
    """

    def __init__(
        self,
        schedulers: int = 2,
        executors: int = 3,
        state_location: str | None = None,
        *,
        ttl_ms: float = TTL_MS,
        skew_ms: float | None = None,
        threads: int | None = None,
        engine: EngineName = "duckdb",
        detached: bool = False,
        tls: bool = False,
        token: str | Secret | None = None,
        app: str | Path | Mapping[str, str | Path] | None = None,
        store_options: Mapping[str, Any] | None = None,
        node_options: Mapping[str, str] | None = None,
        spark: SparkSettings | None = None,
        node_environment: Callable[[str], Mapping[str, str]] | None = None,
        processes: Processes = "each",
        runtime: Runtime | None = None,
    ) -> None:
        if schedulers < 1 or executors < 0:
            raise ConfigError("a cluster has at least one scheduler and no negative number of executors")
        self._runtime = runtime or SystemRuntime()
        self._stopped = False
        self._folder = Path(tempfile.mkdtemp(prefix="ballista-"))
        self._remove_folder = finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        if detached:
            self._remove_folder.atexit = False
        self.state_location = state_location or (self._folder / "state").as_uri()
        store = open_store(self.state_location, **(store_options or {}))
        options = {
            "state-location": self.state_location,
            "ttl-ms": str(ttl_ms),
            "skew-ms": str(ttl_ms * SKEW_SHARE if skew_ms is None else skew_ms),
            "partition-assignment-interval": str(ttl_ms),
            **(node_options or {}),
        }
        said = {"store_options": store_options, "spark": spark.written() if spark else None}
        written = {name: value for name, value in said.items() if value}
        if written:
            if "config" in options:
                raise ConfigError(
                    f"{next(iter(written))}: the nodes are given a config file already: write it in there"
                )
            options["config"] = str(self._private_file("nodes.yaml", orjson.dumps(written)))
        self._token = Secret(token) if isinstance(token, str) else token
        self._certificates = self._make_authority() if tls else None
        self._viewer = self._token
        if tls and "status-tokens-file" not in options:
            self._viewer = Secret(self._runtime.new_id())
            only_here = f"local-cluster {self._viewer.reveal()}\n".encode()
            options["status-tokens-file"] = str(self._private_file("viewers", only_here))
        self.tls = None if self._certificates is None else Tls(ca_file=str(self._certificates.ca_file))
        self._nodes = LocalNodes(
            self._folder,
            schedulers,
            executors,
            options,
            threads=threads,
            engine=engine,
            detached=detached,
            authority=self._certificates,
            environment=node_environment or (lambda _: {}),
            apps=app_files(app, schedulers),
            processes=processes,
        )
        self.ports = self._nodes.ports
        secrets = read_secrets(options["secrets-file"]) if "secrets-file" in options else {}
        settings = (spark or NO_SETTINGS).on(self.state_location, store_options)
        self._tables = TableMaker(store, self._runtime, secrets, spark=settings)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, node_id: str | None = None, *, applied: bool = True) -> LocalCluster:
        """Start one stopped node, or all that are, and return when they are members and schedulers answer.

        It waits until their application files are `applied`, too, unless it is told not to. Raises `ConfigError` for
        one that is running, and for a node that does not come up; `TransportError` once the cluster was stopped.
        """
        if not self._folder.exists():
            raise _was_stopped()
        if node_id is not None and self._nodes.process(node_id).running:
            raise ConfigError(f"node '{node_id}' is running already")
        self._stopped = False
        names = (
            tuple(name for name in self.node_ids if not self._nodes.process(name).running)
            if node_id is None
            else (node_id,)
        )
        before = self._tables.instances()
        names = self._nodes.start(names)
        try:
            self._nodes.wait_until_members(names, before, self._tables.instances, self._client_of, self._runtime)
            if applied and self._nodes.apps.keys() & {*names}:
                self.wait_until_applied(*names)
        except BaseException:
            if node_id is None:
                self.stop()
            raise
        return self

    def wait_until_applied(
        self, *node_ids: str, timeout_ms: float = LOAD_TIMEOUT_MS, progress: Progress | None = None
    ) -> None:
        """Return when the application files of these schedulers (default: all that run) are applied, or do not count.

        The tables that they name are served then. `progress(done, total)` counts those that are there. Raises
        `ConfigError` with the reasons for one that cannot be applied, and `TryLater` after `timeout_ms`.
        """
        names = [name for name in node_ids or self._nodes.apps if name in self._nodes.apps]
        running = [name for name in names if self._nodes.process(name).running]

        def missing() -> list[str]:
            if progress is not None:
                progress(*self._named_tables())
            return not_applied(running, self.shown)

        waiting = missing_after(timeout_ms, missing, self._runtime)
        if waiting:
            raise TryLater(f"not applied after {timeout_ms / 1e3:.0f} s: {'; '.join(waiting)}")
        catalog = self._tables.cluster()
        present = [] if catalog.app is None else [name for name in catalog.app.datasets if name in catalog.tables]
        if present and running:
            self.wait_until_loaded(*present, timeout_ms=timeout_ms)

    def _named_tables(self) -> tuple[int, int]:
        """How many tables and views of the application there are, and how many it names."""
        catalog = self._tables.cluster()
        named = {} if catalog.app is None else catalog.app.datasets
        return sum(name in catalog.tables or name in catalog.views for name in named), len(named)

    def stop(self) -> None:
        """End every node and remove the temporary folder. Stopping twice is fine."""
        self._stopped = True
        self._nodes.stop()
        self._tables.close()
        self._remove_folder()

    def kill(self, node_id: str) -> None:
        """`kill -9` the process of one node."""
        self._nodes.process(node_id).kill()

    def remove(self, node_id: str) -> None:
        """Let a node of a cluster with `tls` in no more; it stays up, and nobody listens to it."""
        if self._certificates is None:
            raise ConfigError("this cluster has no certificates: nodes are let in by no more than an address")
        self._certificates.remove(self._nodes.process(node_id).node_id)

    def pid(self, node_id: str) -> int:
        """The process id of a node that was started."""
        return self._nodes.process(node_id).pid

    def log(self, node_id: str) -> str:
        """All that a node has logged since it was first started."""
        return self._nodes.process(node_id).log_path.read_text(errors="replace")

    def data_dir(self, node_id: str) -> Path:
        """The folder in which a node keeps copies of data files and spills; it outlives the process of the node."""
        return self._folder / self._nodes.process(node_id).node_id

    def status_url(self, node_id: str, metrics: bool = False) -> str:
        """Where a running node shows how it is: `/status` and others, or with `metrics` those for Prometheus."""
        words = told_ports(self.log(node_id), node_id)
        if not words:
            raise TryLater(f"node '{node_id}' has not started yet")
        scheme = "http" if self.tls is None else "https"
        port = f"{words['metrics']}/metrics" if metrics else words["http"]
        return f"{scheme}://127.0.0.1:{port}"

    def http_url(self, node_id: str = "scheduler-1") -> str:
        """Where a running node answers HTTP: a scheduler statements, at `/v1/sql`, and every node how it is."""
        return self.status_url(node_id)

    def shown(self, node_id: str, path: str = "/status") -> Any:
        """What a running node shows at `/status`, `/tasks`, `/health` or `/ready`; at `/metrics` that is a text.

        Raises `TransportError` when it does not answer, or says that it is not ready.
        """
        metrics = path == "/metrics"
        url = self.status_url(node_id, metrics) + ("" if metrics else path)
        found = read_status(url, self.tls, self._viewer)
        return found.decode() if metrics else orjson.loads(found)

    @property
    def node_ids(self) -> tuple[str, ...]:
        """All nodes, running or not."""
        return tuple(self._nodes.processes)

    def flight_sql_url(self) -> str:
        """The address of the first running scheduler."""
        return f"grpc{'' if self.tls is None else '+tls'}://{self.addresses()[0]}"

    def addresses(self) -> list[str]:
        """`host:port` of every running scheduler, for clients."""
        found = self._nodes.addresses()
        if self._stopped:
            raise _was_stopped()
        if not found:
            raise TransportError(
                "no scheduler of this cluster is running; start one with cluster.start('scheduler-1')"
            )
        return found

    def client(self) -> Client:
        """A client that knows every running scheduler; close it, or use it as a context manager."""
        return self._client_of(",".join(self.addresses()))

    def sql(
        self,
        query: str,
        dialect: str | None = None,
        *,
        parameters: Parameters | None = None,
        token: str | None = None,
        atomic: bool = False,
        engine: str | None = None,
        timeout: float | None = None,
        wait: WriteWait | None = None,
    ) -> pa.Table:
        """Run a statement and return all of its rows; see `Client.sql`. Each call has a session of its own."""
        require_lasting(query, "LocalCluster.sql: with cluster.client() as client: client.sql(…)")
        with self.client() as client:
            how: Any = {"token": token, "atomic": atomic, "engine": engine, "timeout": timeout, "wait": wait}
            return client.sql(query, dialect, parameters=parameters, **how)

    def ingest(
        self,
        table: str,
        data: Rows,
        *,
        mode: IngestMode = "append",
        token: str | None = None,
        atomic: bool = False,
        timeout: float | None = None,
        wait: WriteWait | None = None,
    ) -> int:
        """Add rows to a table; how many. See `Client.ingest`."""
        with self.client() as client:
            return client.ingest(table, data, mode=mode, token=token, atomic=atomic, timeout=timeout, wait=wait)

    def upsert(self, table: str, data: Rows, *, token: str | None = None, wait: WriteWait | None = None) -> int:
        """Put rows in the place of those with their primary keys, or add them; see `Client.upsert`."""
        with self.client() as client:
            return client.upsert(table, data, token=token, wait=wait)

    def apply_changes(
        self, table: str, changes: Rows, *, token: str | None = None, wait: WriteWait | None = None
    ) -> int:
        """Apply changes by primary key, all of them at one instant or none; see `Client.apply_changes`."""
        with self.client() as client:
            return client.apply_changes(table, changes, token=token, wait=wait)

    def drop_table(self, name: str) -> None:
        """End a table: no statement finds it any more, its executors unload it, its files become garbage."""
        with self.client() as client:
            client.drop_table(name)

    def explain(
        self, query: str, dialect: str | None = None, *, analyze: bool = False, engine: str | None = None
    ) -> str:
        """How a query would run, in words; see `Client.explain`."""
        with self.client() as client:
            return str(client.explain(query, dialect=dialect, analyze=analyze, engine=engine)["text"])

    def members(self) -> list[dict[str, Any]]:
        """The nodes that belong to the cluster now, as its schedulers see it."""
        with self.client() as client:
            return client.members()

    def tables(self) -> list[dict[str, Any]]:
        """The tables of the cluster, one JSON-ready row each."""
        with self.client() as client:
            return client.tables()

    def tasks(self) -> list[dict[str, Any]]:
        """What the first running scheduler is doing and did last, newest first, one JSON-ready row each."""
        with self.client() as client:
            return client.tasks()

    def cancel(self, task_id: str) -> bool:
        """End a statement by its `task_id`, whichever scheduler runs it; whether it was running."""
        with self.client() as client:
            return client.cancel(task_id)

    def create_table(
        self,
        name: str,
        source: Source | None = None,
        partition_by: PartitionBy = (),
        *,
        schema: pa.Schema | None = None,
        distribution: Distribution = "partitioned",
        colocate_with: str | None = None,
        primary_key: Sequence[str] = (),
        checks: Sequence[str] = (),
        file_format: FileFormatName = "parquet",
        refresh: Refresh | None = None,
        retention: Retention | None = None,
        write_mode: WriteMode = "read_only",
        write_wait: WriteWait = "visible",
        progress: Progress | None = None,
        wait: bool = True,
        scan: Mapping[str, Any] | None = None,
    ) -> None:
        """Partition `source` on Spark and return when every partition is assigned and loaded; `scan` as for clients.

        `source` is a path, a glob or a dict of Spark reader options; None with a `schema` makes an empty managed
        table, whose `primary_key` columns are unique and not null, whose rows fulfil the SQL conditions in `checks`
        and whose files are of `file_format`. A replicated table takes no `partition_by`. With a `refresh` schedulers
        bring the table up to its source, with a `retention` they take its old rows away, as often as it says.
        With `{"format": "postgres", "dsn": …, "table": …}` the table follows the changes of one of a database, and has
        its rows and its key once a scheduler has copied them; `"changes": True` does it of Delta, Iceberg and Debezium.
        With `write_mode="write_through"` statements on it change that one, and it follows; `write_wait` says whether
        they are answered once the database has them ("source") or the table shows them. `progress(done, total)` is run.
        Raises `PartitionKeysMissing`, `UnsupportedExpression`, `ConfigError` for a name that is taken or a source that
        cannot be read, `SourceError` for one that cannot be followed."""
        if scan is not None:
            self._tables.scan(name, scan, source, schema, partition_by)
            return
        new = NewTable(
            name=name,
            source=source,
            partition_by=partition_by,
            distribution=distribution,
            colocate_with=colocate_with,
            primary_key=primary_key,
            checks=checks,
            file_format=file_format,
            refresh=refresh,
            retention=retention,
            write_mode=write_mode,
            write_wait=write_wait,
        )
        columns = None if schema is None else plain(schema)
        made = self._tables.create(**new.keywords(), schema=columns, progress=progress)
        with self.client() as client:
            client.reconcile_all()
        if wait:
            self.wait_until_loaded(name)
        if wait and made.by_changes:
            try:
                wait_until_copied(name, LOAD_TIMEOUT_MS, self.addresses, self._client_of, self._runtime)
            except (SourceError, ConfigError):
                self._tables.drop_made(made)
                raise

    def refresh_table(
        self,
        name: str,
        mode: RefreshMode = "full",
        *,
        watermark: Watermark | None = None,
        progress: Progress | None = None,
    ) -> MaterializeReport:
        """Bring a table up to its source on Spark: anew, or with a `watermark` by the rows it lacks ("append").

        See `SparkPipeline.refresh` for what an append sees. All partitions change at one instant, those of new values
        too: a query sees all of the refresh or nothing of it. When this returns, whoever asks the same scheduler
        sees it, and whoever asks another one within a second.

        Raises `ConfigError` for a table that there is not or that has no source, and what `refresh` raises.
        """

        def named() -> None:
            with self.client() as client:
                client.reconcile_all()
            with suppress(TryLater):  # a query that needs one of them says so, until it is loaded
                self.wait_until_loaded(name, timeout_ms=NAMED_TIMEOUT_MS)

        report = self._tables.refresh(name, mode=mode, watermark=watermark, progress=progress, named=named)
        with self.client() as client:
            client.reconcile_all()
            client.refresh(name)
        self.wait_until_loaded(name)
        return report

    def wait_until_loaded(self, *tables: str, timeout_ms: float = LOAD_TIMEOUT_MS) -> None:
        """Return when every partition of these tables (default: all) is assigned, loaded and served.

        Raises `TryLater` after `timeout_ms`, naming what is missing and why.
        """
        missing = missing_after(
            timeout_ms, lambda: not_loaded(tables, self.addresses(), self._client_of), self._runtime
        )
        if missing:
            raise TryLater(f"not loaded after {timeout_ms / 1e3:.0f} s: {'; '.join(missing)}")

    def _client_of(self, addresses: str) -> Client:
        return connect(addresses, tls=self.tls, token=self._token)

    def _make_authority(self) -> CertificateFolder:
        from ballista_py.transport.security.certificates import CertificateFolder

        made = CertificateFolder(self._folder / "tls", self._runtime)
        made.init()
        return made

    def _private_file(self, name: str, content: bytes) -> Path:
        """A file of secrets, which its owner alone may read."""
        made = self._folder / name
        made.touch(mode=0o600)
        made.write_bytes(content)
        return made

    def _repr_html_(self) -> str:
        try:
            rows = self.members()
        except BallistaError as error:
            return f"<p>LocalCluster: {escape(str(error))}</p>"
        cells = "".join(
            f"<tr><td>{escape(row['node_id'])}</td><td>{row['role']}</td><td>{escape(row['address'])}</td>"
            f"<td>{row['partitions']}</td></tr>"
            for row in rows
        )
        return f"<table><tr><th>node</th><th>role</th><th>address</th><th>partitions</th></tr>{cells}</table>"


def _was_stopped() -> TransportError:
    return TransportError("this cluster was stopped: make another one")
