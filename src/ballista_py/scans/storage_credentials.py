"""`StorageCredentials`: what opens the files of a table for a while, as a value that shows none of it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

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
