"""Which runs go on beside each other, so that one that takes long keeps no other from its turn; pure.

What is quick shares some places, what is slow has others. A run that turns out to be slow while the slow ones have all
of their places is ended, and begins anew when one of these is free: so whatever tables declare, a quick one waits for
quick ones alone.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import define, frozen

from ballista_py.errors import BallistaError, TimeLimit
from ballista_py.partitions.table import TableSpec
from ballista_py.work import Work


@define(eq=False)
class RunningSlot:
    """A slot of a table under way since a moment of the monotonic clock. `slow`: it was known for it when it began."""

    table: TableSpec
    work: Work
    since_ms: float
    slow: bool


@frozen(kw_only=True)
class Lanes:
    """How many quick runs and how many slow ones go on at once; slow is what takes longer than `slow_after_ms`."""

    quick: int = 2
    slow: int = 1
    slow_after_ms: float = 10_000.0
    limit_ms: float = 600_000.0

    def may_begin(self, slow: bool, running: Collection[RunningSlot], now_ms: float) -> bool:
        """Whether there is a place for one more run, of a table that is known to be slow or is not."""
        slow_ones = sum(self.is_slow(one, now_ms) for one in running)
        return slow_ones < self.slow if slow else len(running) - slow_ones < self.quick

    def is_slow(self, run: RunningSlot, now_ms: float) -> bool:
        """Whether it has a place of the slow ones."""
        return run.slow or now_ms - run.since_ms > self.slow_after_ms

    def to_end(self, running: Collection[RunningSlot], now_ms: float) -> list[tuple[RunningSlot, BallistaError]]:
        """The runs that are to end, and why: those that are late, and slow ones that have no place."""
        slow_ones = sorted(
            (one for one in running if self.is_slow(one, now_ms)), key=lambda one: (not one.slow, one.since_ms)
        )
        found: list[tuple[RunningSlot, BallistaError]] = []
        for place, one in enumerate(slow_ones):
            if now_ms - one.since_ms > self.limit_ms:
                found.append((one, TimeLimit(f"it was ended after {self.limit_ms / 1e3:g} s: let it do less")))
            elif place >= self.slow:
                reason = (
                    f"it takes longer than {self.slow_after_ms / 1e3:g} s, as another one does: it waits for that"
                )
                found.append((one, TimeLimit(reason)))
        return found
