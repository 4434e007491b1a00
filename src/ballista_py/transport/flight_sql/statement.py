"""`SqlStatement`: one statement as handles and tickets carry it, so that no server need remember it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.errors import SqlError, TransportError
from ballista_py.transport.wire import from_json, to_json

MAX_HANDLE_BYTES = 8 << 20
_SEPARATOR = b"\n"


@frozen(kw_only=True)
class SqlStatement:
    """A statement, the dialect it is written in (None: the engine's), and a row of parameters for each execution.

    `part` is what `StatementService.parts` said of one part of the answer; None means all of it. Whoever reads
    `handle` has the whole statement: any scheduler can take over where another one left off.

    >>> SqlStatement.from_handle(SqlStatement(query="select 1").handle()).query
    'select 1'
    """

    query: str
    dialect: str | None = None
    parameters: pa.RecordBatch | None = None
    part: Mapping[str, Any] | None = None

    def handle(self) -> bytes:
        """The statement as bytes. Raises `SqlError` for parameters that are too large to travel with it."""
        head = to_json({"query": self.query, "dialect": self.dialect, "part": self.part})
        rows = b"" if self.parameters is None else _ipc(self.parameters)
        if len(head) + len(rows) > MAX_HANDLE_BYTES:
            raise SqlError(
                f"the statement and its parameters have more than {MAX_HANDLE_BYTES >> 20} MiB: "
                "load the parameters into a table and join it"
            )
        return head + _SEPARATOR + rows

    @classmethod
    def from_handle(cls, handle: bytes) -> SqlStatement:
        """The statement that `handle` gave. Raises `TransportError` for bytes that are none of it."""
        head, _, rows = handle.partition(_SEPARATOR)  # JSON on one line
        values = from_json(head)
        query, dialect, part = values.get("query"), values.get("dialect"), values.get("part")
        if not (
            isinstance(query, str) and isinstance(dialect, str | None) and isinstance(part, dict | None)
        ) or set(values) - {"query", "dialect", "part"}:
            raise TransportError("the handle is none that a scheduler of this cluster has given")
        return cls(query=query, dialect=dialect, parameters=_batch(rows) if rows else None, part=part)

    def bound(self, parameters: pa.RecordBatch | None) -> SqlStatement:
        """The statement with these parameters instead of those it had."""
        return evolve(self, parameters=parameters)


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _batch(data: bytes) -> pa.RecordBatch:
    try:
        table = pa.ipc.open_stream(data).read_all().combine_chunks()
    except (pa.ArrowException, OSError):
        raise TransportError("the handle is none that a scheduler of this cluster has given") from None
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
