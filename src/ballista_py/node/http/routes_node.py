"""What every node answers: whether it is up, what it does, and what it can be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from attrs import frozen
from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec

from ballista_py.node.http.app import json_response
from ballista_py.node.http.door import HttpDoor
from ballista_py.node.http.feed import Part
from ballista_py.node.http.shown import Health, HttpError, Ready, ShownTask

PROMETHEUS = "text/plain; version=0.0.4"  # and UTF-8, which the framework says
REFUSED = {
    400: ResponseSpec(HttpError, description="it is not asked as it must be", generate_examples=False),
    401: ResponseSpec(HttpError, description="no token that is known here", generate_examples=False),
    403: ResponseSpec(HttpError, description="the token is of somebody who may not, or a page of another site asks",
                      generate_examples=False),
    431: ResponseSpec(HttpError, description="the head of the request is too large", generate_examples=False),
    500: ResponseSpec(HttpError, description="a fault of the node, in its log", generate_examples=False),
    503: ResponseSpec(HttpError, description="the node is busy, starting or without its store; ask again",
                      generate_examples=False),
}  # fmt: skip


@frozen(kw_only=True)
class NodeShows:
    """What a node of either role says of itself. `ready` does no I/O; `parts` are those of its page.

    `status` and `tasks` are told which client looks, of no name where clients prove none, or None of a viewer.
    """

    node_id: str
    role: str
    ready: Callable[[], bool]
    status: Callable[[str | None], dict[str, Any]]
    tasks: Callable[[str | None], list[dict[str, Any]]]
    parts: Sequence[Part] = ()


def routes(shows: NodeShows, door: HttpDoor) -> list[HTTPRouteHandler]:
    """`/health`, `/ready`, `/status`, `/tasks`, their versions below `/v1`, and `/openapi.json`."""
    node = {"node_id": shows.node_id, "role": shows.role}

    @get("/health", sync_to_thread=False, security=[{}])
    def health() -> Health:
        """Whether the process answers."""
        return Health(**node, healthy=True)

    @get("/ready", sync_to_thread=False, security=[{}],
         responses={503: ResponseSpec(Ready, description="it does not serve", generate_examples=False)})  # fmt: skip
    def ready() -> Response[Ready]:
        """Whether the node serves: 200 if it does, else 503."""
        found = shows.ready()
        return Response(Ready(**node, ready=found), status_code=200 if found else 503)

    async def shown(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
        """What the node does, as JSON; it differs by role."""
        status = await door.run(request, lambda _: shows.status(door.looks_as(request)))
        found: Any = json_response({**node, **status})
        return cast("Response[dict[str, Any]]", found)

    async def tasks(request: Request[Any, Any, Any]) -> Response[bytes]:
        """What runs now and what ended last, newest first, at this node."""
        return json_response(
            {**node, "tasks": await door.run(request, lambda _: shows.tasks(door.looks_as(request)))}
        )

    @get("/v1/tasks", responses=REFUSED)
    async def v1_tasks(request: Request[Any, Any, Any]) -> list[ShownTask]:
        """What runs now and what ended last at this node, newest first."""
        return [
            ShownTask(**task) for task in await door.run(request, lambda _: shows.tasks(door.looks_as(request)))
        ]

    @get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
        """This document."""
        return json_response(await door.run(request, lambda _: request.app.openapi_schema.to_schema()))

    status = ["/status", "/v1/status"]
    return [
        health,
        ready,
        get(status, responses=REFUSED)(shown),
        get("/tasks", responses=REFUSED, include_in_schema=False)(tasks),
        v1_tasks,
        openapi,
    ]


def metrics_routes(text: Callable[[], bytes], door: HttpDoor) -> list[HTTPRouteHandler]:
    """`/metrics`, for Prometheus."""

    @get("/metrics", media_type=PROMETHEUS)
    async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        """All figures of the node."""
        return Response(await door.run(request, lambda _: text()), media_type=PROMETHEUS)

    return [metrics]
