"""Which attempts at a statement count: decided once, in one document a table, for all of its partitions.

An attempt is prepared at every partition first, where nobody sees it. One commit here makes it count everywhere, or
nowhere; committing and aborting meet in the document, and whoever comes first wins. An attempt that was prepared and
never decided can be aborted by anyone, so a scheduler that dies leaves nothing undecided for long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import ClassVar

from attrs import evolve, frozen

from ballista_py.errors import ObjectExists, ObjectMissing, TryLater, VersionConflict
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.lost_documents import require_proven
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.write_tokens import TOKENS_KEPT_MS, is_same
from ballista_py.state.stores.store import ConditionalStore

MAX_SETTLED = 1_000
MAX_REMEMBERED = 16_384
MAX_WATCHED = 1_024
MAX_UNSETTLED = 1_000
LOOK_MS = 1_000.0
MAX_WAITING = 64


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


@frozen
class SourcePosition:
    """A moment of a source: `at` counts its commits, in steps of its own, in the order of one `log`.

    Moments of two logs (two slots, two copies) say nothing of each other.

    >>> str(SourcePosition(120, "slot_1"))
    '120 of slot_1'
    """

    at: int
    log: str = ""

    def __str__(self) -> str:
        return f"{self.at} of {self.log}" if self.log else str(self.at)


@frozen
class SourceSpan:
    """The changes of a source after `since` up to `to`; `since` is None where the table has no position yet.

    One that leads to another log is a copy: all that was there goes.
    """

    since: SourcePosition | None
    to: SourcePosition


@frozen(kw_only=True)
class StatementsDocument:
    """`accelerations/commits/{folder}.json`: the decisions, oldest first.

    `sequence` counts those that committed, `decisions_made` all. Of the settled ones the last 1,000 that were aborted
    are kept, and as many that committed, with all that may be sent again. `floor` is the number of the newest one
    forgotten.

    `announced` is the newest definition of the table that there may be: whoever knows an older one reads the catalog
    before it says anything of the table. What was prepared before it was announced does not commit any more.
    `waiting` are statements that had to be planned again because the table was altered: the next definition lets them
    through first.

    `position` is how far the changes of a source are in the table: it moves with the decision on them, and by nothing
    else.
    """

    document_kind: ClassVar[str] = "statements"
    schema_version: ClassVar[int] = 1

    sequence: int = 0
    decisions_made: int = 0
    floor: int = 0
    decisions: tuple[Decision, ...] = ()
    announced: int = 0
    waiting: tuple[str, ...] = ()
    position: SourcePosition | None = None

    def on(self, attempt: str) -> Decision | None:
        """The decision on an attempt, if there is one."""
        return next((found for found in self.decisions if found.attempt == attempt), None)

    def of(self, token: str) -> Decision | None:
        """The attempt at a statement that counts, if there is one."""
        return next((found for found in self.decisions if is_same(found.token, token) and found.committed), None)

    def decided(
        self,
        decision: Decision,
        begun: int | None = None,
        definition: int | None = None,
        span: SourceSpan | None = None,
    ) -> StatementsDocument:
        """With a decision; itself if the attempt is decided. Of the attempts at one statement one commits at most.

        `begun` is how many decisions had been made when the attempt began. If one that came later was forgotten,
        that may have been the abortion of this very attempt: it does not commit any more. Nor does one that was made by
        another `definition` of the table than the newest, nor one with changes of a `span` that does not begin where
        the table stands.

        Raises `TryLater` when too many statements are committed and not yet settled, or may still be sent again.
        """
        if self.on(decision.attempt) is not None:
            return self
        late = begun is not None and self.floor > begun
        late = late or (definition is not None and self.announced > definition)
        late = late or (span is not None and span.since != self.position)
        if decision.committed and (late or self.of(decision.token) is not None):
            decision = evolve(decision, committed=False, settled=True)
        if decision.committed and sum(not found.settled for found in self.decisions) >= MAX_UNSETTLED:
            raise TryLater(f"{MAX_UNSETTLED} statements wait to be settled: try again later")
        if decision.committed and len(self.decisions) >= MAX_REMEMBERED + MAX_SETTLED + MAX_UNSETTLED:
            raise TryLater("more statements were committed than can be remembered: try again later")
        sequence, number = self.sequence + decision.committed, self.decisions_made + 1
        position = span.to if span is not None and decision.committed else self.position
        decision = evolve(decision, sequence=sequence if decision.committed else 0, number=number)
        return evolve(
            self,
            sequence=sequence,
            decisions_made=number,
            decisions=(*self.decisions, decision),
            position=position,
        )._without(lambda old: not old.committed)

    def announcing(self, definition: int, waited_for: Collection[str] = ()) -> StatementsDocument:
        """With the news that there may be this definition of the table, or a newer one.

        Those that it `waited_for` and that wait still may be gone for ever: they hold up no other.
        """
        left = self.without_waiting(waited_for)
        return left if left.announced >= definition else evolve(left, announced=definition)

    def with_waiting(self, statement: str) -> StatementsDocument:
        """With a statement that waits; beyond `MAX_WAITING` it waits its turn like any other."""
        if statement in self.waiting or len(self.waiting) >= MAX_WAITING:
            return self
        return evolve(self, waiting=(*self.waiting, statement))

    def without_waiting(self, statements: Collection[str]) -> StatementsDocument:
        """Without those that wait no more."""
        left = tuple(one for one in self.waiting if one not in statements)
        return self if left == self.waiting else evolve(self, waiting=left)

    def settled(self, attempt: str) -> StatementsDocument:
        """With an attempt marked as settled."""
        found = self.on(attempt)
        if found is None or found.settled:
            return self
        done = evolve(found, settled=True)
        return evolve(self, decisions=tuple(done if d is found else d for d in self.decisions))

    def forgotten(self, old: int) -> StatementsDocument:
        """Without statements that committed with numbers up to `old` and were settled, but the last 1,000."""
        return self._without(lambda decision: decision.committed, old)

    def _without(self, kind: Callable[[Decision], bool], old: int | None = None) -> StatementsDocument:
        settled = [decision for decision in self.decisions if decision.settled and kind(decision)]
        forgotten = {d.number for d in settled[:-MAX_SETTLED] if old is None or d.number <= old}
        if not forgotten:
            return self
        kept = tuple(decision for decision in self.decisions if decision.number not in forgotten)
        return evolve(self, floor=max(self.floor, *forgotten), decisions=kept)


class KnownDecisions:
    """Since when one process knows of decisions, by its own monotonic clock. Safe to share between threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def old(self, folder: str, document: StatementsDocument) -> int:
        """The number up to which the decisions are so old that no statement of theirs is sent again."""
        now_ms, old = self._runtime.monotonic_ms(), 0
        with self._lock:
            seen = self._seen.pop(folder, deque())
            self._seen[folder] = seen  # the one used last comes last
            if len(self._seen) > MAX_WATCHED:
                del self._seen[next(iter(self._seen))]
            if not seen or now_ms - seen[-1][0] >= LOOK_MS:
                seen.append((now_ms, document.decisions_made))
            while seen and now_ms - seen[0][0] >= TOKENS_KEPT_MS:
                old = seen.popleft()[1]
            if old:
                seen.appendleft((now_ms - TOKENS_KEPT_MS, old))
        return old


