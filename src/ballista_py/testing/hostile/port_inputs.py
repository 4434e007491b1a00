"""What `port_fuzz` sends: valid requests of every kind, spoilt. Every input is a function of its seed."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import orjson
from attrs import frozen

from ballista_py.runtime import seeded_chance
from ballista_py.transport.control.grpc import CONTROL_METHODS
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.flight_sql.messages import message, pack

FLIGHT_METHODS = ("GetFlightInfo", "GetSchema", "DoGet", "DoPut", "DoExchange", "DoAction", "Handshake")
_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_HANDLE = orjson.dumps({"query": "select $1 as c", "dialect": None, "part": None, "run_id": None}) + b"\n"
_FLIGHT_SQL = (
    pack(message("CommandStatementQuery", query="select count(*) from kept where id = 7")),
    pack(message("CommandStatementUpdate", query="delete from kept where id = -1")),
    pack(message("CommandPreparedStatementQuery", prepared_statement_handle=_HANDLE)),
    pack(message("CommandPreparedStatementUpdate", prepared_statement_handle=_HANDLE)),
    pack(message("TicketStatementQuery", statement_handle=_HANDLE)),
    pack(message("CommandGetTables", catalog="c", table_name_filter_pattern="%_", table_types=["TABLE"])),
    pack(message("CommandGetDbSchemas", catalog="c", db_schema_filter_pattern="m%")),
    pack(message("CommandGetSqlInfo", info=[1, 2, 500])),
    pack(message("CommandGetPrimaryKeys", table="kept")),
    pack(message("CommandStatementIngest", table="kept", schema="main")),
)
_ACTIONS = (
    ("CreatePreparedStatement", pack(message("ActionCreatePreparedStatementRequest", query="select ?"))),
    ("ClosePreparedStatement", pack(message("ActionClosePreparedStatementRequest", prepared_statement_handle=_HANDLE))),
    ("CancelFlightInfo", message("CancelFlightInfoRequest", info=b"x").SerializeToString()),
    ("BeginTransaction", pack(message("ActionBeginTransactionRequest"))),
)  # fmt: skip
_LEG_TABLE = {"table": "kept", "revision": 1, "partitions": [0], "epochs": [1], "sequence": 1, "definition": 0}
_OWN: tuple[Mapping[str, Any], ...] = (
    {"kind": "sql", "query": "select 1 as a", "dialect": None, "engine": None, "time_limit_ms": 5_000},
    {"kind": "execute", "query": "delete from kept where id = -1", "dialect": "duckdb", "token": "a", "made": True,
     "atomic": False},
    {"kind": "ingest", "table": "kept", "mode": "append", "token": "b", "made": False, "atomic": True},
    {"kind": "create_table", "table": "made", "token": "m", "partition_by": ["bucket(2, id)", {"k": "id"}],
     "distribution": "partitioned", "colocate_with": None, "primary_key": ["id"], "checks": ["id > 0"],
     "file_format": "parquet"},
    {"kind": "leg", "task": "t", "leg": {"sql": "select 1 as a", "tables": [_LEG_TABLE], "partitions": [0]}},
    {"kind": "base", "target": {**_LEG_TABLE, "incarnation": "i", "token": "c"}, "where": "id = 1", "alias": "k"},
    {"kind": "write", "target": {**_LEG_TABLE, "incarnation": "i", "token": "d", "remove": {"0": ["f"]}}},
    {"kind": "apply", "target": {**_LEG_TABLE, "incarnation": "i", "token": "f", "attempt": "a"}},
    {"kind": "rewrite", "target": {**_LEG_TABLE, "incarnation": "i", "token": "e"}, "change": {"where": "true"}},
    {"kind": "settle", "table": "kept", "attempts": {"0": "x"}},
    {"kind": "reload", "table": "kept"},
    {"kind": "job_rows", "job_id": "67e5504410b1426f9247bb680e5fe0c8", "chunk": 0},
)  # fmt: skip
_OWN_ACTIONS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("explain", {"query": "select 1", "dialect": None, "engine": None}),
    ("members", {}),
    ("tables", {"names": ["kept"]}),
    ("refresh", {"table": "kept"}),
    ("tasks", {"limit": 3}),
    ("reconcile_all", {}),
    (
        "submit_job",
        {"query": "select 1", "job_id": "67e5504410b1426f9247bb680e5fe0c8", "priority": 5, "name": "n"},
    ),
    ("job", {"job_id": "67e5504410b1426f9247bb680e5fe0c8", "wait_ms": 1.0, "state": "PENDING"}),
    ("jobs", {"state": "FAILED"}),
    ("cancel_job", {"job_id": "67e5504410b1426f9247bb680e5fe0c8"}),
    ("close_job", {"job_id": "67e5504410b1426f9247bb680e5fe0c8"}),
    ("cancel", {"task": "0f3a"}),
)
_NUMBERS = (b"0", b"-1", b"1e999", b"-0.0", b"9" * 40, b"18446744073709551616", b"1.5", b"2147483648", b"1E-400")
_VALUES: tuple[bytes, ...] = (
    *_NUMBERS, b"null", b"true", b"{}", b"[]", b'""', b'"\\ud800"', b'"\\u0000"', b'"' + b"x" * 70_000 + b'"',
    b"[" * 3_000 + b"]" * 3_000, b'{"a":' * 900 + b"1" + b"}" * 900, b'"\xff\xfe"', b"NaN", b"'a'",
    b'"../../../etc/passwd"', b'"\xe2\x80\xae\xf0\x9f\x92\xa5"', b'{"":"","":""}', b"[null,1,\"a\",{}]",
)  # fmt: skip
_HTTP = (
    b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /ready HTTP/1.0\r\n\r\n", b"GET /status HTTP/1.1\r\n\r\n",
    b"GET /tasks?limit=3 HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer abcdefghijklmnop\r\nAccept-Encoding: gzip\r\n\r\n",
    b"POST /status HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"HEAD /tasks HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /tasks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET http://127.0.0.1/health HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nUpgrade: h2c\r\n\r\n",
)  # fmt: skip
_HTTP_PIECES = (
    b"\r\n", b"\n", b"\x00", b"\r", b" ", b":", b"HTTP/9.9", b"%00", b"/../..", b"//", b"X" * 9_000, b"A: b\r\n" * 300,
    b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"\xff",
    b"Authorization: Bearer \xff\r\n", b"Authorization: Basic YTpi\r\n", b"Range: bytes=0-\r\n",
    b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"?a=%zz&b",
    b"Expect: 100-continue\r\n", b" folded: yes\r\n",
)  # fmt: skip
_CONFIG = (
    "role: scheduler\nnode-id: s1\nstate_location: memory://x\nallow_insecure_connections: true\nttl_ms: 30s\n"
    "labels: {zone: a}\nflight-port: 0\nlog_level: info\n",
    "role: executor\nnode-id: e1\nstate_location: s3://b/p\nmemory_limit: 2GB\nthreads: 2\nengine: polars\n"
    "node_mtls_ca_certificate_file: ca.pem\nnode_mtls_certificate_file: n.pem\nnode_mtls_key_file: n.key\n",
)
_LINES = ("alice 0123456789abcdef\nbob fedcba9876543210\n# a remark\n", "key: value\nother: thing\n")
_TEXT_PIECES = (
    "[" * 5_000, "{" * 900, "&a", "*a", "!!python/object/apply:os.system ['id']", "\t", "\x00", "no", "yes", "~",
    "1e400", "0x1F", "12:30:45", "-", "? ", "|\n", ">\n", "'", '"', "\u2028", "\ufeff", "\r", "x" * 100_000, "<<: *a",
    "%YAML 1.2", "---\n", "...\n", "🧨", "5m", "-1", "99999999999999999999", "null", "true", "2GB", "LOUD", "file:///etc/passwd",
)  # fmt: skip


@frozen
class Input:
    """One thing to send: to which `door`, to which `method` or verb of it, and which bytes."""

    door: str
    method: str
    data: bytes


def input_of(door: str, seed: int) -> Input:
    """The input of one case: a valid one of that door's kind, spoilt in one place or in a few; now and then none is.

    >>> input_of("http", 7) == input_of("http", 7)
    True
    """
    return _MAKERS[door](seeded_chance(seed))


def _http(door: str) -> Callable[[Any], Input]:
    def make(chance: Any) -> Input:
        data = _pick(_HTTP, chance)
        for _ in range(chance.randrange(4)):
            data = _spliced(data, _pick(_HTTP_PIECES, chance), chance)
        return Input(door, "", _damaged(data, chance) if chance.random() < 0.4 else data)

    return make


def _protobuf(chance: Any) -> Input:
    if chance.random() < 0.1:
        return Input("flight", _EXPORT, _damaged(_export(), chance))
    method = _pick(FLIGHT_METHODS, chance)
    if method == "DoAction":
        name, body = _pick(_ACTIONS, chance)
        return Input("flight", f"{method} {name}", _damaged(body, chance))
    command = _pick(_FLIGHT_SQL, chance)
    other = _pick(_FLIGHT_SQL, chance)
    data = command + other if chance.random() < 0.1 else command
    return Input("flight", method, _damaged(data, chance) if chance.random() < 0.9 else data)


@cache
def _export() -> bytes:
    """Metrics of OpenTelemetry, of each kind."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    made = ExportMetricsServiceRequest()
    resource = made.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "fuzz"
    metrics = resource.scope_metrics.add().metrics
    metrics.add(name="g").gauge.data_points.add(time_unix_nano=1, as_int=7).attributes.add(
        key="a"
    ).value.int_value = 1
    metrics.add(name="s").sum.data_points.add(time_unix_nano=1, as_double=0.5)
    metrics.add(name="h").histogram.data_points.add(time_unix_nano=1, explicit_bounds=[1], bucket_counts=[1, 2])
    metrics.add(name="e").exponential_histogram.data_points.add(time_unix_nano=1).positive.bucket_counts.extend(
        [1, 2]
    )
    metrics.add(name="q").summary.data_points.add(time_unix_nano=1).quantile_values.add(quantile=0.5, value=1)
    return bytes(made.SerializeToString())


