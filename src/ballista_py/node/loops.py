"""The loops of a process: each calls one `tick()` again and again on a thread of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from threading import Thread

from ballista_py.errors import BallistaError, named
from ballista_py.logs import log_event
from ballista_py.runtime import Runtime

_log = logging.getLogger(__name__)
JITTER = 0.2
STOP_TIMEOUT_S = 5.0
SAME_REASON_MS = 1_000.0
MAX_REASONS = 64
EXIT_CODE = 70


def end_process() -> None:
    """End this node at once: one that lacks a loop looks alive and does not do its work."""
    logging.shutdown()
    os._exit(EXIT_CODE)


class Loop:
    """Calls `tick` every `interval_ms` (±20 %, drawn anew each time) and at once after `poke()`.

    A tick that raises, whatever it is, is logged (once a second for one reason) and the loop goes on, because the next
    one may find the trouble over. A loop that ends nevertheless, without `stop()`, calls `ended`: a node ends then.
    `stop()` returns within five seconds, even if a tick hangs.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], object],
        *,
        interval_ms: float,
        runtime: Runtime,
        ended: Callable[[], None] = end_process,
    ) -> None:
        self._name = name
        self._tick = tick
        self._interval_ms = interval_ms
        self._runtime = runtime
        self._ended = ended
        self._said_ms: dict[str, float] = {}  # when each reason was logged
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
        try:
            while not self._stopped:
                self._try_tick()
                self._wait()
        except BaseException:
            if not self._stopped:
                _log.critical("loop_ended", exc_info=True, extra={"ballista_fields": {"loop": self._name}})
                self._ended()

    def _try_tick(self) -> None:
        try:
            self._tick()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # a panic of Polars and GeneratorExit are no Exception
            known = named(error)
            if not isinstance(known, BallistaError):
                if self._is_news(f"{type(error).__name__} {error}"):
                    _log.exception("tick_crashed", extra={"ballista_fields": {"loop": self._name}})
            elif self._is_news(f"{known.code} {known}"):
                log_event(_log, "tick_failed", logging.WARNING, loop=self._name, code=known.code, reason=known)

    def _is_news(self, reason: str) -> bool:
        """Whether this was not logged within the last second."""
        now_ms = self._runtime.monotonic_ms()
        self._said_ms = {said: at for said, at in self._said_ms.items() if now_ms - at < SAME_REASON_MS}
        if reason in self._said_ms or len(self._said_ms) >= MAX_REASONS:
            return False
        self._said_ms[reason] = now_ms
        return True

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
