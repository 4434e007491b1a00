"""The calls that a Flight server is answering now: how many may be open, who gave up, which ones stand still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from attrs import frozen

from ballista_py.errors import BallistaError, TransportError, TryLater, Unauthenticated
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import Runtime
from ballista_py.traces import TraceContext
from ballista_py.transport.arrow.frames import message_bytes
from ballista_py.transport.flight.holdings import ClientBytes
from ballista_py.transport.flight.keepalive import AnswerLine
from ballista_py.transport.flight.listener import Strangers
from ballista_py.transport.front.front import Front
from ballista_py.transport.security.access import Access
from ballista_py.transport.security.callers import Anyone, Callers, Refusals
from ballista_py.transport.security.connection_guard import Calls
from ballista_py.transport.sockets import parse_peer, sever
from ballista_py.work import Work, working

DEAD_AFTER_IDLES = 5
LOOKS_PER_IDLE = 4
STILL_MS = 1_000.0  # after which it is asked again whether who calls may
HURRIED_MS = 10_000.0  # what a reader may take for a message while others wait for memory
PATIENT_MS = 3_000.0


class CallContext:
    """What a handler may know of the call that it answers. Safe to use from any thread, also after the call.

    `caller` is who calls: a client by the name of its token, a node by its id, or else a host.
    """

    def __init__(
        self, raw: Any, runtime: Runtime, caller: str = "", client: str = "", trace: TraceContext | None = None
    ) -> None:
        self.peer: str = raw.peer()
        self.caller = caller
        self.is_at_work: Callable[[], bool] = lambda: False  # and waits neither to hear its client nor to be heard
        self.work = Work(runtime, wanted=lambda: not self.cancelled(), client=client, trace=trace)
        self._raw: Any | None = raw
        self._lock = runtime.lock()

    def cancelled(self) -> bool:
        """Whether the answer has no reader any more: the client cancelled, went away, or the call is over or to end."""
        if self.work.reason is not None:
            return True
        with self._lock:
            return self._raw is None or bool(self._raw.is_cancelled())

    def cut(self, reason: BallistaError) -> None:
        """End the call from any thread, also one that waits for its client; harmless once it is over."""
        self.work.end(reason)
        with self._lock:
            if self._raw is not None:
                self._raw.cut()

    def close(self) -> None:
        """Forget the call: it is over."""
        with self._lock:
            self._raw = None


class OpenCall:
    """One call under way. It is ended by its own thread; any other thread may ask it to end."""

    def __init__(
        self,
        context: CallContext,
        runtime: Runtime,
        budget: MemoryBudget | None = None,
        calls: Callable[[], int] = lambda: 1,
    ) -> None:
        self.context = context
        self.budget = budget
        self._calls = calls
        self.line: AnswerLine | None = None
        self._runtime = runtime
        self._lock = runtime.lock()
        self._cancel: Callable[[], None] | None = None
        self._reason: BallistaError | None = None
        self._sending_since_ms: float | None = None
        self._receiving_since_ms: float | None = None
        self._seen_since_ms: float | None = None
        self._stood_ms = 0.0
        context.is_at_work = lambda: self._sending_since_ms is None and self._receiving_since_ms is None

    def attach(self, cancel: Callable[[], None]) -> None:
        """Say how to stop the work behind the answer; if the call was asked to end already, it is stopped now."""
        with self._lock:
            self._cancel = cancel
            asked = self._reason is not None
        if asked:
            cancel()

    def ask_to_end(self, reason: BallistaError) -> None:
        """Stop the work behind the answer; the reader is told the first `reason`."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            cancel = self._cancel
        if cancel is not None:
            cancel()
        self.context.work.end(reason)

    def message_bytes(self) -> int:
        """How large the messages of the answer shall be now."""
        return message_bytes(self._calls())

    @property
    def reason(self) -> BallistaError | None:
        """Why the call was asked to end, if it was; the work itself may have seen first that its time is over."""
        return self._reason or self.context.work.reason

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around what is done for the call; what fails because it was asked to end raises the reason."""
        try:
            with working(self.context.work):
                yield
        except Exception:
            if self.reason is not None:
                raise self.reason from None
            raise

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Around a write to the client; a write that takes long has a client that does not read."""
        self._sending_since_ms = self._runtime.monotonic_ms()
        yield
        self._sending_since_ms = None
        if self.reason is not None:
            raise self.reason

    @contextmanager
    def answering(self, writer: Any, filling: bool = True) -> Iterator[AnswerLine]:
        """Around all that is written to the client; `filling` as of `AnswerLine`."""
        self.line = line = AnswerLine(writer, self._runtime, filling)
        try:
            yield line
        finally:
            line.close()

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Around a read from the client; a read that takes long has a client that does not write."""
        self._receiving_since_ms = self._runtime.monotonic_ms()
        try:
            yield
        except Exception:  # a read fails when the call was asked to end: that is the reason then
            if self.reason is not None:
                raise self.reason from None
            raise
        finally:
            self._receiving_since_ms = None
        if self.reason is not None:
            raise self.reason

    @property
    def waits_for_client(self) -> bool:
        """Whether the call is reading from the client now."""
        return self._receiving_since_ms is not None

    def look(self, passed_ms: float) -> None:
        """Note that `passed_ms` went by since the look before, and whether the call still waits for the client."""
        since_ms = self._receiving_since_ms if self._sending_since_ms is None else self._sending_since_ms
        if since_ms is None and self.line is not None:
            since_ms = self.line.pulsing_since_ms
        same = since_ms is not None and since_ms == self._seen_since_ms
        self._stood_ms = self._stood_ms + passed_ms if same else 0.0
        self._seen_since_ms = since_ms

    @property
    def stood_ms(self) -> float:
        """How long looks have found the same read, write or pulse waiting for the client; 0 when none does."""
        return self._stood_ms


@frozen
class Door:
    """Another way in to the calls of a port: what may be asked there, and how callers are known."""

    access: Access
    callers: Callers


def _not_counted(_size: int) -> None:
    return


class OpenCalls:
    """At most `limit` calls at once, and `caller_limit` (None: as many) of one caller. `tick` stops the work of
    those that nobody reads any more, and of those that are not over after `time_limit_ms` or a limit of their own.
    `callers` decides who may call at all, `access` what. The `front` of the port, if it has one, knows its connections.
    Large answers have their place in the `budget`; while others wait for one, readers have `HURRIED_MS` for a message.
    """

    def __init__(
        self,
        limit: int,
        idle_ms: float,
        runtime: Runtime,
        callers: Callers | None = None,
        caller_limit: int | None = None,
        *,
        access: Access,
        time_limit_ms: float | None = None,
        front: Front | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self._front = front
        self._budget = budget
        self.access = access
        self.callers: Callers = callers or Anyone()
        self.refusals = Refusals(runtime)
        # Half of the threads that there are for calls, and a quarter for one host.
        self.strangers = Strangers(runtime, most=limit, most_of_host=max(1, limit // 2))
        self.holdings = None if caller_limit is None else ClientBytes(runtime, budget=budget)
        self._limit = limit
        self._caller_limit = caller_limit
        self._time_limit_ms = time_limit_ms
        self._idle_ms = idle_ms
        self._runtime = runtime
        self._lock = runtime.lock()
        self._open: set[OpenCall] = set()
        self._by_caller: Counter[str] = Counter()
        self._begun: Counter[str] = Counter()
        self._begun_in_all = 0
        self._ended_peers: set[str] = set()
        self._closing = False
        self._draining: BallistaError | None = None
        self._looked_ms = self._asked_ms = runtime.monotonic_ms()

    def __len__(self) -> int:
        return len(self._open)

    def holding(self, claimed: str) -> AbstractContextManager[Callable[[int], None]]:
        """Around something of a caller that is held in memory; see `Holdings.holding`. Callers without a limit may."""
        return nullcontext(_not_counted) if self.holdings is None else self.holdings.holding(claimed)

    def begin(self, claimed: str, peer: str = "") -> None:
        """A call was begun by whoever its headers name; `end` follows in any case. gRPC has given it a thread already,
        and it may never say what it wants. `peer`, if given, is no stranger from now on.

        Raises `TryLater` when too many were begun, of all callers or of this one.
        """
        with self._lock:
            if self._begun_in_all >= self.most_begun:
                raise TryLater(f"{self._begun_in_all} calls were begun here already: try again later")
            if claimed and self._caller_limit is not None and self._begun[claimed] >= 2 * self._caller_limit:
                raise TryLater(f"{self._begun[claimed]} calls of this client were begun already: try again later")
            self._begun_in_all += 1
            self._begun[claimed] += 1
            if peer:
                self._ended_peers.add(peer)
        if peer and self._front is not None:
            self._front.heard(peer)

    def end(self, claimed: str) -> None:
        """A call that was begun is over."""
        with self._lock:
            self._begun_in_all -= 1
            self._begun[claimed] -= 1
            if not self._begun[claimed]:
                del self._begun[claimed]

    @property
    def most_begun(self) -> int:
        """How many calls may be begun at once."""
        return 2 * self._limit

    def known(self) -> Calls:
        """The peers with a call since this was asked last, and whether half as many calls as may be answered at once
        were begun and do not say what they want.
        """
        with self._lock:
            names = {call.context.peer for call in self._open} | self._ended_peers
            self._ended_peers = set()
            crowded = self._begun_in_all - len(self._open) >= self._limit // 2
        busy = {peer for peer in map(parse_peer, names) if peer is not None}
        return Calls(busy=busy, crowded=crowded, refused=self.refusals.take())

    @contextmanager
    def enter(self, raw_context: Any, verb: str, door: Door | None = None) -> Iterator[OpenCall]:
        """Around the answer to one call, which asks for `verb`. There is no other way in; calls that come by another
        `door` than the port's own count among the same.

        Raises `Unauthenticated` for a caller that may not, `TransportError` for a verb that the port does not have,
        `TryLater` when too many calls are open, or after `close`, and what `drain` was told, after it.
        """
        try:
            who = (door or self).callers.proved(raw_context.claimed, raw_context)
            (door or self).access.check(verb, who)
        except Unauthenticated as error:
            self.refusals.note(raw_context.peer(), error)
            raise
        self.strangers.known(raw_context)
        caller = who.name
        client = caller if who.kind == "client" else ""
        trace = getattr(raw_context, "trace", None)  # of calls over Flight, and whoever else is told one
        call = OpenCall(
            CallContext(raw_context, self._runtime, caller, client, trace),
            self._runtime,
            self._budget,
            self.__len__,
        )
        call.context.work.limit_to(self._time_limit_ms)
        call.context.work.is_viewer = who.kind in ("viewer", "anyone")
        with self._lock:
            if self._closing:
                raise TryLater("the node is shutting down: ask another one")
            if self._draining is not None and self.access.begins(verb):
                raise type(self._draining)(self._draining.message)
            if len(self._open) >= self._limit:
                raise TryLater(f"the node answers {self._limit} calls already: try again later", limit=self._limit)
            if self._caller_limit is not None and self._by_caller[caller] >= self._caller_limit:
                raise TryLater(
                    f"{self._caller_limit} calls of this client are answered already: try again when one has ended",
                    limit=self._caller_limit,
                )
            self._open.add(call)
            self._by_caller[caller] += 1
        if self._front is not None and door is None:
            self._front.heard(call.context.peer)
        try:
            with call.working():
                yield call
        finally:
            call.context.close()
            call.context.work.over()
            with self._lock:
                self._open.discard(call)
                if door is None:
                    self._ended_peers.add(call.context.peer)
                self._by_caller[caller] -= 1
                if not self._by_caller[caller]:
                    del self._by_caller[caller]

    def tick(self) -> None:
        """Stop the work for clients that went away or have not read for `idle_ms`.

        A connection over which nothing at all is read for `DEAD_AFTER_IDLES` times as long is cut. Time counts as
        far as ticks have watched it: a gap between two of them, in which this process itself may have stood still,
        counts as a quarter of `idle_ms` at most.
        """
        self.refusals.tick()
        now_ms = self._runtime.monotonic_ms()
        passed_ms = min(now_ms - self._looked_ms, self._idle_ms / LOOKS_PER_IDLE)
        self._looked_ms = now_ms
        calls = self._snapshot()
        if now_ms - self._asked_ms >= STILL_MS:
            self._asked_ms = now_ms
            self._end_of_removed(calls)
        for call in calls:
            call.look(passed_ms)
        self._cut_dead_links(calls)
        hurried = self._budget is not None and self._budget.longest_wait_ms() > PATIENT_MS
        for call in calls:
            late = call.context.work.late()
            if late is not None:
                call.ask_to_end(late)
            elif call.reason is None and call.context.cancelled():
                call.ask_to_end(TransportError("the client went away"))
            elif hurried and call.stood_ms > HURRIED_MS and not call.waits_for_client:
                call.ask_to_end(
                    TransportError(
                        f"the stream was ended: nothing of it was read for {HURRIED_MS / 1e3:g} s, and others wait for "
                        "the memory that it takes"
                    )
                )
            elif call.stood_ms > self._idle_ms:
                verb = "sent" if call.waits_for_client else "read"
                call.ask_to_end(
                    TransportError(f"the stream was ended: nothing of it was {verb} for {self._idle_ms / 1e3:g} s")
                )
                if call.waits_for_client:  # a read in gRPC ends with its connection and not before
                    self.sever([call.context.peer])

    def _end_of_removed(self, calls: tuple[OpenCall, ...]) -> None:
        """End the calls of those who may not call any more; whoever does not read that is cut."""
        for caller in {call.context.caller for call in calls}:
            try:
                self.callers.still(caller)
            except Unauthenticated as error:
                own = [call for call in calls if call.context.caller == caller]
                self.refusals.note(own[0].context.peer, error)
                self.sever({call.context.peer for call in own if call.reason is not None})
                for call in own:
                    call.ask_to_end(error)

    def _cut_dead_links(self, calls: tuple[OpenCall, ...]) -> None:
        """A write in gRPC ends with its connection, and so does the thread that waits in it."""
        stands_still: dict[str, bool] = {}
        for call in calls:
            dead = call.stood_ms > DEAD_AFTER_IDLES * self._idle_ms
            stands_still[call.context.peer] = dead and stands_still.get(call.context.peer, True)
        self.sever(peer for peer, dead in stands_still.items() if dead)

    def sever(self, peers: Iterable[str]) -> int:
        """Cut the connections to `peers`, as gRPC names them; returns how many there were."""
        return sever(peers) if self._front is None else self._front.sever(peers)

    def silent_lines(self, alive_ms: float) -> tuple[AnswerLine, ...]:
        """The ways to readers that have heard nothing for `alive_ms`."""
        now_ms = self._runtime.monotonic_ms()
        lines = (call.line for call in self._snapshot())
        return tuple(line for line in lines if line is not None and line.is_silent(now_ms, alive_ms))

    def drain(self, reason: BallistaError) -> None:
        """From now on whoever asks for something new is told the `reason`; what was begun goes on."""
        with self._lock:
            self._draining = reason

    def close(self) -> None:
        """Admit no call any more and ask all open ones to end."""
        with self._lock:
            self._closing = True
        for call in self._snapshot():
            call.ask_to_end(TryLater("the node is shutting down: ask another one"))

    def peers(self) -> tuple[str, ...]:
        """Who waits for an answer, as gRPC names them."""
        return tuple(call.context.peer for call in self._snapshot())

    def _snapshot(self) -> tuple[OpenCall, ...]:
        with self._lock:
            return tuple(self._open)
