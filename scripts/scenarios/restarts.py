"""Nodes that are restarted one after the other, on their ports or on others, while clients ask and write."""

from __future__ import annotations

import tempfile
from pathlib import Path

from load import SCHEMA, Clients, compare, counted, rows, until
from outcome import Outcome

from ballista_py import LocalCluster
from ballista_py.node.local.processes import ReservedPorts
from ballista_py.transport.client.client import connect

TTL_MS = 2_000


def rolling_restart(quick: bool) -> Outcome:
    """All nodes are told to end and started again, one after the other, with copies held once and twice."""
    outcome = Outcome()
    shapes = [(1, 2, 1)] if quick else [(2, 3, 1), (2, 3, 2)]
    for schedulers, executors, replicas in shapes:
        options = {"replicas": str(replicas), "partition-assignment-interval": "500"}
        with LocalCluster(schedulers, executors, ttl_ms=TTL_MS, node_options=options) as cluster:
            cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(6, id)"])
            with Clients(cluster, outcome) as clients:
                until(clients.progressed())
                for node in cluster.node_ids:
                    _restart(cluster, node)
                until(clients.progressed())
            compare(outcome, cluster, clients.written)
    outcome.size = "; ".join(f"{s} schedulers, {e} executors, replicas {r}" for s, e, r in shapes)
    return outcome


def other_ports(quick: bool) -> Outcome:
    """Each node comes back on ports it never had, under load; then all are ended and come back so, at once."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        location = (Path(folder) / "state").as_uri()
        with LocalCluster(2, 2, location, ttl_ms=TTL_MS) as cluster:
            cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(6, id)"])
            with Clients(cluster, outcome) as clients:
                until(clients.progressed())
                reserved = ReservedPorts(4)
                fresh = iter(reserved.numbers())
                moved = ["executor-1", "scheduler-2"] if quick else ["executor-1", "executor-2", "scheduler-2"]
                for node in moved:
                    _restart(cluster, node, {"data" if node.startswith("executor") else "flight": next(fresh)})
                with connect(cluster.addresses()[1]) as client:  # the port that it has now
                    assert len(client.members()) == 4
                until(clients.progressed())
            compare(outcome, cluster, clients.written)
            reserved.close()
        with LocalCluster(2, 2, location, ttl_ms=TTL_MS) as cluster:
            compare(outcome, cluster, clients.written)
            with cluster.client() as client:
                assert client.ingest("t", rows(clients.written, 10)) == 10
                assert counted(client)[0] == clients.written + 10
    outcome.size = f"{len(moved)} nodes one after the other, then 4 at once"
    return outcome


def _restart(cluster: LocalCluster, node: str, ports: dict[str, int] | None = None) -> None:
    process = cluster._nodes.process(node)
    process.terminate()
    process.join(60)
    for name, number in (ports or {}).items():
        words = list(process.arguments)
        words[words.index(f"--{name}-port") + 1] = str(number)
        process.arguments = words
        cluster.ports[node][name] = number
    cluster.start(node)
