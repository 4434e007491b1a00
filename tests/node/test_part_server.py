"""An executor gives parts of read jobs within bounds: of a client, of what it has to do, and of its memory."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from ballista_py.errors import TryLater, Unauthenticated
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.executor import part_server
from ballista_py.node.executor.part_server import BUSY_TASKS, OPEN_OF_CLIENT, PROCESSED_OF_CLIENT, ExecutorParts
from ballista_py.node.status.tasks import Tasks
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.signed_tickets import TicketCheck, TicketSigner
from ballista_py.transport.table_read.exchange import OnHold, PartAnswer, PartRequest, Rejected, TooBusy
from ballista_py.transport.table_read.tickets import READ_PURPOSE, ReadTicket
from ballista_py.transport.table_read.tokens.positions import START

ROWS = pa.record_batch({"n": [1, 2]})
READ = SimpleNamespace(plan="select n from t", table="t")


class Held:
    """The parts of a read job: two rows each, of which `size` bytes have to be in memory."""

    def __init__(self, size=0):
        self.size = size

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


def request(runtime, process, client="ada", part=0, cluster="c"):
    ticket = ReadTicket(read_id="r", digest="d", part=part, client=client, anywhere=False)
    signer = TicketSigner(purpose=READ_PURPOSE, cluster_id=cluster, runtime=runtime)
    return PartRequest(ticket=signer.issue(ticket.to_json()), process=process)


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
