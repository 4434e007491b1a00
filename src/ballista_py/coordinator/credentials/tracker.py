"""`CredentialTracker`: renews the credentials of scans that run, before they expire, and sends them to their tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, evolve, field, frozen

from ballista_py.coordinator.credentials.vendor import CredentialVendor
from ballista_py.errors import BallistaError, SourceUnavailable
from ballista_py.runtime import Runtime
from ballista_py.scans.storage_credentials import RefreshCredentials, StorageCredentials
from ballista_py.state.documents.object_state import Retry

RENEW_BEFORE_MS = 300_000.0
RETRY = Retry(unit_ms=1_000.0, longest_ms=30_000.0)
TRIES_LEFT = 4  # of a life that ends soon, so many tries are still to be had

_log = logging.getLogger(__name__)
Send = Callable[[RefreshCredentials], Iterable[str]]
RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@frozen(kw_only=True)
class Renewal:
    """When credentials are renewed: pure. `came_ms` is when they came, on the clock of the scheduler."""

    credentials: StorageCredentials
    came_ms: float
    due_ms: float | None
    failures: int = 0
    reason: str = ""

    @classmethod
    def of(cls, credentials: StorageCredentials, came_ms: float) -> Renewal:
        """Of credentials that came at `came_ms`: they are due five minutes before they expire, or after half
        of their life where that is shorter."""
        valid_ms = credentials.valid_ms
        due_ms = None if valid_ms is None else came_ms + valid_ms - min(RENEW_BEFORE_MS, valid_ms / 2)
        return cls(credentials=credentials, came_ms=came_ms, due_ms=due_ms)

    def left_ms(self, now_ms: float) -> float:
        """How long they are still good."""
        valid_ms = self.credentials.valid_ms
        return float("inf") if valid_ms is None else max(0.0, self.came_ms + valid_ms - now_ms)

    def failed(self, now_ms: float, reason: str, chance: float, retry: Retry = RETRY) -> Renewal:
        """They could not be renewed: tried again later, and more than once before they expire."""
        wait_ms = retry.delay_ms(self.failures + 1, 0.5 + chance / 2)
        left_ms = self.left_ms(now_ms)
        if left_ms > 0:
            wait_ms = min(wait_ms, left_ms / TRIES_LEFT)
        return evolve(self, due_ms=now_ms + wait_ms, failures=self.failures + 1, reason=reason)


@define(eq=False)
class CredentialLease:
    """The credentials of one scan, as long as it runs. Safe to share between threads."""

    vendor: CredentialVendor
    principal: str
    location: str
    _runtime: Runtime
    _renewal: Renewal
    _lock: Any = field(init=False, repr=False)
    _told: dict[str, int] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self._runtime.lock()

    def credentials(self) -> StorageCredentials:
        """The newest ones, good for as long as they say from now.

        Raises `SourceUnavailable`, which says why there are no newer ones, where they have expired.
        """
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            renewal = self._renewal
        if not renewal.left_ms(now_ms):
            why = renewal.reason or "they were to be renewed, and the scheduler did not come to it"
            raise SourceUnavailable(f"the credentials for '{self.location}' have expired: {why}")
        return renewal.credentials.after(now_ms - renewal.came_ms)

    def begun(self, task_id: str, number: int) -> None:
        """A task runs that was given the credentials of that `number`."""
        with self._lock:
            self._told[task_id] = number

    def ended(self, task_id: str) -> None:
        """A task runs no more."""
        with self._lock:
            self._told.pop(task_id, None)

    def untold(self) -> RefreshCredentials | None:
        """What has to be told to tasks that have older credentials; None if there is nothing."""
        with self._lock:
            renewal = self._renewal
            number = renewal.credentials.number
            behind = tuple(sorted(task for task, had in self._told.items() if had < number))
        left_ms = renewal.left_ms(self._runtime.monotonic_ms())
        if not behind or not left_ms:
            return None
        passed_ms = self._runtime.monotonic_ms() - renewal.came_ms
        return RefreshCredentials(task_ids=behind, credentials=renewal.credentials.after(passed_ms))

    def was_told(self, tasks: Iterable[str], number: int) -> None:
        """Those tasks have the credentials of that number now."""
        with self._lock:
            self._told.update({task: max(number, self._told[task]) for task in tasks if task in self._told})

    def is_due(self, now_ms: float) -> bool:
        """Whether they are to be renewed now."""
        with self._lock:
            return self._renewal.due_ms is not None and now_ms >= self._renewal.due_ms

    def renew(self) -> None:
        """Ask for new ones; what goes wrong is kept, for whoever needs credentials when the old ones have expired."""
        try:
            given = self.vendor.vend(self.principal, self.location)
            if given.location != self._renewal.credentials.location:
                raise SourceUnavailable(f"they came for '{given.location}'")
        except Exception as error:
            told = error.message if isinstance(error, BallistaError) else f"it failed ({type(error).__name__})"
            chance, now_ms = self._runtime.random(), self._runtime.monotonic_ms()
            with self._lock:
                self._renewal = self._renewal.failed(now_ms, told, chance)
            _log.warning("credentials for %s cannot be renewed: %s", self.location, told)
            return
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            number = self._renewal.credentials.number + 1
            self._renewal = Renewal.of(evolve(given, number=number), now_ms)


class CredentialTracker:
    """The credentials of all scans that a scheduler runs. Safe to share between threads.

    `send` tells an executor's tasks of new credentials and returns those that took them; whoever did not is told again
    at the next `tick`, which is to be called every second or so. `run_all` works as `map`, and may ask several
    vendors at once, so that a slow one does not hold up the others.
    """

    def __init__(self, runtime: Runtime, send: Send, run_all: RunAll = map) -> None:
        self._runtime = runtime
        self._send = send
        self._run_all = run_all
        self._lock = runtime.lock()
        self._leases: dict[int, CredentialLease] = {}

    @contextmanager
    def lease(self, vendor: CredentialVendor, principal: str, location: str) -> Iterator[CredentialLease]:
        """Credentials for one scan, renewed until the end of the `with`. Raises what `CredentialVendor.vend` does."""
        given = vendor.vend(principal, location)
        renewal = Renewal.of(given, self._runtime.monotonic_ms())
        made = CredentialLease(vendor, principal, location, self._runtime, renewal)
        with self._lock:
            self._leases[id(made)] = made
        try:
            yield made
        finally:
            with self._lock:
                del self._leases[id(made)]

    def tick(self) -> None:
        """Renew what is due, and tell the tasks that have older ones."""
        now_ms = self._runtime.monotonic_ms()
        due = [one for one in self._known() if one.is_due(now_ms)]
        for _ in self._run_all(CredentialLease.renew, due):
            pass
        for lease in self._known():
            self._tell(lease)

    def _known(self) -> list[CredentialLease]:
        with self._lock:
            return list(self._leases.values())

    def _tell(self, lease: CredentialLease) -> None:
        news = lease.untold()
        if news is None:
            return
        try:
            took = tuple(self._send(news))
        except Exception as error:  # told again at the next tick
            _log.warning("new credentials for %s were not told to tasks: %s", lease.location, type(error).__name__)
            return
        lease.was_told(took, news.credentials.number)
