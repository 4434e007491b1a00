"""The command line's `jobs`: submit, list, show, wait, cancel, close, results."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ballista_py.errors import ConfigError
from ballista_py.node.cli.choices import choice, command_group
from ballista_py.node.cli.connecting import (
    Dialect,
    Engine,
    Json,
    asks_cluster,
    asks_cluster_after,
    escaped,
    one_of_both,
    print_json,
    print_rows,
    print_table,
    some,
    text_of,
)
from ballista_py.node.cli.scripts import one_statement_of

jobs_app = command_group("Statements that outlive their scheduler, and their results.")
JobId = Annotated[
    str, typer.Argument(help="the id of the job, or as much of its beginning as no other has", metavar="JOB_ID")
]
ID_CHARS = 32
ENDINGS = (".parquet", ".pq")
Timeout = Annotated[
    float | None,
    typer.Option(
        help="how long to wait; the job goes on after that; default: as long as it takes",
        min=0.0,
        metavar="SECONDS",
    ),
]
DONE = "SUCCEEDED"
STATES = ("PENDING", "RUNNING", DONE, "FAILED", "CANCELLED", "CLOSED")


@jobs_app.command()
@asks_cluster_after(one_of_both)
def submit(
    client: Any,
    query: Annotated[
        str | None,
        typer.Argument(help="the statement; '-' reads it from standard input", metavar="STATEMENT"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(*("--file", "-f"), help="a file with the one statement, instead", metavar="FILE"),
    ] = None,
    dialect: Dialect = None,
    engine: Engine = None,
    name: Annotated[str, typer.Option(help="what people call it; default: nothing", metavar="TEXT")] = "",
    priority: Annotated[int, typer.Option(help="among your own jobs, the highest first", min=0, max=9)] = 5,
    job_id: Annotated[
        str | None,
        typer.Option(help="a UUID: submitted again it is the same job; default: a new one", metavar="UUID"),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="wait for it and print its result")] = False,
    as_json: Json = False,
) -> None:
    """Queue a statement and print the id of its job."""
    text = text_of(query or "") if file is None else one_statement_of(file)
    job = client.submit(text, dialect=dialect, engine=engine, name=name, priority=priority, job_id=job_id)
    if wait:
        job.wait(progress=True)
        _print_result(job.result(), as_json)
    elif as_json:
        print_json(job.status())
    else:
        print(job.job_id)


@jobs_app.command("list")
@asks_cluster
def list_jobs(
    client: Any,
    state: Annotated[
        str | None,
        typer.Option(
            help=f"only those that are {', '.join(STATES)}; default: all",
            parser=choice(*STATES, upper=True),
            metavar="STATE",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List your jobs, newest first."""
    rows = client.jobs(state)
    if as_json:
        print_json(rows)
        return
    print_table(
        ("job", "name", "state", "rows", "submitted", "statement"),
        (
            (
                *(row["job_id"], row["name"], row["state"], f"{row['rows']:,}"),
                *(_time(row["submitted_at_ms"]), row["sql"][:60]),
            )
            for row in rows
        ),
        whole=True,
    )


@jobs_app.command()
@asks_cluster
def show(client: Any, job_id: JobId, as_json: Json = False) -> None:
    """Show all that is known of a job."""
    _print_job(_job(client, job_id).status(), as_json)


@jobs_app.command()
@asks_cluster
def wait(client: Any, job_id: JobId, timeout: Timeout = None, as_json: Json = False) -> None:
    """Wait until a job has ended, and show it.

    Exit 1 if it has no result.
    """
    row = _job(client, job_id).wait(timeout, progress=not as_json)
    _print_job(row, as_json)
    if row["state"] != DONE:
        raise typer.Exit(1)


@jobs_app.command()
@asks_cluster
def cancel(client: Any, job_id: JobId, as_json: Json = False) -> None:
    """Let a job be done no further."""
    _print_job(_job(client, job_id).cancel(), as_json)


@jobs_app.command()
@asks_cluster
def close(client: Any, job_id: JobId, as_json: Json = False) -> None:
    """Give the result of a job up before its time."""
    _print_job(_job(client, job_id).close(), as_json)


def _writes_parquet(out: Path | None, **_options: Any) -> None:
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise typer.BadParameter(
            f"{out}: a result is written as Parquet, so end it in {ENDINGS[0]}", param_hint="--out"
        )


@jobs_app.command()
@asks_cluster_after(_writes_parquet)
def results(
    client: Any,
    job_id: JobId,
    out: Annotated[
        Path | None,
        typer.Option(help="a Parquet file to write, chunk by chunk; default: rows are printed", metavar="FILE"),
    ] = None,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Wait for a job and print its result, or write it into a file."""
    job = _job(client, job_id)
    if out is None:
        _print_result(job.result(timeout), as_json)
        return
    rows = _write(job, out, timeout)
    if as_json:
        print_json({"rows": rows, "file": str(out)})
    else:
        print(f"{some(rows, 'row')} in {escaped(str(out))}")


def _job(client: Any, text: str) -> Any:
    """The job of that id, or the one of the last ones whose id begins so.

    Raises `ConfigError` for what begins none, or several.
    """
    begin = text.lower().replace("-", "")
    if len(begin) >= ID_CHARS:
        return client.job(text)
    found = [row["job_id"] for row in client.jobs() if begin and row["job_id"].startswith(begin)]
    if len(found) == 1:
        return client.job(found[0])
    shown = ascii(text[:ID_CHARS])
    if found:
        raise ConfigError(f"{len(found)} jobs of yours have ids that begin with {shown}: write more of it")
    raise ConfigError(f"no job of yours has an id that begins with {shown}: 'ballista-py jobs list' shows them")


def _write(job: Any, out: Path, timeout: float | None) -> int:
    """Write a result into a Parquet file, whole or not at all; how many rows it has."""
    import pyarrow.parquet as pq

    rows, unfinished = 0, out.with_name(f"{out.name}.part")
    try:
        with unfinished.open("wb") as file:  # Arrow opens no path that is not UTF-8
            writer = None
            for batch in job.stream(timeout):
                writer = writer or pq.ParquetWriter(file, batch.schema)
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is None:
                pq.write_table(job.result(timeout), file)
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
    print_table((), ((name, _shown(name, value)) for name, value in row.items() if value not in (None, "")))


def _shown(name: str, value: Any) -> str:
    if name == "error":
        return f"{value['code']}: {value['message']}"
    return _time(value) if name.endswith("_at_ms") else str(value)


def _print_result(table: Any, as_json: bool) -> None:
    if as_json:
        from ballista_py.node.json_values import json_rows

        print_json({"columns": table.column_names, "rows": json_rows(table)})
    else:
        print_rows(table)


def _time(at_ms: int) -> str:
    return "" if not at_ms else datetime.fromtimestamp(at_ms / 1e3, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
