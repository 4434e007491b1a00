"""The peer of `POST /v1/sql`: DuckDB behind a bare route of FastAPI on uvicorn, a process of its own.

The rows are made as those of the cluster are, and held in DuckDB's own table with an index on the key. A thread of the
framework's pool answers each request with a cursor; an Arrow answer is streamed as DuckDB makes it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

from _service_rows import numbers

ARROW = "application/vnd.apache.arrow.stream"
BATCH_ROWS = 65_536


class Posted(BaseModel):
    """What `/v1/sql` takes."""

    sql: str
    parameters: list[Any] = []


def app_over(connection: duckdb.DuckDBPyConnection) -> FastAPI:
    """The whole service."""
    app = FastAPI()

    @app.post("/v1/sql")
    def sql(posted: Posted, request: Request) -> Response:
        cursor = connection.cursor()
        if request.headers.get("accept") == ARROW:
            reader = cursor.sql(posted.sql, params=posted.parameters).to_arrow_reader(BATCH_ROWS)
            return StreamingResponse(stream(reader), media_type=ARROW)
        cursor.execute(posted.sql, posted.parameters)
        names = [column[0] for column in cursor.description]
        return rows([dict(zip(names, row, strict=True)) for row in cursor.fetchall()])

    return app


def rows(found: list[dict[str, Any]]) -> Response:
    """Rows as JSON, by the quickest library that there is."""
    import orjson

    return Response(orjson.dumps(found), media_type="application/json")


def stream(reader: pa.RecordBatchReader) -> Iterator[bytes]:
    """The bytes of an Arrow stream, a batch at a time."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def main() -> None:
    """Serve a table of so many rows at a port of the machine's choice, which is said first."""
    connection = duckdb.connect()
    connection.execute("set threads = 2")
    data = numbers(int(sys.argv[1]))  # noqa: F841  DuckDB finds it by its name
    connection.execute("create table numbers as from data")
    connection.execute("create index ids on numbers (id)")
    server = uvicorn.Server(uvicorn.Config(app_over(connection), port=0, log_level="warning", access_log=False))
    config_started = server.startup

    async def started(sockets: Any = None) -> None:
        await config_started(sockets)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)

    server.startup = started  # type: ignore[method-assign]
    server.run()


if __name__ == "__main__":
    main()
