"""What a client can do beside asking: make and end tables, end its own statements; through one cluster with tokens."""

import base64
import inspect
import operator
import subprocess
import sys
import threading
import time

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from ballista_py import Client, LocalCluster, connect
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    InvalidData,
    PartitionKeysMissing,
    SqlError,
    TransportError,
)

pytestmark = pytest.mark.cluster
ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string())])
# What is about processes of this machine, or reads a source with rights of this process.
OF_THE_MACHINE = {
    "addresses", "client", "data_dir", "flight_sql_url", "kill", "log", "node_ids", "pid", "refresh_table", "remove",
    "http_url", "shown", "start", "status_url", "stop", "wait_until_applied",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"alice {ALICE}\nbob {BOB}\n")
    options = {"flight-tokens-file": str(tokens), "otlp-metrics-table": "otel_metrics"}
    with LocalCluster(schedulers=2, executors=1, token=ALICE, node_options=options) as made:
        yield made


@pytest.fixture
def client(cluster):
    with cluster.client() as made:
        yield made


def named(found):
    return {name for name in dir(found) if not name.startswith("_")}


def test_a_client_has_what_a_local_cluster_has():
    assert named(LocalCluster) - OF_THE_MACHINE <= named(Client)


@pytest.mark.parametrize("name", sorted(named(LocalCluster) & named(Client)))
def test_both_take_the_same_words(name):
    mine, other = (inspect.signature(getattr(kind, name)).parameters for kind in (LocalCluster, Client))
    only_here = {"create_table": {"progress", "wait"}, "wait_until_loaded": {"timeout_ms"}}.get(name, set())
    assert set(mine) - only_here <= set(other)


def test_a_client_makes_a_table_and_ends_it(client):
    client.create_table(
        "events", None, [{"part": "bucket(4, id)"}], schema=SCHEMA, primary_key=["id"], checks=["id > 0"]
    )
    client.wait_until_loaded("events")
    assert client.ingest("events", pa.table({"id": [1, 2], "kind": ["a", None]}, schema=SCHEMA)) == 2
    with pytest.raises(BallistaError, match=r"violates CHECK \(id > 0\)"):
        client.ingest("events", pa.table({"id": [0], "kind": ["a"]}, schema=SCHEMA))
    with pytest.raises(BallistaError, match="primary key"):
        client.ingest("events", pa.table({"id": [1], "kind": ["b"]}, schema=SCHEMA))
    assert client.sql("select kind from events where id = 1")["kind"].to_pylist() == ["a"]
    (row,) = (row for row in client.tables() if row["table"] == "events")
    assert (row["partitions"], row["distribution"]) == (4, "partitioned")
    with pytest.raises(ConfigError, match="exists already"):
        client.create_table("events", None, [{"part": "bucket(4, id)"}], schema=SCHEMA)
    client.create_table("beside", None, ["bucket(4, id)"], schema=SCHEMA, colocate_with="events")
    client.create_table("everywhere", schema=SCHEMA, distribution="replicated")
    for name in ("beside", "everywhere", "events"):
        client.drop_table(name)
    assert not {"beside", "everywhere", "events"} & {row["table"] for row in client.tables()}


def test_a_table_that_is_asked_for_twice_under_one_token_is_made_once(client):
    for _ in range(2):
        client.create_table("once", None, ["bucket(2, id)"], schema=SCHEMA, token="the one")
    client.drop_table("once")
    client.create_table("once", None, ["bucket(2, id)"], schema=SCHEMA, token="the one")  # was made, and dropped
    assert "once" not in {row["table"] for row in client.tables()}


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"source": "/etc/passwd", "partition_by": ["id"]}, ConfigError, "which no client can name"),
        ({}, ConfigError, "needs a schema"),
        ({"schema": SCHEMA}, PartitionKeysMissing, "no partition keys"),
        ({"schema": SCHEMA, "partition_by": ["bucket(2, id)"], "checks": ["id"]}, SqlError, "is no condition"),
        (
            {"schema": SCHEMA, "partition_by": ["id"], "checks": ["true), check (false"]},
            SqlError,
            "is no condition by itself",
        ),
        (
            {
                "schema": SCHEMA,
                "partition_by": ["id"],
                "checks": ["length(getenv('HOME')) > 0"],
            },
            BallistaError,
            "getenv",
        ),
        ({"schema": SCHEMA, "partition_by": ["id"], "file_format": "orc"}, InvalidData, "file_format"),
        ({"schema": SCHEMA, "partition_by": ["id"], "colocate_with": "nope"}, ConfigError, "co-located"),
        ({"schema": SCHEMA, "partition_by": ["id"], "primary_key": ["nope"]}, ConfigError, "no column 'nope'"),
    ],
)
def test_what_cannot_be_made_is_named_and_leaves_nothing(client, asked, error, said):
    with pytest.raises(error, match=said):
        client.create_table("never", **asked)
    assert "never" not in {row["table"] for row in client.tables()}


