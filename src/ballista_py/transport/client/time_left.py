"""The time limit of a statement as its client keeps it: a scheduler may hang, or answer nonsense, and say it lives."""

from __future__ import annotations

from math import ceil

from attrs import field, frozen

from ballista_py.errors import SqlError, TimeLimit
from ballista_py.runtime import Runtime


@frozen
class TimeLeft:
    """Until when a statement may take, from its construction on; without `timeout` (seconds) it may take for ever.

    Raises `SqlError` for a timeout that is no positive number.

    >>> from ballista_py.runtime import SystemRuntime
    >>> TimeLeft(SystemRuntime(), None).ms()
    >>> TimeLeft(SystemRuntime(), 30).ms() <= 30_000
    True
    """

    runtime: Runtime
    timeout: float | None
    _began_ms: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        given = self.timeout
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if given is not None and not (is_number and 0 < given < float("inf")):
            raise SqlError("a time limit is a positive number of seconds")

    @_began_ms.default
    def _now(self) -> float:
        return self.runtime.monotonic_ms()

    def ms(self) -> float | None:
        """What is left, in milliseconds; None where there is no limit. Raises `TimeLimit` when it is over."""
        if self.timeout is None:
            return None
        left_ms = self._began_ms + self.timeout * 1e3 - self.runtime.monotonic_ms()
        if left_ms <= 0:
            raise TimeLimit(f"the statement took longer than {self.timeout:g} s, which is its time limit")
        return float(ceil(left_ms))  # which is said in errors
