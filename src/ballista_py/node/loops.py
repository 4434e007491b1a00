"""The loops of a process: each calls one `tick()` again and again on a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

from ballista_py.errors import BallistaError
from ballista_py.logs import log_event
from ballista_py.runtime import Runtime

_log = logging.getLogger(__name__)
JITTER = 0.2
STOP_TIMEOUT_S = 5.0


class Loop:
    """Calls `tick` every `interval_ms` (±20 %, drawn anew each time) and at once after `poke()`.

    A tick that raises is logged and the loop goes on, because the next one may find the trouble over. `stop()`
    returns within five seconds, even if a tick hangs.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], object],
        *,
        interval_ms: float,
        runtime: Runtime,
    ) -> None:
        self._name = name
        self._tick = tick
        self._interval_ms = interval_ms
        self._runtime = runtime
        self._changed = runtime.condition()
        self._poked = False
        self._stopped = False
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Loop:
        """Start the thread; the first tick comes at once."""
        self._thread.start()
        return self

    def poke(self) -> None:
        """Make the next tick come now; pokes during a tick are combined into one further tick."""
        with self._changed:
            self._poked = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the tick under way end and call no other."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._tick()
            except BallistaError as error:
                log_event(_log, "tick_failed", logging.WARNING, loop=self._name, code=error.code, reason=error)
            except Exception:
                _log.exception("tick_crashed", extra={"ballista_fields": {"loop": self._name}})
            self._wait()

    def _wait(self) -> None:
        wait_ms = self._interval_ms * (1 + JITTER * (2 * self._runtime.random() - 1))
        until_ms = self._runtime.monotonic_ms() + wait_ms
        with self._changed:
            while not (self._poked or self._stopped):
                left_ms = until_ms - self._runtime.monotonic_ms()
                if left_ms <= 0:
                    break
                self._changed.wait(left_ms)
            self._poked = False
