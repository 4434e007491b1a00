"""Arrow Flight's service over plain gRPC: calls come in as bytes, and nothing of one is read before it is admitted.

pyarrow has a server of its own, which unpacks what comes before anybody may look at it. Here gRPC refuses what says
that it is compressed and what is larger than a bound by its first bytes, a call is given to its handler before its
first message is read, and a message stays bytes until it was measured.

The threads on which calls are answered: made when none is idle, and given back after a while without work.

Calls that were begun and have not shown yet who makes them: the oldest give way to newer ones.

Where what a caller shows comes in the message, as a ticket does, a call has a thread before anybody knows whose it is.
Who is honest shows it at once, and is never the oldest for long.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias

from attrs import define, field

from ballista_py.errors import InvalidData
from ballista_py.memory_budget import Reservation
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.traces import TraceContext
from ballista_py.transport.control.grpc import StatusCode, grpc, stream_handler
from ballista_py.transport.endpoints import (
    FLIGHT_MESSAGE_BYTES,
    FLIGHT_METADATA_BYTES,
    Address,
    flight_server_options,
    listen_behind,
    listen_grpc,
)
from ballista_py.transport.flight.holdings import ClientBytes
from ballista_py.transport.front.http2 import LINK_HEADER
from ballista_py.transport.security.callers import headers_too_large, peer_host
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.spawn import Spawn
from ballista_py.transport.statuses import CallStatus, LinkBroke

__all__ = ["Cuttable", "Strangers"]


IDLE_S = 10.0

_Task: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"


class CallThreads(Executor):
    """At most `limit` threads at once, each made by `spawn`; what comes beyond that waits for one.

    A task goes to the thread that became idle last. So the others stay idle and end, though a little work comes all
    the time.
    """

    def __init__(self, spawn: Spawn, limit: int, idle_s: float = IDLE_S) -> None:
        self._spawn = spawn
        self._limit = limit
        self._idle_s = idle_s
        self._lock = SystemRuntime().lock()
        self._threads = 0
        self._idle: list[SimpleQueue[_Task]] = []  # where each idle thread waits, the latest at the end
        self._late: deque[_Task] = deque()

    def __len__(self) -> int:
        return self._threads

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run `function` on one of the threads."""
        done: Future[Any] = Future()
        task: _Task = (done, lambda: function(*arguments, **named))
        with self._lock:
            if self._idle:
                self._idle.pop().put(task)
                return done
            if self._threads >= self._limit:
                self._late.append(task)
                return done
            self._threads += 1
        try:
            self._spawn(lambda: self._work(task))
        except BaseException:
            with self._lock:
                self._threads -= 1
            raise
        return done

    def _work(self, first: _Task) -> None:
        task: _Task | None = first
        mine: SimpleQueue[_Task] = SimpleQueue()
        while task is not None:
            _run(task)
            del task  # what it held must not live on while this thread waits
            task = self._next(mine)

    def _next(self, mine: SimpleQueue[_Task]) -> _Task | None:
        """The next task of the thread that waits at `mine`; None when none came for a while."""
        with self._lock:
            if self._late:
                return self._late.popleft()
            self._idle.append(mine)
        try:
            return mine.get(timeout=self._idle_s)
        except Empty:
            with self._lock:
                if mine in self._idle:
                    self._idle.remove(mine)
                    self._threads -= 1
                    return None
        return mine.get()  # a task was given to this thread as it stopped waiting


def _run(task: _Task) -> None:
    done, function = task
    try:
        found = function()
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(found)


class Cuttable(Protocol):
    """A call that can be ended from any thread."""

    def cut(self) -> None: ...


@define
class Strangers:
    """At most `most` of them, and `most_of_host` of one host. Safe to share between threads.

    >>> from ballista_py.runtime import SystemRuntime
    >>> class Call:
    ...     def cut(self): print("cut")
    >>> calls, strangers = [Call(), Call()], Strangers(SystemRuntime(), most=9, most_of_host=1)
    >>> for call in calls: strangers.came(call, "10.0.0.7")
    cut
    """

    runtime: Runtime
    most: int
    most_of_host: int
    _calls: dict[int, tuple[Cuttable, str]] = field(init=False, factory=dict)  # in the order of coming
    _of_host: dict[str, int] = field(init=False, factory=dict)
    _lock: AbstractContextManager[Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def came(self, call: Cuttable, host: str) -> None:
        """A call was begun; the oldest of its host, or of all, is ended if there are too many."""
        with self._lock:
            self._calls[id(call)] = call, host
            self._of_host[host] = self._of_host.get(host, 0) + 1
            oldest: Cuttable | None = None
            if self._of_host[host] > self.most_of_host:
                oldest = next(one for one, its in self._calls.values() if its == host)
            elif len(self._calls) > self.most:
                oldest = next(iter(self._calls.values()))[0]
            if oldest is not None:
                self._forget(oldest)
        if oldest is not None:
            oldest.cut()

    def known(self, call: Cuttable) -> None:
        """It has shown who makes it, or is over."""
        with self._lock:
            self._forget(call)

    def _forget(self, call: Cuttable) -> None:
        _, host = self._calls.pop(id(call), (None, None))
        if host is not None:
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]


