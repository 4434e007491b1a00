"""The port of a table server: what Agents ask of a Coordinator and Clients of a Server, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ballista_py.errors import TransportError
from ballista_py.transport.arrow.door import RowsIn
from ballista_py.transport.coordinators import READ_ACTIONS, Coordinator
from ballista_py.transport.flight.calls import OpenCalls
from ballista_py.transport.flight.commands import MEMBERS
from ballista_py.transport.flight.listener import ServedCall
from ballista_py.transport.flight.methods import Writer
from ballista_py.transport.flight.server import DataHandler, FlightService
from ballista_py.transport.table_read.exchange import READ_VERB, PartServer, give
from ballista_py.transport.table_read.messages import request_of


class TableServerService(FlightService):
    """Read jobs of `coordinator`, whose parts are given by `parts`."""

    spoken: Collection[str] = ("DoAction", "DoExchange")
    knows_callers = False

    def __init__(
        self, handler: DataHandler, calls: OpenCalls, *, coordinator: Coordinator, parts: PartServer
    ) -> None:
        self._coordinator = coordinator
        self._parts = parts
        super().__init__(handler, calls)

    def verbs(self, handler: DataHandler) -> set[str]:
        return {READ_VERB, f"DoAction {MEMBERS}", *(f"DoAction {name}" for name in READ_ACTIONS.names)}

    def do_exchange(self, call: ServedCall, descriptor: Any, reader: RowsIn, writer: Writer) -> None:
        request = request_of(descriptor.cmd)
        if request is None:
            raise TransportError("a table server gives parts of read jobs alone: it runs no statements")
        with self._calls.enter(call, READ_VERB) as opened:
            give(self._parts, request, opened, reader, writer)

    def do_action(self, call: ServedCall, action: Any) -> list[bytes]:
        if action.type not in READ_ACTIONS.names:
            return super().do_action(call, action)
        with self._calls.enter(call, f"DoAction {action.type}") as opened:
            return [READ_ACTIONS.answer(self._coordinator, action.type, action.body, opened.context.work.client)]
