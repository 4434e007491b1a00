"""Many simulated executors on one control port, beside a bare grpc.aio echo with as many streams.

The scheduler's side runs in this process, all executors in another; both kinds take turns in one run, on the loop that
nodes have. The echo's
streams carry a heartbeat and its answer as often as ours, as bytes that nobody looks into.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import psutil

from _measure import claim
from ballista_py.runtime import SystemRuntime
from ballista_py.state.members.control import ExecutorInfo, Grant, Heartbeat, NodeReport, RefreshDataset
from ballista_py.threads import new_event_loop
from ballista_py.transport.control.client import ControlClient
from ballista_py.transport.control.server import ControlServer

PUSHES = 1_000
PUSH_EVERY_S = 0.005
HEARTBEAT_MS = 3_000
START_S = 120


class Handler:
    """Grants everything."""

    def heard(self, heartbeat: Heartbeat) -> Grant:
        return Grant(sequence=heartbeat.sequence, lease_ms=30_000)

    def schedulers(self) -> tuple[()]:
        return ()


class Simulated:
    """An executor that notes how long a push took to arrive; both processes have one monotonic clock."""

    def __init__(self, number: int, took: list[float]) -> None:
        self._info = ExecutorInfo(executor_id=f"e{number}", instance_id=f"i{number}", data_address="")
        self._took = took
        self._sequence = 0

    def heartbeat(self) -> Heartbeat:
        self._sequence += 1
        return Heartbeat(executor=self._info, sequence=self._sequence, lapsed=False)

    def received(self, message: Any) -> None:
        if isinstance(message, RefreshDataset):
            self._took.append(time.monotonic() - float(message.table))

    def report(self, _tasks: int) -> NodeReport:
        return NodeReport(node_id=self._info.executor_id, metrics_text=b"")


def run(executors: int, rounds: int) -> None:
    """Measure and print."""
    with asyncio.Runner(
        loop_factory=new_event_loop
    ) as runner:  # gRPC does not get over a second loop in a process
        runner.run(_run(executors, rounds))


async def _run(executors: int, rounds: int) -> None:
    found: dict[str, list[float]] = {"grpc.aio echo": [], "control stream": []}
    process = psutil.Process()
    cpu = dict.fromkeys(found, 0.0)
    for _ in range(max(1, rounds // 2)):
        for name, serve in (("grpc.aio echo", _serve_bare), ("control stream", _serve_ours)):
            before = process.cpu_times()
            found[name] += await serve(executors)
            after = process.cpu_times()
            cpu[name] += after.user + after.system - before.user - before.system
    print(f"\na command to one of {executors} streams, {PUSHES} a round, executors in another process")
    for name, took in found.items():
        quantiles = statistics.quantiles(took, n=100)
        print(
            f"  {name:<16} p50 {quantiles[49] * 1e3:>7.2f} ms   p99 {quantiles[98] * 1e3:>7.2f} ms"
            f"   {cpu[name]:>5.1f} s of CPU   {len(took)} arrived"
        )
    print(f"  this process: {process.memory_info().rss / 1e6:.0f} MB, {process.num_threads()} threads")
    ours, bare = (statistics.quantiles(found[name], n=100)[98] for name in ("control stream", "grpc.aio echo"))
    claim("p99 at most 1.5x of the echo", ours <= 1.5 * bare, f"{ours / bare:.2f}x")


async def _pushed(kind: str, address: str, executors: int, connected: Any, push: Any) -> list[float]:
    """What the executors in the other process measured, for pushes to one after the other."""
    words = [sys.executable, __file__, kind, address, str(executors)]
    clients = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    async with asyncio.timeout(START_S):
        while connected() < executors:
            await asyncio.sleep(0.05)
    await asyncio.sleep(HEARTBEAT_MS / 1e3)
    for number in range(PUSHES):
        pushed = push(number % executors, repr(time.monotonic()))
        if asyncio.iscoroutine(pushed):
            await pushed
        await asyncio.sleep(PUSH_EVERY_S)
    await asyncio.sleep(1)
    said, _ = await asyncio.to_thread(clients.communicate, b"end\n")
    return list(json.loads(said))


async def _serve_ours(executors: int) -> list[float]:
    workers = ThreadPoolExecutor(8)
    server = ControlServer("127.0.0.1:0", "s1", Handler(), workers)  # type: ignore[arg-type]
    address = str(await server.start())
    running = asyncio.create_task(server.run())
    try:
        return await _pushed(
            "ours",
            address,
            executors,
            lambda: len(server.connected()),
            lambda number, text: server.push(f"i{number}", RefreshDataset(text)),
        )
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        workers.shutdown()


async def _serve_bare(executors: int) -> list[float]:
    writes: list[Any] = []

    async def converse(_requests: Any, context: Any) -> None:
        alone = asyncio.Lock()  # gRPC takes one message of a stream at a time

        async def write(message: bytes) -> None:
            async with alone:
                await context.write(message)

        writes.append(write)
        while await context.read() is not grpc.aio.EOF:
            await write(b"heard")

    method = grpc.stream_stream_rpc_method_handler(converse)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("echo", {"Echo": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        return await _pushed(
            "bare",
            f"127.0.0.1:{port}",
            executors,
            lambda: len(writes),
            lambda number, text: writes[number](text.encode()),
        )
    finally:
        await server.stop(0)


async def _execute_ours(address: str, executors: int) -> list[float]:
    took: list[float] = []
    workers = ThreadPoolExecutor(4)
    tasks = []
    for number in range(executors):
        client = ControlClient(
            [address],
            Simulated(number, took),
            workers,
            SystemRuntime(),
            heartbeat_ms=HEARTBEAT_MS,
            discovery_ms=1e6,
        )
        tasks.append(asyncio.create_task(client.run()))
        await asyncio.sleep(HEARTBEAT_MS / 1e3 / executors)  # heartbeats spread over their interval
    await asyncio.to_thread(sys.stdin.readline)
    return took


async def _execute_bare(address: str, executors: int) -> list[float]:
    took: list[float] = []

    async def listen() -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            call = channel.stream_stream("/echo/Echo")()

            async def beat() -> None:
                while True:
                    await call.write(b"heartbeat")
                    await asyncio.sleep(HEARTBEAT_MS / 1e3)

            beating = asyncio.create_task(beat())
            while (message := await call.read()) is not grpc.aio.EOF:
                if message != b"heard":
                    took.append(time.monotonic() - float(message))
            beating.cancel()

    tasks = []
    for _ in range(executors):
        tasks.append(asyncio.create_task(listen()))
        await asyncio.sleep(HEARTBEAT_MS / 1e3 / executors)
    await asyncio.to_thread(sys.stdin.readline)
    return took


async def _execute(kind: str, address: str, executors: int) -> None:
    took = await (_execute_ours if kind == "ours" else _execute_bare)(address, executors)
    with suppress(BrokenPipeError):  # the other process gave up
        print(json.dumps(took), flush=True)
    import os

    os._exit(0)  # hundreds of open streams end with the process


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_execute(sys.argv[1], sys.argv[2], int(sys.argv[3])))
