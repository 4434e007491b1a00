"""What a node with a stolen key answers is looked at before anybody uses it, and no terminal obeys its errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pyarrow as pa
import pytest

from ballista_py.coordinator.writes.owner_calls import BaseFiles, Outcome
from ballista_py.errors import InvalidData, NotOwner, SqlError, TransportError, from_wire
from ballista_py.one_line import one_line, printable
from ballista_py.state.members.control import NodeReport, TaskRecord
from ballista_py.transport.arrow.door import ANSWER_ROWS
from ballista_py.transport.control.heartbeat_checks import MAX_REPORTED_TASKS, checked_report
from ballista_py.transport.flight.errors import is_link_failure, was_never_sent
from ballista_py.transport.flight.server import StreamResult

LIES = (None, True, -1, 1.5, "1", "x" * 5_000, [], [1], {}, {"a": 1}, [[]], {"1": [7]}, 2**62, {"-1": ["f"]})


class Liar:
    """A node that says at the end what it is told to."""

    verbs = ()
    lie: object = None
    batches: tuple[pa.RecordBatch, ...] = ()
    error: Exception | None = None

    def stream(self, command, context):
        if self.error is not None:
            raise self.error
        schema = pa.schema([("a", pa.null())])
        return StreamResult(schema=schema, batches=self.batches, trailer=lambda: self.lie)

    def write(self, command, rows, context):
        if self.error is not None:
            raise self.error
        rows.drain()
        return self.lie

    def action(self, name, body, context):
        return self.lie


@pytest.fixture
def liar(serve):
    handler = Liar()
    handler.address = serve(handler).address
    return handler


def each_lie(good):
    """`good` with a lie in the place of each of its values, one at a time."""
    for name, value in good.items():
        yield from ({**good, name: lie} for lie in LIES if type(lie) is not type(value))
        if isinstance(value, dict):
            yield from ({**good, name: inner} for inner in each_lie(value))


def names_the_node(address, ask, use):
    """Whether the node was named for what it answered; where not, `use` could use it."""
    try:
        said = ask()
    except InvalidData as error:
        return f"node {address} answered with what no node of ballista_py says: '" in str(error)
    use(said)
    return False


def test_the_files_of_a_base_are_what_they_must_be_or_the_node_is_named(liar, pool):
    lies = list(each_lie({"base": {"0": ["f"]}, "read": [[0, "f", 3]]}))
    named = 0
    for liar.lie in lies:
        stream = pool.open_stream(liar.address, {"kind": "base"})

        def read(stream=stream):
            list(stream)
            return stream.trailer

        named += names_the_node(liar.address, read, lambda said: BaseFiles().add(said, [0]))
    assert named > 0.6 * len(lies)


@pytest.mark.parametrize(
    "read", [[[0, "f"]], [["0", "f", 3]], [[0, 1, 3]], [[0, "f", "3"]], [[0, "f", 2**60]], "x"]
)
def test_what_was_read_of_a_base_is_partition_file_and_rows(liar, pool, read):
    liar.lie = {"base": {}, "read": read}
    with pytest.raises(InvalidData, match=r"'trailer\.read' must be"):
        list(pool.open_stream(liar.address, {"kind": "base"}))


@pytest.mark.parametrize("kind", ["write"])
def test_what_became_of_partitions_is_what_it_must_be_or_the_node_is_named(liar, pool, kind):
    named = 0
    for good in (
        {"0": {"affected": 3, "idle": True}},
        {"0": {"error": {"code": "a", "message": "b", "details": {}}}},
    ):
        for liar.lie in each_lie(good):
            named += names_the_node(
                liar.address,
                lambda: pool.ask(liar.address, {"kind": kind}),
                lambda said: Outcome().add(said, [0]),
            )
    assert named > 50


@pytest.mark.parametrize("kind", ["execute", "ingest"])
@pytest.mark.parametrize("lie", [{}, {"affected": None}, {"affected": "7"}, {"affected": -1}, {"affected": 2**62}])
def test_the_rows_of_a_change_are_a_number(liar, pool, kind, lie):
    liar.lie = lie
    with pytest.raises(InvalidData, match=r"'(result\.)?affected' must be"):
        pool.ask(liar.address, {"kind": kind})


@pytest.mark.parametrize(
    ("question", "lie"),
    [("members", {"rows": 3}), ("tables", {}), ("tasks", {"rows": [1]}), ("refresh", {"executors": "all"})],
)
def test_replies_are_what_they_must_be(liar, pool, question, lie):
    liar.lie = lie
    with pytest.raises(InvalidData, match="answered with what no node"):
        pool.call(liar.address, question, {})


def test_what_no_reader_knows_is_left_out(liar, pool):
    liar.lie = {"more": "x" * 10_000}
    stream = pool.open_stream(liar.address, {"kind": "leg"})
    list(stream)
    assert stream.trailer == {}
    liar.lie = {"affected": 3, "more": 1}
    assert pool.ask(liar.address, {"kind": "execute"}) == {"affected": 3}


def test_an_owner_says_nothing_of_partitions_that_it_was_not_asked_for():
    outcome = Outcome()
    outcome.add({"0": {"affected": 1}, "7": {"affected": 9}, "8": {"error": {}}}, [0])
    assert (outcome.affected, outcome.errors) == ({0: 1}, {})
    files = BaseFiles()
    files.add({"base": {"0": ["f"], "7": ["g"]}, "read": [[0, "f", 1], [7, "g", 1]]}, [0])
    assert (files.files, files.read) == ({0: ["f"]}, [(0, "f", 1)])


def test_an_answer_goes_in_batches_of_rows_that_whoever_reads_it_takes(liar, pool, monkeypatch):
    liar.lie = {}
    liar.batches = (pa.record_batch({"a": pa.nulls(2 * ANSWER_ROWS + 1)}),)
    sizes = [batch.num_rows for batch in pool.open_stream(liar.address, {"kind": "leg"})]
    assert sizes == [ANSWER_ROWS, ANSWER_ROWS, 1]
    monkeypatch.setattr("ballista_py.transport.flight.server.answer_portions", lambda batch, _: [batch])
    with pytest.raises(InvalidData, match="a batch of an answer has 2,097,153 rows"):
        list(pool.open_stream(liar.address, {"kind": "leg"}))


UGLY = "red \x1b[31mtext\x1b[0m, \x1b]0;title\x07 a\nline\x00 \u202eback\x9b2J"


def test_no_terminal_obeys_an_error_of_a_node(liar, pool):
    liar.error = SqlError(UGLY, line=3, key=UGLY, deep={"a": [1]}, partitions=["x", UGLY, {}])
    with pytest.raises(SqlError) as caught:
        list(pool.open_stream(liar.address, {"kind": "leg"}))
    assert caught.value.message.isprintable()
    assert "31m" not in caught.value.message
    assert caught.value.details == {"line": 3, "key": printable(UGLY), "partitions": ["x", printable(UGLY)]}


def test_the_errors_of_partitions_are_one_line_of_bounded_length():
    outcome = Outcome()
    outcome.add({"0": {"error": {"code": "ownership", "message": UGLY * 10_000, "details": {}}}}, [0])
    said = outcome.errors[0].message
    assert said.isprintable()
    assert len(said) <= 8_192
    assert from_wire({"code": 5, "message": None, "details": 7}).details == {}


def test_a_node_that_answers_cannot_say_that_it_was_never_asked(liar, pool):
    liar.error = TransportError("nothing was heard", peer=liar.address, sent=False)
    with pytest.raises(TransportError) as caught:
        pool.ask(liar.address, {"kind": "write"})
    assert not was_never_sent(caught.value, liar.address)
    assert not is_link_failure(caught.value, liar.address)
    liar.error = NotOwner("no", peer="other:1")
    with pytest.raises(NotOwner) as other:
        pool.ask(liar.address, {"kind": "write"})
    assert other.value.details == {"peer": "other:1"}


def test_the_report_of_an_executor_is_its_own_and_can_be_shown():
    task = TaskRecord(
        node_id="s1", task_id=UGLY, kind=UGLY, text=UGLY * 99, started_at_ms=0, took_ms=0, rows=0, outcome=UGLY
    )
    report = NodeReport(node_id="s1", metrics_text=b"x" * (17 << 20), tasks=(task,) * (MAX_REPORTED_TASKS + 5))
    found = checked_report(report, "e1")
    assert (found.node_id, found.metrics_text, len(found.tasks)) == ("e1", b"", MAX_REPORTED_TASKS)
    one = found.tasks[0]
    assert one.node_id == "e1"
    assert all(text.isprintable() for text in (one.task_id, one.kind, one.text, one.outcome))
    assert len(one.text) <= 1_024


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\x1b[1;31mb", "ab"),
        ("a\x1b]8;;http://x\x1b\\b", "ab"),
        ("a\x1bcb", "ab"),
        ("a\x9b31mb", "ab"),
        ("a\x90q\x9cb", "ab"),
        ("a\x1b", "a "),
        ("\ud800", " "),
        ("日本", "日本"),
    ],
)
def test_sequences_that_terminals_obey_are_taken_out(text, shown):
    assert printable(text) == shown
    assert len(one_line(text * 1_000, 10)) <= 10


def answering(packed):
    """The one answer to whatever is asked, with its length before it: the field 1 of a message of Flight."""

    def answer(_asked, context):
        context.set_compression(grpc.Compression.Gzip if packed else grpc.Compression.NoCompression)
        body = b'{"a":"' + b"0" * 8_000 + b'"}'
        yield bytes([10, len(body) & 0x7F | 0x80, len(body) >> 7]) + body

    return grpc.method_handlers_generic_handler(
        "arrow.flight.protocol.FlightService",
        {
            "DoAction": grpc.unary_stream_rpc_method_handler(answer),
            "DoExchange": grpc.stream_stream_rpc_method_handler(answer),
        },
    )


@pytest.fixture
def packer():
    """The address of a node that packs what it answers, or does not."""
    with ExitStack() as stack:

        def start(packed):
            server = grpc.server(ThreadPoolExecutor(2))
            server.add_generic_rpc_handlers((answering(packed),))
            address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            server.start()
            stack.callback(lambda: server.stop(None).wait(30))
            return address

        yield start


def test_an_answer_that_says_that_it_is_packed_is_refused_before_it_is_unpacked(pool, packer):
    assert pool.call(packer(False), "echo", {})["a"] == "0" * 8_000
    address = packer(True)
    for ask in (
        lambda: pool.call(address, "echo", {}),
        lambda: list(pool.open_stream(address, {"kind": "sql"}).batches()),
    ):
        with pytest.raises(TransportError) as raised:
            ask()
        assert "'gzip' is disabled" in str(raised.value.__context__)
