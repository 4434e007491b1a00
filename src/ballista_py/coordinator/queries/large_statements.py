"""Statements of one client whose text is large are bound and planned one after the other, beside all others.

Planning thousands of expressions takes seconds of the interpreter and megabytes for each statement. Many at once would
keep heartbeats and point lookups of others waiting for as long as all of them take together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ballista_py.runtime import Runtime
from ballista_py.work import current_work, require_wanted

LARGE_CHARACTERS = 8_192
LOOK_MS = 100.0


class LargeStatements:
    """Whose turn it is. Safe to share between threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._changed = runtime.condition()
        self._taken: set[str] = set()  # by which clients

    @contextmanager
    def turn(self, statement: str) -> Iterator[None]:
        """The block plans the statement. Waits for its turn if it is large; raises as `require_wanted` meanwhile."""
        if len(statement) < LARGE_CHARACTERS:
            yield
            return
        work = current_work()
        client = "" if work is None else work.client
        with self._changed:
            while client in self._taken:
                self._changed.wait(LOOK_MS)
                require_wanted()
            self._taken.add(client)
        try:
            yield
        finally:
            with self._changed:
                self._taken.discard(client)
                self._changed.notify_all()
