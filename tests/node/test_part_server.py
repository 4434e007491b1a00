"""An executor gives parts of read jobs within bounds: of a client, of what it has to do, and of its memory."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from ballista_py.errors import InvalidData, SnapshotGone, SqlError, TryLater, Unauthenticated
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.executor import part_server
from ballista_py.node.executor.part_server import BUSY_TASKS, OPEN_OF_CLIENT, PROCESSED_OF_CLIENT, ExecutorParts
from ballista_py.node.status.tasks import Tasks
from ballista_py.runtime import SystemRuntime
from ballista_py.storage.reads.leases import ReadDocument
from ballista_py.transport.security.signed_tickets import TicketCheck, TicketSigner
from ballista_py.transport.table_read.exchange import OnHold, PartAnswer, PartRequest, Rejected, TooBusy
from ballista_py.transport.table_read.tickets import READ_PURPOSE, ReadTicket
from ballista_py.transport.table_read.tokens.exchange import ReadPreempted, ReadSnapshotGone, StaleAttempt
from ballista_py.transport.table_read.tokens.positions import START

ROWS = pa.record_batch({"n": [1, 2]})
READ = SimpleNamespace(plan="select n from t", table="t")


class Held:
    """The parts of a read job: two rows each, of which `size` bytes have to be in memory."""

    def __init__(self, size=0):
        self.size = size
        self.error = None
        self.is_over = False

    def lease(self, read_id):
        if self.is_over:
            raise SnapshotGone("over")
        return ReadDocument(table="t", client="ada", digest="d", lease_ms=60_000, ends_ms=0)

    def has_places(self, read, process):
        return not process

    def granted(self, read, part, begin, process, encodings=()):
        if self.error is not None:
            raise self.error
        return PartAnswer(schema=ROWS.schema, batches=iter([(begin, ROWS)]), processed=process)

    def files(self, read_id, digest):
        return READ

    def holds(self, read, part):
        return part < 1_000

    def takes(self, read, part, encodings):
        return self.size

    def processed(self, read, part):
        return PartAnswer(schema=ROWS.schema, batches=iter([(START, ROWS)]), processed=True)

    def unprocessed(self, read, part, begin):
        return PartAnswer(schema=ROWS.schema, batches=iter([(begin, ROWS)]), processed=False)


@pytest.fixture
def runtime():
    return SystemRuntime()


@pytest.fixture
def parts(runtime):
    return ExecutorParts(
        node_id="executor-1",
        tickets=TicketCheck(purpose=READ_PURPOSE, cluster_id="c", runtime=runtime),
        tasks=Tasks("executor-1", runtime),
        runtime=runtime,
        budget=MemoryBudget(1 << 20, runtime),
        reads=Held(),
    )


def request(runtime, process, client="ada", part=0, cluster="c", **grant):
    ticket = ReadTicket(read_id="r", digest="d", part=part, client=client, anywhere=False)
    signer = TicketSigner(purpose=READ_PURPOSE, cluster_id=cluster, runtime=runtime)
    return PartRequest(ticket=signer.issue(ticket.to_json()), process=process, **grant)


class Call:
    def __init__(self):
        self.cuts = 0

    def cut(self, reason):
        self.cuts += 1

    def is_at_work(self):
        return False


def granted(parts, runtime, token, *, process=False, call=None, attempt=1, **more):
    asked = request(runtime, process, token=token, attempt=attempt, **more)
    return parts.open_part(asked, call or Call())


def test_what_a_successor_takes_the_place_of_ends(parts, runtime):
    call = Call()
    first, other = granted(parts, runtime, "a", call=call), granted(parts, runtime, "b")
    assert first.goes_on()
    second = granted(parts, runtime, "c", ancestors=("a",))
    assert (first.goes_on(), other.goes_on(), second.goes_on(), call.cuts) == (False, True, True, 1)
    assert granted(parts, runtime, "a", attempt=2) == ReadPreempted(2)
    granted(parts, runtime, "b", attempt=4)
    assert granted(parts, runtime, "b", attempt=3) == StaleAttempt(3)
    assert not other.goes_on()


def test_an_exchange_that_is_over_leaves_nothing(parts, runtime):
    answer = granted(parts, runtime, "a")
    assert parts.shown() == {"exchanges": 1, "grants": 1}
    answer.cancel()
    answer.cancel()
    assert parts.shown()["exchanges"] == 0
    assert (parts.grants.served.streams, parts._opened) == ((), {})


def test_an_exchange_that_does_not_begin_leaves_nothing(parts, runtime, monkeypatch):
    monkeypatch.setattr(part_server, "ROOM_MS", 1.0)
    parts.reads.error = SqlError("division by zero")
    with pytest.raises(SqlError):
        granted(parts, runtime, "a")
    parts.reads = Held(700 << 10)
    first = granted(parts, runtime, "b")
    assert isinstance(granted(parts, runtime, "c"), OnHold)
    assert [one.token for one in parts.grants.served.streams] == ["b"]
    first.cancel()
    parts.reads = Held()
    many = [granted(parts, runtime, f"m{number}") for number in range(OPEN_OF_CLIENT)]
    assert isinstance(granted(parts, runtime, "d"), OnHold)
    assert len(parts.grants.served.streams) == len(many) == len(parts._opened)


def test_under_a_grant_it_is_refused_rejected_and_over_as_without(parts, runtime):
    for number in range(PROCESSED_OF_CLIENT):
        granted(parts, runtime, f"p{number}", process=True)
    assert granted(parts, runtime, "q", process=True) == TooBusy()
    assert isinstance(granted(parts, runtime, "r", part=5_000), Rejected)
    parts.reads.is_over = True
    assert granted(parts, runtime, "s") == ReadSnapshotGone(1)
    assert parts.shown() == {"exchanges": 0, "grants": 0}  # all of the job went with it


def test_what_has_no_order_is_not_given_to_who_needs_it(parts, runtime):
    with pytest.raises(InvalidData, match="no order"):
        granted(parts, runtime, "a", process=True, needs_order=True)
    assert parts.shown() == {"exchanges": 0, "grants": 0}
    assert isinstance(granted(parts, runtime, "a", needs_order=True), PartAnswer)


def test_a_tick_ends_what_is_of_a_job_that_is_over(parts, runtime):
    call = Call()
    granted(parts, runtime, "a", call=call)
    parts.reads.is_over = True
    parts.tick()
    parts.grants._look("r", parts.reads.lease)  # which it does twice a minute
    assert call.cuts == 1
    assert parts.shown() == {"exchanges": 0, "grants": 0}


def test_of_one_client_so_many_are_processed_at_once_and_so_many_are_open(parts, runtime):
    processed = [parts.open_part(request(runtime, True), None) for _ in range(PROCESSED_OF_CLIENT)]
    assert all(isinstance(one, PartAnswer) for one in processed)
    assert parts.open_part(request(runtime, True), None) == TooBusy()
    assert isinstance(parts.open_part(request(runtime, True, "bob"), None), PartAnswer)
    more = [parts.open_part(request(runtime, False), None) for _ in range(OPEN_OF_CLIENT - PROCESSED_OF_CLIENT)]
    assert all(isinstance(one, PartAnswer) for one in more)
    assert isinstance(parts.open_part(request(runtime, False), None), OnHold)
    assert isinstance(parts.open_part(request(runtime, False, "bob"), None), PartAnswer)
    assert [batch.num_rows for _, batch in processed[0].batches] == [2]
    processed[0].cancel()  # whoever answers does so at the end
    assert isinstance(parts.open_part(request(runtime, True), None), PartAnswer)
    more[0].cancel()
    assert isinstance(parts.open_part(request(runtime, False), None), PartAnswer)
    assert isinstance(parts.open_part(request(runtime, False), None), OnHold)


def test_an_executor_with_much_to_do_processes_nothing_and_gives_rows_as_they_are(parts, runtime):
    legs = [parts.tasks.begin("leg", "select 1") for _ in range(BUSY_TASKS)]
    assert parts.open_part(request(runtime, True), None) == TooBusy()
    assert isinstance(parts.open_part(request(runtime, False), None), PartAnswer)
    legs[0].end("done")
    legs[1].end("done")
    assert isinstance(parts.open_part(request(runtime, True), None), PartAnswer)


def test_how_busy_an_executor_is_is_told_by_what_it_computes(parts, runtime):
    assert parts.load() == 0
    for _ in range(BUSY_TASKS // 2):
        parts.tasks.begin("leg", "select 1")
    plain = parts.open_part(request(runtime, False), Call())
    assert parts.load() == 50
    processed = parts.open_part(request(runtime, True), Call())
    assert parts.load() == 50 + 100 // BUSY_TASKS
    for _ in range(BUSY_TASKS):
        parts.tasks.begin("leg", "select 1")
    assert parts.load() == 100
    for answer in (plain, processed):
        answer.cancel()


def test_rows_that_have_no_room_are_put_on_hold_and_what_is_over_gives_its_room_back(parts, runtime, monkeypatch):
    monkeypatch.setattr(part_server, "ROOM_MS", 1.0)
    parts.reads = Held(700 << 10)
    first = parts.open_part(request(runtime, False), None)
    assert isinstance(parts.open_part(request(runtime, False, "bob"), None), OnHold)
    list(first.batches)
    first.cancel()
    assert isinstance(parts.open_part(request(runtime, False, "bob"), None), PartAnswer)


def test_what_moved_is_rejected_and_what_is_no_ticket_refused(parts, runtime):
    assert isinstance(parts.open_part(request(runtime, True, part=5_000), None), Rejected)
    with pytest.raises(Unauthenticated):
        parts.open_part(PartRequest(ticket={"body": "e30="}, process=True), None)
    parts.reads = None
    with pytest.raises(TryLater, match="is starting"):
        parts.open_part(request(runtime, True), None)
