"""What a ticket for a part of plain files says: which versions of which files, and which of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import asdict, frozen

from ballista_py.errors import Unauthenticated

PLAIN_PURPOSE = b"ballista_py: plain files of a read job\n"
_KINDS = (str, int, str, int, int)


@frozen
class PlainPiece:
    """`count` row groups, from `first` on, of that version of a file."""

    path: str
    size: int
    version: str
    first: int
    count: int


@frozen(kw_only=True)
class PlainTicket:
    """A part of a read job of `client`: these columns of these pieces, one after the other.

    Where that is all that the plan of the job asks for, the answer is the same, processed or not (`as_they_are`).

    >>> piece = PlainPiece("orders/a.parquet", 10, "v1", 0, 1)
    >>> ticket = PlainTicket(read_id="r", client="", columns=("id",), as_they_are=True, pieces=(piece,))
    >>> PlainTicket.from_json(ticket.to_json()) == ticket
    True
    """

    read_id: str
    client: str
    columns: tuple[str, ...]
    as_they_are: bool
    pieces: tuple[PlainPiece, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values, to be signed."""
        said = asdict(self, recurse=False)
        pieces = [[one.path, one.size, one.version, one.first, one.count] for one in self.pieces]
        return {"plain": {**said, "columns": list(self.columns), "pieces": pieces}}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PlainTicket:
        """What `to_json` said, of a ticket whose signature was checked. Raises `Unauthenticated` for anything else."""
        said = values.get("plain")
        kinds = {"read_id": str, "client": str, "columns": list, "as_they_are": bool, "pieces": list}
        if not isinstance(said, dict) or said.keys() != kinds.keys():
            raise _wrong()
        if any(type(said[name]) is not kind for name, kind in kinds.items()):
            raise _wrong()
        if not all(isinstance(name, str) for name in said["columns"]):
            raise _wrong()
        pieces = tuple(_piece(one) for one in said["pieces"])
        return cls(**{**said, "columns": tuple(said["columns"]), "pieces": pieces})


def _piece(said: Any) -> PlainPiece:
    is_one = isinstance(said, list) and len(said) == len(_KINDS)
    if not is_one or any(type(value) is not kind for value, kind in zip(said, _KINDS, strict=True)):
        raise _wrong()
    piece = PlainPiece(*said)
    if min(piece.size, piece.first, piece.count) < 0:
        raise _wrong()
    return piece


def _wrong() -> Unauthenticated:
    return Unauthenticated("the ticket is none for plain files of a read job")