METHODS = (
    "Handshake", "ListFlights", "GetFlightInfo", "PollFlightInfo", "GetSchema", "DoGet", "DoPut", "DoExchange",
    "DoAction", "ListActions",
)  # fmt: skip
SERVICE = "arrow.flight.protocol.FlightService"
_NAMES_OF_PEER = "x509_subject_alternative_name"
_EXTRA_INFO = "grpc-status-details-bin"
_ARROW_STATUS, _ARROW_MESSAGE = "x-arrow-status", "x-arrow-status-message-bin"
OFFENCE_MS = 1_000.0
_IO_ERROR = "5"  # Arrow's clients look for the extra info of an error beside such a number

_log = logging.getLogger(__name__)


class ServedCall:
    """One call: who calls with which headers, its messages, and the way back. `method` as Flight names it.

    `send` may be used by one thread at a time, `receive` by one. A message of more than `most_bytes` is refused before
    anybody looks at it; None: those that the port takes may come.
    """

    def __init__(
        self, method: str, requests: Iterator[bytes], context: Any, send: Callable[[bytes], None]
    ) -> None:
        self.method = method
        self.claimed = ""
        self.given_token = ""
        self.session: Any = None
        self.holdings: ClientBytes | None = None
        self.trace: TraceContext | None = None
        self.most_bytes: int | None = None
        self._has_sent_headers = False
        self._holds = 0
        self._place: Reservation | None = None
        self._requests = requests
        self._context = context
        self._send = send

    def headers(self) -> Mapping[str, Sequence[Any]]:
        """All values of each header."""
        found: dict[str, list[Any]] = {}
        for name, value in self._context.invocation_metadata():
            found.setdefault(name, []).append(value)
        return found

    def peer(self) -> str:
        """Where the call comes from, as gRPC names it."""
        return str(self._context.peer())

    def peer_identity(self) -> bytes:
        """The first name in the certificate of the caller; nothing without one."""
        names = self._context.auth_context().get(_NAMES_OF_PEER) or [b""]
        return bytes(names[0])

    def cut(self) -> None:
        """End it, from any thread: whoever waits for a message of it gets `LinkBroke`."""
        self._context.cancel()

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return not self._context.is_active()

    def send_headers(self, headers: Mapping[str, str]) -> None:
        """Send headers of the answer, before anything else of it. Raises `LinkBroke`."""
        self._has_sent_headers = True
        try:
            self._context.send_initial_metadata(tuple(headers.items()))
        except grpc.RpcError:
            raise LinkBroke("the caller went away") from None

    def send_headers_once(self, headers: Mapping[str, str]) -> None:
        """As `send_headers`, unless headers have gone, or there are none."""
        if headers and not self._has_sent_headers:
            self.send_headers(headers)

    def send(self, message: bytes) -> None:
        """Send a message; waits while the reader is too far behind. Raises `LinkBroke`."""
        if self._context.is_active():
            self._send(message)
            if self._context.is_active():
                return
        raise LinkBroke("the reader of the answer went away")

    def receive(self) -> bytes:
        """The next message; waits for it. Raises `StopIteration` at their end, and `LinkBroke`.

        They end for a caller that was done, and also for one that died. gRPC learns the second just after the first,
        and asking once more comes after both. A message counts among the bytes of its client until the next one is
        asked for, or `let_go`. Raises `TryLater` when those are too many, and `InvalidData` for more than `most_bytes`.
        """
        self.let_go()
        try:
            try:
                message = next(self._requests)
            except StopIteration:
                message = next(self._requests)
        except grpc.RpcError:
            raise LinkBroke("the caller went away") from None
        if self.most_bytes is not None and len(message) > self.most_bytes:
            raise InvalidData(f"a message has {len(message):,} bytes, and {self.most_bytes:,} are the most here")
        if self.holdings is not None:
            self.holdings.exchange(self._holder(), 0, len(message))
            self._holds = len(message)
            self._place = self.holdings.reserved(self._holder(), len(message))
        return message

    def let_go(self) -> None:
        """The message that came last is not needed any more."""
        held, self._holds = self._holds, 0
        place, self._place = self._place, None
        if place is not None:
            place.end()
        if self.holdings is not None and held:
            self.holdings.exchange(self._holder(), held, 0)

    def _holder(self) -> str:
        return self.claimed or peer_host(self.peer())

    def received(self) -> Iterator[bytes]:
        """The messages that are still to come."""
        return _Received(self)

    def finish(self, status: CallStatus | None) -> None:
        """End the call with this status, or with success."""
        if status is None:
            self._send(None)  # type: ignore[arg-type]  # how gRPC is told
            return
        if status.extra:
            self._context.set_trailing_metadata(
                ((_ARROW_STATUS, _IO_ERROR), (_ARROW_MESSAGE, status.text.encode()), (_EXTRA_INFO, status.extra))
            )
        self._context.abort(StatusCode[status.code], status.text)


