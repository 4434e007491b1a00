"""How long queries take that meet a killed, or a stopped, executor: two copies of everything, the default leases.

python benches/killed_executors.py [KILLS] [STOPS]
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time

import pyarrow as pa

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError
from ballista_py.transport.client.client import Client

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
TTL_MS = 30_000
ROWS, PARTITIONS, CLIENTS = 200_000, 6, 2
WATCHED_S = 4.0
LONG = "select count(*) as n, sum(sqrt(id + 1) * ln(id + 2)) as x from t"  # many are under way when it dies


class Asker:
    """Asks without a pause, and remembers when each query began, how long it took and what went wrong."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.done: list[tuple[float, float, str]] = []
        self.going = True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while self.going:
            began, wrong = time.monotonic(), ""
            try:
                (row,) = self.client.sql(LONG).to_pylist()
                wrong = "" if row["n"] == ROWS else f"wrong answer: {row['n']} rows"
            except BallistaError as error:
                wrong = f"{error.code}: {error.message}"
            self.done.append((began, time.monotonic() - began, wrong))


def replicas(cluster: LocalCluster) -> int:
    held = [cluster.shown(node)["held"] for node in cluster.node_ids if node.startswith("executor")]
    return sum(len(table["active"]) for tables in held for table in tables)


def wait_until(holds, seconds: float = 180) -> None:
    for _ in range(int(seconds / 0.2)):
        try:
            if holds():
                return
        except BallistaError:
            pass
        time.sleep(0.2)
    raise SystemExit("the cluster did not come back")


def strike(
    cluster: LocalCluster, askers: list[Asker], name: str, way: int, watched_s: float
) -> tuple[float, list[str]]:
    """The longest query around one strike, and the errors."""
    at = time.monotonic()
    os.kill(cluster.pid(name), way)
    time.sleep(watched_s)
    wait_until(lambda: all(asker.done and asker.done[-1][0] > at for asker in askers))
    met = [(took, wrong) for asker in askers for began, took, wrong in asker.done if began + took >= at]
    return max(took for took, _ in met), [wrong for _, wrong in met if wrong]


def main(kills: int, stops: int) -> None:
    options = {"replicas": "2", "partition-assignment-interval": "500"}
    with LocalCluster(schedulers=1, executors=3, ttl_ms=TTL_MS, node_options=options) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=[f"bucket({PARTITIONS}, id)"])
        clients = [cluster.client() for _ in range(CLIENTS)]
        clients[0].ingest("t", pa.table({"id": range(ROWS)}, schema=SCHEMA))
        wait_until(lambda: replicas(cluster) == 2 * PARTITIONS)
        askers = [Asker(client) for client in clients]
        time.sleep(5)
        quiet = [took for asker in askers for _, took, _ in asker.done]
        print(
            f"quiet: {len(quiet)} queries, p50 {statistics.median(quiet) * 1e3:.0f} ms, max {max(quiet) * 1e3:.0f} ms"
        )
        for way, times, watched_s in ((signal.SIGKILL, kills, WATCHED_S), (signal.SIGSTOP, stops, 20.0)):
            longest: list[float] = []
            errors: list[str] = []
            for number in range(times):
                name = f"executor-{number % 3 + 1}"
                took, wrong = strike(cluster, askers, name, way, watched_s)
                longest.append(took)
                errors += wrong
                print(f"  {way.name} {number + 1}: longest {took * 1e3:.0f} ms {wrong[:1]}", flush=True)
                if way == signal.SIGSTOP:
                    os.kill(cluster.pid(name), signal.SIGCONT)
                else:
                    cluster.kill(name)
                    cluster.start(name)
                wait_until(lambda: replicas(cluster) == 2 * PARTITIONS)
            if longest:
                p50, worst = statistics.median(longest) * 1e3, max(longest) * 1e3
                print(
                    f"{way.name}, {times} times: longest query around each: p50 {p50:.0f} ms, max {worst:.0f} ms"
                )
                print(f"  {len(errors)} errors {sorted(set(errors))[:3]}", flush=True)
        for asker in askers:
            asker.going = False
        for asker in askers:
            asker.thread.join()


if __name__ == "__main__":
    main(*(int(value) for value in [*sys.argv[1:], "20", "5"][:2]))
