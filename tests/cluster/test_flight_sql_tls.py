"""The ADBC driver over TLS, with a token: what is shut to others stays shut to it."""

import base64
import re
from pathlib import Path

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from attrs import evolve

import ballista_py
from ballista_py import LocalCluster
from ballista_py.transport.flight_sql.legs import MAX_TICKET_BYTES
from ballista_py.transport.flight_sql.messages import message, pack, unpack
from ballista_py.transport.flight_sql.statement import SqlStatement

pytestmark = pytest.mark.cluster

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def shut(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"ada {TOKEN}\n")
    options = {"flight-tokens-file": str(tokens)}
    with LocalCluster(schedulers=1, executors=2, tls=True, token=TOKEN, node_options=options) as cluster:
        cluster.sql("create table items (id bigint not null) partitioned by (bucket(8, id))")
        cluster.ingest("items", pa.table({"id": range(1_000)}))
        yield cluster


def connect(cluster, token=TOKEN, authority=None):
    options = {DatabaseOptions.TLS_ROOT_CERTS.value: authority or Path(cluster.tls.ca_file).read_text()}
    if token is not None:
        options[DatabaseOptions.AUTHORIZATION_HEADER.value] = f"Bearer {token}"
    return flightsql.connect(cluster.flight_sql_url(), db_kwargs=options, autocommit=True)


def parts_port(cluster, node_id, wait_until):
    """Where an executor gives parts to clients, as it says in its log a moment after it has joined."""
    said = re.compile(r" parts=grpc\+tls://127\.0\.0\.1:(\d+)")
    return wait_until(lambda: said.search(cluster.log(node_id)))[1]


def test_every_part_is_read_from_its_executor_which_knows_neither_the_client_nor_its_token(shut, wait_until):
    ports = [parts_port(shut, node_id, wait_until) for node_id in ("executor-1", "executor-2")]
    locations = [f"grpc+tls://127.0.0.1:{port}" for port in ports]
    with connect(shut) as connection, connection.cursor() as cursor:
        cursor.execute("select count(*), sum(id) from items where id >= ?", (500,))
        assert cursor.fetchall() == [(500, sum(range(500, 1_000)))]
        partitions, _schema = cursor.adbc_execute_partitions("select id from items")
        found = []
        named = {location for location in locations for partition in partitions if location.encode() in partition}
        assert named == set(locations)
        before = legs_run(shut)
        for partition in partitions:
            cursor.adbc_read_partition(partition)
            found += [row for (row,) in cursor.fetchall()]
    assert sorted(found) == list(range(1_000))
    assert legs_run(shut) == {node_id: count + 1 for node_id, count in before.items()}


def legs_run(cluster):
    """How many legs each executor has begun for clients' tickets or schedulers; the schedulers run none."""
    with ballista_py.connect(cluster.addresses()[0], tls=cluster.tls, token=TOKEN) as client:
        assert all(task["kind"] != "leg" for task in client.tasks())
    return {
        node_id: len([task for task in cluster.shown(node_id, "/tasks")["tasks"] if task["kind"] == "leg"])
        for node_id in ("executor-1", "executor-2")
    }


def test_a_ticket_that_was_changed_or_is_for_another_executor_gets_nothing(shut):
    import pyarrow.flight as flight

    roots = Path(shut.tls.ca_file).read_bytes()
    header = [(b"authorization", f"Bearer {TOKEN}".encode())]
    scheduler = flight.connect(shut.flight_sql_url(), tls_root_certs=roots)
    command = pack(message("CommandStatementQuery", query="select id from items"))
    options = flight.FlightCallOptions(headers=header)
    info = scheduler.get_flight_info(flight.FlightDescriptor.for_command(command), options)
    assert len(info.endpoints) == 2
    executors = [flight.connect(endpoint.locations[0].uri, tls_root_certs=roots) for endpoint in info.endpoints]
    first = info.endpoints[0].ticket
    assert executors[0].do_get(first).read_all().num_rows > 0
    with pytest.raises(flight.FlightError, match="not for this executor"):
        executors[1].do_get(first).read_all()
    statement = SqlStatement.from_handle(unpack(first.ticket).statement_handle)
    body = base64.b64decode(statement.part["leg"]["body"])
    other = base64.b64encode(body.replace(b"items", b"itemz")).decode()
    for leg in (
        {**statement.part["leg"], "body": other},
        {"body": other},
        {**statement.part["leg"], "signature": ""},
        {**statement.part["leg"], "certificate": roots.decode()},
    ):
        forged = evolve(statement, part={**statement.part, "leg": leg}).handle()
        ticket = flight.Ticket(pack(message("TicketStatementQuery", statement_handle=forged)))
        with pytest.raises(flight.FlightError, match="signed by no node"):
            executors[0].do_get(ticket).read_all()
    for ask in (
        lambda: executors[0].get_flight_info(flight.FlightDescriptor.for_command(command)),
        lambda: list(executors[0].do_action(flight.Action("held", b"{}"))),
        lambda: executors[0].do_get(flight.Ticket(command)).read_all(),
    ):
        with pytest.raises((flight.FlightError, pa.ArrowException)):
            ask()


@pytest.mark.parametrize("token", [None, "another-token-of-nobody"])
def test_without_a_token_that_is_known_nothing_is_answered(shut, token):
    with pytest.raises(adbc_driver_manager.Error, match="token"), connect(shut, token) as connection:
        connection.cursor().execute("select 1")


def test_a_client_that_does_not_know_the_authority_does_not_connect(shut, tmp_path):
    from ballista_py.runtime import SystemRuntime
    from ballista_py.transport.security.certificates import CertificateFolder

    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    authority = Path(other.ca_file).read_text()
    with pytest.raises(adbc_driver_manager.Error), connect(shut, authority=authority) as connection:
        connection.cursor().execute("select 1")


def test_a_long_ticket_is_the_schedulers_and_no_executor_reads_one(shut):
    import pyarrow.flight as flight

    roots = Path(shut.tls.ca_file).read_bytes()
    header = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    scheduler = flight.connect(shut.flight_sql_url(), tls_root_certs=roots)

    def endpoints(literal):
        query = f"select id from items where id < 100 and '{literal}' <> 'b'"
        command = pack(message("CommandStatementQuery", query=query))
        return scheduler.get_flight_info(flight.FlightDescriptor.for_command(command), header).endpoints

    short, long = endpoints("a"), endpoints("a" * MAX_TICKET_BYTES)
    assert all(one.locations for one in short)
    assert len(short) == 2
    assert not any(one.locations for one in long)
    assert len(long) == 2
    for found in (short, long):
        ids = pa.concat_tables([scheduler.do_get(one.ticket, header).read_all() for one in found])["id"]
        assert sorted(ids.to_pylist()) == list(range(100))
    executor = flight.connect(short[0].locations[0].uri, tls_root_certs=roots)
    assert executor.do_get(short[0].ticket).read_all().num_rows
    with pytest.raises((flight.FlightError, pa.ArrowException), match="are the most here"):
        executor.do_get(long[0].ticket).read_all()
