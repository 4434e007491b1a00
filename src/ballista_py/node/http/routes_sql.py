"""`POST /v1/sql`: a statement of any kind, and its answer in the form that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType

from ballista_py.node.http.answering import StreamedAnswer
from ballista_py.node.http.door import HttpDoor
from ballista_py.node.http.forms import FORMS, form_for
from ballista_py.node.http.posted import COPIES, posted_statement
from ballista_py.node.http.sql_request import (
    JSON,
    MAX_JSON_BYTES,
    PostedStatement,
    max_body_bytes,
    read_statement,
)
from ballista_py.partitions.refresh import WRITE_WAITS
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight.shape_checks import MAX_NAME_CHARS

RunStatement = Callable[[PostedStatement, CallContext], StreamResult]


def routes(run: RunStatement, door: HttpDoor) -> list[HTTPRouteHandler]:
    """`POST /v1/sql`, whose statements `run` answers."""

    @post("/v1/sql", status_code=200, operation_class=_SqlOperation, request_max_body_size=MAX_JSON_BYTES)
    async def sql(request: Request[Any, Any, Any]) -> StreamedAnswer:
        """Run one statement: a query, a change (its answer is a row with `affected`), EXPLAIN, DESCRIBE or SHOW.

        The answer has the form that `Accept` asks for: JSON (an array of objects), NDJSON, CSV or an Arrow stream. It
        is sent as it is made. One that breaks off ends the connection without the end of its body.
        """
        form = form_for(", ".join(request.headers.getall("accept", [])))
        content_type = request.headers.get("content-type", "")
        body = await door.body(request, max_body_bytes(content_type))
        posted = read_statement(content_type, body)

        def answered(opened: Any) -> StreamResult:
            opened.context.work.limit_to(posted.timeout_ms)
            opened.context.work.waits = posted.wait
            return run(posted, opened.context)

        return StreamedAnswer(door, door.call(request), answered, form, COPIES * len(body))

    return [sql]


_STATEMENT = {
    "timeout": Schema(type=OpenAPIType.NUMBER, exclusive_minimum=0, description="seconds"),
    "token": Schema(
        type=OpenAPIType.STRING, min_length=1, max_length=MAX_NAME_CHARS, description="a change is applied once"
    ),
    "atomic": Schema(type=OpenAPIType.BOOLEAN),
    "wait": Schema(type=OpenAPIType.STRING, enum=list(WRITE_WAITS)),
}
_ROWS = Schema(type=OpenAPIType.ARRAY, items=Schema(type=OpenAPIType.OBJECT))
_ERROR = Schema(
    type=OpenAPIType.OBJECT,
    required=["error", "code"],
    properties={"error": Schema(type=OpenAPIType.STRING), "code": Schema(type=OpenAPIType.STRING)},
)
_REFUSALS = {
    400: "the statement or the body is wrong",
    401: "no token of a client",
    403: "the token is of somebody who may not, or a page of another site asks",
    406: "no form of an answer that is wanted",
    409: "the change was not applied, or not everywhere: send it again with the same token",
    413: "the body is too large",
    415: "a body of another type",
    422: "the statement takes more memory than the node may give it",
    500: "a fault of the node",
    503: "the node is busy or not ready; ask again",
    504: "the time limit of the statement is over",
}


@dataclass
class _SqlOperation(Operation):
    """The types of what is posted and answered, which no annotation says."""

    def __post_init__(self) -> None:
        self.request_body = posted_statement(_STATEMENT)
        rows = {
            name: OpenAPIMediaType(schema=_ROWS if name == JSON else Schema(type=OpenAPIType.STRING))
            for name in FORMS
        }
        said = {JSON: OpenAPIMediaType(schema=_ERROR)}
        self.responses = {
            "200": OpenAPIResponse(description="the rows", content=rows),
            **{str(status): OpenAPIResponse(description=why, content=said) for status, why in _REFUSALS.items()},
        }
