"""The command line's `storage` part: look at what tables keep on the store, and clean up."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer
from attrs import asdict

from ballista_py.errors import ConfigError, DocumentError, ObjectMissing
from ballista_py.node.cli.choices import command_group
from ballista_py.node.cli.connecting import Json, print_json, some
from ballista_py.node.cli.store_options import Option
from ballista_py.node.cli.store_words import store_options
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.claims import end_dead_claims
from ballista_py.state.documents.documents import SNAPSHOTS_PREFIX
from ballista_py.state.documents.write_tokens import name_of
from ballista_py.state.members.liveness import SKEW_MS, TTL_MS
from ballista_py.state.ownership.catalog_proof import read_catalog
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.store import ConditionalStore, open_store
from ballista_py.storage.held.seen import forget_dropped
from ballista_py.storage.upkeep.garbage import (
    MAX_WRITE_MS,
    MIN_AGE_MS,
    Garbage,
    ended_maps,
    find_garbage,
    remove_garbage,
)
from ballista_py.storage.upkeep.repair import find_repairs, require_nobody_alive
from ballista_py.storage.upkeep.verify import StorageProblem, Verified, history, verify_table

WORKERS = 8
MINUTE_MS = 60_000

storage_app = command_group("Look at what tables keep on the store, and clean up.")

Location = Annotated[
    str, typer.Argument(help="the state location: file:///folder, s3://bucket/prefix, …", metavar="URL")
]


@storage_app.callback()
def storage() -> None:
    """Look at what tables keep on the store, and clean up."""


@storage_app.command()
def verify(
    url: Location,
    table: Annotated[
        list[str] | None,
        typer.Option(help="only this table; may be repeated; default: all", metavar="TABLE"),
    ] = None,
    option: Option = None,
    as_json: Json = False,
) -> None:
    """Read every file of every table back.

    Exit 1, and the names, if something is damaged or missing.
    """
    store = open_store(url, **store_options(option or []))
    tables: list[tuple[str, Verified]] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for spec in _tables(store, table):
            try:
                pmap = PartitionStore(store).read(spec.map_name, spec.incarnation)
                paths = [pmap.path(partition) for partition in pmap.ids().tolist()]
                found = verify_table(store, spec, paths, run_all=pool.map)
            except (DocumentError, ObjectMissing) as error:  # of this table: the others are looked at all the same
                wrong = StorageProblem(table=spec.name, partition="", file="", reason=error.message)
                found = Verified(problems=(wrong,))
            tables.append((spec.name, found))
            if not as_json:
                _print_verified(spec.name, found)
    if as_json:
        print_json([{"table": name, **asdict(found)} for name, found in tables])
    if any(found.problems for _, found in tables):
        raise typer.Exit(1)


def _print_verified(name: str, found: Verified) -> None:
    counts = some(found.partitions, "partition"), some(found.files, "file"), some(found.rows, "row")
    print(f"{name}: {', '.join(counts)}")
    for problem in found.problems:
        of = f" partition {problem.partition}" if problem.partition else ""
        print(f"  DAMAGED{of}: {problem.reason}")


@storage_app.command(name="history")
def show_history(
    url: Location,
    table: Annotated[str, typer.Argument(help="the name of the table", metavar="TABLE")],
    partition: Annotated[str, typer.Argument(help="its text form, such as expr0=5", metavar="PARTITION")],
    option: Option = None,
    limit: Annotated[int, typer.Option(help="statements at most", min=1)] = 20,
    as_json: Json = False,
) -> None:
    """Say which statements a partition applied last.

    When, by whom, how many rows they added and removed.
    """
    store = open_store(url, **store_options(option or []))
    (spec,) = _tables(store, [table])
    found = list(islice(history(store, spec, partition), limit))
    if as_json:
        print_json([{**asdict(applied), "token": name_of(applied.token)} for applied in found])
        return
    for applied in found:
        moment = datetime.fromtimestamp(applied.at_ms / 1e3, UTC).isoformat(timespec="milliseconds")
        print(f"{moment} {applied.by or '-'} +{applied.added} -{applied.removed} {name_of(applied.token)}")


@storage_app.command()
def collect(
    url: Location,
    remove: Annotated[bool, typer.Option("--remove", help="remove what was found; without it nothing is")] = False,
    min_age_minutes: Annotated[
        float,
        typer.Option(
            help="how long ago a file must have been found first", min=MAX_WRITE_MS / MINUTE_MS, metavar="MINUTES"
        ),
    ] = MIN_AGE_MS / MINUTE_MS,
    option: Option = None,
    as_json: Json = False,
) -> None:
    """Find files that no table needs any more.

    With --remove they are removed.

    A file must have been found by an earlier look, so long ago that no query can read it any more: look again then.
    """
    store = open_store(url, **store_options(option or []))
    _tables(store, None)  # ends nothing in a location that is not whole
    ended = list(end_dead_claims(store, SystemRuntime())) if remove else []
    folders = {spec.folder for spec in _tables(store, None)}
    catalog = read_catalog(store)[0]
    unreadable = catalog.document.unreadable
    if unreadable:
        raise ConfigError(
            f"table '{min(unreadable)}' cannot be read by this release: nobody can tell which files are garbage; "
            "use the release that wrote it, or drop the table"
        )
    garbage = find_garbage(
        store, folders, min_age_ms=min_age_minutes * MINUTE_MS, revision=catalog.header.revision
    )
    removed = _removed(store, garbage, folders) if remove else None
    if as_json:
        said = {"bytes": garbage.bytes, "young": garbage.young, "kept": garbage.kept}
        files = [{"key": file.key, "size": file.size} for file in garbage.files]
        print_json({"files": files, **said, "removed": removed, "ended_claims": ended})
    else:
        _print_garbage(garbage, ended, removed)


def _removed(store: ConditionalStore, garbage: Garbage, folders: set[str]) -> int:
    """How many files were removed; with them goes what is known of tables that there are no more."""
    removed = remove_garbage(store, garbage)
    for key in ended_maps(store, _tables(store, None)):
        store.delete(key)
    forget_dropped(store, folders | {e.key.split("/")[1] for e in store.list(SNAPSHOTS_PREFIX)})
    return removed


def _print_garbage(garbage: Garbage, ended: Iterable[str], removed: int | None) -> None:
    for prefix in ended:
        print(f"nobody holds the claim on {prefix} any more")
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
    if removed is not None:
        print(f"{removed} removed")
    elif garbage.files:
        print("nothing was removed: say --remove")


@storage_app.command()
def repair(
    url: Location,
    apply: Annotated[bool, typer.Option("--apply", help="do it; without it nothing is changed")] = False,
    patience_seconds: Annotated[
        float,
        typer.Option(
            help="how long no scheduler must have beaten: ttl and skew of the cluster", metavar="SECONDS"
        ),
    ] = (TTL_MS + SKEW_MS) / 1e3,
    option: Option = None,
    as_json: Json = False,
) -> None:
    """Find documents that are lost or older than others prove.

    With --apply they are made anew from the manifests.

    All nodes must be stopped. What cannot be made anew is named, and the exit code is 1 then.
    """
    store = open_store(url, **store_options(option or []))
    if apply:
        require_nobody_alive(store, patience_seconds * 1e3)
    found = find_repairs(store)
    for one in found.repairs:
        if not as_json:
            print(f"{one.key} {one.what}")
        if apply:
            one.apply()
    if as_json:
        repairs = [{"key": one.key, "what": one.what} for one in found.repairs]
        print_json({"repairs": repairs, "beyond": [str(problem) for problem in found.beyond], "applied": apply})
    else:
        for problem in found.beyond:
            print(f"BEYOND REPAIR {problem}")
        print(f"{len(found.repairs)} document(s) {'repaired' if apply else 'to repair'}")
        if found.repairs and not apply:
            print("nothing was changed: stop all nodes and say --apply")
    if found.beyond:
        raise typer.Exit(1)


def _tables(store: ConditionalStore, names: list[str] | None) -> list[TableSpec]:
    known = read_catalog(store)[0].document.tables
    for name in names or ():
        if name not in known:
            raise ConfigError(f"there is no table '{name}' here; there are {', '.join(sorted(known)) or 'none'}")
    return [spec for name, spec in sorted(known.items()) if names is None or name in names]