def test_a_source_is_refused_by_the_scheduler_too(client, cluster):
    """Whoever speaks the protocol by himself gets no further."""
    command = {
        "kind": "create_table",
        "table": "never",
        "token": "t",
        "partition_by": ["id"],
        "source": "/etc/passwd",
    }
    with pytest.raises(ConfigError, match="which no client can name"):
        client._pool.open_write(cluster.addresses()[0], command, SCHEMA).finish()
    assert "never" not in {row["table"] for row in client.tables()}


LONG = (
    "select sum(a.range * b.range) as s from range(3000000) a, range(3000000) b where (a.range + b.range) % 7 = 3"
)


def test_a_client_ends_its_own_statements_and_no_others(cluster, client):
    ended = []

    def run():
        with connect(cluster.addresses()[0], token=ALICE) as other:
            try:
                ended.append(other.sql(LONG))
            except BallistaError as error:
                ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        task = None
        while task is None:
            running = [row for row in client.tasks() if row["outcome"] == "running" and "range" in row["text"]]
            task = running[0]["task_id"] if running else None
            time.sleep(0.02)
        with connect(cluster.addresses()[1], token=BOB) as bob:
            assert not bob.cancel(task)
        assert not client.cancel("no-such-task")
        assert thread.is_alive()
        with connect(
            cluster.addresses()[1], token=ALICE
        ) as elsewhere:  # another scheduler than the one that runs it
            assert elsewhere.cancel(task)
    finally:
        thread.join(60)
    (error,) = ended
    assert isinstance(error, TransportError)
    assert "the statement was cancelled" in str(error)
    assert not client.cancel(task)


def flight_sql(cluster, user, password):
    options = {"username": user, "password": password}
    return flightsql.connect(cluster.flight_sql_url(), db_kwargs=options, autocommit=True)


def test_a_driver_comes_in_with_user_and_password(cluster):
    with flight_sql(cluster, "alice", ALICE) as connection, connection.cursor() as cursor:
        cursor.execute("select 1 + 1 as two")
        assert cursor.fetchall() == [(2,)]
    for user, password in (("bob", ALICE), ("alice", "no-such-token-here")):
        with pytest.raises(adbc_driver_manager.Error) as raised, flight_sql(cluster, user, password):
            pass
        assert "are not those of a client" in str(raised.value)
        assert ALICE not in str(raised.value)


def test_the_token_of_a_handshake_is_its_clients_and_of_one_scheduler(cluster):
    one, other = (flight.FlightClient(f"grpc://{address}") for address in cluster.addresses())
    with one, other:
        name, value = one.authenticate_basic_token("bob", BOB)
        assert (name, BOB.encode() in value) == (b"authorization", False)
        options = flight.FlightCallOptions(headers=[(name, value)])
        task = f'{{"task": "{"0" * 32}"}}'.encode()
        (answer,) = one.do_action(flight.Action("cancel", task), options)
        assert answer.body.to_pybytes() == b'{"cancelled":false}'
        with pytest.raises(flight.FlightUnauthenticatedError, match="at the scheduler that gave it"):
            list(other.do_action(flight.Action("members", b"{}"), options))
        token = value.decode().removeprefix("Bearer ")
        with connect(cluster.addresses()[0], token=token) as mine:
            assert mine.sql("select 1 as a").num_rows == 1


def test_a_handshake_says_nothing_to_a_stranger_and_reads_nothing_of_him(cluster):
    """Raw gRPC: what the messages of a handshake hold is not looked at, however much it is."""
    with grpc.insecure_channel(cluster.addresses()[0]) as channel:
        handshake = channel.stream_stream("/arrow.flight.protocol.FlightService/Handshake")
        for headers in ((), (("authorization", "Basic !"),), (("authorization", f"Bearer {ALICE}x"),)):
            call = handshake(iter([b"\x12\x10" + b"x" * 16]), metadata=headers, timeout=30)
            with pytest.raises(grpc.RpcError) as raised:
                list(call)
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "authorization" not in dict(call.initial_metadata())
        shown = base64.b64encode(f"alice:{ALICE}".encode()).decode()
        call = handshake(iter([]), metadata=(("authorization", f"Basic {shown}"),), timeout=30)
        assert list(call) == []
        assert dict(call.initial_metadata())["authorization"].startswith("Bearer handshake.")


