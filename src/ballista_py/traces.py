"""Which trace a piece of work belongs to: told from node to node as W3C says, and the span that a thread works in.

Whoever starts something says so with `within`; whatever is done below it says `spanned`. Nothing is recorded unless the
node exports traces: then a span of a statement has children, otherwise it only has its ids.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from attrs import frozen

T = TypeVar("T")
TRACE_HEADER = "traceparent"
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[^\s]{0,256})?")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_SAMPLED = 1


@frozen
class TraceContext:
    """The ids of a span, 32 and 16 hexadecimal digits, and whether its trace is to be recorded."""

    trace_id: str
    span_id: str
    sampled: bool = False

    def header(self) -> str:
        """The value of `traceparent`.

        >>> TraceContext("a" * 32, "b" * 16, True).header()
        '00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01'
        """
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def read_parent(text: str) -> TraceContext | None:
    """What a `traceparent` says; None for what is none, because a call without a trace is as good.

    >>> read_parent("00-" + "a" * 32 + "-" + "b" * 16 + "-01").sampled
    True
    >>> read_parent("00-" + "0" * 32 + "-" + "b" * 16 + "-01"), read_parent("' or 1 = 1")
    (None, None)
    """
    found = _PARENT.fullmatch(text)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    if found[2] == _NO_TRACE or found[3] == _NO_SPAN:
        return None
    return TraceContext(found[2], found[3], bool(int(found[4], 16) & _SAMPLED))


class Span(Protocol):
    """Something under way. It ends once; from any thread."""

    @property
    def context(self) -> TraceContext: ...

    @property
    def recorded(self) -> bool:
        """Whether anybody will see what is said of it."""
        ...

    def child(self, name: str, **attributes: Any) -> Span:
        """What begins now as a part of it."""
        ...

    def set(self, **attributes: Any) -> None:
        """Say more of it."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """Say that it is over, and why it failed if it did."""
        ...


class Tracer(Protocol):
    """Begins what has no parent in this process."""

    def begin(self, name: str, parent: TraceContext | None = None, **attributes: Any) -> Span: ...


@frozen
class PlainSpan:
    """A span that nobody records: it has ids, so that what it calls on other nodes can be found by them."""

    context: TraceContext
    recorded: bool = False

    def child(self, name: str, **attributes: Any) -> Span:
        return self

    def set(self, **attributes: Any) -> None:
        return None

    def end(self, error: BaseException | None = None) -> None:
        return None


@frozen
class PlainTracer:
    """Gives ids and records nothing. A trace that a caller wants recorded stays so for other nodes."""

    new_id: Callable[[], str]  # 32 hexadecimal digits

    def begin(self, name: str, parent: TraceContext | None = None, **attributes: Any) -> Span:
        new = self.new_id()
        if parent is None:
            return PlainSpan(TraceContext(new, self.new_id()[:16]))
        return PlainSpan(TraceContext(parent.trace_id, new[:16], parent.sampled))


def current_span() -> Span | None:
    """The span that this thread works in."""
    found: Span | None = _current.get()
    return found


def current_trace_id() -> str:
    """The id of the trace that this thread works for; nothing if there is none."""
    span = current_span()
    return "" if span is None else span.context.trace_id


@contextmanager
def within(span: Span | None) -> Iterator[None]:
    """Around what a thread does for a span."""
    before = _current.get()
    _current.set(span)
    try:
        yield
    finally:  # not by a token: rows may be closed in another context than they began in
        _current.set(before)


@contextmanager
def spanned(name: str, **attributes: Any) -> Iterator[Span | None]:
    """Around a part of what the thread does, if that is recorded."""
    outer = _current.get()
    if outer is None or not outer.recorded:
        yield None
        return
    span = outer.child(name, **attributes)
    _current.set(span)
    try:
        yield span
    except BaseException as error:
        span.end(error)
        raise
    else:
        span.end()
    finally:
        _current.set(outer)


def each_within(span: Span, items: Iterable[T]) -> Iterator[T]:
    """The items, each made in the span, in whichever thread asks for it."""
    iterator = iter(items)
    try:
        while True:
            with within(span):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def in_this_span(call: Callable[..., T]) -> Callable[..., T]:
    """`call` in the span of this thread, in whichever thread it is called."""
    span = _current.get()
    if span is None:
        return call

    def run(*arguments: Any) -> T:
        with within(span):
            return call(*arguments)

    return run


def told_parent() -> str:
    """The `traceparent` of what this thread does; nothing if it does nothing that has a trace.

    In an application that is the active span of OpenTelemetry, if that is there: it is asked, never imported.
    """
    span = current_span()
    if span is not None:
        return span.context.header()
    library = sys.modules.get("opentelemetry.trace")
    if library is None:
        return ""
    said = library.get_current_span().get_span_context()
    if not said.is_valid:
        return ""
    return TraceContext(
        f"{said.trace_id:032x}", f"{said.span_id:016x}", bool(said.trace_flags & _SAMPLED)
    ).header()


_current: ContextVar[Any] = ContextVar("ballista_span", default=None)
