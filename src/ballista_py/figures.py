"""What the floors below the node count and measure; the node says what becomes of it.

Names and labels are those of `node/status/figure_names.py`; there a figure that nobody knows is an error. A label is
one of few words, or the name of a table: never a text or an id that a client has made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ballista_py.runtime import Runtime


class Figures(Protocol):
    """Takes in what happened. Called from many threads, often: it does not wait and raises nothing at run time."""

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """So much more of it."""
        ...

    def record(self, name: str, value: float, **labels: str) -> None:
        """It took, or had, so much this time."""
        ...


class _Unseen:
    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        return None

    def record(self, name: str, value: float, **labels: str) -> None:
        return None


UNSEEN: Figures = _Unseen()


@contextmanager
def timed(figures: Figures, name: str, runtime: Runtime, **labels: str) -> Iterator[None]:
    """Around what is measured in milliseconds when it succeeds.

    >>> from ballista_py.runtime import SystemRuntime
    >>> with timed(UNSEEN, "anything_ms", SystemRuntime()):
    ...     pass
    """
    began_ms = runtime.monotonic_ms()
    yield
    figures.record(name, runtime.monotonic_ms() - began_ms, **labels)
