"""`StorageCredentials`: what opens the files of a table for a while, as a value that shows none of it.

And `CurrentCredentials`, which a task that runs asks for the newest ones before it opens its next file.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

from ballista_py.errors import SourceUnavailable
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret


def _names(values: Mapping[str, Secret]) -> tuple[str, ...]:
    return tuple(sorted(values))


@frozen(kw_only=True)
class StorageCredentials:
    """Values that open what lies below `location`, until they expire.

    - `location`: the prefix (`s3://bucket/path/`) that they are for; what lies elsewhere is not opened with them.
    - `values`: by the names that pyiceberg's FileIO has for them (`s3.access-key-id`, `s3.secret-access-key`,
      `s3.session-token`, `s3.endpoint`, …), each a `Secret`, so that no `repr`, log or error shows one.
    - `expires_at_ms`: when they expire by the clock of whoever vended them, in milliseconds since 1970: for people to
      read; None if they do not.
    - `valid_ms`: how long they are good from the moment at which this value was made here or came in, whatever the
      clocks say; None if they do not expire.
    - `number`: counts up with each renewal of the same credentials; of two that a task is given, the higher one
      counts.

    Two are compared by all but the texts of their secrets.

    >>> StorageCredentials(location="s3://b/t/", values={"s3.access-key-id": Secret("AKIA")})
    StorageCredentials(location='s3://b/t/', values={'s3.access-key-id': Secret(***)}, expires_at_ms=None, \
valid_ms=None, number=0)
    """

    location: str
    values: Mapping[str, Secret] = field(eq=_names)
    expires_at_ms: int | None = None
    valid_ms: float | None = None
    number: int = 0

    def after(self, passed_ms: float) -> StorageCredentials:
        """The same when `passed_ms` have passed.

        >>> StorageCredentials(location="s3://b/", values={}, valid_ms=900.0).after(1000.0).valid_ms
        0.0
        """
        return self if self.valid_ms is None else evolve(self, valid_ms=max(0.0, self.valid_ms - passed_ms))


@frozen(kw_only=True)
class RefreshCredentials:
    """New credentials for tasks that run, from the scheduler to their executor; of older ones nothing is taken."""

    task_ids: tuple[str, ...]
    credentials: StorageCredentials


class CurrentCredentials:
    """The newest credentials that a task was given. Safe to share between threads.

    Time runs here from the moment at which they came in, on a clock that never goes back: what other clocks say does
    not matter, and the way from the scheduler is all that is not counted.
    """

    def __init__(self, credentials: StorageCredentials, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._held = credentials
        self._came_ms = runtime.monotonic_ms()

    def get(self) -> StorageCredentials:
        """The newest ones, good for as long as they say from now. Ask before each file is opened.

        Raises `SourceUnavailable` where they have expired and no newer ones came in.
        """
        with self._lock:
            now = self._held.after(self._runtime.monotonic_ms() - self._came_ms)
        if now.valid_ms == 0:
            raise SourceUnavailable(
                f"the credentials for '{now.location}' have expired, and no newer ones came in"
            )
        return now

    def renew(self, credentials: StorageCredentials) -> bool:
        """Take newer ones for the same place; False, and nothing is taken, for any others."""
        with self._lock:
            if credentials.location != self._held.location or credentials.number <= self._held.number:
                return False
            self._held, self._came_ms = credentials, self._runtime.monotonic_ms()
        return True
