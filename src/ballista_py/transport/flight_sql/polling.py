"""`PollFlightInfo`: a statement that is run as a job, and asked for until it has an answer.

The first call queues the job; each answer says with what descriptor to ask again, and the last one has the endpoints:
one a chunk of the result, for `DoGet` at any scheduler. So neither the connection nor the scheduler need live as long
as the statement. A poll waits a while for the end, so that whoever asks again at once asks seldom. A flight info
without endpoints is cancelled by its descriptor.
"""

from __future__ import annotations

from typing import Any

from ballista_py.transport.flight.shapes import check_job_part
from ballista_py.transport.flight_sql.answers import endpoint, flight_info
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.flight_sql.service import PolledJob
from ballista_py.transport.flight_sql.statement import SqlStatement

POLLED = ("CommandPreparedStatementQuery", "CommandStatementQuery", "TicketStatementQuery")
POLL_MS = 2_000.0
_CMD = 2  # of a descriptor: what it is for stands in its command


def polled_job(command: Any) -> str | None:
    """The job that a descriptor or ticket is about; None for any other command.

    Raises `TransportError` and `InvalidData` for a handle that none of ours is.
    """
    if command.DESCRIPTOR.name != "TicketStatementQuery":
        return None
    part = SqlStatement.from_handle(command.statement_handle).part
    if part is None or "job" not in part:
        return None
    check_job_part(part)
    return str(part["job"])


def poll_info(job: PolledJob, descriptor: Any) -> Any:
    """The answer to a poll: how to ask again, or where the result is fetched."""
    if not job.ended:
        again = message("FlightDescriptor", type=_CMD, cmd=_ticket(job.job_id, None))
        return message("PollInfo", info=flight_info(job.schema, again, []), flight_descriptor=again, progress=0.0)
    chunks: list[int | None] = [*range(job.chunks)] or [None]
    endpoints = [endpoint(_ticket(job.job_id, chunk)) for chunk in chunks]
    return message("PollInfo", info=flight_info(job.schema, descriptor, endpoints, job.rows), progress=1.0)


def _ticket(job_id: str, chunk: int | None) -> bytes:
    handle = SqlStatement(query="", part={"job": job_id, "chunk": chunk}).handle()
    return pack(message("TicketStatementQuery", statement_handle=handle))
