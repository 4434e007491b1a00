"""The words of `ballista-py node`, read without the framework of the command line.

A node runs for months, and what it imported stays in its memory: the framework, with what it checks values by, is
10 MB that no node needs once it runs. Words that are not plainly right are left to it, since it says what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, get_origin, get_type_hints

from attrs import frozen

from ballista_py.errors import ConfigError
from ballista_py.node.cli.store_words import store_options
from ballista_py.node.config import NodeConfig, load_config

_COMPLETION = "_BALLISTA_PY_COMPLETE"
AND = "--and"  # between the words of several nodes of one process
OPTIONS = {
    "role": "scheduler, executor, or both in one process",
    "node_id": "unique in the cluster; kept over restarts",
    "state_location": "URL of the cluster's documents",
    "store_option": "name=value of the store's client, as region=eu-west-1; '@NAME' reads a variable; may be repeated",
    "config": "a YAML file with any of these fields",
    "app": "a YAML file for the whole cluster: its datasets, and what its schedulers share",
    "node_bind_address": "interface to listen on",
    "node_advertise_address": "host that the others connect to",
    "flight_port": "scheduler: port for clients",
    "control_port": "scheduler: port for executors",
    "data_port": "executor: port for legs",
    "parts_port": "executor with certificates: port at which clients fetch parts of answers",
    "http_port": "port for health and status",
    "metrics_port": "port for Prometheus",
    "scheduler_address": "executor: control address of a scheduler; may be repeated",
    "ttl_ms": "length of a lease; times are milliseconds, or as 30s, 5m, 1h",
    "skew_ms": "waited beyond a lease before a node counts as dead",
    "partition_assignment_interval": "between assignment cycles",
    "partition_discovery_interval": "scheduler: between looks at sources for new partitions; default: never",
    "partition_discovery_timeout": "how long such a look may take",
    "max_partition_assignments_per_interval": "moves a cycle",
    "max_partitions_per_executor": "cap of each executor",
    "replicas": "executors that hold each partition",
    "max_replica_lag_ms": "scheduler: how old what replicas give may be; 0: no older than the query",
    "max_merge_bytes": "memory of merges at a scheduler",
    "spark_memory_bytes": "scheduler: heap of the JVM that runs what is run on Spark",
    "spark_jars": "scheduler: jars of drivers and formats for Spark; may be repeated",
    "spark_master": "scheduler: a standalone Spark, as spark://host:port, instead of one of its own",
    "lake_locations": "scheduler: folder, bucket or catalog that clients may make scanned tables of; may be repeated",
    "lake_task_bytes": "scheduler: how much of its files one task of a scan reads at most",
    "otlp_metrics_table": "scheduler: take OpenTelemetry's metrics at the port for clients, into this table",
    "statement_timeout_ms": "scheduler: how long a statement may take; default: as long as its client waits",
    "max_running_jobs": "scheduler: jobs at once",
    "max_queued_jobs": "scheduler: jobs that wait or run, in the cluster; beyond, clients are told to try later",
    "max_job_result_bytes": "scheduler: of the result of one job",
    "job_result_ttl": "scheduler: how long the result of a job is kept",
    "job_timeout_ms": "scheduler: how long a job may take; default: as long as it takes",
    "capacity": "executor: its share of the load, relative",
    "engine": "executor: what runs its legs, duckdb or polars",
    "threads": "threads of the SQL engine",
    "memory_limit": "memory of the SQL engine, as '4GB' or '25%'",
    "max_spill_bytes": "disk that the SQL engine may spill to",
    "data_dir": "folder of this node alone, for caches, rows that it keeps, and spilling",
    "cache_max_bytes": "executor: copies of data files at most",
    "cache_format": "executor: keep copies as parquet or vortex; default: as they are stored",
    "drain_timeout_ms": "how long the node may take to hand over after SIGTERM, before it stops",
    "log_level": "DEBUG, INFO, WARNING or ERROR",
    "log_format": "text or json",
    "task_history_table": "scheduler: table to which it appends what it did; default: none",
    "task_history_interval": "between appending",
    "otlp_endpoint": "collector for metrics and traces (OTLP over gRPC), as http://host:4317",
    "otlp_interval_ms": "between sending metrics and traces",
    "trace_sample_ratio": "which share of statements is traced, 0 to 1",
    "node_mtls_ca_certificate_file": "PEM: the authority of this cluster's nodes",
    "node_mtls_certificate_file": "PEM: this node's certificate",
    "node_mtls_key_file": "PEM: the key of that certificate",
    "node_mtls_removed_file": "ids of nodes that are not let in any more, one a line",
    "flight_tls_certificate_file": "scheduler, PEM: shown to clients instead of the node's certificate",
    "flight_tls_key_file": "PEM: the key of that certificate",
    "flight_tokens_file": "scheduler: clients and their tokens, one pair a line",
    "flight_jwt_file": "scheduler, YAML: issuer, audience and jwks_url of the provider whose tokens clients may show",
    "status_tokens_file": "who may look at the HTTP ports and no more: names and tokens, one pair a line",
    "open_metrics": "show /metrics to everybody who reaches its port",
    "secrets_file": "scheduler: keys and values that executors may ask for, one pair a line",
    "max_connections": "of each port but those for HTTP",
    "max_connections_per_address": "of each port but those for HTTP",
    "max_calls_per_client": "scheduler: at once, of one client",
    "allow_insecure_connections": "speak plain TCP where there is no TLS",
}


@frozen
class NodeCall:
    """A node that was asked for: its configuration, and the process without which it ends."""

    config: NodeConfig
    parent_pid: int | None


def read_plainly(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> NodeCall | None:
    """The node that these words of a command line ask for; None for another command, for help, and for what is wrong.

    >>> read_plainly(["sql", "select 1"]), read_plainly(["node", "--no-such-option", "1"])
    (None, None)
    """
    if words[:1] != ["node"] or _COMPLETION in environment:
        return None
    given = _given(words[1:])
    if given is None:
        return None
    parent = given.pop("parent_pid", None)
    if parent is not None and not (parent.isascii() and parent.isdecimal()):
        return None
    try:
        config = config_of(given.pop("config", None), given.pop("store_option", None), given)
    except ConfigError:
        return None
    return NodeCall(config, None if parent is None else int(parent))


def of_several(words: Sequence[str]) -> list[list[str]]:
    """The words of each node, of those of a command line that may name several for one process.

    >>> of_several(["node", "--role", "scheduler", "--and", "--role", "executor"])
    [['node', '--role', 'scheduler'], ['node', '--role', 'executor']]
    """
    first, *others = [[*group] for is_and, group in groupby(words, AND.__eq__) if not is_and] or [[]]
    return [first, *(["node", *one] for one in others)]


def config_of(config: str | None, store_option: Sequence[str] | None, fields: Mapping[str, Any]) -> NodeConfig:
    """The configuration by a file and by options, which go before it.

    Raises `ConfigError`; what is wrong with an option is said in the word by which it was given.
    """
    given = {name: value for name, value in fields.items() if value not in (None, [])}
    if store_option:
        given["store_options"] = store_options(store_option)
    try:
        return load_config(config, given)
    except ConfigError as error:
        raise ConfigError(_as_typed(error.message, given), **error.details) from None


def field_types() -> dict[str, Any]:
    """The fields of a node's configuration with their types, and `store_option`, which may be repeated."""
    return {**get_type_hints(NodeConfig), "store_option": tuple[str, ...]}


