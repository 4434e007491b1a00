"""Deliberate faults of refreshes: what the simulation of refreshes must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from attrs import evolve, frozen

from ballista_py.coordinator.refreshes import schedule
from ballista_py.coordinator.refreshes.schedule import Done
from ballista_py.errors import BallistaError
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.slot_book import Sight, SlotBook, is_due
from ballista_py.state.documents.slots import SlotOutcome, SlotsDocument
from ballista_py.testing.simulation.refreshes.simulation import RefreshSimulation
from ballista_py.testing.simulation.refreshes.site import EVERY_MS, PlayedWork

Patch = tuple[Any, str, Any]


@frozen(kw_only=True)
class RefreshMutant:
    """One deliberate fault."""

    name: str
    what: str
    patches: Callable[[], tuple[Patch, ...]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code within this block, for the whole process."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches():
                stack.callback(setattr, owner, name, owner.__dict__[name])
                setattr(owner, name, replacement)
            yield


def _token_of_the_attempt() -> tuple[Patch, ...]:
    return ((SlotsDocument, "token", property(lambda slots: f"{slots.series}-{slots.slot}.{slots.holder}")),)


def _token_of_the_table() -> tuple[Patch, ...]:
    return ((SlotsDocument, "token", property(lambda slots: slots.series)),)


def _ended_by_anybody() -> tuple[Patch, ...]:
    return ((SlotsDocument, "_require", lambda _slots, _holder: None),)


def _older_slot_over_newer() -> tuple[Patch, ...]:
    def end(
        book: SlotBook, held: SlotsDocument, outcome: SlotOutcome, seen: str, fresh_at_ms: int
    ) -> SlotsDocument:
        def over(_now: SlotsDocument) -> SlotsDocument:
            return held.ended(held.holder, outcome, seen, fresh_at_ms)

        return book._note(book._state.update(over).document)

    return ((SlotBook, "end", end),)


def _state_before_rows() -> tuple[Patch, ...]:
    begin, end, look, run = SlotBook.begin, SlotBook.end, PlayedWork.look, PlayedWork.run
    held_by: dict[int, tuple[SlotBook, SlotsDocument]] = {}
    seen_by: dict[int, str] = {}

    def begins(book: SlotBook, before: SlotsDocument) -> SlotsDocument:
        held = begin(book, before)
        held_by[id(book.runtime)] = book, held
        return held

    def looks(work: PlayedWork, table: TableSpec) -> str:
        seen_by[id(work.machine)] = look(work, table)
        return seen_by[id(work.machine)]

    def runs(work: PlayedWork, table: TableSpec, token: str, mode: str) -> Done:
        book, held = held_by[id(work.machine)]
        end(book, held, SlotOutcome(slot=held.slot), seen_by[id(work.machine)], 0)
        return run(work, table, token, mode)

    ends = (SlotBook, "end", lambda _book, held, *_others: held)
    return (SlotBook, "begin", begins), ends, (PlayedWork, "look", looks), (PlayedWork, "run", runs)


def _looked_at_afterwards() -> tuple[Patch, ...]:
    end = SlotBook.end
    run = PlayedWork.run
    after: dict[int, str] = {}

    def runs(work: PlayedWork, table: TableSpec, token: str, mode: str) -> Done:
        done = run(work, table, token, mode)
        with suppress(BallistaError):
            after[id(work.machine)] = work.look(table)
        return done

    def ends(book: SlotBook, held: SlotsDocument, outcome: SlotOutcome, seen: str, at_ms: int) -> SlotsDocument:
        return end(book, held, outcome, after.get(id(book.runtime), seen), at_ms)

    return (PlayedWork, "run", runs), (SlotBook, "end", ends)


def _repeated_keeps_what_was_seen() -> tuple[Patch, ...]:
    ended = SlotsDocument.ended

    def keeps(
        slots: SlotsDocument, holder: str, outcome: SlotOutcome, seen: str, fresh_at_ms: int
    ) -> SlotsDocument:
        return evolve(ended(slots, holder, outcome, seen, fresh_at_ms), seen=seen)

    return ((SlotsDocument, "ended", keeps),)


def _never_taken_over() -> tuple[Patch, ...]:
    due = is_due

    def stays(sight: Sight, now_ms: float, *others: Any) -> bool:
        return not sight.document.holder and due(sight, now_ms, *others)

    return ((schedule, "is_due", stays),)


def _by_wall_clocks() -> tuple[Patch, ...]:
    look = SlotBook.look

    def looks(book: SlotBook, every_ms: float | None = None) -> Sight:
        found = look(book, every_ms)
        passed_ms = book.runtime.wall_ms() - found.document.begun_at_ms
        return Sight(found.document, book.runtime.monotonic_ms() - passed_ms)

    return ((SlotBook, "look", looks),)


def _missed_slots_made_up_for() -> tuple[Patch, ...]:
    due = is_due

    def piles_up(sight: Sight, now_ms: float, *others: Any) -> bool:
        begun, world_ms = sight.document.slot, now_ms - _first.setdefault(sight.document.series, now_ms)
        return due(sight, now_ms, *others) or (sight.document.over and begun < 4 * world_ms / EVERY_MS)

    _first: dict[str, float] = {}
    return ((schedule, "is_due", piles_up),)


REFRESH_MUTANTS = (
    RefreshMutant(
        name="refresh: token of the attempt",
        what="the slot does not make the token: what two do in it counts twice",
        patches=_token_of_the_attempt,
    ),
    RefreshMutant(
        name="refresh: one token for all slots",
        what="the number of the slot is not in the token: only the first one counts",
        patches=_token_of_the_table,
    ),
    RefreshMutant(
        name="refresh: a slot ended by anybody",
        what="who was taken over from ends the slot, as of what it saw",
        patches=_ended_by_anybody,
    ),
    RefreshMutant(
        name="refresh: an older slot over a newer one",
        what="who comes late writes what it knew over what others did since",
        patches=_older_slot_over_newer,
    ),
    RefreshMutant(
        name="refresh: the state before the rows",
        what="a slot is over before what it brought counts",
        patches=_state_before_rows,
    ),
    RefreshMutant(
        name="refresh: looked at afterwards",
        what="what the source showed is taken down after its rows were read",
        patches=_looked_at_afterwards,
    ),
    RefreshMutant(
        name="refresh: a repeated run keeps what was seen",
        what="an earlier attempt counts, and the look of the later one is kept",
        patches=_repeated_keeps_what_was_seen,
    ),
    RefreshMutant(
        name="refresh: never taken over",
        what="who died in a slot keeps it",
        patches=_never_taken_over,
    ),
    RefreshMutant(
        name="refresh: due by wall clocks",
        what="two machines' clocks say when a slot is due",
        patches=_by_wall_clocks,
    ),
    RefreshMutant(
        name="refresh: missed slots are made up for",
        what="slots follow each other until as many were done as would have been",
        patches=_missed_slots_made_up_for,
    ),
)


def refresh_caught_by(name: str, seeds: int, first_seed: int = 0) -> tuple[int, str] | None:
    """The first seed at which the fault is found, and what was seen; None if it is not among so many."""
    (mutant,) = (one for one in REFRESH_MUTANTS if one.name == name)
    for seed in range(first_seed, first_seed + seeds):
        with mutant.applied():
            wrong = RefreshSimulation(seed).run().wrong
        if wrong:
            return seed, wrong[0]
    return None
