"""The only import of gRPC and of the generated messages, so that a missing extra is said in one sentence."""

from __future__ import annotations

from typing import Any

from ballista_py.errors import MissingExtra, TransportError
from ballista_py.protobuf_sizes import require_unpackable

try:
    import grpc
    import grpc.aio
    from google.protobuf.message import DecodeError

    from ballista_py.transport.proto import control_pb2 as messages
    from ballista_py.transport.proto import control_pb2_grpc
except ImportError as error:
    raise MissingExtra.of("grpcio", "node") from error

rpc: Any = control_pb2_grpc
aio: Any = grpc.aio
StatusCode: Any = grpc.StatusCode
stream_handler: Any = grpc.stream_stream_rpc_method_handler

CONTROL_METHODS: Any = messages.DESCRIPTOR.services_by_name["Control"].methods


def parsed(kind: Any, data: bytes) -> Any:
    """The message of this generated class that `data` holds.

    Raises `TransportError` if it holds none, and `InvalidData` for one that takes too much once it is read.
    """
    require_unpackable(data, kind.DESCRIPTOR)
    try:
        return kind.FromString(data)
    except DecodeError:
        raise TransportError(
            "the bytes are no message of the control protocol: is the peer a node of ballista_py?"
        ) from None


__all__ = [
    "CONTROL_METHODS", "StatusCode", "aio", "grpc", "messages", "parsed", "rpc", "stream_handler",
]  # fmt: skip
