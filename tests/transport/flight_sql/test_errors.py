"""The port under bad input: refused with a status and one line; nothing of the server's inside leaves it."""

import importlib.util
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.errors import (
    BallistaError,
    NotOwner,
    PartitionsUnassigned,
    SqlError,
    TryLater,
    Unauthenticated,
    Unsupported,
    UnsupportedExpression,
    WriteIncomplete,
)
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight_sql.actions import ACTIONS
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.flight_sql.service import AnswerPart, Description
from ballista_py.transport.flight_sql.sessions import ACTIONS as SESSION_ACTIONS
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.transport.flight_sql.status import to_status

REFUSED = (flight.FlightError, pa.ArrowException)
NUMBERS = pa.schema([("a", pa.int64())])
INSIDE = (b"Traceback", b"secret", b"/root", b".py", b"line ", b"site-packages")


class Crashing:
    """A service in which every method fails in a way that must not be told."""

    def _crash(self, *_arguments):
        raise ValueError("secret in /root/key.py, line 7")

    describe = returned = parts = run = update = ingest = tables = _crash


class CrashingLater(Crashing):
    """A query that fails after its first batch."""

    def describe(self, statement):
        return Description(schema=NUMBERS, parameters=pa.schema([]))

    def returned(self, statement, token):
        return None

    def parts(self, statement):
        return [AnswerPart()]

    def run(self, statement, context):
        def batches():
            yield pa.record_batch([[1]], schema=NUMBERS)
            self._crash()

        return StreamResult(schema=NUMBERS, batches=batches())


def wiretap(target):
    """The proxy of the transport's own tests, which keeps every byte that a server sends."""
    path = Path(__file__).parents[2] / "transport" / "conftest.py"
    spec = importlib.util.spec_from_file_location("transport_kit", path)
    kit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kit)
    return kit.Wiretap(target)


def calls(client):
    """One call of every kind that reaches the service."""
    query = flight.FlightDescriptor.for_command(pack(message("CommandStatementQuery", query="select 1")))
    tables = pack(message("CommandGetTables"))
    ingest = message("CommandStatementIngest", table="t")
    ingest.table_definition_options.if_exists = 2
    prepare = pack(message("ActionCreatePreparedStatementRequest", query="select 1"))

    def put(command):
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(pack(command)), NUMBERS)
        writer.write_batch(pa.record_batch([[1]], schema=NUMBERS))
        writer.done_writing()
        reader.read()
        writer.close()

    return (
        lambda: client.get_flight_info(query),
        lambda: client.get_schema(query),
        lambda: client.do_get(flight.Ticket(tables)).read_all(),
        lambda: client.do_get(flight.Ticket(pack(_ticket("select 1")))).read_all(),
        lambda: put(message("CommandStatementUpdate", query="delete from t")),
        lambda: put(ingest),
        lambda: list(client.do_action(flight.Action("CreatePreparedStatement", prepare))),
    )


def _ticket(query):
    return message("TicketStatementQuery", statement_handle=SqlStatement(query=query).handle())


def test_no_traceback_path_or_secret_is_on_the_wire(serve):
    with wiretap(serve(Crashing()).address) as tap:
        client = flight.connect(f"grpc://{tap.address}")
        for call in calls(client):
            with pytest.raises((*REFUSED, OSError), match=r"internal error \(ValueError\)"):
                call()
        for call in (
            lambda: list(client.list_flights()),
            lambda: client.get_flight_info(flight.FlightDescriptor.for_path("a")),
            lambda: client.get_schema(flight.FlightDescriptor.for_command(b"\xff")),
            lambda: client.do_get(flight.Ticket(b"\xff")),
            lambda: list(client.do_action(flight.Action("CreatePreparedStatement", b"\xff"))),
        ):
            with pytest.raises(REFUSED):
                call()
        seen = bytes(tap.seen)
    assert b"internal error" in seen
    assert [word for word in INSIDE if word in seen] == []


