"""Whatever a client provokes, what comes back over the wire is one line about what he wrote."""

from __future__ import annotations

import re
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ballista_py.errors import BallistaError, SqlError
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.flight_sql.statement import SqlStatement

pytestmark = pytest.mark.cluster

NAMED_BY_A_CONTROL_CHARACTER = [
    'select 1 as "a\0b"',
    "select 'a\0b'",
    "select {'a\0b': [1]} as s from orders",
    'select * from (select 1 as "\0") x',
    'create table made ("a\0b" integer)',
    'create table made ("a\x1bb" integer)',
    'create table made as select 1 as "a\nb"',
    'create table made as select 1 as "a\0b"',
]
PROVOKED = [
    "",
    "selec 1",
    "select",
    "select 1; select 2",
    "select * from nowhere",
    "select nothing from orders",
    "select * from orders where o_orderkey = 'x'",
    "select 1/0 from nowhere_either",
    "select cast('a' as integer)",
    "select error('/etc/passwd')",
    "select * from read_csv('/etc/passwd')",
    "select * from '/etc/passwd'",
    "select * from information_schema.tables",
    "select * from duckdb_settings()",
    "select getenv('HOME')",
    "pragma database_list",
    "attach '/tmp/x' as y",
    "copy orders to '/tmp/x'",
    "set threads = 1",
    "install httpfs",
    "insert into nowhere values (1)",
    "insert into orders values (1)",
    "delete from nowhere",
    "update orders set nothing = 1",
    "create table orders (a int)",
    "create table t (a nosuchtype)",
    "drop table nowhere",
    "select unnest(generate_series(1, 3)) from orders group by nope",
    "select * from orders join lineitem",
    "select $1",
    "select '" + "x" * 5_000 + "' from nowhere",
    "select 'two\nlines' from nowhere",
    "select \x00",
    *NAMED_BY_A_CONTROL_CHARACTER,
]
NEVER = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|/tmp/|/root|/work/|/home/|file://|__file|__epoch|held\.|memory\."
    r"|(?-i:LINE \d)|\^|sqlglot|duckdb|pyarrow|0x[0-9a-f]{6}|internal error|(?-i:SET )\w+ ?=|https?://|\(#\d",
    re.IGNORECASE,
)
FAILING = [
    "select o_clerk::integer from orders",
    "select sum(o_clerk::integer) from orders",
    "select max(o_clerk)::integer from orders",
    "select * from orders where o_orderdate = 'never'",
    "select o_clerk, count(*) from orders group by o_clerk having sum(o_comment::integer) > 1",
    "select max(o.o_orderkey) from orders o join lineitem l on o.o_clerk::integer = l.l_orderkey",
    "with x as (select o_clerk::integer as n from orders) select max(n) from x",
    "select sum(o_orderkey) // 0 from orders",
    "select o_orderdate, sum(o_orderkey) // (count(*) - count(*)) from orders group by o_orderdate",
    "select (select o_orderkey from orders)",
    "select strptime(o_clerk, '%Y') from orders",
    "create table made as select o_clerk::integer as n from orders",
]
BINDING = [
    "select\n nope from orders",
    "select memory.orders.o_clerk from orders, lineitem",
    "select x -> x + 1 from (select [1] as x)",
    "select list_transform([1], x -> x + 1)",
    "delete from orders where nope = 1",
    "create table made (i decimal(99, 2))",
]
PLACE = re.compile(r"\(line (\d+), column (\d+)\)")


def check(said: str, wrote: str) -> None:
    """One line, and nothing of the node but what the client himself wrote."""
    assert said.strip()
    assert "\n" not in said.strip(), said
    assert len(said) < 2_500
    for found in NEVER.finditer(said):
        assert found[0] in wrote, said


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "statement", [*PROVOKED, *FAILING, *BINDING], ids=lambda text: text[:30].replace("\n", " ").replace("\0", "0")
)
def test_an_error_of_a_statement_is_one_line_about_the_statement(cluster, statement):
    errors = []
    with cluster.client() as client:
        for ask in (client.sql, client.explain):
            try:
                ask(statement)
            except BallistaError as error:
                errors.append(str(error))
    command = flight.FlightDescriptor.for_command(pack(message("CommandStatementQuery", query=statement)))
    with flight.connect(f"grpc://{cluster.addresses()[0]}") as driver:
        try:
            driver.get_flight_info(command)
        except (flight.FlightError, pa.ArrowException) as error:
            errors.append(str(error).partition(". gRPC client debug context")[0].partition(". Detail:")[0])
    assert errors
    for said in errors:
        check(said, statement)
        for line, column in PLACE.findall(said):
            assert int(column) <= len(statement.split("\n")[int(line) - 1]) + 1, said