def by_count(_folder: str, document: StatementsDocument) -> int:
    """Whatever is not among the last 1,000 is old: for runs of the pipeline, which are few."""
    return document.decisions_made


def nothing(_folder: str, _document: StatementsDocument) -> int:
    """Nothing is old: for those who do not look on for long enough to tell."""
    return 0


class TableDecisions:
    """The decisions of one table. Safe to share between threads; raises what `ObjectState` raises.

    `old` tells up to which number those that committed may be forgotten (default: none).

    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> statements = TableDecisions(MemoryStore(), "events")
    >>> statements.commit("a1", "insert-1", affected=3).committed, statements.abort("a1").committed
    (True, True)
    >>> statements.abort("a2").committed, statements.commit("a2", "insert-2", affected=1).committed
    (False, False)
    """

    def __init__(
        self,
        store: ConditionalStore,
        folder: str,
        *,
        runtime: Runtime | None = None,
        committed_by: str = "",
        old: Callable[[str, StatementsDocument], int] = nothing,
    ) -> None:
        self._folder = folder
        self._old = old
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

    def commit(
        self,
        attempt: str,
        token: str,
        *,
        affected: int,
        begun: int | None = None,
        settled: bool = False,
        definition: int | None = None,
        span: SourceSpan | None = None,
    ) -> Decision:
        """Make the attempt count, unless it was aborted or another attempt at the statement counts already.

        `begun` is `decisions_made` as it was read before anything was prepared, `definition` that of the table then. It
        is `settled` at once if nothing was. With a `span` it counts only while the table stands where that begins, and
        moves the table's position to its end.

        The decision that is returned is the one that holds. Raises `TryLater` at the bound.
        """
        decision = Decision(attempt=attempt, token=token, committed=True, affected=affected, settled=settled)
        return self._decide(decision, begun, definition, span)

    def abort(self, attempt: str, token: str = "", folded: int = 0) -> Decision:
        """Make the attempt never count, unless it counts already; the decision that holds is returned.

        Raises `DocumentOlder` for decisions that know of less than the statements that manifests have `folded` in.
        """
        decision = Decision(attempt=attempt, token=token, committed=False, settled=True)

        def change(document: StatementsDocument) -> StatementsDocument:
            require_proven(self._state.key, "statement", document.sequence, folded, "a manifest of its table")
            return self._decided(document, decision)

        return self._change(change, attempt)

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

    def announce(self, definition: int, waited_for: Collection[str] = ()) -> None:
        """Say that there may be this definition of the table, before there is. See `StatementsDocument.announcing`."""
        self._update(lambda document: document.announcing(definition, waited_for))

    def wait_for_turn(self, statement: str) -> None:
        """Let the next definition of the table wait for a statement, until `end_turn`."""
        self._update(lambda document: document.with_waiting(statement))

    def end_turn(self, statement: str) -> None:
        """Let nothing wait for the statement any more."""
        self._update(lambda document: document.without_waiting((statement,)))

    def settle(self, attempt: str) -> None:
        """Say that every partition has acted on the decision."""
        self._state.update(lambda document: document.settled(attempt))

    def _decide(
        self,
        decision: Decision,
        begun: int | None = None,
        definition: int | None = None,
        span: SourceSpan | None = None,
    ) -> Decision:
        return self._change(
            lambda document: self._decided(document, decision, begun, definition, span), decision.attempt
        )

    def _decided(
        self,
        document: StatementsDocument,
        decision: Decision,
        begun: int | None = None,
        definition: int | None = None,
        span: SourceSpan | None = None,
    ) -> StatementsDocument:
        after = document.decided(decision, begun, definition, span)
        return after if after is document else after.forgotten(self._old(self._folder, document))

    def _change(self, change: Callable[[StatementsDocument], StatementsDocument], attempt: str) -> Decision:
        """Make a change after which `attempt` is decided; the decision."""
        found = self._update(change).on(attempt)
        assert found is not None
        return found

    def _update(self, change: Callable[[StatementsDocument], StatementsDocument]) -> StatementsDocument:
        try:
            return self._state.update(change).document
        except ObjectMissing:
            with suppress(ObjectExists):
                self._state.create(StatementsDocument())
            return self._state.update(change).document
