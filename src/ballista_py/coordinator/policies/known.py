"""What the client of a thread may, by the newest policies, for whoever need not read statements to decide.

What a thread does for no call is the node's own, and so is what says so (`Work.is_own`); a viewer reaches nothing but
what is there to be looked at (`security.access`). Everything else is for a client, of whom nothing but his name may be
known. While policies cannot be read, or are older than the catalog says, clients are refused: nobody guesses.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from ballista_py.partitions.policies import Policies, Rights
from ballista_py.principal import groups_of
from ballista_py.runtime import Runtime
from ballista_py.state.documents.policies import PoliciesDocument, PolicyShelf
from ballista_py.work import current_work

LOOK_MS = 1_000.0  # how old the policies are at most by which a statement is decided
IDLE_LOOK_MS = 10_000.0  # between looks whether there are any, where the catalog knows of none


@define(eq=False)
class KnownPolicies:
    """Reads them again as they get old. Safe to share between threads."""

    shelf: PolicyShelf
    runtime: Runtime
    on: bool = field(default=True, init=False)  # until it is known that there are none
    _document: PoliciesDocument | None = field(default=None, init=False)
    _looked_ms: float | None = field(default=None, init=False)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def tick(self) -> None:
        """Look whether there are policies by now, whatever the catalog says."""
        self._policies(0)

    def rights(self, least: int = 0) -> Rights | None:
        """What the client of this thread may; None: everything.

        Raises what reading policies raises, and `DocumentOlder` or `DocumentLost` where they are below `least`.
        """
        work = current_work()
        if work is None or work.is_own or work.is_viewer:
            return None
        policies = self._policies(least)
        if policies is None:
            return None
        rights = policies.of(str(work.client), groups_of(work.client))
        return None if rights.is_operator else rights

    def require_operator(self, what: str) -> None:
        """Raise `SqlError` for a client that is no operator."""
        rights = self.rights()
        if rights is not None:
            rights.require_operator(what)

    def _policies(self, least: int) -> Policies | None:
        with self._lock:
            now_ms, known = self.runtime.monotonic_ms(), self._document
            every_ms = LOOK_MS if known is not None or least else IDLE_LOOK_MS
            is_due = self._looked_ms is None or now_ms - self._looked_ms >= every_ms
            if is_due or (0 if known is None else known.number) < least:
                found = self.shelf.read(max(least, 0 if known is None else known.number))
                # The same values stay the same object, by which what is seen is remembered.
                self._document = known if found == known else found
                self._looked_ms = now_ms
                self.on = self._document is not None
            return self._document.policies if self._document is not None and self._document.on else None
