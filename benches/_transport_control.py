"""Many simulated executors on one control port, beside a bare grpc.aio echo with as many streams."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc.aio
import psutil

from _measure import claim
from ballista_py.runtime import SystemRuntime
from ballista_py.state.control import ExecutorInfo, Grant, Heartbeat, NodeReport, RefreshDataset
from ballista_py.transport.control_client import ControlClient
from ballista_py.transport.control_server import ControlServer

PUSHES = 40
HEARTBEAT_MS = 3_000


class Handler:
    """Grants everything."""

    def heard(self, heartbeat: Heartbeat) -> Grant:
        return Grant(sequence=heartbeat.sequence, lease_ms=30_000)

    def schedulers(self) -> tuple[()]:
        return ()


class Simulated:
    """An executor that notes when a push arrived."""

    def __init__(self, number: int, took: list[float]) -> None:
        self._info = ExecutorInfo(executor_id=f"e{number}", instance_id=f"i{number}", data_address="")
        self._took = took
        self._sequence = 0

    def heartbeat(self) -> Heartbeat:
        self._sequence += 1
        return Heartbeat(executor=self._info, sequence=self._sequence, lapsed=False)

    def received(self, message: Any) -> None:
        if isinstance(message, RefreshDataset):
            self._took.append(time.perf_counter() - float(message.table))

    def report(self, _tasks: int) -> NodeReport:
        return NodeReport(node_id=self._info.executor_id, metrics_text=b"")


def run(executors: int, rounds: int) -> None:
    """Measure and print; both in this process, in turn, on one loop each."""
    process = psutil.Process(os.getpid())
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(max(1, rounds // 2)):
        bare += asyncio.run(_bare(executors))
        ours += asyncio.run(_ours(executors))
    print(f"\na command to one of {executors} streams, server and clients in one process")
    for name, took in (("grpc.aio echo", bare), ("control stream", ours)):
        quantiles = statistics.quantiles(took, n=100)
        print(f"  {name:<16} p50 {quantiles[49] * 1e3:.2f} ms   p99 {quantiles[98] * 1e3:.2f} ms")
    print(f"  peak of this process: {process.memory_info().rss / 1e6:.0f} MB, {process.num_threads()} threads")
    ratio = statistics.quantiles(ours, n=100)[98] / statistics.quantiles(bare, n=100)[98]
    claim("p99 at most 1.5x of the echo", ratio <= 1.5, f"{ratio:.2f}x")


async def _ours(executors: int) -> list[float]:
    took: list[float] = []
    workers = ThreadPoolExecutor(8)
    server = ControlServer("127.0.0.1:0", "s1", Handler(), workers)  # type: ignore[arg-type]
    address = str(await server.start())
    tasks = [asyncio.create_task(server.run())]
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
    while len(server.connected()) < executors:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    for number in range(PUSHES * 10):
        server.push(f"i{number % executors}", RefreshDataset(repr(time.perf_counter())))
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.5)
    for task in reversed(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    workers.shutdown()
    return took


async def _bare(executors: int) -> list[float]:
    """Streams of raw bytes: the server writes the time, the client notes when it came."""
    contexts: list[Any] = []
    took: list[float] = []

    async def converse(_requests: Any, context: Any) -> None:
        contexts.append(context)
        await context.read()
        await asyncio.Event().wait()

    method = grpc.stream_stream_rpc_method_handler(converse)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("echo", {"Echo": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def listen() -> None:
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            call = channel.stream_stream("/echo/Echo")()
            await call.write(b"hello")
            while (message := await call.read()) is not grpc.aio.EOF:
                took.append(time.perf_counter() - float(message))

    tasks = [asyncio.create_task(listen()) for _ in range(executors)]
    while len(contexts) < executors:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    for number in range(PUSHES * 10):
        await contexts[number % executors].write(repr(time.perf_counter()).encode())
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await server.stop(0)
    return took
