"""What looks at every call of the control port before it is answered: whether the caller is of this cluster, which
node it is, and whether a node of its role may ask for that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from ballista_py.errors import BallistaError, TransportError, TryLater, Unauthenticated, WrongCluster, to_wire
from ballista_py.transport.control.grpc import (
    CONTROL_METHODS,
    StatusCode,
    aio,
    messages,
    parsed,
    stream_handler,
)
from ballista_py.transport.control.outages import FOREIGN
from ballista_py.transport.endpoints import CONTROL_METADATA_BYTES
from ballista_py.transport.security.access import Access, Caller
from ballista_py.transport.security.callers import CLUSTER_HEADER, Refusals, check_cluster, headers_too_large
from ballista_py.transport.security.credentials import Identity, Removed, identity_of

MAX_CALLS_OF_NODE = 16
MESSAGE_S = 10.0
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
    of a single call is read afterwards, and refused if it is none; those of a stream come to its handler as bytes. No
    node has more than `MAX_CALLS_OF_NODE` at once.
    `refusals` hears of all that.
    """

    def __init__(self, cluster_id: str, access: Access, peers: Peers, refusals: Refusals) -> None:
        self._cluster_id = cluster_id
        self._access = access
        self._peers = peers
        self._refusals = refusals
        self._open: Counter[str] = Counter()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        verb = f"rpc {details.method.rpartition('/')[2]}"
        too_large = headers_too_large(details.invocation_metadata, CONTROL_METADATA_BYTES)
        cluster = "" if too_large else dict(details.invocation_metadata).get(CLUSTER_HEADER, "")

        async def admitted(requests: Any, context: Any) -> None:
            status, node_id = StatusCode.FAILED_PRECONDITION, ""
            try:
                if too_large:
                    self._refusals.offend(context.peer(), "headers beyond the bound")
                    raise TransportError(f"a call may have {CONTROL_METADATA_BYTES >> 10} KiB of headers")
                node_id = self._checked(verb, cluster, context)
                with self._one_of(node_id):
                    if handler.request_streaming:
                        await handler.stream_stream(requests, context)
                        return
                    status = StatusCode.INVALID_ARGUMENT
                    request = await self._one_message(verb, context)
                    await context.write(await handler.unary_unary(request, context))
            except BallistaError as error:
                self._refusals.note(context.peer(), error)
                if isinstance(error, Unauthenticated):
                    status = StatusCode.UNAUTHENTICATED
                elif isinstance(error, TryLater):
                    status = StatusCode.RESOURCE_EXHAUSTED
                elif isinstance(error, WrongCluster):
                    status = FOREIGN
                await context.abort(status, str(to_wire(error)["message"]))

        # Every verb is a stream, and of bytes: nothing of a message is taken in before its sender is known, and gRPC
        # prints no traceback for one that it cannot read.
        return stream_handler(admitted, None, handler.response_serializer)

    def _checked(self, verb: str, cluster: str, context: Any) -> str:
        """The node that calls; nothing where nobody is known."""
        check_cluster(cluster, self._cluster_id)
        found = self._peers.identity(context)
        self._access.check(verb, Caller("") if found is None else Caller(found.node_id, found.role))
        return "" if found is None else found.node_id

    @contextmanager
    def _one_of(self, node_id: str) -> Iterator[None]:
        """Around a call; a node has few at once, since each may hold a message that never ends."""
        if node_id and self._open[node_id] >= MAX_CALLS_OF_NODE:
            raise TryLater(f"node '{node_id}' has {MAX_CALLS_OF_NODE} calls open here already: try again later")
        self._open[node_id] += 1
        try:
            yield
        finally:
            self._open[node_id] -= 1
            if not self._open[node_id]:
                del self._open[node_id]

    async def _one_message(self, verb: str, context: Any) -> Any:
        try:
            data = await asyncio.wait_for(context.read(), MESSAGE_S)
        except TimeoutError:
            raise TransportError(f"the message of the call did not come in {MESSAGE_S:g} s") from None
        if data is aio.EOF:
            raise TransportError("the call has no message")
        return parsed(_REQUESTS[verb], data)
