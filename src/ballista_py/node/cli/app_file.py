"""The command line's `app` part: check an application file, compare it with a cluster, apply it, print its schema."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from ballista_py.errors import BallistaError
from ballista_py.node.cli.choices import command_group
from ballista_py.node.cli.connecting import print_json
from ballista_py.node.cli.store_options import Option
from ballista_py.node.cli.store_words import store_options
from ballista_py.one_line import printable

app_app = command_group("One file for the whole cluster: check it, compare it, apply it.")

File = Annotated[str, typer.Argument(help="the application file, as app.yaml", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
Location = Annotated[
    str | None,
    typer.Option(
        "--state-location", help="URL of the cluster's documents; default: as the file says", metavar="URL"
    ),
]
Secrets = Annotated[
    str | None,
    typer.Option("--secrets-file", help="keys and values that the file references; default: none", metavar="FILE"),
]


@app_app.callback()
def app_file() -> None:
    """One file for the whole cluster: check it, compare it, apply it."""


@app_app.command()
def check(file: File, as_json: Json = False) -> None:
    """Check a file without a cluster.

    Every mistake is told with its line and column; exit 1 if there is one.
    """
    from ballista_py.node.app_outside import check_app

    found = check_app(file)
    if as_json:
        problems = [{"place": one.place, "path": one.path, "problem": one.text} for one in found.problems]
        app = found.application
        said = {} if app is None else {"name": app.name, "revision": app.revision, "digest": app.digest}
        print_json({"valid": not found.problems, **said, "problems": problems})
    else:
        for problem in found.problems:
            print(printable(str(problem)), file=sys.stderr)
        if found.application is not None:
            count = len(found.application.datasets)
            print(f"{file}: {found.application.label}, {count} dataset{'' if count == 1 else 's'}: no mistakes")
    if found.problems:
        raise typer.Exit(1)


@app_app.command()
def diff(
    file: File,
    state_location: Location = None,
    option: Option = None,
    secrets_file: Secrets = None,
    as_json: Json = False,
) -> None:
    """Say what a file would change in a cluster, and what is refused.

    Exit 1 if it cannot be applied.
    """
    from ballista_py.coordinator.app.standing import objection_of
    from ballista_py.node.app_file import read_app_file
    from ballista_py.node.app_outside import applier_of

    read = read_app_file(file)
    app = read.require()
    with applier_of(read, state_location, store_options(option or []), secrets_file) as applier:
        standing, plan, cluster = applier.look(app)
    objection = objection_of(app, cluster, standing)
    refused = [str(read.placed(problem)) for problem in plan.refused] + ([objection] if objection else [])
    if as_json:
        changes = [change.to_json() for change in plan.changes]
        print_json({"standing": standing, "changes": changes, "refused": refused, "left": list(plan.left)})
    else:
        print(f"{app.label}: {_STANDINGS[standing]}")
        _print_changes(plan.changes, plan.left)
        if not plan.changes and not refused:
            print("no difference")
        for line in refused:
            print(f"refused: {printable(line)}", file=sys.stderr)
    if refused:
        raise typer.Exit(1)


@app_app.command()
def apply(
    file: File,
    state_location: Location = None,
    option: Option = None,
    secrets_file: Secrets = None,
    connect: Annotated[
        str | None,
        typer.Option(help="host:port of a scheduler to tell at once; default: they find out by themselves"),
    ] = None,
    token: Annotated[str | None, typer.Option(help="says who you are", envvar="BALLISTA_TOKEN")] = None,
    tls_ca: Annotated[str | None, typer.Option(help="PEM: trust this authority", envvar="BALLISTA_TLS_CA")] = None,
    as_json: Json = False,
) -> None:
    """Make the changes that `diff` says, each once.

    Exit 1 if not all could be made.
    """
    from ballista_py.node.app_outside import applier_of, apply_app, check_app

    read = check_app(file)
    read.require()
    with applier_of(read, state_location, store_options(option or []), secrets_file) as applier:
        applied = apply_app(read, applier)
    if connect is not None and applied.changes:
        _tell(connect, token, tls_ca)
    if as_json:
        print_json(applied.to_json())
    else:
        _print_changes(applied.changes, applied.left)
        for problem in applied.problems:
            print(printable(str(read.placed(problem))), file=sys.stderr)
        if applied.standing == "applied":
            print(f"{read.require().label}: applied")
    if applied.standing != "applied":
        raise typer.Exit(1)


@app_app.command()
def schema() -> None:
    """Print the JSON schema of application files, for editors."""
    from ballista_py.coordinator.app.schema import app_schema

    print_json(app_schema())


_STANDINGS = {
    "new": "to be applied",
    "unfinished": "begun, and left unfinished",
    "elsewhere": "being applied by a scheduler",
    "applied": "applied; what differs now was changed since, and stays so until the next revision",
    "older": "older than what is applied",
    "different": "not the file that was applied under this revision",
    "other": "not the application of this cluster",
}


def _print_changes(changes: Any, left: Any) -> None:
    for change in changes:
        print(printable(f"{change.kind} {change.dataset}".strip() + f": {'; '.join(change.what)}"))
    for name in left:
        print(printable(f"leave {name}: the file does not name it; prune: true drops it with its rows"))


def _tell(connect: str, token: str | None, tls_ca: str | None) -> None:
    """Let a scheduler assign what is new. The tables are there whether it hears of them now or later."""
    from ballista_py.transport.client.client import connect as connect_client
    from ballista_py.transport.security.credentials import Tls

    try:
        with connect_client(connect, token=token, tls=None if tls_ca is None else Tls(ca_file=tls_ca)) as client:
            client.reconcile_all()
    except BallistaError as error:
        print(printable(f"applied, but not told to {connect}: {error}"), file=sys.stderr)
