"""What a client asks of the cluster itself: who belongs to it, what it holds, what it is doing."""

from __future__ import annotations

from typing import Any, Literal

from ballista_py.errors import BallistaError, ConfigError, TransportError, TryLater, WrongCluster
from ballista_py.runtime import Runtime
from ballista_py.transport.client.schedulers import LEARN_TIMEOUT_MS, Schedulers
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.commands import CANCEL, RECONCILE_ALL, REFRESH, TABLES, TASKS
from ballista_py.transport.flight.errors import is_link_failure

LOAD_TIMEOUT_S = 600.0
POLL_MS = 50.0
REFRESH_POLL_MS = 200.0


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

    def refresh(
        self,
        table: str,
        mode: Literal["full", "append"] | None = None,
        *,
        wait: bool = True,
        timeout: float = LOAD_TIMEOUT_S,
    ) -> int:
        """Let every executor compare what it holds of the table with what is stored; returns how many were told.

        With a `mode` a scheduler brings the table up to its source first, on its Spark: anew ("full"), or by the rows
        that it lacks ("append"). That is done once, though schedulers die at it; asked twice it may be done twice, with
        the same rows. This returns when it is done, unless it is not to `wait`. A table that follows changes is copied
        anew by "full", and refuses "append"; without a mode its source is not asked.

        Raises `SqlError` for a table that there is not, `ConfigError` for one that cannot be refreshed so or whose
        refresh failed, with the reason, and `TryLater` after `timeout` seconds; it goes on then.
        """
        if mode is None:
            return int(self._schedulers.call(REFRESH, {"table": table})["executors"])
        told = self._schedulers.call(REFRESH, {"table": table, "mode": mode})
        if wait:
            self._wait_until_answered(table, int(told["asked"]), timeout)
        return int(told["executors"])

    def _wait_until_answered(self, table: str, asked: int, timeout: float) -> None:
        until_ms = self._runtime.monotonic_ms() + timeout * 1e3
        while True:
            row = next((row["refresh"] for row in self.tables() if row["table"] == table), None)
            if row is None:
                raise ConfigError(f"table '{table}' was dropped while it was refreshed")
            if row["answered"] >= asked:
                break
            if self._runtime.monotonic_ms() > until_ms:
                raise TryLater(f"table '{table}' is not refreshed after {timeout:g} s: it goes on")
            self._runtime.sleep_ms(REFRESH_POLL_MS)
        if row["last_error"]:
            raise ConfigError(f"table '{table}' was not refreshed: {row['last_error']}")

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