def _json(door: str) -> Callable[[Any], Input]:
    def make(chance: Any) -> Input:
        if chance.random() < 0.3:
            name, body = _pick(_OWN_ACTIONS, chance)
            return Input(door, f"DoAction {name}", _spoilt_json(body, chance))
        return Input(door, "DoExchange", _spoilt_json(_pick(_OWN, chance), chance))

    return make


def _control(chance: Any) -> Input:
    method = _pick(CONTROL_METHODS, chance)
    request = getattr(pb, method.input_type.name)()
    if method.name == "ControlStream":
        beat = request.heartbeat
        beat.sequence, beat.admitted = 1, True
        info = beat.executor
        info.executor_id, info.instance_id, info.data_address = "fuzz", "i", "127.0.0.1:1"
        info.capacity = _pick((1.0, float("nan"), float("inf"), -1.0, 1e308), chance)
        held = beat.held.add(table="kept", revision=chance.randrange(3))
        held.active.append(_pick((0, 1, 1 << 31), chance))
        held.epochs.append(_pick((0, 1, (1 << 64) - 1), chance))
        held.failed[0] = "x"
    else:
        for field in method.input_type.fields:
            value = {"string": "fuzz"}.get(_type_of(field), _pick((0, 1, 1 << 31), chance))
            setattr(request, field.name, value)
    data = request.SerializeToString()
    return Input("control", method.name, _damaged(data, chance) if chance.random() < 0.8 else data)


