"""Callers who show nothing do not keep those out who do."""

import threading
from functools import partial

import grpc
import pyarrow.flight as flight
import pytest

from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.listener import Strangers
from ballista_py.transport.flight_sql.legs import PartsService
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.transport.security.access import PARTS
from ballista_py.transport.security.callers import TicketHolders


class Call:
    def __init__(self, name: str, cut: list[str]) -> None:
        self.name, self._cut = name, cut

    def cut(self) -> None:
        self._cut.append(self.name)


def test_the_oldest_of_a_host_and_of_all_give_way():
    cut: list[str] = []
    strangers = Strangers(SystemRuntime(), most=4, most_of_host=2)
    calls = {name: Call(name, cut) for name in ("a1", "a2", "a3", "b1", "b2", "c1")}
    for name, call in calls.items():
        strangers.came(call, name[0])
    assert cut == ["a1", "a2"]
    strangers.known(calls["a3"])
    strangers.known(calls["a3"])  # and again when it is over
    strangers.came(Call("a4", cut), "a")
    assert cut == ["a1", "a2"]
    for call in calls.values():
        strangers.known(call)
    assert len(strangers._calls) == 1


@pytest.mark.timeout(120)
def test_streams_without_a_ticket_do_not_close_the_port(serve, kit):
    """Each has a thread, and half of a message; who shows a ticket is answered."""
    command = {"kind": "numbers", "batches": 2}
    service = partial(PartsService, command_of=lambda _ticket, _digest: command)
    served = serve(service=service, access=PARTS, callers=TicketHolders())
    served.server._calls.strangers.most_of_host = 8
    address = f"127.0.0.1:{served.server.port}"
    go_on = threading.Event()

    def nothing():
        go_on.wait(100)
        yield b""

    with grpc.insecure_channel(address) as channel:
        method = channel.stream_stream("/arrow.flight.protocol.FlightService/DoGet")
        silent = [method(nothing()) for _ in range(40)]
        kit.wait_until(lambda: sum(call.done() for call in silent) >= 30)
        client = flight.connect(f"grpc://{address}")
        for _ in range(5):
            assert client.do_get(ticket()).read_all().num_rows == 20
        go_on.set()


def ticket() -> flight.Ticket:
    """One that the port reads; what it is for is the handler's."""
    statement = SqlStatement(query="select 1", part={"leg": {"kind": "numbers"}})
    return flight.Ticket(pack(message("TicketStatementQuery", statement_handle=statement.handle())))
