"""A Server's memory: what was superseded is not served, what nobody wants goes, and all of it is bounded."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.runtime import seeded_chance
from ballista_py.testing.models.table_read_nodes import VirtualTime
from ballista_py.transport.table_read.tokens.exchange import (
    MAX_ANCESTORS,
    OpenRead,
    ReadAccepted,
    ReadOnHold,
    ReadPreempted,
    ReadRefused,
    ReadRejected,
    ReadSnapshotGone,
    StaleAttempt,
)
from ballista_py.transport.table_read.tokens.positions import START
from ballista_py.transport.table_read.tokens.serving import IDLE_MS, HeldPartition, ServedReads, ServedStream

HELD, LEASE_MS = HeldPartition(is_held=True), 900_000.0
A = OpenRead(
    job="j", token="a", ancestors=(), partition=0, snapshot="s",
    attempt=1, start=START, wants_plan=True, needs_order=False,
)  # fmt: skip
B = evolve(A, token="b")
STREAM_A = ServedStream("j", "a", 1, "s", 0)


@pytest.fixture
def reads(time):
    return ServedReads(time, max_streams=3)


def opened(reads, request, held=HELD, lease_left_ms=LEASE_MS):
    return reads.open(request, held, lease_left_ms).reply


def test_what_is_accepted_may_be_pulled_until_it_is_closed(reads):
    assert opened(reads, A) == ReadAccepted(1, True, True)
    assert reads.pulled("j", "a", 1)
    assert reads.streams == (STREAM_A,)
    assert reads.closed("j", "a", 2) == ()
    assert reads.closed("j", "a", 1) == (STREAM_A,)
    assert reads.closed("j", "a", 1) == ()
    assert not reads.pulled("j", "a", 1)
    assert reads.streams == ()


def test_nothing_that_was_not_accepted_may_be_pulled(reads):
    assert not reads.pulled("j", "a", 1)
    opened(reads, A)
    for job, token in (("other", "a"), ("j", "b")):
        assert not reads.pulled(job, token, 1)
        assert reads.closed(job, token, 1) == ()


def test_a_successor_ends_the_streams_of_all_that_it_names_for_ever(reads):
    opened(reads, A)
    opened(reads, B)
    answer = reads.open(evolve(A, token="c", ancestors=("a", "b")), HELD, LEASE_MS)
    assert answer.reply == ReadAccepted(1, True)
    assert {stream.token for stream in answer.ended} == {"a", "b"}
    for old in (A, B):
        assert not reads.pulled("j", old.token, 1)
        assert opened(reads, evolve(old, attempt=2)) == ReadPreempted(2)


def test_ancestors_are_superseded_whatever_is_said_to_their_successor(reads):
    opened(reads, A)
    answer = reads.open(evolve(B, ancestors=("a",)), HeldPartition(is_held=False), LEASE_MS)
    assert answer.reply == ReadRejected(1)
    assert answer.ended == (STREAM_A,)
    assert opened(reads, A) == ReadPreempted(1)


def test_no_job_preempts_a_grant_of_another(reads):
    opened(reads, A)
    assert reads.open(evolve(B, job="attacker", ancestors=("a",)), HELD, LEASE_MS).ended == ()
    assert reads.pulled("j", "a", 1)


def test_of_a_grant_the_newest_attempt_alone_is_served(reads):
    opened(reads, A)
    answer = reads.open(evolve(A, attempt=3), HELD, LEASE_MS)
    assert answer.reply == ReadAccepted(3, True)
    assert answer.ended == (STREAM_A,)
    assert not reads.pulled("j", "a", 1)
    assert reads.pulled("j", "a", 3)
    assert opened(reads, evolve(A, attempt=2)) == StaleAttempt(2)
    assert reads.closed("j", "a", 1) == ()
    assert [stream.attempt for stream in reads.streams] == [3]


def test_an_open_that_comes_twice_gets_one_stream_and_the_same_answer(reads):
    for _ in range(2):
        assert opened(reads, A, evolve(HELD, in_order=False)) == ReadAccepted(1, True, False)
        assert len(reads.streams) == 1
    assert opened(reads, A, HeldPartition(is_held=False)) == ReadAccepted(1, True, False)
    reads.closed("j", "a", 1)
    assert opened(reads, A) == StaleAttempt(1)  # it comes too late


def test_an_attempt_that_was_put_off_may_be_heard_again(reads):
    assert opened(reads, A, HeldPartition(is_held=True, is_busy=True)) == ReadRefused(1)
    assert opened(reads, A) == ReadAccepted(1, True)


def test_a_later_attempt_that_is_not_served_ends_the_one_before(reads):
    opened(reads, A)
    answer = reads.open(evolve(A, attempt=2), HeldPartition(is_held=False), LEASE_MS)
    assert answer.reply == ReadRejected(2)
    assert answer.ended == (STREAM_A,)
    assert reads.streams == ()


def test_too_busy_is_never_said_to_whoever_wants_columns_as_they_are(reads):
    busy = HeldPartition(is_held=True, is_busy=True)
    assert opened(reads, A, busy) == ReadRefused(1)
    assert opened(reads, evolve(A, wants_plan=False), busy) == ReadAccepted(1, False)


def test_rows_out_of_order_are_never_given_to_whoever_needs_the_order(reads):
    assert opened(reads, A, evolve(HELD, in_order=False)) == ReadAccepted(1, True, False)
    assert opened(reads, evolve(B, needs_order=True), evolve(HELD, in_order=False)) == ReadAccepted(1, True, True)


def test_who_comes_when_enough_is_read_is_on_hold(time):
    reads = ServedReads(time, max_streams=2, retry_after_ms=77.0)
    opened(reads, A)
    opened(reads, evolve(A, job="k"))
    assert opened(reads, B) == ReadOnHold(1, 77.0)
    assert opened(reads, evolve(A, attempt=2)) == ReadAccepted(2, True)  # it has its place
    reads.closed("j", "a", 2)
    assert opened(reads, B) == ReadAccepted(1, True)


def test_a_successor_may_take_the_place_of_whom_it_names(time):
    reads = ServedReads(time, max_streams=1)
    opened(reads, A)
    assert opened(reads, evolve(B, ancestors=("a",))) == ReadAccepted(1, True)


def test_a_stream_that_nobody_pulls_is_dropped_and_another_one_is_not(time, reads):
    opened(reads, A)
    opened(reads, B)
    time.now_ms = IDLE_MS
    assert reads.pulled("j", "b", 1)
    assert reads.tick() == ()
    time.now_ms = IDLE_MS + 1
    assert not reads.pulled("j", "a", 1)
    assert reads.tick() == (STREAM_A,)
    assert reads.pulled("j", "b", 1)


def test_an_open_that_comes_again_is_no_pull(time, reads):
    opened(reads, A)
    time.now_ms = IDLE_MS
    opened(reads, A)
    time.now_ms = IDLE_MS + 1
    assert reads.tick() == (STREAM_A,)


def test_all_of_a_job_goes_when_its_lease_ends(time, reads):
    opened(reads, evolve(A, ancestors=("x",)), lease_left_ms=5_000.0)
    opened(reads, evolve(A, job="other"))
    time.now_ms = 4_999.0
    assert reads.tick() == ()
    assert reads.pulled("j", "a", 1)
    time.now_ms = 5_000.0
    assert not reads.pulled("j", "a", 1)
    assert reads.tick() == (STREAM_A,)
    assert [stream.job for stream in reads.streams] == ["other"]
    assert reads.remembered == 1


def test_a_lease_that_was_renewed_goes_on(time, reads):
    opened(reads, evolve(A, ancestors=("x",)), lease_left_ms=5_000.0)
    reads.closed("j", "a", 1)
    assert reads.ending(4_999.0) == ()
    assert reads.ending(5_000.0) == ("j",)  # without a stream, too: what it superseded would be forgotten
    reads.renewed("j", 10_000.0)
    reads.renewed("unknown", 10_000.0)
    time.now_ms = 9_000.0
    reads.tick()
    assert reads.remembered == 2
    reads.renewed("j", 0.0)
    reads.tick()
    assert reads.remembered == 0


def test_the_newest_word_on_a_lease_counts(time, reads):
    opened(reads, A, lease_left_ms=9_000.0)
    opened(reads, B, lease_left_ms=1_000.0)
    time.now_ms = 1_000.0
    assert len(reads.tick()) == 2


def test_who_comes_after_idle_streams_and_jobs_that_ended_gets_their_place_at_once(time):
    reads = ServedReads(time, max_streams=1)
    opened(reads, A)
    time.now_ms = IDLE_MS + 1
    answer = reads.open(B, HELD, LEASE_MS)
    assert (answer.reply, answer.ended) == (ReadAccepted(1, True), (STREAM_A,))
    reads.renewed("j", 1.0)
    time.now_ms += 1.0
    assert opened(reads, evolve(A, job="k")) == ReadAccepted(1, True)


def test_nothing_is_read_of_a_snapshot_without_a_lease(reads):
    opened(reads, A)
    answer = reads.open(evolve(A, attempt=2), HELD, 0.0)
    assert answer.reply == ReadSnapshotGone(2)
    assert answer.ended == (STREAM_A,)
    assert reads.remembered == 0


def test_a_job_that_has_ended_is_forgotten(reads):
    opened(reads, A)
    assert reads.end_job("j") == (STREAM_A,)
    assert reads.end_job("j") == ()
    assert reads.remembered == 0


def test_a_job_that_names_a_million_grants_makes_its_own_be_forgotten(time):
    reads = ServedReads(time, max_tokens=500)
    opened(reads, evolve(A, job="good", token="g2", ancestors=("g1",)))
    for number in range(100):
        ancestors = tuple(f"{number}-{n}" for n in range(1_000))
        opened(reads, evolve(A, job="evil", token=f"t{number}", ancestors=ancestors))
        assert reads.remembered <= 500
    assert opened(reads, evolve(A, job="good", token="g1")) == ReadPreempted(1)
    assert opened(reads, evolve(A, job="evil", token="99-999")) == ReadPreempted(1)
    assert opened(reads, evolve(A, job="evil", token="0-999")) != ReadPreempted(1)


def test_of_very_many_ancestors_the_newest_are_superseded(reads):
    names = tuple(f"x{n}" for n in range(MAX_ANCESTORS + 1))
    opened(reads, evolve(A, ancestors=names))
    assert reads.remembered == MAX_ANCESTORS + 1
    assert opened(reads, evolve(A, token="x1")) == ReadPreempted(1)
    assert opened(reads, evolve(A, token="x0")) == ReadAccepted(1, True)


def test_what_is_forgotten_for_want_of_room_never_lets_an_earlier_attempt_in(time):
    reads = ServedReads(time, max_tokens=2)
    opened(reads, evolve(A, attempt=5))
    opened(reads, evolve(B, ancestors=("x", "y", "z")))
    assert opened(reads, evolve(A, attempt=4)) == StaleAttempt(4)
    assert reads.pulled("j", "a", 5)


def test_of_very_many_jobs_the_one_without_streams_that_ends_first_is_forgotten(time):
    reads = ServedReads(time, max_streams=2, max_jobs=3)
    opened(reads, A, lease_left_ms=1_000.0)
    for name, left in (("k", 9_000.0), ("l", 8_000.0)):
        opened(reads, evolve(A, job=name, ancestors=("x",)), lease_left_ms=left)
        reads.closed(name, "a", 1)
    opened(reads, evolve(A, job="m", ancestors=("x",)))
    assert opened(reads, evolve(A, job="k", token="x")) == ReadPreempted(1)
    assert reads.pulled("j", "a", 1)
    reads.closed("m", "a", 1)
    assert opened(reads, evolve(A, job="l", token="x")) == ReadAccepted(
        1, True
    )  # forgotten, so it is served in vain


def test_there_is_always_room_for_another_job(time):
    reads = ServedReads(time, max_streams=4, max_jobs=1)
    for number in range(10):
        opened(reads, evolve(A, job=f"j{number}"))
    assert len(reads.streams) == 4


OPENS = st.tuples(
    st.sampled_from("ab"), st.integers(0, 5), st.integers(1, 4), st.sets(st.integers(0, 5), max_size=3), st.booleans()
)  # fmt: skip


@given(st.lists(st.one_of(OPENS, st.integers(0, 40_000)), max_size=50))
def test_no_superseded_grant_and_no_earlier_attempt_is_ever_served_and_all_stays_bounded(events):
    time = VirtualTime(seeded_chance(0))
    reads = ServedReads(time, max_streams=3)
    superseded, newest, now = set(), {}, set()
    for event in events:
        if isinstance(event, int):
            time.now_ms += event
            now -= set(reads.tick())
        else:
            job, number, attempt, ancestors, is_held = event
            request = evolve(
                A,
                job=job,
                token=f"t{number}",
                attempt=attempt,
                ancestors=tuple(f"t{n}" for n in ancestors - {number}),
            )
            superseded |= {(job, token) for token in request.ancestors}
            answer = reads.open(request, HeldPartition(is_held=is_held), 1e9)
            now -= set(answer.ended)
            if isinstance(answer.reply, ReadAccepted):
                now.add(ServedStream(job, request.token, attempt, "s", 0))
                assert (job, request.token) not in superseded
                assert attempt >= newest.get((job, request.token), 0)
                newest[job, request.token] = attempt
        assert set(reads.streams) == now
        assert len(now) <= 3
        for stream in now:
            assert (stream.job, stream.token) not in superseded
            assert stream.attempt == newest[stream.job, stream.token]
