"""How DuckDB's allocator is told to give back what is free in it.

Its background threads do so late, or not at all while nothing happens: a second after a checkpoint 394 MB that nobody
used were still with the process, counted nowhere. Whenever the limit of DuckDB's memory is set, be it to what it is
already, all of that goes back; that takes a millisecond where little is free, and 90 for 370 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from attrs import define, field, frozen

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.runtime import Runtime

GREW_BYTES = 16 << 20
AGAIN_MS = 1_000.0
OF_FOUR = 3  # quarters of the memory of a node, below which nothing is done


@frozen
class Left:
    """What the process took after it gave back the last time, and when that was."""

    own_bytes: int = 0
    at_ms: float = 0.0


def gives_back(own_bytes: int, at_ms: float, left: Left, max_bytes: int) -> bool:
    """Whether a process that takes `own_bytes` now shall give back, of a node that may take `max_bytes`.

    >>> left = Left(400 << 20, 1_000.0)
    >>> [gives_back(mb << 20, 1_100.0, left, 512 << 20) for mb in (300, 410, 420)]
    [False, False, True]
    >>> gives_back(400 << 20, 2_100.0, left, 512 << 20)  # what was freed since is still in it
    True
    """
    if own_bytes * 4 < max_bytes * OF_FOUR:
        return False
    return own_bytes > left.own_bytes + GREW_BYTES or at_ms > left.at_ms + AGAIN_MS


@define
class GivesBackFreed:
    """Lets DuckDB give back what is free where the node takes much. Call `tick` ten times a second.

    `own_bytes` is what the process of the node takes, of the `max_bytes` that the node may take.
    """

    own_bytes: Callable[[], int]
    max_bytes: int
    limit: str  # of DuckDB's memory, as it was told
    runtime: Runtime
    _left: Left = field(init=False, factory=Left)

    def tick(self, root: duckdb.DuckDBPyConnection) -> None:
        """Look, and give back what is free in the database of `root`, whose limit this is already."""
        now_ms = self.runtime.monotonic_ms()
        if not gives_back(self.own_bytes(), now_ms, self._left, self.max_bytes):
            return
        limit = self.limit.replace("'", "''")
        with suppress(duckdb.Error):  # of a database that is broken, or closed meanwhile
            root.execute(f"set global memory_limit = '{limit}'")
        self._left = Left(self.own_bytes(), now_ms)
