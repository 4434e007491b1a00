"""Snapshots of scanned tables that statements read: opened when they are named, and kept in reach by their names.

A statement means one snapshot of a table, which is its name from then on. Whoever plans that text again finds the same
one: here, as long as it is remembered, else by opening it again, and where that cannot be, it is an error and no other
snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field, frozen

from ballista_py.coordinator.cluster_view import ClusterView, Decides
from ballista_py.engines.duckdb.tables import require_held
from ballista_py.errors import (
    BallistaError,
    DocumentUnreadable,
    SchemaMismatch,
    SnapshotGone,
    SourceError,
    SqlError,
)
from ballista_py.partitions.columns import plain
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.scanned_table import (
    AT,
    ScannedTable,
    SnapshotSpec,
    scanned_name,
    snapshot_map,
    snapshot_of,
    snapshot_spec,
)
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.secret import Secret
from ballista_py.sql.estimate.statistics import TableSizes
from ballista_py.sql.plan import Catalog
from ballista_py.state.documents.secret_references import with_secrets

if TYPE_CHECKING:
    from ballista_py.storage.lake.opening import LakeOpener
    from ballista_py.storage.lake.table import LakeSnapshot, LakeTable

SHARED = "shared"  # in a declaration: every executor finds the files at the same path
MAX_SNAPSHOTS = 256
MAX_CATALOGS = 64
LISTED_MS = 10_000.0  # how old the columns may be that lists of tables show
TASK_BYTES = 128 << 20
BYTES_PER_ROW = 64  # where nobody says how many rows there are
_DIGITS = 16


def _opened(scan: Mapping[str, Any], opener: LakeOpener) -> LakeTable:
    from ballista_py.storage.lake.table import open_table  # with the libraries of formats

    return open_table(scan, opener=opener)


@frozen(kw_only=True, eq=False)
class PinnedSnapshot:
    """A snapshot that a statement reads: what it is `of`, the `snapshot` itself, and what it is to the planner."""

    of: ScannedTable
    snapshot: LakeSnapshot
    spec: SnapshotSpec
    map: PartitionMap
    sizes: TableSizes

    @property
    def name(self) -> str:
        """As the planned statement has it."""
        return self.spec.name


@frozen
class _Listed:
    looked_ms: float
    schema: pa.Schema | None
    error: BallistaError | None


@define(eq=False)
class LakeSnapshots:
    """`Lakes` of a scheduler. Thread-safe. `secrets` are what declarations reference; `workers` read many footers."""

    runtime: Runtime
    secrets: Mapping[str, Secret] = field(factory=dict)
    workers: Executor | None = None
    open: Callable[[Mapping[str, Any], LakeOpener], LakeTable] = _opened
    _known: OrderedDict[str, PinnedSnapshot] = field(factory=OrderedDict, init=False)
    _credentials: dict[str, StorageCredentials | None] = field(factory=dict, init=False, repr=False)
    _catalogs: OrderedDict[Any, tuple[Catalog, Catalog]] = field(factory=OrderedDict, init=False)
    _listed: dict[str, _Listed] = field(factory=dict, init=False)
    _files: LakeOpener | None = field(default=None, init=False)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def pinned(self, table: ScannedTable, version: str | None = None, timestamp: str | None = None) -> str:
        """The name of the snapshot of now, or of the one that is meant. Raises as `opened`."""
        return self._learnt(table, *self.opened(table, version, timestamp)).name

    def opened(
        self, table: ScannedTable, version: str | None = None, timestamp: str | None = None
    ) -> tuple[LakeSnapshot, StorageCredentials | None]:
        """The snapshot itself, and what opens its files.

        Raises as `storage.lake.table.open_table` and its snapshots, and `SqlError` for a time that is none, or that a
        format does not know.
        """
        if (version or timestamp) and table.format == "parquet":
            raise table.refused("there is no older snapshot of plain files, read them as they are")
        moment_ms = None if timestamp is None else moment_of(timestamp)
        scan = {name: value for name, value in table.scan.items() if name != SHARED}
        try:
            opened = self.open(with_secrets(scan, self.secrets), self._opener())
            return opened.snapshot(version, moment_ms), opened.credentials()
        except (SourceError, DocumentUnreadable, SchemaMismatch, SnapshotGone) as error:
            raise type(error)(f"table '{table.name}': {error.message}", **error.details) from error

    def _opener(self) -> LakeOpener:
        """The one of this scheduler: it remembers what footers say."""
        from ballista_py.storage.lake.opening import LakeOpener

        with self._lock:
            if self._files is None:
                self._files = LakeOpener(self.runtime, self.workers)
            return self._files

    def _learnt(
        self, table: ScannedTable, snapshot: LakeSnapshot, credentials: StorageCredentials | None
    ) -> PinnedSnapshot:
        name = table.snapshot_name(name_of(snapshot.id))
        with self._lock:
            known = self._known.get(name)
        made = known or _pinned(table, name, snapshot)
        with self._lock:
            found = self._known.setdefault(name, made)
            self._known.move_to_end(name)
            self._credentials[name] = credentials  # those that were given last are good for longest
            while len(self._known) > MAX_SNAPSHOTS:
                gone, _ = self._known.popitem(last=False)
                self._credentials.pop(gone, None)
            return found

    def credentials(self, name: str) -> StorageCredentials | None:
        """What opens the files of a snapshot; None: whatever a node itself has."""
        with self._lock:
            return self._credentials.get(name)

    def named(self, name: str, view: ClusterView) -> PinnedSnapshot:
        """The snapshot of that name. Raises `SqlError` for one that there is not any more."""
        said, table = snapshot_of(name), view.scanned.get(scanned_name(name))
        if said is None or table is None or table.named != said[0]:
            raise SqlError(
                f"Table '{scanned_name(name)}' does not exist any more as it was when it was read first"
            )
        with self._lock:
            known = self._known.get(name)
        if known is not None:
            return known
        # Of plain files there is no other snapshot than that of now, which is the same one if nothing has changed.
        snapshot, credentials = self.opened(table, None if table.format == "parquet" else said[1])
        if name_of(snapshot.id) != said[1]:
            raise SqlError(
                f"the files of table '{table.name}' have changed since the statement was planned: send it again"
            )
        return self._learnt(table, snapshot, credentials)

    def with_snapshots(self, view: ClusterView, names: Collection[str], gate: Decides | None) -> ClusterView:
        """The view with those snapshots as tables that are among the names, as the client of this thread sees them.

        The same ones of one view are the same catalog, so that what is planned over it is remembered. Raises
        `SqlError` for a snapshot that is no more, and for one that policies do not show.
        """
        wanted = tuple(sorted(name for name in names if AT in name and snapshot_of(name) is not None))
        wanted = tuple(name for name in wanted if scanned_name(name) in view.scanned)
        if not wanted:
            return view
        # What was made to look at types alone has no barriers, and is never what a client's statement is planned over.
        key = (id(view.catalog), wanted, gate is not None)
        with self._lock:
            found = self._catalogs.get(key)
            if found is not None and found[0] is view.catalog:
                self._catalogs.move_to_end(key)
                return evolve(view, catalog=found[1])
        made = self._with(view, wanted, gate)
        with self._lock:
            self._catalogs[key] = view.catalog, made
            while len(self._catalogs) > MAX_CATALOGS:
                self._catalogs.popitem(last=False)
        return evolve(view, catalog=made)

    def _with(self, view: ClusterView, names: Collection[str], gate: Decides | None) -> Catalog:
        pins = {name: self.named(name, view) for name in names}
        specs: dict[str, Any] = {name: one.spec for name, one in pins.items()}
        barriers: dict[str, str] = {}
        for name in names if gate is not None else ():
            assert gate is not None
            specs[name], barrier = gate.snapshot_shown(pins[name].spec, view.policies)
            if barrier is not None:
                barriers[name] = barrier
        base = view.catalog
        return evolve(
            base,
            tables={**base.tables, **specs},
            maps={**base.maps, **{name: one.map for name, one in pins.items()}},
            # Of what is not seen whole nobody is told how much it is.
            sizes={**base.sizes, **{name: one.sizes for name, one in pins.items() if name not in barriers}},
            barriers={**base.barriers, **barriers},
            scanned=pins,
        )

    def described(self, table: ScannedTable) -> TableSpec:
        """The table as it is now, for a description of it. Raises as `opened`."""
        return described(table, self._learnt(table, *self.opened(table)).spec.schema)

    def listed(self, view: ClusterView) -> dict[str, TableSpec]:
        """The scanned tables for lists of tables, with the columns of the last seconds; none if they cannot be told."""
        found: dict[str, TableSpec] = {}
        for name, table in view.scanned.items():
            schema = pa.schema([])
            with suppress(BallistaError):
                schema = self.columns(table)
            found[name] = described(table, schema)
        return found

    def columns(self, table: ScannedTable) -> pa.Schema:
        """The columns of the table as of the last seconds, for lists of tables. Raises why they cannot be told."""
        now_ms = self.runtime.monotonic_ms()
        with self._lock:
            known = self._listed.get(table.mark)
        if known is None or now_ms - known.looked_ms >= LISTED_MS:
            known = self._look(table, now_ms)
            with self._lock:
                if len(self._listed) > MAX_SNAPSHOTS:
                    self._listed.clear()
                self._listed[table.mark] = known
        if known.error is not None:
            raise known.error
        assert known.schema is not None
        return known.schema

    def _look(self, table: ScannedTable, now_ms: float) -> _Listed:
        try:
            return _Listed(now_ms, self._learnt(table, *self.opened(table)).spec.schema, None)
        except BallistaError as error:
            return _Listed(now_ms, None, error)


def moment_of(text: str) -> int:
    """The time that a text says, in milliseconds since 1970; in UTC if it says no zone. Raises `SqlError`.

    >>> moment_of("2026-01-31 12:00:00"), moment_of("2026-01-31 12:00:00+01:00")
    (1769860800000, 1769857200000)
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise SqlError(
            f"the time of a snapshot is a text as '2026-01-31 12:00:00', and not {text[:80]!a}"
        ) from None
    moment = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def name_of(snapshot: str) -> str:
    """What stands for a snapshot in a name: the id itself if it can stand there.

    >>> name_of("17"), len(name_of("Refs/Tag"))
    ('17', 16)
    """
    plain = snapshot.isascii() and snapshot.replace("-", "").replace("_", "").isalnum() and snapshot.islower()
    is_short = 0 < len(snapshot) <= 80
    if is_short and (plain or snapshot.isdigit()):
        return snapshot
    return sha256(snapshot.encode()).hexdigest()[:_DIGITS]


def described(table: ScannedTable, schema: pa.Schema) -> SnapshotSpec:
    """The table as lists of tables and descriptions show it."""
    return evolve(snapshot_spec(table.name, plain(schema)), source=table.scan, comment=table.comment)


def _pinned(table: ScannedTable, name: str, snapshot: LakeSnapshot) -> PinnedSnapshot:
    schema: pa.Schema = snapshot.schema
    try:
        require_held(schema, table.name)
    except SchemaMismatch as error:
        raise SqlError(f"table '{table.name}' cannot be read: {error.message}") from None
    weight = snapshot.bytes or 0
    pmap = snapshot_map(name, 1 + weight // TASK_BYTES)
    rows = float(weight / BYTES_PER_ROW if snapshot.rows is None else snapshot.rows)
    share = np.full(len(pmap), 1 / len(pmap))
    sizes = TableSizes(rows=rows * share, bytes=float(weight) * share)
    return PinnedSnapshot(of=table, snapshot=snapshot, spec=snapshot_spec(name, schema), map=pmap, sizes=sizes)
