"""A Client's grant: where it asks, which rows it takes, and what it says in the end."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import Fenced
from ballista_py.runtime import seeded_chance
from ballista_py.testing.models.table_read_nodes import VirtualTime
from ballista_py.transport.table_read.tokens.consuming import (
    AGAIN_MS,
    BROKEN_MS,
    OPEN_MS,
    REPORT_MS,
    STALL_MS,
    DropExchange,
    GrantConsumer,
    OpenAt,
    TakeRows,
    Unreachable,
)
from ballista_py.transport.table_read.tokens.exchange import (
    CREDITS,
    ReadAccepted,
    ReadChunk,
    ReadClosed,
    ReadCredit,
    ReadOnHold,
    ReadPreempted,
    ReadRefused,
    ReadRejected,
    ReadSnapshotGone,
    ReadTrailer,
    StaleAttempt,
    chained,
)
from ballista_py.transport.table_read.tokens.messages import (
    CutAnswer,
    DoneReply,
    GaveUp,
    ReadDone,
    ReaderId,
    ReadGrant,
    ReadLocation,
    ReadReport,
    ReplanAsked,
    Replanned,
    ReportReply,
    SnapshotLost,
)
from ballista_py.transport.table_read.tokens.positions import START, Position, RowRange, Sections

ME, S1, S2 = ReaderId("c", "1"), ReadLocation(uri="s1"), ReadLocation(uri="s2")
SECTIONS, CHUNK = Sections((10, 10)), 4


def grant(whole=False, **changes):
    sections = None if whole else SECTIONS
    given = ReadGrant(
        job="j", token="t", ancestors=("p",), client=ME, partition=3, sections=sections, snapshot="s", ticket=b"k",
        rows=RowRange(START, None if whole else SECTIONS.end), locations=(S1, S2),
    )  # fmt: skip
    return evolve(given, **changes)


def consumer_of(time, given=None, **settings):
    return GrantConsumer(given or grant(), ME, time, chunk_rows=CHUNK, **settings)


def reading(time, given=None, applies_plan=True, in_order=True):
    """One that was accepted at the first location."""
    consumer = consumer_of(time, given)
    consumer.start()
    consumer.on(ReadAccepted(1, applies_plan, in_order))
    return consumer


def chunk(start, end, attempt=1, rows=4):
    place = (lambda n: Position(0, n)) if start is None or isinstance(start, Position) else SECTIONS.at
    return ReadChunk(attempt=attempt, start=place(start), end=place(end), rows=rows, nbytes=32, crc32=end)


def trailer(end, *crcs, attempt=1, rows=4):
    sum_ = 0
    for crc in crcs:
        sum_ = chained(sum_, crc)
    return ReadTrailer(
        attempt=attempt, end=SECTIONS.at(end), rows=rows * len(crcs), nbytes=32 * len(crcs), crc32=sum_
    )


def read_all(consumer, attempt=1, upto=20):
    first = SECTIONS.offset(consumer.position)
    ends = [min(n + CHUNK, upto) for n in range(first, upto, CHUNK)]
    for end in ends:
        consumer.on(chunk(max(first, end - CHUNK) if end == upto else end - CHUNK, end, attempt))
    return ends


def opens(actions):
    return [
        (action.location, action.request.attempt, action.request.wants_plan)
        for action in actions
        if isinstance(action, OpenAt)
    ]


def credit(chunks, attempt=1, until=SECTIONS.end):
    return ReadCredit(token="t", attempt=attempt, chunks=chunks, until=until)


DONE = ReadDone(token="t", client=ME, rows=RowRange(START, SECTIONS.end))
GAVE_UP = GaveUp(token="t", client=ME)


def test_a_grant_is_read_chunk_by_chunk_and_done_with_its_trailer(time):
    consumer = consumer_of(time)
    (open_,) = consumer.start()
    request = open_.request
    assert (open_.location, open_.ticket) == (S1, b"k")
    assert (request.job, request.token, request.ancestors, request.partition) == ("j", "t", ("p",), 3)
    assert (request.snapshot, request.attempt, request.start, request.wants_plan) == ("s", 1, START, True)
    assert not request.needs_order
    assert consumer.on(ReadAccepted(1, True)) == (credit(CREDITS),)
    for number, start in enumerate(range(0, 20, CHUNK), 1):
        assert consumer.on(chunk(start, start + CHUNK)) == (TakeRows(False), credit(number + CREDITS))
    assert consumer.on(trailer(20, 4, 8, 12, 16, 20)) == (DropExchange(1), DONE)
    assert consumer.on(DoneReply(token="t", outcome="counted")) == ()
    assert consumer.phase == "over"
    assert consumer.outcome == DoneReply(token="t", outcome="counted")
    assert consumer.tick() == ()


def test_a_restarted_client_begins_with_nothing(time):
    for other in (ReaderId("c", "2"), ReaderId("d", "1")):
        with pytest.raises(Fenced):
            GrantConsumer(grant(), other, time)


def test_a_done_is_said_until_it_is_answered(time):
    consumer = reading(time)
    consumer.on(trailer(20, *read_all(consumer)))
    time.now_ms += AGAIN_MS
    assert DONE in consumer.tick()
    assert DONE not in consumer.tick()
    time.now_ms += AGAIN_MS
    assert consumer.on(ReportReply(token="t", is_live=False)) == ()  # it may have been counted
    assert DONE in consumer.tick()
    consumer.on(DoneReply(token="other", outcome="counted"))
    assert consumer.phase == "ending"
    consumer.on(DoneReply(token="t", outcome="superseded"))
    assert consumer.phase == "over"
    assert not consumer.outcome.counts


# Where it asks


def test_a_location_that_refuses_is_asked_without_the_plan_only_when_all_have_refused(time):
    consumer = consumer_of(time)
    consumer.start()
    assert opens(consumer.on(ReadRefused(1))) == [(S2, 2, True)]
    assert opens(consumer.on(ReadRefused(2))) == [(S1, 3, False)]
    consumer.on(ReadAccepted(3, False))
    assert consumer.on(chunk(0, 4, 3)) == (TakeRows(True), credit(1 + CREDITS, 3))


def test_the_plan_is_given_up_when_those_that_are_left_have_refused_it(time):
    consumer = consumer_of(time)
    consumer.start()
    consumer.on(ReadRefused(1))
    assert opens(consumer.on(ReadRejected(2))) == [(S1, 3, False)]


def test_whoever_is_given_columns_though_it_asked_for_the_plan_runs_it(time):
    consumer = reading(time, applies_plan=False)
    assert consumer.on(chunk(0, 4)) == (TakeRows(True), credit(1 + CREDITS))


def test_a_location_on_hold_is_asked_again_when_it_said(time):
    consumer = consumer_of(time)
    consumer.start()
    assert opens(consumer.on(ReadOnHold(1, 700.0))) == [(S2, 2, True)]
    assert consumer.on(ReadOnHold(2, 500.0)) == ()
    time.now_ms = 499.0
    assert consumer.tick() == ()
    time.now_ms = 500.0
    assert opens(consumer.tick()) == [(S2, 3, True)]
    consumer.on(ReadOnHold(3, 900.0))
    time.now_ms = 700.0
    assert opens(consumer.tick()) == [(S1, 4, True)]


def test_nobody_is_asked_for_columns_while_one_that_may_run_the_plan_is_on_hold(time):
    consumer = consumer_of(time)
    consumer.start()
    consumer.on(ReadRefused(1))
    assert consumer.on(ReadOnHold(2, 500.0)) == ()
    time.now_ms = 500.0
    assert opens(consumer.tick()) == [(S2, 3, True)]


@pytest.mark.parametrize("says", [ReadRejected, Unreachable])
def test_when_no_location_is_left_the_agent_is_asked_for_others_of_the_same_snapshot(time, says):
    consumer = consumer_of(time)
    consumer.start()
    assert opens(consumer.on(says(1))) == [(S2, 2, True)]
    asked = ReplanAsked(token="t", client=ME, partition=3, snapshot="s")
    assert consumer.on(says(2)) == (asked,)
    time.now_ms = AGAIN_MS
    assert asked in consumer.tick()
    where = Replanned(token="t", snapshot="s", ticket=b"new", locations=(S2,))
    assert consumer.on(evolve(where, locations=())) == ()
    assert consumer.on(evolve(where, snapshot="newer")) == ()
    assert consumer.on(evolve(where, token="other")) == ()
    (open_,) = consumer.on(where)
    assert (open_.location, open_.ticket, open_.request.attempt) == (S2, b"new", 3)
    assert consumer.on(where) == ()  # it comes twice


def test_a_grant_without_a_location_asks_for_one_at_once(time):
    consumer = consumer_of(time, grant(locations=()))
    assert consumer.start() == (ReplanAsked(token="t", client=ME, partition=3, snapshot="s"),)
    where = Replanned(token="t", snapshot="s", ticket=b"new", locations=(S2,))
    assert opens(consumer.on(where)) == [(S2, 1, True)]


def test_after_a_replan_the_plan_is_asked_for_anew(time):
    consumer = consumer_of(time, grant(locations=(S1,)))
    consumer.start()
    assert opens(consumer.on(ReadRefused(1))) == [(S1, 2, False)]
    consumer.on(ReadRejected(2))
    where = Replanned(token="t", snapshot="s", ticket=b"new", locations=(S1, S2))
    assert opens(consumer.on(where)) == [(S1, 3, True)]


def test_an_open_without_an_answer_goes_elsewhere_and_its_late_answer_counts_for_nothing(time):
    consumer = consumer_of(time)
    consumer.start()
    time.now_ms = OPEN_MS - 1
    assert consumer.tick() == ()
    time.now_ms = OPEN_MS
    actions = consumer.tick()
    assert actions[0] == DropExchange(1)
    assert opens(actions) == [(S2, 2, True)]
    for late in (ReadAccepted(1, True), ReadRefused(1), ReadRejected(1), ReadPreempted(1), ReadSnapshotGone(1)):
        assert consumer.on(late) == ()
    assert consumer.phase == "opening"
    assert consumer.on(ReadAccepted(2, True)) == (credit(CREDITS, 2),)


def test_who_does_what_was_not_asked_is_not_asked_again(time):
    consumer = consumer_of(time, wants_plan=False)
    assert opens(consumer.start()) == [(S1, 1, False)]
    actions = consumer.on(ReadAccepted(1, True))
    assert actions[0] == DropExchange(1)
    assert opens(actions) == [(S2, 2, False)]
    assert isinstance(consumer.on(ReadRefused(2))[0], ReplanAsked)


def test_a_stale_attempt_is_followed_by_a_newer_one(time):
    consumer = consumer_of(time, grant(locations=(S1,)))
    consumer.start()
    assert consumer.on(StaleAttempt(1)) == ()
    time.now_ms = BROKEN_MS
    assert opens(consumer.tick()) == [(S1, 2, True)]


def test_a_grant_that_was_preempted_is_given_back_until_that_is_answered(time):
    consumer = consumer_of(time)
    consumer.start()
    assert consumer.on(ReadPreempted(1)) == (DropExchange(1), GAVE_UP)
    time.now_ms = AGAIN_MS
    assert GAVE_UP in consumer.tick()
    assert consumer.on(ReportReply(token="t", is_live=False)) == (DropExchange(1),)
    assert consumer.phase == "over"


def test_a_snapshot_that_is_gone_is_told_and_nothing_else_is_read(time):
    consumer = consumer_of(time)
    consumer.start()
    lost = SnapshotLost(token="t", client=ME, snapshot="s")
    assert consumer.on(ReadSnapshotGone(1)) == (DropExchange(1), lost)
    time.now_ms = AGAIN_MS
    assert lost in consumer.tick()


# What it takes


def test_a_chunk_that_comes_twice_is_taken_once(time):
    consumer = reading(time)
    assert TakeRows(False) in consumer.on(chunk(0, 4))
    assert consumer.on(chunk(0, 4)) == ()
    assert TakeRows(False) in consumer.on(chunk(4, 8))


@pytest.mark.parametrize("wrong", [chunk(4, 8), chunk(0, 5), chunk(2, 6)])
def test_rows_with_a_gap_or_more_than_a_chunk_may_have_are_not_taken(time, wrong):
    consumer = reading(time)
    actions = consumer.on(wrong)
    assert actions[0] == DropExchange(1)
    assert opens(actions) == [(S2, 2, True)]
    assert consumer.position == START


@pytest.mark.parametrize("end", [Position(0, 10), Position(0, 11), Position(9, 9)])
def test_a_place_that_has_no_such_name_is_not_gone_to(time, end):
    consumer = reading(time)
    consumer.on(chunk(0, 4))
    consumer.on(chunk(4, 8))
    assert DropExchange(1) in consumer.on(evolve(chunk(8, 9), end=end))
    assert consumer.position == Position(0, 8)


def test_it_goes_on_elsewhere_where_it_stopped_in_the_order_of_the_manifest(time):
    consumer = reading(time)
    consumer.on(chunk(0, 4))
    actions = consumer.on(ReadClosed(1))
    assert opens(actions) == [(S2, 2, True)]
    assert actions[-1].request.start == Position(0, 4)
    assert actions[-1].request.needs_order
    assert consumer.on(chunk(4, 8, 1)) == ()  # of the exchange that was left
    assert consumer.on(ReadClosed(1)) == ()
    assert consumer.on(trailer(20, 4)) == ()
    consumer.on(ReadAccepted(2, True))
    assert consumer.on(chunk(4, 8, 1)) == ()
    assert consumer.on(trailer(4, 4, attempt=1)) == ()
    assert consumer.on(Unreachable(1)) == ()
    ends = read_all(consumer, 2)
    assert consumer.on(trailer(20, *ends, attempt=2)) == (DropExchange(2), DONE)


def test_a_location_whose_exchange_broke_is_asked_again_after_a_while(time):
    consumer = reading(time, grant(locations=(S1,)))
    assert consumer.on(ReadClosed(1)) == (DropExchange(1),)
    time.now_ms = BROKEN_MS - 1
    assert consumer.tick() == ()
    time.now_ms = BROKEN_MS
    assert opens(consumer.tick()) == [(S1, 2, True)]


def test_one_that_cannot_be_reached_any_more_is_not(time):
    consumer = reading(time, grant(locations=(S1,)))
    assert any(isinstance(action, ReplanAsked) for action in consumer.on(Unreachable(1)))


def test_an_exchange_that_stands_still_is_left(time):
    consumer = reading(time)
    time.now_ms = STALL_MS - 1
    consumer.on(chunk(0, 4))
    time.now_ms = 2 * STALL_MS - 2
    assert not opens(consumer.tick())
    time.now_ms = 2 * STALL_MS - 1
    assert opens(consumer.tick()) == [(S2, 2, True)]


def test_an_end_without_a_trailer_is_no_end(time):
    consumer = reading(time)
    read_all(consumer)
    assert consumer.position == SECTIONS.end
    actions = consumer.on(ReadClosed(1))
    assert DONE not in actions
    assert opens(actions) == [(S2, 2, True)]
    consumer.on(ReadAccepted(2, True))
    assert DONE in consumer.on(trailer(20, attempt=2))


@pytest.mark.parametrize(
    "spoilt",
    [
        {"rows": 19}, {"nbytes": 1}, {"crc32": 1}, {"end": Position(1, 9)},
    ],
)  # fmt: skip
def test_a_trailer_that_does_not_fit_what_came_is_no_end(time, spoilt):
    consumer = reading(time)
    right = trailer(20, *read_all(consumer))
    assert DONE not in consumer.on(evolve(right, **spoilt))
    assert consumer.phase == "opening"


def test_a_trailer_before_the_end_is_no_end(time):
    consumer = reading(time)
    consumer.on(chunk(0, 4))
    actions = consumer.on(trailer(4, 4))
    assert opens(actions) == [(S2, 2, True)]


# What nobody can go on with


@pytest.mark.parametrize("given", [grant(whole=True), grant()])
def test_rows_without_an_order_that_others_know_are_given_up_when_they_break_off(time, given):
    consumer = reading(time, given, in_order=False)
    consumer.on(chunk(0, 4))
    assert consumer.on(ReadClosed(1)) == (DropExchange(1), GAVE_UP)


def test_of_rows_that_are_read_whole_nothing_is_lost_before_the_first_one(time):
    consumer = reading(time, grant(whole=True))
    assert opens(consumer.on(ReadClosed(1))) == [(S2, 2, True)]
    consumer.on(ReadAccepted(2, True))
    consumer.on(chunk(0, 4, 2))
    assert GAVE_UP in consumer.on(ReadClosed(2))


def test_a_partition_that_is_read_whole_has_as_many_rows_as_its_trailer_says(time):
    consumer = reading(time, grant(whole=True))
    big = evolve(chunk(0, 4), end=Position(0, 4_000))
    assert consumer.on(big) == (TakeRows(False), credit(1 + CREDITS, until=None))
    end = evolve(trailer(4, 4), end=Position(0, 4_000))
    assert ReadDone(token="t", client=ME, rows=RowRange(START, None)) in consumer.on(end)


def test_rows_in_another_order_are_not_taken_for_a_part(time):
    part = grant(rows=RowRange(START, Position(1, 0)))
    consumer = consumer_of(time, part)
    (open_,) = consumer.start()
    assert open_.request.needs_order
    actions = consumer.on(ReadAccepted(1, True, False))
    assert actions[0] == DropExchange(1)
    assert opens(actions) == [(S2, 2, True)]


# Cuts and reports


def cut(cut_id="x"):
    return ReportReply(token="t", is_live=True, cut_id=cut_id)


def answer(offset, cut_id="x"):
    return CutAnswer(token="t", client=ME, cut_id=cut_id, end=SECTIONS.at(offset))


def test_a_cut_is_behind_all_that_may_be_under_way_and_the_same_however_often_it_is_asked_for(time):
    consumer = reading(time)
    consumer.on(chunk(0, 4))
    actions = consumer.on(cut())
    assert actions == (credit(1 + CREDITS, until=SECTIONS.at(16)), answer(16))  # 12 may be under way, 8 are left
    consumer.on(chunk(4, 8))
    assert consumer.on(cut()) == (answer(16),)
    assert consumer.on(chunk(8, 12))[1] == credit(3 + CREDITS, until=SECTIONS.at(16))
    assert consumer.on(cut("y"))[-1] == answer(16, "y")  # 4 are left, and may be under way
    consumer.on(chunk(12, 16))
    done = evolve(DONE, rows=RowRange(START, SECTIONS.at(16)))
    assert done in consumer.on(trailer(16, 4, 8, 12, 16))
    assert consumer.on(cut("z")) == (answer(16, "z"),)


def test_what_has_not_begun_is_cut_in_half(time):
    consumer = consumer_of(time)
    consumer.start()
    assert consumer.on(cut()) == (answer(10),)
    assert consumer.on(cut()) == (answer(10),)  # the same cut
    assert consumer.rows == RowRange(START, Position(1, 0))
    assert consumer.on(cut("y")) == (answer(5, "y"),)
    assert consumer.on(cut()) == (answer(10),)
    assert DropExchange(1) in consumer.on(ReadAccepted(1, True, False))  # it is a part now


def test_no_chunk_goes_behind_a_cut(time):
    consumer = consumer_of(time)
    consumer.start()
    consumer.on(cut())
    consumer.on(ReadAccepted(1, True))
    consumer.on(chunk(0, 4))
    consumer.on(chunk(4, 8))
    assert DropExchange(1) in consumer.on(chunk(8, 12))
    assert consumer.position == Position(0, 8)


def test_rows_in_another_order_are_not_cut(time):
    consumer = reading(time, in_order=False)
    assert consumer.on(cut()) == (answer(20),)
    assert consumer.rows.end == SECTIONS.end


def test_a_partition_that_is_read_whole_is_not_cut(time):
    consumer = reading(time, grant(whole=True))
    assert consumer.on(cut()) == ()


def test_after_the_end_a_cut_leaves_all_as_it_was_said(time):
    consumer = reading(time)
    consumer.on(trailer(20, *read_all(consumer)))
    assert consumer.on(cut()) == (answer(20),)


def test_a_grant_that_lives_no_more_is_left_at_once(time):
    consumer = reading(time)
    assert consumer.on(ReportReply(token="other", is_live=False)) == ()
    assert consumer.on(ReportReply(token="t", is_live=True)) == ()
    assert consumer.on(ReportReply(token="t", is_live=False)) == (DropExchange(1),)
    assert consumer.phase == "over"
    assert consumer.on(chunk(0, 4)) == ()
    assert consumer.outcome is None


def test_it_reports_how_far_it_is_while_it_is_not_over(time):
    consumer = reading(time)
    consumer.on(chunk(0, 4))
    time.now_ms = REPORT_MS - 1
    assert consumer.tick() == ()
    time.now_ms = REPORT_MS
    assert consumer.tick() == (ReadReport(token="t", client=ME, position=Position(0, 4)),)
    assert consumer.tick() == ()
    time.now_ms = 2 * REPORT_MS
    assert len(consumer.tick()) == 1


EVENTS = st.lists(
    st.tuples(st.sampled_from(["chunk", "old", "close", "cut", "tick", "trailer", "no"]), st.integers(0, 9))
)


@given(EVENTS, st.integers(0, 19), st.integers(1, 20))
def test_rows_are_taken_in_their_order_once_and_no_further_than_its_last_cut(events, first, length):
    time = VirtualTime(seeded_chance(0))
    last = min(first + length, 20)
    rows = RowRange(SECTIONS.at(first), SECTIONS.at(last))
    consumer = consumer_of(time, grant(rows=rows))
    consumer.start()
    taken, ends, allowed, sent, place, crcs = [], [rows.end], 0, 0, first, []
    for event, number in [*events, *[("tick", 9), ("chunk", 9), ("trailer", 0)] * 12]:
        attempt = consumer._attempt.number
        if consumer.phase == "opening":
            actions = consumer.on(ReadOnHold(attempt, 100.0) if event == "no" else ReadAccepted(attempt, True))
            allowed, sent, place, crcs = CREDITS, 0, SECTIONS.offset(consumer.position), []
        end = SECTIONS.offset(consumer.rows.end)
        if event in ("chunk", "old") and consumer.phase == "reading" and sent < allowed and place < end:
            to = min(place + 1 + number % CHUNK, end)
            actions = consumer.on(chunk(place, to, attempt - (event == "old")))
            if event == "chunk":
                assert TakeRows(False) in actions
                taken += range(place, to)
                place, sent, allowed = to, sent + 1, allowed + 1
                crcs.append(to)
        elif event == "trailer" and consumer.phase == "reading":
            consumer.on(trailer(place, *crcs, attempt=attempt))
        elif event == "close":
            consumer.on(ReadClosed(attempt))
        elif event == "cut":
            for action in consumer.on(cut(f"cut{number}")):
                if isinstance(action, CutAnswer):
                    assert rows.start < action.end
                    ends.append(action.end)
        elif event == "tick":
            time.now_ms += 1_000.0 * number
            consumer.tick()
        assert taken == list(range(first, SECTIONS.offset(consumer.position)))
        assert consumer.position <= consumer.rows.end == min(ends)
    if consumer.phase == "ending":
        assert taken == list(range(first, SECTIONS.offset(min(ends))))
