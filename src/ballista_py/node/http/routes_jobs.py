"""`/v1/jobs`: statements that are queued, run whoever dies, and fetched chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Operation, Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType
from litestar.params import Parameter, QueryParameter

from ballista_py.node.http.answering import StreamedAnswer
from ballista_py.node.http.asked_as import NUMBER, QUERY, TEXT
from ballista_py.node.http.door import HttpDoor
from ballista_py.node.http.forms import form_for
from ballista_py.node.http.posted import posted_statement, read_no_body
from ballista_py.node.http.routes_node import REFUSED
from ballista_py.node.http.shown import HttpError, Job, job
from ballista_py.node.http.sql_request import MAX_JSON_BYTES, max_body_bytes, read_job
from ballista_py.transport.flight.commands import CANCEL_JOB, CLOSE_JOB, JOB, JOBS, SUBMIT_JOB, job_rows_command
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight.shape_checks import MAX_NAME_CHARS, MAX_NUMBER
from ballista_py.transport.flight.shapes import check_question

_ID = Parameter(max_length=64, description="the id of the job, a UUID")
_STATE = QueryParameter(name="state", max_length=MAX_NAME_CHARS, description="only those in this state")
_CHUNK = QueryParameter(ge=0, le=MAX_NUMBER, description="counted from 0; without it all of the result")
_SAID = {
    **REFUSED,
    400: ResponseSpec(HttpError, description="it is not asked as it must be", generate_examples=False),
    404: ResponseSpec(HttpError, description="this client has no such job", generate_examples=False),
    409: ResponseSpec(HttpError, description="the state of the job does not allow that", generate_examples=False),
}
_SUBMITTED = {
    **_SAID,
    413: ResponseSpec(HttpError, description="the body is too large", generate_examples=False),
    415: ResponseSpec(HttpError, description="a body of another type", generate_examples=False),
}
_ROWS = {
    **_SAID,
    406: ResponseSpec(HttpError, description="no form of an answer that is wanted", generate_examples=False),
}
_OPEN = ("PENDING", "RUNNING")


class Jobs(Protocol):
    """What a scheduler has of jobs; of those of the client that asks."""

    def action(self, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def rows(self, command: Mapping[str, Any]) -> StreamResult: ...


def routes(jobs: Callable[[], Jobs], door: HttpDoor) -> list[HTTPRouteHandler]:
    """`/v1/jobs` and what is below it. `jobs` raises `TryLater` while there are none."""

    def ask(name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        check_question(name, body)
        return jobs().action(name, body)

    @post(
        "/v1/jobs",
        status_code=202,
        responses=_SUBMITTED,
        operation_class=_SubmitOperation,
        request_max_body_size=MAX_JSON_BYTES,
    )
    async def submit(request: Request[Any, Any, Any]) -> Job:
        """Queue a statement. Posted again with the same `job_id` it is the same job."""
        content_type = request.headers.get("content-type", "")
        body = await door.body(request, max_body_bytes(content_type))
        asked = read_job(content_type, body)
        return job((await door.run(request, lambda _: ask(SUBMIT_JOB, asked)))["job"])

    @get("/v1/jobs", responses=_SAID, opt={QUERY: {"state": TEXT}})
    async def list_jobs(
        request: Request[Any, Any, Any], wanted: Annotated[str | None, _STATE] = None
    ) -> list[Job]:
        """The jobs of the client, newest first."""
        found = await door.run(request, lambda _: ask(JOBS, {"state": wanted}))
        return [job(row) for row in found["rows"]]

    @get("/v1/jobs/{job_id:str}", responses=_SAID)
    async def show(request: Request[Any, Any, Any], job_id: Annotated[str, _ID]) -> Job:
        """One job: how far it is, why it failed, how many chunks its result has."""
        return job((await door.run(request, lambda _: ask(JOB, {"job_id": job_id})))["job"])

    @get("/v1/jobs/{job_id:str}/results", responses=_ROWS, opt={QUERY: {"chunk": NUMBER}})
    async def results(
        request: Request[Any, Any, Any],
        job_id: Annotated[str, _ID],
        chunk: Annotated[int | None, _CHUNK] = None,
    ) -> StreamedAnswer:
        """The rows of one chunk, or of all, in the form that `Accept` asks for, as those of `/v1/sql`."""
        form = form_for(", ".join(request.headers.getall("accept", [])))
        command = job_rows_command(job_id, chunk)
        return StreamedAnswer(door, door.call(request), lambda _: jobs().rows(command), form, 0)

    @delete("/v1/jobs/{job_id:str}", status_code=202, responses=_SAID)
    async def end(request: Request[Any, Any, Any], job_id: Annotated[str, _ID]) -> Job:
        """Cancel a job that is still to be done; give up the result of one that has ended."""

        def ended() -> Mapping[str, Any]:
            asked = {"job_id": job_id}
            return ask(CANCEL_JOB if ask(JOB, asked)["job"]["state"] in _OPEN else CLOSE_JOB, asked)

        await read_no_body(request)
        return job((await door.run(request, lambda _: ended()))["job"])

    return [submit, list_jobs, show, results, end]


_JOB = {
    "name": Schema(type=OpenAPIType.STRING, max_length=200),
    "priority": Schema(type=OpenAPIType.INTEGER, minimum=0, maximum=9),
    "job_id": Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.UUID),
}


@dataclass
class _SubmitOperation(Operation):
    """The type of what is posted, which no annotation says."""

    def __post_init__(self) -> None:
        self.request_body = posted_statement(_JOB)
