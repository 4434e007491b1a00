"""What a scheduler answers of the cluster, its tables and nodes, and what can be done about them and statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from attrs import frozen
from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from ballista_py.errors import SqlError
from ballista_py.node.http.door import HttpDoor
from ballista_py.node.http.errors import HttpRefused
from ballista_py.node.http.posted import read_no_body
from ballista_py.node.http.routes_node import REFUSED
from ballista_py.node.http.shown import Cancelled, Dataset, HttpError, Node, ShownPlan, Told, dataset
from ballista_py.node.status.plans import shown_plan
from ballista_py.node.status.seen_tables import table_seen_by
from ballista_py.transport.flight.shape_checks import MAX_NAME_CHARS

_NAMED = Parameter(max_length=MAX_NAME_CHARS)
_CHANGED = {
    **REFUSED,
    400: ResponseSpec(HttpError, description="it cannot be done as asked", generate_examples=False),
    404: ResponseSpec(HttpError, description="there is none of that name", generate_examples=False),
}


@frozen(kw_only=True)
class ClusterShows:
    """What a scheduler says of the cluster, and does. `cancel` ends a statement of a client; whether there was one.
    `plan` says how a statement runs or ran, None for one that is not known (any more).
    """

    tables: Callable[[], Sequence[Mapping[str, Any]]]
    members: Callable[[], Sequence[Mapping[str, Any]]]
    refresh: Callable[[str], int]
    cancel: Callable[[str, str], bool]
    plan: Callable[[str, str | None], Mapping[str, Any] | None]


def routes(shows: ClusterShows, door: HttpDoor) -> list[HTTPRouteHandler]:
    """`/v1/datasets`, `/v1/nodes`, `DELETE /v1/tasks/{task_id}`, and its plan."""

    @get("/v1/datasets", responses=REFUSED)
    async def datasets(request: Request[Any, Any, Any]) -> list[Dataset]:
        """Every table, and how far its partitions are served."""
        client = door.looks_as(request)
        rows = await door.run(request, lambda _: shows.tables())
        return [dataset(table_seen_by(row, client)) for row in rows]

    @get("/v1/nodes", responses=REFUSED)
    async def nodes(request: Request[Any, Any, Any]) -> list[Node]:
        """The nodes that belong to the cluster now."""
        return [Node(**row) for row in await door.run(request, lambda _: shows.members())]

    @post("/v1/datasets/{name:str}/acceleration/refresh", status_code=202, responses=_CHANGED)
    async def refresh(request: Request[Any, Any, Any], name: Annotated[str, _NAMED]) -> Told:
        """Let every executor compare what it holds of the table with what is stored, and no source. It has no body."""
        await read_no_body(request)
        try:
            return Told(executors=await door.run(request, lambda _: shows.refresh(name)))
        except SqlError as error:
            raise HttpRefused(404, "there is no such table", error.code) from None

    @delete("/v1/tasks/{task_id:str}", status_code=202, responses=_CHANGED)
    async def cancel(request: Request[Any, Any, Any], task_id: Annotated[str, _NAMED]) -> Cancelled:
        """End a statement that the client of this token has sent to this scheduler, by whatever port."""
        await read_no_body(request)
        if not await door.run(request, lambda opened: shows.cancel(task_id, opened.context.work.client)):
            raise HttpRefused(404, "no statement of this client has that id and runs at this scheduler")
        return Cancelled(task_id=task_id)

    @get("/v1/tasks/{task_id:str}/plan", responses={**REFUSED, 404: _CHANGED[404]})
    async def plan(request: Request[Any, Any, Any], task_id: Annotated[str, _NAMED]) -> ShownPlan:
        """How a statement runs or ran at this scheduler: its plan, and what each leg has given. Of the last ones."""
        found = await door.run(request, lambda _: shows.plan(task_id, door.looks_as(request)))
        if found is None:
            raise HttpRefused(
                404, "this scheduler knows no plan of that id: it keeps those of the last statements"
            )
        return ShownPlan(**shown_plan(found))

    return [datasets, nodes, refresh, cancel, plan]
