"""What is done for one call of a client or of a node, and that it may be over before it is done.

Whoever answers a call says so with `working`; whatever runs long in that thread asks `current_work()` whether anybody
still waits, and says how it can be stopped. So a client that is gone, or a time limit, stops what is under way wherever
it is, though the functions in between know nothing of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from ballista_py.errors import BallistaError, TimeLimit, to_wire
from ballista_py.runtime import Runtime
from ballista_py.traces import TraceContext, in_this_span

T = TypeVar("T")
_WROTE: ContextVar[str | None] = ContextVar("wrote", default=None)


class Work:
    """The work behind one call. It may be asked to end from any thread; the first reason counts.

    `wanted` says whether anybody still waits for it. `client` is the name that whoever asked for it proved to have;
    nothing where nobody needs to. `trace` is what the caller said that it is part of.
    """

    def __init__(
        self,
        runtime: Runtime,
        wanted: Callable[[], bool] = lambda: True,
        client: str = "",
        trace: TraceContext | None = None,
    ) -> None:
        self.client = client
        self.trace = trace
        self.lane = ""  # tells the client for whom another node asks from others; nothing for one that asks itself
        self.job_id = ""  # of the job that it is done for
        self.waits = (
            ""  # for what a statement that is written through waits: "source", "visible"; nothing: as declared
        )
        self.is_own = False  # of the cluster itself, and of no client
        self.is_viewer = False  # of somebody who may look at the node, and no more
        self.is_apart = False  # what is computed for it is computed where it can be ended, whatever it is
        self._runtime = runtime
        self._wanted = wanted
        self._lock = runtime.lock()
        self._stops: dict[int, Callable[[], None]] = {}
        self._when_over: list[Callable[[], None]] = []
        self._is_over = False
        self._next = 0
        self._reason: BallistaError | None = None
        self._until_ms: float | None = None
        self._limit_ms = 0.0
        self._met = ""
        self._abandoned: BallistaError | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether it was ended because nobody waited for it any more."""
        return self._reason is not None and self._reason is self._abandoned

    @property
    def reason(self) -> BallistaError | None:
        """Why it was asked to end, if it was."""
        return self._reason

    def limit_to(self, limit_ms: float | None) -> None:
        """End it `limit_ms` from now; of several limits the earliest counts, None is none."""
        if limit_ms is None:
            return
        until_ms = self._runtime.monotonic_ms() + limit_ms
        with self._lock:
            if self._until_ms is None or until_ms < self._until_ms:
                self._until_ms, self._limit_ms = until_ms, limit_ms

    def left_ms(self) -> float | None:
        """How much of its time is left, at least a millisecond; None without a limit."""
        return None if self._until_ms is None else max(1.0, self._until_ms - self._runtime.monotonic_ms())

    def late(self) -> TimeLimit | None:
        """The error of a limit that is over."""
        if self._until_ms is None or self._runtime.monotonic_ms() < self._until_ms:
            return None
        return TimeLimit(
            f"the statement was ended after {self._limit_ms / 1e3:g} s, which is its time limit: ask for less, or "
            f"raise statement_timeout_ms of the schedulers or the statement's own timeout{self._met}"
        )

    def meet(self, obstacle: BallistaError | None) -> None:
        """Remember what it waits for to pass, so that it is told if the time is over before that; None: nothing now."""
        self._met = "" if obstacle is None else f" (it waited, because: {to_wire(obstacle)['message']})"

    def end(self, reason: BallistaError) -> None:
        """Stop all that is under way for it, and whatever begins from now on."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            stops = list(self._stops.values())
            self._stops.clear()
        for stop in stops:
            stop()

    def when_over(self, then: Callable[[], None]) -> None:
        """Call `then` once when the call is over, however that comes to be; at once if it is."""
        with self._lock:
            if not self._is_over:
                self._when_over.append(then)
                return
        then()

    def over(self) -> None:
        """The call is over: nothing is done for it any more, and nobody reads what was done."""
        with self._lock:
            self._is_over, then = True, self._when_over
            self._when_over = []
        for each in then:
            each()

    def check(self) -> None:
        """Raise the reason if it was asked to end, if its time is over, or if nobody waits for it any more."""
        if self._reason is None:
            late = self.late()
            if late is not None:
                self.end(late)
            elif not self._wanted():
                self._abandoned = BallistaError("nobody waits for the answer any more")
                self.end(self._abandoned)
        if self._reason is not None:
            raise self._reason

    def add_stop(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Call `stop` when it is asked to end, at once if it was; the result takes that back."""
        with self._lock:
            self._next += 1
            number = self._next
            if self._reason is None:
                self._stops[number] = stop
        if self._reason is not None:
            stop()

        def forget() -> None:
            with self._lock:
                self._stops.pop(number, None)

        return forget


def current_work() -> Work | None:
    """The work that this thread does, if it is done for a call."""
    found: Work | None = _current.get()
    return found


def current_client() -> str:
    """The proved name of the client for whom this thread works; nothing if there is none."""
    work = current_work()
    return "" if work is None else work.client


def run_apart() -> None:
    """Have all that is computed for the work of this thread computed where it can be ended, at other nodes, too."""
    work = current_work()
    if work is not None:
        work.is_apart = True


def runs_apart() -> bool:
    """Whether what this thread computes is to be computed where it can be ended, whatever it is."""
    work = current_work()
    return work is not None and work.is_apart


@contextmanager
def working(work: Work | None) -> Iterator[None]:
    """Around what a thread does for a call."""
    before = _current.get()
    _current.set(work)
    try:
        yield
    finally:  # not by a token: a stream of rows may be closed in another context than it began in
        _current.set(before)


def each_working(work: Work | None, items: Iterable[T]) -> Iterator[T]:
    """The items, each of them made as work for the call, in whichever thread asks for it."""
    iterator = iter(items)
    while True:
        with working(work):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def carried(call: Callable[[Any], T]) -> Callable[[Any], T]:
    """`call` as part of the work of this thread, and in its span, in whichever thread it is called."""
    work = current_work()
    call = in_this_span(call)

    def run(item: Any) -> T:
        with working(work):
            return call(item)

    return run


def require_wanted() -> None:
    """Raise as `Work.check` if what this thread does is done for a call that is over, or out of time."""
    work = current_work()
    if work is not None:
        work.check()


def pause(runtime: Runtime, ms: float, obstacle: BallistaError | None = None) -> None:
    """Let so much time pass as part of the work of this thread, or as much as it has left. Raises as `Work.check`.

    The `obstacle` is what it waits for to pass: a time limit that is over before it did names it.
    """
    work = current_work()
    if work is None:
        runtime.sleep_ms(ms)
        return
    work.meet(obstacle)
    work.check()
    left_ms = work.left_ms()
    runtime.sleep_ms(ms if left_ms is None else min(ms, left_ms))
    work.check()


@contextmanager
def writing(text: str) -> Iterator[None]:
    """Around the start of what a client wrote as `text`, which `written` gives. Entered and left on one thread."""
    token = _WROTE.set(text)
    try:
        yield
    finally:
        _WROTE.reset(token)


def written(text: str) -> str:
    """What the client wrote for whom `text` is run now: with the marks of his parameters, not with their values."""
    return _WROTE.get() or text


@contextmanager
def stopped_by(stop: Callable[[], None]) -> Iterator[None]:
    """Around what `stop` ends, when the work of this thread is asked to end."""
    work = current_work()
    if work is None:
        yield
        return
    work.check()
    forget = work.add_stop(stop)
    try:
        yield
    finally:
        forget()


_current: ContextVar[Any] = ContextVar("ballista_work", default=None)
