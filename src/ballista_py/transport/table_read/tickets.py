"""What a ticket for a part of a read job says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import asdict, frozen

from ballista_py.errors import Unauthenticated

READ_PURPOSE = b"ballista_py: a part of a read job\n"
MAX_TICKET_BYTES = 64 << 10


@frozen(kw_only=True)
class ReadTicket:
    """The part `part` of a read job, as what has that `digest` names it, for this client.

    Executors give it that hold partitions of it, and, of what nobody holds, all of them (`anywhere`).

    >>> ticket = ReadTicket(read_id="r", digest="d", part=3, client="", anywhere=False)
    >>> ReadTicket.from_json(ticket.to_json()) == ticket
    True
    """

    read_id: str
    digest: str
    part: int
    client: str
    anywhere: bool

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values, to be signed."""
        return {"read": asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ReadTicket:
        """What `to_json` said, of a ticket whose signature was checked. Raises `Unauthenticated` for anything else."""
        said = values.get("read")
        kinds = {"read_id": str, "digest": str, "part": int, "client": str, "anywhere": bool}
        if not isinstance(said, dict) or said.keys() != kinds.keys():
            raise Unauthenticated("the ticket is none for a part of a read job")
        if any(type(said[name]) is not kind for name, kind in kinds.items()) or said["part"] < 0:
            raise Unauthenticated("the ticket is none for a part of a read job")
        return cls(**said)
