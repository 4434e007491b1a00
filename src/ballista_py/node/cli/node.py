"""The command line's `node`: the fields of `NodeConfig` are its options."""

from __future__ import annotations

from collections.abc import Collection
from inspect import Parameter, Signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from attrs import fields_dict

from ballista_py.errors import ConfigError
from ballista_py.node.cli.choices import command_group
from ballista_py.node.cli.store_options import store_options
from ballista_py.node.config import NodeConfig, load_config
from ballista_py.node.config_values import is_duration

OPTIONS = {
    "role": "scheduler or executor",
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
    "data_dir": "folder for caches and spilling",
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
    "status_tokens_file": "who may look at the HTTP ports and no more: names and tokens, one pair a line",
    "open_metrics": "show /metrics to everybody who reaches its port",
    "secrets_file": "scheduler: keys and values that executors may ask for, one pair a line",
    "max_connections": "of each port but those for HTTP",
    "max_connections_per_address": "of each port but those for HTTP",
    "max_calls_per_client": "scheduler: at once, of one client",
    "allow_insecure_connections": "speak plain TCP where there is no TLS",
}


def node(config: str | None, parent_pid: int | None, store_option: list[str] | None, **fields: Any) -> None:
    """Run one node until it is told to stop: SIGTERM hands over first, Ctrl-C stops at once."""
    from ballista_py.node.process import run_node

    given = {name: value for name, value in fields.items() if value not in (None, [])}
    if store_option:
        given["store_options"] = store_options(store_option)
    try:
        read = load_config(config, given)
    except ConfigError as error:
        raise ConfigError(_as_typed(error.message, given), **error.details) from None
    run_node(read, parent_pid=parent_pid)


def _as_typed(message: str, given: Collection[str]) -> str:
    """What is wrong with a field, in the word by which it was given if that was an option.

    >>> _as_typed("http_port: 'x' is no whole number", ["http_port"])
    "--http-port: 'x' is no whole number"
    """
    name = message.partition(":")[0]
    return f"{_flag(name)}{message[len(name) :]}" if name in given else message


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _value_type(hint: Any) -> Any:
    """What the option of a field takes: text, which is checked with all of the configuration, or nothing at all."""
    if get_origin(hint) is tuple:
        return list[str]
    return bool if hint is bool else str


def _shown_type(name: str, hint: Any) -> str:
    kinds = (hint, *get_args(hint))
    if float in kinds and is_duration(name):
        return "DURATION"
    return "INTEGER" if int in kinds else "NUMBER" if float in kinds else "TEXT"


def _parameters() -> list[Parameter]:
    hints = {**get_type_hints(NodeConfig), "store_option": tuple[str, ...]}
    options = {name: _option(name, hints.get(name), text) for name, text in OPTIONS.items()}
    options["parent_pid"] = Annotated[int | None, typer.Option(hidden=True)]
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in options.items()
    ]


def _option(name: str, hint: Any, text: str) -> Any:
    kind = _value_type(hint)
    if kind is bool:  # is named, or it would get a `--no-` too
        return Annotated[bool | None, typer.Option(_flag(name), help=text)]
    shown = _default(name)
    said = f"{text}; default: {shown}" if shown else text
    return Annotated[kind | None, typer.Option(help=said, metavar=_shown_type(name, hint))]


def _default(name: str) -> str:
    """What a field is without its option, as one would type it; nothing where the text of the option says it.

    >>> _default("ttl_ms"), _default("http_port"), _default("app")
    ('30s', '8090', '')
    """
    known = fields_dict(NodeConfig).get(name)
    default = None if known is None else known.default
    if isinstance(default, bool) or not isinstance(default, str | int | float):
        return ""
    if isinstance(default, str) or not is_duration(name):
        return f"{default:g}" if isinstance(default, float) else str(default)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if default and default % size == 0:
            return f"{default / size:g}{unit}"
    return f"{default:g}ms" if default else "0"


node.__signature__ = Signature(_parameters())  # type: ignore[attr-defined]  # what typer makes the options of
node_app = command_group(str(node.__doc__), no_args_is_help=False)
node_app.command()(node)
