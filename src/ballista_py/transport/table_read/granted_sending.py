"""The rows of a grant, from the side of a Server: each chunk says how far it comes, and a credit where to stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import define, field

from ballista_py.errors import InvalidData, TransportError
from ballista_py.transport.arrow.door import RowsIn
from ballista_py.transport.arrow.frames import portions
from ballista_py.transport.flight.calls import OpenCall
from ballista_py.transport.flight.holdings import paced
from ballista_py.transport.flight.methods import Writer
from ballista_py.transport.table_read.messages import known, pb
from ballista_py.transport.table_read.tally import GrantTally
from ballista_py.transport.table_read.tokens.exchange import CHUNK_ROWS
from ballista_py.transport.table_read.tokens.positions import Position, Sections

if TYPE_CHECKING:
    from ballista_py.transport.table_read.exchange import PartAnswer

MOST_GRANT_CREDIT = 64


@define
class GrantCredit:
    """How many chunks the Client has asked for, and where it wants the rows to end."""

    reader: RowsIn
    call: OpenCall
    sections: Sections | None
    until: Position | None = None
    _left: int = field(init=False, default=0)

    def take(self) -> None:
        """Wait until one more may be sent. Raises `InvalidData`, and `TransportError` if the Client asks no more."""
        while self._left < 1:
            try:
                with self.call.receiving():
                    said = self.reader.read_chunk().app_metadata
            except StopIteration:
                raise TransportError("the client has ended the exchange before the rows were given") from None
            self._hear(known("Credit", bytes(said)))
        self._left -= 1

    def heard_out(self) -> None:
        """Wait until the Client has said that it has all: who writes into an exchange that is over reads no more."""
        with suppress(StopIteration):
            while True:
                with self.call.receiving():
                    self.reader.read_chunk()

    def _hear(self, credit: Any) -> None:
        if self._left + credit.chunks > MOST_GRANT_CREDIT:
            raise InvalidData(f"at most {MOST_GRANT_CREDIT} chunks may be asked for ahead")
        self._left += credit.chunks
        if not credit.HasField("until"):
            return
        if self.sections is None:
            raise InvalidData("what has no places in the order of the files is read whole: it cannot end earlier")
        until = self.sections.named(Position(credit.until.section, credit.until.row))
        self.until = until if self.until is None else min(self.until, until)


def send_granted(
    answer: PartAnswer, credit: GrantCredit, call: OpenCall, writer: Writer, goes_on: Callable[[], bool]
) -> None:
    """Send the rows of a grant and their trailer; `goes_on` says before each chunk whether anybody wants it.

    Raises `TransportError` once nobody does, and as `GrantCredit`.
    """
    tally = GrantTally()
    pieces = _Pieces(answer, call)
    while True:
        credit.take()  # only now is known where to stop
        _require(goes_on())
        piece = pieces.next(credit.until)
        if piece is None:
            break
        start, end, rows = piece
        shown = list(_portions(answer, rows, call.message_bytes()))
        for number, batch in enumerate(shown):
            sent = batch if answer.pack is None else answer.pack(batch)
            if number:
                credit.take()
                _require(goes_on())
            said = pb.Chunk(at=pb.Position(section=start.section, row=start.row))
            tally.add(batch.num_rows)
            if number == len(shown) - 1:
                said.end.CopyFrom(pb.Position(section=end.section, row=end.row))
                tally.ends(end)
            with call.sending():
                writer.write_batch(sent, said.SerializeToString())
    answer.done()  # before the Client knows, who then ends the call
    with call.sending():
        writer.write_metadata(tally.message(pieces.at).SerializeToString())
    credit.heard_out()


def _require(goes_on: bool) -> None:
    if not goes_on:
        raise TransportError("the rows are read by somebody else by now, or nobody took any for too long")


def _portions(answer: PartAnswer, rows: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """What is sent of some rows of the input, one batch at least, because a place goes with it."""
    given = [rows] if answer.process is None else answer.process(rows)
    found = [portion for batch in given if batch.num_rows for portion in portions(batch, max_bytes)]
    nothing = [pa.array([], column.type) for column in answer.schema]
    return iter(found or [pa.RecordBatch.from_arrays(nothing, schema=answer.schema)])


class _Pieces:
    """The input, in pieces that one chunk may move on by."""

    def __init__(self, answer: PartAnswer, call: OpenCall) -> None:
        self._begins: deque[Position] = deque()
        self._answer = answer
        self._batches = iter(paced(self._noted(), call.budget, call.context.caller))
        self._rest: pa.RecordBatch | None = None
        self._most_bytes = call.message_bytes
        self.at = answer.begin

    def next(self, until: Position | None) -> tuple[Position, Position, pa.RecordBatch] | None:
        """Rows, where they begin and end; None where no more are to be sent."""
        if until is not None and self.at >= until:
            return None
        if self._rest is None:
            self._rest = next((batch for batch in self._batches if batch.num_rows), None)
            if self._rest is None:
                self._require_end(until)
                return None
            begin = self._begins.popleft()
            if self._answer.sections is not None and begin != self.at:
                raise InvalidData("a file of the read job has another number of rows than its manifest says")
        count = min(CHUNK_ROWS, self._rest.num_rows)
        if self._answer.process is None:
            count = min(count, next(portions(self._rest, self._most_bytes())).num_rows)
        sections = self._answer.sections
        if sections is not None and until is not None:
            count = min(count, sections.offset(until) - sections.offset(self.at))
        rows = self._rest.slice(0, count)
        self._rest = self._rest.slice(count) if count < self._rest.num_rows else None
        start = self.at
        self.at = Position(0, start.row + count) if sections is None else sections.after(start, count)
        return start, self.at, rows

    def _require_end(self, until: Position | None) -> None:
        sections = self._answer.sections
        if sections is not None and self.at != (until or sections.end):
            raise InvalidData("a file of the read job has another number of rows than its manifest says")

    def _noted(self) -> Iterator[pa.RecordBatch]:
        """The batches; where each begins is noted."""
        for begin, batch in self._answer.batches:
            if batch.num_rows:
                self._begins.append(begin)
                yield batch
