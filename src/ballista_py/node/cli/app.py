"""The command line: `ballista-py demo | sql | shell | explain | members | node`.

Results go to standard output, everything else to standard error. An error is one line and exit code 1; wrong usage
is exit code 2; no traceback is shown.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.exceptions import TyperException

from ballista_py.errors import BallistaError, NotRunning
from ballista_py.node.cli.choices import choice, command_group
from ballista_py.node.cli.connecting import (
    DEFAULT_CONNECT,
    Dialect,
    Engine,
    Json,
    Statement,
    asks_cluster,
    asks_cluster_after,
    client_of,
    escaped,
    json_bytes,
    one_of_both,
    print_json,
    print_rows,
    print_table,
    some,
    text_of,
    visible,
)
from ballista_py.node.cli.lazy import Later, LazyGroup
from ballista_py.node.cli.scripts import run_piped, run_script, script_of


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
            "One file for the whole cluster: check, compare, apply it.",
        ),
        "jobs": Later(
            "ballista_py.node.cli.jobs", "jobs_app", "Statements that outlive their scheduler, and their results."
        ),
        "cluster": Later("ballista_py.node.cli.tls", "cluster_app", "What a whole cluster needs."),
        "table-server": Later(
            "ballista_py.node.cli.table_server",
            "table_server_app",
            "Serve a folder of Parquet files to readers in parallel.",
        ),
        "sim": Later("ballista_py.node.cli.sim", "sim_app", "Attack a simulated cluster with faults, from seeds."),
    }


app = command_group(
    "Distributed SQL on a cluster whose only shared service is an object store.",
    cls=Commands,
    add_completion=True,
    no_args_is_help=False,
    invoke_without_command=True,
)
LOG_WIDTH = 120
UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF)  # of standard output


def main() -> None:
    """Run the command line; the only place that turns errors into exit codes.

    What nobody takes any more (`| head`), or what a full disk does not, ends it with 1, whatever was asked and however
    much of it had been written.
    """
    if sys.stdout is None:  # closed by whoever started this, as of daemons
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # for the rest of the process
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _write_no_more()
    except OSError as error:
        if error.errno not in UNWRITTEN or error.filename is not None:
            raise
        _write_no_more()
        _say(f"standard output cannot be written: {error.strerror}", "config")
    else:
        return
    sys.exit(1)


def _write_no_more() -> None:
    """What is still to be written goes nowhere: Python would try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    for_program = "--json" in sys.argv[1:]
    try:
        code = app(standalone_mode=not for_program)  # which says in words what is wrong with the words
        if for_program:
            sys.exit(code if isinstance(code, int) else 0)
    except BallistaError as error:
        _fail(error)
    except TyperException as error:
        _say_json(error.format_message(), "usage")
        sys.exit(error.exit_code)
    except typer.Abort:
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

    Without a command it is the shell: on a terminal, and for statements that come from a file or a pipe.
    """
    if context.invoked_subcommand is not None:
        return
    given = (os.environ.get(name) for name in ("BALLISTA_CONNECT", "BALLISTA_TOKEN", "BALLISTA_TLS_CA"))
    connect = next(given) or DEFAULT_CONNECT
    is_typed = sys.stdin.isatty()
    script = "" if is_typed else script_of(Path("-"))
    if script.strip():
        run_piped(script, client_of(connect, *given))
    elif is_typed and sys.stdout.isatty():
        _shell(connect, *given)
    else:
        print(context.get_help())


def _shell(connect: str, token: str | None, tls_ca: str | None) -> None:
    with client_of(connect, token, tls_ca) as client:
        _in_shell(client)


def _in_shell(client: Any) -> None:
    if not sys.stdin.isatty():  # a file or a pipe: nobody types
        run_piped(script_of(Path("-")), client)
        return
    from ballista_py.node.cli.shell import Shell

    Shell(client).run()


@app.command()
@asks_cluster
def shell(client: Any) -> None:
    """Type statements and see their answers, with history.

    Statements that come from a file or a pipe are run as `sql --file -` does.
    """
    _in_shell(client)


@app.command()
@asks_cluster
def refresh(
    client: Any,
    table: Annotated[str, typer.Argument(help="the table", metavar="TABLE")],
    mode: Annotated[
        str | None,
        typer.Option(help="bring it up to its source first: 'full', or 'append' for the rows that it lacks"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let executors look at a table again, or refresh it."""
    if mode not in (None, "full", "append"):
        raise typer.BadParameter(f"'{mode}' is neither full nor append", param_hint="--mode")
    executors = client.refresh(table, mode)
    if as_json:
        print_json({"table": table, "executors": executors})
    else:
        print(f"{some(executors, 'executor')} told")