def _type_of(field: Any) -> str:
    return "string" if field.type == field.TYPE_STRING else "number"


def _text(door: str, templates: tuple[str, ...]) -> Callable[[Any], Input]:
    def make(chance: Any) -> Input:
        data = _pick(templates, chance).encode()
        for _ in range(1 + chance.randrange(3)):
            data = _spliced(data, _pick(_TEXT_PIECES, chance).encode(), chance)
        return Input(door, "", _damaged(data, chance) if chance.random() < 0.3 else data)

    return make


def _spoilt_json(value: Mapping[str, Any], chance: Any) -> bytes:
    """The object as JSON with something else in place of one value of it, at any depth; or its bytes damaged."""
    marks = list(_places(value))
    text = orjson.dumps(value)
    if chance.random() < 0.15 or not marks:
        return _damaged(text, chance)
    spoilt = orjson.loads(text)
    place = _pick(marks, chance)
    mark = "".join(_pick(string.ascii_letters, chance) for _ in range(20))
    inside = spoilt
    for step in place[:-1]:
        inside = inside[step]
    if chance.random() < 0.1:
        del inside[place[-1]]
        return orjson.dumps(spoilt)
    inside[place[-1]] = mark
    return orjson.dumps(spoilt).replace(b'"' + mark.encode() + b'"', _pick(_VALUES, chance))


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for step, inside in items:
        yield (*way, step)
        yield from _places(inside, (*way, step))


def _spliced(data: bytes, piece: bytes, chance: Any) -> bytes:
    at = chance.randrange(len(data) + 1)
    gone = chance.randrange(min(20, len(data) - at) + 1) if chance.random() < 0.5 else 0
    return data[:at] + piece + data[at + gone :]


def _damaged(data: bytes, chance: Any) -> bytes:
    """Some bytes replaced, put in, taken out or doubled; or cut short."""
    out = bytearray(data)
    for _ in range(1 + chance.randrange(4)):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            out[at:at] = _pick((b"\x00", b"\xff" * 10, b"\x80" * 9 + b"\x01", b"\x0a\xff\xff\xff\x0f"), chance)
        elif kind == 2:
            del out[at : at + 1 + chance.randrange(8)]
        elif kind == 3:
            out[at:at] = out[at : at + 1 + chance.randrange(64)]
        else:
            del out[at:]
    return bytes(out)


def _pick(choices: Any, chance: Any) -> Any:
    return choices[chance.randrange(len(choices))]


_MAKERS: dict[str, Callable[[Any], Input]] = {
    "http": _http("http"),
    "metrics": _http("metrics"),
    "flight": _protobuf,
    "json": _json("json"),
    "owner": _json("owner"),
    "control": _control,
    "config": _text("config", _CONFIG),
    "tokens": _text("tokens", _LINES[:1]),
    "secrets": _text("secrets", _LINES[1:]),
}
DOORS = tuple(_MAKERS)
