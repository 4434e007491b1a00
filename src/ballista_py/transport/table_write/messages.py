"""The messages of Table Write and the one door for those that a peer sent."""

from __future__ import annotations

from typing import Any

from ballista_py.errors import MissingExtra
from ballista_py.transport.table_read.messages import MAX_MESSAGE_BYTES, command_of, read_message

try:
    from ballista_py.transport.proto import table_write_pb2 as messages
except ImportError as error:
    raise MissingExtra.of("protobuf", "read") from error

PACKAGE = "ballista_py.tablewrite.v1"
MAX_COMMIT_BYTES = 32 << 20  # a receipt for each of very many tasks
pb: Any = messages


def known_of_write(name: str, data: bytes) -> Any:
    """The message `name` in these bytes of a peer. Raises `InvalidData` for what is none, or larger than it may be.

    >>> known_of_write("BeginWrite", pb.BeginWrite(table="t").SerializeToString()).table
    't'
    """
    return read_message(getattr(pb, name), data, MAX_COMMIT_BYTES if name == "CommitWrite" else MAX_MESSAGE_BYTES)


def put_of(command: bytes) -> Any:
    """The `PutRows` that a command of an exchange holds, or None if it is another. Raises as `known_of_write`."""
    return command_of(pb.PutRows, command)
