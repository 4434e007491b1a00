"""Flight infos: where the parts of an answer are fetched, and which columns it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ballista_py.transport.flight_sql.messages import message

UNKNOWN = -1


def endpoint(ticket: bytes, locations: Sequence[str] = ()) -> Any:
    """A part of an answer: its ticket, and where to show it; without a place, where the info came from.

    >>> endpoint(b"t").ticket.ticket
    b't'
    """
    where = [message("Location", uri=uri) for uri in locations]
    return message("FlightEndpoint", ticket=message("Ticket", ticket=ticket), location=where)


def flight_info(schema: pa.Schema | None, descriptor: Any, endpoints: list[Any], records: int = UNKNOWN) -> Any:
    """What an answer is made of; `schema` is None while nobody knows its columns.

    >>> flight_info(pa.schema([]), None, []).total_records
    -1
    """
    return message(
        "FlightInfo",
        schema=b"" if schema is None else schema.serialize().to_pybytes(),
        flight_descriptor=descriptor,
        endpoint=endpoints,
        total_records=records,
        total_bytes=UNKNOWN,
    )
