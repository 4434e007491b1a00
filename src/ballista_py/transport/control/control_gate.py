"""What looks at every call of the control port before it is answered: whether the caller is of this cluster, which
node it is, and whether a node of its role may ask for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen

from ballista_py.errors import BallistaError, TransportError, Unauthenticated, to_wire
from ballista_py.transport.control.grpc import (
    CONTROL_METHODS,
    StatusCode,
    aio,
    messages,
    parsed,
    stream_handler,
    unary_handler,
)
from ballista_py.transport.endpoints import CONTROL_METADATA_BYTES
from ballista_py.transport.security.access import Access, Caller
from ballista_py.transport.security.callers import CLUSTER_HEADER
from ballista_py.transport.security.credentials import Identity, Removed, identity_of
from ballista_py.transport.security.refusals import Refusals, headers_too_large
from ballista_py.transport.security.same_cluster import check_cluster

_REQUESTS = {f"rpc {method.name}": getattr(messages, method.input_type.name) for method in CONTROL_METHODS}


@frozen
class Peers:
    """Which node a call comes from. `removed` are those that may not speak although their certificate is good; None:
    the port asks for no certificates, and nobody is known.
    """

    removed: Removed | None = None

    def identity(self, context: Any) -> Identity | None:
        """The node behind a call; None where nobody is known. Raises `Unauthenticated`."""
        if self.removed is None:
            return None
        names = context.auth_context().get("x509_subject_alternative_name") or [b""]
        return identity_of(names[0].decode(errors="replace"), self.removed)

    def check_speaks_for(self, context: Any, node_id: str) -> None:
        """That the call comes from that node. Raises `Unauthenticated`."""
        found = self.identity(context)
        if found is not None and found.node_id != node_id:
            raise Unauthenticated(f"the certificate is that of node '{found.node_id}', not of '{node_id}'")


class ControlGate(aio.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Refuses every rpc of a caller that names another cluster than `cluster_id`, that is no node or a removed one, or
    whose role has no right to it in the table `access`. What is not in the table is refused to everybody. The message
    of a single call is read afterwards, and refused if it is none; those of a stream come to its handler as bytes.
    `refusals` hears of all that.
    """

    def __init__(self, cluster_id: str, access: Access, peers: Peers, refusals: Refusals) -> None:
        self._cluster_id = cluster_id
        self._access = access
        self._peers = peers
        self._refusals = refusals

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        verb = f"rpc {details.method.rpartition('/')[2]}"
        too_large = headers_too_large(details.invocation_metadata, CONTROL_METADATA_BYTES)
        cluster = "" if too_large else dict(details.invocation_metadata).get(CLUSTER_HEADER, "")
        answer = handler.stream_stream if handler.request_streaming else handler.unary_unary

        async def admitted(request: Any, context: Any) -> Any:
            status = StatusCode.FAILED_PRECONDITION
            try:
                if too_large:
                    self._refusals.offend(context.peer(), "headers beyond the bound")
                    raise TransportError(f"a call may have {CONTROL_METADATA_BYTES >> 10} KiB of headers")
                self._check(verb, cluster, context)
                if not handler.request_streaming:
                    status = StatusCode.INVALID_ARGUMENT
                    request = parsed(_REQUESTS[verb], request)
            except BallistaError as error:
                self._refusals.note(context.peer(), error)
                if isinstance(error, Unauthenticated):
                    status = StatusCode.UNAUTHENTICATED
                await context.abort(status, str(to_wire(error)["message"]))
            return await answer(request, context)

        # Bytes, not messages: gRPC would read a message before anybody was asked whether the caller may send it, and
        # print a traceback for each that it cannot read.
        make = stream_handler if handler.request_streaming else unary_handler
        return make(admitted, None, handler.response_serializer)

    def _check(self, verb: str, cluster: str, context: Any) -> None:
        check_cluster(cluster, self._cluster_id)
        found = self._peers.identity(context)
        self._access.check(verb, Caller("") if found is None else Caller(found.node_id, found.role))
