"""The executor of the reference node.

It wires the lease, the holder of partitions and the engine to a Flight port for legs and to a control stream to
every scheduler, and calls their ticks. It decides nothing itself.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from attrs import asdict

from ballista_py.engines.apart.shares import least_budget
from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError
from ballista_py.logs import log_event
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.allocators import GivesBack
from ballista_py.node.config import NodeConfig
from ballista_py.node.executor.answers import LEGS_IN_ALL, LONGEST_MS, ExecutorAnswers
from ballista_py.node.executor.control import ExecutorControl
from ballista_py.node.executor.engine_processes import (
    GIVE_BACK_MS,
    WATCH_MS,
    engine_workers,
    node_memory,
    own_bytes,
)
from ballista_py.node.executor.partitions import ExecutorPartitions
from ballista_py.node.front_process import FrontProcess
from ballista_py.node.location import open_state_location
from ballista_py.node.loops import Loop
from ballista_py.node.status.executor_metrics import observe_executor
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.status_ports import StatusPorts, check_tokens
from ballista_py.node.status.tasks import Tasks
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.members.identity import cluster_identity
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.seen import NOTE_EVERY_MS
from ballista_py.threads import EventLoopThread, spawn
from ballista_py.transport.control.client import ControlClient
from ballista_py.transport.flight.server import SHUTDOWN_MS, FlightServer, FlightServiceMaker
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.leg_tickets import LegTicketCheck
from ballista_py.transport.flight_sql.legs import MAX_TICKET_BYTES, LegService, PartsService
from ballista_py.transport.security.access import DATA, PARTS, PLAIN_DATA
from ballista_py.transport.security.callers import Anyone, Holders, Nodes
from ballista_py.transport.security.certificates import check_own
from ballista_py.transport.security.credentials import Removed
from ballista_py.transport.security.same_cluster import OfOneCluster
from ballista_py.turns import Turns

_log = logging.getLogger(__name__)
HEARTBEATS_PER_TTL = 10
HOLDER_TICK_MS = 500
FLIGHT_TICK_MS = 200
SETTLE_TICK_MS = 2_000
COMPACT_TICK_MS = 1_000
CONTROL_WORKERS = 4
SHOWN_TASKS = 100


class Executor:
    """One executor, from `start` to `stop`."""

    def __init__(self, config: NodeConfig, runtime: Runtime | None = None) -> None:
        self._config = config
        self._runtime = runtime or SystemRuntime()
        self._metrics = NodeMetrics(config.node_id, config.role)
        self._tasks = Tasks(config.node_id, self._runtime, self._metrics.ended)
        self._loops: list[Loop] = []

    def start(self) -> None:
        """Listen and connect to the schedulers; they admit this executor as soon as they may.

        Raises `ConfigError` for a port, a folder or a state location that cannot be used.
        """
        config, runtime = self._config, self._runtime
        check_own(config.node_tls(), config.node_id, config.role, runtime)
        self._removed = Removed(config.node_mtls_removed_file)
        self._removed.listed()  # a list that cannot be used is no reason to start
        check_tokens(config, runtime)
        store = open_state_location(config, runtime)
        cluster_id = cluster_identity(store, runtime=runtime)
        folder = Path(config.data_dir) if config.data_dir is not None else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._budget = MemoryBudget(least_budget(node_memory(config)), runtime)
        self._engine = _engine(config, folder, runtime, self._budget)
        budget = self._budget
        turns = Turns(runtime, LEGS_IN_ALL, lambda: budget.is_full, LONGEST_MS)
        answers = ExecutorAnswers(config.node_id, self._engine, self._tasks, turns=turns)
        self._lease = self._listen(cluster_id, answers)
        self._cache = FileCache(
            store,
            None if folder is None else str(folder / "files"),
            max_bytes=config.cache_max_bytes,
            format=config.cache_format,
            runtime=runtime,
        )
        self._partitions = ExecutorPartitions(
            self._lease, store, self._engine, self._cache, runtime, node_memory(config)
        )
        answers.partitions = self._partitions
        self._workers = ThreadPoolExecutor(CONTROL_WORKERS, thread_name_prefix="control")
        self._event_loop = EventLoopThread("control")
        self._control = ControlClient(
            config.scheduler_address,
            ExecutorControl(
                node_id=config.node_id,
                lease=self._lease,
                holder=self._partitions.holder,
                tasks=self._tasks,
                metrics=self._metrics,
                poke=lambda: self._holding.poke(),
                allocate=lambda: spawn(self._allocate),
            ),
            self._workers,
            runtime,
            heartbeat_ms=config.ttl_ms / HEARTBEATS_PER_TTL,
            tls=config.node_tls(),
            removed=self._removed,
            cluster_id=cluster_id,
        )
        self._start_loops()
        for name, tick, every_ms in (
            ("memory", self._engine.watch, WATCH_MS),
            ("free", GivesBack(own_bytes, runtime).tick, GIVE_BACK_MS),
        ):
            self._loops.append(Loop(name, tick, interval_ms=every_ms, runtime=runtime).start())
        self._event_loop.start(self._control.run())
        self._metrics.watch_certificate(config.node_tls(), runtime)
        observe_executor(
            self._metrics,
            tasks=self._tasks,
            flight=self._flight,
            control=self._control,
            lease=self._lease,
            cache=self._cache,
            holder=self._partitions.holder,
        )
        self._metrics.gauge("reserved_bytes", "Memory that statements asked for.", ("state",), self._budget.shown)
        self._ports = self._status_ports()
        log_event(_log, "ports", http=self._ports.http.port, metrics=self._ports.metrics.port)
        info = self._lease.info
        log_event(_log, "started", data=info.data_address, parts=info.parts_location, instance=info.instance_id)

    def _listen(self, cluster_id: str, answers: ExecutorAnswers) -> ExecutorLease:
        """Open the ports for legs and for parts of answers; what the lease says of them."""
        config, runtime = self._config, self._runtime
        tls, removed = config.node_tls(), self._removed
        tickets = LegTicketCheck(
            executor_id=config.node_id, cluster_id=cluster_id, runtime=runtime, tls=tls, removed=removed
        )
        self._flight = FlightServer(
            f"{config.node_bind_address}:{config.data_port}",
            answers,
            runtime,
            access=PLAIN_DATA if config.flight_tls() is None else DATA,
            callers=OfOneCluster(Anyone() if tls is None else Nodes(removed), cluster_id),
            tls=tls,
            ask_client=True,
            connections=config.connection_limits(),
            spawn=spawn,
            service=_parts(LegService, tickets, runtime) if config.flight_tls() is None else None,
        )
        self._parts = self._parts_port(tickets, answers)
        parts = self._flight if self._parts is None else self._parts
        scheme = "grpc" if self._parts is None else "grpc+tls"
        return ExecutorLease(
            config.node_id,
            f"{config.node_advertise_address}:{self._flight.port}",
            capacity=config.capacity,
            labels=config.labels,
            engine=config.engine,
            parts_location=f"{scheme}://{config.node_advertise_address}:{parts.port}",
            runtime=runtime,
        )

    def _start_loops(self) -> None:
        runtime = self._runtime
        self._holding = Loop("hold", self._hold, interval_ms=HOLDER_TICK_MS, runtime=runtime)
        self._loops = [
            self._holding.start(),
            Loop("compact", self._partitions.compact, interval_ms=COMPACT_TICK_MS, runtime=runtime).start(),
            Loop("settle", self._partitions.settle, interval_ms=SETTLE_TICK_MS, runtime=runtime).start(),
            Loop("runs", self._partitions.runs.tick, interval_ms=SETTLE_TICK_MS, runtime=runtime).start(),
            Loop("seen", self._partitions.holder.seen.tick, interval_ms=NOTE_EVERY_MS, runtime=runtime).start(),
            Loop("flight", self._flight.tick, interval_ms=FLIGHT_TICK_MS, runtime=runtime).start(),
        ]
        if self._parts is not None:
            self._loops.append(
                Loop("parts", self._parts.tick, interval_ms=FLIGHT_TICK_MS, runtime=runtime).start()
            )

    def _status_ports(self) -> StatusPorts:
        holder = self._partitions.holder
        return StatusPorts(
            self._config,
            self._metrics,
            self._runtime,
            ready=self._lease.valid,
            status=lambda: {
                "schedulers": self._control.connected(),
                "cache": asdict(self._cache.stats()),
                "hydration": asdict(holder.progress()),
                "replica_ages_ms": holder.replica_ages_ms(),
                **self._partitions.shown(),
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
        with suppress(BallistaError):  # those who come after it know less then
            self._partitions.holder.seen.tick()
        self._ports.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._partitions.close()
        self._engine.close()

    def _parts_port(self, tickets: LegTicketCheck, answers: ExecutorAnswers) -> FlightServer | None:
        """A port of its own for clients, who cannot show the certificate that the data port asks for.

        None where everything is plain: there clients come to the data port.
        """
        config = self._config
        if config.flight_tls() is None:
            return None
        return FlightServer(
            f"{config.node_bind_address}:{config.parts_port}",
            answers,
            self._runtime,
            access=PARTS,
            callers=Holders(),
            caller_limit=config.max_calls_per_client,
            tls=config.flight_tls(),
            connections=config.connection_limits(),
            front=FrontProcess,
            message_bytes=MAX_TICKET_BYTES,
            name=config.node_id,
            budget=self._budget,
            spawn=spawn,
            service=_parts(PartsService, tickets, self._runtime),
        )

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
            if self._partitions.holder.apply(update):
                self._holding.poke()

    def _hold(self) -> None:
        """Hold what is wanted, and say so at once if that changed anything."""
        if self._partitions.hold():
            self._control.poke()

    def _shown_tasks(self) -> list[dict[str, Any]]:
        return [asdict(task) for task in self._tasks.last(SHOWN_TASKS)]


def _parts(kind: type[PartsService], tickets: LegTicketCheck, runtime: Runtime) -> FlightServiceMaker:
    """What speaks at a port where clients fetch parts."""
    return partial(kind, command_of=tickets.command, keep=KeepAlive(runtime=runtime, spawn=spawn))


def _engine(config: NodeConfig, folder: Path | None, runtime: Runtime, budget: MemoryBudget) -> Engine:
    workers = engine_workers(config, None if folder is None else str(folder), runtime, budget)
    if config.engine == "polars":
        from ballista_py.engines.polars.engine import PolarsEngine

        return PolarsEngine(workers=workers, runtime=runtime)
    from ballista_py.engines.duckdb.engine import DuckDBEngine

    return DuckDBEngine(
        None if folder is None else str(folder / "engine"),
        threads=config.threads,
        memory_limit=config.memory_limit,
        max_spill_bytes=config.max_spill_bytes,
        keeps_order=False,
        workers=workers,
        runtime=runtime,
    )
