"""The command line: `ballista-py demo | sql | shell | explain | members | node`.

Results go to standard output, everything else to standard error. An error is one line and exit code 1; wrong usage
is exit code 2; no traceback is shown.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from rich.console import Console
from rich.table import Table

from ballista_py.errors import BallistaError, ConfigError
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
    visible,
)
from ballista_py.node.cli.lazy import Later, LazyGroup
from ballista_py.node.cli.scripts import run_script, script_of


class Commands(LazyGroup):
    """All commands; those that need more than a client are imported when they are run."""

    later: ClassVar = {
        "node": Later("ballista_py.node.cli.node", "node_app", "Run one node until it is told to stop."),
        "store": Later("ballista_py.node.cli.store", "store_app", "Look at an object store."),
        "storage": Later(
            "ballista_py.node.cli.storage", "storage_app", "Look at what tables keep on the store, and clean up."
        ),
        "app": Later(
            "ballista_py.node.cli.app_file",
            "app_app",
            "One file for the whole cluster: check it, compare it, apply it.",
        ),
        "jobs": Later(
            "ballista_py.node.cli.jobs",
            "jobs_app",
            "Statements that outlive the scheduler that runs them, and their results.",
        ),
        "cluster": Later("ballista_py.node.cli.tls", "cluster_app", "What a whole cluster needs."),
        "sim": Later("ballista_py.node.cli.sim", "sim_app", "Attack a simulated cluster with faults, from seeds."),
    }


app = typer.Typer(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"max_content_width": 80, "help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    help="Distributed SQL on a cluster whose only shared service is an object store.",
)
LOG_WIDTH = 120


def main() -> None:
    """Run the command line; the only place that turns errors into exit codes."""
    try:
        app()
    except BallistaError as error:
        _fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _version(asked: bool) -> None:
    if asked:
        print(f"ballista-py {version('ballista_py')}")
        raise typer.Exit


@app.callback()
def begin(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="say the version, and end")
    ] = False,
) -> None:
    """Distributed SQL on a cluster whose only shared service is an object store.

    Without a command, on a terminal, it is the shell.
    """
    if context.invoked_subcommand is not None:
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        given = (os.environ.get(name) for name in ("BALLISTA_CONNECT", "BALLISTA_TOKEN", "BALLISTA_TLS_CA"))
        shell(next(given) or DEFAULT_CONNECT, *given)
    else:
        print(context.get_help())


@app.command()
def shell(connect: Connect = DEFAULT_CONNECT, token: Token = None, tls_ca: TlsCa = None) -> None:
    """Type statements and see their answers, with history and completion."""
    from ballista_py.node.cli.shell import Shell

    with client_of(connect, token, tls_ca) as client:
        Shell(client).run()


@app.command()
def refresh(
    table: Annotated[str, typer.Argument(help="the table whose files something else than the cluster changed")],
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Let every executor compare what it holds of a table with what is stored."""
    with client_of(connect, token, tls_ca) as client:
        executors = client.refresh(table)
    if as_json:
        print_json({"table": table, "executors": executors})
    else:
        print(f"{executors} executor{'' if executors == 1 else 's'} told")


@app.command()
def demo(
    scale: Annotated[float, typer.Option(help="TPC-H scale factor", min=0.001)] = 0.1,
    keep: Annotated[bool, typer.Option("--keep", help="leave the cluster up and say how to query it")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="where to keep data and state; default: a temporary one")
    ] = None,
) -> None:
    """Answer TPC-H on 2 schedulers and 3 executors, kill one of each, answer again; exit 0 if all was right."""
    from ballista_py.node.demo.demo import Demo

    console = Console() if sys.stdout.isatty() else Console(width=LOG_WIDTH)
    if not Demo(scale=scale, console=console, folder=folder, keep=keep).run():
        raise typer.Exit(1)


@app.command()
def sql(
    query: Annotated[str | None, typer.Argument(help="the statement; '-' reads it from standard input")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="a file of statements, parted by semicolons; '-': standard input"),
    ] = None,
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    dialect: Annotated[str | None, typer.Option(help="the dialect of the statement; default: DuckDB's")] = None,
    engine: Engine = None,
    as_json: Json = False,
    timing: Annotated[bool, typer.Option("--stats", help="also print what the statement touched")] = False,
) -> None:
    """Run a statement of any kind, or all of a file, and print rows or how many changed.

    Of a file the first statement that fails ends it, named by its number and line; those before it were carried out.
    With --json each statement of a file gives a line.
    """
    if (query is None) == (file is None):
        raise typer.BadParameter("give one statement, or a file of statements with --file")
    if file is not None:
        run_script(script_of(file), client_of(connect, token, tls_ca), dialect, engine, as_json)
        return
    with client_of(connect, token, tls_ca) as client:
        result = client.query(text_of(query or ""), dialect=dialect, engine=engine)
    if as_json:
        print_json({"columns": result.table.column_names, "rows": result.table.to_pylist(), "stats": result.stats})
        return
    print_rows(result.table)
    if timing:
        Console(stderr=True).print(result.stats)


@app.command()
def explain(
    query: Annotated[str, typer.Argument(help="the statement; '-' reads it from standard input")],
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
    dialect: Annotated[str | None, typer.Option(help="the dialect of the statement; default: DuckDB's")] = None,
    engine: Engine = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="run it, and show what every leg gave")] = False,
    as_json: Json = False,
) -> None:
    """Show how a statement would run: partitions, legs, fragments, merge."""
    with client_of(connect, token, tls_ca) as client:
        plan = client.explain(text_of(query), dialect=dialect, analyze=analyze, engine=engine)
    if as_json:
        print_json(plan)
    else:
        print(visible(plan["text"]))


@app.command()
def members(
    connect: Connect = DEFAULT_CONNECT, token: Token = None, tls_ca: TlsCa = None, as_json: Json = False
) -> None:
    """List the schedulers and executors of the cluster."""
    with client_of(connect, token, tls_ca) as client:
        rows = client.members()
    if as_json:
        print_json(rows)
        return
    table = Table("node", "role", "address", "instance", "partitions")
    for row in rows:
        shown = (row["node_id"], row["role"], row["address"], row["instance_id"][:8], str(row["partitions"]))
        table.add_row(*map(escaped, shown))
    Console().print(table)


@app.command()
def tables(
    connect: Connect = DEFAULT_CONNECT, token: Token = None, tls_ca: TlsCa = None, as_json: Json = False
) -> None:
    """List the tables of the cluster, and how many of their partitions are loaded and served."""
    with client_of(connect, token, tls_ca) as client:
        rows = client.tables()
    if as_json:
        print_json(rows)
        return
    table = Table("table", "distribution", "partition by", "serving", "of", "failed")
    for row in rows:
        failed = "; ".join(f"{where}: {why}" for where, why in row["failed"].items())
        keys = ", ".join(row["partition_by"])
        table.add_row(
            *map(
                escaped,
                (row["table"], row["distribution"], keys, str(row["serving"]), str(row["partitions"]), failed),
            )
        )
    Console().print(table)


@app.command()
def cancel(
    task_id: Annotated[
        str, typer.Argument(help="the id of a statement that runs, as /tasks and Client.tasks show it")
    ],
    connect: Connect = DEFAULT_CONNECT,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """End a statement of your own, whichever scheduler runs it; exit 1 if it does not run."""
    with client_of(connect, token, tls_ca) as client:
        if not client.cancel(task_id):
            raise ConfigError(f"no statement of yours with the id '{task_id}' runs now")
    print("cancelled")


def _fail(message: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print("[red]error:[/red] " + escaped(message))
    sys.exit(1)
