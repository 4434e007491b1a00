"""Messages between a node and a process of its engine: JSON values and record batches over one connected socket."""

from __future__ import annotations

import base64
import select
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from ballista_py.errors import MergeTooLarge
from ballista_py.runtime import Runtime

_HEAD = struct.Struct("<cQ")
_JSON, _ROWS = b"j", b"r"
LOOK_S = 0.1
MAX_BATCH_BYTES = 16 << 20
MAX_ROW_BYTES = 512 << 20
FAILED = "The engine failed on this statement: make it smaller, or say it in other words"
TOO_LARGE = (
    "The statement needs more memory than this node has left for it: ask for less at once, or raise max_merge_bytes of "
    "the schedulers or memory_limit of the executors"
)

Message: TypeAlias = dict[str, Any] | pa.RecordBatch


class Frames:
    """One end. Whole messages may be sent from several threads; one thread receives.

    Both raise `EOFError` when the other end is gone.
    """

    def __init__(self, connected: socket.socket, runtime: Runtime) -> None:
        self._socket = connected
        self._writing: AbstractContextManager[object] = runtime.lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send JSON-ready values."""
        self._send(_JSON, memoryview(orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS)))

    def send_rows(self, batch: pa.RecordBatch) -> None:
        """Send the rows, in several messages if they are large. Raises `MergeTooLarge` for a row beyond 512 MB."""
        for part in portions(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_batch(part)
            self._send(_ROWS, memoryview(sink.getvalue()))

    def receive(self, look: Callable[[], None] | None = None) -> Message:
        """The next message. `look` is called ten times a second while there is none."""
        if look is not None:
            while not select.select([self._socket], [], [], LOOK_S)[0]:
                look()
        kind, size = _HEAD.unpack(self._read(_HEAD.size))
        if size > 2 * MAX_ROW_BYTES:
            raise EOFError
        data = self._read(size)
        if kind == _JSON:
            values: dict[str, Any] = orjson.loads(data)
            return values
        batch: pa.RecordBatch = pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
        return batch

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()

    def _send(self, kind: bytes, data: memoryview) -> None:
        try:
            with self._writing:
                self._socket.sendall(_HEAD.pack(kind, data.nbytes))
                self._socket.sendall(data)
        except OSError:
            raise EOFError from None

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        try:
            while left:
                count = self._socket.recv_into(left)
                if not count:
                    raise EOFError
                left = left[count:]
        except OSError:
            raise EOFError from None
        return data


def packed(schema: pa.Schema) -> str:
    """The schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def unpacked(text: str) -> pa.Schema:
    """The schema that `packed` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def portions(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows as they go into one message each. Raises `MergeTooLarge` for a row beyond 512 MB."""
    if batch.nbytes <= MAX_BATCH_BYTES:
        yield batch
    elif batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from portions(batch.slice(0, half))
        yield from portions(batch.slice(half))
    elif batch.nbytes > MAX_ROW_BYTES:
        raise MergeTooLarge(
            f"a row of the answer takes {batch.nbytes >> 20} MB; at most {MAX_ROW_BYTES >> 20} can be"
        )
    else:
        yield batch
