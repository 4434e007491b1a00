"""One node, or several, as a process: started, told to stop by a signal, gone within bounds."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from threading import Thread
from typing import TYPE_CHECKING

from ballista_py.errors import BallistaError
from ballista_py.logs import configure_logging, log_event
from ballista_py.node.config import NodeConfig
from ballista_py.node.drain import drained
from ballista_py.node.open_files import with_open_files
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.spared import spare_pandas

if TYPE_CHECKING:
    from ballista_py.node.running import RunningNode

_log = logging.getLogger(__name__)
POLL_MS = 100
STOP_LIMIT_MS = 12_000


def run_node(config: NodeConfig, parent_pid: int | None = None) -> None:
    """Run the node until SIGTERM, after which it drains first, SIGINT, or the end of the process `parent_pid`."""
    run_nodes((config,), parent_pid)


def run_nodes(configs: Sequence[NodeConfig], parent_pid: int | None = None) -> None:
    """Run nodes in this process, as `run_node` does; all of them end when one does."""
    runtime = SystemRuntime()
    each = [one for config in configs for one in config.of_each()]
    configure_logging("+".join(one.node_id for one in each), configs[0].log_level, form=configs[0].log_format)
    spare_pandas()
    each = with_open_files(each)
    for one in each:
        log_event(
            _log, "starting", node=one.node_id, role=one.role, state_location=one.state_location, pid=os.getpid()
        )
        if one.allow_insecure_connections:
            log_event(_log, "insecure", logging.WARNING, reason=_insecure(one))
    try:
        nodes = [_start(one, runtime) for one in each]
    except BallistaError as error:
        log_event(_log, "not_started", logging.ERROR, code=error.code)
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # whatever was started until here has nothing to finish
    gc.freeze()  # what was imported and started stays: looking through it for garbage stops everybody for 100 ms
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: told.append(received))

    def orphaned() -> bool:
        return parent_pid is not None and os.getppid() != parent_pid

    while not told and not orphaned():
        failure = next((found for node in nodes if (found := node.failed()) is not None), None)
        if failure is not None:
            log_event(_log, "failed", logging.ERROR, code=failure.code)
            print(f"error: {failure}", file=sys.stderr, flush=True)
            os._exit(1)  # it never was a member: there is nothing to hand over
        runtime.sleep_ms(POLL_MS)
    nodes.reverse()  # executors, which hand over to schedulers, go first

    def drain() -> bool:
        found = [node.drain() for node in nodes]  # each is asked
        return all(found)

    longest_ms = max(one.drain_timeout_ms for one in each)
    if told and told[0] == signal.SIGTERM and longest_ms > 0:
        log_event(_log, "draining", at_most_ms=longest_ms)
        is_done = drained(drain, longest_ms, lambda: len(told) > 1 or orphaned(), runtime)
        log_event(_log, "drained" if is_done else "drain_ended", logging.INFO if is_done else logging.WARNING)
    log_event(_log, "stopping", signal=told[0] if told else 0)
    Thread(target=_end_anyway, args=(runtime,), daemon=True).start()
    for node in nodes:
        node.stop()
    log_event(_log, "stopped")
    logging.shutdown()
    os._exit(0)  # gRPC's own threads may not end


def _start(config: NodeConfig, runtime: Runtime) -> RunningNode:
    if config.node_role == "scheduler":
        from ballista_py.node.scheduler.scheduler import start_scheduler

        return start_scheduler(config, runtime)
    from ballista_py.node.executor.executor import start_executor

    return start_executor(config, runtime)


def _insecure(config: NodeConfig) -> str:
    if config.node_tls() is None:
        return (
            "anyone who reaches the ports of this node is taken for a node, and everything is readable on the way"
        )
    return "--allow-insecure-connections is given although this node has certificates; it changes nothing here"


def _end_anyway(runtime: Runtime) -> None:
    """A stop that hangs must not keep the process."""
    runtime.sleep_ms(STOP_LIMIT_MS)
    os._exit(1)
