"""The data port of a node: streams of record batches and small questions, over Arrow Flight.

A stream is one `do_exchange`: the client sends a JSON command, the server the schema, the batches and, as a last
message without rows, a JSON trailer with the row count. A stream without its trailer is not an answer; that is how
a reader tells a short one. While there is nothing to send the server says so every few seconds. A question is one
`do_action`, JSON to JSON. Every error leaves as one of our tree.

The handler decides what a command means. gRPC owns the threads that answer; nothing is started here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight
from attrs import frozen

from ballista_py.errors import BallistaError, ConfigError, TransportError
from ballista_py.runtime import Runtime
from ballista_py.transport.access import Access
from ballista_py.transport.answer_line import AnswerLine
from ballista_py.transport.callers import Callers
from ballista_py.transport.commands import time_limit
from ballista_py.transport.connection_guard import ConnectionGuard, ConnectionLimits
from ballista_py.transport.credentials import Tls
from ballista_py.transport.endpoints import Address, Door, listen_flight
from ballista_py.transport.flight_errors import to_flight
from ballista_py.transport.flight_writes import WRITES, IncomingRows
from ballista_py.transport.open_calls import GATE, CallContext, OpenCall, OpenCalls
from ballista_py.transport.sockets import sever
from ballista_py.transport.spawn import Spawn
from ballista_py.transport.wire import from_json, to_json

MAX_CALLS = 512
IDLE_MS = 120_000
SHUTDOWN_MS = 10_000
SHUTDOWN_POLL_MS = 20
RENEW_MS = 5_000
ALIVE_MS = 5_000

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class StreamResult:
    """An answer under way.

    `batches` have exactly `schema`. `trailer` is called after the last batch and gives JSON-ready values. `cancel`
    stops the work behind the answer: it may come from any thread, more than once, and also after the end.
    """

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    trailer: Callable[[], Mapping[str, Any]] = dict
    cancel: Callable[[], None] = lambda: None


class DataHandler(Protocol):
    """What a node answers. Called from many threads at once; errors of our tree reach the client as they are."""

    @property
    def verbs(self) -> Collection[str]:
        """All commands and questions that it knows, as `access` writes them."""
        ...

    def stream(self, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        """Start the answer to `command`. Long work before the first batch should look at `context.cancelled()`."""
        ...

    def write(self, command: Mapping[str, Any], rows: IncomingRows, context: CallContext) -> Mapping[str, Any]:
        """Take in the rows of a statement (a command whose kind is one of `WRITES`) and say what became of them.

        A command that takes none drains `rows`. Nothing may be applied before the iteration over `rows` has ended
        without an error.
        """
        ...

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """Answer a small question."""
        ...


class FlightServer:
    """A listening data port, from construction until `shutdown`.

    `address` is the bind address as `host:port`; port 0 takes a free one and `port` says which. At most
    `max_calls` streams and questions are answered at once; the next one gets `TryLater`. Call `tick` several times
    a second: it stops the work for clients that went away, and for those that have not read for `idle_ms`, and it
    cuts connections beyond what `connections` allows.
    `service` makes what speaks on the port, when it speaks more than our own protocol.

    `callers` decides who may call (default: anyone), `access` what each may, and one caller has at most `caller_limit`
    calls at once. A call that is not over after `time_limit_ms`, or the shorter limit that it brings, ends with
    `TimeLimit`. With `tls` the port speaks nothing else; with `ask_client` also the client must show a certificate
    of its authority.
    `spawn` runs a function on another thread; without it the following two things are not done. A reader that has
    heard nothing for `alive_ms` is told that the work goes on. Once the files of `tls` are replaced `tick` opens
    the port anew: streams under way go on, and for some milliseconds connections are refused.

    Raises `ConfigError` naming the address when it cannot be had, or the file that cannot be used, and
    `AssertionError` for a handler with a verb that `access` does not have.
    """

    def __init__(
        self,
        address: str,
        handler: DataHandler,
        runtime: Runtime,
        *,
        access: Access,
        max_calls: int = MAX_CALLS,
        idle_ms: float = IDLE_MS,
        service: FlightServiceMaker | None = None,
        callers: Callers | None = None,
        caller_limit: int | None = None,
        time_limit_ms: float | None = None,
        tls: Tls | None = None,
        ask_client: bool = False,
        spawn: Spawn | None = None,
        alive_ms: float = ALIVE_MS,
        connections: ConnectionLimits | None = None,
    ) -> None:
        self._runtime = runtime
        self._calls = OpenCalls(
            max_calls, idle_ms, runtime, callers, caller_limit, access=access, time_limit_ms=time_limit_ms
        )
        self._guard = ConnectionGuard(connections or ConnectionLimits(), runtime)
        self._tls = tls
        self._spawn = spawn
        self._alive_ms = alive_ms
        make = service or FlightService
        bind = Address.parse(address)

        def listen(port: int) -> FlightService:
            at = Address(bind.host, port)
            return listen_flight(lambda door: make(door, handler, self._calls), at, tls, ask_client=ask_client)

        self._listen = listen
        self._in_use = None if tls is None else tls.fingerprint()
        self._unusable: Any = None
        self._service = listen(bind.port)
        self.port: int = self._service.port

    def tick(self) -> None:
        """Stop the work behind answers that nobody reads, pulse the silent ones, look for replaced certificates."""
        self._calls.tick()
        self._guard.tick(self.port, self._calls.known)
        if self._spawn is None:
            return
        for line in self._calls.silent_lines(self._alive_ms):
            self._spawn(line.pulse)  # a reader that does not read holds this up, and nothing else
        if self._tls is not None:
            self._renew(self._tls, self._spawn)

    def open_calls(self) -> int:
        """How many streams and questions are being answered now."""
        return len(self._calls)

    def shutdown(self, spawn: Spawn, timeout_ms: float = SHUTDOWN_MS) -> bool:
        """Refuse new calls, end the open ones, release the port. True when all that was done in `timeout_ms`.

        Open streams end with `TryLater`. After half of the time the connections of clients that do not even read
        that are cut. `spawn` runs a function on another thread, because gRPC's own shutdown waits without a limit;
        False means that a handler did not heed its `cancel` and still runs there.
        """
        self._calls.close()
        finished: list[bool] = []

        def stop() -> None:
            self._service.shutdown()
            finished.append(True)

        spawn(stop)
        started_ms = self._runtime.monotonic_ms()
        severed = False
        while not finished:
            waited_ms = self._runtime.monotonic_ms() - started_ms
            if waited_ms >= timeout_ms:
                return False
            if waited_ms >= timeout_ms / 2 and not severed:
                severed = True
                sever(self._calls.peers())
            self._runtime.sleep_ms(SHUTDOWN_POLL_MS)
        return True

    def _renew(self, tls: Tls, spawn: Spawn) -> None:
        """Open the port with the files as they are now, if they were replaced and can be used."""
        now = tls.fingerprint()
        if now in (self._in_use, self._unusable):
            return
        try:
            tls.check()
        except ConfigError as error:  # amid a replacement, or for good
            self._unusable = now
            _log.warning("certificates were replaced and cannot be used yet: %s", error)
            return
        spawn(self._service.shutdown)
        until_ms = self._runtime.monotonic_ms() + RENEW_MS
        while True:
            try:
                self._service = self._listen(self.port)
                break
            except ConfigError:
                if self._runtime.monotonic_ms() > until_ms:
                    raise
                self._runtime.sleep_ms(SHUTDOWN_POLL_MS)
        self._in_use = now
        _log.info("port %s uses the replaced certificates", self.port)


class FlightService(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow.flight has no types
    """The Flight methods. It accepts calls as soon as it is made; `spoken` are those that are answered."""

    spoken: Collection[Any] = (flight.FlightMethod.DO_EXCHANGE, flight.FlightMethod.DO_ACTION)

    def __init__(self, door: Door, handler: DataHandler, calls: OpenCalls) -> None:
        self._handler = handler
        self._calls = calls
        calls.access.check_registered(self.verbs(handler))
        middleware = {GATE: _Gate(self.spoken, calls), **self.middleware()}
        super().__init__(door.location, middleware=middleware, **door.options)

    def verbs(self, handler: DataHandler) -> set[str]:
        """Everything that can be asked here; the port's table has it all, or there is no port."""
        spoken = {method_name(method) for method in self.spoken}
        return {verb for verb in handler.verbs if verb.partition(" ")[0] in spoken}

    def middleware(self) -> dict[str, Any]:
        """What else looks at every call before it is answered."""
        return {}

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        try:
            command = from_json(descriptor.command or b"")
            with self._calls.enter(context, f"DoExchange {command.get('kind')}") as call:
                call.context.work.limit_to(time_limit(command))
                writes = command.get("kind") in WRITES
                with call.answering(writer, filling=not writes) as line:
                    if writes:
                        _receive(self._handler, command, call, reader, line)
                        return
                    _send(self._handler.stream(command, call.context), call, line)
        except BaseException as error:
            raise to_flight(error) from None

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        try:
            with self._calls.enter(context, f"DoAction {action.type}") as call:
                body = from_json(action.body.to_pybytes())
                call.context.work.limit_to(time_limit(body))
                return [to_json(self._handler.action(action.type, body, call.context))]
        except BaseException as error:
            raise to_flight(error) from None


