"""The way back to the reader of one stream, which is never silent for long while the work behind it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ballista_py.errors import TransportError
from ballista_py.runtime import Runtime
from ballista_py.transport.statuses import LinkBroke

PULSE = b"{}"
FIRST_FILLING_BYTES = 32 << 10
MAX_FILLING_BYTES = 256 << 10


def filling_pulse(number: int) -> bytes:
    """The pulse of that number (from 0) since there was something to send: each is longer than the one before.

    Together they fill what HTTP/2 lets a sender have under way, about 4 MiB. Then a pulse to a reader who is gone
    without a word is not sent any more, and that shows it.

    >>> [len(filling_pulse(number)) >> 10 for number in range(5)]
    [32, 64, 128, 256, 256]
    """
    return PULSE.ljust(min(FIRST_FILLING_BYTES << min(number, 8), MAX_FILLING_BYTES))


class AnswerLine:
    """Writes to one reader, one message at a time. `pulse` says from another thread that the work still goes on.

    A pulse is a message without rows that says nothing. It keeps the reader's pings few, and those keep a reader
    from waiting for a node that was stopped or cut off. With `filling` it is a `filling_pulse`; not for a reader who
    reads nothing before all rows were sent.
    """

    def __init__(self, writer: Any, runtime: Runtime, filling: bool = True) -> None:
        self._writer: Any | None = writer
        self._runtime = runtime
        self._filling = filling
        self._pulses = 0
        self._pulsing_since_ms: float | None = None
        self._lock = runtime.lock()
        self._last_ms = runtime.monotonic_ms()
        self._busy = False

    def send(self, write: Callable[[Any], None]) -> None:
        """Let `write` write something. Raises `TransportError` when the reader went away."""
        self._busy = True
        try:
            with self._lock:
                write(self._writer)
        except LinkBroke:
            raise TransportError("the reader of the answer went away") from None
        finally:
            self._last_ms = self._runtime.monotonic_ms()
            self._pulses = 0
            self._busy = False

    def is_silent(self, now_ms: float, alive_ms: float) -> bool:
        """Whether nothing was sent for `alive_ms`, and nothing is being sent now."""
        idle = not self._busy and self._pulsing_since_ms is None and self._writer is not None
        return idle and now_ms - self._last_ms > alive_ms

    @property
    def pulsing_since_ms(self) -> float | None:
        """Since when a pulse is being sent; one that takes long has a reader that does not read."""
        return self._pulsing_since_ms

    def pulse(self) -> None:
        """Say that the work goes on; after `close`, or to a reader that went away, nothing is said."""
        if self._busy:
            return
        self._pulsing_since_ms = self._last_ms = self._runtime.monotonic_ms()
        try:
            with self._lock, suppress(LinkBroke):
                if self._writer is not None:
                    self._writer.write_metadata(filling_pulse(self._pulses) if self._filling else PULSE)
        finally:
            self._pulses += 1
            self._pulsing_since_ms = None

    def close(self) -> None:
        """Nothing is written from now on; this waits for a pulse that is being written."""
        with self._lock:
            self._writer = None
