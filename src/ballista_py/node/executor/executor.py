"""The executor of the reference node.

It wires the lease, the holder of partitions and the engine to a Flight port for legs and to a control stream to
every scheduler, and calls their ticks. It decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from ballista_py.coordinator.policies.known import KnownPolicies
from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError
from ballista_py.logs import log_event
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.config import NodeConfig
from ballista_py.node.drain import ExecutorDrain
from ballista_py.node.engine_processes import (
    engine_workers,
    node_memory,
)
from ballista_py.node.executor.answers import LEGS_IN_ALL, LONGEST_MS, ExecutorAnswers
from ballista_py.node.executor.control import ExecutorControl
from ballista_py.node.executor.granted_parts import GRANTS_TICK_MS
from ballista_py.node.executor.part_server import ExecutorParts
from ballista_py.node.executor.partitions import ExecutorPartitions, StoreThreads
from ballista_py.node.executor.row_taker import ExecutorRows
from ballista_py.node.front_process import FrontProcess
from ballista_py.node.loops import Loop
from ballista_py.node.running import Foundation, RunningNode
from ballista_py.node.status.executor_metrics import observe_executor
from ballista_py.node.status.memory_rows import memory_part, memory_row
from ballista_py.owner.part_reads import PartReads
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.policies import PolicyShelf
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.seen import NOTE_EVERY_MS
from ballista_py.threads import EventLoopThread, spawn
from ballista_py.transport.control.client import ControlClient
from ballista_py.transport.flight.server import SHUTDOWN_MS, FlightServer, FlightServiceMaker
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.leg_tickets import LegTicketCheck
from ballista_py.transport.flight_sql.legs import MAX_MESSAGE_BYTES, LegService, PartsService
from ballista_py.transport.security.access import DATA, PARTS, PLAIN_DATA
from ballista_py.transport.security.callers import Anyone, Nodes, OfOneCluster, TicketHolders
from ballista_py.transport.security.signed_tickets import TicketCheck
from ballista_py.transport.table_read.tickets import READ_PURPOSE
from ballista_py.transport.table_write.tickets import WRITE_PURPOSE
from ballista_py.turns import Turns

_log = logging.getLogger(__name__)
HEARTBEATS_PER_TTL = 10
HOLDER_TICK_MS = 500
FLIGHT_TICK_MS = 200
SETTLE_TICK_MS = 2_000
COMPACT_TICK_MS = 1_000
CONTROL_WORKERS = 4
POLICIES_TICK_MS = 10_000


def start_executor(config: NodeConfig, runtime: Runtime | None = None) -> RunningNode:
    """Listen and connect to the schedulers; they admit this executor as soon as they may.

    What was started is ended when the rest cannot be. Raises `ConfigError` for a port, a folder or a state location
    that cannot be used.
    """
    with ExitStack() as up:
        ground = Foundation.lay(config, runtime or SystemRuntime(), up)
        folder = Path(config.data_dir) if config.data_dir is not None else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        engine = _engine(config, folder, ground.runtime, ground.budget)
        up.callback(engine.close)
        ground.watch_memory(engine.watch)
        threads = StoreThreads()
        up.callback(threads.close)
        turns = Turns(ground.runtime, LEGS_IN_ALL, lambda: ground.budget.is_full, LONGEST_MS)
        answers = ExecutorAnswers(config.node_id, engine, ground.tasks, config.engine, turns=turns)
        parts, taken = _part_server(ground), _row_taker(ground)
        links = _listen(ground, answers, parts, taken)
        cache = FileCache(
            ground.store,
            None if folder is None else str(folder / "files"),
            max_bytes=config.cache_max_bytes,
            format=config.cache_format,
            runtime=ground.runtime,
        )
        partitions = ExecutorPartitions(
            links.lease, ground.store, engine, cache, ground.runtime, threads, node_memory(config), ground.metrics
        )
        parts.reads = PartReads(partitions.holder, ground.store, engine, cache, ground.runtime)
        taken.staged = partitions.staged
        answers.partitions = partitions
        failures: list[BallistaError] = []
        control = _start_control(ground, links, partitions, failures.append, parts.load)
        observe_executor(
            ground.metrics,
            tasks=ground.tasks,
            flight=links.flight,
            control=control,
            lease=links.lease,
            cache=cache,
            holder=partitions.holder,
            budget=ground.budget,
            slots=LEGS_IN_ALL,
        )
        _start_loops(ground, links, partitions)
        policies = KnownPolicies(PolicyShelf(ground.store, ground.runtime), ground.runtime)
        ground.loop("policies", policies.tick, POLICIES_TICK_MS)
        ground.loop("grants", parts.tick, GRANTS_TICK_MS)
        ground.show(
            ready=links.lease.valid,
            status=lambda _client: {**_shown(control, cache, partitions), "reads": parts.shown()},
            parts=[memory_part(lambda: [memory_row(config.node_id, "executor", ground.metrics.text())])],
            require_figures=partial(policies.require_operator, "to see all figures"),
            require_look=partial(policies.require_operator, "to look at an executor"),
        )
        up.callback(links.lease.leave)
        info = links.lease.info
        log_event(_log, "started", data=info.data_address, parts=info.parts_location, instance=info.instance_id)
        drain = ExecutorDrain(
            config.node_id,
            tuple(port for port in (links.flight, links.parts) if port is not None),
            links.lease,
            partitions.holder,
            control.poke,
            ground.runtime,
        )
        return RunningNode(up.pop_all().close, drain, lambda: failures[0] if failures else None)


@frozen(kw_only=True)
class _Links:
    """The port for legs, that for parts of answers where it is another, and what the lease says of them."""

    flight: FlightServer
    parts: FlightServer | None
    lease: ExecutorLease


def _part_server(ground: Foundation) -> ExecutorParts:
    """What gives parts of read jobs to whoever holds their tickets."""
    config, check = ground.config, _check(ground, READ_PURPOSE)
    return ExecutorParts(config.node_id, check, ground.tasks, ground.runtime, ground.budget, config.engine)


def _row_taker(ground: Foundation) -> ExecutorRows:
    """What takes rows of writes from whoever holds their tickets."""
    config, check = ground.config, _check(ground, WRITE_PURPOSE)
    return ExecutorRows(config.node_id, check, ground.tasks, ground.runtime, ground.budget, config.engine)


def _check(ground: Foundation, purpose: bytes) -> TicketCheck:
    return TicketCheck(
        purpose=purpose,
        cluster_id=ground.cluster_id,
        runtime=ground.runtime,
        tls=ground.config.node_tls(),
        removed=ground.removed,
    )


def _listen(ground: Foundation, answers: ExecutorAnswers, reads: ExecutorParts, takes: ExecutorRows) -> _Links:
    config, runtime, removed = ground.config, ground.runtime, ground.removed
    tls = config.node_tls()
    tickets = LegTicketCheck(
        executor_id=config.node_id, cluster_id=ground.cluster_id, runtime=runtime, tls=tls, removed=removed
    )
    is_plain = config.flight_tls() is None
    flight = FlightServer(
        f"{config.node_bind_address}:{config.data_port}",
        answers,
        runtime,
        access=PLAIN_DATA if is_plain else DATA,
        callers=OfOneCluster(Anyone() if tls is None else Nodes(removed), ground.cluster_id),
        tls=tls,
        ask_client=True,
        connections=config.connection_limits(),
        spawn=spawn,
        service=_parts(LegService, tickets, reads, takes, runtime) if is_plain else None,
    )
    ground.up.callback(flight.shutdown, spawn, SHUTDOWN_MS / 2)
    parts = None if is_plain else _parts_port(ground, tickets, answers, reads, takes)
    scheme = "grpc" if parts is None else "grpc+tls"
    lease = ExecutorLease(
        config.node_id,
        f"{config.node_advertise_address}:{flight.port}",
        capacity=config.capacity,
        labels=config.labels,
        engine=config.engine,
        parts_location=f"{scheme}://{config.node_advertise_address}:{(parts or flight).port}",
        runtime=runtime,
    )
    return _Links(flight=flight, parts=parts, lease=lease)


def _parts_port(
    ground: Foundation,
    tickets: LegTicketCheck,
    answers: ExecutorAnswers,
    reads: ExecutorParts,
    takes: ExecutorRows,
) -> FlightServer:
    """A port of its own for clients, who cannot show the certificate that the data port asks for."""
    config = ground.config
    port = FlightServer(
        f"{config.node_bind_address}:{config.parts_port}",
        answers,
        ground.runtime,
        access=PARTS,
        callers=TicketHolders(),
        caller_limit=config.max_calls_per_client,
        tls=config.flight_tls(),
        connections=config.connection_limits(),
        front=FrontProcess,
        message_bytes=MAX_MESSAGE_BYTES,
        name=config.node_id,
        budget=ground.budget,
        spawn=spawn,
        service=_parts(PartsService, tickets, reads, takes, ground.runtime),
    )
    ground.up.callback(port.shutdown, spawn, SHUTDOWN_MS / 2)
    return port


def _start_control(
    ground: Foundation,
    links: _Links,
    partitions: ExecutorPartitions,
    foreign: Callable[[BallistaError], None],
    load: Callable[[], int],
) -> ControlClient:
    """Hold what schedulers want held, and tell each of them what that is.

    A node that stops says so first, so that its partitions are given away at once, while its ports still answer.
    """
    config, runtime, up, lease = ground.config, ground.runtime, ground.up, links.lease
    workers = ThreadPoolExecutor(CONTROL_WORKERS, thread_name_prefix="control")
    up.callback(workers.shutdown, wait=False, cancel_futures=True)
    up.callback(_note_seen, partitions)
    event_loop = EventLoopThread("control")
    up.callback(event_loop.stop)

    def hold() -> None:
        """Hold what is wanted, and say so at once if that changed anything."""
        if partitions.hold():
            control.poke()

    def allocate() -> None:
        """Ask for a share of what waits, once an instance: it need not wait for the next interval."""
        info = lease.info
        try:
            updates = event_loop.call(control.ask(lambda link: link.allocate(info.executor_id, info.instance_id)))
        except BallistaError as error:  # what is assigned comes over the stream, too
            log_event(_log, "not_allocated", reason=error)
            return
        for update in updates:
            if partitions.holder.apply(update):
                holding.poke()

    def leave() -> None:
        info = lease.info
        if not event_loop.call(control.leave(info.executor_id, info.instance_id)):
            log_event(_log, "leave_failed", logging.WARNING, reason="no scheduler could be told")

    holding = Loop("hold", hold, interval_ms=HOLDER_TICK_MS, runtime=runtime)
    control = ControlClient(
        config.scheduler_address,
        ExecutorControl(
            node_id=config.node_id,
            lease=lease,
            holder=partitions.holder,
            tasks=ground.tasks,
            metrics=ground.metrics,
            poke=holding.poke,
            allocate=lambda: spawn(allocate),
            load=load,
        ),
        workers,
        runtime,
        heartbeat_ms=config.ttl_ms / HEARTBEATS_PER_TTL,
        tls=config.node_tls(),
        removed=ground.removed,
        cluster_id=ground.cluster_id,
        foreign=foreign,
    )
    up.callback(leave)
    up.callback(holding.stop)
    holding.start()
    event_loop.start(control.run())
    return control


def _start_loops(ground: Foundation, links: _Links, partitions: ExecutorPartitions) -> None:
    ground.loop("compact", partitions.compact, COMPACT_TICK_MS)
    ground.loop("settle", partitions.settle, SETTLE_TICK_MS)
    ground.loop("runs", partitions.runs.tick, SETTLE_TICK_MS)
    ground.loop("seen", partitions.holder.seen.tick, NOTE_EVERY_MS)
    ground.loop("flight", links.flight.tick, FLIGHT_TICK_MS)
    if links.parts is not None:
        ground.loop("parts", links.parts.tick, FLIGHT_TICK_MS)


def _note_seen(partitions: ExecutorPartitions) -> None:
    with suppress(BallistaError):  # those who come after it know less then
        partitions.holder.seen.tick()


def _shown(control: ControlClient, cache: FileCache, partitions: ExecutorPartitions) -> dict[str, Any]:
    holder = partitions.holder
    return {
        "schedulers": control.connected(),
        "cache": asdict(cache.stats()),
        "hydration": asdict(holder.progress()),
        "replica_ages_ms": holder.replica_ages_ms(),
        **partitions.shown(),
    }


def _parts(
    kind: type[PartsService], tickets: LegTicketCheck, reads: ExecutorParts, takes: ExecutorRows, runtime: Runtime
) -> FlightServiceMaker:
    """What speaks at a port where clients fetch parts and put rows."""
    keep = KeepAlive(runtime=runtime, spawn=spawn)
    return partial(kind, command_of=tickets.command, reads=reads, takes=takes, keep=keep)


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
