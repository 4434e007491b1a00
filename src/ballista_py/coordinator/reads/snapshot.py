"""The files of partitions at one instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import field, frozen

from ballista_py.errors import ObjectMissing, TryLater
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import StatementsDocument, TableDecisions
from ballista_py.state.documents.lost_documents import DocumentMemory
from ballista_py.state.documents.object_state import Versioned
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.decisions_check import DecisionsCheck
from ballista_py.storage.manifest import DataFile, ManifestDocument, manifest_key
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import visible_files

RunAll: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
MAX_LOOKS = 10


@frozen(kw_only=True)
class TableSnapshot:
    """The data files with rows, by partition; manifests named them at `fixed_ms` of the monotonic clock, or later."""

    files: Mapping[int, Sequence[DataFile]]
    fixed_ms: float


@frozen
class Snapshots:
    """Finds what partitions hold. `run_all` works as `map` does, perhaps at the same time.

    A manifest that is older than one that was seen through here is refused.
    """

    store: ConditionalStore
    runtime: Runtime
    run_all: RunAll = map
    memory: DocumentMemory = field(factory=DocumentMemory)

    def of(
        self, table: TableSpec, pmap: PartitionMap, partitions: Sequence[int], *, one_instant: bool
    ) -> TableSnapshot:
        """The files of these partitions. A statement over several partitions is in all of them, or in none.

        With `one_instant` there was a moment at which the table was just so: no statement is missed that had ended
        before one that is seen. Raises `TryLater` when the table was changed each time anybody looked, or lacks a
        manifest, and what reading one raises.
        """
        for _ in range(MAX_LOOKS if one_instant else 1):
            fixed_ms = self.runtime.monotonic_ms()
            decisions = self._decisions(table)
            manifests = list(self.run_all(lambda one: self._manifest(table, pmap, one), partitions))
            if not one_instant or self._still(table, pmap, partitions, manifests, decisions):
                files = {
                    partition: self._visible(table, found, decisions)
                    for partition, found in zip(partitions, manifests, strict=True)
                    if found is not None
                }
                return TableSnapshot(files=files, fixed_ms=fixed_ms)
        raise TryLater(
            f"table '{table.name}' was changed each of the {MAX_LOOKS} times that its files were looked for: read with "
            "consistency='decided', which does not need one instant of all partitions, or try again later"
        )

    def _still(
        self,
        table: TableSpec,
        pmap: PartitionMap,
        partitions: Sequence[int],
        manifests: Sequence[Versioned[ManifestDocument] | None],
        decisions: StatementsDocument,
    ) -> bool:
        """Whether all is as it was read: so it was at every moment between the two looks."""

        def is_same(look: tuple[int, Versioned[ManifestDocument] | None]) -> bool:
            partition, found = look
            key = manifest_key(table.folder, pmap.path(partition))
            if found is None:
                return next(iter(self.store.list(key)), None) is None
            return self.store.get_if_changed(key, found.version) is None

        looks = zip(partitions, manifests, strict=True)
        return all(list(self.run_all(is_same, looks))) and self._decisions(table) == decisions

    def _decisions(self, table: TableSpec) -> StatementsDocument:
        return TableDecisions(self.store, table.folder, runtime=self.runtime).read()

    def _manifest(
        self, table: TableSpec, pmap: PartitionMap, partition: int
    ) -> Versioned[ManifestDocument] | None:
        """The manifest of a partition; None for one that never had an owner."""
        path = pmap.path(partition)
        try:
            return PartitionStorage(
                self.store, table.folder, path, runtime=self.runtime, memory=self.memory
            ).read()
        except ObjectMissing:
            if not pmap.epoch(partition):
                return None
            raise TryLater(
                f"partition '{path}' of table '{table.name}' has no manifest: its owner makes it when it takes it up; "
                "if it stays so, `ballista-py storage verify` tells what was lost"
            ) from None

    def _visible(
        self, table: TableSpec, found: Versioned[ManifestDocument], decisions: StatementsDocument
    ) -> list[DataFile]:
        manifest = found.document
        if manifest.sequence > decisions.sequence:  # decided since, or the decisions are an older copy
            DecisionsCheck(self.store, self.runtime).require(table.folder, manifest.sequence)
        return [file for file in visible_files(manifest, decisions) if file.rows]
