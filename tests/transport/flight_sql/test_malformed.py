"""Bytes that are no command are their sender's error: one line, no internal error, nothing in the log for each."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.flight as flight
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ballista_py.transport.flight_sql.actions import ACTIONS
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.flight_sql.statement import SqlStatement

HANDLE = SqlStatement(query="select $1", parameters=pa.record_batch({"a": [1]}), run_id="r").handle()
COMMANDS = [
    pack(message("CommandStatementQuery", query="select id from items where name = 'x'")),
    pack(message("CommandPreparedStatementQuery", prepared_statement_handle=HANDLE)),
    pack(message("CommandStatementUpdate", query="delete from items")),
    pack(message("CommandGetTables", catalog="c", table_name_filter_pattern="%_", table_types=["TABLE"])),
    pack(message("CommandGetSqlInfo", info=[1, 2])),
    pack(message("TicketStatementQuery", statement_handle=HANDLE)),
    pack(message("ActionCreatePreparedStatementRequest", query="select ?")),
    message("CancelFlightInfoRequest", info=b"x").SerializeToString(),
    HANDLE,
]


@st.composite
def mutated(draw) -> bytes:
    """A command with some bytes replaced, put in or taken out, or cut short."""
    data = bytearray(draw(st.sampled_from(COMMANDS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


BYTES = st.one_of(mutated(), st.binary(max_size=40))


def refusals(port, data: bytes, action: str) -> list[str]:
    """What the port says to these bytes, whichever way they come."""
    said = []
    with port.raw() as client:
        descriptor = flight.FlightDescriptor.for_command(data)

        def put() -> None:
            writer, _ = client.do_put(descriptor, pa.schema([("a", pa.int64())]))
            writer.close()

        for ask in (
            lambda: client.get_flight_info(descriptor),
            lambda: client.get_schema(descriptor),
            lambda: client.get_flight_info(flight.FlightDescriptor.for_path("a", "b")),
            lambda: client.do_get(flight.Ticket(data)).read_all(),
            lambda: list(client.do_action(flight.Action(action, data))),
            put,
        ):
            try:
                ask()
            except (flight.FlightError, pa.ArrowException, OSError, KeyError) as error:
                said.append(str(error))
    return said


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BYTES, st.sampled_from([*ACTIONS, "NoSuchAction"]))
def test_bytes_that_are_no_command_are_their_senders_error(port, caplog, data, action):
    caplog.clear()
    for words in refusals(port, data, action):
        assert "XX000" not in words
        assert "internal error" not in words
        assert "Traceback" not in words
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
