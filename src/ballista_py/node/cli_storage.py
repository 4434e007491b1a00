"""The command line's `storage` part: look at what tables keep on the store, and clean up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Annotated

import typer

from ballista_py.errors import ConfigError
from ballista_py.node.cli_store import store_options
from ballista_py.planning.table import TableSpec
from ballista_py.state.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.object_state import ObjectState
from ballista_py.state.partition_store import PartitionStore
from ballista_py.state.store import ConditionalStore, open_store
from ballista_py.storage.garbage import MIN_AGE_MS, find_garbage, remove_garbage
from ballista_py.storage.verify import history, verify_table

WORKERS = 8
MINUTE_MS = 60_000

storage_app = typer.Typer(no_args_is_help=True, help="Look at what tables keep on the store, and clean up.")

Location = Annotated[str, typer.Argument(help="the state location: file:///folder, s3://bucket/prefix, …")]
Option = Annotated[list[str] | None, typer.Option(help="name=value of the store's client, as in `store check`")]


@storage_app.callback()
def storage() -> None:
    """Look at what tables keep on the store, and clean up."""


@storage_app.command()
def verify(
    url: Location,
    table: Annotated[list[str] | None, typer.Option(help="only this table; may be given more than once")] = None,
    option: Option = None,
) -> None:
    """Read every file of every table back; exit 1 and name what is damaged or missing."""
    store = open_store(url, **store_options(option or []))
    damaged = False
    with ThreadPoolExecutor(WORKERS) as pool:
        for spec in _tables(store, table):
            pmap = PartitionStore(store).read(spec.name, spec.incarnation)
            paths = [pmap.path(partition) for partition in pmap.ids().tolist()]
            found = verify_table(store, spec, paths, run_all=pool.map)
            print(f"{spec.name}: {found.partitions} partitions, {found.files} files, {found.rows} rows")
            for problem in found.problems:
                damaged = True
                print(f"  DAMAGED partition {problem.partition}: {problem.reason}")
    if damaged:
        raise typer.Exit(1)


@storage_app.command(name="history")
def show_history(
    url: Location,
    table: str,
    partition: Annotated[str, typer.Argument(help="its text form, such as expr0=5")],
    option: Option = None,
    limit: int = 20,
) -> None:
    """Say which statements a partition applied last: when, by whom, rows added and removed."""
    store = open_store(url, **store_options(option or []))
    (spec,) = _tables(store, [table])
    for _, applied in zip(range(limit), history(store, spec, partition), strict=False):
        moment = datetime.fromtimestamp(applied.at_ms / 1e3, UTC).isoformat(timespec="milliseconds")
        print(f"{moment} {applied.by or '-'} +{applied.added} -{applied.removed} {applied.token}")


@storage_app.command()
def collect(
    url: Location,
    remove: Annotated[bool, typer.Option("--remove", help="remove what was found; without it nothing is")] = False,
    min_age_minutes: float = MIN_AGE_MS / MINUTE_MS,
    option: Option = None,
) -> None:
    """Find files that no table needs any more; with --remove, remove them.

    A file must have been found by an earlier look, so long ago that no query can read it any more: look again then.
    """
    store = open_store(url, **store_options(option or []))
    folders = {spec.folder for spec in _tables(store, None)}
    garbage = find_garbage(store, folders, min_age_ms=min_age_minutes * MINUTE_MS)
    for name, reason in garbage.kept.items():
        print(f"{name}: all files are kept, because {reason}")
    for file in garbage.files[:WORKERS]:
        print(f"{file.key} ({file.size} bytes)")
    more = len(garbage.files) - WORKERS
    if more > 0:
        print(f"… and {more} more")
    print(
        f"{len(garbage.files)} objects, {garbage.bytes} bytes; {garbage.young} were written or first found too recently"
    )
    if remove:
        print(f"{remove_garbage(store, garbage)} removed")
    elif garbage.files:
        print("nothing was removed: say --remove")


def _tables(store: ConditionalStore, names: list[str] | None) -> list[TableSpec]:
    known = ObjectState(store, CLUSTER_KEY, ClusterDocument).read().document.tables
    for name in names or ():
        if name not in known:
            raise ConfigError(f"there is no table '{name}' here; there are {', '.join(sorted(known)) or 'none'}")
    return [spec for name, spec in sorted(known.items()) if names is None or name in names]