def test_unions_are_taken_as_parameters(cluster):
    """What drivers of JDBC bind: ADBC sends the batch as it is."""
    kinds = [pa.array(["b"]), pa.array([7, 8])]
    number = pa.UnionArray.from_dense(pa.array([1], pa.int8()), pa.array([1], pa.int32()), kinds)
    text = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), kinds)
    with flight_sql(cluster, "alice", ALICE) as connection, connection.cursor() as cursor:
        cursor.execute("create table bound (id bigint, kind varchar)")
        cursor.execute("insert into bound values (?, ?)", pa.record_batch([number, text], ["1", "2"]))
        cursor.execute("select id, kind from bound where id = ?", pa.record_batch([number], ["1"]))
        assert cursor.fetchall() == [(8, "b")]
        cursor.execute("drop table bound")


@pytest.fixture
def exporter(cluster):
    made = []

    def make(token, scheduler=0):
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        found = OTLPMetricExporter(cluster.addresses()[scheduler], insecure=True, headers=headers, timeout=20)
        made.append(found)
        return found

    yield make
    for one in made:
        one.shutdown()


def measured(exporter, record):
    """Let the SDK of OpenTelemetry measure what `record` does with a meter, and export it."""
    outcomes = []
    export = exporter.export
    exporter.export = lambda *given, **more: outcomes.append(export(*given, **more)) or outcomes[-1]
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], resource=Resource({"service.name": "shop"}))
    record(provider.get_meter("doors"))
    reader.force_flush(20_000)
    exporter.export = lambda *given, **more: MetricExportResult.SUCCESS  # nothing at its end
    provider.shutdown()
    return outcomes


def some(meter):
    meter.create_counter("orders", unit="1").add(3, {"path": "/a"})
    meter.create_counter("orders", unit="1").add(4, {"path": "/b"})
    meter.create_histogram("took", unit="ms").record(12.5)


def test_exports_of_the_sdk_are_rows_of_the_table_of_metrics(cluster, client, exporter):
    for scheduler in (0, 1):  # the table is made by the first, at whichever scheduler it comes in
        assert measured(exporter(ALICE, scheduler), some) == [MetricExportResult.SUCCESS]
    found = client.sql(
        "select metric, kind, attributes['path'] as path, whole_value, count, resource['service.name'] as service "
        "from otel_metrics order by all"
    ).to_pylist()
    orders = {"metric": "orders", "kind": "sum", "count": None, "service": "shop"}
    took = {
        "metric": "took",
        "kind": "histogram",
        "path": None,
        "whole_value": None,
        "count": 1,
        "service": "shop",
    }
    wanted = [{**orders, "path": "/a", "whole_value": 3}, {**orders, "path": "/b", "whole_value": 4}, took]
    key = operator.itemgetter("metric", "path")
    assert sorted(found, key=lambda row: str(key(row))) == [row for row in wanted for _ in range(2)]
    late = "select count(*) as n from otel_metrics where time not between now() - interval '1 hour' and now()"
    assert client.sql(late)["n"].to_pylist() == [0]
    (row,) = (row for row in client.tables() if row["table"] == "otel_metrics")
    assert row["partitions"] == 8


def test_who_shows_no_token_exports_nothing(client, exporter):
    before = client.sql("select count(*) as n from otel_metrics")["n"].to_pylist()
    for token in (None, "no-such-token-here"):
        assert measured(exporter(token), some) == [MetricExportResult.FAILURE]
    assert client.sql("select count(*) as n from otel_metrics")["n"].to_pylist() == before


def test_a_bad_export_is_refused_whole_with_a_status_that_is_not_sent_again(cluster, client):
    before = client.sql("select count(*) as n from otel_metrics")["n"].to_pylist()
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="good").gauge.data_points.add(time_unix_nano=1, as_int=1)
    metrics.add(name="bad").gauge.data_points.add(time_unix_nano=2**63, as_int=1)
    with grpc.insecure_channel(cluster.addresses()[0]) as channel:
        export = channel.unary_unary(
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            request_serializer=ExportMetricsServiceRequest.SerializeToString,
        )
        with pytest.raises(grpc.RpcError) as raised:
            export(request, metadata=(("authorization", f"Bearer {ALICE}"),), timeout=20)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "metric 'bad'" in raised.value.details()
    assert client.sql("select count(*) as n from otel_metrics")["n"].to_pylist() == before


def test_the_command_line_cancels(cluster):
    command = [
        sys.executable,
        "-m",
        "ballista_py.node",
        "cancel",
        "--connect",
        cluster.addresses()[0],
        "--token",
        BOB,
    ]
    done = subprocess.run([*command, "no-such-task"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        "error: no statement of yours with the id 'no-such-task' runs now\n",
    )
