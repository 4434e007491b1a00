"""The slots of one table on the store: read, begun, renewed and ended by conditional writes, and when one is due.

No two machines compare clocks: a slot is due when this process has seen the last one for an interval, and the holder of
one is taken for dead when its signs of life have not moved for the patience, both on this process's monotonic clock.
The wall clock counts once, at the first sight of a table after a start, and only so far as to shorten the wait: a
cluster that is restarted more often than a table is refreshed refreshes it all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from attrs import define, field, frozen

from ballista_py.errors import ObjectExists, ObjectMissing, VersionConflict
from ballista_py.runtime import Runtime
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.slots import MAX_ERROR_CHARS, SlotOutcome, SlotsDocument, slots_key
from ballista_py.state.stores.store import ConditionalStore

RETRY_MS = 5_000.0
MAX_RETRY_MS = 3_600_000.0
_MAX_STEPS = 30


@frozen
class Sight:
    """What a process saw of a table's slots, and since when it has been so, on its own monotonic clock."""

    document: SlotsDocument
    since_ms: float


def is_due(sight: Sight, now_ms: float, every_ms: float | None, patience_ms: float, late_ms: float = 0.0) -> bool:
    """Whether a slot is to be begun now, or taken over from who has given no sign of life for `patience_ms`; pure.

    One that was asked for is due at once. Who is not the first to look waits `late_ms` longer for its turn.

    >>> begun = Sight(SlotsDocument(series="s", slot=3), since_ms=1_000.0)
    >>> is_due(begun, 31_000.0, 30_000.0, 5_000.0), is_due(begun, 30_000.0, 30_000.0, 5_000.0)
    (True, False)
    """
    slots, waited_ms = sight.document, now_ms - sight.since_ms
    if slots.holder:
        return waited_ms >= patience_ms + late_ms
    if slots.wanted:
        return True
    if not slots.over:
        return waited_ms >= retry_ms(slots.failures, every_ms) + late_ms
    return every_ms is not None and waited_ms >= every_ms + late_ms


def retry_ms(failures: int, every_ms: float | None) -> float:
    """How long an attempt waits after so many that failed in a row: longer and longer, never longer than an interval.

    >>> retry_ms(1, None), retry_ms(4, None), retry_ms(9, 60_000.0)
    (5000.0, 40000.0, 60000.0)
    """
    wait_ms = min(RETRY_MS * float(1 << min(max(failures, 1) - 1, _MAX_STEPS)), MAX_RETRY_MS)
    return wait_ms if every_ms is None else min(wait_ms, every_ms)


@define
class SlotBook:
    """The slots of one kind of work of the table with this folder. For one thread at a time, but for `renew`.

    Of a table that is made without rows the first slot is asked for, with the mode `at_first`, by whoever looks first.
    """

    store: ConditionalStore
    folder: str
    work: str
    runtime: Runtime
    instance: Callable[[], str] = str
    at_first: str = ""
    _state: ObjectState[SlotsDocument] = field(init=False)
    _sight: Sight | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._state = ObjectState(
            self.store, slots_key(self.folder, self.work), SlotsDocument, runtime=self.runtime
        )

    @property
    def sight(self) -> Sight | None:
        """What was seen last."""
        return self._sight

    def look(self, every_ms: float | None = None) -> Sight:
        """The slots as they are now, made if there are none. Raises what the store raises."""
        document = self._read()
        now_ms = self.runtime.monotonic_ms()
        if self._sight is None:
            # What may have passed already, as the wall clocks say; never more than an interval.
            passed_ms = min(max(0.0, self.runtime.wall_ms() - document.begun_at_ms), every_ms or 0.0)
            waited_ms = passed_ms if document.over else 0.0
            self._sight = Sight(document, now_ms - waited_ms)
        elif _moved(self._sight.document, document):
            self._sight = Sight(document, now_ms)
        else:
            self._sight = Sight(document, self._sight.since_ms)
        return self._sight

    def begin(self, seen: SlotsDocument) -> SlotsDocument:
        """Take the slot that is at hand after what was `seen`. Raises `VersionConflict` where another was quicker."""
        holder, at_ms = self.runtime.new_id(), self.runtime.wall_ms()

        def begin(now: SlotsDocument) -> SlotsDocument:
            if _moved(seen, now):
                raise VersionConflict("another scheduler has begun the slot meanwhile")
            return now.begun(holder, self.instance(), at_ms)

        return self._note(self._state.update(begin).document)

    def renew(self, held: SlotsDocument) -> None:
        """Give a sign of life. Raises `VersionConflict` when the slot was taken over."""
        self._state.update(lambda now: now.renewed(held.holder))

    def end(self, held: SlotsDocument, outcome: SlotOutcome, seen: str, fresh_at_ms: int) -> SlotsDocument:
        """What was done in the slot counts: it is over. Raises `VersionConflict` when it was taken over."""
        return self._note(
            self._state.update(lambda now: now.ended(held.holder, outcome, seen, fresh_at_ms)).document
        )

    def fail(self, held: SlotsDocument, outcome: SlotOutcome, *, again: bool) -> SlotsDocument:
        """An attempt at the slot failed. Raises `VersionConflict` when it was taken over."""
        short = SlotOutcome(
            slot=outcome.slot, mode=outcome.mode, at_ms=outcome.at_ms, took_ms=outcome.took_ms,
            error=outcome.error[:MAX_ERROR_CHARS],
        )  # fmt: skip
        return self._note(self._state.update(lambda now: now.failed(held.holder, short, again=again)).document)

    def skip(self, before: SlotsDocument, seen: str, outcome: SlotOutcome, fresh_at_ms: int) -> SlotsDocument:
        """The next slot is over, with nothing done: the source shows what it showed. Raises `VersionConflict`."""
        return self._note(
            self._state.update(lambda now: now.passed(before.slot, seen, outcome, fresh_at_ms)).document
        )

    def ask(self, mode: str) -> int:
        """Have a run done now, or right after the one that runs; the number by which `answered` tells that it was."""
        self._read()
        return self._state.update(lambda now: now.with_asked(mode)).document.asked

    def forget_seen(self) -> None:
        """Have the next slot read the source, whatever that shows."""
        with suppress(ObjectMissing):
            self._state.update(SlotsDocument.unseen)

    def _read(self) -> SlotsDocument:
        try:
            return self._state.read().document
        except ObjectMissing:
            # A table that is made has the rows of its source: its first slot is an interval from now.
            series, at_ms = f"{self.work}-{self.runtime.new_id()[:12]}", self.runtime.wall_ms()
            first = SlotsDocument(series=series, begun_at_ms=at_ms)
            with suppress(ObjectExists):
                return self._state.create(first.with_asked(self.at_first) if self.at_first else first).document
            return self._state.read().document

    def _note(self, document: SlotsDocument) -> SlotsDocument:
        self._sight = Sight(document, self.runtime.monotonic_ms())
        return document


def _moved(one: SlotsDocument, other: SlotsDocument) -> bool:
    """Whether a slot went on between the two."""
    return (one.series, one.slot, one.over, one.holder, one.renewals, one.failures) != (
        other.series, other.slot, other.over, other.holder, other.renewals, other.failures,
    )  # fmt: skip
