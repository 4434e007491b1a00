"""Distributed SQL over partitioned tables, for clusters whose only shared service is an object store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ballista_py.errors import BallistaError
    from ballista_py.node.local.cluster import LocalCluster
    from ballista_py.partitions.assignment.assigner import AssignmentPlan, Executor, PartitionAssigner
    from ballista_py.partitions.bucket import BucketUDF, bucket
    from ballista_py.partitions.discovery import PartitionDiff, diff_partitions
    from ballista_py.partitions.map import PartitionMap
    from ballista_py.partitions.router import PartitionRouter
    from ballista_py.partitions.set_cover import SetCoverSelector
    from ballista_py.partitions.spec import PartitionSpec
    from ballista_py.partitions.table import TableSpec
    from ballista_py.runtime import Runtime, SystemRuntime
    from ballista_py.secret import Secret
    from ballista_py.spark.pipeline import SparkPipeline
    from ballista_py.spark.watermark import Watermark
    from ballista_py.state.documents.documents import ClusterDocument, SchedulerInfo
    from ballista_py.state.documents.object_state import ObjectState, Retry, Versioned
    from ballista_py.state.members.executor_lease import ExecutorLease
    from ballista_py.state.members.executor_registry import ExecutorRegistry
    from ballista_py.state.members.membership import Membership
    from ballista_py.state.members.reaper import Reaper
    from ballista_py.state.ownership.partition_store import PartitionStore
    from ballista_py.state.ownership.reconciler import Reconciler
    from ballista_py.state.stores.check import StoreReport, check_store
    from ballista_py.state.stores.obstore import ObstoreStore
    from ballista_py.state.stores.store import ConditionalStore, ObjectEntry, StoredObject, open_store
    from ballista_py.storage.partition_storage import PartitionStorage
    from ballista_py.transport.client.client import Client, connect
    from ballista_py.transport.security.credentials import Tls
    from ballista_py.transport.security.tokens import TokenVerifier

__version__ = "0.1.0"

# Loaded at first use, so that `import ballista_py` stays fast and needs no extra.
_HOMES = {
    "errors": ("BallistaError",),
    "node.local.cluster": ("LocalCluster",),
    "partitions.assignment.assigner": ("AssignmentPlan", "Executor", "PartitionAssigner"),
    "partitions.bucket": ("BucketUDF", "bucket"),
    "partitions.discovery": ("PartitionDiff", "diff_partitions"),
    "partitions.map": ("PartitionMap",),
    "partitions.spec": ("PartitionSpec",),
    "partitions.router": ("PartitionRouter",),
    "partitions.set_cover": ("SetCoverSelector",),
    "partitions.table": ("TableSpec",),
    "runtime": ("Runtime", "SystemRuntime"),
    "spark.pipeline": ("SparkPipeline",),
    "spark.watermark": ("Watermark",),
    "state.stores.check": ("StoreReport", "check_store"),
    "state.documents.documents": ("ClusterDocument", "SchedulerInfo"),
    "state.members.executor_lease": ("ExecutorLease",),
    "state.members.executor_registry": ("ExecutorRegistry",),
    "state.members.membership": ("Membership",),
    "state.documents.object_state": ("ObjectState", "Retry", "Versioned"),
    "state.stores.obstore": ("ObstoreStore",),
    "state.ownership.partition_store": ("PartitionStore",),
    "state.members.reaper": ("Reaper",),
    "state.ownership.reconciler": ("Reconciler",),
    "state.stores.store": ("ConditionalStore", "ObjectEntry", "StoredObject", "open_store"),
    "storage.partition_storage": ("PartitionStorage",),
    "secret": ("Secret",),
    "transport.client.client": ("Client", "connect"),
    "transport.security.credentials": ("Tls",),
    "transport.security.tokens": ("TokenVerifier",),
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
