"""The tables of a folder of plain files, as statements are planned over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256

from attrs import define, field, frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.errors import (
    BallistaError,
    DocumentUnreadable,
    SnapshotGone,
    StoreUnavailable,
    TryLater,
    Unsupported,
)
from ballista_py.partitions.columns import two_alike
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec, check_names
from ballista_py.sql.plan import Catalog
from ballista_py.storage.plain.folders import PlainFile
from ballista_py.storage.plain.footers import PlainFiles
from ballista_py.storage.plain.tables import FolderTables, tables_of

MAX_LOOKS = 10


@frozen
class _Seen:
    view: ClusterView
    tables: FolderTables
    passing: bool  # whether a table cannot be used for a reason that may be over


@define
class FolderViews:
    """`Views` of a folder: each table has one partition, which nobody owns. Safe to share between threads.

    The columns of a table are those of the first of its files.
    """

    files: PlainFiles
    _seen: _Seen | None = field(init=False, default=None)

    def current(self, words: Collection[str] | None = None) -> ClusterView:
        """The tables as they were looked at last. Raises why one that the words name cannot be used."""
        seen = self._seen or self._look()
        seen.view.require_usable(words or ())
        return seen.view

    def refresh(self, words: Collection[str] | None = None) -> ClusterView:
        """The tables as they are now. Raises as `current`, and what looking at the folder raises."""
        view = self._look().view
        view.require_usable(words or ())
        return view

    def files_of(self, table: str, *, one_instant: bool) -> tuple[PlainFile, ...]:
        """The files of a table; with `one_instant` there was a moment at which it had just these.

        Raises `TryLater` for one that was changed each time anybody looked, and `SnapshotGone` where it is none now.
        """
        found = self._files_of(table)
        for _ in range(MAX_LOOKS if one_instant else 0):
            before, found = found, self._files_of(table)
            if before == found:
                break
        else:
            if one_instant:
                raise TryLater(
                    f"the files of table '{table}' were others each of the {MAX_LOOKS} times that they were looked "
                    "for: read with consistency='decided', or try again later"
                )
        return found

    def _files_of(self, table: str) -> tuple[PlainFile, ...]:
        seen = self._seen
        prefix = None if seen is None else seen.tables.prefixes.get(table)
        if prefix is None:
            raise SnapshotGone(f"there is no table '{table}' any more: read again")
        found = tables_of(file for file in self.files.folder.files(prefix) if _lies(file, prefix))
        if table in found.refused:
            raise Unsupported(f"table '{table}' cannot be read: {found.refused[table]}")
        if table not in found.files:
            raise SnapshotGone(f"there is no table '{table}' any more: read again")
        return found.files[table]

    def _look(self) -> _Seen:
        tables = tables_of(self.files.folder.files())
        seen = self._seen
        if seen is not None and seen.tables == tables and not seen.passing:
            return seen
        unusable: dict[str, BallistaError] = {
            name: Unsupported(f"table '{name}' cannot be read: {why}") for name, why in tables.refused.items()
        }
        specs: dict[str, TableSpec] = {}
        for name, files in tables.files.items():
            try:
                specs[name] = self._spec(name, files[0])
            except SnapshotGone:
                unusable[name] = TryLater(f"the files of table '{name}' are being changed: read again")
            except DocumentUnreadable as error:
                unusable[name] = Unsupported(f"table '{name}' cannot be read: {error}")
            except BallistaError as error:
                unusable[name] = error
        passing = any(isinstance(error, TryLater | StoreUnavailable) for error in unusable.values())
        self._seen = made = _Seen(_view(specs, unusable), tables, passing)
        return made

    def _spec(self, name: str, first: PlainFile) -> TableSpec:
        schema = self.files.shape(first).schema
        if len(set(map(str.lower, schema.names))) < len(schema):
            raise Unsupported(f"table '{name}' cannot be read: '{first.path}' has {two_alike(schema.names)}")
        if not schema.names:
            raise Unsupported(f"table '{name}' cannot be read: '{first.path}' has no columns")
        check_names(name, schema.names, managed=False)
        mark = sha256(schema.serialize().to_pybytes()).hexdigest()[:16]
        return TableSpec(
            name=name, schema=schema, spec=PartitionSpec.whole(), distribution="replicated", incarnation=mark
        )


def _view(specs: Mapping[str, TableSpec], unusable: Mapping[str, BallistaError]) -> ClusterView:
    maps = {name: PartitionMap.build(name, spec.spec, [()]) for name, spec in specs.items()}
    return ClusterView(
        catalog=Catalog(tables=dict(specs), maps=maps),
        members=frozenset(),
        addresses={},
        unusable=dict(unusable),
    )


def _lies(file: PlainFile, prefix: str) -> bool:
    return file.path == prefix or prefix.endswith("/")
