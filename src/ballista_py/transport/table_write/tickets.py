"""What a ticket to put rows for a write says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import asdict, frozen

from ballista_py.errors import Unauthenticated

WRITE_PURPOSE = b"ballista_py: rows of a write\n"


@frozen(kw_only=True)
class PutTicket:
    """Rows may be put for this write, for this client.

    >>> ticket = PutTicket(write_id="w", client="")
    >>> PutTicket.from_json(ticket.to_json()) == ticket
    True
    """

    write_id: str
    client: str

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values, to be signed."""
        return {"write": asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PutTicket:
        """What `to_json` said, of a ticket whose signature was checked. Raises `Unauthenticated` for anything else."""
        said = values.get("write")
        kinds = {"write_id": str, "client": str}
        if not isinstance(said, dict) or said.keys() != kinds.keys():
            raise Unauthenticated("the ticket is none for rows of a write")
        if any(type(said[name]) is not kind for name, kind in kinds.items()):
            raise Unauthenticated("the ticket is none for rows of a write")
        return cls(**said)
