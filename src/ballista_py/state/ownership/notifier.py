"""When to tell an executor again what it is to hold."""

from __future__ import annotations

from collections.abc import Iterable

from ballista_py.partitions.map import Owner
from ballista_py.runtime import Runtime
from ballista_py.state.members.control import HeldPartitions, UpdatePartitions
from ballista_py.state.ownership.notify import unsettled


class Notifier:
    """Remembers what was sent to whom, so that an update under way is not sent with every heartbeat.

    A newer revision is due at once, the same one again after `resend_ms`, as long as the executor does not report
    to hold what is committed. Thread-safe.
    """

    def __init__(self, runtime: Runtime, resend_ms: float) -> None:
        self._runtime = runtime
        self._resend_ms = resend_ms
        self._lock = runtime.lock()
        self._sent: dict[Owner, dict[str, tuple[int, float]]] = {}

    def due(
        self, executor: Owner, updates: Iterable[UpdatePartitions], held: Iterable[HeldPartitions]
    ) -> list[UpdatePartitions]:
        """Which of `updates` (all that is committed for the executor) to send now; they count as sent."""
        with self._lock:
            now_ms = self._runtime.monotonic_ms()
            sent = self._sent.setdefault(executor, {})
            found = [
                u for u in unsettled(updates, held) if self._is_due(sent.get(u.table.folder), u.revision, now_ms)
            ]
            sent.update((update.table.folder, (update.revision, now_ms)) for update in found)
            return found

    def forget(self, executor: Owner) -> None:
        """Take it that nothing has reached the executor: its stream ended or is new."""
        with self._lock:
            self._sent.pop(executor, None)

    def _is_due(self, sent: tuple[int, float] | None, revision: int, now_ms: float) -> bool:
        return sent is None or sent[0] < revision or now_ms - sent[1] >= self._resend_ms
