"""Which attempts at a statement count: decided once, in one document a table, for all of its partitions.

An attempt is prepared at every partition first, where nobody sees it. One commit here makes it count everywhere, or
nowhere; committing and aborting meet in the document, and whoever comes first wins. An attempt that was prepared and
never decided can be aborted by anyone, so a scheduler that dies leaves nothing undecided for long.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from attrs import evolve, frozen

from ballista_py.errors import ObjectExists, ObjectMissing, TryLater, VersionConflict
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.object_state import ObjectState
from ballista_py.state.store import ConditionalStore

MAX_SETTLED = 1_000
MAX_UNSETTLED = 1_000


def statements_key(folder: str) -> str:
    """Where the decisions on the statements of a table lie; `folder` is `TableSpec.folder`."""
    return f"accelerations/commits/{folder}.json"


@frozen(kw_only=True)
class Decision:
    """Whether an attempt at the statement `token` counts, and how many rows it affects.

    It is `settled` once no manifest holds the attempt as prepared any more. `sequence` is its place among those that
    committed, `number` its place among all decisions.
    """

    attempt: str
    token: str
    committed: bool
    affected: int = 0
    settled: bool = False
    sequence: int = 0
    number: int = 0


@frozen(kw_only=True)
class StatementsDocument:
    """`accelerations/commits/{folder}.json`: the decisions, oldest first.

    `sequence` counts those that committed, `decisions_made` all. The last 1,000 settled ones are kept: a statement
    sent again after that many others is run again. `floor` is the number of the newest one forgotten.
    """

    document_kind: ClassVar[str] = "statements"
    schema_version: ClassVar[int] = 1

    sequence: int = 0
    decisions_made: int = 0
    floor: int = 0
    decisions: tuple[Decision, ...] = ()

    def on(self, attempt: str) -> Decision | None:
        """The decision on an attempt, if there is one."""
        return next((found for found in self.decisions if found.attempt == attempt), None)

    def of(self, token: str) -> Decision | None:
        """The attempt at a statement that counts, if there is one."""
        return next((found for found in self.decisions if found.token == token and found.committed), None)

    def decided(self, decision: Decision, begun: int | None = None) -> StatementsDocument:
        """With a decision; itself if the attempt is decided. Of the attempts at one statement one commits at most.

        `begun` is how many decisions had been made when the attempt began. If one that came later was forgotten,
        that may have been the abortion of this very attempt: it does not commit any more.

        Raises `TryLater` when too many statements are committed and not yet settled.
        """
        if self.on(decision.attempt) is not None:
            return self
        late = begun is not None and self.floor > begun
        if decision.committed and (late or self.of(decision.token) is not None):
            decision = evolve(decision, committed=False, settled=True)
        if decision.committed and sum(not found.settled for found in self.decisions) >= MAX_UNSETTLED:
            raise TryLater(f"{MAX_UNSETTLED} statements wait to be settled: try again later")
        sequence, number = self.sequence + decision.committed, self.decisions_made + 1
        decision = evolve(decision, sequence=sequence if decision.committed else 0, number=number)
        return evolve(
            self, sequence=sequence, decisions_made=number, decisions=(*self.decisions, decision)
        )._kept()

    def settled(self, attempt: str) -> StatementsDocument:
        """With an attempt marked as settled."""
        found = self.on(attempt)
        if found is None or found.settled:
            return self
        done = evolve(found, settled=True)
        return evolve(self, decisions=tuple(done if d is found else d for d in self.decisions))

    def _kept(self) -> StatementsDocument:
        settled = [decision for decision in self.decisions if decision.settled]
        if len(settled) <= MAX_SETTLED:
            return self
        forgotten = {decision.number for decision in settled[:-MAX_SETTLED]}
        kept = tuple(decision for decision in self.decisions if decision.number not in forgotten)
        return evolve(self, floor=max(self.floor, *forgotten), decisions=kept)


class Statements:
    """The decisions of one table. Safe to share between threads; raises what `ObjectState` raises.

    >>> from ballista_py.state.memory import MemoryStore
    >>> statements = Statements(MemoryStore(), "events")
    >>> statements.commit("a1", "insert-1", affected=3).committed, statements.abort("a1").committed
    (True, True)
    >>> statements.abort("a2").committed, statements.commit("a2", "insert-2", affected=1).committed
    (False, False)
    """

    def __init__(
        self, store: ConditionalStore, folder: str, *, runtime: Runtime | None = None, committed_by: str = ""
    ) -> None:
        self._state = ObjectState(
            store,
            statements_key(folder),
            StatementsDocument,
            runtime=runtime or SystemRuntime(),
            committed_by=committed_by,
        )

    def read(self) -> StatementsDocument:
        """The decisions as they are now."""
        try:
            return self._state.read().document
        except ObjectMissing:
            return StatementsDocument()

    def commit(self, attempt: str, token: str, *, affected: int, begun: int | None = None) -> Decision:
        """Make the attempt count, unless it was aborted or another attempt at the statement counts already.

        `begun` is `decisions_made` as it was read before anything was prepared.

        The decision that is returned is the one that holds. Raises `TryLater` at the bound.
        """
        return self._decide(Decision(attempt=attempt, token=token, committed=True, affected=affected), begun)

    def abort(self, attempt: str, token: str = "") -> Decision:
        """Make the attempt never count, unless it counts already; the decision that holds is returned."""
        return self._decide(Decision(attempt=attempt, token=token, committed=False, settled=True))

    def supersede(self, attempt: str, other: str) -> Decision:
        """Abort `other` for the sake of `attempt`, unless it counts already; the decision that holds is returned.

        Of two attempts that do so to each other one wins. Raises `VersionConflict` when `attempt` is decided itself.
        """

        def change(document: StatementsDocument) -> StatementsDocument:
            if document.on(attempt) is not None:
                raise VersionConflict(
                    "another run took the place of this one: nothing was changed, run again", key=self._state.key
                )
            return document.decided(Decision(attempt=other, token="", committed=False, settled=True))

        return self._change(change, other)

    def settle(self, attempt: str) -> None:
        """Say that every partition has acted on the decision."""
        self._state.update(lambda document: document.settled(attempt))

    def _decide(self, decision: Decision, begun: int | None = None) -> Decision:
        return self._change(lambda document: document.decided(decision, begun), decision.attempt)

    def _change(self, change: Callable[[StatementsDocument], StatementsDocument], attempt: str) -> Decision:
        """Make a change after which `attempt` is decided; the decision."""
        try:
            landed = self._state.update(change)
        except ObjectMissing:
            with suppress(ObjectExists):
                self._state.create(StatementsDocument())
            landed = self._state.update(change)
        found = landed.document.on(attempt)
        assert found is not None
        return found
