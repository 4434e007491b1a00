"""How a partition comes from the store to an executor: its fence, its manifest, the files that it names.

What loading partitions took: bytes, milliseconds and failures, and a span where somebody waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.errors import (
    BallistaError,
    DocumentError,
    DocumentLost,
    DocumentOlder,
    DocumentUnreadable,
    Fenced,
    LeaseExpired,
    ObjectMissing,
    SchemaVersionUnsupported,
    StoreError,
    named,
    to_wire,
)
from ballista_py.figures import Figures
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    partition_map_key,
)
from ballista_py.state.documents.lost_documents import DocumentMemory, require_proven, way_out
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import PartitionAssignment
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.decisions_check import DecisionsCheck
from ballista_py.storage.formats.column_bounds import ranges_of_files
from ballista_py.storage.held.files import LoadedFiles, Mapper
from ballista_py.storage.held.holdings import Held
from ballista_py.storage.held.hydration import HydrationMeter
from ballista_py.storage.held.replicas import with_committed
from ballista_py.storage.held.seen import SeenManifests
from ballista_py.storage.manifest import RETIRED_MS, DataFile, ManifestDocument
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.traces import spanned

_log = logging.getLogger(__name__)
MAX_BATCH_BYTES = 512 << 20
DAMAGE = (DocumentLost, DocumentOlder, DocumentUnreadable, SchemaVersionUnsupported, ObjectMissing)


@frozen
class PartitionLoad:
    """One assignment on its way: its manifest, or what went wrong (`reason`; `damage` for what is lost or spoilt)."""

    assignment: PartitionAssignment
    manifest: ManifestDocument | None = None
    revision: int = 0
    version: str = ""
    read_ms: float = float("-inf")
    reason: str = ""
    damage: BallistaError | None = None


@frozen(eq=False)
class PartitionLoads:
    """Reads manifests and loads files; `mapper` runs store requests at the same time. What fails says so by itself."""

    lease: ExecutorLease
    store: ConditionalStore
    files: LoadedFiles
    runtime: Runtime
    mapper: Mapper
    memory: DocumentMemory
    decisions: DecisionsCheck
    seen: SeenManifests

    def read(self, table: TableSpec, batch: Sequence[PartitionAssignment]) -> list[PartitionLoad]:
        """The manifests of the assignments to a table, their fences raised; fewer without a lease.

        None is given that was written under decisions which are lost, or is older than somebody has seen it.
        """
        try:
            self.seen.take_in(table.folder, [assignment.path for assignment in batch])
        except (DocumentError, StoreError) as error:
            return [_failed(assignment, error) for assignment in batch]
        loads = [load for load in self.mapper(lambda a: self._read(table, a), batch) if load is not None]
        try:
            self.decisions.require(table.folder, max((folded_in(load) for load in loads), default=0))
        except (DocumentError, StoreError) as error:
            return [_failed(load.assignment, error) if folded_in(load) else load for load in loads]
        return loads

    def load(self, table: str, works: Sequence[PartitionLoad]) -> list[PartitionLoad]:
        """Load the files of all works together, or of each by itself when that fails, to find the one at fault."""
        try:
            manifests = [work.manifest for work in works if work.manifest is not None]
            self.files.load(table, [file for manifest in manifests for file in needed_files(manifest)])
        except Exception as error:
            if len(works) > 1:
                return [done for work in works for done in self.load(table, [work])]
            return [
                evolve(_failed(work.assignment, self._older_catalog(table, work, error)), manifest=work.manifest)
                for work in works
            ]
        return list(works)

    def _read(self, table: TableSpec, assignment: PartitionAssignment) -> PartitionLoad | None:
        folder = table.folder
        storage = PartitionStorage(
            self.store,
            folder,
            assignment.path,
            runtime=self.runtime,
            committed_by=self.lease.info.instance_id,
            memory=self.memory,
        )
        read_ms = self.runtime.monotonic_ms()
        try:
            if assignment.role == "owner":
                # First the fence, then the list of files: what the former owner commits in between is in the list.
                self.lease.require()
                found = storage.activate(assignment.epoch)
            else:
                found = storage.read()
                if assignment.role == "replica" and found.document.prepared:
                    decisions = TableDecisions(self.store, folder, runtime=self.runtime).read()
                    found = evolve(found, document=with_committed(found.document, decisions))
        except LeaseExpired:  # no failure: carried out once the lease is renewed
            return None
        except Fenced as error:
            return _failed(assignment, self._older_map(table, assignment, error))
        except ObjectMissing as error:
            return _failed(assignment, DocumentLost(f"{error.message}: {way_out()}", **error.details))
        except Exception as error:
            return _failed(assignment, error)
        return PartitionLoad(
            assignment,
            manifest=found.document.current(self.runtime.wall_ms()),
            revision=found.header.revision,
            version=found.version,
            read_ms=read_ms,
        )

    def _older_catalog(self, table: str, work: PartitionLoad, failure: Exception) -> Exception:
        """Why files are of a newer definition than was told here: it comes yet, or the catalog is an older copy.

        A definition is in the catalog before any file is written by it; so the catalog, read now, is older if it has a
        lower one.
        """
        manifest = work.manifest
        if manifest is None:
            return failure
        newest = max((file.definition for file in needed_files(manifest)), default=0)
        if newest <= self.files.definition(table):
            return failure
        try:
            state = ObjectState(self.store, CLUSTER_KEY, ClusterDocument, runtime=self.runtime)
            tables = state.read().document.tables.values()
            for now in (known for known in tables if known.folder == manifest.table):
                what, by = f"definition of table '{now.name}'", f"partition '{work.assignment.path}'"
                require_proven(CLUSTER_KEY, what, now.definition, newest, by)
        except DocumentError as error:
            return error
        except StoreError:  # nobody knows
            return failure
        return failure

    def _older_map(self, table: TableSpec, assignment: PartitionAssignment, fenced: Fenced) -> BallistaError:
        """Why the fence refused the epoch of an assignment: a newer owner, or a map that gives out old epochs again.

        An epoch is in the map before it is in a manifest; so the map, read now, is older if it has a lower one.
        """
        key = partition_map_key(table.map_name)
        try:
            document = ObjectState(self.store, key, PartitionMapDocument, runtime=self.runtime).read().document
            if document.incarnation == table.incarnation and assignment.partition < len(document.map):
                epoch = document.map.epoch(assignment.partition)
                require_proven(key, "epoch", epoch, fenced.details["active"], f"partition '{assignment.path}'")
        except ObjectMissing:
            return DocumentLost(f"document '{key}' is gone: {way_out()}", key=key)
        except DocumentError as error:
            return error
        except StoreError:
            return fenced
        return fenced


def folded_in(load: PartitionLoad) -> int:
    """The sequence of the newest statement that was folded into the manifest."""
    return 0 if load.manifest is None else load.manifest.sequence


def _failed(assignment: PartitionAssignment, error: Exception) -> PartitionLoad:
    damage = error if isinstance(error, DAMAGE) else None
    return PartitionLoad(assignment, reason=reason_of(error), damage=damage)


def held_of(load: PartitionLoad, loaded: Mapping[str, int], schema: pa.Schema, now_ms: float) -> Held:
    """What is held once the files of its manifest are `loaded` (ids by path); `schema` is that of the table."""
    manifest = load.manifest
    assert manifest is not None
    return Held(
        assignment=load.assignment,
        revision=load.revision,
        files={file.path: loaded[file.path] for file in manifest.files},
        rows=manifest.rows,
        bytes=manifest.bytes,
        ranges=ranges_of_files(manifest.files, schema),
        prepared=tuple(p.attempt for p in manifest.prepared if not p.outside),
        outside=tuple(p.attempt for p in manifest.prepared if p.outside),
        past_ms=now_ms + RETIRED_MS if manifest.retired else None,
        sequence=manifest.sequence,
        readable_from=manifest.readable_from,
        spans=spans_of(manifest, loaded),
        version=load.version,
        checked_ms=load.read_ms,
    )


def needed_files(manifest: ManifestDocument) -> list[DataFile]:
    """The files to load: those that are visible now, and those that a query begun earlier may still see."""
    return [*manifest.files, *(old.file for old in manifest.retired)]


def spans_of(manifest: ManifestDocument, loaded: Mapping[str, int]) -> dict[str, tuple[int, int | None, int]]:
    """From and until which sequence each file is visible; nothing while no statement was ever folded in."""
    if not manifest.sequence:
        return {}
    spans: dict[str, tuple[int, int | None, int]] = {}
    for old in manifest.retired:
        spans[old.file.path] = (old.file.added, old.removed, loaded[old.file.path])
    for file in manifest.files:
        spans[file.path] = (file.added, None, loaded[file.path])
    return spans


def in_parts(works: Sequence[PartitionLoad]) -> Iterator[list[PartitionLoad]]:
    """The works in parts whose files together are not much larger than `MAX_BATCH_BYTES`."""
    part: list[PartitionLoad] = []
    size = 0
    for work in works:
        part.append(work)
        size += work.manifest.bytes if work.manifest is not None else 0
        if size >= MAX_BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def reason_of(error: Exception) -> str:
    """What heartbeats say of a failure; one outside the tree is logged, too."""
    known = named(error)
    if isinstance(known, BallistaError):
        return str(to_wire(known)["message"])
    _log.error("partition_failed", exc_info=error)
    return f"internal error ({type(error).__name__})"


Load = Callable[[str, Sequence[PartitionLoad]], list[PartitionLoad]]
_BOOTSTRAP = "dataset_acceleration_snapshot_bootstrap"


@frozen
class LoadFigures:
    """Tells `figures` what the `meter` of one holder saw. One load at a time."""

    figures: Figures
    meter: HydrationMeter
    runtime: Runtime

    def loaded(self, table: str, part: Sequence[PartitionLoad], load: Load) -> list[PartitionLoad]:
        """What `load` makes of these partitions; files that were here already count for nothing."""
        before, began_ms = self._bytes(), self.runtime.monotonic_ms()
        with spanned("load", table=table, partitions=len(part)):
            outcome = load(table, part)
        size = self._bytes() - before
        if size:
            self.figures.add(f"{_BOOTSTRAP}_bytes", size, table=table)
            self.figures.record(f"{_BOOTSTRAP}_duration_ms", self.runtime.monotonic_ms() - began_ms, table=table)
        failed = sum(bool(work.reason) for work in outcome)
        if failed:
            self.figures.add(f"{_BOOTSTRAP}_failures", failed, table=table)
        return outcome

    def _bytes(self) -> int:
        return self.meter.progress(0, 0).bytes_loaded
