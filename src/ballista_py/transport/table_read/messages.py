"""The messages of Table Read and the one door for those that a peer sent."""

from __future__ import annotations

from typing import Any

from ballista_py.errors import InvalidData, MissingExtra
from ballista_py.protobuf_sizes import require_unpackable
from ballista_py.transport.flight.shape_checks import MAX_NAME_CHARS

try:
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.protobuf.message import DecodeError, Message

    from ballista_py.transport.proto import table_read_pb2 as messages
except ImportError as error:
    raise MissingExtra.of("protobuf", "read") from error

PACKAGE = "ballista_py.tableread.v1"
MAX_MESSAGE_BYTES = 8 << 20
MAX_SLICES_BYTES = 512 << 20  # of an answer: a ticket for each of very many partitions
MAX_LIST = 100_000
_TYPE_URL = "type.googleapis.com/"
_LONG = frozenset({"sql", "filter", "plan"})  # statements are measured by themselves
pb: Any = messages


def known(name: str, data: bytes, most: int = MAX_MESSAGE_BYTES) -> Any:
    """The message `name` in these bytes of a peer. Raises `InvalidData` for what is none, or larger than it may be.

    >>> known("Renew", pb.Renew(read_id="r").SerializeToString()).read_id
    'r'
    """
    return read_message(getattr(pb, name), data, most)


def read_message(kind: Any, data: bytes, most: int = MAX_MESSAGE_BYTES) -> Any:
    """The message of that class in these bytes of a peer. Raises as `known`."""
    name = kind.DESCRIPTOR.name
    if len(data) > most:
        raise InvalidData(f"a {name} has more than {most >> 20} MiB")
    require_unpackable(data, kind.DESCRIPTOR)
    try:
        found = kind.FromString(data)
    except DecodeError:
        raise InvalidData(f"the bytes are no {kind.DESCRIPTOR.full_name}") from None
    _check(found, name)
    return found


def packed(message: Any) -> bytes:
    """A message with its type, as commands of exchanges travel."""
    wrapped = AnyMessage(type_url=_TYPE_URL + message.DESCRIPTOR.full_name, value=message.SerializeToString())
    return bytes(wrapped.SerializeToString())


def request_of(command: bytes) -> Any:
    """The `Request` that a command of an exchange holds, or None if it is a command of another protocol.

    Raises `InvalidData` for one that is not valid.
    """
    return command_of(pb.Request, command)


def command_of(kind: Any, command: bytes) -> Any:
    """The message of that class that a command of an exchange holds; None for another. Raises as `known`."""
    if len(command) > MAX_MESSAGE_BYTES or not command.startswith(b"\n"):  # the first field of an Any
        return None
    try:
        wrapped = AnyMessage.FromString(command)
    except DecodeError:
        return None
    if wrapped.type_url != f"{_TYPE_URL}{kind.DESCRIPTOR.full_name}":
        return None
    return read_message(kind, wrapped.value)


def _check(found: Message, place: str) -> None:
    """Whatever a peer calls something is a name, and a list has an end."""
    for field, value in found.ListFields():
        held = value if field.is_repeated else [value]
        if len(held) > MAX_LIST:
            raise InvalidData(f"{place}.{field.name} has more than {MAX_LIST:,} values")
        for one in held:
            if isinstance(one, Message):
                _check(one, f"{place}.{field.name}")
            elif isinstance(one, str) and field.name not in _LONG and len(one) > MAX_NAME_CHARS:
                raise InvalidData(f"{place}.{field.name} must be a text of at most {MAX_NAME_CHARS:,} characters")
