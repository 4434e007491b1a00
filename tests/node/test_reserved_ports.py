"""Ports that are kept for nodes: the system gives them to nobody else, and nodes can listen on them."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from ballista_py import LocalCluster
from ballista_py.node.local.processes import ReservedPorts

OTHERS = 3_000


@pytest.fixture
def kept():
    ports = ReservedPorts(40)
    yield ports
    ports.close()


def test_nobody_who_asks_for_any_port_is_given_one_that_is_kept(kept):
    with ExitStack() as stack:
        mine = set(kept.numbers())
        assert len(mine) == 40
        door = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=OTHERS))
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(OTHERS // 10)]
        outgoing = [stack.enter_context(socket.create_connection(door.getsockname())) for _ in range(OTHERS // 10)]
        more = ReservedPorts(OTHERS // 10)
        stack.callback(more.close)
        given = {s.getsockname()[1] for s in [*listening, *outgoing]} | set(more.numbers())
        assert len(given) > OTHERS // 10
        assert not given & mine


def test_a_kept_port_can_be_listened_on_again_and_again_and_is_free_afterwards(kept):
    port = kept.numbers()[0]
    for host in ("127.0.0.1", "127.0.0.2"):
        for _ in range(3):
            with socket.create_server((host, port)) as server, socket.create_connection((host, port)) as client:
                near, _ = server.accept()
                with near:
                    near.sendall(b"x")
                    assert client.recv(1) == b"x"


def test_ports_that_are_let_go_are_free_for_everybody(kept):
    def take(port):
        with socket.socket() as other:  # which shares nothing
            other.bind(("127.0.0.1", port))

    port = kept.numbers()[0]
    with pytest.raises(OSError, match="in use"):
        take(port)
    kept.close()
    kept.close()
    take(port)


@pytest.mark.cluster
@pytest.mark.long
def test_clusters_that_start_at_once_take_no_port_from_each_other():
    with ThreadPoolExecutor(3) as threads, ExitStack() as stack:
        clusters = [LocalCluster(schedulers=1, executors=1) for _ in range(3)]
        for cluster in clusters:
            stack.callback(cluster.stop)
        started = list(threads.map(LocalCluster.start, clusters))
        for cluster in started:
            assert {row["node_id"] for row in cluster.members()} == {"scheduler-1", "executor-1"}
        ports = [port for cluster in clusters for ports in cluster.ports.values() for port in ports.values()]
        assert len(set(ports)) == len(ports) == 9