@pytest.mark.parametrize("statement", NAMED_BY_A_CONTROL_CHARACTER)
def test_a_control_character_in_the_name_of_a_column_is_said_to_be_one(cluster, statement):
    with cluster.client() as client, pytest.raises(BallistaError, match=r"the sign U\+00..\b.*otherwise"):
        client.sql(statement)


@pytest.mark.parametrize("statement", FAILING)
def test_what_fails_on_its_data_tells_of_no_place_or_piece_that_only_its_plan_has(cluster, statement):
    with cluster.client() as client, pytest.raises(SqlError) as raised:
        client.sql(statement)
    said = str(raised.value)
    check(said, statement)
    assert not PLACE.search(said), said
    assert raised.value.details.keys() <= {"table"}
    for piece in re.findall(r"source column (.+)$|in expression \((.*)\)", said):
        assert "".join(piece) in statement, said


def test_a_place_in_a_text_that_the_client_did_not_send_is_not_told(cluster):
    own = "select 1,\n `nope` from orders"
    with cluster.client() as client:
        with pytest.raises(SqlError, match="nope") as raised:
            client.sql(own, dialect="spark")
        assert not PLACE.search(str(raised.value))
        assert "line" not in raised.value.details
        with pytest.raises(SqlError, match=r"nope.*\(line 2, column 2\)"):
            client.sql(own.replace("`", '"'))


def exchange(driver, data):
    writer, reader = driver.do_exchange(flight.FlightDescriptor.for_command(data))
    with writer:
        reader.read_all()


def test_an_error_of_the_protocol_is_one_line_too(cluster):
    with flight.connect(f"grpc://{cluster.addresses()[0]}") as driver:
        for data in (b"", b"{", b"[]", b'{"kind": "leg"}', b'{"kind": "write", "target": {}}', b"\xff" * 50):
            with pytest.raises((flight.FlightError, pa.ArrowException)) as raised:
                exchange(driver, data)
            check(str(raised.value).partition(". gRPC client debug context")[0].partition(". Detail:")[0], "")
        for action in ("held", "shell", "explain", "refresh"):
            with pytest.raises((flight.FlightError, pa.ArrowException)) as raised:
                list(driver.do_action(flight.Action(action, b"{}")))
            check(str(raised.value).partition(". gRPC client debug context")[0].partition(". Detail:")[0], "")


SPOILT = [
    {"folder": ".", "attempt": "x"},
    {"folder": "orders", "attempt": "."},
    {"folder": "../snapshots", "attempt": "x"},
    {"folder": "orders", "attempt": "x"},
    {"folder": "orders"},
    {"folder": "orders@1", "attempt": "a" * 250},
]


@pytest.mark.parametrize("part", SPOILT, ids=lambda part: "-".join(part.values())[:30])
def test_an_error_of_a_spoilt_ticket_names_no_object_of_the_store(cluster, part):
    handle = SqlStatement(query="insert into orders values (1) returning o_orderkey", part=part).handle()
    ticket = flight.Ticket(pack(message("TicketStatementQuery", statement_handle=handle)))
    failures = flight.FlightError, pa.ArrowException
    with flight.connect(f"grpc://{cluster.addresses()[0]}") as driver, pytest.raises(failures) as raised:
        driver.do_get(ticket).read_all()
    said = str(raised.value).partition(". gRPC client debug context")[0].partition(". Detail:")[0]
    check(said, "")
    assert "answers" not in said
    assert ".arrow" not in said


def test_an_error_over_http_is_one_line_of_json(cluster):
    for path, method in (("/nothing", "GET"), ("/../../etc/passwd", "GET"), ("/status", "POST"), ("/%00", "PUT")):
        request = Request(cluster.status_url("scheduler-1") + path, method=method)
        with pytest.raises(HTTPError) as raised:
            urlopen(request, timeout=60)
        check(" ".join(raised.value.read().decode().split()), "")
