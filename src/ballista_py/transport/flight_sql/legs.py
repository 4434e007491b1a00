"""The data port of an executor that also gives the parts of Flight SQL answers to whoever holds their tickets."""

from __future__ import annotations

from typing import Any

import pyarrow.flight as flight

from ballista_py.errors import TransportError
from ballista_py.transport.flight_server import FlightService
from ballista_py.transport.flight_sql.answers import answer
from ballista_py.transport.flight_sql.messages import unpack
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.transport.flight_sql.status import to_status


class LegService(FlightService):
    """Our own protocol, and `do_get` for the tickets that `Part.address` goes with."""

    spoken = (*FlightService.spoken, flight.FlightMethod.DO_GET)

    def do_get(self, context: Any, ticket: Any) -> Any:
        try:
            command = _leg_command(ticket.ticket)
            return answer(self._calls.enter(context), lambda call: self._handler.stream(command, call.context))
        except BaseException as error:
            raise to_status(error) from None


def _leg_command(ticket: bytes) -> dict[str, Any]:
    """The command for the leg in the ticket."""
    command = unpack(ticket)
    if command.DESCRIPTOR.name == "TicketStatementQuery":
        part = SqlStatement.from_handle(command.statement_handle).part
        if part is not None and isinstance(part.get("command"), dict):
            return dict(part["command"])
    raise TransportError("an executor gives parts of answers alone: send statements to a scheduler")
