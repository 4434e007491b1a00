"""The executor of the reference node.

It wires the lease, the holder of partitions and the engine to a Flight port for legs and to a control stream to
every scheduler, and calls their ticks. It decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from attrs import asdict

from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError, SqlError, TryLater
from ballista_py.node.answer_columns import conformed, output_schema
from ballista_py.node.config import NodeConfig
from ballista_py.node.location import open_state_location
from ballista_py.node.logs import log_event
from ballista_py.node.loops import Loop
from ballista_py.node.metrics import NodeMetrics
from ballista_py.node.status_ports import StatusPorts
from ballista_py.node.tasks import Tasks
from ballista_py.node.threads import EventLoopThread, spawn
from ballista_py.planning.query_plan import leg_from_json, relation_table
from ballista_py.planning.rewrite import Rewrite
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.cluster_identity import cluster_identity
from ballista_py.state.control import (
    CancelTasks,
    Grant,
    Heartbeat,
    NodeReport,
    PollNow,
    RefreshDataset,
    Refusal,
    UpdatePartitions,
)
from ballista_py.state.executor_lease import ExecutorLease
from ballista_py.state.store import ConditionalStore
from ballista_py.storage.cache import FileCache
from ballista_py.storage.holder import PartitionHolder
from ballista_py.storage.outside_runs import OutsideRuns
from ballista_py.storage.replica_reads import ReplicaReads
from ballista_py.transport.callers import Anyone, Nodes
from ballista_py.transport.commands import BASE, PARTITION_COLUMN, RELOAD, REWRITE, SETTLE, WRITE, WriteTarget
from ballista_py.transport.control_client import ControlClient
from ballista_py.transport.control_codec import ToExecutor
from ballista_py.transport.credentials import Removed
from ballista_py.transport.flight_server import SHUTDOWN_MS, FlightServer, FlightServiceMaker, StreamResult
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.leg_tickets import LegTicketCheck
from ballista_py.transport.flight_sql.legs import LegService, PartsService
from ballista_py.transport.flight_writes import IncomingRows
from ballista_py.transport.open_calls import CallContext
from ballista_py.transport.same_cluster import OfOneCluster
from ballista_py.writes.owner_writes import OwnerWrites

_log = logging.getLogger(__name__)
HEARTBEATS_PER_TTL = 10
HOLDER_TICK_MS = 500
FLIGHT_TICK_MS = 200
SETTLE_TICK_MS = 2_000
COMPACT_TICK_MS = 1_000
STORE_WORKERS = 8
CONTROL_WORKERS = 4
SHOWN_TASKS = 100

In = TypeVar("In")
Out = TypeVar("Out")


class Executor:
    """One executor, from `start` to `stop`."""

    def __init__(self, config: NodeConfig, runtime: Runtime | None = None) -> None:
        self._config = config
        self._runtime = runtime or SystemRuntime()
        self._metrics = NodeMetrics(config.node_id, config.role)
        self._tasks = Tasks(config.node_id, self._runtime, self._metrics.ended)
        self._allocated = ""
        self._loops: list[Loop] = []
        self._holder: PartitionHolder | None = None

    def start(self) -> None:
        """Listen and connect to the schedulers; they admit this executor as soon as they may.

        Raises `ConfigError` for a port, a folder or a state location that cannot be used.
        """
        config, runtime = self._config, self._runtime
        store = open_state_location(config, runtime)
        cluster_id = cluster_identity(store, runtime=runtime)
        folder = Path(config.data_dir) if config.data_dir is not None else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._engine = _engine(config, folder, runtime)
        self._lease = self._listen(cluster_id)
        self._cache = FileCache(
            store,
            None if folder is None else str(folder / "files"),
            max_bytes=config.cache_max_bytes,
            format=config.cache_format,
            runtime=runtime,
        )
        self._hold_partitions(store)
        self._workers = ThreadPoolExecutor(CONTROL_WORKERS, thread_name_prefix="control")
        self._event_loop = EventLoopThread("control")
        self._control = ControlClient(
            config.scheduler_address,
            self,
            self._workers,
            runtime,
            heartbeat_ms=config.ttl_ms / HEARTBEATS_PER_TTL,
            tls=config.node_tls(),
            cluster_id=cluster_id,
        )
        self._start_loops()
        self._event_loop.start(self._control.run())
        self._observe()
        self._ports = self._status_ports()
        log_event(_log, "ports", http=self._ports.http.port, metrics=self._ports.metrics.port)
        info = self._lease.info
        log_event(_log, "started", data=info.data_address, parts=info.parts_location, instance=info.instance_id)

    def _listen(self, cluster_id: str) -> ExecutorLease:
        """Open the ports for legs and for parts of answers; what the lease says of them."""
        config, runtime = self._config, self._runtime
        tls, removed = config.node_tls(), Removed(config.node_mtls_removed_file)
        tickets = LegTicketCheck(
            executor_id=config.node_id, cluster_id=cluster_id, runtime=runtime, tls=tls, removed=removed
        )
        self._flight = FlightServer(
            f"{config.node_bind_address}:{config.data_port}",
            self,
            runtime,
            callers=OfOneCluster(Anyone() if tls is None else Nodes(removed), cluster_id),
            tls=tls,
            ask_client=True,
            spawn=spawn,
            service=_parts(LegService, tickets, runtime) if config.flight_tls() is None else None,
        )
        self._parts = self._parts_port(tickets)
        parts = self._flight if self._parts is None else self._parts
        scheme = "grpc" if self._parts is None else "grpc+tls"
        return ExecutorLease(
            config.node_id,
            f"{config.node_advertise_address}:{self._flight.port}",
            capacity=config.capacity,
            labels=config.labels,
            parts_location=f"{scheme}://{config.node_advertise_address}:{parts.port}",
            runtime=runtime,
        )

    def _hold_partitions(self, store: ConditionalStore) -> None:
        """Make what holds, reads and changes the partitions of this executor."""
        runtime = self._runtime
        self._store_workers = ThreadPoolExecutor(STORE_WORKERS, thread_name_prefix="store")
        self._write_workers = ThreadPoolExecutor(STORE_WORKERS, thread_name_prefix="write")
        holder = PartitionHolder(
            self._lease, store, self._engine, cache=self._cache, runtime=runtime, mapper=self._map
        )
        self._replica_reads = ReplicaReads(holder, store, runtime, self._map)
        self._writes = OwnerWrites(
            holder,
            store,
            self._engine,
            runtime,
            self._map,
            lambda: self._lease.info.instance_id,
            each=self._write_workers.map,
        )
        self._runs = OutsideRuns(holder, store, runtime, lambda: self._lease.info.instance_id)
        self._holder = holder

    def _start_loops(self) -> None:
        runtime = self._runtime
        self._holding = Loop("hold", self._hold, interval_ms=HOLDER_TICK_MS, runtime=runtime)
        self._loops = [
            self._holding.start(),
            Loop("compact", self._compact, interval_ms=COMPACT_TICK_MS, runtime=runtime).start(),
            Loop("settle", self._settle, interval_ms=SETTLE_TICK_MS, runtime=runtime).start(),
            Loop("runs", self._runs.tick, interval_ms=SETTLE_TICK_MS, runtime=runtime).start(),
            Loop("flight", self._flight.tick, interval_ms=FLIGHT_TICK_MS, runtime=runtime).start(),
        ]
        if self._parts is not None:
            self._loops.append(
                Loop("parts", self._parts.tick, interval_ms=FLIGHT_TICK_MS, runtime=runtime).start()
            )

    def _status_ports(self) -> StatusPorts:
        return StatusPorts(
            self._config,
            self._metrics,
            self._runtime,
            ready=self._lease.valid,
            status=lambda: {
                "schedulers": self._control.connected(),
                "cache": asdict(self._cache.stats()),
                "hydration": asdict(self._holding_now().progress()),
                "replica_ages_ms": self._holding_now().replica_ages_ms(),
                **self._held(),
            },
            tasks=self._shown_tasks,
        )

    def stop(self) -> None:
        """Stop serving, tell a scheduler so that the partitions are given away at once, end every thread."""
        info = self._lease.info
        self._lease.leave()
        for loop in self._loops:
            loop.stop()
        if not self._event_loop.call(self._control.leave(info.executor_id, info.instance_id)):
            log_event(_log, "leave_failed", logging.WARNING, reason="no scheduler could be told")
        self._event_loop.stop()
        for server in (self._flight, self._parts):
            if server is not None:
                server.shutdown(spawn, SHUTDOWN_MS / 2)
        self._ports.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._store_workers.shutdown(wait=False, cancel_futures=True)
        self._write_workers.shutdown(wait=False, cancel_futures=True)
        self._engine.close()

    def _parts_port(self, tickets: LegTicketCheck) -> FlightServer | None:
        """A port of its own for clients, who cannot show the certificate that the data port asks for.

        None where everything is plain: there clients come to the data port.
        """
        config = self._config
        if config.flight_tls() is None:
            return None
        return FlightServer(
            f"{config.node_bind_address}:{config.parts_port}",
            self,
            self._runtime,
            caller_limit=config.max_calls_per_client,
            tls=config.flight_tls(),
            spawn=spawn,
            service=_parts(PartsService, tickets, self._runtime),
        )

    def heartbeat(self) -> Heartbeat:
        """What this executor says to every scheduler."""
        return self._lease.heartbeat(self._holding_now().held())

    def report(self, tasks: int) -> NodeReport:
        """How this executor is, and what it did last."""
        return NodeReport(
            node_id=self._config.node_id, metrics_text=self._metrics.text(), tasks=self._tasks.last(tasks)
        )

    def received(self, message: ToExecutor) -> None:
        """Take in what a scheduler said."""
        if isinstance(message, CancelTasks):
            self._tasks.cancel(message.task_ids)
        elif isinstance(message, RefreshDataset):
            self._holding_now().refresh(message.table)
            self._holding.poke()
        elif isinstance(message, PollNow):
            self._holding.poke()
        elif isinstance(message, Grant | Refusal | UpdatePartitions):
            self._told(message)

    def _told(self, message: Grant | Refusal | UpdatePartitions) -> None:
        if isinstance(message, UpdatePartitions):
            if self._holding_now().apply(message):
                self._holding.poke()
            return
        if isinstance(message, Refusal):
            log_event(_log, "refused", logging.WARNING, reason=message.reason, said=message.message)
        if self._lease.answered(message):
            self._holding_now().drop_all()
            joined = self._lease.rejoin()
            log_event(_log, "lost", logging.ERROR, instance=joined.instance_id)
            self._holding.poke()
        elif isinstance(message, Grant) and self._allocated != self._lease.info.instance_id:
            self._allocated = self._lease.info.instance_id
            spawn(self._allocate)

    def _allocate(self) -> None:
        """Ask for a share of what waits, once an instance: it need not wait for the next interval."""
        info = self._lease.info
        try:
            updates = self._event_loop.call(
                self._control.ask(lambda link: link.allocate(info.executor_id, info.instance_id))
            )
        except BallistaError as error:  # what is assigned comes over the stream, too
            log_event(_log, "not_allocated", reason=error)
            return
        for update in updates:
            if self._holding_now().apply(update):
                self._holding.poke()

    def stream(self, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        """Run a leg (`commands.leg_command`) over exactly the partitions that it names."""
        if command.get("kind") == BASE:
            return self._base(command)
        if command.get("kind") != "leg":
            raise SqlError("an executor runs legs; send statements to a scheduler")
        leg = leg_from_json(command["leg"])
        self._writing().catch_up(leg)
        self._replica_reads.freshen(leg)
        self._runs.catch_up(leg)
        for table in leg.tables if "incarnations" in command else ():
            self._holding_now().owned(table, command["incarnations"][table.table])
        task = self._tasks.begin("leg", leg.sql, str(command.get("task") or ""))
        try:
            sent = {name: relation_table(data) for name, data in leg.relations.items()}
            running = self._engine.query(leg.sql, scans=self._holding_now().files_for(leg), streams=sent)
        except BaseException as error:
            task.failed(error)
            raise
        task.attach(running.cancel)
        output = output_schema(command)
        batches = running.batches() if output is None else conformed(running.batches(), output)
        return StreamResult(schema=output or running.schema, batches=task.follow(batches), cancel=task.cancelled)

    def write(self, command: Mapping[str, Any], rows: IncomingRows, context: CallContext) -> Mapping[str, Any]:
        """Do what a scheduler asks for a statement: take rows in, rewrite, settle, reload."""
        kind = command.get("kind")
        if kind == WRITE:
            return self._writing().write(WriteTarget.from_json(command["target"]), rows)
        rows.drain()
        if kind == REWRITE:
            rewrite = Rewrite(**command["rewrite"])
            return self._writing().rewrite(WriteTarget.from_json(command["target"]), rewrite)
        if kind == SETTLE:
            return self._writing().settle(WriteTarget.from_json(command["target"]), command["sequence"])
        if kind == RELOAD:
            self._holding_now().reload(command["table"], command["partitions"])
            return {}
        raise SqlError("an executor takes writes from schedulers; send statements and rows to one")

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """Answer `held`: what this executor holds, for people."""
        if name != "held":
            raise SqlError(f"an executor has no action '{name}'")
        return self._held()

    def _held(self) -> dict[str, Any]:
        return {
            "held": [
                {
                    "table": held.table,
                    "revision": held.revision,
                    "active": list(held.active),
                    "epochs": list(held.epochs),
                    "loaded": list(held.loaded),
                    "failed": {str(partition): why for partition, why in held.failed.items()},
                }
                for held in self._holding_now().held()
            ]
        }

    def _base(self, command: Mapping[str, Any]) -> StreamResult:
        target = WriteTarget.from_json(command["target"])
        trailer, rows = self._writing().base(target, command["where"], command["alias"])
        holdings = self._holding_now().holdings(target.table.table)
        assert holdings is not None
        schema = holdings.table.schema.append(pa.field(PARTITION_COLUMN, pa.int32()))
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows())
        return StreamResult(schema=schema, batches=batches, trailer=lambda: trailer)

    def _writing(self) -> OwnerWrites:
        self._holding_now()
        return self._writes

    def _shown_tasks(self) -> list[dict[str, Any]]:
        return [asdict(task) for task in self._tasks.last(SHOWN_TASKS)]

    def _observe(self) -> None:
        gauge = self._metrics.gauge
        self._metrics.watch_certificate(self._config.node_tls(), self._runtime)
        gauge("legs_running", "Legs under way.", (), lambda: {(): self._tasks.running()})
        gauge("open_calls", "Calls that wait for an answer.", (), lambda: {(): self._flight.open_calls()})
        gauge("schedulers_connected", "Control streams.", (), lambda: {(): len(self._control.connected())})
        gauge("lease_remaining_seconds", "Of the lease.", (), lambda: {(): self._lease.remaining_ms() / 1e3})
        gauge("cache_bytes", "Copies of data files.", (), lambda: {(): self._cache.stats().bytes})
        gauge("cache_files", "Data files asked of the cache.", ("outcome",), self._cache_outcomes)
        gauge("hydration_bytes", "Data files on their way.", ("state",), self._hydration)
        gauge("partitions_wanted", "Of every table.", (), lambda: {(): self._holding_now().progress().partitions})
        gauge("replica_age_seconds", "Since a replica was compared.", ("table",), self._replica_ages)
        gauge("partitions_held", "Of every table, those held.", ("table", "state"), self._partitions)

    def _partitions(self) -> dict[tuple[str, ...], float]:
        return {
            (held.table, state): float(len(members))
            for held in self._holding_now().held()
            for state, members in (("active", held.active), ("loaded", held.loaded), ("failed", held.failed))
        }

    def _replica_ages(self) -> dict[tuple[str, ...], float]:
        return {(table,): age_ms / 1e3 for table, age_ms in self._holding_now().replica_ages_ms().items()}

    def _hydration(self) -> dict[tuple[str, ...], float]:
        progress = self._holding_now().progress()
        return {
            ("asked",): progress.bytes_asked,
            ("here",): progress.bytes_here,
            ("loaded",): progress.bytes_loaded,
        }

    def _cache_outcomes(self) -> dict[tuple[str, ...], float]:
        stats = self._cache.stats()
        return {("reused",): stats.reused, ("fetched",): stats.fetched, ("damaged",): stats.damaged}

    def _holding_now(self) -> PartitionHolder:
        """The holder; the port is open a moment before there is one."""
        if self._holder is None:
            raise TryLater(f"executor '{self._config.node_id}' is starting")
        return self._holder

    def _hold(self) -> None:
        """Bring what is held closer to what is wanted, and say so at once if it changed."""
        report = self._holding_now().tick()
        if report.hydrated or report.failed:
            log_event(_log, "hydrated", partitions=report.hydrated, failed=report.failed, waiting=report.waiting)
            pa.default_memory_pool().release_unused()  # what decoding took; only on Linux would it go by itself
        if report.hydrated or report.failed or report.unloaded_files:
            self._control.poke()

    def _compact(self) -> None:
        """Merge small files, one partition after the other, while there are any; then tidy the engine up."""
        while (done := self._writes.compact()) is not None:
            log_event(_log, "compacted", **asdict(done))
        self._engine.tidy()

    def _settle(self) -> None:
        """End the attempts at statements that nobody else will."""
        for ended in self._writes.tick():
            if ended.error is None:
                committed = ended.committed
                log_event(_log, "settled", table=ended.table, partition=ended.partition, committed=committed)
            else:
                code, reason = ended.error.code, ended.error
                log_event(_log, "settle_failed", logging.WARNING, table=ended.table, code=code, reason=reason)

    def _map(self, call: Callable[[In], Out], items: Iterable[In], /) -> Iterator[Out]:
        return self._store_workers.map(call, items)


def _parts(kind: type[PartsService], tickets: LegTicketCheck, runtime: Runtime) -> FlightServiceMaker:
    """What speaks at a port where clients fetch parts."""
    return partial(kind, command_of=tickets.command, keep=KeepAlive(runtime=runtime, spawn=spawn))


def _engine(config: NodeConfig, folder: Path | None, runtime: Runtime) -> Engine:
    if config.engine == "polars":
        from ballista_py.engines.polars import PolarsEngine

        return PolarsEngine(runtime=runtime)
    from ballista_py.engines.duckdb import DuckDBEngine

    return DuckDBEngine(
        None if folder is None else str(folder / "engine"),
        threads=config.threads,
        memory_limit=config.memory_limit,
        max_spill_bytes=config.max_spill_bytes,
        keeps_order=False,
        runtime=runtime,
    )
