"""A whole cluster behind certificates and tokens."""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ballista_py import LocalCluster, Tls, connect
from ballista_py.errors import BallistaError, SqlError, TransportError, Unauthenticated
from ballista_py.node.demo.demo import QUERIES
from ballista_py.node.local.status_reader import read_status
from ballista_py.secret import Secret
from ballista_py.transport.flight_sql.messages import message, pack

pytestmark = pytest.mark.cluster
TTL_MS = 2_000
TOKEN = "alice-token-0123456789"
NEW_TOKEN, BOBS = "alice-token-next-0123456789", "bobs-token-0123456789"


@pytest.fixture(scope="module")
def secured(tpch_state, tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    shutil.copytree(tpch_state, folder / "state")
    tokens, secrets = folder / "tokens", folder / "secrets"
    tokens.write_text(f"alice {TOKEN}\nalice {NEW_TOKEN}\nbob {BOBS}\n")
    secrets.write_text("db hunter2-hunter2\n")
    with LocalCluster(
        schedulers=2,
        executors=2,
        state_location=(folder / "state").as_uri(),
        ttl_ms=TTL_MS,
        tls=True,
        token=TOKEN,
        node_options={"flight-tokens-file": str(tokens), "secrets-file": str(secrets)},
    ) as cluster:
        cluster.wait_until_loaded()
        yield cluster


def test_queries_are_answered_over_tls_to_whoever_has_a_token(secured, duck):
    for name in ("Q1", "Q3"):
        if name in QUERIES:
            assert secured.sql(QUERIES[name]).num_rows == duck.sql(QUERIES[name]).to_arrow_table().num_rows
    assert {row["role"] for row in secured.members()} == {"scheduler", "executor"}


def test_who_has_no_token_no_authority_or_no_tls_is_refused(secured):
    address = secured.addresses()[0]
    for token in (None, "wrong-token-0123456789"):
        with pytest.raises(Unauthenticated):
            connect(address, tls=secured.tls, token=token)
    for tls in (None, Tls()):
        with pytest.raises(TransportError):
            connect(address, tls=tls, token=TOKEN)
    assert any("a call was refused" in secured.log(name) for name in ("scheduler-1", "scheduler-2"))


def test_rows_are_written_between_nodes_that_prove_themselves(secured):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64())])
    secured.create_table("marks", schema=schema, partition_by=["bucket(4, id)"])
    with secured.client() as client:
        client.ingest("marks", pa.table({"id": [1, 2, 3], "x": [0.1, 0.2, 0.3]}, schema=schema))
        client.sql("insert into marks values (4, 0.4)")
        client.sql("update marks set x = 1 where id = 2")
        assert client.sql("select sum(id) as i, max(x) as x from marks").to_pylist() == [{"i": 10, "x": 1.0}]


def test_the_word_of_a_statement_is_its_clients_own_whichever_token_shows_who_that_is(secured):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.string())])
    secured.create_table("words", schema=schema, partition_by=["bucket(2, id)"])
    first = "insert into words values (1, 'alices') returning id, x"
    address = secured.addresses()[0]
    alice, again, bob = (connect(address, tls=secured.tls, token=token) for token in (TOKEN, NEW_TOKEN, BOBS))
    with alice, again, bob:
        assert bob.sql("delete from words where id = 99", token="load-1").to_pylist() == [{"affected_rows": 0}]
        told = alice.sql(first, token="load-1").to_pylist()
        assert again.sql(first, token="load-1").to_pylist() == told == [{"id": 1, "x": "alices"}]
        bob.sql("update words set x = 'bobs'")
        assert alice.sql(first, token="load-1").to_pylist() == told
        with pytest.raises(SqlError, match="token 'load-1' was used for another statement"):
            again.sql("delete from words", token="load-1")
        # One statement of two clients under one word is two: bob is not told what it did for alice.
        assert bob.sql(first, token="load-2").to_pylist() == told
        assert alice.sql("select count(*) as n from words").to_pylist() == [{"n": 2}]
    for token, rows in ((TOKEN, 3), (NEW_TOKEN, 3), (BOBS, 4)):
        header = {
            "adbc.flight.sql.authorization_header": f"Bearer {token}",
            "adbc.flight.sql.rpc.call_header.ballista-token": "load-3",
            "adbc.flight.sql.client_option.tls_root_certs": Path(secured.tls.ca_file).read_text(),
        }
        connected = flightsql.connect(secured.flight_sql_url(), db_kwargs=header, autocommit=True)
        with connected as connection, connection.cursor() as cursor:
            cursor.execute("insert into words values (3, 'three')")
        assert secured.sql("select count(*) as n from words").to_pylist() == [{"n": rows}]
    secured.drop_table("words")


