"""Strangers write next to nothing into the logs of nodes, at whichever port."""

from __future__ import annotations

import socket
from contextlib import suppress

import psutil
import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster
STRANGERS = 150


def test_handshakes_that_fail_are_a_few_lines(wait_until):
    with LocalCluster(schedulers=1, executors=1, tls=True) as cluster:
        before = {name: len(cluster.log(name)) for name in cluster.node_ids}
        ports = {
            connection.laddr.port
            for name in cluster.node_ids
            for connection in psutil.Process(cluster.pid(name)).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert len(ports) >= 4
        for port in ports:
            for _ in range(STRANGERS):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                    stranger.sendall(b"\x16\x03\x01\x00\x05hello")
                    stranger.recv(100)
        with cluster.client() as client:
            assert client.sql("select 1 as n").to_pylist() == [{"n": 1}]
        grown = {name: len(cluster.log(name)) - size for name, size in before.items()}
        assert all(size < 20 * STRANGERS * len(ports) for size in grown.values()), grown