def method_name(method: Any) -> str:
    """A method as the table of verbs writes it.

    >>> method_name(flight.FlightMethod.DO_EXCHANGE)
    'DoExchange'
    """
    return "".join(word.title() for word in method.name.split("_"))


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow.flight has no types
    """Refuses callers that may not, and methods that the port does not speak, before pyarrow can answer them with a
    traceback.
    """

    def __init__(self, spoken: Collection[Any], calls: OpenCalls) -> None:
        self._spoken = spoken
        self._calls = calls

    def start_call(self, info: Any, headers: Any) -> _Claim:
        try:
            claimed = self._calls.callers.claimed(headers)
        except BaseException as error:
            _log.warning(
                "a call was refused: %s", error if isinstance(error, BallistaError) else type(error).__name__
            )
            raise to_flight(error) from None
        if info.method not in self._spoken:
            raise to_flight(TransportError("this port answers only the commands of ballista_py's own clients"))
        try:
            self._calls.begin(claimed)
        except BaseException as error:
            raise to_flight(error) from None
        return _Claim(claimed, self._calls)


class _Claim(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow.flight has no types
    """Whom the headers of one call named, from its beginning to its end."""

    def __init__(self, claimed: str, calls: OpenCalls) -> None:
        super().__init__()
        self.claimed = claimed
        self._calls = calls

    def call_completed(self, _error: Any) -> None:
        self._calls.end(self.claimed)


FlightServiceMaker = Callable[[Door, DataHandler, OpenCalls], FlightService]


def _receive(
    handler: DataHandler, command: Mapping[str, Any], call: OpenCall, reader: Any, line: AnswerLine
) -> None:
    def say(message: Mapping[str, Any]) -> None:
        data = to_json(message)
        with call.sending():
            line.send(lambda writer: writer.write_metadata(data))

    with call.sending():
        line.send(lambda writer: writer.begin(pa.schema([])))
    rows = IncomingRows(reader, say, call.receiving)
    say({"result": dict(handler.write(command, rows, call.context))})


def _send(result: StreamResult, call: OpenCall, line: AnswerLine) -> None:
    call.attach(result.cancel)
    rows = 0
    try:
        with call.sending():
            line.send(lambda writer: writer.begin(result.schema))
        for batch in result.batches:
            with call.sending():
                line.send(partial(_write_batch, batch))
            rows += batch.num_rows
        if call.reason is not None:
            raise call.reason
        end = to_json({"rows": rows, "trailer": result.trailer()})
        line.send(lambda writer: writer.write_metadata(end))
    except BaseException:
        result.cancel()
        if call.reason is not None:
            raise call.reason from None
        raise


def _write_batch(batch: pa.RecordBatch, writer: Any) -> None:
    writer.write_batch(batch)
