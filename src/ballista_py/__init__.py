"""Distributed SQL over partitioned tables, for clusters whose only shared service is an object store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ballista_py.errors import BallistaError
    from ballista_py.node.local_cluster import LocalCluster
    from ballista_py.planning.assigner import AssignmentPlan, Executor, PartitionAssigner
    from ballista_py.planning.bucket import BucketUDF, bucket
    from ballista_py.planning.diff import PartitionDiff, diff_partitions
    from ballista_py.planning.partition_map import PartitionMap
    from ballista_py.planning.partition_spec import PartitionSpec
    from ballista_py.planning.router import PartitionRouter
    from ballista_py.planning.selector import SetCoverSelector
    from ballista_py.planning.table import TableSpec
    from ballista_py.runtime import Runtime, SystemRuntime
    from ballista_py.secret import Secret
    from ballista_py.spark.pipeline import SparkPipeline
    from ballista_py.spark.watermark import Watermark
    from ballista_py.state.check_store import StoreReport, check_store
    from ballista_py.state.documents import ClusterDocument, SchedulerInfo
    from ballista_py.state.executor_lease import ExecutorLease
    from ballista_py.state.executor_registry import ExecutorRegistry
    from ballista_py.state.membership import Membership
    from ballista_py.state.object_state import ObjectState, Retry, Versioned
    from ballista_py.state.obstore_store import ObstoreStore
    from ballista_py.state.partition_store import PartitionStore
    from ballista_py.state.reaper import Reaper
    from ballista_py.state.reconciler import Reconciler
    from ballista_py.state.store import ConditionalStore, ObjectEntry, StoredObject, open_store
    from ballista_py.storage.partition_storage import PartitionStorage
    from ballista_py.transport.client import Client, connect
    from ballista_py.transport.credentials import Tls
    from ballista_py.transport.tokens import TokenVerifier

__version__ = "0.1.0"

# Loaded at first use, so that `import ballista_py` stays fast and needs no extra.
_HOMES = {
    "errors": ("BallistaError",),
    "node.local_cluster": ("LocalCluster",),
    "planning.assigner": ("AssignmentPlan", "Executor", "PartitionAssigner"),
    "planning.bucket": ("BucketUDF", "bucket"),
    "planning.diff": ("PartitionDiff", "diff_partitions"),
    "planning.partition_map": ("PartitionMap",),
    "planning.partition_spec": ("PartitionSpec",),
    "planning.router": ("PartitionRouter",),
    "planning.selector": ("SetCoverSelector",),
    "planning.table": ("TableSpec",),
    "runtime": ("Runtime", "SystemRuntime"),
    "spark.pipeline": ("SparkPipeline",),
    "spark.watermark": ("Watermark",),
    "state.check_store": ("StoreReport", "check_store"),
    "state.documents": ("ClusterDocument", "SchedulerInfo"),
    "state.executor_lease": ("ExecutorLease",),
    "state.executor_registry": ("ExecutorRegistry",),
    "state.membership": ("Membership",),
    "state.object_state": ("ObjectState", "Retry", "Versioned"),
    "state.obstore_store": ("ObstoreStore",),
    "state.partition_store": ("PartitionStore",),
    "state.reaper": ("Reaper",),
    "state.reconciler": ("Reconciler",),
    "state.store": ("ConditionalStore", "ObjectEntry", "StoredObject", "open_store"),
    "storage.partition_storage": ("PartitionStorage",),
    "secret": ("Secret",),
    "transport.client": ("Client", "connect"),
    "transport.credentials": ("Tls",),
    "transport.tokens": ("TokenVerifier",),
}
# What the modules of a folder need beyond the package's own dependencies.
_EXTRAS = {"node": "node", "spark": "spark"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AssignmentPlan",
    "BallistaError",
    "BucketUDF",
    "Client",
    "ClusterDocument",
    "ConditionalStore",
    "Executor",
    "ExecutorLease",
    "ExecutorRegistry",
    "LocalCluster",
    "Membership",
    "ObjectEntry",
    "ObjectState",
    "ObstoreStore",
    "PartitionAssigner",
    "PartitionDiff",
    "PartitionMap",
    "PartitionRouter",
    "PartitionSpec",
    "PartitionStorage",
    "PartitionStore",
    "Reaper",
    "Reconciler",
    "Retry",
    "Runtime",
    "SchedulerInfo",
    "Secret",
    "SetCoverSelector",
    "SparkPipeline",
    "StoreReport",
    "StoredObject",
    "SystemRuntime",
    "TableSpec",
    "Tls",
    "TokenVerifier",
    "Versioned",
    "Watermark",
    "bucket",
    "check_store",
    "connect",
    "diff_partitions",
    "open_store",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'ballista_py' has no attribute '{name}'")
    try:
        return getattr(import_module(f"ballista_py.{home}"), name)
    except ModuleNotFoundError as error:
        raise _missing(error, home) from None


def _missing(error: ModuleNotFoundError, home: str) -> Exception:
    """What is to be installed for the modules of `home`; the error itself where that is not known."""
    from ballista_py.errors import MissingExtra

    package, extra = (error.name or "").partition(".")[0], _EXTRAS.get(home.partition(".")[0])
    if extra is None or package in ("", "ballista_py"):
        return error
    return MissingExtra.of(package, extra)


def __dir__() -> list[str]:
    return sorted(__all__)