def test_nothing_leaks_when_an_answer_fails_in_its_middle(serve):
    with wiretap(serve(CrashingLater()).address) as tap:
        client = flight.connect(f"grpc://{tap.address}")
        reader = client.do_get(flight.Ticket(pack(_ticket("select 1"))))
        assert reader.read_chunk().data.num_rows == 1
        with pytest.raises(REFUSED, match="internal error"):
            reader.read_chunk()
        seen = bytes(tap.seen)
    assert [word for word in INSIDE if word in seen] == []


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_garbage_is_refused_and_the_port_goes_on(data, garbage_port):
    client = garbage_port
    noise = st.binary(max_size=200)
    name = data.draw(st.sampled_from(["CommandStatementQuery", "CommandGetTables", "TicketStatementQuery"]))
    torn = pack(message(name))[: data.draw(st.integers(0, 60))]
    junk = data.draw(noise)
    descriptor = flight.FlightDescriptor.for_command(data.draw(st.sampled_from([junk, torn, torn + junk])))
    handle = message("TicketStatementQuery", statement_handle=data.draw(noise))
    action = data.draw(st.sampled_from(sorted({*ACTIONS, *SESSION_ACTIONS} - {"ClosePreparedStatement"})))
    for call in (
        lambda: client.get_flight_info(descriptor),
        lambda: client.get_schema(descriptor),
        lambda: client.do_get(flight.Ticket(pack(handle))).read_all(),
        lambda: list(client.do_action(flight.Action(action, junk))),
    ):
        said = _said(call)
        assert "Traceback" not in said
        assert "internal error" not in said


def _said(call):
    """How the port refused a call; nothing if it did not."""
    try:
        call()
    except REFUSED as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def garbage_port():
    from functools import partial
    from types import SimpleNamespace

    from ballista_py.runtime import SystemRuntime
    from ballista_py.threads import spawn
    from ballista_py.transport.flight.server import FlightServer
    from ballista_py.transport.flight_sql.port import FlightSqlService
    from ballista_py.transport.security.access import PUBLIC

    class Nothing(CrashingLater):
        def tables(self):
            return {}

        def run(self, statement, context):
            return StreamResult(schema=NUMBERS, batches=[])

    service = partial(FlightSqlService, ready=Nothing, runtime=SystemRuntime())
    server = FlightServer(
        "127.0.0.1:0", SimpleNamespace(verbs=()), SystemRuntime(), service=service, access=PUBLIC, spawn=spawn
    )
    client = flight.connect(f"grpc://127.0.0.1:{server.port}")
    yield client
    assert client.do_get(flight.Ticket(pack(message("CommandGetCatalogs")))).read_all().num_rows == 1
    client.close()
    server.shutdown(lambda stop: stop())


