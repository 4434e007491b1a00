"""The command line's `store` part: `ballista-py store check URL`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from attrs import asdict

from ballista_py.node.cli.choices import command_group
from ballista_py.node.cli.connecting import print_json
from ballista_py.node.cli.store_options import Option
from ballista_py.node.cli.store_words import store_options
from ballista_py.state.stores.check import RACERS, StoreReport, check_store
from ballista_py.state.stores.store import open_store

store_app = command_group("Look at an object store.")


@store_app.callback()
def store() -> None:
    """Look at an object store."""


@store_app.command()
def check(
    url: Annotated[
        str, typer.Argument(help="file:///folder, s3://bucket/prefix, gs://… or abfs://…", metavar="URL")
    ],
    option: Option = None,
    quick: Annotated[bool, typer.Option("--quick", help="50 requests instead of 4,000, and no races")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON for programs")] = False,
) -> None:
    """Prove which promises a store keeps.

    Exit 1 if coordination on it would be unsafe.
    """
    target = open_store(url, **store_options(option or []))
    with ThreadPoolExecutor(RACERS) as executor:
        report = check_store(target, quick=quick, executor=executor)
    if as_json:
        found = {"safe": report.safe, "promises": [asdict(promise) for promise in report.promises]}
        print_json(found)
    else:
        _print(report)
    if not report.safe:
        raise typer.Exit(1)


def _print(report: StoreReport) -> None:
    for promise in report.promises:
        mark = "kept  " if promise.kept else "BROKEN" if promise.needed else "no    "
        mark = mark if promise.tested else "  ?   "
        seen = f": {promise.seen}" if promise.seen else ""
        print(f"{mark} {promise.name:<24} {promise.text}{seen}")
    if report.not_tested:
        print("?: not tested, because of --quick or because nothing came up that shows it")
    print("safe: nodes may coordinate on this store" if report.safe else "UNSAFE: coordination would lose updates")
