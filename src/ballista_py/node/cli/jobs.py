"""The command line's `jobs`: submit, list, show, wait, cancel, close, results."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ballista_py.errors import ConfigError
from ballista_py.node.cli.connecting import (
    DEFAULT_CONNECT,
    Connect,
    Engine,
    Json,
    TlsCa,
    Token,
    client_of,
    escaped,
    print_json,
    print_rows,
    text_of,
)

jobs_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Statements that outlive the scheduler that runs them, and their results.",
)
JobId = Annotated[str, typer.Argument(help="the id of the job")]
Timeout = Annotated[float | None, typer.Option(help="seconds to wait; the job goes on after that", min=0.0)]
DONE = "SUCCEEDED"


@jobs_app.command()
def submit(
    query: Annotated[str, typer.Argument(help="the statement; '-' reads it from standard input")],
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    dialect: Annotated[str | None, typer.Option(help="the dialect of the statement; default: DuckDB's")] = None,
    engine: Engine = None,
    name: Annotated[str, typer.Option(help="what people call it")] = "",
    priority: Annotated[int, typer.Option(help="among your own jobs, the highest first", min=0, max=9)] = 5,
    job_id: Annotated[str | None, typer.Option(help="a UUID: submitted again it is the same job")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="wait for it and print its result")] = False,
    as_json: Json = False,
) -> None:
    """Queue a statement and print the id of its job."""
    with client_of(connect, token, tls_ca) as client:
        job = client.submit(
            text_of(query), dialect=dialect, engine=engine, name=name, priority=priority, job_id=job_id
        )
        if wait:
            job.wait(progress=True)
            _print_result(job.result(), as_json)
        elif as_json:
            print_json(job.status())
        else:
            print(job.job_id)


@jobs_app.command("list")
def list_jobs(
    state: Annotated[str | None, typer.Option(help="only those that are PENDING, RUNNING, …")] = None,
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """List your jobs, newest first."""
    with client_of(connect, token, tls_ca) as client:
        rows = client.jobs(None if state is None else state.upper())
    if as_json:
        print_json(rows)
        return
    table = Table("job", "name", "state", "rows", "submitted", "statement")
    for row in rows:
        shown = (row["job_id"], row["name"], row["state"], f"{row['rows']:,}", _time(row["submitted_at_ms"]))
        table.add_row(*map(escaped, (*shown, row["sql"][:60])))
    Console().print(table)


@jobs_app.command()
def show(
    job_id: JobId,
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Show all that is known of a job."""
    with client_of(connect, token, tls_ca) as client:
        _print_job(client.job(job_id).status(), as_json)


@jobs_app.command()
def wait(
    job_id: JobId,
    timeout: Timeout = None,
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Wait until a job has ended, and show it; exit 1 if it has no result."""
    with client_of(connect, token, tls_ca) as client:
        row = client.job(job_id).wait(timeout, progress=not as_json)
    _print_job(row, as_json)
    if row["state"] != DONE:
        raise typer.Exit(1)


@jobs_app.command()
def cancel(
    job_id: JobId,
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Let a job be done no further."""
    with client_of(connect, token, tls_ca) as client:
        _print_job(client.job(job_id).cancel(), as_json)


@jobs_app.command()
def close(
    job_id: JobId,
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Give the result of a job up before its time."""
    with client_of(connect, token, tls_ca) as client:
        _print_job(client.job(job_id).close(), as_json)


@jobs_app.command()
def results(
    job_id: JobId,
    out: Annotated[Path | None, typer.Option(help="a Parquet file to write, chunk by chunk")] = None,
    timeout: Timeout = None,
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Wait for a job and print its result, or write it into a file."""
    with client_of(connect, token, tls_ca) as client:
        job = client.job(job_id)
        if out is None:
            _print_result(job.result(timeout), as_json)
            return
        rows = _write(job, out, timeout)
    if as_json:
        print_json({"rows": rows, "file": str(out)})
    else:
        print(f"{rows:,} rows in {escaped(str(out))}")


def _write(job: Any, out: Path, timeout: float | None) -> int:
    """Write a result into a Parquet file, whole or not at all; how many rows it has."""
    import pyarrow.parquet as pq

    rows, unfinished = 0, out.with_name(f"{out.name}.part")
    try:
        writer = None
        for batch in job.stream(timeout):
            writer = writer or pq.ParquetWriter(unfinished, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is None:
            pq.write_table(job.result(timeout), unfinished)
        else:
            writer.close()
        unfinished.replace(out)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _print_job(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    table = Table(show_header=False)
    for name, value in row.items():
        if value in (None, ""):
            continue
        if name == "error":
            value = f"{value['code']}: {value['message']}"
        table.add_row(name, escaped(_time(value) if name.endswith("_at_ms") else str(value)))
    Console().print(table)


def _print_result(table: Any, as_json: bool) -> None:
    if as_json:
        print_json({"columns": table.column_names, "rows": table.to_pylist()})
    else:
        print_rows(table)


def _time(at_ms: int) -> str:
    return "" if not at_ms else datetime.fromtimestamp(at_ms / 1e3, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
