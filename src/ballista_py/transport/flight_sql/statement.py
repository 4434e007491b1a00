"""`SqlStatement`: one statement as handles and tickets carry it, so that no server need remember it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.errors import InvalidData, SqlError, TransportError
from ballista_py.transport.arrow.door import read_rows
from ballista_py.transport.flight.wire import from_json, sorted_json, to_json

MAX_HANDLE_BYTES = 8 << 20
MAX_HANDLE_VALUES = 100_000  # one for each partition of a leg; what it is asked for is one, as text
MAX_READ_BYTES = 64 << 20
_SEPARATOR = b"\n"
_KINDS: dict[str, Any] = {"query": str, "dialect": str | None, "part": dict | None, "run_id": str | None}


@frozen(kw_only=True)
class SqlStatement:
    """A statement, the dialect it is written in (None: the engine's), and a row of parameters for each execution.

    `part` is what `StatementService.parts` said of one part of the answer; None means all of it. `run_id` names one
    execution, so that it can be cancelled. Whoever reads `handle` has the whole statement: any scheduler can take
    over where another one left off.

    >>> SqlStatement.from_handle(SqlStatement(query="select 1").handle()).query
    'select 1'
    """

    query: str
    dialect: str | None = None
    parameters: pa.RecordBatch | None = None
    part: Mapping[str, Any] | None = None
    run_id: str | None = None

    def handle(self) -> bytes:
        """The statement as bytes. Raises `SqlError` for parameters that are too large to travel with it."""
        head = to_json({"query": self.query, "dialect": self.dialect, "part": self.part, "run_id": self.run_id})
        rows = b"" if self.parameters is None else ipc_bytes(self.parameters)
        if len(head) + len(rows) > MAX_HANDLE_BYTES:
            raise SqlError(
                f"the statement and its parameters have more than {MAX_HANDLE_BYTES >> 20} MiB: "
                "load the parameters into a table and join it"
            )
        return head + _SEPARATOR + rows

    @classmethod
    def from_handle(cls, handle: bytes) -> SqlStatement:
        """The statement that `handle` gave. Raises `TransportError` for bytes that are none of it, and
        `InvalidData` for parameters that are not valid."""
        head, _, rows = handle.partition(_SEPARATOR)  # JSON on one line
        values = from_json(head, MAX_HANDLE_VALUES)
        if set(values) != set(_KINDS) or not all(isinstance(values[name], kind) for name, kind in _KINDS.items()):
            raise TransportError("the handle is none that a scheduler of this cluster has given")
        return cls(**values, parameters=_batch(rows) if rows else None)

    def digest(self) -> str:
        """What tells this statement, part of an answer and run from all others; see `signed_digest`."""
        return signed_digest(self.handle())

    def bound(self, parameters: pa.RecordBatch | None) -> SqlStatement:
        """The statement with these parameters instead of those it had."""
        return evolve(self, parameters=parameters)


def signed_digest(handle: bytes) -> str:
    """What stands for all of a handle in the ticket of a leg, which is a part of it and has no part in this.

    >>> statement = SqlStatement(query="select 1", part={"sequences": {"t": 1}})
    >>> signed_digest(evolve(statement, part={"leg": {}, "sequences": {"t": 1}}).handle()) == statement.digest()
    True
    >>> signed_digest(evolve(statement, part={"sequences": {"t": 0}}).handle()) == statement.digest()
    False
    """
    head, _, rows = handle.partition(_SEPARATOR)
    values = from_json(head, MAX_HANDLE_VALUES)
    if isinstance(part := values.get("part"), dict):
        values["part"] = {name: value for name, value in part.items() if name != "leg"}
    return sha256(sha256(sorted_json(values)).digest() + sha256(rows).digest()).hexdigest()


def ipc_bytes(batch: pa.RecordBatch) -> bytes:
    """The rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def one_row(encoded: str, max_bytes: int = MAX_HANDLE_BYTES) -> pa.RecordBatch | None:
    """Parameters as commands and jobs carry them: one row in base64. Raises `InvalidData` for what is none."""
    if not encoded:
        return None
    table = read_rows(b64decode(encoded), max_bytes).combine_chunks()
    if table.num_rows != 1:
        raise InvalidData(f"the parameters of a statement are one row, not {table.num_rows}")
    found: pa.RecordBatch = table.to_batches()[0]
    return found


def _batch(data: bytes) -> pa.RecordBatch:
    table = read_rows(data, MAX_READ_BYTES).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
