"""What a soak knows of its own rows: which must be there in the end, and how many a reader may count meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from attrs import define, evolve, field, frozen

from ballista_py.runtime import Runtime

Row = tuple[int, int]  # writer and version


@frozen(kw_only=True)
class Sums:
    """Rows that statements added and removed so far: those that were begun, those that were acknowledged."""

    added_begun: int = 0
    added_done: int = 0
    removed_begun: int = 0
    removed_done: int = 0


@define
class Ledger:
    """Safe to share between threads.

    >>> from ballista_py.runtime import SystemRuntime
    >>> ledger = Ledger(SystemRuntime())
    >>> before = ledger.sums()
    >>> ledger.begin(added=50)
    >>> ledger.bounds(before), ledger.wrong_count(51, before)
    ((0, 50), 'a query counted 51 rows where 0 to 50 can be there')
    """

    runtime: Runtime
    expected: dict[int, Row] = field(factory=dict, init=False)
    _sums: Sums = field(factory=Sums, init=False)
    _lock: AbstractContextManager[object] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def begin(self, *, added: int = 0, removed: int = 0) -> None:
        """A statement is about to be sent that adds and removes so many rows."""
        with self._lock:
            sums = self._sums
            self._sums = evolve(
                sums, added_begun=sums.added_begun + added, removed_begun=sums.removed_begun + removed
            )

    def done(self, *, added: int = 0, removed: int = 0) -> None:
        """It was acknowledged."""
        with self._lock:
            sums = self._sums
            self._sums = evolve(sums, added_done=sums.added_done + added, removed_done=sums.removed_done + removed)

    def sums(self) -> Sums:
        """To be taken before a query begins."""
        with self._lock:
            return self._sums

    def bounds(self, before: Sums) -> tuple[int, int]:
        """How many rows a query may have counted that began at `before` and has just ended."""
        after = self.sums()
        return before.added_done - after.removed_begun, after.added_begun - before.removed_done

    def wrong_count(self, count: int, before: Sums) -> str | None:
        """What is wrong with the count of such a query, or None."""
        low, high = self.bounds(before)
        if low <= count <= high:
            return None
        return f"a query counted {count} rows where {low} to {high} can be there"

    def keep(self, rows: Mapping[int, Row]) -> None:
        """The rows that one writer left, all acknowledged."""
        with self._lock:
            self.expected |= rows

    def compare(self, rows: Sequence[tuple[int, int, int]]) -> list[str]:
        """What is wrong with these rows (id, writer, version), which are all that is there."""
        held = {row[0]: row[1:] for row in rows}
        missing = [i for i in self.expected if i not in held]
        extra = [i for i in held if i not in self.expected]
        other = [i for i, row in self.expected.items() if i in held and held[i] != row]
        wrong = [
            f"{len(ids)} row(s) {name}, such as {sorted(ids)[:3]}"
            for name, ids in (("missing", missing), ("never acknowledged", extra), ("of another version", other))
            if ids
        ]
        return [*wrong, *([f"{len(rows) - len(held)} row(s) doubled"] if len(rows) != len(held) else [])]