@app.command()
def demo(
    scale: Annotated[float, typer.Option(help="TPC-H scale factor", min=0.001)] = 0.1,
    keep: Annotated[bool, typer.Option("--keep", help="leave the cluster up and say how to query it")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="where to keep data and state; default: a temporary one", metavar="FOLDER"),
    ] = None,
) -> None:
    """Answer TPC-H, kill a node of each role, answer again.

    The cluster has 2 schedulers and 3 executors; exit 0 if all was right.
    """
    from rich.console import Console

    from ballista_py.node.demo.demo import Demo

    console = Console() if sys.stdout.isatty() else Console(width=LOG_WIDTH)
    if not Demo(scale=scale, console=console, folder=folder, keep=keep).run():
        raise typer.Exit(1)


@app.command()
@asks_cluster_after(one_of_both)
def sql(
    client: Any,
    query: Annotated[
        str | None,
        typer.Argument(help="the statement; '-' reads it from standard input", metavar="STATEMENT"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            *("--file", "-f"),
            help="statements, parted by semicolons, instead; '-': standard input",
            metavar="FILE",
        ),
    ] = None,
    dialect: Dialect = None,
    engine: Engine = None,
    as_json: Json = False,
    timing: Annotated[bool, typer.Option("--stats", help="also print what the statement touched")] = False,
    wait: Annotated[
        str | None,
        typer.Option(
            help="what a change of a table that is written through waits for; default: as the table says",
            parser=choice("source", "visible"),
            metavar="[source|visible]",
        ),
    ] = None,
) -> None:
    """Run a statement, or all of a file, and print its answer.

    Of a change the answer is how many rows it affected. Of a file the first statement that fails ends it, named by its
    number and line; those before it were carried out. With --json each statement of a file gives a line.
    """
    if wait is not None:
        client.sql(f"set write_wait = '{wait}'")
    if file is not None:
        run_script(script_of(file), client, dialect, engine, as_json)
        return
    result = client.query(text_of(query or ""), dialect=dialect, engine=engine)
    if as_json:
        from ballista_py.node.json_values import json_rows

        print_json({"columns": result.table.column_names, "rows": json_rows(result.table), "stats": result.stats})
        return
    print_rows(result.table)
    if timing:
        from rich.console import Console

        Console(stderr=True).print(result.stats)


@app.command()
@asks_cluster
def explain(
    client: Any,
    query: Statement,
    dialect: Dialect = None,
    engine: Engine = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="run it, and show what every leg gave")] = False,
    as_json: Json = False,
) -> None:
    """Show how a statement would run: partitions, legs, merge."""
    plan = client.explain(text_of(query), dialect=dialect, analyze=analyze, engine=engine)
    if as_json:
        print_json(plan)
    else:
        print(visible(plan["text"]))


@app.command()
@asks_cluster
def members(client: Any, as_json: Json = False) -> None:
    """List the schedulers and executors of the cluster."""
    rows = client.members()
    if as_json:
        print_json(rows)
        return
    print_table(
        ("node", "role", "address", "instance", "partitions"),
        (
            (row["node_id"], row["role"], row["address"], row["instance_id"][:8], str(row["partitions"]))
            for row in rows
        ),
    )


@app.command()
@asks_cluster
def tables(client: Any, as_json: Json = False) -> None:
    """List the tables, and how many partitions are served."""
    rows = client.tables()
    if as_json:
        print_json(rows)
        return
    print_table(
        ("table", "distribution", "partition by", "serving", "of", "failed"),
        (
            (
                *(row["table"], row["distribution"], ", ".join(row["partition_by"])),
                *(str(row["serving"]), str(row["partitions"])),
                "; ".join(f"{where}: {why}" for where, why in row["failed"].items()),
            )
            for row in rows
        ),
    )


@app.command()
@asks_cluster
def cancel(
    client: Any,
    task_id: Annotated[
        str,
        typer.Argument(
            help="the id of a statement that runs, as /tasks and Client.tasks show it", metavar="TASK_ID"
        ),
    ],
    as_json: Json = False,
) -> None:
    """End a statement of your own, whichever scheduler runs it.

    Exit 1 if it does not run.
    """
    if not client.cancel(task_id):
        raise NotRunning(f"no statement of yours with the id '{task_id}' runs now")
    if as_json:
        print_json({"task_id": task_id, "cancelled": True})
    else:
        print("cancelled")


def _fail(error: BallistaError) -> None:
    _say(str(error), error.code)
    sys.exit(1)


def _say(error: str, code: str) -> None:
    """One line of words, or with --json one of JSON, as HTTP says it."""
    if "--json" in sys.argv[1:]:
        _say_json(error, code)
    else:
        from rich.console import Console

        Console(stderr=True, soft_wrap=True, highlight=False).print("[red]error:[/red] " + escaped(error))


def _say_json(error: str, code: str) -> None:
    sys.stderr.buffer.write(json_bytes({"error": " ".join(error.split()), "code": code}, indent=False) + b"\n")
