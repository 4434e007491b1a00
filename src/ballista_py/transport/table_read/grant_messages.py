"""What an Agent and a Client of Table Read say to each other, as messages of the wire and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from attrs import frozen

from ballista_py.errors import InvalidData
from ballista_py.transport.table_read.messages import PACKAGE, known, pb
from ballista_py.transport.table_read.tokens.exchange import MAX_ANCESTORS
from ballista_py.transport.table_read.tokens.messages import (
    CutAnswer,
    DoneReply,
    GaveUp,
    NoMoreWork,
    ReadDone,
    ReaderId,
    ReadGrant,
    ReadLocation,
    ReadReport,
    ReplanAsked,
    Replanned,
    ReportReply,
    SnapshotLost,
    WaitForWork,
)
from ballista_py.transport.table_read.tokens.positions import Position, RowRange, Sections

AGENT_ACTION = f"{PACKAGE}.ToAgent"
MAX_NAME_CHARS = 128  # of a Client, an instance, a token, a cut


@frozen
class AskForWork:
    """A Client has nothing to read."""

    client: ReaderId


ClientWord: TypeAlias = AskForWork | ReadReport | CutAnswer | ReadDone | GaveUp | ReplanAsked | SnapshotLost
AgentWord: TypeAlias = ReadGrant | WaitForWork | NoMoreWork | ReportReply | DoneReply | Replanned | None

_WORTHS: dict[Literal["counted", "again", "superseded", "refused"], Any] = {
    "counted": pb.WORTH_COUNTED,
    "again": pb.WORTH_AGAIN,
    "superseded": pb.WORTH_SUPERSEDED,
    "refused": pb.WORTH_REFUSED,
}


def client_bytes(word: ClientWord) -> bytes:
    """What a Client says, as `ToAgent`.

    >>> word = AskForWork(ReaderId("worker 1", "a"))
    >>> client_word(client_bytes(word)) == word
    True
    """
    client = pb.ReaderName(name=word.client.name, instance=word.client.instance)
    said = pb.ToAgent(client=client, token="" if isinstance(word, AskForWork) else word.token)
    match word:
        case AskForWork():
            said.ask.SetInParent()
        case ReadReport():
            said.report.position.CopyFrom(_place(word.position))
        case CutAnswer():
            said.cut.CopyFrom(pb.CutEnd(cut_id=word.cut_id, end=_place(word.end)))
        case ReadDone():
            said.done.rows.CopyFrom(_range(word.rows))
        case GaveUp():
            said.gave_up.SetInParent()
        case ReplanAsked():
            said.relocate.CopyFrom(pb.Relocate(partition=word.partition, snapshot=word.snapshot))
        case SnapshotLost():
            said.snapshot_lost.CopyFrom(pb.LostSnapshot(snapshot=word.snapshot))
    return bytes(said.SerializeToString())


def client_word(data: bytes) -> ClientWord:
    """What a `ToAgent` says. Raises `InvalidData` for bytes that are none, and for one that says nothing known."""
    said = known("ToAgent", data)
    client, token = ReaderId(_name(said.client.name), _name(said.client.instance)), said.token
    kind = said.WhichOneof("what")
    if kind == "ask":
        return AskForWork(client)
    _name(token)
    match kind:
        case "report":
            return ReadReport(token=token, client=client, position=_position(said.report.position))
        case "cut":
            end = _position(said.cut.end)
            return CutAnswer(token=token, client=client, cut_id=_name(said.cut.cut_id), end=end)
        case "done":
            return ReadDone(token=token, client=client, rows=_rows(said.done.rows))
        case "gave_up":
            return GaveUp(token=token, client=client)
        case "relocate":
            asked = said.relocate
            return ReplanAsked(token=token, client=client, partition=asked.partition, snapshot=asked.snapshot)
        case "snapshot_lost":
            return SnapshotLost(token=token, client=client, snapshot=said.snapshot_lost.snapshot)
    raise InvalidData("a message to an Agent says nothing that is known here")


def agent_bytes(word: AgentWord) -> bytes:
    """What an Agent answers, as `FromAgent`.

    >>> agent_word(agent_bytes(WaitForWork(1_000)), "t")
    WaitForWork(retry_after_ms=1000)
    """
    said = pb.FromAgent()
    match word:
        case ReadGrant():
            said.grant.CopyFrom(_grant(word))
        case WaitForWork():
            said.wait.retry_after_ms = int(word.retry_after_ms)
            said.wait.SetInParent()
        case NoMoreWork():
            said.over.SetInParent()
        case ReportReply():
            said.reported.CopyFrom(pb.Reported(is_live=word.is_live, cut_id=word.cut_id or ""))
        case DoneReply():
            said.counted.worth = _WORTHS[word.outcome]
        case Replanned():
            at = _locations(word.locations)
            said.relocated.CopyFrom(pb.Relocated(snapshot=word.snapshot, ticket=word.ticket, locations=at))
        case None:
            said.noted.SetInParent()
    return bytes(said.SerializeToString())


def agent_word(data: bytes, token: str) -> AgentWord:
    """What a `FromAgent` says to a Client that has said something of the grant `token`. Raises `InvalidData`."""
    said = known("FromAgent", data)
    match said.WhichOneof("what"):
        case "grant":
            return _granted(said.grant)
        case "wait":
            return WaitForWork(said.wait.retry_after_ms)
        case "over":
            return NoMoreWork()
        case "reported":
            reply = said.reported
            return ReportReply(token=token, is_live=reply.is_live, cut_id=reply.cut_id or None)
        case "counted":
            worths = [name for name, worth in _WORTHS.items() if worth == said.counted.worth]
            if not worths:
                raise InvalidData("an Agent does not say what became of the rows")
            return DoneReply(token=token, outcome=worths[0])
        case "relocated":
            found = said.relocated
            at = _places(found.locations)
            return Replanned(token=token, snapshot=found.snapshot, ticket=found.ticket, locations=at)
        case "noted":
            return None
    raise InvalidData("an Agent answered nothing that is known here")


def _grant(grant: ReadGrant) -> Any:
    sections = grant.sections
    return pb.Grant(
        job=grant.job,
        token=grant.token,
        ancestors=grant.ancestors,
        client=pb.ReaderName(name=grant.client.name, instance=grant.client.instance),
        partition=grant.partition,
        rows=_range(grant.rows),
        has_sections=sections is not None,
        section_rows=() if sections is None else sections.rows,
        snapshot=grant.snapshot,
        ticket=grant.ticket,
        locations=_locations(grant.locations),
    )


def _granted(said: Any) -> ReadGrant:
    if len(said.ancestors) > MAX_ANCESTORS:
        raise InvalidData(f"a grant names at most {MAX_ANCESTORS} ancestors")
    sections = Sections(tuple(said.section_rows)) if said.has_sections else None
    rows = _rows(said.rows)
    if sections is not None and (rows.end is None or sections.offset(rows.start) >= sections.offset(rows.end)):
        raise InvalidData("a grant is of some rows of its partition")
    return ReadGrant(
        job=said.job,
        token=_name(said.token),
        ancestors=tuple(said.ancestors),
        client=ReaderId(said.client.name, said.client.instance),
        partition=said.partition,
        rows=rows,
        sections=sections,
        snapshot=said.snapshot,
        ticket=said.ticket,
        locations=_places(said.locations),
    )


def _locations(locations: Iterable[ReadLocation]) -> list[Any]:
    return [pb.Location(uri=one.uri, hints=pb.ServingHints(priority=one.priority)) for one in locations]


def _places(said: Iterable[Any]) -> tuple[ReadLocation, ...]:
    return tuple(ReadLocation(uri=one.uri, priority=one.hints.priority) for one in said)


def _range(rows: RowRange) -> Any:
    return pb.Rows(start=_place(rows.start), end=None if rows.end is None else _place(rows.end))


def _rows(said: Any) -> RowRange:
    return RowRange(_position(said.start), _position(said.end) if said.HasField("end") else None)


def _place(position: Position) -> Any:
    return pb.Position(section=position.section, row=position.row)


def _position(said: Any) -> Position:
    return Position(said.section, said.row)


def _name(text: str) -> str:
    if not 0 < len(text) <= MAX_NAME_CHARS:
        raise InvalidData(f"Clients, instances, tokens and cuts have names of 1 to {MAX_NAME_CHARS} characters")
    return text
