"""Jobs through real processes: kept, run, killed amid it, read elsewhere; nobody's but their client's."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import adbc_driver_flightsql.dbapi as flightsql
import duckdb
import grpc
import psutil
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
from adbc_driver_flightsql import DatabaseOptions
from typer.testing import CliRunner

from ballista_py import LocalCluster, connect
from ballista_py.errors import InvalidData, JobCancelled, JobMissing, JobRefused, SqlError, TimeLimit
from ballista_py.node.cli.app import app
from ballista_py.transport.flight_sql.messages import message, pack, read

pytestmark = pytest.mark.cluster
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string())])
QUERY = "select i, repeat('x', 100) as text, md5(i::varchar) as digest from range(300000) r(i)"
ROWS = 300_000
WRITTEN = 40_000
SLOW = "select count(*) from range(60000) a(i), range(60000) b(j) where (i * j) % 7 = 3"
TOKENS = {"ada": "ada-ada-ada-ada-ada-1", "bob": "bob-bob-bob-bob-bob-1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text("".join(f"{name}: {token}\n" for name, token in TOKENS.items()))
    options = {"flight-tokens-file": str(tokens)}
    with LocalCluster(schedulers=2, executors=1, token=TOKENS["ada"], node_options=options) as found:
        found.create_table("events", schema=SCHEMA, partition_by=["bucket(2, id)"])
        yield found


@pytest.fixture
def client(cluster):
    with connect(url(cluster), token=TOKENS["ada"], retry_reads=True) as found:
        yield found


def url(cluster):
    return "ballista://" + ",".join(cluster.addresses())


def run_cli(cluster, *arguments):
    options = ["--connect", cluster.addresses()[0], "--token", TOKENS["ada"]]
    return CliRunner().invoke(app, ["jobs", *arguments, *options])


def test_a_change_is_made_and_its_result_kept(client):
    job = client.submit("insert into events select i, 'a' from range(100) r(i)", name="load")
    assert job.result(60).to_pylist() == [{"affected_rows": 100}]
    assert client.job(job.job_id).result().to_pylist() == [{"affected_rows": 100}]
    again = client.submit("insert into events select i, 'a' from range(100) r(i)", name="load", job_id=job.job_id)
    assert again.status()["attempt"] == 1
    returned = client.submit("delete from events where id >= $least returning id", {"least": 98})
    assert sorted(returned.result(60)["id"].to_pylist()) == [98, 99]
    counted = client.submit("select count(*) as n from events where id < ? and kind = ?", [50, "a"])
    assert counted.result(60).to_pylist() == [{"n": 50}]
    assert {row["job_id"] for row in client.jobs("SUCCEEDED")} >= {job.job_id, returned.job_id, counted.job_id}


def test_a_result_comes_chunk_by_chunk_with_its_columns(client):
    job = client.submit(QUERY)
    status = job.wait(120)
    assert (status["state"], status["rows"]) == ("SUCCEEDED", ROWS)
    assert status["chunks"] > 1
    numbers = [n for batch in job.stream() for n in batch["i"].to_pylist()]
    assert sorted(numbers) == list(range(ROWS))
    empty = client.submit("select id, kind from events where id < 0")
    assert empty.result(60).schema.names == ["id", "kind"]
    assert job.close()["state"] == "CLOSED"
    with pytest.raises(JobRefused, match="given up"):
        job.result()


def test_what_is_wrong_is_told_when_it_is_known(client):
    with pytest.raises(SqlError, match="selekt"):
        client.submit("selekt 1")
    with pytest.raises(SqlError, match="no value was bound"):
        client.submit("select ?")
    with pytest.raises(SqlError, match="about the session"):
        client.submit("set dialect = spark")
    with pytest.raises(InvalidData, match="is no UUID"):
        client.submit("select 1", job_id="1")
    with pytest.raises(InvalidData, match="priority"):
        client.submit("select 1", priority=11)
    missing = client.submit("select * from nowhere")
    with pytest.raises(SqlError, match="'nowhere' does not exist"):
        missing.result(60)
    assert missing.status()["state"] == "FAILED"
    with pytest.raises(JobMissing):
        client.job("0" * 32)


def test_a_running_job_is_cancelled_at_whichever_scheduler_it_runs(cluster, client):
    job = client.submit(SLOW)
    with pytest.raises(TimeLimit, match="it goes on"):
        job.wait(2)
    running = job.status()
    assert running["state"] == "RUNNING"
    other = next(
        a
        for a, m in zip(cluster.addresses(), client.members(), strict=False)
        if m["node_id"] != running["scheduler"]
    )
    with connect(f"ballista://{other}", token=TOKENS["ada"]) as elsewhere:
        assert elsewhere.job(job.job_id).cancel()["state"] == "CANCELLED"
    with pytest.raises(JobCancelled):
        job.result()
    error = job.status()["error"]
    assert error["code"] == JobCancelled.code
    assert "may have been done" in error["message"]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(
        "range(60000)" in t["text"] and t["outcome"] == "running" for t in tasks(cluster)
    ):
        time.sleep(0.2)
    assert not any("range(60000)" in t["text"] and t["outcome"] == "running" for t in tasks(cluster))


def tasks(cluster):
    found = []
    for address in cluster.addresses():
        with connect(f"ballista://{address}", token=TOKENS["ada"]) as one:
            found += one.tasks()
    return found


def test_a_client_sees_no_job_of_another(cluster, client):
    job = client.submit("select 'secret' as text")
    job.wait(60)
    with connect(url(cluster), token=TOKENS["bob"]) as bob:
        assert bob.jobs() == []
        with pytest.raises(JobMissing):
            bob.job(job.job_id)
        with pytest.raises(JobMissing):
            bob._jobs.rows_of(job.job_id, 0)
        assert bob.submit("select 1 as n", job_id=job.job_id).result(60).to_pylist() == [{"n": 1}]
    assert job.result().to_pylist() == [{"text": "secret"}]


def test_the_command_line_submits_waits_lists_and_writes_results(cluster, tmp_path):
    said = run_cli(cluster, "submit", "select 7 as seven", "--name", "seven")
    assert said.exit_code == 0, said.output
    job_id = said.stdout.strip()
    assert json.loads(run_cli(cluster, "wait", job_id, "--json").stdout)["state"] == "SUCCEEDED"
    assert "seven" in run_cli(cluster, "list", "--state", "succeeded").stdout
    assert json.loads(run_cli(cluster, "results", job_id, "--json").stdout)["rows"] == [{"seven": 7}]
    out = tmp_path / "out.parquet"
    assert run_cli(cluster, "results", job_id, "--out", str(out)).exit_code == 0
    assert pq.read_table(out).to_pylist() == [{"seven": 7}]
    assert json.loads(run_cli(cluster, "show", job_id, "--json").stdout)["name"] == "seven"
    assert json.loads(run_cli(cluster, "close", job_id, "--json").stdout)["state"] == "CLOSED"
    assert run_cli(cluster, "wait", job_id).exit_code == 1


def poll(cluster, descriptor, token=TOKENS["ada"]):
    """What a plain gRPC client is told by PollFlightInfo."""
    with grpc.insecure_channel(cluster.addresses()[0]) as channel:
        asked = channel.unary_unary(
            "/arrow.flight.protocol.FlightService/PollFlightInfo",
            lambda one: one.SerializeToString(),
            lambda data: read("PollInfo", data),
        )
        return asked(descriptor, metadata=[("authorization", f"Bearer {token}")], timeout=60)


def polled(cluster, query):
    """The last answer of as many polls as it takes."""
    told = poll(
        cluster, message("FlightDescriptor", type=2, cmd=pack(message("CommandStatementQuery", query=query)))
    )
    times = 1
    while told.HasField("flight_descriptor") and times < 60:
        assert len(told.info.endpoint) == 0
        told, times = poll(cluster, told.flight_descriptor), times + 1
    return told


def test_a_statement_is_polled_for_and_its_parts_are_fetched_at_any_scheduler(cluster):
    told = polled(cluster, QUERY)
    assert (told.progress, told.info.total_records) == (1.0, ROWS)
    assert len(told.info.endpoint) > 1
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKENS['ada']}".encode())])
    rows = []
    for number, part in enumerate(told.info.endpoint):
        address = cluster.addresses()[number % 2]
        with flight.connect(f"grpc://{address}") as one:
            rows += one.do_get(flight.Ticket(part.ticket.ticket), options).read_all()["i"].to_pylist()
    assert sorted(rows) == list(range(ROWS))
    other = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKENS['bob']}".encode())])
    with flight.connect(f"grpc://{address}") as one, pytest.raises(KeyError, match="there is no job"):
        one.do_get(flight.Ticket(told.info.endpoint[0].ticket.ticket), other).read_all()


def test_a_poll_tells_what_is_wrong(cluster):
    with pytest.raises(grpc.RpcError, match="SQLSTATE 42601"):
        polled(cluster, "selekt 1")
    with pytest.raises(grpc.RpcError, match="SQLSTATE 42P01"):
        polled(cluster, "select * from nowhere")


def test_what_is_polled_for_is_cancelled_by_its_info(cluster, client):
    command = pack(message("CommandStatementQuery", query=SLOW))
    told = poll(cluster, message("FlightDescriptor", type=2, cmd=command))
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKENS['ada']}".encode())])
    request = message("CancelFlightInfoRequest", info=told.info.SerializeToString()).SerializeToString()
    with flight.connect(f"grpc://{cluster.addresses()[0]}") as one:
        assert list(one.do_action(flight.Action("CancelFlightInfo", request), options))
    with pytest.raises(grpc.RpcError, match="SQLSTATE 57014"):
        poll(cluster, told.flight_descriptor)
    assert client.jobs("CANCELLED")[0]["sql"] == SLOW


def test_a_driver_that_polls_reads_the_parts(cluster, client):
    options = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {TOKENS['ada']}"}
    with (
        flightsql.connect(cluster.flight_sql_url(), db_kwargs=options, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.adbc_statement.set_options(**{"adbc.statement.exec.incremental": "true"})
        parts: list[bytes] = []
        while True:  # each call polls once; nothing new is the end
            found, _ = cursor.adbc_execute_partitions("select i from range(5000) r(i)")
            parts += found
            if not found:
                break
        numbers = []
        for part in parts:
            cursor.adbc_read_partition(part)
            numbers += cursor.fetch_arrow_table()["i"].to_pylist()
    assert sorted(numbers) == list(range(5_000))
    assert "range(5000)" in client.jobs("SUCCEEDED")[0]["sql"]  # it was polled for, not asked for


def survives(cluster, client, number, after_s):
    """Kill the scheduler that runs a query and a change so long after it has begun them; both are done, once."""
    low = 1_000_000 * (number + 1)
    write = client.submit(f"insert into events select {low} + i, 'k' from range({WRITTEN}) r(i)")
    query = client.submit(QUERY)
    deadline = time.monotonic() + 60
    while (running := write.status())["state"] == "PENDING" and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(after_s)
    cluster.kill(running["scheduler"])
    try:
        assert write.result(120).to_pylist() == [{"affected_rows": WRITTEN}]
        rows = query.result(120)
        assert sorted(rows["i"].to_pylist()) == list(range(ROWS))
        counted = client.sql(f"select count(*) as n, count(distinct id) as d from events where id >= {low}")
        assert counted.to_pylist() == [{"n": WRITTEN, "d": WRITTEN}]
        client.sql(f"delete from events where id >= {low}")
        attempts = write.status()["attempt"], query.status()["attempt"]
    finally:
        cluster.start(running["scheduler"])
    return attempts


@pytest.mark.parametrize("after_s", [0.0, 0.4])
def test_a_killed_scheduler_loses_and_doubles_nothing(cluster, client, after_s):
    survives(cluster, client, int(after_s * 10), after_s)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("after_s", [0.05, 0.1, 0.2, 0.3, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0])
def test_a_scheduler_killed_at_any_moment_loses_and_doubles_nothing(cluster, client, after_s):
    survives(cluster, client, int(after_s * 100), after_s)


@pytest.mark.long
def test_a_scheduler_that_is_told_to_stop_ends_its_job_or_gives_it_back(cluster, client):
    job = client.submit("select count(*) as n from range(20000) a(i), range(20000) b(j) where (i * j) % 7 = 3")
    deadline = time.monotonic() + 60
    while (running := job.status())["state"] == "PENDING" and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(cluster.pid(running["scheduler"]), signal.SIGTERM)
    try:
        expected = duckdb.sql(
            "select count(*) as n from range(20000) a(i), range(20000) b(j) where (i * j) % 7 = 3"
        )
        assert job.result(240).to_pylist() == expected.to_arrow_table().to_pylist()
        assert job.status()["attempt"] <= 2
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(cluster.pid(running["scheduler"])).wait(120)
        cluster.start(running["scheduler"])


def test_nothing_is_left_in_the_queue(cluster):
    folder = Path(cluster.state_location.removeprefix("file://")) / "jobs" / "open"
    deadline = time.monotonic() + 30
    while list(folder.glob("*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert list(folder.glob("*")) == []
