"""Rows that a task puts are complete or none: cut, counted wrongly, or with more after their end they are no rows."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pytest

from ballista_py.errors import InvalidData, TransportError, Unauthenticated
from ballista_py.transport.coordinators import WRITE_ACTIONS
from ballista_py.transport.table_read.messages import packed
from ballista_py.transport.table_read.tickets import READ_PURPOSE
from ballista_py.transport.table_write.exchange import PutStream
from ballista_py.transport.table_write.messages import known_of_write, pb, put_of
from ballista_py.transport.table_write.put_tally import PutTally
from ballista_py.transport.table_write.tickets import WRITE_PURPOSE, PutTicket

BATCH = pa.record_batch({"a": [1, 2, 3]})


class Sent:
    """What a peer has sent: batches, what is said beside them, or pairs of both."""

    schema = BATCH.schema

    def __init__(self, *messages) -> None:
        self.messages = iter(messages)

    def read_chunk(self):
        message = next(self.messages)
        if isinstance(message, pa.RecordBatch):
            message = message, b""
        rows, said = message if isinstance(message, tuple) else (None, message)
        return SimpleNamespace(data=rows, app_metadata=said)


class Call:
    @contextmanager
    def receiving(self):
        yield


def rows_of(*messages) -> list[pa.RecordBatch]:
    return list(PutStream(Sent(*messages), Call()))


def end_of(*counts: int, **said) -> bytes:
    tally = PutTally()
    for count in counts:
        tally.add(count)
    message = tally.message()
    for name, value in said.items():
        setattr(message, name, value)
    return message.SerializeToString()


def test_rows_with_their_end_are_complete():
    assert rows_of(BATCH, BATCH, end_of(3, 3)) == [BATCH, BATCH]
    assert rows_of(end_of()) == []


@pytest.mark.parametrize("sent", [(), (BATCH,), (BATCH, BATCH)])
def test_rows_without_their_end_are_none(sent):
    with pytest.raises(TransportError, match="broke off"):
        rows_of(*sent)


@pytest.mark.parametrize(
    "sent",
    [
        (BATCH, end_of(3, 3)),
        (BATCH, BATCH, end_of(6)),
        (BATCH, end_of(3, rows=2)),
        (BATCH, end_of(3, crc32=7)),
        (BATCH, end_of(3, complete=False)),
        (BATCH, end_of(3), BATCH),
        (BATCH, end_of(3), end_of(3)),
        (BATCH, b"\xff\xff"),
        (BATCH, b""),
        ((BATCH, b"beside"), end_of(3)),
        ((BATCH, end_of(3)), end_of(3)),
    ],
)
def test_rows_that_are_not_those_that_were_counted_are_none(sent):
    with pytest.raises(InvalidData):
        rows_of(*sent)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"write": {}},
        {"write": {"write_id": "w"}},
        {"write": {"write_id": 3, "client": ""}},
        {"write": {"write_id": "w", "client": None}},
        {"write": {"write_id": "w", "client": "", "more": 1}},
        {"read": {"write_id": "w", "client": ""}},
    ],
)
def test_a_ticket_says_what_it_must_and_no_more(values):
    with pytest.raises(Unauthenticated):
        PutTicket.from_json(values)


def test_a_ticket_to_put_rows_is_signed_for_that_alone():
    purposes = (WRITE_PURPOSE, READ_PURPOSE)
    assert all(
        purpose.endswith(b"\n") and purpose.count(b"\n") == 1 for purpose in purposes
    )  # none begins another
    assert len(set(purposes)) == 2


def test_a_command_is_told_from_those_of_other_protocols():
    assert put_of(packed(pb.PutRows(ticket=b"t"))).ticket == b"t"
    assert put_of(packed(pb.PutEnd(rows=3))) is None
    assert put_of(b'{"kind": "sql"}') is None
    assert put_of(b"\n\xff") is None


def test_messages_have_bounds():
    with pytest.raises(InvalidData, match="characters"):
        known_of_write("BeginWrite", pb.BeginWrite(table="t", token="x" * 2_000).SerializeToString())
    many = pb.CommitWrite(receipts=[pb.Receipt(write_id="w")] * 100_001)
    with pytest.raises(InvalidData, match="too many values"):
        known_of_write("CommitWrite", many.SerializeToString())
    with pytest.raises(InvalidData, match="MiB"):
        known_of_write("PutEnd", b"\x08\x01" * (5 << 20))


def test_each_action_goes_to_what_answers_it():
    class Answering:
        def begin(self, begin, client):
            return pb.WriteBegun(write_id=f"{begin.table} {client}")

        def renew(self, renew, client):
            return pb.WriteRenewed(lease_ms=7)

        def commit(self, commit, client):
            return pb.WriteCommitted(rows=3)

        def abort(self, abort, client):
            return pb.WriteAborted()

    sent = {"BeginWrite": pb.BeginWrite(table="t"), "RenewWrite": pb.RenewWrite(), "CommitWrite": pb.CommitWrite()}
    found = {}
    for action in WRITE_ACTIONS.names:
        name = action.rpartition(".")[2]
        body = sent.get(name, pb.AbortWrite()).SerializeToString()
        found[name] = WRITE_ACTIONS.answer(Answering(), action, body, "ada")
    assert known_of_write("WriteBegun", found["BeginWrite"]).write_id == "t ada"
    assert known_of_write("WriteRenewed", found["RenewWrite"]).lease_ms == 7
    assert known_of_write("WriteCommitted", found["CommitWrite"]).rows == 3
    assert found["AbortWrite"] == b""
