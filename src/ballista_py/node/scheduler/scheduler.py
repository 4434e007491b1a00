"""The scheduler process of the reference node: ports, threads and loops around a `SchedulerCore`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from litestar.handlers import HTTPRouteHandler

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.cluster_view import ClientViews
from ballista_py.coordinator.lake.definitions import ScannedTables
from ballista_py.coordinator.lake.scans import LakeScans
from ballista_py.coordinator.lake.snapshots import LakeSnapshots
from ballista_py.coordinator.policies.gate import Gate
from ballista_py.coordinator.policies.known import KnownPolicies
from ballista_py.coordinator.queries.flight_sql import FlightSqlStatements
from ballista_py.coordinator.queries.leg_opener import LegOpener, LegWatch
from ballista_py.coordinator.queries.on_spark import SparkQueries
from ballista_py.coordinator.reads.answers import ReadAnswers
from ballista_py.coordinator.reads.places import TablePlaces
from ballista_py.coordinator.reads.service import TableReads
from ballista_py.coordinator.refreshes.schedule import Schedule
from ballista_py.coordinator.refreshes.works import CopyWork
from ballista_py.coordinator.spark_process import SparkProcess
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.writes.metrics_table import MetricsTable
from ballista_py.coordinator.writes.owner_calls import OwnerCalls
from ballista_py.coordinator.writes.write_answers import WriteAnswers
from ballista_py.engines.apart.trials import Trials
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import BallistaError
from ballista_py.logs import log_event
from ballista_py.node.app_file import AppFile, read_app_file
from ballista_py.node.client_tokens import client_verifier
from ballista_py.node.config import NodeConfig
from ballista_py.node.drain import SchedulerDrain
from ballista_py.node.engine_processes import engine_workers
from ballista_py.node.front_process import FrontProcess
from ballista_py.node.http import routes_cluster, routes_jobs, routes_sql
from ballista_py.node.http.door import HttpDoor
from ballista_py.node.http.routes_cluster import ClusterShows
from ballista_py.node.running import Foundation, RunningNode
from ballista_py.node.scheduler.answers import SchedulerAnswers, Services
from ballista_py.node.scheduler.application import SchedulerApp, labels_of
from ballista_py.node.scheduler.changes import ChangeReaders, writers_of
from ballista_py.node.scheduler.control import SchedulerControl
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.node.scheduler.job_runs import JobRuns
from ballista_py.node.scheduler.jobs import SchedulerJobs
from ballista_py.node.scheduler.kept_history import keep_history
from ballista_py.node.scheduler.left_over import LeftOver
from ballista_py.node.scheduler.observed import ObservedQueries, ObservedWrites
from ballista_py.node.scheduler.page_parts import scheduler_parts
from ballista_py.node.scheduler.polled_jobs import SchedulerPolledJobs
from ballista_py.node.scheduler.refreshing import SchedulerRefreshes
from ballista_py.node.scheduler.runtime_rows import runtime_tables
from ballista_py.node.secrets_file import read_secrets
from ballista_py.node.status.scheduler_metrics import observe_scheduler
from ballista_py.node.status.seen_tables import table_seen_by
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.spark.answers import AnswerFolder
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.documents.policies import PolicyShelf
from ballista_py.state.members.control import NodeReport, TaskRecord
from ballista_py.state.members.membership import Membership
from ballista_py.threads import EventLoopThread, map_some, spawn
from ballista_py.transport.control.histories import Histories
from ballista_py.transport.control.server import ControlServer
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.server import FlightServer
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.leg_tickets import LegTickets
from ballista_py.transport.flight_sql.port import FlightSqlService
from ballista_py.transport.security.access import PUBLIC
from ballista_py.transport.security.callers import Anyone, Clients, OfOneCluster
from ballista_py.transport.security.passwords import Passwords
from ballista_py.transport.security.signed_tickets import TicketSigner
from ballista_py.transport.table_read.tickets import READ_PURPOSE
from ballista_py.transport.table_write.tickets import WRITE_PURPOSE
from ballista_py.work import carried

_log = logging.getLogger(__name__)
LOOKS_PER_TTL = 6
LOOKS_PER_INTERVAL = 4
FLIGHT_TICK_MS = 200
SPARK_TICK_MS = 1_000
DRAIN_TICK_MS = 1_000
TOKENS_TICK_MS = 600_000
POLICIES_TICK_MS = 10_000
CHANGES_TICK_MS = 100
CONTROL_WORKERS = 8
REPORTS_S = 2.0
OWNER_WORKERS = 64
OWNER_CALLS_AT_ONCE = 32  # of one statement


def start_scheduler(config: NodeConfig, runtime: Runtime | None = None) -> RunningNode:
    """Listen, join the cluster and act; blocks while the id is held by a member that may be dead.

    What was started is ended when the rest cannot be. Raises `ConfigError` for a port or a state location that cannot
    be used and `AlreadyRegistered` while the id is held by a live node.
    """
    with ExitStack() as up:
        ground = Foundation.lay(config, runtime or SystemRuntime(), up)
        tools = _tools(ground)
        answers = SchedulerAnswers(
            node_id=config.node_id,
            cluster_id=ground.cluster_id,
            tasks=ground.tasks,
            shown_tasks=ground.shown_tasks,
        )
        file = None if config.app is None else read_app_file(config.app)
        links = _listen(ground, answers, file)
        core = SchedulerCore(
            config,
            links.info,
            ground.store,
            tools.catalogs,
            links.control.push,
            ground.runtime,
            tools.run_all,
            ground.metrics,
        )
        up.callback(core.close)
        core.seen, ground.tasks.sees_all = tools.gate.shown, tools.gate.sees_all
        core.join()
        up.callback(_leave, core.membership)
        _start_loops(ground, core, links)
        services = _services(ground, tools, core, links, answers)
        links.handler.core = core
        refreshes = SchedulerRefreshes.start(ground, core, _source_tables(ground, tools), services.writes)
        core.follows = refreshes.shown
        services = evolve(services, refreshes=refreshes)
        settle = LeftOver(core, services.writes.settle_left_over)
        ground.loop("settle", settle.tick, config.partition_assignment_interval)
        if config.task_history_table is not None:
            keep_history(ground, services.writes, config.task_history_table, lambda: core.membership.instance_id)
        _follow(ground, core, services)
        ground.loop("tokens", partial(_collect, ground, services), TOKENS_TICK_MS)
        observe_scheduler(
            ground.metrics, core, links.flight, links.control, tools.legs, refreshes.lags, refreshes.left
        )
        application = _application(ground, tools, core, file)
        replication = {"replicas": config.replicas, "max_replica_lag_ms": config.max_replica_lag_ms}
        drain = SchedulerDrain(config.node_id, links.flight, ground.runtime, services.jobs.runner)
        ground.show(
            ready=lambda: core.membership.valid() and not drain.draining,
            status=lambda client: {
                "members": core.members(),
                "tables": [table_seen_by(row, client) for row in core.tables()],
                "app": application.shown(),
                **replication,
            },
            routes=partial(_http_routes, ground, core, answers),
            statements=links.flight.calls,
            require_figures=partial(tools.gate.require_operator, "to see all figures"),
            parts=scheduler_parts(ground, core, links.histories, links.reports, lambda: services.jobs.service),
        )
        answers.services = services  # last: who is answered here finds every port
        return RunningNode(up.pop_all().close, drain)


@frozen(kw_only=True)
class _Tools:
    """What statements are answered with, before anybody may ask."""

    catalogs: Catalogs
    engine: DuckDBEngine
    trials: Trials
    pool: FlightPool
    spark: SparkProcess
    legs: LegWatch
    gate: Gate
    workers: ThreadPoolExecutor
    run_all: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@frozen(kw_only=True)
class _Links:
    """The ports for clients and for executors, and what they say of this scheduler."""

    flight: FlightServer
    control: ControlServer
    handler: SchedulerControl
    info: SchedulerInfo
    histories: Callable[[Sequence[SchedulerInfo], Mapping[str, str]], list[TaskRecord]]
    reports: Callable[[Sequence[str]], Mapping[str, NodeReport]]


def _tools(ground: Foundation) -> _Tools:
    config, runtime, up = ground.config, ground.runtime, ground.up
    processes = engine_workers(config, config.data_dir, runtime, ground.budget)
    engine = DuckDBEngine(
        config.data_dir,
        threads=config.threads,
        memory_limit=f"{config.max_merge_bytes}B",
        max_spill_bytes=config.max_spill_bytes,
        workers=processes,
        runtime=runtime,
    )
    up.callback(engine.close)
    ground.watch_memory(engine.watch)
    folder = None if config.data_dir is None else str(Path(config.data_dir) / "answers")
    kept = AnswerFolder(folder, max_bytes=config.max_spill_bytes, runtime=runtime)
    up.callback(kept.close)
    spark = SparkProcess(
        ground.store,
        runtime,
        answers=kept,
        memory_bytes=config.spark_memory_bytes,
        settings=config.spark_settings(),
        spawn=spawn,
    )
    up.callback(spark.close)
    pool = FlightPool(
        runtime,
        tls=config.node_tls(),
        node_id=config.node_id,
        cluster_id=ground.cluster_id,
        removed=ground.removed,
    )
    up.callback(pool.close)
    workers = ThreadPoolExecutor(OWNER_WORKERS, thread_name_prefix="owners")
    up.callback(workers.shutdown, wait=False, cancel_futures=True)

    def run_all(call: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """What `call` gives for each item, in order, many at the same time, as part of the work of this thread."""
        return map_some(workers, carried(call), items, OWNER_CALLS_AT_ONCE)

    return _Tools(
        catalogs=Catalogs(ground.store, runtime),
        engine=engine,
        trials=Trials(processes, runtime),
        pool=pool,
        spark=spark,
        legs=LegWatch(runtime, ground.metrics),
        gate=Gate(KnownPolicies(PolicyShelf(ground.store, runtime), runtime), engine),
        workers=workers,
        run_all=run_all,
    )


def _listen(ground: Foundation, answers: SchedulerAnswers, file: AppFile | None) -> _Links:
    """Open the ports; who asks before the scheduler has joined is answered with `TryLater`."""
    config, up = ground.config, ground.up
    secrets = _secrets(config)
    handler = SchedulerControl(config.node_id, ground.tasks, ground.metrics, secrets)
    workers = ThreadPoolExecutor(CONTROL_WORKERS, thread_name_prefix="control")
    up.callback(workers.shutdown, wait=False, cancel_futures=True)
    control = ControlServer(
        f"{config.node_bind_address}:{config.control_port}",
        config.node_id,
        handler,
        workers,
        tls=config.node_tls(),
        removed=ground.removed,
        cluster_id=ground.cluster_id,
        connections=config.connection_limits(),
    )
    event_loop = EventLoopThread("control")
    up.callback(event_loop.stop)
    control_port = event_loop.call(control.start()).port
    event_loop.start(control.run())
    histories = Histories(control, config.node_tls(), ground.cluster_id, ground.removed)
    flight = _flight_port(ground, answers)
    up.callback(flight.shutdown, spawn)
    info = SchedulerInfo(
        scheduler_id=config.node_id,
        instance_id="",
        flight_address=f"{config.node_advertise_address}:{flight.port}",
        control_address=f"{config.node_advertise_address}:{control_port}",
        labels=labels_of(None if file is None else file.require()),
    )
    return _Links(
        flight=flight,
        control=control,
        handler=handler,
        info=info,
        histories=lambda schedulers, executors: event_loop.call(histories.of_all(schedulers, executors)),
        reports=lambda instances: event_loop.call(control.reports(instances, 0, REPORTS_S)),
    )


def _flight_port(ground: Foundation, answers: SchedulerAnswers) -> FlightServer:
    """The port for clients."""
    config, runtime = ground.config, ground.runtime
    passwords = _passwords(config, runtime)
    return FlightServer(
        f"{config.node_bind_address}:{config.flight_port}",
        answers,
        runtime,
        access=PUBLIC,
        callers=OfOneCluster(Anyone() if passwords is None else Clients(passwords), ground.cluster_id),
        caller_limit=config.max_calls_per_client,
        time_limit_ms=config.statement_timeout_ms,
        tls=config.flight_tls(),
        connections=config.connection_limits(),
        front=FrontProcess,
        name=config.node_id,
        budget=ground.budget,
        spawn=spawn,
        service=partial(
            FlightSqlService,
            ready=lambda: answers.ready().statements,
            reads=lambda: answers.ready().reads,
            writes=lambda: answers.ready().puts,
            runtime=runtime,
            keep=KeepAlive(runtime=runtime, spawn=spawn),
            passwords=passwords,
            metrics=None if config.otlp_metrics_table is None else answers.metrics_table,
        ),
    )


def _http_routes(
    ground: Foundation, core: SchedulerCore, answers: SchedulerAnswers, door: HttpDoor
) -> list[HTTPRouteHandler]:
    """What a scheduler answers over HTTP beside what every node does."""
    shows = ClusterShows(
        tables=core.tables,
        members=core.members,
        refresh=lambda name: answers.ready().refresh(name, None)["executors"],
        cancel=lambda task_id, client: ground.tasks.cancel_of(client, task_id),
        plan=ground.tasks.plan_of,
    )
    return [
        *routes_cluster.routes(shows, door),
        *routes_sql.routes(answers.run, door),
        *routes_jobs.routes(lambda: answers.ready().jobs, door),
    ]


def _services(
    ground: Foundation, tools: _Tools, core: SchedulerCore, links: _Links, answers: SchedulerAnswers
) -> Services:
    """What answers statements."""
    config, runtime, catalogs = ground.config, ground.runtime, tools.catalogs
    core.lakes = lakes = LakeSnapshots(runtime, _secrets(config), tools.workers)
    seen = ClientViews(catalogs, tools.gate, lakes)
    legs = LegOpener(tools.pool, runtime, spawn, answers.give_up, tools.legs)
    queries = ObservedQueries(
        seen,
        tools.engine,
        legs.open,
        runtime,
        ground.tasks,
        shipped=ground.metrics.shipped,
        sequences=catalogs.sequences,
        definitions=catalogs.definitions,
        max_replica_lag_ms=config.max_replica_lag_ms,
        heard_ms=core.registry.heard_ms,
        budget=ground.budget,
        trials=tools.trials,
        runtime_tables=runtime_tables(
            core, config, ground.tasks, links.histories, lambda: answers.ready().jobs.service
        ),
        figures=ground.metrics,
        lakes=lakes,
        scans=LakeScans(lakes, tools.engine, legs, runtime, config.lake_task_bytes),
    )
    ground.loop("spark", tools.spark.tick, SPARK_TICK_MS)
    ground.loop("policies", tools.gate.known.tick, POLICIES_TICK_MS)
    tables = TableMaker(ground.store, runtime, run_all=tools.run_all)
    scanned = ScannedTables(tables, lakes, config.lake_locations, lambda: seen.refresh(()))
    writes = ObservedWrites(
        catalogs,
        ground.store,
        tools.engine,
        queries,
        OwnerCalls(tools.pool, tools.run_all),
        tables,
        core,
        runtime,
        config.max_merge_bytes,
        instance=lambda: core.membership.info.instance_id,
        open_writer=writers_of(_secrets(config)),
        figures=ground.metrics,
        door=seen,
        scanned=scanned.carry_out,
        tasks=ground.tasks,
    )
    metrics = config.otlp_metrics_table
    tickets = LegTickets(cluster_id=ground.cluster_id, runtime=runtime, tls=config.node_tls())
    read_tickets, put_tickets = (
        TicketSigner(purpose=purpose, cluster_id=ground.cluster_id, runtime=runtime, tls=config.node_tls())
        for purpose in (READ_PURPOSE, WRITE_PURPOSE)
    )
    reads = TableReads(queries, ground.store, runtime, read_tickets, tools.run_all, core.registry.loads)
    spark = SparkQueries(queries, tools.spark, runtime, config.max_merge_bytes)
    statements = FlightSqlStatements(queries, tools.engine, writes=writes, tickets=tickets, figures=ground.metrics)
    runs = JobRuns(queries, writes, spark, statements, ground.tasks)
    jobs = SchedulerJobs.start(ground, core.membership, runs, tools.run_all)
    statements.jobs = SchedulerPolledJobs(jobs)
    return Services(
        core=core,
        gate=tools.gate,
        engine=tools.engine,
        queries=queries,
        spark=spark,
        writes=writes,
        statements=statements,
        jobs=jobs,
        reads=ReadAnswers(reads, TablePlaces(reads)),
        puts=WriteAnswers(writes.staged, put_tickets, writes.observed),
        figures=ground.metrics,
        metrics=None if metrics is None else MetricsTable(writes, metrics, runtime),
    )


def _application(ground: Foundation, tools: _Tools, core: SchedulerCore, file: AppFile | None) -> SchedulerApp:
    """What applies the file of this scheduler, if it has one."""
    config = ground.config
    made = SchedulerApp(
        file,
        ground.store,
        ground.runtime,
        tools.engine,
        _source_tables(ground, tools),
        core.membership,
        lambda tables: core.reconcile_table(*tables),
    )
    ground.up.callback(made.close)
    if file is not None:
        ground.loop("app", made.tick, config.partition_assignment_interval)
    return made


def _source_tables(ground: Foundation, tools: _Tools) -> TableMaker:
    """What reads sources, with the secrets that they reference and what Spark is given here."""
    config = ground.config
    secrets = _secrets(config)
    return TableMaker(ground.store, ground.runtime, secrets, run_all=tools.run_all, spark=config.spark_settings())


def _start_loops(ground: Foundation, core: SchedulerCore, links: _Links) -> None:
    ttl_ms, interval_ms = ground.config.ttl_ms, ground.config.partition_assignment_interval
    ground.loop("beat", core.beat, core.membership.beat_every_ms)
    core.wake_admission = ground.loop("admit", core.admit, ttl_ms / LOOKS_PER_TTL).poke
    core.wake_reconciler = ground.loop("reconcile", core.reconcile, interval_ms).poke
    ground.loop("drain", core.hurry, DRAIN_TICK_MS)
    ground.loop("measure", core.measure, ttl_ms / LOOKS_PER_TTL)
    ground.loop("reap", core.reap, ttl_ms / LOOKS_PER_TTL)
    ground.loop("flight", links.flight.tick, FLIGHT_TICK_MS)
    if ground.config.partition_discovery_interval is not None:
        ground.loop("discover", core.discover, ground.config.partition_discovery_interval / LOOKS_PER_INTERVAL)


def _secrets(config: NodeConfig) -> Mapping[str, Secret]:
    return {} if config.secrets_file is None else read_secrets(config.secrets_file)


def _follow(ground: Foundation, core: SchedulerCore, services: Services) -> None:
    """Have tables follow the changes of their sources."""
    membership, runtime = core.membership, ground.runtime
    secrets = _secrets(ground.config)
    readers = ChangeReaders(
        ground.store, services.writes, membership, secrets, core.known, core.view, runtime, ground.metrics
    )
    readers.copies = copies = Schedule(
        ground.store,
        runtime,
        CopyWork(readers.copy),
        spawn,
        lambda: membership.instance_id,
        membership.valid,
        readers.is_first,
        ground.config.ttl_ms + ground.config.skew_ms,
        figures=ground.metrics,
    )
    if services.refreshes is not None:
        services.refreshes.copies = copies
    ground.up.callback(readers.close)
    core.followed = readers.shown
    ground.loop("changes", readers.tick, CHANGES_TICK_MS)


def _collect(ground: Foundation, services: Services) -> None:
    ground.metrics.add("scheduler_collected_objects", services.writes.tick() + services.reads.reads.tick())


def _leave(membership: Membership) -> None:
    try:
        membership.leave()
    except BallistaError as error:
        log_event(_log, "leave_failed", logging.WARNING, code=error.code, reason=error)


def _passwords(config: NodeConfig, runtime: Runtime) -> Passwords | None:
    """What says who may ask this scheduler; None: everybody."""
    known = client_verifier(config, runtime)
    return None if known is None else Passwords(known, runtime)
