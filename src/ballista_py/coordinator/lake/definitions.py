"""Making a scanned table: look whether it can be read, then put its name into the catalog, in one commit.

Nothing of the files is touched, neither when the name is given nor when it is dropped.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from ballista_py.coordinator.lake.snapshots import LakeSnapshots
from ballista_py.coordinator.tables.ddl import mark_of, marks_of
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import Guard, unguarded
from ballista_py.errors import ConfigError
from ballista_py.partitions.bounds import MAX_COMMENT_CHARS, require_chars
from ballista_py.partitions.scanned_table import MAX_SCANNED, ScannedTable, require_alone
from ballista_py.partitions.table import folded
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.sql.parse.external_tables import CreateScanned
from ballista_py.state.documents.documents import ClusterDocument
from ballista_py.work import require_wanted

_CODE = ("py-catalog-impl", "py-io-impl")  # of pyiceberg: names of classes that it is to load
_PLACES = ("uri", "warehouse", "endpoint", "url", "path", "proxy-uri")  # where a request or a credential would go
_SECRET = re.compile(
    r"secret|passw|pwd|token|credential|private|signature|(^|[._-])(sas|key|access-key-id)$", re.I
)
_USER = re.compile(r"://[^/\s]*:[^/\s]*@")
_REFERENCE = re.compile(r"\$\{secrets:[A-Za-z0-9_.-]+\}")
_FILE = "file://"


@frozen
class ScannedTables:
    """Declares scanned tables. Thread-safe. Clients may name what lies below `locations`, and nothing else."""

    tables: TableMaker
    lakes: LakeSnapshots
    locations: Sequence[str] = ()
    shown: Callable[[], object] = lambda: None

    def carry_out(self, change: CreateScanned, token: str) -> int:
        """Do what a client's statement says; 0, as no row is counted. The same sent again does nothing.

        Raises `ConfigError` for a name that is taken, and for a place that no client may name, and what opening the
        table raises; nothing was changed then.
        """
        if self.tables.done(*marks_of(token)) is None:
            require_allowed(change.table, change.scan, self.locations)
            declare(self.tables, self.lakes, change, mark_of(token))
        self.shown()
        return 0


def no_scans(change: CreateScanned, _token: str) -> int:
    """What takes the place of `ScannedTables.carry_out` where nothing is scanned."""
    raise ConfigError(f"table '{change.table}': this node makes no tables that are scanned where they lie")


def declare(
    tables: TableMaker,
    lakes: LakeSnapshots,
    change: CreateScanned,
    mark: str | None = None,
    guard: Guard = unguarded,
) -> ScannedTable:
    """Give the files a name, once they could be read; the table of that name.

    Raises `ConfigError` for a name that is taken and for a declaration that says nothing, what opening raises, and what
    `guard` raises of the very catalog that the name is put into.
    """
    made = ScannedTable(name=change.table, scan=change.scan, comment=change.comment)
    require_references(change.table, change.scan)
    if change.comment is not None:
        require_chars(change.comment, MAX_COMMENT_CHARS, f"the comment on table '{change.table}'")
    known = tables.cluster()
    if change.if_not_exists and change.table in known.scanned:
        if mark is not None:
            tables.note(mark)
        return known.scanned[change.table]
    _require_addable(known, change)
    lakes.pinned(made)  # which says what is wrong with it
    require_wanted()

    def commit(cluster: ClusterDocument) -> ClusterDocument:
        guard(cluster)
        return with_declared(cluster, change, made, mark)

    return tables.commit(commit).scanned[change.table]


def declare_here(
    tables: TableMaker,
    runtime: Runtime,
    secrets: Mapping[str, Secret],
    name: str,
    scan: Mapping[str, Any],
    others: Sequence[Any] = (),
    *,
    replaces: bool = False,
    comment: str | None = None,
    mark: str | None = None,
    guard: Guard = unguarded,
) -> ScannedTable:
    """As `declare`, for whoever runs this process. Raises `ConfigError` for `others`, which scanned tables have not."""
    require_alone(name, others)
    change = CreateScanned(table=folded(name), scan=scan, replaces=replaces, comment=comment)
    return declare(tables, LakeSnapshots(runtime, secrets), change, mark, guard)


def with_declared(
    cluster: ClusterDocument, change: CreateScanned, made: ScannedTable, mark: str | None
) -> ClusterDocument:
    """The catalog with the table. Raises `ConfigError` as `declare`; pure."""
    if mark is not None and mark in cluster.definitions:
        return cluster
    if change.if_not_exists and change.table in cluster.scanned:
        return cluster if mark is None else cluster.noted(mark)
    _require_addable(cluster, change)
    return cluster.with_scanned(made, mark)


def _require_addable(cluster: ClusterDocument, change: CreateScanned) -> None:
    name = change.table
    if name in cluster.views:
        raise ConfigError(f"'{name}' is a view: take another name, or drop it with DROP VIEW")
    if name in cluster.tables or name in cluster.unreadable:
        raise ConfigError(f"table '{name}' exists already")
    if name in cluster.scanned and not change.replaces:
        raise ConfigError(f"table '{name}' exists already: CREATE OR REPLACE TABLE … USING has it lie elsewhere")
    if name not in cluster.scanned and len(cluster.scanned) >= MAX_SCANNED:
        raise ConfigError(f"the cluster has as many scanned tables as it can: {MAX_SCANNED:,}; drop one")


def require_allowed(table: str, scan: Mapping[str, Any], locations: Sequence[str]) -> None:
    """Raise `ConfigError` unless all that a declaration names lies below one of the locations.

    A node reads with its own rights: files of its machine, buckets of its credentials. So whoever runs it says what
    of that its clients may have it read.

    >>> require_allowed("t", {"format": "delta", "path": "/lake/t"}, ["/lake/"])
    >>> require_allowed("t", {"format": "delta", "path": "/lake/../etc"}, ["/lake/"])
    Traceback (most recent call last):
    ballista_py.errors.ConfigError: table 't' lies at '/lake/../etc', below none of the places that clients may name: \
