"""The slots of a table: which refresh or retention is at hand, who is at it, and what came of the last one. Pure.

One document a table and kind of work. Slots are numbered; a slot and the document's `series` make the token of what is
done in it, so that a slot which two schedulers do counts once. Every change is a function here, and one that its state
does not allow raises `VersionConflict` and changes nothing:

- rows first, then this document: a slot is over only once what it did counts;
- only who holds a slot ends it: somebody who slept and was taken over ends nothing;
- what the source showed (`seen`) is forgotten when a slot begins, and kept only of the run that counts, by a look that
  was made before its rows were read: a source that shows the same again has nothing new;
- a slot is passed over only in the very state that was compared.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias, get_args

from attrs import evolve, frozen

from ballista_py.errors import VersionConflict

SlotWork: TypeAlias = Literal["refresh", "retention"]
SLOT_WORKS: tuple[SlotWork, ...] = get_args(SlotWork)
SLOTS_PREFIX = "accelerations/slots/"
MAX_ERROR_CHARS = 1_024
MAX_FAILURES = 1_000_000


def slots_key(folder: str, work: str) -> str:
    """Where the slots of a table lie; `folder` is `TableSpec.folder`."""
    return f"{SLOTS_PREFIX}{folder}.{work}.json"


@frozen(kw_only=True)
class SlotOutcome:
    """What came of a slot, or of one attempt at it. `at_ms` is wall time, for people; `error` is empty if it is done.

    `skipped`: the source had shown the same before, so that nothing was read. `repeated`: an earlier attempt at the
    slot counts, of which nobody knows how many rows it brought.
    """

    slot: int
    mode: str = ""
    at_ms: int = 0
    took_ms: float = 0.0
    rows: int = 0
    bytes: int = 0
    error: str = ""
    skipped: bool = False
    repeated: bool = False


@frozen(kw_only=True)
class SlotsDocument:
    """`accelerations/slots/{folder}.{work}.json`: the newest slot of a table.

    The slot is over, or `holder`, one attempt of the scheduler `by`, is at it and renews that, or an attempt failed and
    it waits for the next one. `asked` counts how often somebody has asked for a run at once, with `asked_mode`, and
    `answered` how many of these are done; `answers` is the one that the slot at hand is for. `fresh_at_ms` is the wall
    time of the last look at the source whose rows the table has.
    """

    document_kind: ClassVar[str] = "slots"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # another series begins then, and its first slot reads the source

    series: str
    slot: int = 0
    over: bool = True
    holder: str = ""
    by: str = ""
    renewals: int = 0
    failures: int = 0
    seen: str = ""
    asked: int = 0
    asked_mode: str = ""
    answers: int = 0
    answered: int = 0
    begun_at_ms: int = 0
    fresh_at_ms: int = 0
    last: SlotOutcome | None = None

    @property
    def token(self) -> str:
        """Under which all attempts at the slot are made, so that one of them counts."""
        return f"{self.series}-{self.slot}"

    @property
    def wanted(self) -> bool:
        """Whether somebody asked for a run that has not begun."""
        return self.asked > max(self.answers, self.answered)

    def begun(self, holder: str, by: str, at_ms: int) -> SlotsDocument:
        """With the next slot in the hands of an attempt; or with the one at hand, whoever had that."""
        slot = self.slot + 1 if self.over else self.slot
        return evolve(
            self,
            slot=slot,
            over=False,
            holder=holder,
            by=by,
            renewals=0,
            failures=0 if self.over else self.failures,
            seen="",
            answers=self.asked,  # it begins after all of these
            begun_at_ms=at_ms if self.over else self.begun_at_ms,
        )

    def renewed(self, holder: str) -> SlotsDocument:
        """With a sign of life of who holds the slot. Raises `VersionConflict` if another one does."""
        self._require(holder)
        return evolve(self, renewals=self.renewals + 1)

    def ended(self, holder: str, outcome: SlotOutcome, seen: str, fresh_at_ms: int) -> SlotsDocument:
        """With the slot over, which counts. Raises `VersionConflict` if another one holds it."""
        self._require(holder)
        return evolve(
            self,
            over=True,
            holder="",
            failures=0,
            seen="" if outcome.repeated else seen,
            answered=self.answers,
            fresh_at_ms=self.fresh_at_ms if outcome.repeated else fresh_at_ms,
            last=outcome,
        )

    def failed(self, holder: str, outcome: SlotOutcome, *, again: bool) -> SlotsDocument:
        """With an attempt that failed; the slot is tried `again`, under its token, or given up."""
        self._require(holder)
        return evolve(
            self,
            over=not again,
            holder="",
            failures=min(self.failures + 1, MAX_FAILURES),
            answered=self.answers,  # who asked is told that it failed
            last=outcome,
        )

    def passed(self, slot: int, seen: str, outcome: SlotOutcome, fresh_at_ms: int) -> SlotsDocument:
        """With the next slot over, in which the source showed what it had: nothing is to be done.

        Raises `VersionConflict` unless `slot` is the last one and the table is as that source showed it.
        """
        if not self.over or self.slot != slot or not seen or self.seen != seen:
            raise VersionConflict("another scheduler has begun the slot meanwhile")
        return evolve(
            self, slot=slot + 1, answers=self.asked, answered=self.asked, last=outcome, fresh_at_ms=fresh_at_ms,
            begun_at_ms=outcome.at_ms, by="", failures=0,
        )  # fmt: skip

    def with_asked(self, mode: str) -> SlotsDocument:
        """With one that wants a run now, or right after the one that runs."""
        return evolve(self, asked=self.asked + 1, asked_mode=mode)

    def unseen(self) -> SlotsDocument:
        """With nothing known of the source: the table was brought up to it in another way."""
        return evolve(self, seen="") if self.seen else self

    def _require(self, holder: str) -> None:
        if self.over or not holder or self.holder != holder:
            raise VersionConflict(
                "another scheduler has taken the slot over, which this one did not renew in time"
            )
