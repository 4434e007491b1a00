"""Client and Server of a grant over real sockets: places, ends, attempts, and what each refuses of the other."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest
from attrs import evolve, field, mutable

from ballista_py.errors import (
    InvalidData,
    NotOwner,
    SnapshotGone,
    SqlError,
    TransportError,
    TryLater,
    Unauthenticated,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight_sql.legs import PartsService
from ballista_py.transport.security.access import PARTS
from ballista_py.transport.table_read.exchange import (
    OnHold,
    PartAnswer,
    PartRequest,
    Rejected,
    TooBusy,
)
from ballista_py.transport.table_read.granted_reader import GrantExchange, heard_of, reply_of
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.partition_reader import PartExchange
from ballista_py.transport.table_read.pieces import PIECES, SectionPiece, packed_piece, packing_of, unpacked
from ballista_py.transport.table_read.tally import GrantTally
from ballista_py.transport.table_read.tokens.consuming import OpenAt, Unreachable
from ballista_py.transport.table_read.tokens.exchange import (
    CHUNK_ROWS,
    OpenRead,
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
)
from ballista_py.transport.table_read.tokens.messages import ReadLocation
from ballista_py.transport.table_read.tokens.positions import START, Position, Sections

SCHEMA = pa.schema([("n", pa.int64())])
FILES = Sections((100_000, 0, 50_000))
END = FILES.end


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(first, first + count), pa.int64())], schema=SCHEMA)


def batches_from(begin: Position):
    """The rows of the files in batches of 30,000, as a reader of files gives them."""
    before = 0
    for section, rows in enumerate(FILES.rows):
        for at in range(0, rows, 30_000):
            stop = min(at + 30_000, rows)
            first = max(at, begin.row if section == begin.section else 0)
            if section >= begin.section and first < stop:
                yield Position(section, first), numbers(before + first, stop - first)
        before += rows


@mutable
class Server:
    """Gives numbers in the order of the files, as it was told to."""

    process: object = None
    outcome: object = None
    wrong_rows: int = 0
    wanted: bool = True
    asked: list = field(factory=list)
    done: int = 0
    counts: bool = False
    packs: object = packing_of  # the packing, of the encodings that are asked for

    def open_part(self, request, context):
        self.asked.append(request)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is not None:
            return self.outcome
        rows = batches_from(request.begin)
        if self.wrong_rows:
            rows = ((at, batch.slice(0, batch.num_rows - self.wrong_rows)) for at, batch in rows)

        def all_sent():
            self.done += 1

        packing = None if request.process else self.packs(request.encodings)
        pack = None if packing is None else lambda batch: packed_piece(batch, packing).to_batch()
        return PartAnswer(
            schema=SCHEMA if packing is None else PIECES,
            batches=rows,
            processed=request.process,
            encoded=packing is not None,
            pack=pack,
            begin=request.begin,
            sections=None if self.counts else FILES,
            process=self.process,
            goes_on=lambda: self.wanted,
            done=all_sent,
        )


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def address(serve, server):
    return serve(access=PARTS, service=partial(PartsService, command_of=lambda *_: {}, reads=server)).address


@pytest.fixture
def pool():
    with FlightPool(SystemRuntime()) as made:
        yield made


def spawn(function):
    threading.Thread(target=function, daemon=True).start()


def opened(pool, address, *, start=START, counts=False, can_process=True, encodings=(), **asked) -> GrantExchange:
    request = OpenRead(
        job="j", token="g", ancestors=("e", "f"), partition=0, snapshot="j", attempt=3, start=start,
        **{"wants_plan": False, "needs_order": True, **asked},
    )  # fmt: skip
    action = OpenAt(location=ReadLocation(uri=f"grpc://{address}"), ticket=b"{}", request=request)
    how = {"counts": counts, "can_process": can_process, "encodings": encodings}
    return GrantExchange(pool, action, SystemRuntime(), spawn, **how)


def credit(chunks: int, until: Position | None = END) -> ReadCredit:
    return ReadCredit(token="g", attempt=3, chunks=chunks, until=until)


def heard(exchange: GrantExchange):
    found = exchange.next(20_000)
    assert found is not None
    return found


def read(exchange: GrantExchange, until: Position | None = END):
    """What comes of it, as a Client asks for it: the chunks, their rows, and the last event."""
    assert isinstance(heard(exchange).event, ReadAccepted)
    chunks, rows = [], []
    exchange.credit(credit(2, until))
    while True:
        found = heard(exchange)
        if not isinstance(found.event, ReadChunk):
            return chunks, rows, found
        chunks.append(found.event)
        rows += [n for batch in found.rows for n in batch["n"].to_pylist()]
        exchange.credit(credit(len(chunks) + 2, until))


def test_chunks_say_where_they_begin_and_end_and_touch_each_other(pool, address, server):
    chunks, rows, last = read(opened(pool, address))
    assert rows == list(range(150_000))
    assert chunks[0].start == START
    assert [one.start for one in chunks[1:]] == [one.end for one in chunks[:-1]]
    assert chunks[-1].end == END
    assert all(FILES.named(one.end) == one.end for one in chunks)
    assert all(FILES.offset(one.end) - FILES.offset(one.start) == one.rows <= CHUNK_ROWS for one in chunks)
    assert isinstance(last.event, ReadTrailer)
    assert (last.event.end, last.event.rows) == (END, 150_000)
    (asked,) = server.asked
    assert (asked.token, asked.ancestors, asked.attempt, asked.needs_order) == ("g", ("e", "f"), 3, True)
    assert server.done == 1


@pytest.mark.parametrize("until", [Position(0, 1), Position(0, 65_537), Position(2, 0), Position(2, 49_999)])
@pytest.mark.parametrize("start", [START, Position(0, 99_999), Position(2, 7)])
def test_the_rows_end_where_a_credit_says_and_the_trailer_says_so(pool, address, start, until):
    chunks, rows, last = read(opened(pool, address, start=start), until)
    first, stop = FILES.offset(start), FILES.offset(until)
    assert rows == list(range(first, stop))
    assert isinstance(last.event, ReadTrailer)
    assert last.event.end == max(start, until)
    assert last.event.rows == len(rows) == sum(one.rows for one in chunks)


@pytest.mark.parametrize("packing", ["arrow+zstd", "arrow+lz4", "arrow"])
@pytest.mark.parametrize(("start", "until"), [(START, END), (Position(0, 7), Position(2, 49_999))])
def test_packed_rows_have_the_same_places_and_ends(pool, address, server, monkeypatch, packing, start, until):
    sent = []
    messages = PartExchange.messages

    def noted(exchange):
        for said, rows in messages(exchange):
            sent.append(None if rows is None else rows.schema)
            yield said, rows

    monkeypatch.setattr(PartExchange, "messages", noted)
    plain = read(opened(pool, address, start=start), until)
    assert set(sent) == {SCHEMA, None}
    sent.clear()
    packed = read(opened(pool, address, start=start, encodings=("parquet", packing)), until)
    assert set(sent) == {PIECES, None}
    assert packed[1] == plain[1] == list(range(FILES.offset(start), FILES.offset(until)))
    assert (packed[0], packed[2].event) == (plain[0], plain[2].event)
    assert server.asked[-1].encodings == ("parquet", packing)


def test_of_what_is_processed_no_packing_is_asked_for(pool, address, server):
    server.process = lambda rows: [rows]
    assert read(opened(pool, address, wants_plan=True, encodings=("arrow+zstd",)))[1] == list(range(150_000))
    assert server.asked[-1].encodings == ()


def test_files_as_they_lie_on_disk_are_no_answer_under_a_grant():
    with pytest.raises(InvalidData, match="was not asked for"):
        unpacked(SectionPiece(encoding="parquet", data=b"PAR1", section_bytes=4))


def test_of_several_ends_the_earliest_counts(pool, address):
    exchange = opened(pool, address)
    heard(exchange)
    exchange.credit(credit(1, Position(2, 10)))
    first = heard(exchange)
    exchange.credit(credit(1, Position(0, 70_000)))  # allows nothing more, but ends earlier
    exchange.credit(credit(9, END))
    ends = [first.event.end]
    while isinstance((found := heard(exchange)).event, ReadChunk):
        ends.append(found.event.end)
    assert ends[-1] == Position(0, 70_000)
    assert isinstance(found.event, ReadTrailer)


def test_a_server_sends_no_more_than_it_was_asked_for(pool, address):
    exchange = opened(pool, address)
    heard(exchange)
    exchange.credit(credit(2))
    exchange.credit(credit(2))  # the same again: they count from the first
    assert [isinstance(heard(exchange).event, ReadChunk) for _ in range(2)] == [True, True]
    assert exchange.next(300) is None
    exchange.credit(credit(3))
    assert isinstance(heard(exchange).event, ReadChunk)


def test_processed_rows_have_the_places_of_those_they_were_made_of(pool, address, server):
    """Of most chunks nothing is left, and some give many messages."""

    def wide(rows):
        first = rows["n"][0].as_py()
        times = 40 if first == 0 else 0
        return [rows] * times

    server.process = wide
    chunks, rows, last = read(opened(pool, address, wants_plan=True))
    assert chunks[0].rows == 40 * 30_000 == len(rows)
    assert [one.rows for one in chunks[1:]] == [0] * (len(chunks) - 1)
    assert [one.start for one in chunks[1:]] == [one.end for one in chunks[:-1]]
    assert (chunks[-1].end, last.event.end, last.event.rows) == (END, END, len(rows))


def test_rows_without_places_are_counted(pool, address, server):
    server.counts = True
    chunks, rows, last = read(opened(pool, address, counts=True, needs_order=False, wants_plan=True), None)
    assert rows == list(range(150_000))
    assert chunks[-1].end == last.event.end == Position(0, 150_000)
    assert opened(pool, address, counts=True, needs_order=False, wants_plan=True).next(
        9_000
    ).event == ReadAccepted(3, applies_plan=True, in_order=False)


def test_what_was_superseded_ends_without_its_trailer(pool, address, server):
    exchange = opened(pool, address)
    heard(exchange)
    exchange.credit(credit(1))
    heard(exchange)
    server.wanted = False
    exchange.credit(credit(2))
    assert heard(exchange).event == ReadClosed(3)
    assert server.done == 0


@pytest.mark.parametrize("until", [END, Position(2, 10)])
@pytest.mark.parametrize("count", [1, 30_000])
def test_files_that_have_other_rows_than_they_should_are_no_answer(pool, address, server, count, until):
    server.wrong_rows = count
    exchange = opened(pool, address)
    *_, last = read(exchange, until)
    assert last.event == ReadClosed(3)


def raw(pool, address, **said) -> PartExchange:
    request = pb.Request(**{"ticket": b"{}", "token": "g", "attempt": 1, **said})
    return PartExchange(pool, f"grpc://{address}", request)


@pytest.mark.parametrize(
    "said",
    [
        {"attempt": 0},
        {"attempt": 1 << 63},
        {"token": "", "attempt": 1},
        {"token": "", "attempt": 0, "ancestors": ["a"]},
        {"token": "", "attempt": 0, "needs_order": True},
        {"ancestors": [str(n) for n in range(65)]},
        {"ancestors": ["x" * 129]},
        {"token": "x" * 129},
        {"ancestors": ["f", "g"]},
        {"token": "", "attempt": 0, "process": True, "begin": pb.Position(row=1)},
    ],
)
def test_requests_that_cannot_be_are_refused(pool, address, server, said):
    with pytest.raises(InvalidData):
        raw(pool, address, **said)
    assert server.asked == []


@pytest.mark.parametrize(
    "said",
    [
        pb.Credit(chunks=65),
        pb.Credit(chunks=1, until=pb.Position(section=3, row=1)),
        pb.Credit(chunks=1, until=pb.Position(section=1, row=5)),
        pb.Credit(chunks=1, until=pb.Position(section=9)),
    ],
)
def test_credits_that_cannot_be_end_the_exchange(pool, address, said):
    exchange = raw(pool, address)
    exchange.say(said)
    with pytest.raises(InvalidData):
        list(exchange.messages())


def test_an_end_of_what_has_no_places_is_refused(pool, address, server):
    server.counts = True
    exchange = raw(pool, address)
    exchange.say(pb.Credit(chunks=1, until=pb.Position()))
    with pytest.raises(InvalidData):
        list(exchange.messages())


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (TooBusy(), ReadRefused(3)),
        (Rejected("moved"), ReadRejected(3)),
        (OnHold(70), ReadOnHold(3, 70.0)),
        (ReadPreempted(3), ReadPreempted(3)),
        (StaleAttempt(3), StaleAttempt(3)),
        (ReadSnapshotGone(3), ReadSnapshotGone(3)),
        (SnapshotGone("over"), ReadSnapshotGone(3)),
        (TryLater("full"), ReadOnHold(3, 500.0)),
        (NotOwner("moved"), ReadRejected(3)),
    ],
)
def test_what_a_server_says_is_what_the_rules_hear(pool, address, server, outcome, event):
    server.outcome = outcome
    assert heard(opened(pool, address)).event == event


def test_who_cannot_process_takes_a_busy_server_for_one_to_ask_later(pool, address, server):
    server.outcome = TooBusy()
    assert heard(opened(pool, address, can_process=False)).event == ReadOnHold(3, 500.0)


def test_an_error_that_every_server_would_say_is_handed_on(pool, address, server):
    server.outcome = SqlError("division by zero")
    found = heard(opened(pool, address))
    assert found.event is None
    assert isinstance(found.error, SqlError)


def test_a_server_that_is_not_there_is_unreachable(pool):
    assert heard(opened(pool, "127.0.0.1:1")).event == Unreachable(3)


def test_what_was_dropped_says_nothing_more(pool, address):
    exchange = opened(pool, address)
    heard(exchange)
    exchange.credit(credit(2))
    time.sleep(0.2)
    exchange.drop()
    assert exchange.next(200) is None
    exchange.credit(credit(9))
    exchange.drop()  # again
    assert exchange.next(200) is None


def test_errors_amid_rows_break_the_exchange_and_before_them_the_attempt():
    for error, before, amid in (
        (TransportError("gone", peer="a:1"), Unreachable(1), ReadClosed(1)),
        (TransportError("odd"), Unreachable(1), ReadClosed(1)),
        (InvalidData("odd"), None, ReadClosed(1)),
        (Unauthenticated("old"), None, None),
        (TryLater("full"), ReadOnHold(1, 500.0), ReadClosed(1)),
    ):
        assert heard_of(error, 1, "grpc://a:1", is_open=False).event == before
        assert heard_of(error, 1, "grpc://a:1", is_open=True).event == amid


def test_a_reply_that_is_not_known_is_refused():
    with pytest.raises(InvalidData):
        reply_of(pb.Reply(), SimpleNamespace(attempt=1), can_process=True)


def told(*messages, counts=False):
    """The events of an exchange in which a Server sends these."""
    said = []
    reply = pb.Reply(accepted=pb.Accepted())
    fake = SimpleNamespace(messages=lambda: iter(messages), say=said.append, reply=reply)
    exchange = GrantExchange.__new__(GrantExchange)
    request = OpenRead(
        job="j", token="g", ancestors=(), partition=0, snapshot="j", attempt=1, start=START, wants_plan=False
    )
    exchange._action = OpenAt(location=ReadLocation(uri="grpc://a:1"), ticket=b"", request=request)
    exchange._counts, exchange._changed, exchange._is_dropped = counts, SystemRuntime().condition(), False
    return [event for event, _ in exchange._events(fake)], said


def chunk(rows: int, end: Position | None, at: Position = START):
    made = pb.Chunk(at=pb.Position(section=at.section, row=at.row))
    if end is not None:
        made.end.CopyFrom(pb.Position(section=end.section, row=end.row))
    return made.SerializeToString(), numbers(0, rows)


def trailer_of(*steps, **changed):
    tally = GrantTally()
    for rows, end in steps:
        tally.add(rows)
        if end is not None:
            tally.ends(end)
    found = tally.message(steps[-1][1] or START)
    for name, value in changed.items():
        setattr(found, name, value)
    return found.SerializeToString(), None


STEPS = [(2, None), (3, Position(0, 9)), (0, Position(1, 0))]
SENT = [chunk(2, None), chunk(3, Position(0, 9)), chunk(0, Position(1, 0), Position(0, 9))]


def test_what_was_counted_on_both_sides_is_the_same():
    events, said = told(*SENT, trailer_of(*STEPS))
    assert [(one.rows, one.end) for one in events] == [
        (5, Position(0, 9)),
        (0, Position(1, 0)),
        (5, Position(1, 0)),
    ]
    assert [one.chunks for one in said] == [1]  # for the message that was no whole chunk


@pytest.mark.parametrize("changed", [{"chunks": 2}, {"complete": False}, {"rows": 4}, {"crc32": 1}])
def test_a_trailer_of_something_else_has_other_sums(changed):
    *_events, last = told(*SENT, trailer_of(*STEPS, **changed))[0]
    good = told(*SENT, trailer_of(*STEPS))[0][-1]
    assert (last.rows, last.crc32) != (good.rows, good.crc32)


def test_a_trailer_of_another_place_or_amid_a_chunk_has_other_sums():
    wrong = trailer_of(*STEPS[:2], (0, Position(1, 1)))
    assert told(*SENT, wrong)[0][-1].rows == -1
    assert told(SENT[0], trailer_of((2, Position(0, 0))))[0][-1].rows == -1
    lost = told(SENT[1], SENT[2], trailer_of(*STEPS))[0][-1]
    assert lost.rows == -1


def test_a_request_without_a_grant_is_as_it_was():
    asked = PartRequest.of(pb.Request(ticket=b"{}", begin=pb.Position(section=1)))
    assert (asked.token, asked.attempt, asked.begin) == ("", 0, Position(1, 0))
    assert evolve(asked, token="x").token == "x"