def test_the_adbc_driver_speaks_tls_and_shows_its_token(secured, duck):
    options = {"adbc.flight.sql.client_option.tls_root_certs": Path(secured.tls.ca_file).read_text()}
    header = {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}
    url = secured.flight_sql_url()
    expected = duck.sql("select count(*) as n from orders where o_orderkey < 100").to_arrow_table()
    connected = flightsql.connect(url, db_kwargs={**options, **header}, autocommit=True)
    with connected as connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from orders where o_orderkey < ?", (100,))
        assert cursor.fetchone()[0] == expected["n"][0].as_py()
    with pytest.raises(adbc_driver_manager.Error, match="token"):
        flightsql.connect(url, db_kwargs=options, autocommit=True).cursor().execute("select 1")


def test_a_client_does_not_reach_the_ports_of_nodes(secured):
    for node_id, link in (("executor-1", "data"), ("scheduler-1", "control")):
        with pytest.raises(BallistaError):
            connect(f"127.0.0.1:{secured.ports[node_id][link]}", tls=secured.tls, token=TOKEN)


def test_the_command_line_takes_certificate_and_token(secured, cli):
    words = ["--connect", secured.addresses()[0], "--tls-ca", secured.tls.ca_file]
    good = cli("sql", "select count(*) as n from orders", *words, "--token", TOKEN, "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["rows"][0]["n"] > 0
    bad = cli("sql", "select 1", *words)
    assert bad.returncode == 1
    assert "token" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_certificates_are_made_shown_and_removed_by_the_command_line(cli, tmp_path):
    folder = ["--folder", str(tmp_path / "tls")]
    assert cli("cluster", "tls", "init", *folder).returncode == 0
    added = cli("cluster", "tls", "add", "executor-1", "--role", "executor", "--host", "e1.example.org", *folder)
    assert "--node-mtls-certificate-file" in added.stdout
    assert "e1.example.org" in cli("cluster", "tls", "show", *folder).stdout
    assert cli("cluster", "tls", "remove", "executor-1", *folder).returncode == 0
    assert "removed" in cli("cluster", "tls", "show", *folder).stdout
    again = cli("cluster", "tls", "add", "executor-1", "--role", "executor", *folder)
    assert again.returncode == 1
    assert "another id" in again.stderr


def test_the_history_of_all_nodes_comes_over_certificates_and_names_clients(secured):
    secured.sql("select count(*) as n from orders where o_orderkey <> -4711")
    (trace,) = secured.sql("select trace_id from runtime.task_history where input like '%-4711%'")[
        "trace_id"
    ].to_pylist()
    rows = secured.sql(f"select * from runtime.task_history where trace_id = '{trace}'").to_pylist()
    assert {row["node_id"] for row in rows if row["task"] == "leg"} == {"executor-1", "executor-2"}
    assert {row["user"] for row in rows if row["task"] == "statement"} == {"alice"}
    assert len({row["trace_id"] for row in rows}) == 1


def test_every_node_shows_how_it_is_and_nothing_shows_a_secret(secured):
    shown = [
        str(secured.sql(f"select * from runtime.{table}").to_pylist()) for table in ("settings", "task_history")
    ]
    for node_id in secured.node_ids:
        paths = ("/health", "/ready", "/status", "/tasks")
        shown += [json.dumps(secured.shown(node_id, path)) for path in paths]
        shown.append(secured.shown(node_id, "/metrics"))
        assert "node_lease_remaining_ms" in shown[-1]
        days = float(re.search("^node_certificate_remaining_ms (.*)$", shown[-1], re.M)[1]) / 86_400_000
        assert 396 < days < 397
        shown.append(secured.log(node_id))
    assert 'scheduler_partitions{state="serving",table="orders"}' in "".join(shown)
    assert "hunter2" not in "".join(shown)
    assert TOKEN not in "".join(shown)


def test_the_status_ports_speak_tls_and_show_more_than_health_to_whoever_has_a_token_only(secured):
    wrong = Secret("wrong-token-0123456789")
    for node_id in ("scheduler-1", "executor-1"):
        url, metrics = secured.status_url(node_id), secured.status_url(node_id, metrics=True)
        assert url.startswith("https://")
        for path in ("/health", "/ready"):
            assert read_status(url + path, secured.tls)
        for guarded in (f"{url}/status", f"{url}/tasks", metrics):
            for token in (None, wrong):
                with pytest.raises(TransportError, match="401"):
                    read_status(guarded, secured.tls, token)
        for trust in (Tls(), None):
            with pytest.raises(TransportError, match="CERTIFICATE_VERIFY_FAILED"):
                read_status(f"{url}/health", trust)
        with pytest.raises(TransportError):
            read_status(url.replace("https", "http") + "/health")


def test_a_removed_executor_loses_its_partitions_to_the_others_and_queries_go_on(secured, duck, wait_until):
    secured.remove("executor-2")
    query = "select count(*) as n from orders"
    expected = duck.sql(query).to_arrow_table().to_pylist()

    def gone():
        try:
            return "executor-2" not in {row["node_id"] for row in secured.members()}
        except BallistaError:
            return False

    wait_until(gone)
    secured.wait_until_loaded(timeout_ms=30_000)
    assert secured.sql(query).to_pylist() == expected
    assert any("'executor-2' was removed" in secured.log(name) for name in ("scheduler-1", "scheduler-2"))


def test_a_statement_is_cancelled_by_its_own_client_alone(secured, wait_until):
    connection = flight.connect(secured.flight_sql_url(), tls_root_certs=Path(secured.tls.ca_file).read_bytes())
    alice, bob = (
        flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        for token in (TOKEN, BOBS)
    )
    text = (
        "select count(*) as endless from lineitem a, lineitem b, lineitem c where a.l_tax + b.l_tax + c.l_tax > 9"
    )
    command = pack(message("CommandStatementQuery", query=text))
    info = connection.get_flight_info(flight.FlightDescriptor.for_command(command), alice)
    body = message("CancelFlightInfoRequest", info=info.serialize()).SerializeToString()

    def cancel(options):
        return list(connection.do_action(flight.Action("CancelFlightInfo", body), options))

    def running():
        tasks = [
            task for name in ("scheduler-1", "scheduler-2") for task in secured.shown(name, "/tasks")["tasks"]
        ]
        return [task for task in tasks if "endless" in task["text"] and task["outcome"] == "running"]

    told = []

    def read():
        try:
            told.append(connection.do_get(info.endpoints[0].ticket, alice).read_all())
        except pa.ArrowException as error:
            told.append(str(error))

    reading = threading.Thread(target=read)
    reading.start()
    try:
        wait_until(running)
        with pytest.raises(pa.ArrowKeyError, match="nothing that this flight info started runs"):
            cancel(bob)
        assert running()
    finally:
        cancel(alice)
        reading.join(60)
    assert "the statement was cancelled" in told[0]
    wait_until(lambda: not running())
