"""A node starts whole or not at all, and a node that was stopped has given everything back."""

from __future__ import annotations

import socket
import threading

import pytest

from ballista_py.errors import ConfigError
from ballista_py.node.config import NodeConfig
from ballista_py.node.executor.executor import start_executor
from ballista_py.node.scheduler.scheduler import start_scheduler

PORTS = {
    "scheduler": ("flight_port", "control_port", "http_port", "metrics_port"),
    "executor": ("data_port", "http_port", "metrics_port"),
}
START = {"scheduler": start_scheduler, "executor": start_executor}


def threads() -> set[str]:
    """The threads of ours that live; those of libraries are not named like this."""
    ours = ("control", "owners", "store", "write", "memory", "free", "beat", "hold", "flight", "settle")
    return {t.name for t in threading.enumerate() if t.name.split("_")[0] in ours}


@pytest.fixture
def config(tmp_path):
    def make(role: str) -> NodeConfig:
        with_ports = {}
        for name in PORTS[role]:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                with_ports[name] = free.getsockname()[1]
        return NodeConfig(
            role=role,
            node_id=f"{role}-1",
            state_location=(tmp_path / "state").as_uri(),
            data_dir=str(tmp_path / role),
            scheduler_address=["127.0.0.1:9"],
            allow_insecure_connections=True,
            ttl_ms=3_000,
            **with_ports,
        )

    return make


@pytest.mark.turn(3)
@pytest.mark.parametrize(("role", "port"), [(role, port) for role, ports in PORTS.items() for port in ports])
def test_a_node_that_cannot_start_gives_back_what_it_had(config, role, port):
    """Whichever of its ports is taken: the other ones are free then and its threads are gone."""
    before, node_config = threads(), config(role)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", getattr(node_config, port)))
        taken.listen()
        with pytest.raises(ConfigError, match=str(getattr(node_config, port))):
            START[role](node_config)
    assert threads() == before
    node = START[role](node_config)
    node.stop()
    assert threads() == before
    for name in PORTS[role]:
        with socket.create_server(("127.0.0.1", getattr(node_config, name))):
            pass
