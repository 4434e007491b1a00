"""The state location of a node: opened, recognised and checked before anything is built on it."""

from __future__ import annotations

from ballista_py.node.config import NodeConfig
from ballista_py.runtime import Runtime
from ballista_py.state.members.location import check_location
from ballista_py.state.stores.check import check_store
from ballista_py.state.stores.store import ConditionalStore, open_store


def open_state_location(config: NodeConfig, runtime: Runtime) -> ConditionalStore:
    """The store of `config.state_location`, after the quick half of `check_store`.

    Raises `ConfigError` for a location that cannot be used or holds something else, `UnsafeStore` for a store
    that breaks a promise, and what a store in trouble raises.
    """
    store = open_store(config.state_location, runtime=runtime, **config.store_options)
    check_location(store, config.state_location)
    check_store(store, quick=True, runtime=runtime).require_safe()
    return store
