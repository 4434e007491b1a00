"""Slots on the store: one at a time, in order, taken over from the dead, and never by two machines' clocks."""

import pytest
from attrs import define

from ballista_py.errors import VersionConflict
from ballista_py.state.documents.slot_book import Sight, SlotBook, is_due, retry_ms
from ballista_py.state.documents.slots import SlotOutcome, SlotsDocument
from ballista_py.state.stores.memory import MemoryStore

EVERY, PATIENCE = 60_000.0, 20_000.0


@define
class Clocks:
    """The runtime of one process."""

    wall: int = 1_700_000_000_000
    mono: float = 0.0
    ids: int = 0
    name: str = "a"

    def wall_ms(self):
        return self.wall

    def monotonic_ms(self):
        return self.mono

    def new_id(self):
        self.ids += 1
        return f"{self.name}{self.ids:031x}"

    def random(self):
        return 0.5

    def sleep_ms(self, _ms):
        return None

    def lock(self):
        from ballista_py.runtime import SystemRuntime

        return SystemRuntime().lock()

    def condition(self):
        from ballista_py.runtime import SystemRuntime

        return SystemRuntime().condition()


def book(store, clocks):
    return SlotBook(store, "t", "refresh", clocks, lambda: clocks.name)


def test_a_table_that_is_made_without_rows_has_its_first_slot_asked_for_by_whoever_looks_first():
    store, clocks = MemoryStore(), Clocks()
    empty = SlotBook(store, "t", "refresh", clocks, lambda: "a", "full")
    for every in (EVERY, None):
        assert is_due(empty.look(every), clocks.mono, every, PATIENCE)
    assert is_due(book(store, Clocks(name="b")).look(EVERY), clocks.mono, EVERY, PATIENCE)
    held = empty.begin(empty.look(EVERY).document)
    empty.end(held, SlotOutcome(slot=1), "seen", 0)
    assert not is_due(empty.look(EVERY), clocks.mono, EVERY, PATIENCE)
    assert not is_due(empty.look(None), clocks.mono + 10 * EVERY, None, PATIENCE)


def test_of_two_that_begin_a_slot_one_has_it():
    store = MemoryStore()
    one, other = book(store, Clocks()), book(store, Clocks(name="b"))
    seen, same = one.look(EVERY).document, other.look(EVERY).document
    held = one.begin(seen)
    assert (held.slot, held.by) == (1, "a")
    with pytest.raises(VersionConflict):
        other.begin(same)


def test_who_was_taken_over_from_ends_nothing_and_renews_nothing():
    store, clocks = MemoryStore(), Clocks(name="b")
    slow, quick = book(store, Clocks()), book(store, clocks)
    mine = slow.begin(slow.look(EVERY).document)
    seen = quick.look(EVERY)
    assert not is_due(seen, clocks.mono + PATIENCE - 1, EVERY, PATIENCE)
    assert is_due(seen, clocks.mono + PATIENCE, EVERY, PATIENCE)
    taken = quick.begin(seen.document)
    assert taken.token == mine.token  # so that what both do counts once
    for act in (
        lambda: slow.renew(mine),
        lambda: slow.end(mine, SlotOutcome(slot=1), "old", 0),
        lambda: slow.fail(mine, SlotOutcome(slot=1, error="x"), again=True),
    ):
        with pytest.raises(VersionConflict, match="taken the slot over"):
            act()
    assert quick.end(taken, SlotOutcome(slot=1, rows=3), "new", 9).seen == "new"


def test_a_sign_of_life_keeps_a_slot():
    store, clocks = MemoryStore(), Clocks(name="b")
    mine, other = book(store, Clocks()), book(store, clocks)
    held = mine.begin(mine.look(EVERY).document)
    other.look(EVERY)
    clocks.mono = PATIENCE - 1
    mine.renew(held)
    other.look(EVERY)
    clocks.mono = 2 * PATIENCE - 2
    assert not is_due(other.look(EVERY), clocks.mono, EVERY, PATIENCE)


def test_a_restart_counts_the_time_that_passed_and_no_clock_makes_it_longer_than_an_interval():
    store = MemoryStore()
    first = Clocks()
    book(store, first).look(EVERY)
    late = Clocks(wall=first.wall + 40_000)
    assert not is_due(book(store, late).look(EVERY), 19_999.0, EVERY, PATIENCE)
    assert is_due(book(store, late).look(EVERY), 20_000.0, EVERY, PATIENCE)
    wrong = Clocks(wall=first.wall - 10**12)
    assert is_due(book(store, wrong).look(EVERY), EVERY, EVERY, PATIENCE)


def test_a_slot_is_passed_over_only_in_the_state_that_was_compared():
    slots = SlotsDocument(series="s").begun("h", "i", 0).ended("h", SlotOutcome(slot=1), "d1", 0)
    assert slots.passed(1, "d1", SlotOutcome(slot=2, skipped=True), 0).slot == 2
    for other in (slots.begun("k", "i", 0), slots.unseen()):
        with pytest.raises(VersionConflict):
            other.passed(1, "d1", SlotOutcome(slot=2, skipped=True), 0)
    with pytest.raises(VersionConflict):
        slots.passed(0, "d1", SlotOutcome(slot=1), 0)


def test_what_was_seen_is_kept_of_the_run_that_counts_alone():
    begun = SlotsDocument(series="s", seen="d0").begun("h", "i", 0)
    assert begun.seen == ""
    assert begun.ended("h", SlotOutcome(slot=1, repeated=True), "d2", 0).seen == ""
    assert begun.failed("h", SlotOutcome(slot=1, error="x"), again=True).seen == ""


def test_a_failed_slot_is_tried_again_under_its_token_less_and_less_often():
    failed = SlotsDocument(series="s").begun("h", "i", 0).failed("h", SlotOutcome(slot=1, error="x"), again=True)
    again = failed.begun("k", "i", 0)
    assert (again.slot, again.token) == (1, "s-1")
    assert [retry_ms(n, 3_600_000.0) for n in (1, 2, 3)] == [5_000.0, 10_000.0, 20_000.0]
    assert retry_ms(10**6, 60_000.0) == 60_000.0


def test_who_asks_is_answered_by_a_run_that_begins_after_it():
    slots = SlotsDocument(series="s").begun("h", "i", 0).with_asked("full")
    first = slots.ended("h", SlotOutcome(slot=1), "", 0)
    assert (first.answered, first.asked) == (0, 1)
    assert is_due(Sight(first, 0.0), 0.0, None, PATIENCE)
    assert first.begun("k", "i", 0).ended("k", SlotOutcome(slot=2), "", 0).answered == 1
