"""The public port: Arrow Flight SQL beside our own protocol.

Commands arrive as protobuf in descriptors and tickets; every one is answered from the statement or the pattern that
it carries. Handles and tickets hold the whole statement, so any scheduler continues what another began; what is
remembered between calls (`bindings`) is little, bounded and expires. Errors leave as `status.to_status`
makes them.

A statement that changes something runs in `get_flight_info`, because drivers ask no `do_get` for one without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa
from attrs import evolve

from ballista_py.errors import NotRunning, SqlError, TransportError, Unsupported
from ballista_py.runtime import Runtime
from ballista_py.transport.arrow.door import RowsIn
from ballista_py.transport.coordinators import READ_ACTIONS, WRITE_ACTIONS, Actions, Coordinator, WriteCoordinator
from ballista_py.transport.flight.calls import OpenCall, OpenCalls
from ballista_py.transport.flight.listener import ServedCall
from ballista_py.transport.flight.methods import PutWriter, Writer
from ballista_py.transport.flight.server import DataHandler, FlightService, StreamResult
from ballista_py.transport.flight_sql.actions import ACTIONS, cancel_result, cancelled_tickets, run_action
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.answers import answer, endpoint, flight_info
from ballista_py.transport.flight_sql.bindings import Bindings
from ballista_py.transport.flight_sql.legs import MAX_TICKET_BYTES
from ballista_py.transport.flight_sql.messages import message, pack, unpack
from ballista_py.transport.flight_sql.metadata import METADATA, metadata_schema, metadata_table
from ballista_py.transport.flight_sql.polling import POLL_MS, POLLED, poll_info, polled_job
from ballista_py.transport.flight_sql.puts import PUTS, put
from ballista_py.transport.flight_sql.service import MetricsSink, StatementService
from ballista_py.transport.flight_sql.sessions import ACTIONS as SESSION_ACTIONS
from ballista_py.transport.flight_sql.sessions import (
    Session,
    run_session_action,
    session_of,
    set_by_statement,
    timeout_ms,
    write_wait,
)
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.transport.flight_sql.status import to_status
from ballista_py.transport.otlp.rows import read_export
from ballista_py.transport.security.callers import TOKEN_HEADER, header
from ballista_py.transport.security.passwords import Passwords
from ballista_py.transport.statuses import LinkBroke
from ballista_py.work import current_client

C = TypeVar("C")
QUERIES = ("CommandPreparedStatementQuery", "CommandStatementQuery", "CommandStatementSubstraitPlan")
METRICS_PATH = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
EXPORT = "Export"
NO_COLUMNS = pa.schema([])
NO_TOKEN = "nobody-is-asked"  # noqa: S105 - what is said where there are no tokens
# They send their headers when they are done, because they may set options of the session.
_MAY_SET = ("GetFlightInfo", "PollFlightInfo", "DoPut", "DoAction")
_AROUND_TICKET_BYTES = 1 << 10  # of the message that carries one


class FlightSqlService(FlightService):
    """The Flight methods of a scheduler. `ready` gives the service, `reads` that for read jobs and `writes` that for
    writes from many processes, or they raise `TryLater` while there is none.

    Without `keep` nothing is sent while a statement thinks. `passwords` are asked at handshakes; without any clients
    show nothing, and a handshake lets in everybody as every other call does. `metrics` takes exports of OpenTelemetry's
    metrics service; without it that is no service of the port.
    """

    spoken = (
        "DoExchange", "DoAction", "DoGet", "DoPut", "GetFlightInfo", "PollFlightInfo", "GetSchema", "ListActions",
        "Handshake", "Export",
    )  # fmt: skip
    max_command_bytes = 8 << 20
    max_command_values = 100_000

    def __init__(
        self,
        handler: DataHandler,
        calls: OpenCalls,
        *,
        ready: Callable[[], StatementService],
        runtime: Runtime,
        reads: Callable[[], Coordinator] | None = None,
        writes: Callable[[], WriteCoordinator] | None = None,
        keep: KeepAlive | None = None,
        passwords: Passwords | None = None,
        metrics: Callable[[], MetricsSink] | None = None,
    ) -> None:
        self._metrics = metrics
        if metrics is not None:
            self.besides = {METRICS_PATH: EXPORT}
        self._passwords = passwords
        self._ready = ready
        self._reads = reads
        self._writes = writes
        self._keep = keep
        self._runtime = runtime
        self._bindings = Bindings(runtime)
        self._lock = runtime.lock()
        self._runs: dict[tuple[str, str], list[OpenCall]] = {}  # by client and run_id
        super().__init__(handler, calls)

    def claimed(self, call: ServedCall, headers: Mapping[str, Any]) -> str:
        if call.method != "Handshake" or self._passwords is None:
            return super().claimed(call, headers)
        name, call.given_token = self._passwords.introduced(header(headers, TOKEN_HEADER))
        return name

    def do_handshake(self, call: ServedCall) -> str:
        """The token for the calls that follow; nobody asks for it where clients show none."""
        with self._calls.enter(call, "Handshake"):
            return call.given_token or NO_TOKEN

    def export(self, call: ServedCall, data: bytes) -> bytes:
        """Take in an export of metrics, whole or not at all; returns the answer, which has nothing to say."""
        with self._calls.enter(call, f"{EXPORT} metrics"), self._calls.holding(call.claimed) as hold:
            assert self._metrics is not None
            self._metrics().take(read_export(data, hold))
            return b""

    def open(self, call: ServedCall, headers: Mapping[str, Any]) -> None:
        if call.method in ("Handshake", EXPORT):  # they are of no session
            return
        call.session = session_of(headers, self._runtime.new_id)
        if call.method not in _MAY_SET:
            _send_cookie(call)

    def get_flight_info(self, call: ServedCall, descriptor: Any) -> Any:
        with self._answering(call, "GetFlightInfo", descriptor.cmd) as (opened, command):
            schema = metadata_schema(command)
            if schema is not None:
                return flight_info(schema, descriptor, [endpoint(pack(command))])
            statement = self._bindings.complete(_query(command, _dialect(call)))
            if _set_option(statement.query, call):
                return flight_info(NO_COLUMNS, descriptor, [], 0)
            return self._statement_info(descriptor, statement, opened, call.session.token)

    def poll_flight_info(self, call: ServedCall, descriptor: Any) -> Any:
        """Run a statement as a job, or ask how one is that was begun so; see `polling`."""
        with self._answering(call, "PollFlightInfo", descriptor.cmd) as (_, command):
            job_id = polled_job(command)
            if job_id is not None:
                return poll_info(self._ready().polled().poll(job_id, POLL_MS), descriptor)
            statement = self._bindings.complete(_query(command, _dialect(call)))
            if _set_option(statement.query, call):
                return message("PollInfo", info=flight_info(NO_COLUMNS, descriptor, [], 0), progress=1.0)
            return poll_info(self._ready().polled().submit(statement), descriptor)

    def get_schema(self, call: ServedCall, descriptor: Any) -> pa.Schema:
        with self._answering(call, "GetSchema", descriptor.cmd) as (_, command):
            schema = metadata_schema(command)
            if schema is None:
                schema = self._ready().describe(self._bindings.complete(_query(command, _dialect(call)))).schema
            return NO_COLUMNS if schema is None else schema

    def do_get(self, call: ServedCall, ticket: Any, writer: Writer) -> None:
        with self._answering(call, "DoGet", ticket.ticket) as (opened, command):
            if command.DESCRIPTOR.name == "TicketStatementQuery":
                statement = SqlStatement.from_handle(command.statement_handle)
                with self._cancellable(statement.run_id, opened):
                    result = self._ready().run(statement, opened.context)
                    answer(result, opened, writer, self._keep)
                return
            table = metadata_table(command, lambda: self._ready().tables())
            result = StreamResult(schema=table.schema, batches=table.to_batches())
            answer(result, opened, writer, self._keep)

    def do_put(self, call: ServedCall, descriptor: Any, reader: RowsIn, writer: PutWriter) -> None:
        with self._answering(call, "DoPut", descriptor.cmd) as (opened, command):
            service, session = self._ready(), call.session

            def update(statement: SqlStatement) -> int:
                if _set_option(statement.query, call):
                    return 0
                return service.update(statement, opened.context, session.token)

            result = put(command, reader, service, opened, session, self._bindings, update)
            _send_cookie(call)
            writer.write(result)

    def do_action(self, call: ServedCall, action: Any) -> list[bytes]:
        if action.type in READ_ACTIONS.names:
            return self._coordinated(call, action, READ_ACTIONS, self._reads)
        if action.type in WRITE_ACTIONS.names:
            return self._coordinated(call, action, WRITE_ACTIONS, self._writes)
        if action.type not in ACTIONS:
            return super().do_action(call, action)
        with self._entered(call, f"DoAction {action.type}"):
            if action.type in SESSION_ACTIONS:
                result, call.session = run_session_action(action.type, action.body, call.session)
                return [result]
            if action.type in ("CancelFlightInfo", "CancelQuery"):
                self._cancel(cancelled_tickets(action.type, action.body))
                return [cancel_result(action.type)]
            return run_action(
                action.type, action.body, self._ready(), _dialect(call), self._bindings, self._runtime.new_id()
            )

    def _coordinated(
        self, call: ServedCall, action: Any, actions: Actions[C], found: Callable[[], C] | None
    ) -> list[bytes]:
        """What a Coordinator answers to an Agent."""
        with self._calls.enter(call, f"DoAction {action.type}") as opened:
            opened.context.work.limit_to(timeout_ms(call.session))
            if found is None:
                raise TransportError("this port has no read jobs, and takes no writes of many processes")
            return [actions.answer(found(), action.type, action.body, opened.context.work.client)]

    def list_actions(self, call: ServedCall) -> Mapping[str, str]:
        with self._entered(call, "ListActions"):
            return ACTIONS

    def verbs(self, handler: DataHandler) -> set[str]:
        sql = {f"DoAction {name}" for name in ACTIONS} | {f"DoPut {name}" for name in PUTS} | {"ListActions"}
        sql |= {
            "Handshake",
            f"{EXPORT} metrics",
            *(f"DoAction {name}" for name in (*READ_ACTIONS.names, *WRITE_ACTIONS.names)),
        }
        sql |= {f"{method} {name}" for method in ("GetFlightInfo", "GetSchema") for name in (*QUERIES, *METADATA)}
        sql |= {f"PollFlightInfo {name}" for name in POLLED}
        return super().verbs(handler) | sql | {f"DoGet {name}" for name in ("TicketStatementQuery", *METADATA)}

    @contextmanager
    def _answering(self, call: ServedCall, method: str, data: bytes) -> Iterator[tuple[OpenCall, Any]]:
        """Around a method that comes with a command."""
        try:
            command = unpack(data)
            with self._entered(call, f"{method} {command.DESCRIPTOR.name}") as opened:
                yield opened, command
        except BaseException as error:
            raise to_status(error) from None

    @contextmanager
    def _entered(self, call: ServedCall, verb: str) -> Iterator[OpenCall]:
        """Around every method; no error leaves it but as a status."""
        try:
            with self._calls.enter(call, verb) as opened:
                opened.context.work.limit_to(timeout_ms(call.session))
                opened.context.work.waits = write_wait(call.session)
                yield opened
            _send_cookie(call)
        except BaseException as error:
            with suppress(LinkBroke):
                _send_cookie(call)
            raise to_status(error) from None

    def _statement_info(self, descriptor: Any, statement: SqlStatement, call: OpenCall, token: str | None) -> Any:
        service = self._ready()
        returned = service.returned(statement, token)
        schema = service.describe(statement).schema if returned is None else returned[0]
        if schema is None:
            changed = service.update(statement, call.context, token)
            return flight_info(NO_COLUMNS, descriptor, [], changed)
        endpoints = []
        statement = evolve(statement, run_id=self._runtime.new_id())
        for part in service.parts(statement) if returned is None else [returned[1]]:
            handle = evolve(statement, part=part.ticket).handle()
            ticket = pack(message("TicketStatementQuery", statement_handle=handle))
            # Whoever is named second is asked when the first does not answer. An executor reads short tickets alone.
            is_short = len(ticket) <= MAX_TICKET_BYTES - _AROUND_TICKET_BYTES
            locations = [] if part.location is None or not is_short else [part.location, _SAME_CONNECTION]
            endpoints.append(endpoint(ticket, locations))
        return flight_info(schema, descriptor, endpoints)

    @contextmanager
    def _cancellable(self, run_id: str | None, call: OpenCall) -> Iterator[None]:
        """Around all of an execution, its planning too: meanwhile `_cancel` finds it."""
        if run_id is None:
            yield
            return
        key = call.context.work.client, run_id
        with self._lock:
            self._runs.setdefault(key, []).append(call)
        try:
            yield
        finally:
            with self._lock:
                left = [other for other in self._runs.pop(key, ()) if other is not call]
                if left:
                    self._runs[key] = left

    def _cancel(self, tickets: list[bytes]) -> None:
        """End the executions that these tickets started for this client. Raises `NotRunning` if none runs here."""
        found: list[OpenCall] = []
        for ticket in tickets:
            command = unpack(ticket)
            job_id = polled_job(command)
            if job_id is not None:
                self._ready().polled().cancel(job_id)
                return
            if command.DESCRIPTOR.name == "TicketStatementQuery":
                run_id = SqlStatement.from_handle(command.statement_handle).run_id or ""
                with self._lock:
                    found += self._runs.get((current_client(), run_id), ())
        if not found:
            raise NotRunning("nothing that this flight info started runs at this scheduler")
        for call in found:
            call.ask_to_end(TransportError("the statement was cancelled"))


_SAME_CONNECTION = "arrow-flight-reuse-connection://?"


def _set_option(sql: str, call: ServedCall) -> bool:
    """Do what SET or RESET says; False for another statement."""
    changed = set_by_statement(sql, call.session)
    if changed is not None:
        call.session = changed
    return changed is not None


def _send_cookie(call: ServedCall) -> None:
    """Send the headers that tell the client its session, unless they have gone. Raises `LinkBroke`."""
    if call.session is not None:
        call.send_headers_once(call.session.headers())


def _dialect(call: ServedCall) -> str | None:
    """The dialect of the session that a call belongs to."""
    found: Session = call.session
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