add it to 'lake_locations' of the schedulers, or declare the table in the application file
    """
    catalog = scan.get("catalog")
    named = [scan.get("path"), catalog if isinstance(catalog, str) else None]
    for _, name, value in _options(scan):
        if name.lower() in _CODE:
            raise ConfigError(f"table '{table}': a client cannot name a class to be loaded ('{name}')")
        if _REFERENCE.search(value) or _SECRET.search(name):
            raise ConfigError(
                f"table '{table}': a client cannot give a node credentials, or secrets of it ('{name}'): declare it in "
                "the application file"
            )
        if name.lower().endswith(_PLACES):
            named.append(value)
    places = [str(one) for one in named if one]
    for place in places or ["nowhere"]:
        if not any(_is_below(place, location) for location in locations):
            raise ConfigError(
                f"table '{table}' lies at '{place[:200]}', below none of the places that clients may name: add it to "
                "'lake_locations' of the schedulers, or declare the table in the application file"
            )


def require_references(table: str, scan: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a declaration that holds a secret itself: it is kept, and shown to who may look.

    >>> require_references("t", {"options": {"s3.secret-access-key": "${secrets:lake}", "s3.region": "eu"}})
    """
    for _, name, value in _options(scan):
        if (_SECRET.search(name) and not _REFERENCE.fullmatch(value)) or _USER.search(value):
            raise ConfigError(
                f"table '{table}': '{name}' holds a secret: put it into the --secrets-file of the schedulers, and "
                "write ${secrets:name}"
            )


def _options(scan: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """All that is said in mappings of a scan: of which, its name, and the value as a text."""
    for place, inner in scan.items():
        if isinstance(inner, Mapping):
            yield from ((str(place), str(name), str(value)) for name, value in inner.items())


def _is_below(place: str, location: str) -> bool:
    place, location = place.removeprefix(_FILE), location.removeprefix(_FILE)
    if ".." in place.split("/") or (place.startswith("/") and posixpath.normpath(place) != place.rstrip("/")):
        return False
    return (
        place == location
        or place.rstrip("/") == location.rstrip("/")
        or place.startswith(f"{location.rstrip('/')}/")
    )
