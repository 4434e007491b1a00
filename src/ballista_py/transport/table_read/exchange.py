"""The exchange in which a Server gives a Client the rows of a part: asked for chunk by chunk, complete by a trailer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import InvalidData, TransportError
from ballista_py.transport.arrow.door import RowsIn
from ballista_py.transport.arrow.frames import portions
from ballista_py.transport.flight.calls import CallContext, OpenCall
from ballista_py.transport.flight.holdings import paced
from ballista_py.transport.flight.methods import Writer
from ballista_py.transport.flight.wire import from_json
from ballista_py.transport.table_read.granted_sending import GrantCredit, send_granted
from ballista_py.transport.table_read.messages import known, pb
from ballista_py.transport.table_read.pieces import ENCODINGS
from ballista_py.transport.table_read.tally import NO_COLUMNS, ChunkTally
from ballista_py.transport.table_read.tokens.exchange import (
    MAX_ANCESTORS,
    ReadPreempted,
    ReadSnapshotGone,
    StaleAttempt,
)
from ballista_py.transport.table_read.tokens.positions import START, Position, Sections

READ_VERB = "DoExchange table_read"
MOST_CREDIT = 64
MAX_TOKEN_CHARS = 128


@frozen(kw_only=True)
class PartRequest:
    """What a Client asks of a Server: the part that a ticket names, processed, or its columns from `begin` on.

    Without a `token` it is read under no grant, and nothing of it is remembered.
    """

    ticket: Mapping[str, Any] = field(repr=False)
    process: bool
    begin: Position = START
    token: str = ""
    ancestors: tuple[str, ...] = ()
    attempt: int = 0
    encodings: tuple[str, ...] = ()
    needs_order: bool = False
    only_matching: bool = False

    @classmethod
    def of(cls, request: Any) -> PartRequest:
        """What a `Request` says. Raises `InvalidData`."""
        begin = Position(request.begin.section, request.begin.row)
        _require_grant(request)
        if request.process and begin != START and not request.token:
            raise InvalidData("what is processed has no positions: ask for it from its begin on")
        return cls(
            ticket=from_json(request.ticket),
            process=request.process,
            begin=begin,
            token=request.token,
            ancestors=tuple(request.ancestors),
            attempt=request.attempt,
            encodings=tuple(name for name in request.encodings if name in ENCODINGS),
            needs_order=request.needs_order,
            only_matching=request.only_matching,
        )


def _require_grant(request: Any) -> None:
    """That what is said of a grant can be. Raises `InvalidData`."""
    tokens = [request.token, *request.ancestors]
    if not request.token and (request.ancestors or request.attempt or request.needs_order):
        raise InvalidData("ancestors, an attempt and an order are of a grant, which has a token")
    if request.token and not 1 <= request.attempt < 1 << 63:
        raise InvalidData("the attempts under a token are numbered from 1 on")
    if len(request.ancestors) > MAX_ANCESTORS or any(len(one) > MAX_TOKEN_CHARS for one in tokens):
        raise InvalidData(f"at most {MAX_ANCESTORS} ancestors are named, by {MAX_TOKEN_CHARS} characters each")
    if request.token in request.ancestors:
        raise InvalidData("a grant is no ancestor of itself")


@frozen(kw_only=True)
class PartAnswer:
    """The rows of a part, or pieces of its sections if `encoded`, each batch with where it begins.

    `cancel` may come at any time, more than once.
    """

    schema: pa.Schema
    batches: Iterator[tuple[Position, pa.RecordBatch]]
    processed: bool
    encoded: bool = False
    cancel: Callable[[], None] = field(default=lambda: None)
    begin: Position = START  # the rest is of grants alone
    sections: Sections | None = None  # None: positions count rows, in an order of this Server's own
    process: Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]] | None = None  # of what `batches` give
    pack: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None  # makes a piece of rows when they are sent
    goes_on: Callable[[], bool] = field(default=lambda: True)
    done: Callable[[], None] = field(default=lambda: None)  # all was sent that was asked for


@frozen
class TooBusy:
    """The Server is too busy to process; it would give the columns as they are."""


@frozen
class Rejected:
    """The part is not served here any more."""

    reason: str


@frozen
class OnHold:
    """The Server has too much to do for now."""

    retry_after_ms: int


Outcome: TypeAlias = (
    PartAnswer
    | TooBusy
    | Rejected
    | OnHold
    | ReadPreempted
    | StaleAttempt
    | ReadSnapshotGone  # the last of grants
)


class PartServer(Protocol):
    """What gives parts of read jobs."""

    def open_part(self, request: PartRequest, context: CallContext) -> Outcome:
        """Begin the answer, or say why not. Raises `Unauthenticated` for a ticket that does not count, and
        `SnapshotGone` for a job that is over."""
        ...


def give(server: PartServer, request: Any, call: OpenCall, reader: RowsIn, writer: Writer) -> None:
    """Answer a `Request` to its end."""
    asked = PartRequest.of(request)
    outcome = server.open_part(asked, call.context)
    reply = _reply(outcome, is_granted=bool(asked.token))
    with ExitStack() as over:
        if isinstance(outcome, PartAnswer):
            over.callback(outcome.cancel)
            call.attach(outcome.cancel)
        with call.sending():
            writer.begin(outcome.schema if isinstance(outcome, PartAnswer) else NO_COLUMNS)
            writer.write_metadata(reply.SerializeToString())
        credit, tally = _Credit(reader, call), ChunkTally()
        if not isinstance(outcome, PartAnswer):
            credit.heard_out()
            return
        if asked.token:
            grant_credit = GrantCredit(reader, call, outcome.sections)
            send_granted(outcome, grant_credit, call, writer, outcome.goes_on)
            return
        begins: deque[Position] = deque()
        for batch in paced(_rows(outcome, begins), call.budget, call.context.caller):
            begin = begins.popleft()
            at = begin.row
            for chunk in portions(batch, call.message_bytes()):
                credit.take()
                said = pb.Chunk(at=pb.Position(section=begin.section, row=at))
                with call.sending():
                    writer.write_batch(chunk, said.SerializeToString())
                at += chunk.num_rows
                tally.add(chunk.num_rows)
        with call.sending():
            writer.write_metadata(tally.message().SerializeToString())
        credit.heard_out()


def _rows(answer: PartAnswer, begins: deque[Position]) -> Iterator[pa.RecordBatch]:
    """The batches; where each begins is noted."""
    for begin, batch in answer.batches:
        begins.append(begin)
        yield batch


def _reply(outcome: Outcome, *, is_granted: bool) -> Any:
    if isinstance(outcome, PartAnswer):
        out_of_order = outcome.processed and outcome.sections is None and is_granted
        accepted = pb.Accepted(processed=outcome.processed, encoded=outcome.encoded, out_of_order=out_of_order)
        return pb.Reply(accepted=accepted)
    if isinstance(outcome, ReadPreempted):
        return pb.Reply(preempted=pb.Preempted())
    if isinstance(outcome, StaleAttempt):
        return pb.Reply(stale=pb.Stale())
    if isinstance(outcome, ReadSnapshotGone):
        return pb.Reply(snapshot_gone=pb.SnapshotIsGone())
    if isinstance(outcome, TooBusy):
        return pb.Reply(refused=pb.Refused())
    if isinstance(outcome, Rejected):
        return pb.Reply(rejected=pb.Rejected(reason=outcome.reason))
    return pb.Reply(on_hold=pb.OnHold(retry_after_ms=outcome.retry_after_ms))


class _Credit:
    """How many chunks the Client has asked for."""

    def __init__(self, reader: RowsIn, call: OpenCall) -> None:
        self._reader = reader
        self._call = call
        self._left = 0

    def take(self) -> None:
        """Wait until one more may be sent. Raises `InvalidData`, and `TransportError` if the Client asks no more."""
        while self._left < 1:
            try:
                with self._call.receiving():
                    said = self._reader.read_chunk().app_metadata
            except StopIteration:
                raise TransportError("the client has ended the exchange before the rows were given") from None
            chunks = known("Credit", bytes(said)).chunks
            if self._left + chunks > MOST_CREDIT:
                raise InvalidData(f"at most {MOST_CREDIT} chunks may be asked for ahead")
            self._left += chunks
        self._left -= 1

    def heard_out(self) -> None:
        """Wait until the Client has said that it has all: who writes into an exchange that is over reads no more."""
        with suppress(StopIteration):
            while True:
                with self._call.receiving():
                    self._reader.read_chunk()
