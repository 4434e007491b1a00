"""Nodes that stand still or are killed, with the time to live that nodes have by default: how long clients wait."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time

from load import NAMED, SCHEMA, counted, rows, until
from outcome import Outcome

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError
from ballista_py.transport.client.client import Client, connect

TTL_MS = 30_000
NOTICED_S = 15.0
BESIDES_S = 10.0  # for a busy machine
ROWS, PARTITIONS = 2_000, 6


class Asker:
    """Asks without a pause; remembers when each query began, how long it took and what it said."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.done: list[tuple[float, float, BallistaError | None]] = []
        self.going = True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while self.going:
            began, wrong = time.monotonic(), None
            try:
                found = counted(self.client)
                assert found == (ROWS, ROWS), found
            except BallistaError as error:
                wrong = error
            self.done.append((began, time.monotonic() - began, wrong))

    def end(self) -> None:
        self.going = False
        self.thread.join()


def stopped_scheduler(quick: bool) -> Outcome:
    """SIGSTOP of the scheduler that clients ask: a client that has another one is answered within 15 s, each time."""
    outcome, times, longest = Outcome(), 1 if quick else 10, []
    with LocalCluster(2, 2, ttl_ms=TTL_MS) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=[f"bucket({PARTITIONS}, id)"])
        cluster.ingest("t", rows(0, ROWS))
        for number in range(times):
            stopped = f"scheduler-{number % 2 + 1}"
            with connect(",".join(sorted(cluster.addresses(), reverse=bool(number % 2)))) as client:
                until(lambda client=client: _asked(client))
                pid = cluster.pid(stopped)
                os.kill(pid, signal.SIGSTOP)
                began = time.monotonic()
                until(lambda client=client: _asked(client, outcome))
                longest.append(time.monotonic() - began)
                os.kill(pid, signal.SIGCONT)
            if longest[-1] > NOTICED_S + BESIDES_S:
                outcome.wrong.append(f"noticed after {longest[-1]:.1f} s")
    outcome.size = f"{times} stops, time to live 30 s"
    outcome.notes.append(f"first answer after p50 {statistics.median(longest):.1f} s, max {max(longest):.1f} s")
    return outcome


def _asked(client: Client, outcome: Outcome | None = None) -> bool:
    try:
        found = counted(client)
    except BallistaError as error:
        if outcome is not None:
            outcome.met(error)
            if error.code not in NAMED:
                outcome.wrong.append(f"{error.code}: {error.message}")
        return False
    if outcome is not None:
        outcome.held("t", ROWS, *found)
    return True


def killed_executors(quick: bool) -> Outcome:
    """kill -9 and SIGSTOP of an executor, with two copies of everything: queries go on at copies, without an error."""
    outcome, times = Outcome(), 1 if quick else 10
    options = {"replicas": "2", "partition-assignment-interval": "500"}
    with LocalCluster(1, 3, ttl_ms=TTL_MS, node_options=options) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=[f"bucket({PARTITIONS}, id)"])
        cluster.ingest("t", rows(0, ROWS))
        until(lambda: _held(cluster) == 2 * PARTITIONS)
        with cluster.client() as client:
            asker = Asker(client)
            try:
                until(lambda: asker.done)
                for way in (signal.SIGKILL, signal.SIGSTOP):
                    took = [_struck(cluster, asker, f"executor-{n % 3 + 1}", way) for n in range(times)]
                    outcome.notes.append(
                        f"longest query around {way.name}: p50 {statistics.median(took):.1f} s, max {max(took):.1f} s"
                    )
                    limit = NOTICED_S if way == signal.SIGSTOP else 1.0
                    outcome.wrong += [f"{way.name}: {t:.1f} s" for t in took if t > limit + BESIDES_S]
            finally:
                asker.end()
        for _, _, error in asker.done:
            if error is not None:
                outcome.met(error)
                outcome.wrong.append(f"{error.code}: {error.message}")
    outcome.size = f"{times} of each, replicas 2, time to live 30 s, {len(asker.done):,} queries"
    return outcome


def _struck(cluster: LocalCluster, asker: Asker, name: str, way: signal.Signals) -> float:
    """The longest query that met the strike, until one that began later was answered; the executor comes back."""
    at, pid = time.monotonic(), cluster.pid(name)
    os.kill(pid, way)
    try:
        until(lambda: [d for d in asker.done if d[0] > at])
        time.sleep(2.0)
        until(lambda: asker.done[-1][0] > at + 2.0)
    finally:
        if way == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
    if way == signal.SIGKILL:
        cluster.kill(name)
        cluster.start(name)
    until(lambda: _held(cluster) == 2 * PARTITIONS)
    return max(took for began, took, _ in asker.done if began + took >= at)


def _held(cluster: LocalCluster) -> int:
    try:
        held = [cluster.shown(node)["held"] for node in cluster.node_ids if node.startswith("executor")]
    except BallistaError:
        return -1
    return sum(len(table["active"]) for tables in held for table in tables)