@pytest.mark.parametrize(
    ("error", "kind", "state"),
    [
        (SqlError("Table 'a' does not exist"), pa.ArrowInvalid, "42P01"),
        (SqlError("syntax error at or near"), pa.ArrowInvalid, "42601"),
        (SqlError("whatever"), pa.ArrowInvalid, "42000"),
        (UnsupportedExpression("no"), pa.ArrowNotImplementedError, "0A000"),
        (Unsupported("no"), pa.ArrowNotImplementedError, "0A000"),
        (PartitionsUnassigned("none"), flight.FlightUnavailableError, "57P03"),
        (NotOwner("not mine"), flight.FlightUnavailableError, "57P03"),
        (TryLater("busy"), flight.FlightUnavailableError, "53300"),
        (Unauthenticated("who?"), flight.FlightUnauthenticatedError, "28000"),
        (WriteIncomplete("half"), flight.FlightInternalError, "40003"),
        (BallistaError("?"), flight.FlightInternalError, "XX000"),
        (KeyError("/root/secret"), flight.FlightInternalError, "XX000"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_an_error_has_its_status_and_sqlstate_at_the_client(serve, error, kind, state):
    class Failing(Crashing):
        def returned(self, statement, token):
            return None

        def describe(self, statement):
            raise error

    with pytest.raises(kind, match=rf"\[SQLSTATE {state}\]") as caught:
        serve(Failing()).start("CommandStatementQuery", query="select 1")
    assert "/root" not in str(caught.value)


def test_a_message_is_one_line_of_a_bounded_length():
    text = str(to_status(SqlError("a\n\tb " + "ä" * 50_000)))
    assert "\n" not in text
    assert len(text) < 1_100
    assert text.endswith("… [SQLSTATE 42000]")


@pytest.mark.parametrize(
    "given", [{"catalog": "other"}, {"schema": "other"}, {"catalog": "ballista", "schema": "x"}]
)
def test_rows_for_another_catalog_or_schema_are_refused(port, given):
    command = pack(message("CommandStatementIngest", table="items", **given))
    descriptor = flight.FlightDescriptor.for_command(command)
    with pytest.raises(pa.ArrowInvalid, match=r"all tables are in ballista\.main"):
        port.raw().do_put(descriptor, pa.schema([("id", pa.int64())]))[0].close()


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"5"])
def test_a_command_that_is_no_json_object_is_its_senders_error(port, data):
    with port.raw() as client:
        with pytest.raises(flight.FlightError, match="the command is not a JSON object"):
            list(client.do_action(flight.Action("tasks", data)))
        with pytest.raises(flight.FlightError, match="the command is not a JSON object"):
            client.do_exchange(flight.FlightDescriptor.for_command(data))[1].read_all()


def test_what_needs_a_transaction_is_refused_wherever_one_is_named(port):
    with pytest.raises(pa.ArrowNotImplementedError, match="transactions"):
        port.start("CommandStatementQuery", query="select 1", transaction_id=b"x")
    for action in ("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint"):
        with pytest.raises(pa.ArrowNotImplementedError, match="transactions"):
            list(port.raw().do_action(flight.Action(action, b"")))


def test_more_calls_than_the_port_takes_are_told_to_try_later(serve):
    port = serve(max_calls=1)
    client = port.raw()
    info = port.start("CommandStatementQuery", query="select * from range(10000000)")
    reader = client.do_get(info.endpoints[0].ticket)
    reader.read_chunk()
    with pytest.raises(flight.FlightUnavailableError, match=r"try again later \[SQLSTATE 53300\]"):
        port.start("CommandStatementQuery", query="select 1")
    reader.cancel()


def test_a_client_that_stops_sending_is_cut_off_and_one_that_says_it_is_there_is_not(serve):
    port = serve(idle_ms=1_200)
    command = message("CommandStatementIngest", table="items")
    command.table_definition_options.if_exists = 2
    batch = pa.record_batch([[1]], schema=NUMBERS)

    patient = port.raw()
    writer, reader = patient.do_put(flight.FlightDescriptor.for_command(pack(command)), NUMBERS)
    writer.write_batch(batch)
    for _ in range(12):  # twice as long as a stream may be idle
        time.sleep(0.2)
        writer.write_metadata(b"still here")
    writer.write_batch(batch)
    writer.done_writing()
    assert reader.read() is not None
    writer.close()
    assert port.writes.tables["items"][1].num_rows == 2

    silent = port.raw()
    del port.asked[:]
    writer, _reader = silent.do_put(flight.FlightDescriptor.for_command(pack(command)), NUMBERS)
    writer.write_batch(batch)
    deadline = time.monotonic() + 30
    while not port.asked or port.server.open_calls():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with suppress(*REFUSED):  # told, if it listens
        writer.close()
    assert port.writes.tables["items"][1].num_rows == 2


def test_a_table_of_which_the_client_died_half_way_is_not_ingested(serve, tmp_path):
    """On the wire a client that died looks like one that has sent everything."""
    port = serve()
    program = f"""
import pyarrow as pa, pyarrow.flight as flight, time
from ballista_py.transport.flight_sql.messages import message, pack
command = message("CommandStatementIngest", table="items")
command.table_definition_options.if_exists = 2
schema = pa.schema([("a", pa.int64())])
client = flight.connect("{port.url}")
writer, _ = client.do_put(flight.FlightDescriptor.for_command(pack(command)), schema)
writer.write_batch(pa.record_batch([[1]], schema=schema))
print("sent", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as client:
        assert client.stdout.readline() == b"sent\n"
        while not port.asked:
            time.sleep(0.01)
        client.kill()
    deadline = time.monotonic() + 30
    while port.server.open_calls():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert port.writes.tables == {}


class Flood:
    """More rows than any socket buffers."""

    def __init__(self):
        self.cancelled = []

    def describe(self, statement):
        return Description(schema=NUMBERS, parameters=pa.schema([]))

    def returned(self, statement, token):
        return None

    def parts(self, statement):
        return [AnswerPart()]

    def run(self, statement, context):
        big = pa.record_batch([pa.array(range(200_000), pa.int64())], schema=NUMBERS)
        batches = (big for _ in range(1_000))
        return StreamResult(schema=NUMBERS, batches=batches, cancel=lambda: self.cancelled.append(1))


def test_a_port_is_shut_down_under_a_client_that_does_not_read(serve):
    port = serve(Flood())
    client = port.raw()
    reader = client.do_get(port.start("CommandStatementQuery", query="x").endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows
    assert port.server.shutdown(lambda stop: threading.Thread(target=stop, daemon=True).start(), 6_000)
    with pytest.raises(REFUSED):
        reader.read_all()


def test_a_reader_that_stops_reading_gives_its_resources_back(serve):
    service = Flood()
    port = serve(service, idle_ms=300)
    client = port.raw()
    reader = client.do_get(port.start("CommandStatementQuery", query="x").endpoints[0].ticket)
    deadline = time.monotonic() + 30
    while not service.cancelled:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(REFUSED, match="nothing of it was read"):
        reader.read_all()