class FrontedCall(ServedCall):
    """A call that came through a front, which says who called; nobody else can reach the socket."""

    def peer(self) -> str:
        for name, value in self._context.invocation_metadata():
            if name == LINK_HEADER:
                return str(value)
        return ""


class _Received:
    """An iterator that is no generator, so that an error of a message does not end it."""

    def __init__(self, call: ServedCall) -> None:
        self._call = call

    def __iter__(self) -> _Received:
        return self

    def __next__(self) -> bytes:
        return self._call.receive()


Answer = Callable[[ServedCall], None]


def forget_places(error: BaseException | None) -> None:
    """Let go of where the error and those before it were raised, and so of all that was at hand there.

    A call remembers the reason for which it ended, so what was on its way would stay until garbage is looked for.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


class FlightListener(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC has no types
    """A listening port, from construction until `shutdown`; `answer` is called with each call, on one of `threads`.

    It returns when the call was answered, or raises a `CallStatus`. `offended` is told the peer of a call whose
    headers are larger than they may be; the call is refused. With `ask_client` only clients whose certificate
    is of the authority in `tls` get in; files of `tls` that are replaced count for the next connection. A port that is
    `behind` a front listens at that Unix socket instead, and headers were measured when they come. A message above
    `message_bytes` is refused by its first bytes. `besides` are methods of other services, by path. Raises
    `ConfigError` naming the address when it cannot be had, or the file that cannot be used.
    """

    def __init__(
        self,
        address: Address,
        answer: Answer,
        threads: CallThreads,
        tls: Tls | None,
        *,
        ask_client: bool,
        offended: Callable[[str], None],
        behind: str | None = None,
        message_bytes: int = FLIGHT_MESSAGE_BYTES,
        besides: Mapping[str, str] | None = None,
    ) -> None:
        self._answer = answer
        self._offended = offended
        self._runtime = SystemRuntime()
        self._changed = self._runtime.condition()
        self._running = 0
        self._server = grpc.server(threads, options=flight_server_options(not ask_client, message_bytes))
        self._handlers = {f"/{SERVICE}/{name}": stream_handler(self._handler(name)) for name in METHODS}
        self._handlers |= {path: stream_handler(self._handler(name)) for path, name in (besides or {}).items()}
        self._offence = stream_handler(self._offence_handler())
        self._tells_of_offence_until_ms = 0.0
        self._server.add_generic_rpc_handlers((self,))
        self._is_behind = behind is not None
        if behind is None:
            self.port = listen_grpc(self._server, address, tls, ask_client=ask_client).port
        else:
            listen_behind(self._server, behind)
            self.port = address.port
        self._server.start()

    def shutdown(self, grace_ms: float) -> None:
        """Release the port and wait for the calls under way; those that are not over after `grace_ms` are cut off."""
        self._server.stop(grace_ms / 1e3).wait()
        with self._changed:
            while self._running:
                self._changed.wait()

    def service(self, details: Any) -> Any:
        """What handles a call, as gRPC asks on its own thread; None: nothing, and the call is refused there.

        A thread and a place in the queue before it are not for headers that are too large. One such call at a time
        gets them, because only a handler is told where a call comes from; one that gRPC never starts counts for a
        second, so that it does not speak for all that come after it.
        """
        if self._is_behind or not headers_too_large(details.invocation_metadata, FLIGHT_METADATA_BYTES):
            return self._handlers.get(details.method)
        now_ms = self._runtime.monotonic_ms()
        if now_ms < self._tells_of_offence_until_ms:
            return None
        self._tells_of_offence_until_ms = now_ms + OFFENCE_MS
        return self._offence

    def _offence_handler(self) -> Callable[..., None]:
        def handle(_requests: Iterator[bytes], context: Any, _send: Callable[[bytes], None]) -> None:
            try:
                self._offended(str(context.peer()))
            finally:
                self._tells_of_offence_until_ms = 0.0
            limit = f"{FLIGHT_METADATA_BYTES >> 10} KiB of headers"
            context.abort(StatusCode["RESOURCE_EXHAUSTED"], f"a call may have {limit}")

        handle.experimental_non_blocking = True  # type: ignore[attr-defined]
        return handle

    def _handler(self, method: str) -> Callable[..., None]:
        def handle(requests: Iterator[bytes], context: Any, send: Callable[[bytes], None]) -> None:
            call = (FrontedCall if self._is_behind else ServedCall)(method, requests, context, send)
            with self._changed:
                self._running += 1
            status: CallStatus | None = None
            try:
                self._answer(call)
            except CallStatus as raised:
                status = raised
            except BaseException as error:
                _log.error("a call failed for a reason that its caller is not told", exc_info=error)
                status = CallStatus("INTERNAL", "internal error")
            finally:
                call.let_go()
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()
            forget_places(status)
            call.finish(status)

        # gRPC hands over the way to send, so that a handler may write when it likes and from several threads.
        handle.experimental_non_blocking = True  # type: ignore[attr-defined]
        return handle
