"""What an executor remembers of grants: whose exchange goes on, and until when a job counts."""

from __future__ import annotations

import pytest
from tests.transport.conftest import HandClock

from ballista_py.errors import SnapshotGone, StoreUnavailable
from ballista_py.node.executor.granted_parts import KNOWN_LEASES, LATE_MS, LOOK_MS, GrantDesk
from ballista_py.state.members.liveness import SKEW_MS
from ballista_py.storage.reads.leases import ReadDocument
from ballista_py.transport.table_read.tokens.exchange import (
    OpenRead,
    ReadAccepted,
    ReadPreempted,
    ReadSnapshotGone,
    StaleAttempt,
)
from ballista_py.transport.table_read.tokens.positions import START
from ballista_py.transport.table_read.tokens.serving import HeldPartition, ServedReads

HELD = HeldPartition(is_held=True)
LEASE_MS = 900_000


class Call:
    """A call under way."""

    def __init__(self):
        self.cuts = 0
        self.works = False

    def cut(self, reason):
        self.cuts += 1

    def is_at_work(self):
        return self.works


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def desk(clock):
    return GrantDesk(clock, ServedReads(clock))


def lease(renewals=0, lease_ms=LEASE_MS):
    return ReadDocument(table="t", client="", digest="", lease_ms=lease_ms, ends_ms=0, renewals=renewals)


def asks(token="g", attempt=1, ancestors=(), job="j"):
    return OpenRead(
        job=job, token=token, ancestors=ancestors, partition=0, snapshot=job, attempt=attempt, start=START,
        wants_plan=False,
    )  # fmt: skip


def begun(desk, request, found=None):
    call = Call()
    assert isinstance(desk.open(request, HELD, found or lease()), ReadAccepted)
    desk.began(request, call)
    return call


def always(_job):
    return lease()


def test_a_successor_ends_the_exchange_of_its_ancestor_and_no_other(desk):
    first, other = begun(desk, asks("a")), begun(desk, asks("b"))
    begun(desk, asks("c", ancestors=("a",)))
    assert (first.cuts, other.cuts) == (1, 0)
    assert not desk.goes_on(asks("a"))
    assert desk.goes_on(asks("b"))
    assert desk.open(asks("a", attempt=2), HELD, lease()) == ReadPreempted(2)
    assert desk.exchanges == 2


def test_another_job_preempts_nothing(desk):
    call = begun(desk, asks("a"))
    begun(desk, asks("c", ancestors=("a",), job="other"))
    assert call.cuts == 0


def test_a_later_attempt_ends_the_one_before_and_an_earlier_one_is_stale(desk):
    first = begun(desk, asks(attempt=1))
    begun(desk, asks(attempt=2))
    assert first.cuts == 1
    assert not desk.goes_on(asks(attempt=1))
    assert desk.goes_on(asks(attempt=2))
    assert desk.open(asks(attempt=1), HELD, lease()) == StaleAttempt(1)


def test_the_same_attempt_again_takes_the_place_of_the_first_whose_end_ends_nothing(desk):
    request = asks()
    first = begun(desk, request)
    second = begun(desk, request)
    assert (first.cuts, second.cuts) == (1, 0)
    desk.over(request, first)
    assert desk.goes_on(request)
    desk.over(request, second)
    assert not desk.goes_on(request)
    assert desk.exchanges == 0


def test_what_nobody_pulls_ends_but_not_what_is_worked_on(desk, clock):
    idle, busy = begun(desk, asks("a")), begun(desk, asks("b"))
    busy.works = True
    for _ in range(13):
        clock.now_ms += 5_000
        desk.tick(always)
    assert (idle.cuts, busy.cuts) == (1, 0)
    assert desk.exchanges == 1


def kept(desk, clock, leases, seconds):
    """Ticks once a second while the Client pulls."""
    for _ in range(seconds):
        clock.now_ms += 1_000
        desk.goes_on(asks())
        desk.tick(leases)


def test_a_job_that_nobody_renews_ends_and_nothing_of_it_is_remembered(desk, clock):
    call = begun(desk, asks(), lease(lease_ms=60_000))
    kept(desk, clock, lambda _: lease(lease_ms=60_000), 59 + int(SKEW_MS) // 1_000)
    assert call.cuts == 0
    kept(desk, clock, lambda _: lease(lease_ms=60_000), 2)
    assert call.cuts == 1
    assert (desk.served.remembered, desk.exchanges) == (0, 0)


def test_a_job_that_is_renewed_goes_on(desk, clock):
    call = begun(desk, asks(), lease(lease_ms=60_000))
    renewals = iter(range(1, 1_000))
    kept(desk, clock, lambda _: lease(next(renewals), 60_000), 300)
    assert call.cuts == 0
    assert desk.served.remembered == 1


def test_a_job_that_was_closed_ends_at_the_next_look(desk, clock):
    call = begun(desk, asks())

    def gone(_job):
        raise SnapshotGone("over")

    kept(desk, clock, gone, int(LOOK_MS) // 1_000)
    assert call.cuts == 1
    assert desk.served.remembered == 0


def test_a_store_that_cannot_be_asked_ends_no_job_before_its_time(desk, clock):
    call = begun(desk, asks(), lease(lease_ms=120_000))

    def away(_job):
        raise StoreUnavailable("away")

    kept(desk, clock, away, 100)
    assert call.cuts == 0
    kept(desk, clock, away, 30)
    assert call.cuts == 1


def test_a_job_whose_lease_is_over_is_gone_and_ends_what_is_open(desk):
    call = begun(desk, asks("a"))
    assert desk.open(asks("b"), HELD, None) == ReadSnapshotGone(1)
    assert call.cuts == 1


def test_a_lease_that_is_overdue_and_not_ended_counts_for_a_moment(desk, clock):
    begun(desk, asks(), lease(lease_ms=1_000))
    clock.now_ms += 60_000
    desk.tick(lambda _: lease(lease_ms=1_000))
    assert isinstance(desk.open(asks("b"), HELD, lease(lease_ms=1_000)), ReadAccepted)
    clock.now_ms += LATE_MS + 1
    assert not desk.goes_on(asks("b"))


def test_an_exchange_that_did_not_begin_leaves_its_place(desk):
    request = asks()
    assert isinstance(desk.open(request, HELD, lease()), ReadAccepted)
    desk.over(request)
    assert desk.served.streams == ()


def test_of_very_many_jobs_no_more_than_so_many_looks_are_taken(desk, clock):
    for number in range(800):
        desk.open(asks(job=f"j{number}"), HELD, lease())
    looks = []
    for _ in range(60):
        clock.now_ms += 1_000
        desk.tick(lambda job: looks.append(job) or lease())
    assert len(looks) <= 60 * 80
    assert len(set(looks)) == 800


def test_leases_are_remembered_within_bounds(desk, clock):
    for number in range(KNOWN_LEASES + 10):
        desk.open(asks(job=f"j{number}"), HELD, lease())
    assert len(desk._seen) == KNOWN_LEASES
