"""Flight calls from bytes: what a hostile client sends, which no well-behaved library would let it.

Every message is written as it is given, valid or not, over plain gRPC. Nothing here reads Arrow data of a server: its
answers are bytes too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import MissingExtra
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.endpoints import Address
from ballista_py.transport.flight_sql.messages import message, pack, unpack
from ballista_py.transport.security.callers import TOKEN_HEADER
from ballista_py.transport.security.credentials import Tls

try:
    import grpc
except ImportError as error:
    raise MissingExtra.of("grpcio", "node") from error

_SERVICE = "/arrow.flight.protocol.FlightService/"
_BYTES_FIELD, _BODY_FIELD = 2, 1000
ANSWER_S = 30.0
# What a listener says of a call that it did not understand, or that broke off with its connection.
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@frozen
class Data:
    """One message of a stream: an IPC header, the bytes that go with it, and what is said beside them."""

    header: bytes = b""
    body: bytes = b""
    said: bytes = b""

    def encoded(self, command: bytes | None = None) -> bytes:
        """As it travels; the first message of a stream carries its `command`."""
        parts = [] if command is None else [_field(1, _varint(1 << 3) + _varint(2) + _field(2, command))]
        if self.header:
            parts.append(_field(_BYTES_FIELD, self.header))
        if self.said:
            parts.append(_field(3, self.said))
        return b"".join([*parts, _field(_BODY_FIELD, self.body)])


def ipc_messages(batch: pa.RecordBatch, compression: str | None = None) -> list[Data]:
    """The messages of a valid stream of the batch: schema, dictionaries, rows."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return [
        Data(message.metadata.to_pybytes(), b"" if message.body is None else message.body.to_pybytes())
        for message in pa.ipc.MessageReader.open_stream(sink.getvalue())
    ]


def stream_of(messages: Iterable[Data]) -> bytes:
    """The messages as an IPC stream."""
    out = bytearray()
    for data in messages:
        padding = -len(data.header) % 8
        out += b"\xff\xff\xff\xff" + (len(data.header) + padding).to_bytes(4, "little")
        out += data.header + bytes(padding) + data.body
    return bytes(out)


@define
class RawFlight:
    """A connection to one scheduler. Use it as a context manager.

    Every call returns the messages of the answer, or raises `grpc.RpcError`; `lost` says of one whether the node
    is the reason. A call that is not answered within `answer_s` raises it too.
    """

    url: str
    token: str | Secret | None = None
    tls: Tls | None = None
    answer_s: float = ANSWER_S
    _channel: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        address = str(Address.parse(self.url))
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if self.tls is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            pems = self.tls.read()
            credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.certificate)
            self._channel = grpc.secure_channel(address, credentials, options)

    def __enter__(self) -> RawFlight:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._channel.close()

    def put(self, command: bytes, messages: Iterable[Data]) -> list[bytes]:
        """`DoPut`: the messages of metadata that come back."""
        return [_fields(answer).get(1, b"") for answer in self._stream("DoPut", _first(command, messages))]

    def exchange(self, command: bytes, messages: Iterable[Data]) -> list[bytes]:
        """`DoExchange`: the encoded messages that come back."""
        return self._stream("DoExchange", _first(command, messages))

    def get(self, ticket: bytes) -> list[bytes]:
        """`DoGet`: the encoded messages of the answer."""
        return self._stream("DoGet", [_field(1, ticket)])

    def info(self, command: bytes) -> list[bytes]:
        """`GetFlightInfo`: the tickets of the answer."""
        descriptor = _varint(1 << 3) + _varint(2) + _field(2, command)
        found = self._one("GetFlightInfo", descriptor)
        return [_fields(_fields(point).get(1, b"")).get(1, b"") for point in _all(found, 3)]

    def action(self, kind: str, body: bytes) -> list[bytes]:
        """`DoAction`: the bodies of the results."""
        sent = _field(1, kind.encode()) + _field(2, body)
        return [_fields(answer).get(1, b"") for answer in self._stream("DoAction", [sent])]

    def prepare(self, query: str) -> bytes:
        """The handle of a statement that the server has prepared."""
        request = pack(message("ActionCreatePreparedStatementRequest", query=query))
        prepared = unpack(self.action("CreatePreparedStatement", request)[0])
        return bytes(prepared.prepared_statement_handle)

    def raw(self, method: str, requests: Sequence[bytes], compression: Any = None) -> list[bytes]:
        """Any method, one of another service by its path, with any bytes; gRPC may send them under `compression`."""
        return self._stream(method, requests, compression)

    def lives(self) -> bool:
        """Whether the server answers a harmless question on a connection of its own."""
        with RawFlight(self.url, self.token, self.tls, self.answer_s) as other:
            try:
                return bool(other.info(pack(message("CommandGetCatalogs"))))
            except grpc.RpcError:
                return False

    def _metadata(self) -> list[tuple[str, str]]:
        if self.token is None:
            return []
        secret = self.token.reveal() if isinstance(self.token, Secret) else self.token
        return [(TOKEN_HEADER, f"Bearer {secret}")]

    def _stream(self, method: str, requests: Iterable[bytes], compression: Any = None) -> list[bytes]:
        call = self._channel.stream_stream(method if method.startswith("/") else _SERVICE + method)
        with closing(_Sent(requests)) as sent:
            return list(call(sent, timeout=self.answer_s, metadata=self._metadata(), compression=compression))

    def _one(self, method: str, request: bytes) -> bytes:
        return bytes(
            self._channel.unary_unary(_SERVICE + method)(request, timeout=self.answer_s, metadata=self._metadata())
        )


def lost(error: grpc.RpcError) -> bool:
    """Whether the call ended because the server went away or fell silent, not because it refused."""
    return error.code() in _LOST and "SQLSTATE" not in (error.details() or "")


def new_name() -> str:
    """A table name that nobody else has."""
    return f"hostile_{SystemRuntime().new_id().replace('-', '')[:12]}"


class _Sent:
    """An iterator of requests that gRPC's thread may ask after the call has ended."""

    def __init__(self, requests: Iterable[bytes]) -> None:
        self._requests: Iterator[bytes] = iter(requests)

    def __iter__(self) -> _Sent:
        return self

    def __next__(self) -> bytes:
        return next(self._requests)

    def close(self) -> None:
        self._requests = iter(())


def _first(command: bytes, messages: Iterable[Data]) -> Iterator[bytes]:
    for number, data in enumerate(messages):
        yield data.encoded(None if number else command)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _fields(data: bytes) -> dict[int, bytes]:
    """The last field of bytes of each number."""
    return dict(_pairs(data))


def _all(data: bytes, number: int) -> list[bytes]:
    return [value for at, value in _pairs(data) if at == number]


def _pairs(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0

    def varint() -> int:
        nonlocal place
        number = shift = 0
        while True:
            byte = data[place]
            place += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while place < len(data):
        tag = varint()
        if tag & 7 == 2:
            size = varint()
            yield tag >> 3, data[place : place + size]
            place += size
        elif tag & 7 == 0:
            varint()
        else:
            place += 8 if tag & 7 == 1 else 4
