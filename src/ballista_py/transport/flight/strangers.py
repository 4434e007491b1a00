"""Calls that were begun and have not shown yet who makes them: the oldest give way to newer ones.

Where what a caller shows comes in the message, as a ticket does, a call has a thread before anybody knows whose it is.
Who is honest shows it at once, and is never the oldest for long.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from attrs import define, field

from ballista_py.runtime import Runtime


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


__all__ = ["Cuttable", "Strangers"]
