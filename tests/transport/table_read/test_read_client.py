"""A worker of a shared read before real Servers: busy ones, an old ticket, an Agent that says nothing."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from tests.transport.table_read.test_granted_exchange import FILES, SCHEMA, Server

from ballista_py.agents import read_client
from ballista_py.agents.agent import ReadSource
from ballista_py.agents.read_client import ReadClient
from ballista_py.agents.read_job import ReadPartition
from ballista_py.agents.shared_read import SharedRead
from ballista_py.errors import SnapshotGone, SqlError, TransportError, TryLater, Unauthenticated
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight_sql.legs import PartsService
from ballista_py.transport.security.access import PARTS
from ballista_py.transport.table_read.exchange import OnHold, PartAnswer, TooBusy
from ballista_py.transport.table_read.grant_messages import AskForWork
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.tokens.exchange import ReadPreempted
from ballista_py.transport.table_read.tokens.messages import ReadDone, ReaderId

SOURCE = ReadSource(url="ballista://127.0.0.1:1")


class Job:
    read_id, lease_ms, given, source = "r", 60_000, SCHEMA, SOURCE

    def __init__(self, uri, plan, *, whole=False, ticket=b"{}", passes=False):
        self.uri = uri
        self.partitions = (
            ReadPartition(
                source=SOURCE, read_id="r", number=0, rows=FILES.total, data_bytes=1, schema=SCHEMA,
                base_schema=SCHEMA, plan=plan, relation="t", passes_rows=passes, locations=(uri,), ticket=ticket,
                section_rows=() if whole else FILES.rows, priorities=(0,),
            ),
        )  # fmt: skip

    def renew(self):
        return self.lease_ms

    def ask(self, name, message, answer):
        """As a Coordinator."""
        place = pb.Location(uri=self.uri)
        return pb.Located(partitions=[pb.Partition(number=0, ticket=b'{"new": 1}', locations=[place])])


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def uri(serve, server):
    served = serve(access=PARTS, service=partial(PartsService, command_of=lambda *_: {}, reads=server))
    return f"grpc://{served.address}"


def share(uri, plan="select n from t", **options) -> SharedRead:
    job = Job(uri, plan, **options)
    return SharedRead(job, job, SystemRuntime(), dead_after=30.0)


def read(shared, **options) -> list[int]:
    with ReadClient(shared, **options) as client:
        return [n for _, table in client.tables() for n in table["n"].to_pylist()]


def test_what_servers_have_no_time_for_is_done_by_the_worker(uri, server, monkeypatch):
    given = server.open_part
    monkeypatch.setattr(
        Server, "open_part", lambda self, request, _: TooBusy() if request.process else given(request, None)
    )
    assert read(share(uri, "select n * 2 as n from t where n < 3")) == [0, 2, 4]


def test_rows_that_are_given_as_they_are_are_processed_by_nobody(uri, server):
    assert read(share(uri, "no SQL at all", passes=True)) == list(range(FILES.total))
    assert [one.process for one in server.asked] == [False]


@pytest.mark.parametrize("processed", [True, False])
def test_an_aggregate_over_no_rows_has_one(uri, monkeypatch, processed):
    counted = pa.RecordBatch.from_pydict({"n": [0]}, SCHEMA)

    def open_part(_self, request, _context):
        if request.process and not processed:
            return TooBusy()
        rows = [(None, counted)] if request.process else []
        sections = None if request.process else FILES
        begin = FILES.end if sections else request.begin
        return PartAnswer(
            schema=SCHEMA, batches=iter(rows), processed=request.process, sections=sections, begin=begin
        )

    monkeypatch.setattr(Server, "open_part", open_part)
    assert read(share(uri, "select count(*) as n from t", whole=True)) == [0]


def test_an_old_ticket_is_changed_for_a_new_one(uri, server, monkeypatch):
    given = server.open_part

    def open_part(_self, request, context):
        if request.ticket != {"new": 1}:
            raise Unauthenticated("the ticket is too old")
        return given(request, context)

    monkeypatch.setattr(Server, "open_part", open_part)
    assert len(read(share(uri))) == FILES.total


def test_a_ticket_that_counts_nowhere_is_an_error(uri, server):
    server.outcome = Unauthenticated("of another cluster")
    with pytest.raises(Unauthenticated):
        read(share(uri))


def test_a_partition_that_nobody_gives_is_an_error_in_the_end_and_waits_for_others_at_once(uri, server):
    server.outcome = OnHold(10)
    shared = share(uri)
    with pytest.raises(TryLater, match="nobody gives partition 0"):
        read(shared, patience=1.0)
    assert shared._agent.waiting == 1


def test_a_job_that_is_over_at_a_server_is_over(uri, server):
    server.outcome = SnapshotGone("over")
    shared = share(uri)
    with pytest.raises(SnapshotGone):
        read(shared)
    with pytest.raises(SnapshotGone):
        shared.tick()


def test_an_error_of_the_plan_is_raised_and_its_rows_given_up(uri, server):
    server.outcome = SqlError("division by zero")
    shared = share(uri)
    with pytest.raises(SqlError):
        read(shared)
    assert shared._agent.waiting == 1


def test_a_worker_that_is_preempted_gives_its_rows_back(uri, server, monkeypatch):
    given, seen = server.open_part, []

    def open_part(_self, request, context):
        seen.append(request.token)
        return ReadPreempted(request.attempt) if len(seen) == 1 else given(request, context)

    monkeypatch.setattr(Server, "open_part", open_part)
    assert read(share(uri)) == list(range(FILES.total))
    assert len(set(seen)) == 2


class Sink:
    def __init__(self):
        self.said = []

    def begin(self, token):
        self.said.append("begin")

    def take(self, rows):
        if self.said[-1] != "take":
            self.said.append("take")

    def keep(self):
        self.said.append("keep")

    def counted(self):
        self.said.append("counted")

    def thrown_away(self):
        self.said.append("thrown away")


def test_rows_are_kept_before_they_count(uri):
    shared, sink = share(uri), Sink()
    said = shared.say

    def say(word):
        if isinstance(word, ReadDone):
            assert sink.said == ["begin", "take", "keep"]
        return said(word)

    shared.say = say
    with ReadClient(shared) as client:
        assert client.read(sink) == 1
    assert sink.said == ["begin", "take", "keep", "counted"]


def test_a_done_that_is_not_answered_is_said_again_and_kept_once(uri):
    shared, sink, lost = share(uri), Sink(), []
    said = shared.say

    def say(word):
        found = said(word)
        if isinstance(word, ReadDone) and len(lost) < 2:
            lost.append(found.outcome)
            raise TransportError("the answer is lost")
        return found

    shared.say = say
    with ReadClient(shared) as client:
        assert client.read(sink) == 1
    assert lost == ["counted", "again"]
    assert sink.said == ["begin", "take", "keep", "counted"]


def test_rows_that_somebody_else_reads_by_now_are_thrown_away(uri):
    shared, sink = share(uri), Sink()
    said, other = shared.say, []

    def say(word):
        if isinstance(word, ReadDone) and not other:
            other.append(said(AskForWork(ReaderId("me", "later"))))  # another instance of it
        return said(word)

    shared.say = say
    with ReadClient(shared, name="me") as client:
        assert client.read(sink) == 0
    assert sink.said == ["begin", "take", "keep", "thrown away"]
    with ReadClient(shared, name="me") as client:
        assert client.read(Sink()) == 1


def test_an_agent_that_says_nothing_for_too_long_is_an_error(uri):
    shared = share(uri)

    def say(word):
        raise TransportError("away")

    shared.say = say
    with pytest.raises(TransportError, match="does not answer"):
        read(shared, patience=0.5)


def test_a_sink_that_fails_gives_its_rows_up(uri):
    shared, sink = share(uri), Sink()

    def full():
        raise OSError("the disk is full")

    sink.keep = full
    with ReadClient(shared) as client, pytest.raises(OSError, match="full"):
        client.read(sink)
    assert (shared._agent.waiting, shared.has_ended) == (1, False)


@pytest.mark.parametrize(("in_parts", "wanted"), [(False, [6]), (True, [3, 3])])
def test_what_is_read_whole_is_processed_together_and_the_rest_does_not_wait_for_all(
    monkeypatch, in_parts, wanted
):
    monkeypatch.setattr(read_client, "HELD_BYTES", 1)
    found = []
    sink = Sink()
    sink.take = lambda rows: found.extend(rows["n"].to_pylist())
    shared = share("grpc://127.0.0.1:1", "select sum(n)::bigint as n from t", whole=True)
    rows = read_client._RowsOfGrant(shared.here, sink, in_parts=in_parts)
    for _ in range(2):
        rows.take((pa.record_batch({"n": [1, 2]}, schema=SCHEMA),), applies_plan=True)
    rows.finish()
    assert found == wanted
