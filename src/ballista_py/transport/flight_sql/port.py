"""The public port: Arrow Flight SQL beside our own protocol.

Commands arrive as protobuf in descriptors and tickets; every one is answered from the statement or the pattern that
it carries. Handles and tickets hold the whole statement, so any scheduler continues what another began; what is
remembered between calls (`sessions`, `bindings`) is little, bounded and expires. Errors leave as `status.to_status`
makes them.

A statement that changes something runs in `get_flight_info`, because drivers ask no `do_get` for one without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
from attrs import evolve

from ballista_py.errors import SqlError, TransportError
from ballista_py.runtime import Runtime
from ballista_py.transport.endpoints import Door
from ballista_py.transport.flight_server import DataHandler, FlightService, StreamResult
from ballista_py.transport.flight_sql.actions import ACTIONS, cancel_result, cancelled_tickets, run_action
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.answers import answer
from ballista_py.transport.flight_sql.bindings import Bindings
from ballista_py.transport.flight_sql.messages import message, pack, unpack
from ballista_py.transport.flight_sql.metadata import METADATA, metadata_schema, metadata_table
from ballista_py.transport.flight_sql.puts import PUTS, put
from ballista_py.transport.flight_sql.service import StatementService
from ballista_py.transport.flight_sql.sessions import ACTIONS as SESSION_ACTIONS
from ballista_py.transport.flight_sql.sessions import SESSION, Session, Sessions, timeout_ms
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.transport.flight_sql.status import NotRunning, Unsupported, to_status
from ballista_py.transport.open_calls import OpenCall, OpenCalls

QUERIES = ("CommandPreparedStatementQuery", "CommandStatementQuery", "CommandStatementSubstraitPlan")
NO_COLUMNS = pa.schema([])


class FlightSqlService(FlightService):
    """The Flight methods of a scheduler. `ready` gives the service, or raises `TryLater` while there is none.

    Without `keep` nothing is sent while a statement thinks.
    """

    spoken = (
        flight.FlightMethod.DO_EXCHANGE,
        flight.FlightMethod.DO_ACTION,
        flight.FlightMethod.DO_GET,
        flight.FlightMethod.DO_PUT,
        flight.FlightMethod.GET_FLIGHT_INFO,
        flight.FlightMethod.GET_SCHEMA,
        flight.FlightMethod.LIST_ACTIONS,
    )

    def __init__(
        self,
        door: Door,
        handler: DataHandler,
        calls: OpenCalls,
        *,
        ready: Callable[[], StatementService],
        runtime: Runtime,
        keep: KeepAlive | None = None,
    ) -> None:
        self._ready = ready
        self._keep = keep
        self._runtime = runtime
        self._sessions = Sessions(runtime)
        self._bindings = Bindings(runtime)
        self._lock = runtime.lock()
        self._runs: dict[str, list[OpenCall]] = {}
        super().__init__(door, handler, calls)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._answering(context, "GetFlightInfo", lambda: _command(descriptor)) as (call, command):
            schema = metadata_schema(command)
            if schema is not None:
                return _info(schema, descriptor, [flight.FlightEndpoint(pack(command), [])])
            session: Session = context.get_middleware(SESSION)
            statement = self._bindings.complete(_query(command, session.options.get("dialect")))
            return self._statement_info(descriptor, statement, call, session.token)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with self._answering(context, "GetSchema", lambda: _command(descriptor)) as (_, command):
            schema = metadata_schema(command)
            if schema is None:
                schema = self._ready().describe(self._bindings.complete(_query(command, _dialect(context)))).schema
            return flight.SchemaResult(NO_COLUMNS if schema is None else schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        try:
            command = unpack(ticket.ticket)
            entered = self._calls.enter(context, _verb("DoGet", command))
            limit_ms = timeout_ms(context.get_middleware(SESSION))

            def start(call: OpenCall) -> StreamResult:
                call.context.work.limit_to(limit_ms)
                return self._rows(command, call)

            return answer(entered, start, self._keep)
        except BaseException as error:
            raise to_status(error) from None

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._answering(context, "DoPut", lambda: _command(descriptor)) as (call, command):
            result = put(command, reader, self._ready(), call, context.get_middleware(SESSION), self._bindings)
            writer.write(pa.py_buffer(result))

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        if action.type not in ACTIONS:
            return super().do_action(context, action)
        with self._entered(context, f"DoAction {action.type}"):
            body = action.body.to_pybytes()
            if action.type in SESSION_ACTIONS:
                return self._sessions.run(action.type, body, context.get_middleware(SESSION))
            if action.type in ("CancelFlightInfo", "CancelQuery"):
                self._cancel(cancelled_tickets(action.type, body))
                return [cancel_result(action.type)]
            return run_action(
                action.type, body, self._ready(), _dialect(context), self._bindings, self._runtime.new_id()
            )

    def list_actions(self, context: Any) -> list[flight.ActionType]:
        with self._entered(context, "ListActions"):
            return [flight.ActionType(name, about) for name, about in ACTIONS.items()]

    def verbs(self, handler: DataHandler) -> set[str]:
        sql = {f"DoAction {name}" for name in ACTIONS} | {f"DoPut {name}" for name in PUTS} | {"ListActions"}
        sql |= {f"{method} {name}" for method in ("GetFlightInfo", "GetSchema") for name in (*QUERIES, *METADATA)}
        return super().verbs(handler) | sql | {f"DoGet {name}" for name in ("TicketStatementQuery", *METADATA)}

    def middleware(self) -> dict[str, Any]:
        return {SESSION: self._sessions}

    @contextmanager
    def _answering(self, context: Any, method: str, read: Callable[[], Any]) -> Iterator[tuple[OpenCall, Any]]:
        """Around a method that comes with a command, which `read` gives."""
        try:
            command = read()
            with self._calls.enter(context, _verb(method, command)) as call:
                call.context.work.limit_to(timeout_ms(context.get_middleware(SESSION)))
                yield call, command
        except BaseException as error:
            raise to_status(error) from None

    @contextmanager
    def _entered(self, context: Any, verb: str) -> Iterator[OpenCall]:
        """Around every other method; no error leaves it but as a status."""
        try:
            with self._calls.enter(context, verb) as call:
                call.context.work.limit_to(timeout_ms(context.get_middleware(SESSION)))
                yield call
        except BaseException as error:
            raise to_status(error) from None

    def _statement_info(
        self, descriptor: Any, statement: SqlStatement, call: OpenCall, token: str | None
    ) -> flight.FlightInfo:
        service = self._ready()
        returned = service.returned(statement, token)
        schema = service.describe(statement).schema if returned is None else returned[0]
        if schema is None:
            changed = service.update(statement, call.context, token)
            return flight.FlightInfo(NO_COLUMNS, descriptor, [], changed, -1)
        endpoints = []
        run_id = self._runtime.new_id()
        for part in service.parts(statement) if returned is None else [returned[1]]:
            handle = evolve(statement, part=part.ticket, run_id=run_id).handle()
            ticket = pack(message("TicketStatementQuery", statement_handle=handle))
            # Whoever is named second is asked when the first does not answer.
            locations = [] if part.location is None else [part.location, _SAME_CONNECTION]
            endpoints.append(flight.FlightEndpoint(ticket, locations))
        return _info(schema, descriptor, endpoints)

    def _rows(self, command: Any, call: OpenCall) -> StreamResult:
        if command.DESCRIPTOR.name == "TicketStatementQuery":
            statement = SqlStatement.from_handle(command.statement_handle)
            result = self._ready().run(statement, call.context)
            return result if statement.run_id is None else self._cancellable(result, statement.run_id, call)
        table = metadata_table(command, lambda: self._ready().tables())
        return StreamResult(schema=table.schema, batches=table.to_batches())

    def _cancellable(self, result: StreamResult, run_id: str, call: OpenCall) -> StreamResult:
        """The result, to be found by `_cancel` until its end."""
        with self._lock:
            self._runs.setdefault(run_id, []).append(call)

        def over() -> None:
            result.cancel()
            with self._lock:
                left = [other for other in self._runs.pop(run_id, ()) if other is not call]
                if left:
                    self._runs[run_id] = left

        return evolve(result, cancel=over)

    def _cancel(self, tickets: list[bytes]) -> None:
        """End the executions that these tickets started. Raises `TransportError` if none of them runs here."""
        found: list[OpenCall] = []
        for ticket in tickets:
            command = unpack(ticket)
            if command.DESCRIPTOR.name == "TicketStatementQuery":
                run_id = SqlStatement.from_handle(command.statement_handle).run_id or ""
                with self._lock:
                    found += self._runs.get(run_id, ())
        if not found:
            raise NotRunning("nothing that this flight info started runs at this scheduler")
        for call in found:
            call.ask_to_end(TransportError("the statement was cancelled"))


_SAME_CONNECTION = "arrow-flight-reuse-connection://?"


def _command(descriptor: Any) -> Any:
    return unpack(descriptor.command or b"")


def _verb(method: str, command: Any) -> str:
    return f"{method} {command.DESCRIPTOR.name}"


def _dialect(context: Any) -> str | None:
    """The dialect of the session that a call belongs to."""
    found: Session = context.get_middleware(SESSION)
    return found.options.get("dialect")


def _query(command: Any, dialect: str | None) -> SqlStatement:
    """The statement that a command asks to run."""
    name = command.DESCRIPTOR.name
    if name == "CommandPreparedStatementQuery":
        return SqlStatement.from_handle(command.prepared_statement_handle)
    if name == "CommandStatementSubstraitPlan":
        raise Unsupported("Substrait plans are not run here: send SQL")
    if name != "CommandStatementQuery":
        raise _unknown(command)
    if command.HasField("transaction_id"):
        raise Unsupported("there are no transactions here: every statement commits by itself")
    if not command.query.strip():
        raise SqlError("the statement is empty")
    return SqlStatement(query=command.query, dialect=dialect)


def _unknown(command: Any) -> TransportError:
    return TransportError(f"{command.DESCRIPTOR.name} is nothing that can be asked in this way")


def _info(schema: pa.Schema, descriptor: Any, endpoints: list[flight.FlightEndpoint]) -> flight.FlightInfo:
    return flight.FlightInfo(schema, descriptor, endpoints, -1, -1)
