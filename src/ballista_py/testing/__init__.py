"""The kit that attacks clusters: simulation, faulty stores, history checkers, strategies. Public.

`StoreContract` proves a store of yours, and `lying_store` gives it one of `LIES` to find out. `FaultyStore` and
`HttpProxy` make any store lose replies, `TcpProxy` spoils
links. `Simulation` lets a whole cluster live through faults in virtual time and `check_history` judges what
happened; `MUTANTS` prove that it would notice. `strategies` (a module) draws what clusters are made of.
`World`, `Machine`, `VirtualStore` and `Record` attack code of yours in virtual time (docs/testing-kit.md).
`assert_single_node_equivalent` compares a query over partitions with a single node. `hostile_client` (a module
and a command) attacks a deployment of yours. They need the extra `testing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing.faults.chance import Chance
from ballista_py.testing.faults.http_proxy import HttpProxy, ReplyFaults
from ballista_py.testing.faults.lying_store import LIES, Lie, lying_store
from ballista_py.testing.faults.store import FaultyStore, StoreFaults
from ballista_py.testing.faults.tcp_proxy import TcpProxy
from ballista_py.testing.store_contract import StoreContract

if TYPE_CHECKING:
    from ballista_py.testing import strategies
    from ballista_py.testing.simulation.checkers.check import Violation, check_history
    from ballista_py.testing.simulation.contention import ContentionResult, contend
    from ballista_py.testing.simulation.faults import Faults
    from ballista_py.testing.simulation.history import History
    from ballista_py.testing.simulation.machine import Machine
    from ballista_py.testing.simulation.mutants.mutants import MUTANTS, Mutant
    from ballista_py.testing.simulation.own_history import Failure, Holding, Record, check_requests, first_failure
    from ballista_py.testing.simulation.owners.simulation import OwnerSimulation
    from ballista_py.testing.simulation.simulation import Simulation, SimulationResult
    from ballista_py.testing.simulation.store import VirtualStore
    from ballista_py.testing.simulation.time import World
    from ballista_py.testing.sql.single_node import InProcessCluster, assert_single_node_equivalent

_HOMES = {
    "ContentionResult": "simulation.contention",
    "Failure": "simulation.own_history",
    "Faults": "simulation.faults",
    "History": "simulation.history",
    "Holding": "simulation.own_history",
    "InProcessCluster": "sql.single_node",
    "MUTANTS": "simulation.mutants.mutants",
    "Machine": "simulation.machine",
    "Mutant": "simulation.mutants.mutants",
    "OwnerSimulation": "simulation.owners.simulation",
    "Record": "simulation.own_history",
    "Simulation": "simulation.simulation",
    "SimulationResult": "simulation.simulation",
    "Violation": "simulation.checkers.check",
    "VirtualStore": "simulation.store",
    "World": "simulation.time",
    "assert_single_node_equivalent": "sql.single_node",
    "check_history": "simulation.checkers.check",
    "check_requests": "simulation.own_history",
    "contend": "simulation.contention",
    "first_failure": "simulation.own_history",
    "strategies": "strategies",
}

__all__ = [
    "LIES",
    "MUTANTS",
    "Chance",
    "ContentionResult",
    "Failure",
    "Faults",
    "FaultyStore",
    "History",
    "Holding",
    "HttpProxy",
    "InProcessCluster",
    "Lie",
    "Machine",
    "MemoryStore",
    "Mutant",
    "OwnerSimulation",
    "Record",
    "ReplyFaults",
    "Simulation",
    "SimulationResult",
    "StoreContract",
    "StoreFaults",
    "TcpProxy",
    "Violation",
    "VirtualStore",
    "World",
    "assert_single_node_equivalent",
    "check_history",
    "check_requests",
    "contend",
    "first_failure",
    "lying_store",
    "strategies",
]


def __getattr__(name: str) -> Any:
    """What needs the extra `testing` is imported when it is asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        module = import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as error:
        from ballista_py.errors import MissingExtra

        raise MissingExtra.of(error.name or home, "testing") from error
    return module if name == home else getattr(module, name)
