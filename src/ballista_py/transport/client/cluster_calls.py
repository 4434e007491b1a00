"""What a client asks of the cluster itself: who belongs to it, what it holds, what it is doing."""

from __future__ import annotations

from typing import Any

from ballista_py.errors import BallistaError, TransportError, TryLater, WrongCluster
from ballista_py.runtime import Runtime
from ballista_py.transport.client.schedulers import LEARN_TIMEOUT_MS, Schedulers
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.commands import CANCEL, RECONCILE_ALL, REFRESH, TABLES, TASKS
from ballista_py.transport.flight.errors import is_link_failure

LOAD_TIMEOUT_S = 600.0
POLL_MS = 50.0


class ClusterCalls:
    """The questions of a `Client` that are about no statement. Each may be asked twice."""

    _schedulers: Schedulers
    _pool: FlightPool
    _runtime: Runtime

    def tables(self) -> list[dict[str, Any]]:
        """The tables of the cluster, one JSON-ready row each."""
        return list(self._schedulers.call(TABLES, {})["rows"])

    def members(self) -> list[dict[str, Any]]:
        """The schedulers and executors of the cluster, one JSON-ready row each."""
        return self._schedulers.members()

    def reconcile_all(self) -> dict[str, int]:
        """Let a scheduler assign what waits, without the limit of an interval; the moves made, by table."""
        return dict(self._schedulers.call(RECONCILE_ALL, {})["moves"])

    def refresh(self, table: str) -> int:
        """Let every executor compare what it holds of the table with what is stored; returns how many were told.

        Raises `SqlError` for a table that there is not.
        """
        return int(self._schedulers.call(REFRESH, {"table": table})["executors"])

    def tasks(self) -> list[dict[str, Any]]:
        """What the scheduler is doing and did last, newest first, one JSON-ready row each."""
        return list(self._schedulers.call(TASKS, {})["rows"])

    def cancel(self, task_id: str) -> bool:
        """End a statement that this client has sent, by its `task_id` as `tasks` shows it; whether it was running.

        Whoever waits for it gets an error that says so. Every scheduler is asked; those that cannot be reached are
        passed over. Where clients show no tokens they are all one.

        Raises `TransportError` when no scheduler can be reached.
        """
        self._schedulers.members()
        answers = [self._cancelled_at(address, task_id) for address in self._schedulers.addresses]
        if all(answer is None for answer in answers):
            raise TransportError("no scheduler can be reached: the statement may be running still")
        return any(answers)

    def _cancelled_at(self, address: str, task_id: str) -> bool | None:
        """Whether it ran at that scheduler; None if that one does not say."""
        try:
            return bool(self._pool.call(address, CANCEL, {"task": task_id}, LEARN_TIMEOUT_MS)["cancelled"])
        except BallistaError as error:
            if isinstance(error, TryLater | WrongCluster) or is_link_failure(error, address):
                return None
            raise

    def wait_until_loaded(self, *tables: str, timeout: float = LOAD_TIMEOUT_S) -> None:
        """Return when every partition of these tables (default: all) is loaded and served, as a scheduler sees it.

        Raises `TryLater` after `timeout` seconds, naming what is missing.
        """
        until_ms = self._runtime.monotonic_ms() + timeout * 1e3
        while True:
            rows = {row["table"]: row for row in self.tables()}
            missing = [name for name in tables or rows if name not in rows or not rows[name]["ready"]]
            if not missing:
                return
            if self._runtime.monotonic_ms() > until_ms:
                raise TryLater(f"not loaded after {timeout:g} s: {', '.join(missing)}")
            self._runtime.sleep_ms(POLL_MS)
