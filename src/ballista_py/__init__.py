"""Distributed SQL over partitioned tables, for clusters whose only shared service is an object store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ballista_py.agents.polars_scan import scan_ballista
    from ballista_py.agents.read_client import GrantSink, ReadClient
    from ballista_py.agents.read_job import ReadJob, ReadPartition, read_job
    from ballista_py.agents.shared_read import SharedRead, SharedReadHandle
    from ballista_py.agents.table_changes import (
        ChangedPartition,
        TableChanges,
        TablePlace,
        changes_between,
        table_place,
    )
    from ballista_py.agents.write_job import WriteJob, WriteReceipt, WriteTask, write_job
    from ballista_py.coordinator.changes.source import ChangeBatch, ChangeSource, SourceLag
    from ballista_py.coordinator.credentials.assumed_role import AssumeRoleCredentials
    from ballista_py.coordinator.credentials.rest_catalog import RestCatalogCredentials
    from ballista_py.coordinator.credentials.vendor import CredentialVendor, StaticCredentials
    from ballista_py.errors import BallistaError
    from ballista_py.node.local.cluster import LocalCluster
    from ballista_py.partitions.assignment.assigner import AssignmentPlan, Executor, PartitionAssigner
    from ballista_py.partitions.assignment.balance import Balance
    from ballista_py.partitions.assignment.plan import Move, Moves
    from ballista_py.partitions.bucket import BucketUDF, bucket
    from ballista_py.partitions.discovery import PartitionDiff, diff_partitions
    from ballista_py.partitions.key import PartitionKey
    from ballista_py.partitions.map import PartitionMap
    from ballista_py.partitions.policies import ColumnMask, Masked, Policies, Rights, RowFilter, TableGrant
    from ballista_py.partitions.refresh import Refresh, Retention
    from ballista_py.partitions.router import PartitionRouter, RoutedBatch
    from ballista_py.partitions.scanned_table import ScannedTable
    from ballista_py.partitions.set_cover import SetCoverSelector
    from ballista_py.partitions.spec import PartitionSpec
    from ballista_py.partitions.sql_view import SqlView
    from ballista_py.partitions.table import TableSpec
    from ballista_py.principal import Principal
    from ballista_py.runtime import Condition, Runtime, SystemRuntime
    from ballista_py.scans.storage_credentials import StorageCredentials
    from ballista_py.scans.task import (
        DeletionVector,
        EqualityDeletes,
        FileSlice,
        PositionDeletes,
        ScanCondition,
        ScanTask,
    )
    from ballista_py.scans.weighted_scheduler import ScanWorker, WeightedScheduler
    from ballista_py.secret import Secret
    from ballista_py.spark.bucket import register_bucket
    from ballista_py.spark.elsewhere import SparkSettings, TaskStore
    from ballista_py.spark.pipeline import SparkPipeline
    from ballista_py.spark.report import MaterializeReport, SkewedPartition, WrittenPartition
    from ballista_py.spark.watermark import Watermark
    from ballista_py.state.documents import fence
    from ballista_py.state.documents.codec import Header
    from ballista_py.state.documents.decisions import SourcePosition
    from ballista_py.state.documents.documents import (
        AdmittedExecutor,
        AppliedApp,
        ClusterDocument,
        FormerName,
        PoliciesMark,
        SchedulerInfo,
    )
    from ballista_py.state.documents.object_state import ObjectState, Retry, Versioned
    from ballista_py.state.documents.policies import PoliciesDocument, PolicyShelf
    from ballista_py.state.members.control import ExecutorInfo, Grant, Heartbeat, HeldPartitions, Refusal
    from ballista_py.state.members.executor_lease import ExecutorLease
    from ballista_py.state.members.executor_registry import AdmissionReport, ExecutorRegistry
    from ballista_py.state.members.membership import Membership
    from ballista_py.state.members.reaper import Reaper, ReapReport
    from ballista_py.state.ownership.partition_store import Commit, PartitionStore
    from ballista_py.state.ownership.reconciler import Reconciler, ReconcileReport
    from ballista_py.state.stores.check import Promise, StoreReport, check_store
    from ballista_py.state.stores.obstore import ObstoreStore
    from ballista_py.state.stores.store import ConditionalStore, ObjectEntry, StoredObject, open_store
    from ballista_py.storage.formats.statistics import ColumnStatistics
    from ballista_py.storage.manifest import AppliedToken, DataFile, ManifestDocument, Prepared, Retired, TokenPage
    from ballista_py.storage.partition_storage import PartitionStorage
    from ballista_py.transport.client.client import Client, connect
    from ballista_py.transport.client.client_answers import QueryResult, QueryStream
    from ballista_py.transport.client.jobs import Job
    from ballista_py.transport.security.credentials import Tls
    from ballista_py.transport.security.jwt_tokens import JwtSettings, JwtTokens
    from ballista_py.transport.security.tokens import StaticTokens, TokenVerifier

__version__ = "0.1.0"

# Loaded at first use, so that `import ballista_py` stays fast and needs no extra.
_HOMES = {
    "coordinator.changes.source": ("ChangeBatch", "ChangeSource", "SourceLag"),
    "coordinator.credentials.vendor": ("CredentialVendor", "StaticCredentials"),
    "coordinator.credentials.assumed_role": ("AssumeRoleCredentials",),
    "coordinator.credentials.rest_catalog": ("RestCatalogCredentials",),
    "errors": ("BallistaError",),
    "node.local.cluster": ("LocalCluster",),
    "partitions.assignment.assigner": ("AssignmentPlan", "Executor", "PartitionAssigner"),
    "partitions.assignment.balance": ("Balance",),
    "partitions.assignment.plan": ("Move", "Moves"),
    "partitions.bucket": ("BucketUDF", "bucket"),
    "partitions.discovery": ("PartitionDiff", "diff_partitions"),
    "partitions.key": ("PartitionKey",),
    "partitions.map": ("PartitionMap",),
    "partitions.policies": ("ColumnMask", "Masked", "Policies", "Rights", "RowFilter", "TableGrant"),
    "partitions.refresh": ("Refresh", "Retention"),
    "partitions.router": ("PartitionRouter", "RoutedBatch"),
    "partitions.set_cover": ("SetCoverSelector",),
    "partitions.spec": ("PartitionSpec",),
    "partitions.scanned_table": ("ScannedTable",),
    "partitions.sql_view": ("SqlView",),
    "partitions.table": ("TableSpec",),
    "principal": ("Principal",),
    "runtime": ("Condition", "Runtime", "SystemRuntime"),
    "scans.task": (
        "DeletionVector",
        "EqualityDeletes",
        "FileSlice",
        "PositionDeletes",
        "ScanCondition",
        "ScanTask",
    ),
    "scans.storage_credentials": ("StorageCredentials",),
    "scans.weighted_scheduler": ("ScanWorker", "WeightedScheduler"),
    "secret": ("Secret",),
    "spark.bucket": ("register_bucket",),
    "spark.elsewhere": ("SparkSettings", "TaskStore"),
    "spark.pipeline": ("SparkPipeline",),
    "spark.report": ("MaterializeReport", "SkewedPartition", "WrittenPartition"),
    "spark.watermark": ("Watermark",),
    "state.documents.codec": ("Header",),
    "state.documents.decisions": ("SourcePosition",),
    "state.documents.documents": (
        "AdmittedExecutor",
        "AppliedApp",
        "ClusterDocument",
        "FormerName",
        "PoliciesMark",
        "SchedulerInfo",
    ),
    "state.documents.object_state": ("ObjectState", "Retry", "Versioned"),
    "state.documents.policies": ("PoliciesDocument", "PolicyShelf"),
    "state.members.control": ("ExecutorInfo", "Grant", "Heartbeat", "HeldPartitions", "Refusal"),
    "state.members.executor_lease": ("ExecutorLease",),
    "state.members.executor_registry": ("AdmissionReport", "ExecutorRegistry"),
    "state.members.membership": ("Membership",),
    "state.members.reaper": ("ReapReport", "Reaper"),
    "state.ownership.partition_store": ("Commit", "PartitionStore"),
    "state.ownership.reconciler": ("ReconcileReport", "Reconciler"),
    "state.stores.check": ("Promise", "StoreReport", "check_store"),
    "state.stores.obstore": ("ObstoreStore",),
    "state.stores.store": ("ConditionalStore", "ObjectEntry", "StoredObject", "open_store"),
    "storage.formats.statistics": ("ColumnStatistics",),
    "storage.manifest": (
        "AppliedToken",
        "DataFile",
        "ManifestDocument",
        "OriginalFile",
        "Prepared",
        "Retired",
        "TokenPage",
    ),
    "storage.partition_storage": ("PartitionStorage",),
    "transport.client.client": ("Client", "connect"),
    "transport.client.client_answers": ("QueryResult", "QueryStream"),
    "transport.client.jobs": ("Job",),
    "transport.security.credentials": ("Tls",),
    "transport.security.jwt_tokens": ("JwtSettings", "JwtTokens"),
    "transport.security.tokens": ("StaticTokens", "TokenVerifier"),
    "agents.polars_scan": ("scan_ballista",),
    "agents.read_client": ("GrantSink", "ReadClient"),
    "agents.read_job": ("ReadJob", "ReadPartition", "read_job"),
    "agents.shared_read": ("SharedRead", "SharedReadHandle"),
    "agents.table_changes": ("ChangedPartition", "TableChanges", "TablePlace", "changes_between", "table_place"),
    "agents.write_job": ("WriteJob", "WriteReceipt", "WriteTask", "write_job"),
}
_MODULES = {"fence": "state.documents.fence"}
# What the modules of a folder need beyond the package's own dependencies.
_EXTRAS = {"node": "node", "spark": "spark"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names} | _MODULES

__all__ = [
    "AdmissionReport",
    "AdmittedExecutor",
    "AppliedApp",
    "AppliedToken",
    "AssignmentPlan",
    "AssumeRoleCredentials",
    "Balance",
    "BallistaError",
    "BucketUDF",
    "ChangeBatch",
    "ChangeSource",
    "ChangedPartition",
    "Client",
    "ClusterDocument",
    "ColumnMask",
    "ColumnStatistics",
    "Commit",
    "Condition",
    "ConditionalStore",
    "CredentialVendor",
    "DataFile",
    "DeletionVector",
    "EqualityDeletes",
    "Executor",
    "ExecutorInfo",
    "ExecutorLease",
    "ExecutorRegistry",
    "FileSlice",
    "FormerName",
    "Grant",
    "GrantSink",
    "Header",
    "Heartbeat",
    "HeldPartitions",
    "Job",
    "JwtSettings",
    "JwtTokens",
    "LocalCluster",
    "ManifestDocument",
    "Masked",
    "MaterializeReport",
    "Membership",
    "Move",
    "Moves",
    "ObjectEntry",
    "ObjectState",
    "ObstoreStore",
    "OriginalFile",
    "PartitionAssigner",
    "PartitionDiff",
    "PartitionKey",
    "PartitionMap",
    "PartitionRouter",
    "PartitionSpec",
    "PartitionStorage",
    "PartitionStore",
    "Policies",
    "PoliciesDocument",
    "PoliciesMark",
    "PolicyShelf",
    "PositionDeletes",
    "Prepared",
    "Principal",
    "Promise",
    "QueryResult",
    "QueryStream",
    "ReadClient",
    "ReadJob",
    "ReadPartition",
    "ReapReport",
    "Reaper",
    "ReconcileReport",
    "Reconciler",
    "Refresh",
    "Refusal",
    "RestCatalogCredentials",
    "Retention",
    "Retired",
    "Retry",
    "Rights",
    "RoutedBatch",
    "RowFilter",
    "Runtime",
    "ScanCondition",
    "ScanTask",
    "ScanWorker",
    "ScannedTable",
    "SchedulerInfo",
    "Secret",
    "SetCoverSelector",
    "SharedRead",
    "SharedReadHandle",
    "SkewedPartition",
    "SourceLag",
    "SourcePosition",
    "SparkPipeline",
    "SparkSettings",
    "SqlView",
    "StaticCredentials",
    "StaticTokens",
    "StorageCredentials",
    "StoreReport",
    "StoredObject",
    "SystemRuntime",
    "TableChanges",
    "TableGrant",
    "TablePlace",
    "TableSpec",
    "TaskStore",
    "Tls",
    "TokenPage",
    "TokenVerifier",
    "Versioned",
    "Watermark",
    "WeightedScheduler",
    "WriteJob",
    "WriteReceipt",
    "WriteTask",
    "WrittenPartition",
    "bucket",
    "changes_between",
    "check_store",
    "connect",
    "diff_partitions",
    "fence",
    "open_store",
    "read_job",
    "register_bucket",
    "scan_ballista",
    "table_place",
    "write_job",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'ballista_py' has no attribute '{name}'")
    try:
        module = import_module(f"ballista_py.{home}")
        return module if name in _MODULES else getattr(module, name)
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
