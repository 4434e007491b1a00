"""The scheduler process of the reference node: ports, threads and loops around a `SchedulerCore`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from attrs import asdict

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.queries.descriptions import Descriptions
from ballista_py.coordinator.queries.flight_sql import Statements, returned_rows
from ballista_py.coordinator.queries.leg_opener import LegOpener
from ballista_py.coordinator.queries.on_spark import SparkQueries
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.spark_process import SparkProcess
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.writes.owner_calls import OwnerCalls
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.engines.apart.shares import least_budget
from ballista_py.engines.apart.trials import Trials
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import BallistaError, SqlError, TryLater
from ballista_py.logs import log_event
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.allocators import GivesBack
from ballista_py.node.config import NodeConfig
from ballista_py.node.executor.engine_processes import GIVE_BACK_MS, WATCH_MS, engine_workers, own_bytes
from ballista_py.node.front_process import FrontProcess
from ballista_py.node.location import open_state_location
from ballista_py.node.loops import Loop
from ballista_py.node.scheduler.control import SchedulerControl
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.node.scheduler.observed_queries import ObservedQueries
from ballista_py.node.secrets_file import read_secrets
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.status_ports import StatusPorts, check_tokens
from ballista_py.node.status.tasks import Tasks
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.spark.answers import AnswerFolder
from ballista_py.sql.own_words import own_places
from ballista_py.sql.parse.kind import StatementKind, engine_sql, refusal, statement_kind
from ballista_py.sql.parse.returning import returns_rows
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.identity import cluster_identity
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.threads import EventLoopThread, map_some, spawn
from ballista_py.transport.control.server import ControlServer
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.commands import (
    EXECUTE,
    EXPLAIN,
    INGEST,
    MEMBERS,
    RECONCILE_ALL,
    REFRESH,
    SQL,
    TABLES,
    TASKS,
)
from ballista_py.transport.flight.server import FlightServer, StreamResult
from ballista_py.transport.flight.shapes import check_command, check_question
from ballista_py.transport.flight.writes import IncomingRows
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.leg_tickets import LegTickets
from ballista_py.transport.flight_sql.port import FlightSqlService
from ballista_py.transport.security.access import PUBLIC
from ballista_py.transport.security.callers import Anyone, Callers, Clients
from ballista_py.transport.security.certificates import check_own
from ballista_py.transport.security.credentials import Removed
from ballista_py.transport.security.same_cluster import OfOneCluster
from ballista_py.transport.security.tokens import StaticTokens
from ballista_py.work import carried

_log = logging.getLogger(__name__)
LOOKS_PER_TTL = 6
LOOKS_PER_INTERVAL = 4
FLIGHT_TICK_MS = 200
SPARK_TICK_MS = 1_000
TOKENS_TICK_MS = 600_000
CONTROL_WORKERS = 8
OWNER_WORKERS = 64
OWNER_CALLS_AT_ONCE = 32  # of one statement
SHOWN_TASKS = 100


class Scheduler:
    """One scheduler, from `start` to `stop`."""

    verbs = (
        *(f"DoExchange {kind}" for kind in (SQL, EXECUTE, INGEST)),
        *(f"DoAction {name}" for name in (EXPLAIN, TABLES, MEMBERS, RECONCILE_ALL, REFRESH, TASKS)),
    )

    def __init__(self, config: NodeConfig, runtime: Runtime | None = None) -> None:
        self._config = config
        self._runtime = runtime or SystemRuntime()
        self._loops: list[Loop] = []
        self._metrics = NodeMetrics(config.node_id, config.role)
        self._tasks = Tasks(config.node_id, self._runtime, self._metrics.ended)
        self._core: SchedulerCore | None = None
        self._queries: QueryService | None = None
        self._statements: Statements | None = None
        self._settled_for: frozenset[str] = frozenset()

    def start(self) -> None:
        """Listen, join the cluster and act; blocks while the id is held by a member that may be dead.

        Raises `ConfigError` for a port or a state location that cannot be used and `AlreadyRegistered` while the
        id is held by a live node.
        """
        config, runtime = self._config, self._runtime
        check_own(config.node_tls(), config.node_id, config.role, runtime)
        self._removed = Removed(config.node_mtls_removed_file)
        self._removed.listed()  # a list that cannot be used is no reason to start
        check_tokens(config, runtime)
        store = open_state_location(config, runtime)
        catalogs = Catalogs(store, runtime)
        self._budget = MemoryBudget(least_budget(config.max_merge_bytes), runtime)
        processes = engine_workers(config, config.data_dir, runtime, self._budget)
        self._trials = Trials(processes, runtime)
        self._engine = DuckDBEngine(
            config.data_dir,
            threads=config.threads,
            memory_limit=f"{config.max_merge_bytes}B",
            max_spill_bytes=config.max_spill_bytes,
            workers=processes,
            runtime=runtime,
        )
        self._loop("memory", self._engine.watch, WATCH_MS)
        self._loop("free", GivesBack(own_bytes, runtime).tick, GIVE_BACK_MS)
        self._cluster_id = cluster_identity(store, runtime=runtime)
        self._pool = FlightPool(
            runtime,
            tls=config.node_tls(),
            node_id=config.node_id,
            cluster_id=self._cluster_id,
            removed=self._removed,
        )
        self._flight = self._listen()
        control = SchedulerControl(config.node_id, self._tasks, self._metrics, _secrets(config))
        self._workers = ThreadPoolExecutor(CONTROL_WORKERS, thread_name_prefix="control")
        self._control = ControlServer(
            f"{config.node_bind_address}:{config.control_port}",
            config.node_id,
            control,
            self._workers,
            tls=config.node_tls(),
            removed=self._removed,
            cluster_id=self._cluster_id,
            connections=config.connection_limits(),
        )
        self._owner_workers = ThreadPoolExecutor(OWNER_WORKERS, thread_name_prefix="owners")
        self._event_loop = EventLoopThread("control")
        control_port = self._event_loop.call(self._control.start()).port
        self._event_loop.start(self._control.run())
        info = SchedulerInfo(
            scheduler_id=config.node_id,
            instance_id="",
            flight_address=f"{config.node_advertise_address}:{self._flight.port}",
            control_address=f"{config.node_advertise_address}:{control_port}",
        )
        core = SchedulerCore(config, info, store, catalogs, self._control.push, runtime, self._run_all)
        core.join()
        self._start_loops(core)
        self._answer(core, store, catalogs)
        self._core = control.core = core
        self._loop("settle", self._settle_left_over, config.partition_assignment_interval)
        self._loop("tokens", self._writes.tick, TOKENS_TICK_MS)
        self._observe(core)
        self._ports = StatusPorts(
            config,
            self._metrics,
            self._runtime,
            ready=core.membership.valid,
            status=lambda: {"members": core.members(), "tables": core.tables(), **self._replication()},
            tasks=self._shown_tasks,
        )
        log_event(_log, "ports", http=self._ports.http.port, metrics=self._ports.metrics.port)

    def _answer(self, core: SchedulerCore, store: ConditionalStore, catalogs: Catalogs) -> None:
        """Make what answers statements. Who calls before it is complete is told to come later."""
        config, runtime = self._config, self._runtime
        queries = ObservedQueries(
            catalogs,
            self._engine,
            LegOpener(self._pool, self._runtime, spawn, self._give_up).open,
            runtime,
            self._tasks,
            shipped=self._metrics.shipped,
            sequences=catalogs.sequences,
            definitions=catalogs.definitions,
            max_replica_lag_ms=config.max_replica_lag_ms,
            heard_ms=core.registry.heard_ms,
            budget=self._budget,
            trials=self._trials,
        )
        folder = None if config.data_dir is None else str(Path(config.data_dir) / "answers")
        self._answers = AnswerFolder(folder, max_bytes=config.max_spill_bytes, runtime=runtime)
        self._spark_process = SparkProcess(
            store, runtime, answers=self._answers, memory_bytes=config.spark_memory_bytes, spawn=spawn
        )
        self._spark = SparkQueries(queries, self._spark_process, runtime, config.max_merge_bytes)
        self._loop("spark", self._spark_process.tick, SPARK_TICK_MS)
        self._writes = WriteService(
            catalogs,
            store,
            self._engine,
            queries,
            OwnerCalls(self._pool, self._run_all),
            TableMaker(store, runtime, run_all=self._run_all),
            core,
            runtime,
            config.max_merge_bytes,
            instance=lambda: core.membership.info.instance_id,
        )
        tickets = LegTickets(cluster_id=self._cluster_id, runtime=runtime, tls=config.node_tls())
        self._statements = Statements(queries, self._engine, writes=self._writes, tickets=tickets)
        self._queries = queries

    def _listen(self) -> FlightServer:
        """The port for clients; what they ask before the scheduler has joined is answered with `TryLater`."""
        config, runtime = self._config, self._runtime
        return FlightServer(
            f"{config.node_bind_address}:{config.flight_port}",
            self,
            runtime,
            access=PUBLIC,
            callers=OfOneCluster(_clients(config, runtime), self._cluster_id),
            caller_limit=config.max_calls_per_client,
            time_limit_ms=config.statement_timeout_ms,
            tls=config.flight_tls(),
            connections=config.connection_limits(),
            front=FrontProcess,
            name=config.node_id,
            budget=self._budget,
            spawn=spawn,
            service=partial(
                FlightSqlService,
                ready=self._ready_statements,
                runtime=runtime,
                keep=KeepAlive(runtime=runtime, spawn=spawn),
            ),
        )

    def stop(self) -> None:
        """Leave the cluster, end every call and thread; about ten seconds at most."""
        for loop in self._loops:
            loop.stop()
        if self._core is not None:
            try:
                self._core.membership.leave()
            except BallistaError as error:
                log_event(_log, "leave_failed", logging.WARNING, code=error.code, reason=error)
        self._flight.shutdown(spawn)
        if self._core is not None:
            self._core.close()
            self._ports.close()
        self._event_loop.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._owner_workers.shutdown(wait=False, cancel_futures=True)
        self._pool.close()
        if self._core is not None:
            self._spark_process.close()
            self._answers.close()
        self._engine.close()

    def stream(self, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        """Answer a client's statement (`commands.sql_command`)."""
        check_command(command)
        queries = self._queries
        if queries is None:
            raise TryLater(f"scheduler '{self._config.node_id}' is starting")
        with queries.reading(_query(command), dialect=_dialect(command)):
            text = _text(command, queries)
            kind, is_returned = statement_kind(text), returns_rows(text)
        with own_places(command["query"], text):
            if is_returned:
                return returned_rows(self.writes.run(text, **_sent(command)))
            return self._answered(queries, text, kind, command.get("engine"), context)

    def _answered(
        self, queries: QueryService, text: str, kind: StatementKind, engine: object, context: CallContext
    ) -> StreamResult:
        if kind in ("explain", "describe"):
            return self._described(text, engine)
        if kind != "query":
            raise refusal(text)
        if self._spark.takes(text, engine):
            query = self._spark.open(text)
            task = self._tasks.begin("spark", text, cancel=query.cancel)
            batches = task.follow(query.batches(), lambda: query.cancelled)
            return StreamResult(schema=query.schema, batches=batches, trailer=query.stats, cancel=task.cancelled)
        statement = queries.run(text, context.cancelled)
        batches = statement.batches()
        return StreamResult(
            schema=statement.schema,
            batches=self._spark.with_both_reasons(text, batches) if engine == "auto" else batches,
            trailer=statement.stats,
            cancel=statement.cancel,
        )

    def _described(self, text: str, engine: object) -> StreamResult:
        assert self._queries is not None

        def explain(query: str, analyze: bool) -> Mapping[str, Any]:
            return self._spark.explain(query, engine, analyze)

        table = Descriptions(self._queries, self._engine).answer(text, explain)
        return StreamResult(schema=table.schema, batches=table.to_batches())

    @property
    def writes(self) -> WriteService:
        """Where statements that change something go. Raises `TryLater` while the scheduler starts."""
        if self._core is None:
            raise TryLater(f"scheduler '{self._config.node_id}' is starting")
        return self._writes

    def write(self, command: Mapping[str, Any], rows: IncomingRows, context: CallContext) -> Mapping[str, Any]:
        """Carry out a write (`commands.execute_command`, `commands.ingest_command`)."""
        check_command(command)
        if command.get("kind") == EXECUTE:
            rows.drain()
            text = _statement(command, self._queries)
            with own_places(command["query"], text):
                return {"affected": self.writes.execute(text, **_sent(command))}
        if command.get("kind") != INGEST:
            raise SqlError("a scheduler takes rows for tables, not for partitions")
        affected = self.writes.ingest(
            command["table"],
            rows,
            mode=command["mode"],
            schema=rows.schema,
            **_sent(command),
        )
        return {"affected": affected}

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """Answer a client's question; see `commands`."""
        check_question(name, body)
        core, queries = self._core, self._queries
        if core is None or queries is None:
            raise TryLater(f"scheduler '{self._config.node_id}' is starting")
        if name == EXPLAIN:
            text = _statement(body, self._queries)
            with own_places(body["query"], text):
                if statement_kind(text) != "query":
                    raise refusal(text)
                return self._spark.explain(text, body.get("engine"), bool(body.get("analyze")))
        if name == MEMBERS:
            return {"rows": core.members(), "cluster": self._cluster_id}
        if name == TABLES:
            return {"rows": core.tables()}
        if name == RECONCILE_ALL:
            return {"moves": core.reconcile_all()}
        if name == REFRESH:
            return {"executors": core.refresh_dataset(body["table"])}
        if name == TASKS:
            return {"rows": self._shown_tasks()}
        raise SqlError(f"a scheduler has no action '{name}'")

    def _shown_tasks(self) -> list[dict[str, Any]]:
        return [asdict(task) for task in self._tasks.last(SHOWN_TASKS)]

    def _ready_statements(self) -> Statements:
        if self._statements is None:
            raise TryLater(f"scheduler '{self._config.node_id}' is starting")
        return self._statements

    def _run_all(self, call: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """What `call` gives for each item, in order, many at the same time, as part of the work of this thread."""
        return map_some(self._owner_workers, carried(call), items, OWNER_CALLS_AT_ONCE)

    def _give_up(self, task_id: str) -> None:
        """The streams of these legs are cancelled; say it another way, too, for those whose link is stuck."""
        if self._core is not None:
            self._core.cancel_tasks([task_id])

    def _observe(self, core: SchedulerCore) -> None:
        gauge = self._metrics.gauge
        self._metrics.watch_certificate(self._config.node_tls(), self._runtime)
        gauge("statements_running", "Statements under way.", (), lambda: {(): self._tasks.running()})
        gauge("open_calls", "Calls that clients wait for.", (), lambda: {(): self._flight.open_calls()})
        gauge("reserved_bytes", "Memory that statements asked for.", ("state",), self._budget.shown)
        gauge("executors_connected", "Control streams.", (), lambda: {(): len(self._control.connected())})
        gauge("lease_remaining_seconds", "Of the lease.", (), lambda: {(): core.membership.remaining_ms() / 1e3})
        gauge("partitions", "Of every table, and those served.", ("table", "state"), lambda: _partitions(core))

    def _start_loops(self, core: SchedulerCore) -> None:
        ttl_ms, interval_ms = self._config.ttl_ms, self._config.partition_assignment_interval
        self._loop("beat", core.beat, core.membership.beat_every_ms)
        core.wake_admission = self._loop("admit", core.admit, ttl_ms / LOOKS_PER_TTL).poke
        core.wake_reconciler = self._loop("reconcile", core.reconcile, interval_ms).poke
        self._loop("measure", core.measure, ttl_ms / LOOKS_PER_TTL)
        self._loop("reap", core.reap, ttl_ms / LOOKS_PER_TTL)
        self._loop("flight", self._flight.tick, FLIGHT_TICK_MS)
        if self._config.partition_discovery_interval is not None:
            self._loop("discover", core.discover, self._config.partition_discovery_interval / LOOKS_PER_INTERVAL)

    def _replication(self) -> dict[str, float]:
        return {"replicas": self._config.replicas, "max_replica_lag_ms": self._config.max_replica_lag_ms}

    def _settle_left_over(self) -> None:
        """End what schedulers left that have gone since the last look; one look at the start."""
        assert self._core is not None
        schedulers = frozenset(info.instance_id for info in self._core.schedulers())
        if not self._settled_for or self._settled_for - schedulers:
            settled = self._writes.settle_left_over(schedulers)
            if settled:
                log_event(_log, "settled", statements=settled)
        self._settled_for = schedulers

    def _loop(self, name: str, tick: Any, interval_ms: float) -> Loop:
        loop = Loop(name, tick, interval_ms=interval_ms, runtime=self._runtime).start()
        self._loops.append(loop)
        return loop


def _partitions(core: SchedulerCore) -> dict[tuple[str, ...], float]:
    rows = core.tables()
    states = ("partitions", "all"), ("serving", "serving")
    return {(row["table"], state): float(row[field]) for row in rows for field, state in states}


def _secrets(config: NodeConfig) -> Mapping[str, Secret]:
    return {} if config.secrets_file is None else read_secrets(config.secrets_file)


def _clients(config: NodeConfig, runtime: Runtime) -> Callers:
    """Who may ask this scheduler."""
    if config.flight_tokens_file is None:
        return Anyone()
    return Clients(StaticTokens(config.flight_tokens_file, runtime))


def _statement(command: Mapping[str, Any], queries: QueryService | None) -> str:
    """The statement of `commands.sql_command`, in the engine's dialect."""
    if queries is None:
        return engine_sql(_query(command), _dialect(command))
    with queries.reading(_query(command), dialect=_dialect(command)):
        return _text(command, queries)


def _text(command: Mapping[str, Any], queries: QueryService) -> str:
    query, dialect = _query(command), _dialect(command)
    return engine_sql(query) if dialect is None else queries.engine_sql(query, dialect)


def _dialect(command: Mapping[str, Any]) -> str | None:
    dialect = command.get("dialect")
    return dialect if isinstance(dialect, str) else None


def _sent(command: Mapping[str, Any]) -> dict[str, Any]:
    """How a change was sent: under which token, and whether it was sent before, if its client says so."""
    flags = {flag: bool(command.get(flag)) for flag in ("made", "atomic")}
    return {"token": command.get("token"), "again": command.get("again"), **flags}


def _query(command: Mapping[str, Any]) -> str:
    query = command.get("query")
    if not isinstance(query, str) or not query.strip():
        raise SqlError("the statement is empty")
    return query
