"""What a node is told at its start: one YAML file, then the command line, checked field by field.

Strict: what is not exactly a value of its field is refused, in one line that names the field, its place in the file
and the way out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_type_hints

from attrs import Factory, evolve, field, fields, frozen
from attrs.validators import optional

from ballista_py.coordinator.jobs.limits import MAX_OPEN_JOBS
from ballista_py.errors import ConfigError
from ballista_py.node.config_file import GivenValue, given, read_config_file
from ballista_py.node.config_values import check_endpoint, nearest, value_of
from ballista_py.node.http.connections import HttpLimits
from ballista_py.partitions.assignment.assigner import MAX_REPLICAS
from ballista_py.partitions.table import FileFormatName, require_table_name
from ballista_py.scans.cut import TARGET_BYTES
from ballista_py.spark.elsewhere import SparkSettings
from ballista_py.storage.held.cache import DEFAULT_MAX_BYTES
from ballista_py.transport.security.connection_guard import ConnectionLimits
from ballista_py.transport.security.credentials import Role, Tls

NodeRole = Literal["scheduler", "executor", "both"]
EngineName = Literal["duckdb", "polars"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LogFormat = Literal["text", "json"]
_MEMORY = re.compile(r"[0-9]+(\.[0-9]+)? ?(%|[KMGT]i?B|B)", re.IGNORECASE)


def _positive(_instance: object, attribute: Any, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{attribute.name}: {value!r} is not a positive number")


def _some(_instance: object, attribute: Any, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{attribute.name}: {value!r} is not a positive number")


def _not_negative(_instance: object, attribute: Any, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{attribute.name}: {value!r} is negative or no number")


def _replicas(_instance: object, attribute: Any, value: int) -> None:
    if not 1 <= value <= MAX_REPLICAS:
        raise ConfigError(f"{attribute.name}: {value!r} is not a number from 1 to {MAX_REPLICAS}")


def _queue(_instance: object, attribute: Any, value: int) -> None:
    if not 1 <= value <= MAX_OPEN_JOBS:
        raise ConfigError(f"{attribute.name}: {value!r} is not a number from 1 to {MAX_OPEN_JOBS:,}")


def _port(_instance: object, attribute: Any, value: int) -> None:
    if not 0 <= value <= 65535:
        raise ConfigError(f"{attribute.name}: {value!r} is no port; take 1 to 65535, or 0 for any free one")


def _ratio(_instance: object, attribute: Any, value: float) -> None:
    if not 0 <= value <= 1:  # false for what is no number, too
        raise ConfigError(f"{attribute.name}: {value!r} is not a number from 0 to 1")


def _table(_instance: object, attribute: Any, value: str) -> None:
    try:
        require_table_name(value)
    except ConfigError as error:
        raise ConfigError(f"{attribute.name}: {error.message}") from None


def _endpoint(_instance: object, _attribute: Any, value: str) -> None:
    check_endpoint(value)


def _boolean(_instance: object, attribute: Any, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{attribute.name}: {value!r} is neither true nor false")


def _table_name(_instance: object, attribute: Any, value: str) -> None:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", value):
        raise ConfigError(f"{attribute.name}: {value!r} is no name of a table; take small letters, digits and _")


def _memory(_instance: object, attribute: Any, value: str) -> None:
    if not _MEMORY.fullmatch(value):
        raise ConfigError(f"{attribute.name}: {value!r} is no size of memory; write it as 4GB, 512MB or 25%")


@frozen(kw_only=True)
class NodeConfig:
    """One node. Times are milliseconds, sizes bytes; port 0 means any free port.

    In a file and on the command line a time may have a unit: `250ms`, `30s`, `5m`, `1h`.

    `store_options` go to the client of the object store (endpoint, credentials); they are never shown.
    `skew_ms` is how much longer than a lease a node waits before it calls another dead.

    `app` is the application file: what it says of schedulers stands below this configuration, and a scheduler applies
    it; see `docs/guide-app.md`.

    An executor keeps copies of data files from a store elsewhere below `data_dir`, at most `cache_max_bytes` of them,
    and finds them again when it is restarted. With a `cache_format` it keeps them in that one (`vortex` loads
    faster) whatever the store holds. It keeps the rows that DuckDB has loaded there, too, and need not load them again.
    The folder is of one node alone.

    With a `partition_discovery_interval` schedulers look at the sources of tables whose partitions are not known
    beforehand that often, on an embedded Spark; without one nobody does.

    Each partition is held by `replicas` executors, if there are as many: one of them owns it and takes its writes,
    all of them answer legs. What a replica gives is at most `max_replica_lag_ms` old; with 0 it asks the store for news
    before every leg over a table that is written to, and is never older than the query.

    An executor runs its legs on `engine`; schedulers always merge with DuckDB. `memory_limit` is what DuckDB may take
    for partitions and legs (`"4GB"`, or `"25%"` of the machine; default 80 %); what does not fit is spilled, up to
    `max_spill_bytes`, and beyond that the statement fails. The same bound holds for the answers of Spark that
    a scheduler keeps below its `data_dir` until they are read. The Spark of a scheduler is given `spark_conf` and the
    jars of drivers and formats in `spark_jars`, in a file `spark: {conf: {…}, jars: […]}`. It is one of the scheduler's
    process, or that of `spark_master` (`spark://host:port`), or of `spark_remote` (Spark Connect, `sc://host:port`).

    What a scheduler is asked ends after `statement_timeout_ms`, whatever it is doing; without one, only what a client
    limits itself. A scheduler runs `max_running_jobs` jobs at once, and the cluster takes `max_queued_jobs` that wait
    or run; the result of one has at most `max_job_result_bytes` and is kept for `job_result_ttl`; a job ends after
    `job_timeout_ms`, if there is one, and not by `statement_timeout_ms`. No statement makes a node take more than
    `max_merge_bytes` or `memory_limit` and some 500 MB; large answers and processes of the engine, of all clients
    together, have no more than that either, and wait for room. A scheduler at which a statement runs on Spark has a
    JVM beside that, whose heap is `spark_memory_bytes`.

    Clients may make tables of what lies below `lake_locations` (folders, `s3://bucket/prefix`, catalogs by their URI),
    which is scanned where it lies; without any they make none. A task of such a scan reads at most `lake_task_bytes`
    of files, or one row group; what is too little for two tasks a scheduler reads itself.

    With the role "both" one process is two nodes, the scheduler `{node_id}-scheduler` and the executor
    `{node_id}-executor`, with ports, folders and certificates (`{node_id}` in their paths) of their own: the executor
    connects to the scheduler, and has the next `http_port` and `metrics_port`. Both end when one of them does.

    On SIGTERM a node drains for `drain_timeout_ms` at most before it stops: a scheduler begins no statement any
    more and lets those that run finish, an executor hands its partitions over. SIGINT, or a second signal, stops it
    at once.

    With an `otlp_metrics_table` a scheduler takes exports of OpenTelemetry's metrics (OTLP over gRPC) at its port for
    clients, from who may ask it, into that managed table; the first export makes it.

    Nodes prove themselves to each other with the three `node_mtls_…` files; `node_mtls_removed_file` lists the ids
    of nodes that are not let in any more. Clients are shown the same certificate, or that in `flight_tls_…`, and
    asked for a token if there is a `flight_tokens_file` or a `flight_jwt_file`, which says whose signed tokens count.
    At `parts_port` an executor with certificates gives clients the parts of answers for which a scheduler has signed a
    ticket. `secrets_file` holds what executors may ask for by
    the keys that the cluster's definition references. Each port of a node has at most `max_connections`, of which
    `max_connections_per_address` from one address. `http_port` and `metrics_port` change nothing; to whoever reaches
    them they say whether the node is up. With certificates they show the rest to who has a token of the
    `flight_tokens_file` or of the `status_tokens_file`, whose tokens open nothing else, and to nobody without such a
    file; with `open_metrics` everybody sees `/metrics`. Only `allow_insecure_connections` does without certificates.

    With an `otlp_endpoint` (`http://host:4317`) the node sends its metrics there each `otlp_interval_ms`, and the
    traces of the `trace_sample_ratio` of statements, but of those in a trace of a client what that says. `log_format`
    "json" makes each line of the log an object. With a `task_history_table` a scheduler appends what it did to that
    table, which it makes, each `task_history_interval`.
    """

    role: NodeRole
    node_id: str
    state_location: str
    app: str | None = None
    store_options: Mapping[str, Any] = field(factory=dict, repr=False)
    node_bind_address: str = "127.0.0.1"
    node_advertise_address: str = "127.0.0.1"
    flight_port: int = field(default=50051, validator=_port)
    control_port: int = field(default=50052, validator=_port)
    data_port: int = field(default=50053, validator=_port)
    parts_port: int = field(default=50054, validator=_port)
    http_port: int = field(default=8090, validator=_port)
    metrics_port: int = field(default=9090, validator=_port)
    scheduler_address: tuple[str, ...] = ()
    allow_insecure_connections: bool = field(default=False, validator=_boolean)
    node_mtls_ca_certificate_file: str | None = None
    node_mtls_certificate_file: str | None = None
    node_mtls_key_file: str | None = None
    node_mtls_removed_file: str | None = None
    flight_tls_certificate_file: str | None = None
    flight_tls_key_file: str | None = None
    flight_tokens_file: str | None = None
    flight_jwt_file: str | None = None
    status_tokens_file: str | None = None
    open_metrics: bool = field(default=False, validator=_boolean)
    secrets_file: str | None = None
    max_connections: int = field(default=4_000, validator=_positive)
    max_connections_per_address: int = field(default=1_000, validator=_positive)
    max_calls_per_client: int = field(default=128, validator=_positive)
    ttl_ms: float = field(default=30_000, validator=_positive)
    skew_ms: float = field(default=5_000, validator=_positive)
    partition_assignment_interval: float = field(default=30_000, validator=_positive)
    partition_discovery_interval: float | None = field(default=None, validator=optional(_positive))
    partition_discovery_timeout: float = field(default=60_000, validator=_positive)
    max_partition_assignments_per_interval: int = field(default=100, validator=_positive)
    max_partitions_per_executor: int = field(default=1_000, validator=_positive)
    replicas: int = field(default=1, validator=_replicas)
    max_replica_lag_ms: float = field(default=0.0, validator=_not_negative)
    max_merge_bytes: int = field(default=4 << 30, validator=_positive)
    spark_memory_bytes: int = field(default=2 << 30, validator=_positive)
    spark_conf: Mapping[str, str] = field(factory=dict, repr=False)
    spark_jars: tuple[str, ...] = ()
    spark_master: str | None = None
    spark_remote: str | None = field(default=None, repr=False)
    otlp_metrics_table: str | None = field(default=None, validator=optional(_table_name))
    statement_timeout_ms: float | None = field(default=None, validator=optional(_positive))
    lake_locations: tuple[str, ...] = ()
    lake_task_bytes: int = field(default=TARGET_BYTES, validator=_positive)
    max_running_jobs: int = field(default=4, validator=_positive)
    max_queued_jobs: int = field(default=1_000, validator=_queue)
    max_job_result_bytes: int = field(default=16 << 30, validator=_positive)
    job_result_ttl: float = field(default=86_400_000, validator=_positive)
    job_timeout_ms: float | None = field(default=None, validator=optional(_positive))
    capacity: float = field(default=1.0, validator=_positive)
    labels: Mapping[str, str] = Factory(dict)
    engine: EngineName = "duckdb"
    threads: int | None = field(default=None, validator=optional(_some))
    memory_limit: str | None = field(default=None, validator=optional(_memory))
    max_spill_bytes: int = field(default=32 << 30, validator=_positive)
    data_dir: str | None = None
    cache_max_bytes: int = field(default=DEFAULT_MAX_BYTES, validator=_positive)
    cache_format: FileFormatName | None = None
    drain_timeout_ms: float = field(default=25_000, validator=_not_negative)
    log_level: LogLevel = "INFO"
    log_format: LogFormat = "text"
    task_history_table: str | None = field(default=None, validator=optional(_table))
    task_history_interval: float = field(default=10_000, validator=_positive)
    otlp_endpoint: str | None = field(default=None, validator=optional(_endpoint))
    otlp_interval_ms: float = field(default=15_000, validator=_positive)
    trace_sample_ratio: float = field(default=1.0, validator=_ratio)

    def __attrs_post_init__(self) -> None:
        if (
            not self.node_id
            or len(self.node_id) > 128
            or not self.node_id.replace("-", "").replace("_", "").isalnum()
        ):
            raise ConfigError(f"node_id: '{self.node_id}' is not usable; take letters, digits, '-' and '_'")
        if self.role == "executor" and not self.scheduler_address:
            raise ConfigError("scheduler_address: an executor needs the control address of at least one scheduler")
        if self.role == "both":
            self._check_both()
        if self.engine == "polars" and self.memory_limit is not None:
            raise ConfigError("memory_limit: the polars engine holds what it loads in memory and knows no limit")
        missing = [name for name in _MTLS if getattr(self, name) is None]
        if missing and len(missing) < len(_MTLS):
            raise ConfigError(f"{missing[0]}: missing; nodes need the authority, a certificate and its key")
        if missing and not self.allow_insecure_connections:
            raise ConfigError(
                f"{missing[0]}: missing; make certificates with 'ballista-py cluster tls', or pass "
                "--allow-insecure-connections to let nodes and clients speak plain TCP to this one"
            )
        self.spark_settings()  # which says what is wrong
        if (self.flight_tls_certificate_file is None) != (self.flight_tls_key_file is None):
            raise ConfigError("flight_tls_key_file: a certificate needs its key, and a key its certificate")

    def _check_both(self) -> None:
        """Raise `ConfigError` for what two nodes of one process cannot share."""
        shared = [name for name in _MTLS[1:] if NODE_ID not in (getattr(self, name) or NODE_ID)]
        if shared:
            raise ConfigError(
                f"{shared[0]}: the scheduler and the executor of role 'both' prove themselves each by its own: write "
                f"{NODE_ID} in the path, as /tls/nodes/{NODE_ID}/certificate.pem"
            )
        if self.control_port == 0:
            raise ConfigError("control_port: the executor of role 'both' has to know it: take one that is free")

    def of_each(self) -> tuple[NodeConfig, ...]:
        """The configuration of each node of the process: this one, or for the role "both" that of a scheduler, and that
        of an executor which connects to it."""
        if self.role != "both":
            return (self,)
        own = f"{self.node_advertise_address}:{self.control_port}"
        scheduler = self._one_of_both("scheduler", {})
        connects_to = dict.fromkeys((own, *self.scheduler_address))
        ports = {name: getattr(self, name) and getattr(self, name) + 1 for name in ("http_port", "metrics_port")}
        return scheduler, self._one_of_both(
            "executor", {"scheduler_address": tuple(connects_to), "app": None, **ports}
        )

    @property
    def node_role(self) -> Role:
        """What this node is in the cluster."""
        assert self.role != "both", "two nodes: see of_each"
        return self.role

    def _one_of_both(self, role: Role, more: Mapping[str, Any]) -> NodeConfig:
        node_id = f"{self.node_id}-{role}"
        named = {name: getattr(self, name) for name in _MTLS[1:]}
        files = {name: path and path.replace(NODE_ID, node_id) for name, path in named.items()}
        folder = self.data_dir and str(Path(self.data_dir) / role)
        return evolve(self, role=role, node_id=node_id, data_dir=folder, **files, **more)

    def connection_limits(self) -> ConnectionLimits:
        """How many connections each port may have."""
        return ConnectionLimits(connections=self.max_connections, per_address=self.max_connections_per_address)

    def http_limits(self) -> HttpLimits:
        """How many connections each port for HTTP may have."""
        most = HttpLimits()
        return evolve(
            most,
            connections=min(most.connections, self.max_connections),
            connections_per_address=min(most.connections_per_address, self.max_connections_per_address),
        )

    def spark_settings(self) -> SparkSettings:
        """What the Spark of a scheduler is given."""
        conf = self.spark_conf
        if self.spark_master is not None:  # this node is the driver, to which workers connect
            host = {"spark.driver.host": self.node_advertise_address}
            conf = {**host, "spark.driver.bindAddress": self.node_bind_address, **conf}
        given = SparkSettings(conf=conf, jars=self.spark_jars, master=self.spark_master, remote=self.spark_remote)
        return given.on(self.state_location, self.store_options)

    def node_tls(self) -> Tls | None:
        """What nodes prove themselves to each other with; None: they do not."""
        if self.node_mtls_certificate_file is None:
            return None
        return Tls(
            ca_file=self.node_mtls_ca_certificate_file,
            certificate_file=self.node_mtls_certificate_file,
            key_file=self.node_mtls_key_file,
        )

    def flight_tls(self) -> Tls | None:
        """What a scheduler proves itself to clients with; None: it speaks plain TCP to them."""
        if self.flight_tls_certificate_file is None:
            return self.node_tls()
        return Tls(certificate_file=self.flight_tls_certificate_file, key_file=self.flight_tls_key_file)


NODE_ID = "{node_id}"
_MTLS = ("node_mtls_ca_certificate_file", "node_mtls_certificate_file", "node_mtls_key_file")


_SECRET_FIELDS = ("store_options", "spark_conf", "spark_remote")
_OF_SPARK = ("conf", "jars", "master", "remote")


def load_config(path: str | None, overrides: Mapping[str, Any]) -> NodeConfig:
    """The configuration in the YAML file at `path` (if any), with every override that is not None put over it.

    What the application file says stands below both. Raises `ConfigError` naming the file or the field.
    """
    found: dict[str, GivenValue] = dict(read_config_file(path)) if path is not None else {}
    for name, value in overrides.items():
        if value is not None:
            found[name] = _over(found.get(name), given(value))
    shared = _of_application(found["app"]) if "app" in found else {}
    found = _spread({**shared, **found})
    kinds = _kinds()
    for name, one in found.items():
        if name not in kinds:
            raise ConfigError(
                f"{one.place or 'configuration'}: unknown field {name[:60]!a}; {nearest(name, kinds)}"
            )
    values = {name: value_of(name, kinds[name], one, secret=name in _SECRET_FIELDS) for name, one in found.items()}
    if found.get("store_options") is not None and found["store_options"] is shared.get("store_options"):
        values["store_options"] = _with_secrets(values["store_options"], values.get("secrets_file"))
    of_spark = {name: values[name] for name in ("spark_conf", "spark_remote") if values.get(name)}
    if of_spark:
        values |= _with_secrets(of_spark, values.get("secrets_file"))
    for name in ("role", "node_id", "state_location"):
        if not values.get(name):
            raise ConfigError(f"{name}: missing; give --{name.replace('_', '-')} or set it in the YAML file")
    try:
        return NodeConfig(**values)
    except ConfigError as error:
        name, _, rest = error.message.partition(":")
        name = f"spark_{rest.partition(':')[0].strip()}" if name == "spark" else name
        place = found[name].place if name in found else ""
        raise ConfigError(f"{place}: {error.message}" if place else error.message) from None


def _spread(found: Mapping[str, GivenValue]) -> dict[str, GivenValue]:
    """With `spark: {conf, jars, master, remote}` as the fields that these are. Raises `ConfigError` for others."""
    if "spark" not in found:
        return dict(found)
    spark = found["spark"]
    if not isinstance(spark.value, Mapping):
        raise spark.error(
            "spark", "takes a mapping, as {conf: {name: value}, jars: [/path/to.jar], master: spark://host:port}"
        )
    for name, one in spark.value.items():
        if name not in _OF_SPARK:
            raise one.error("spark", f"unknown field {name[:60]!a}; {nearest(name, _OF_SPARK)}")
    others = {name: one for name, one in found.items() if name != "spark"}
    return {**{f"spark_{name}": one for name, one in spark.value.items()}, **others}


def _of_application(file: GivenValue) -> Mapping[str, GivenValue]:
    """What an application file says of schedulers. Raises `ConfigError` for one with mistakes."""
    from ballista_py.node.app_file import read_app_file  # with an engine, which other nodes may do without

    read = read_app_file(value_of("app", str, file))
    read.require()
    return read.options


def _with_secrets(options: Mapping[str, Any], file: str | None) -> dict[str, Any]:
    """Options of the object store, with what they reference. Raises `ConfigError` naming a key, never a value."""
    from ballista_py.node.secrets_file import read_secrets
    from ballista_py.state.documents.secret_references import with_secrets

    return dict(with_secrets(options, {} if file is None else read_secrets(file)))


def _over(earlier: GivenValue | None, later: GivenValue) -> GivenValue:
    """The later value; of names and values those of both, the later ones first."""
    if earlier is None or not (isinstance(earlier.value, Mapping) and isinstance(later.value, Mapping)):
        return later
    return evolve(earlier, value={**earlier.value, **later.value})


@cache
def _kinds() -> Mapping[str, Any]:
    hints = get_type_hints(NodeConfig)
    return {attribute.name: hints[attribute.name] for attribute in fields(NodeConfig)}
