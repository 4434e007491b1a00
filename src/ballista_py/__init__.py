"""ballista_py: distributed SQL over partitioned tables for clusters whose only shared service is an object store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ballista_py.errors import BallistaError
from ballista_py.runtime import Runtime, SystemRuntime

if TYPE_CHECKING:
    from ballista_py.node.local_cluster import LocalCluster

__version__ = "0.1.0"

# Loaded at first use, so that `import ballista_py` stays fast and needs no extra.
_HOMES = {
    "LocalCluster": "ballista_py.node.local_cluster",
}

__all__ = ["BallistaError", "LocalCluster", "Runtime", "SystemRuntime"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ballista_py' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
