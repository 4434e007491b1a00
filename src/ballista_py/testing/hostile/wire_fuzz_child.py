"""The process that `wire_fuzz` sends messages to: a port, a client or a reader of bytes, with a canary in memory."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import pyarrow as pa

from ballista_py.errors import BallistaError, SqlError, Unsupported
from ballista_py.runtime import SystemRuntime
from ballista_py.threads import spawn
from ballista_py.transport.arrow import door as arrow_door
from ballista_py.transport.arrow.door import read_rows
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.commands import INGEST, IngestMode
from ballista_py.transport.flight.server import FlightServer, StreamResult
from ballista_py.transport.flight_sql.port import FlightSqlService
from ballista_py.transport.flight_sql.service import AnswerPart, Description, PolledJobs
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.transport.security.access import PUBLIC

CANARY = b"canary-of-memory-that-nobody-sent"
LOST_MARK = b"canary"
READY = b"ready "
MAX_MEMORY = 8 << 30


class Echo:
    """A node that uses the rows that it gets, keeps the last, and gives them back."""

    verbs = (f"DoExchange {INGEST}",)

    def __init__(self) -> None:
        self._tables: dict[str, list[pa.RecordBatch]] = {}

    def stream(self, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        raise SqlError("nothing is asked here")

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        raise SqlError("nothing is asked here")

    def write(self, command: Mapping[str, Any], rows: Any, context: CallContext) -> Mapping[str, Any]:
        used = b"".join(map(use, rows))
        return {"affected": 0, "used": repr(used[:100_000])}

    def describe(self, statement: SqlStatement) -> Description:
        found = self._found(statement)
        return Description(schema=found[0].schema if found else None, parameters=pa.schema([("c", pa.null())]))

    def returned(self, statement: SqlStatement, token: str | None) -> None:
        return None

    def parts(self, statement: SqlStatement) -> list[AnswerPart]:
        return [AnswerPart()]

    def run(self, statement: SqlStatement, context: CallContext) -> StreamResult:
        found = self._found(statement)
        if not found:
            raise SqlError("there are no rows")
        return StreamResult(schema=found[0].schema, batches=found)

    def update(self, statement: SqlStatement, context: CallContext, token: str | None) -> int:
        self._tables.clear()
        return 0

    def ingest(
        self, table: str, rows: pa.RecordBatchReader, mode: IngestMode, context: CallContext, token: str | None
    ) -> int:
        found = list(rows)
        for batch in found:
            use(batch)
        self._tables[table] = found
        return sum(batch.num_rows for batch in found)

    def polled(self) -> PolledJobs:
        raise Unsupported("nothing is polled for here")

    def tables(self) -> Mapping[str, Any]:
        return {}

    def _found(self, statement: SqlStatement) -> list[pa.RecordBatch]:
        if statement.parameters is not None:
            use(statement.parameters)
            return [statement.parameters]
        return next((rows for name, rows in self._tables.items() if name in statement.query), [])


def use(batch: pa.RecordBatch) -> bytes:
    """Do with the rows what nodes do with rows, and return all their bytes."""
    import duckdb
    import polars

    table = pa.Table.from_batches([batch])
    found = [str(table.nbytes).encode()]
    if table.num_rows > 10_000:
        return found[0]
    with suppress(Exception):
        found.append(repr(table.to_pylist()).encode(errors="replace"))
    with suppress(Exception):
        found.append(
            repr(table.take(pa.array(range(table.num_rows - 1, -1, -1))).to_pylist()).encode(errors="replace")
        )
    with suppress(Exception):
        for column in table.combine_chunks().columns:
            for chunk in column.chunks:
                found += [chunk.cast(chunk.type).dictionary_encode().indices.buffers()[1].to_pybytes()]
    with suppress(Exception), duckdb.connect() as connection:
        found.append(repr(connection.sql("select * from table").fetchall()).encode(errors="replace"))
    try:
        found.append(repr(polars.from_arrow(table)).encode(errors="replace"))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: S110  # a panic of Polars is no Exception
        pass
    with suppress(Exception):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        found.append(sink.getvalue().to_pybytes())
    return b"".join(found)


def with_canary() -> list[Any]:
    """Memory full of canaries, in pieces of all sizes, half of them given back."""
    kept: list[Any] = []
    for size in (64, 256, 1_024, 8_192, 65_536, 1 << 20):
        piece = CANARY * (size // len(CANARY) + 1)
        made = [pa.array([piece] * 4, pa.large_binary()) for _ in range(16)] + [
            bytearray(piece) for _ in range(16)
        ]
        kept += made[::2]
    return kept


def read_parts() -> Iterator[list[bytes]]:
    """Lists of byte strings from standard input, until it ends."""
    source = sys.stdin.buffer
    while head := source.read(4):
        yield [
            source.read(int.from_bytes(source.read(4), "little")) for _ in range(int.from_bytes(head, "little"))
        ]


def say(line: bytes) -> None:
    """One line to the parent."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def run_bytes() -> None:
    """Read IPC streams."""
    say(READY)
    for parts in read_parts():
        try:
            used = b"".join(use(batch) for batch in read_rows(parts[0], compressed=True).to_batches())
        except BallistaError:
            say(b"refused")
        else:
            say(LOST_MARK if CANARY in used else b"taken")


def run_answer() -> None:
    """Be a client, and read the messages as the answer of a node, which is in this process too."""
    answers: list[list[bytes]] = []

    def exchange(_requests: Any, _context: Any) -> Iterator[bytes]:
        yield from answers[-1]

    class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
        def service(self, _details: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(exchange)

    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    say(READY)
    with FlightPool(SystemRuntime()) as pool:
        for parts in read_parts():
            answers.append(parts)
            used = bytearray()
            try:
                for batch in pool.open_stream(f"127.0.0.1:{port}", {"kind": "sql"}).batches():
                    used += use(batch)
            except BallistaError:
                pass
            say(LOST_MARK if CANARY in used else b"taken" if used else b"refused")
            answers.clear()


def run_port() -> None:
    """Be a scheduler's port until standard input ends."""
    echo = Echo()

    def service(handler: Any, calls: Any) -> FlightSqlService:
        return FlightSqlService(handler, calls, ready=lambda: echo, runtime=SystemRuntime())

    server = FlightServer("127.0.0.1:0", echo, SystemRuntime(), service=service, access=PUBLIC, spawn=spawn)
    say(READY + str(server.port).encode())
    for _ in read_parts():
        pass


def main() -> None:
    """Serve the door that the command line names; `unchecked` after it leaves the door open."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "unchecked" in sys.argv:
        arrow_door.check_batch = lambda batch, max_bytes=0: batch
    kept = with_canary()
    {"bytes": run_bytes, "answer": run_answer}.get(sys.argv[1], run_port)()
    del kept


if __name__ == "__main__":
    main()
