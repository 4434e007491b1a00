"""One node as a process: started, told to stop by a signal, gone within bounds."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
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
    runtime = SystemRuntime()
    configure_logging(config.node_id, config.log_level, form=config.log_format)
    spare_pandas()
    config = with_open_files(config)
    log_event(_log, "starting", role=config.role, state_location=config.state_location, pid=os.getpid())
    if config.allow_insecure_connections:
        log_event(_log, "insecure", logging.WARNING, reason=_insecure(config))
    try:
        node = _start(config, runtime)
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
        failure = node.failed()
        if failure is not None:
            log_event(_log, "failed", logging.ERROR, code=failure.code)
            print(f"error: {failure}", file=sys.stderr, flush=True)
            os._exit(1)  # it never was a member: there is nothing to hand over
        runtime.sleep_ms(POLL_MS)
    if told and told[0] == signal.SIGTERM and config.drain_timeout_ms > 0:
        log_event(_log, "draining", at_most_ms=config.drain_timeout_ms)
        is_done = drained(node.drain, config.drain_timeout_ms, lambda: len(told) > 1 or orphaned(), runtime)
        log_event(_log, "drained" if is_done else "drain_ended", logging.INFO if is_done else logging.WARNING)
    log_event(_log, "stopping", signal=told[0] if told else 0)
    Thread(target=_end_anyway, args=(runtime,), daemon=True).start()
    node.stop()
    log_event(_log, "stopped")
    logging.shutdown()
    os._exit(0)  # gRPC's own threads may not end


def _start(config: NodeConfig, runtime: Runtime) -> RunningNode:
    if config.role == "scheduler":
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
