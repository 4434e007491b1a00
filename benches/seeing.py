"""What it costs to be seen: a point lookup with traces and without them, and what is done for them when they are off.

Two clusters of one scheduler and one executor each, one of them with a collector of OTLP, are asked in turns; processor
time is that of their nodes. What an untraced lookup does for traces is timed by itself, as often as a traced one does.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa

from _measure import claim
from ballista_py import Client, LocalCluster
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.runtime import SystemRuntime
from ballista_py.traces import PlainTracer, TraceContext, each_within, read_parent, spanned, told_parent, within

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))
from otlp_collector import Collector

ROUNDS = 12
LOOKUPS = 100
ROWS = 10_000
TIMES = 20_000
MOST_OF_A_LOOKUP = 0.01


def nodes_cpu_s(cluster: LocalCluster) -> float:
    """Processor time of all nodes so far."""
    found = 0.0
    for node_id in cluster.node_ids:
        process = psutil.Process(cluster.pid(node_id))
        for one in (process, *process.children(recursive=True)):
            times = one.cpu_times()
            found += times.user + times.system
    return found


def fill(cluster: LocalCluster) -> None:
    """A table of `ROWS` rows in four partitions."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    cluster.create_table("t", schema=schema, partition_by=["bucket(4, id)"])
    cluster.ingest("t", pa.table({"id": range(ROWS), "v": range(ROWS)}, schema=schema))
    cluster.wait_until_loaded()


def lookups(cluster: LocalCluster, client: Client, count: int) -> tuple[float, float]:
    """Milliseconds of processor time and of time, a lookup."""
    cpu_s, began_s = nodes_cpu_s(cluster), time.perf_counter()
    for number in range(count):
        assert client.sql(f"select v from t where id = {number * 7 % ROWS}").num_rows == 1
    took_s = time.perf_counter() - began_s
    return (nodes_cpu_s(cluster) - cpu_s) / count * 1e3, took_s / count * 1e3


def each_us(call: Callable[[], object]) -> float:
    """Microseconds of processor time of a call."""
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for _ in range(TIMES):
            call()
        best = min(best, (time.thread_time() - began) / TIMES * 1e6)
    return best


def main() -> None:
    """Measure and print."""
    collector = Collector()
    traced = {"otlp-endpoint": collector.endpoint, "otlp-interval-ms": "1000"}
    with (
        LocalCluster(schedulers=1, executors=1) as off,
        LocalCluster(schedulers=1, executors=1, node_options=traced) as on,
    ):
        clusters = {"off": off, "on": on}
        for cluster in clusters.values():
            fill(cluster)
        clients = {name: cluster.client() for name, cluster in clusters.items()}
        for name, cluster in clusters.items():
            lookups(cluster, clients[name], LOOKUPS)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in clusters}
        for turn in range(ROUNDS):
            for name in ("off", "on") if turn % 2 else ("on", "off"):
                found[name].append(lookups(clusters[name], clients[name], LOOKUPS))
        time.sleep(2.5)
        counts = [len(spans) for spans in list(collector.spans.values())[-LOOKUPS:]]
        for client in clients.values():
            client.close()
    collector.close()
    cpu = {name: statistics.median(one for one, _ in values) for name, values in found.items()}
    took = {name: statistics.median(one for _, one in values) for name, values in found.items()}
    for name in clusters:
        print(f"  traces {name:<4}{cpu[name]:>8.3f} ms of processor, {took[name]:>8.3f} ms a lookup")
    print(f"  on costs {cpu['on'] / cpu['off'] - 1:+.1%} of processor time")
    spans = statistics.median(counts)
    what_is_done_when_off(spans, cpu["off"])


def what_is_done_when_off(spans: float, lookup_ms: float) -> None:
    """Print the share of what is done for traces though nobody wants any."""
    tracer, parent = PlainTracer(SystemRuntime().new_id), TraceContext("a" * 32, "b" * 16)
    span = tracer.begin("statement")

    def nothing() -> None:
        with spanned("store.get"):
            pass

    with within(span):
        no_op, said = each_us(nothing), each_us(told_parent)
    begun = each_us(lambda: tracer.begin("statement", parent))
    read = each_us(lambda: read_parent(parent.header()))
    batch = each_us(lambda: list(each_within(span, [1])))
    # A statement and a leg are begun; two headers are told and read; both streams are followed.
    off_us = 2 * begun + 2 * (said + read) + 2 * batch + spans * no_op
    print(
        f"  off: begin {begun:.2f} us, span {no_op:.2f} us, header {said + read:.2f} us, stream {batch:.2f} us; "
        f"{spans:g} spans a lookup: {off_us:.1f} us in all"
    )
    share = off_us / 1e3 / lookup_ms
    claim("traces that are off cost below 1 % of a point lookup", share < MOST_OF_A_LOOKUP, f"{share:.2%}")
    metrics = NodeMetrics("s", "scheduler")
    add = each_us(lambda: metrics.add("store_requests", verb="get", outcome="done"))
    record = each_us(lambda: metrics.record("store_request_duration_ms", 1.0, verb="get"))
    print(f"  a count {add:.2f} us, a measurement {record:.2f} us")


if __name__ == "__main__":
    main()
