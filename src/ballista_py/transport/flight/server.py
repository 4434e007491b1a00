"""The data port of a node: streams of record batches and small questions, over Arrow Flight.

A stream is one `do_exchange`: the client sends a JSON command, the server the schema, the batches and, as a last
message without rows, a JSON trailer with the row count. A stream without its trailer is not an answer; that is how
a reader tells a short one. While there is nothing to send the server says so every few seconds. A question is one
`do_action`, JSON to JSON. Every error leaves as one of our tree.

The handler decides what a command means. Whoever makes a port gives it the threads that answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.errors import BallistaError, ConfigError, InvalidData, TransportError
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import Runtime
from ballista_py.traces import TRACE_HEADER, read_parent
from ballista_py.transport.arrow.door import RowsIn
from ballista_py.transport.arrow.frames import answer_portions
from ballista_py.transport.endpoints import FLIGHT_MESSAGE_BYTES, Address
from ballista_py.transport.flight.calls import CallContext, OpenCall, OpenCalls
from ballista_py.transport.flight.commands import take_part
from ballista_py.transport.flight.errors import to_flight
from ballista_py.transport.flight.holdings import paced
from ballista_py.transport.flight.keepalive import AnswerLine
from ballista_py.transport.flight.listener import CallThreads, FlightListener, ServedCall
from ballista_py.transport.flight.methods import MAX_COMMAND_BYTES, METHODS, Writer, bounded
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.flight.writes import WRITES, IncomingRows
from ballista_py.transport.front.front import Front, StartFront, has_fronts
from ballista_py.transport.security.access import Access
from ballista_py.transport.security.callers import Callers, header, peer_host
from ballista_py.transport.security.connection_guard import ConnectionGuard, ConnectionLimits
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.spawn import Spawn

MAX_CALLS = 512
IDLE_MS = 120_000
SHUTDOWN_MS = 10_000
SHUTDOWN_POLL_MS = 20
SPARE_THREADS = 64  # for those who are told that there are too many
ALIVE_MS = 5_000
PACKED = b"\n"  # how a message with its type begins, and no JSON object of ours

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
    a second: it stops the work for clients that went away, and for those that have not read for `idle_ms`, it tells
    a reader that has heard nothing for `alive_ms` that the work goes on, and it cuts connections beyond what
    `connections` allows. `service` makes what speaks on the port, when it speaks more than our own protocol.

    `spawn` runs a function on another thread: calls are answered there. `callers` decides who may call (default:
    anyone), `access` what each may, and one caller has at most `caller_limit` calls at once. A call that is not over
    after `time_limit_ms`, or the shorter limit that it brings, ends with `TimeLimit`. With `tls` the port speaks
    nothing else; with `ask_client` also the client must show a certificate of its authority. Files of `tls` that are
    replaced count for the next connection. A port with `tls` and without `ask_client` is one for strangers: with
    `front`, which starts a process, HTTP/2 is read there before gRPC sees any of it; its log has `name`.
    No message that comes in has more than `message_bytes`. Large answers have their place in the `budget` of the node.

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
        spawn: Spawn,
        max_calls: int = MAX_CALLS,
        idle_ms: float = IDLE_MS,
        service: FlightServiceMaker | None = None,
        callers: Callers | None = None,
        caller_limit: int | None = None,
        time_limit_ms: float | None = None,
        tls: Tls | None = None,
        ask_client: bool = False,
        alive_ms: float = ALIVE_MS,
        connections: ConnectionLimits | None = None,
        front: StartFront | None = None,
        message_bytes: int = FLIGHT_MESSAGE_BYTES,
        name: str = "",
        budget: MemoryBudget | None = None,
    ) -> None:
        self._runtime = runtime
        limits = connections or ConnectionLimits()
        self._front: Front | None = None
        if front is not None and tls is not None and not ask_client and has_fronts():
            self._front = Front(
                Address.parse(address), tls, limits, front, runtime, name=f"{name}/front" if name else "front"
            )
        self._calls = OpenCalls(
            max_calls,
            idle_ms,
            runtime,
            callers,
            caller_limit,
            access=access,
            time_limit_ms=time_limit_ms,
            front=self._front,
            budget=budget,
        )
        self._guard = ConnectionGuard(limits.among_nodes() if ask_client else limits, runtime)
        self._tls = tls
        self._seen = None if tls is None else tls.fingerprint()
        self._spawn = spawn
        self._alive_ms = alive_ms
        self._service = (service or FlightService)(handler, self._calls)
        threads = CallThreads(spawn, self._calls.most_begun + SPARE_THREADS)
        self.port = 0 if self._front is None else self._front.port
        self._listener = FlightListener(
            evolve(Address.parse(address), port=self.port) if self._front else Address.parse(address),
            self._service.answer,
            threads,
            tls,
            ask_client=ask_client,
            offended=self._offended,
            behind=None if self._front is None else self._front.target,
            message_bytes=message_bytes,
            besides=self._service.besides,
        )
        self.port = self._listener.port
        if self._front is not None:
            self._front.open()

    def tick(self) -> None:
        """Stop the work behind answers that nobody reads, pulse the silent ones, cut connections."""
        self._calls.tick()
        if self._front is None:
            self._guard.tick(self.port, self._calls.known)
        else:
            self._front.tick(self._calls.known)
        for line in self._calls.silent_lines(self._alive_ms):
            self._spawn(line.pulse)  # a reader that does not read holds this up, and nothing else
        if self._tls is not None:
            self._tell_of_replaced(self._tls)

    def open_calls(self) -> int:
        """How many streams and questions are being answered now."""
        return len(self._calls)

    def drain(self, reason: BallistaError) -> None:
        """Answer what is new with the `reason` from now on; what was begun goes on, and can be read and cancelled."""
        self._calls.drain(reason)

    @property
    def calls(self) -> OpenCalls:
        """The calls of this port, among which those of another door can count."""
        return self._calls

    def shutdown(self, spawn: Spawn, timeout_ms: float = SHUTDOWN_MS) -> bool:
        """Refuse new calls, end the open ones, release the port. True when all that was done in `timeout_ms`.

        Open streams end with `TryLater`. After half of the time the connections of clients that do not even read
        that are cut. `spawn` runs a function on another thread, because a call's thread cannot be ended from outside;
        False means that a handler did not heed its `cancel` and still runs there.
        """
        self._calls.close()
        finished: list[bool] = []

        def stop() -> None:
            self._listener.shutdown(timeout_ms)
            if self._front is not None:
                self._front.close()
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
                self._calls.sever(self._calls.peers())
            self._runtime.sleep_ms(SHUTDOWN_POLL_MS)
        return True

    def _offended(self, peer: str) -> None:
        """Cut off, and all of that address that nobody knows; until then gRPC goes on with what they sent."""
        self._calls.refusals.offend(peer, "its headers are larger than HTTP/2 was told that they may be")
        self._guard.hurry()
        self._guard.tick(self.port, self._calls.known)

    def _tell_of_replaced(self, tls: Tls) -> None:
        """Say once whether files that were replaced can be used; handshakes look at them by themselves."""
        now = tls.fingerprint()
        if now == self._seen:
            return
        self._seen = now
        try:
            tls.check()
        except ConfigError as error:  # amid a replacement, or for good
            _log.warning("certificates were replaced and cannot be used yet: %s", error)
            return
        _log.info("port %s uses the replaced certificates", self.port)


class FlightService:
    """The Flight methods of a port; `spoken` are those that are answered, and the others refused."""

    spoken: Collection[str] = ("DoExchange", "DoAction")
    max_command_bytes = MAX_COMMAND_BYTES  # of nodes, with broadcasts
    max_command_values: int | None = None
    most_first_bytes: int | None = (
        None  # of what begins a call, before anything of it is read; None: no further bound
    )
    most_columns_bytes: int | None = None  # of the columns that may stand beside it
    knows_callers = True  # by the headers of a call
    besides: Mapping[str, str] = {}  # methods of other services, by path

    def __init__(self, handler: DataHandler, calls: OpenCalls) -> None:
        self._handler = handler
        self._calls = calls
        calls.access.check_registered(self.verbs(handler))

    def verbs(self, handler: DataHandler) -> set[str]:
        """Everything that can be asked here; the port's table has it all, or there is no port."""
        return {verb for verb in handler.verbs if verb.partition(" ")[0] in self.spoken}

    def answer(self, call: ServedCall) -> None:
        """Answer a call. Nothing of it but its headers is looked at before its caller is known. Raises `CallStatus`."""
        try:
            headers = call.headers()
            try:
                call.claimed = self.claimed(call, headers)
                self._calls.callers.proved(call.claimed, call)
            except BaseException as error:
                shown = error if isinstance(error, BallistaError) else type(error).__name__
                self._calls.refusals.note(call.peer(), shown)
                raise
            if call.method not in self.spoken:
                raise TransportError("this port answers only the commands of ballista_py's own clients")
            self._calls.begin(call.claimed, call.peer() if self.knows_callers else "")
            call.holdings = self._calls.holdings
            call.trace = read_parent(header(headers, TRACE_HEADER))
            if not self.knows_callers:
                self._calls.strangers.came(call, peer_host(call.peer()))
            try:
                self.open(call, headers)
                METHODS[call.method](self, call)
            finally:
                self._calls.strangers.known(call)
                self._calls.end(call.claimed)
        except BaseException as error:
            raise to_flight(error) from None

    def claimed(self, call: ServedCall, headers: Mapping[str, Any]) -> str:
        """Whom the headers of a call name. Raises `Unauthenticated`."""
        return self._calls.callers.claimed(headers)

    def open(self, call: ServedCall, headers: Mapping[str, Any]) -> None:
        """What else is done with a call before it is answered."""

    def exchange_of_others(self, call: ServedCall, descriptor: Any, reader: RowsIn, writer: Writer) -> None:
        """An exchange whose command is a message and not JSON."""
        raise InvalidData("the command is not a JSON object")

    def do_exchange(self, call: ServedCall, descriptor: Any, reader: RowsIn, writer: Writer) -> None:
        if descriptor.cmd.startswith(PACKED):
            self.exchange_of_others(call, descriptor, reader, writer)
            return
        data = bounded(descriptor.cmd, self.max_command_bytes)
        command = _command(data, self.max_command_values)
        with self._calls.enter(call, f"DoExchange {command.get('kind')}") as opened:
            take_part(opened.context.work, command)
            writes = command.get("kind") in WRITES
            with opened.answering(writer, filling=not writes) as line:
                if writes:
                    _receive(self._handler, command, opened, reader, line)
                    return
                _send(self._handler.stream(command, opened.context), opened, line)

    def do_action(self, call: ServedCall, action: Any) -> list[bytes]:
        with self._calls.enter(call, f"DoAction {action.type}") as opened:
            body = _command(bounded(action.body, self.max_command_bytes), self.max_command_values)
            take_part(opened.context.work, body)
            return [to_json(self._handler.action(action.type, body, opened.context))]


def _command(data: bytes, most_values: int | None) -> dict[str, Any]:
    """What a caller sent as JSON. Raises `InvalidData`: it is his to send another."""
    try:
        return from_json(data, most_values)
    except TransportError:
        raise InvalidData("the command is not a JSON object") from None


FlightServiceMaker = Callable[[DataHandler, OpenCalls], FlightService]


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
        made = paced(result.batches, call.budget, call.context.caller)
        for batch in chain.from_iterable(answer_portions(batch, call.message_bytes()) for batch in made):
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
