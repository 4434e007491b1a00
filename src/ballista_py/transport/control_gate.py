"""What looks at every call of the control port before it is answered: whether the caller is of this cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ballista_py.errors import WrongCluster
from ballista_py.transport.callers import CLUSTER_HEADER
from ballista_py.transport.grpc_door import StatusCode, aio, stream_handler, unary_handler
from ballista_py.transport.same_cluster import check_cluster


class ControlGate(aio.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Refuses every rpc of a caller that names another cluster than `cluster_id`."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        claimed = dict(details.invocation_metadata).get(CLUSTER_HEADER, "")
        try:
            check_cluster(claimed, self._cluster_id)
        except WrongCluster as error:
            reason = error.message
        else:
            return handler

        async def refuse(_request: Any, context: Any) -> None:
            await context.abort(StatusCode.FAILED_PRECONDITION, reason)

        return handler and (stream_handler(refuse) if handler.request_streaming else unary_handler(refuse))