def value_type(hint: Any) -> Any:
    """What the option of a field takes: text, which is checked with all of the configuration, or nothing at all."""
    if get_origin(hint) is tuple:
        return list[str]
    return bool if hint is bool else str


def flag(name: str) -> str:
    """
    >>> flag("ttl_ms")
    '--ttl-ms'
    """
    return f"--{name.replace('_', '-')}"


def _given(words: Sequence[str]) -> dict[str, Any] | None:
    """The values of options by their fields' names; None if a word is not plainly one of them."""
    hints = field_types()
    kinds = {flag(name): (name, value_type(hints.get(name, str))) for name in (*OPTIONS, "parent_pid")}
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        typed, separator, value = word.partition("=")
        if typed not in kinds:
            return None
        name, kind = kinds[typed]
        if kind is bool:
            if separator:
                return None
            given[name] = True
            continue
        if not separator:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        if kind is str:
            given[name] = value
        else:
            given.setdefault(name, []).append(value)
    return given


def _as_typed(message: str, given: Collection[str]) -> str:
    """What is wrong with a field, in the word by which it was given if that was an option.

    >>> _as_typed("http_port: 'x' is no whole number", ["http_port"])
    "--http-port: 'x' is no whole number"
    """
    name = message.partition(":")[0]
    return f"{flag(name)}{message[len(name) :]}" if name in given else message
