"""How many connections the ports of a node may have, so that the node itself has files left to open."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from attrs import evolve

from ballista_py.logs import log_event
from ballista_py.node.config import NodeConfig
from ballista_py.transport.sockets import let_open

PORTS = 4
OWN_FILES = 1_024  # of the store, the engine, other nodes and the log
LEAST = 4
_log = logging.getLogger(__name__)


def wanted(config: NodeConfig) -> int:
    """How many open files the node needs for all the connections that it may have."""
    return PORTS * config.max_connections + OWN_FILES


def within(config: NodeConfig, files: int) -> NodeConfig:
    """The configuration of a node that may have so many open files: half of few are for itself."""
    each = max(LEAST, (files - min(OWN_FILES, files // 2)) // PORTS)
    return evolve(
        config,
        max_connections=min(config.max_connections, each),
        max_connections_per_address=min(config.max_connections_per_address, each),
    )


def with_open_files(configs: Sequence[NodeConfig]) -> list[NodeConfig]:
    """What the system lets this process have of what its nodes need; said in the log where that is less."""
    needed = sum(map(wanted, configs))
    files = let_open(needed)
    found = [within(config, files // len(configs)) for config in configs]
    few = next((pair for pair in zip(found, configs, strict=True) if pair[0] != pair[1]), None)
    if few is not None:
        log_event(
            _log,
            "few_files",
            logging.WARNING,
            files=files,
            connections=few[0].max_connections,
            reason=f"each port takes at most {few[0].max_connections} connections, not {few[1].max_connections}: let "
            f"the process have {needed} open files (ulimit -n)",
        )
    return found
