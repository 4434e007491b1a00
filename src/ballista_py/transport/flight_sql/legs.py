"""The ports of an executor that give the parts of Flight SQL answers to whoever holds their tickets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ballista_py.errors import TransportError
from ballista_py.transport.arrow.door import RowsIn
from ballista_py.transport.flight.calls import OpenCalls
from ballista_py.transport.flight.commands import take_part
from ballista_py.transport.flight.listener import ServedCall
from ballista_py.transport.flight.methods import Writer
from ballista_py.transport.flight.server import DataHandler, FlightService
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.answers import answer
from ballista_py.transport.flight_sql.messages import unpack
from ballista_py.transport.flight_sql.statement import SqlStatement, signed_digest
from ballista_py.transport.flight_sql.status import to_status
from ballista_py.transport.table_read.exchange import READ_VERB, PartServer, give
from ballista_py.transport.table_read.messages import request_of
from ballista_py.transport.table_write.exchange import WRITE_VERB, RowsTaker, take_rows
from ballista_py.transport.table_write.messages import put_of

FETCH = "DoGet TicketStatementQuery"
MAX_TICKET_BYTES = 256 << 10  # one of a thousand partitions has 20 kB
MAX_MESSAGE_BYTES = 4 << 20  # of rows that a client brings; all else that comes in at a port for clients is short
MAX_COLUMNS_BYTES = 2 << 20  # a table of 10,000 columns has 600 kB
MAX_END_BYTES = 1 << 10  # of what is said behind rows
CommandOf = Callable[[Mapping[str, Any], str], dict[str, Any]]


class PartsService(FlightService):
    """`do_get` for the tickets that `Part.location` goes with, `do_exchange` for those of read jobs and of writes, and
    nothing else.

    `command_of` gives the command of a ticket, told the digest of what it came with, or raises what is wrong with it.
    """

    spoken: Collection[str] = ("DoGet", "DoExchange")
    knows_callers = False
    most_first_bytes: int | None = MAX_TICKET_BYTES
    most_columns_bytes: int | None = MAX_COLUMNS_BYTES

    def __init__(
        self,
        handler: DataHandler,
        calls: OpenCalls,
        *,
        command_of: CommandOf,
        reads: PartServer | None = None,
        takes: RowsTaker | None = None,
        keep: KeepAlive | None = None,
    ) -> None:
        self._command_of = command_of
        self._reads = reads
        self._takes = takes
        self._keep = keep
        super().__init__(handler, calls)

    def verbs(self, handler: DataHandler) -> set[str]:
        return {FETCH, READ_VERB, WRITE_VERB}

    def do_exchange(self, call: ServedCall, descriptor: Any, reader: RowsIn, writer: Writer) -> None:
        self.exchange_of_others(call, descriptor, reader, writer)

    def exchange_of_others(self, call: ServedCall, descriptor: Any, reader: RowsIn, writer: Writer) -> None:
        put = put_of(descriptor.cmd)
        if put is not None and self._takes is not None:
            reader.bound(header=MAX_COLUMNS_BYTES, said=MAX_END_BYTES)
            with self._calls.enter(call, WRITE_VERB) as opened:
                take_rows(self._takes, put, opened, reader, writer)
            return
        request = request_of(descriptor.cmd)
        if request is None or self._reads is None:
            raise TransportError("an executor gives parts of answers alone: send statements to a scheduler")
        reader.bound(header=MAX_TICKET_BYTES, said=MAX_TICKET_BYTES)
        call.most_bytes = MAX_TICKET_BYTES
        with self._calls.enter(call, READ_VERB) as opened:
            give(self._reads, request, opened, reader, writer)

    def do_get(self, call: ServedCall, ticket: Any, writer: Writer) -> None:
        try:
            command = self._command_of(*_leg_ticket(ticket.ticket))
            with self._calls.enter(call, FETCH) as opened:
                take_part(opened.context.work, command)
                answer(self._handler.stream(command, opened.context), opened, writer, self._keep)
        except BaseException as error:
            raise to_status(error) from None


class LegService(PartsService):
    """Our own protocol beside it, where nodes and clients use one port: in a cluster without certificates."""

    spoken = ("DoGet", *FlightService.spoken)
    knows_callers = True
    most_first_bytes = None  # nodes send broadcasts
    most_columns_bytes = None

    def verbs(self, handler: DataHandler) -> set[str]:
        return super().verbs(handler) | FlightService.verbs(self, handler)

    do_exchange = FlightService.do_exchange


def _leg_ticket(ticket: bytes) -> tuple[dict[str, Any], str]:
    """What the scheduler wrote for the executor, and the digest of all that stands around it."""
    command = unpack(ticket)
    if command.DESCRIPTOR.name == "TicketStatementQuery":
        part = SqlStatement.from_handle(command.statement_handle).part
        if part is not None and isinstance(part.get("leg"), dict):
            return dict(part["leg"]), signed_digest(command.statement_handle)
    raise TransportError("an executor gives parts of answers alone: send statements to a scheduler")
