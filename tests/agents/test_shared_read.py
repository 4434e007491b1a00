"""The Agent of a shared read: whom it judges when, what it renews, where partitions are by now."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.transport.conftest import HandClock

from ballista_py.agents.agent import ReadSource
from ballista_py.agents.read_job import ReadPartition, _section_rows
from ballista_py.agents.shared_read import HEAR_FIRST_MS, SharedRead, _planned
from ballista_py.errors import InvalidData, SnapshotGone, TransportError, TryLater
from ballista_py.secret import Secret
from ballista_py.transport.table_read.grant_messages import AskForWork
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.tokens.grants import spread
from ballista_py.transport.table_read.tokens.messages import (
    NoMoreWork,
    ReadDone,
    ReaderId,
    ReadLocation,
    ReplanAsked,
    SnapshotLost,
    WaitForWork,
)

SCHEMA = pa.schema([("n", pa.int64())])
A, B = ReaderId("a", "1"), ReaderId("b", "1")
SOURCE = ReadSource(url="ballista://s:1", token=Secret("0123456789abcdef"))


class Clock(HandClock):
    def sleep_ms(self, ms):
        self.now_ms += ms


def part(number=0, **changed) -> ReadPartition:
    return ReadPartition(
        **{
            "source": SOURCE, "read_id": "r", "number": number, "rows": 10, "data_bytes": 1, "schema": SCHEMA,
            "base_schema": SCHEMA, "plan": "p", "relation": "t", "passes_rows": False,
            "locations": ("s1", "s2"), "ticket": b"old",
            "section_rows": (4, 6), "priorities": (0, 1), **changed,
        }
    )  # fmt: skip


class Job:
    read_id, lease_ms, given, source = "r", 60_000, SCHEMA, SOURCE

    def __init__(self):
        self.partitions = (part(),)
        self.renewed = 0
        self.error = None

    def renew(self):
        if self.error is not None:
            raise self.error
        self.renewed += 1
        return self.lease_ms


class Coordinators:
    def __init__(self):
        at = [pb.Location(uri="s3", hints=pb.ServingHints(priority=2))]
        self.answer = pb.Located(partitions=[pb.Partition(number=0, ticket=b"new", locations=at)])
        self.error = None

    def ask(self, name, message, answer):
        assert (name, answer, message.read_id, list(message.partitions)) == ("Locate", "Located", "r", [0])
        if self.error is not None:
            raise self.error
        return self.answer


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def job():
    return Job()


@pytest.fixture
def coordinators():
    return Coordinators()


@pytest.fixture
def shared(job, coordinators, clock):
    return SharedRead(job, coordinators, clock, dead_after=10.0)


def ticks(shared, clock, seconds):
    for _ in range(seconds):
        clock.now_ms += 1_000
        shared.tick()


def test_a_worker_that_is_silent_loses_its_rows(shared, clock):
    grant = shared.say(AskForWork(A))
    ticks(shared, clock, 10)
    assert isinstance(shared.say(AskForWork(B)), WaitForWork)
    ticks(shared, clock, 1)
    assert shared.say(AskForWork(B)).ancestors == (grant.token,)


def test_an_agent_that_stood_still_hears_its_workers_before_it_judges_them(shared, clock):
    shared.say(AskForWork(A))
    ticks(shared, clock, 1)
    clock.now_ms += 60_000
    shared.tick()  # they have been silent for a minute, as far as it knows
    assert isinstance(shared.say(AskForWork(B)), WaitForWork)
    for _ in range(int(HEAR_FIRST_MS) // 1_000):
        clock.now_ms += 1_000
        shared.tick()
    assert shared.say(AskForWork(B)).ancestors  # silent still


def test_the_lease_is_renewed_three_times_as_often_as_it_must_be(shared, clock, job):
    ticks(shared, clock, 19)
    assert job.renewed == 0
    ticks(shared, clock, 2)
    assert job.renewed == 1
    ticks(shared, clock, 100)
    assert job.renewed in (5, 6)


def test_a_coordinator_that_is_away_is_asked_again_soon(shared, clock, job):
    job.error = TransportError("away")
    ticks(shared, clock, 30)
    job.error = None
    ticks(shared, clock, 3)
    assert job.renewed == 1


def test_a_job_that_is_over_is_over_for_all(shared, clock, job):
    job.error = SnapshotGone("over")
    with pytest.raises(SnapshotGone):
        ticks(shared, clock, 30)
    for said in (lambda: shared.say(AskForWork(A)), shared.tick):
        with pytest.raises(SnapshotGone):
            said()


def test_a_worker_that_was_told_that_it_is_over_ends_the_job(shared):
    grant = shared.say(AskForWork(A))
    shared.say(SnapshotLost(token=grant.token, client=A, snapshot="r"))
    with pytest.raises(SnapshotGone):
        shared.tick()


def replan(grant, **changed):
    return ReplanAsked(
        **{"token": grant.token, "client": grant.client, "partition": 0, "snapshot": "r", **changed}
    )


def test_where_a_partition_is_by_now_goes_to_its_worker_and_to_those_after_it(shared, coordinators):
    grant = shared.say(AskForWork(A))
    assert (grant.ticket, [one.uri for one in grant.locations]) == (b"old", ["s1", "s2"])
    found = shared.say(replan(grant))
    assert (found.ticket, found.locations) == (b"new", (ReadLocation(uri="s3", priority=2),))
    assert shared.say(AskForWork(ReaderId("a", "2"))).ticket == b"new"


def test_a_partition_is_not_looked_for_where_nobody_waits_for_it(shared, coordinators):
    grant = shared.say(AskForWork(A))
    coordinators.error = AssertionError("asked")
    assert shared.say(replan(grant, client=B)) is None
    assert shared.say(replan(grant, token="x")) is None
    for changed in ({"partition": 7}, {"snapshot": "other"}):
        with pytest.raises(InvalidData):
            shared.say(replan(grant, **changed))


def test_a_coordinator_that_does_not_say_where_is_asked_again_and_one_that_says_gone_ends_the_job(
    shared, coordinators
):
    grant = shared.say(AskForWork(A))
    coordinators.error = TryLater("full")
    assert shared.say(replan(grant)) is None
    coordinators.error = None
    coordinators.answer = pb.Located(partitions=[pb.Partition(number=5)])
    with pytest.raises(InvalidData):
        shared.say(replan(grant))
    coordinators.error = SnapshotGone("over")
    with pytest.raises(SnapshotGone):
        shared.say(replan(grant))
    with pytest.raises(SnapshotGone):
        shared.tick()


def test_whoever_waits_for_the_end_tells_those_who_wait_for_rows(shared, clock):
    grant = shared.say(AskForWork(A))
    shared.say(AskForWork(B))
    assert not shared.wait(timeout=3)
    shared.say(ReadDone(token=grant.token, client=A, rows=grant.rows))
    before = clock.now_ms
    assert shared.wait()
    assert clock.now_ms - before >= 3_000  # both have asked, and know nothing yet
    assert [shared.say(AskForWork(one)) for one in (A, B)] == [NoMoreWork()] * 2
    before = clock.now_ms
    assert shared.wait()
    assert clock.now_ms == before


def test_the_token_of_the_client_goes_to_no_worker(shared):
    assert shared.here._source.token is None
    assert shared.here._source.url == SOURCE.url


def test_a_partition_without_places_is_read_whole():
    assert _planned(part(section_rows=())).sections is None
    assert _planned(part()).sections.rows == (4, 6)
    assert [one.priority for one in _planned(part()).locations] == [0, 1]
    assert [one.priority for one in _planned(part(priorities=())).locations] == [0, 1]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"sections": 2, "section_rows": [4, 6]}, (4, 6)),
        ({"sections": 1}, (10,)),
        ({"sections": 2}, ()),
        ({"sections": 2, "section_rows": [4]}, ()),
        ({"sections": 2, "section_rows": [4, 5]}, ()),
    ],
)
def test_places_are_known_where_all_rows_of_sections_are(said, wanted):
    assert _section_rows(SimpleNamespace(**{"rows": 10, "section_rows": [], **said})) == wanted


def test_a_server_that_very_many_ask_is_no_better_than_the_next_best():
    owner, copy, far = (ReadLocation(uri=uri, priority=n) for n, uri in enumerate(["owner", "copy", "far"]))
    places = [far, copy, owner]
    assert spread(places, "c", {"owner": 2}) == (owner, copy, far)
    assert spread(places, "c", {"owner": 3}) == (copy, owner, far)
    assert spread(places, "c", {"owner": 6, "copy": 2})[0] == copy
    assert spread(places, "c", {"owner": 3, "copy": 3})[0] == owner
