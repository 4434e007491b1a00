"""What an engine has loaded: the files of each table, by the ids that it knows them under.

Files are loaded from the cache, or staged from rows that are at hand while their commit is still under way; nobody
sees a staged file before a manifest names it. Which files are needed is decided by whoever holds the partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
from attrs import frozen

from ballista_py.errors import BallistaError, ConfigError, PlanningError, StoreError, TryLater, WriteError
from ballista_py.logs import log_event
from ballista_py.partitions.columns import is_same
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import LegTable
from ballista_py.storage.formats.deletion_vector import NONE_GONE, Places, original_of
from ballista_py.storage.formats.files import Loadable, LocalFile, RowsAtHand
from ballista_py.storage.held.cache import FileCache, LocalCopy
from ballista_py.storage.held.hydration import HydrationMeter
from ballista_py.storage.manifest import DataFile, OriginalFile

_log = logging.getLogger(__name__)

In = TypeVar("In")
Out = TypeVar("Out")


class Mapper(Protocol):
    """`map`, or something like it that runs the calls at the same time; results come in order."""

    def __call__(self, call: Callable[[In], Out], items: Iterable[In], /) -> Iterator[Out]: ...


class Loader(Protocol):
    """Where rows are loaded to. Every `Engine` is one; see there for the promises.

    One that may lose all that was loaded counts that in `begun`. One that can show a loaded file without some of its
    rows, as every engine may, has `derive`, too; one that keeps rows for the next process has `define`, `keep_as`,
    `kept` and `take_back`.
    """

    def create_table(self, table: str, schema: pa.Schema) -> None: ...
    def alter_table(self, table: str, schema: pa.Schema) -> bool: ...
    def drop_table(self, table: str) -> None: ...
    def load(self, table: str, files: Sequence[Loadable]) -> int: ...
    def unload(self, table: str, file_ids: Iterable[int]) -> None: ...


@frozen(eq=False)
class _Vector:
    """A loaded deletion vector: the places that are `gone` from its `original`, unless they were not read yet."""

    original: str
    count: int
    gone: Places | None = None
    file: DataFile | None = None


class LoadedFiles:
    """The files of one loader. `stage` and `unstage` may be called by any thread, the rest by one at a time."""

    def __init__(
        self, loader: Loader, cache: FileCache, meter: HydrationMeter, mapper: Mapper, runtime: Runtime
    ) -> None:
        self._loader = loader
        self._cache = cache
        self._meter = meter
        self._map = mapper
        self._lock = runtime.lock()
        self._schemas: dict[str, pa.Schema] = {}
        self._definitions: dict[str, int] = {}
        self._loaded: dict[str, dict[str, int]] = {}
        self._staged: dict[str, dict[str, int]] = {}
        self._vectors: dict[str, dict[str, _Vector]] = {}  # of loaded and staged files, by path
        self._drops: dict[str, int] = {}  # how often each table was dropped: what was staged is gone with it
        self._last_file_id = 0
        self._begun = self._begins()

    def were_lost(self) -> bool:
        """Whether the loader has begun anew since this was asked last, so that nothing is loaded any more."""
        begun = self._begins()
        if begun == self._begun:
            return False
        with self._lock:
            for table in self._schemas.keys() | self._staged.keys():
                self._drops[table] = self._drops.get(table, 0) + 1
            self._staged.clear()
            self._vectors.clear()
        self._schemas, self._loaded, self._begun = {}, {}, begun
        return True

    def _begins(self) -> int:
        return int(getattr(self._loader, "begun", 0))

    def schema(self, table: str) -> pa.Schema | None:
        """The columns of a table that is prepared, else None."""
        return self._schemas.get(table)

    def definition(self, table: str) -> int:
        """By which definition a table is prepared."""
        return self._definitions.get(table, 0)

    def ids(self, table: str) -> Mapping[str, int]:
        """The loaded files of a table: path and id."""
        return self._loaded.get(table, {})

    def prepare(self, table: str, schema: pa.Schema, definition: int = 0) -> bool:
        """Have an empty table, or what is loaded of it, with these columns; False if nothing is loaded of it any more.

        Raises what the loader raises.
        """
        before = self._schemas.get(table)
        define = getattr(self._loader, "define", None)
        if define is not None:
            define(table, definition)
        kept = before is not None and (is_same(before, schema) or self._loader.alter_table(table, schema))
        if before is not None and not kept:
            self._drop(table)
        self._loader.create_table(table, schema)
        self._schemas[table] = schema
        self._definitions[table] = definition
        self._loaded.setdefault(table, {})
        return kept

    def load(self, table: str, files: Collection[DataFile]) -> None:
        """Have these files loaded, all or none. Raises what the cache and the loader raise, and `StoreError` for
        files that hold other numbers of rows than their manifests say. `TryLater` for files that were written by a
        newer definition of the table than this process was told of."""
        loaded = self._loaded[table]
        if any(file.definition > self._definitions.get(table, 0) for file in files):
            raise TryLater(f"table '{table}' was altered, of which this node was not told yet")
        with self._lock:
            staged = self._staged.get(table, {})
            loaded.update({file.path: staged.pop(file.path) for file in files if file.path in staged})
        missing = list({file.path: file for file in files if file.path not in loaded}.values())
        kept = self._kept(table, missing)
        whole = [file for file in missing if file.original is None and file.path not in kept]
        if whole:
            loaded.update(self._read(table, whole))
        self._take_back(table, kept)  # at last: what is not needed after all is unloaded
        for file in sorted(
            missing, key=lambda file: -file.rows
        ):  # one that lacks more comes from one that lacks less
            if file.original is not None and file.path not in loaded:
                file_id = self._derived(table, file)
                loaded.update({} if file_id is None else {file.path: file_id})
        rest = [file for file in missing if file.path not in loaded]
        if rest:
            loaded.update(self._read(table, rest))

    def _kept(self, table: str, files: Sequence[DataFile]) -> dict[str, DataFile]:
        """Those whose rows the loader has from an earlier process, by path."""
        kept = getattr(self._loader, "kept", None)
        marks = kept(table) if kept is not None and files else ()
        return {file.path: file for file in files if mark_of(file) in marks} if marks else {}

    def _take_back(self, table: str, kept: Mapping[str, DataFile]) -> None:
        """Have rows loaded that the loader has kept."""
        if not kept:
            return
        ids = {self._next_id(): file for file in kept.values()}
        take_back = self._loader.take_back  # type: ignore[attr-defined]
        found = take_back(table, {file_id: mark_of(file) for file_id, file in ids.items()})
        taken = {file_id: file for file_id, file in ids.items() if file_id in found}
        self._loaded[table].update({file.path: file_id for file_id, file in taken.items()})
        for file in taken.values():
            if file.original is not None:
                self._note(table, file.path, _Vector(file.paths[-1], file.original.rows - file.rows, file=file))
        self._meter.kept(taken.values())

    def _keep(self, table: str, files: Mapping[int, DataFile]) -> None:
        """Tell the loader what these loaded files are, so that the next process finds them."""
        keep_as = getattr(self._loader, "keep_as", None)
        marks = {file_id: mark for file_id, file in files.items() if (mark := mark_of(file))}
        if keep_as is not None and marks:
            keep_as(table, marks)

    def _derived(self, table: str, file: DataFile) -> int | None:
        """The id of a file whose rows are loaded already, as those of its original or of another vector of that."""
        original, loaded = file.paths[-1], self._loaded[table]
        with self._lock:
            known = {path: one for path, one in self._vectors.get(table, {}).items() if one.original == original}
        known[original] = _Vector(original, 0, NONE_GONE)
        if not any(path in loaded for path in known):
            self._take_back(table, self._kept(table, [original_of(file)]))
        near = [path for path in known if path in loaded]
        if not near:
            return None
        gone = self._cache.places(file)
        for path in sorted(near, key=lambda path: -known[path].count):
            before = self._places(known[path])
            if before is not None and np.isin(before, gone, assume_unique=True).all():
                left = np.setdiff1d(gone, before, assume_unique=True)
                file_id = self._next_id()
                if self._derive(table, file_id, loaded[path], left, file):
                    self._note(table, file.path, _Vector(original, len(gone), gone))
                    return file_id
        return None

    def _places(self, vector: _Vector) -> Places | None:
        """The places that are gone by a vector, which are read if need be; None if they cannot be."""
        if vector.gone is not None or vector.file is None:
            return vector.gone
        try:
            return self._cache.places(vector.file)
        except BallistaError as error:
            log_event(_log, "vector_not_read", file=vector.file.path, code=error.code, reason=error)
            return None

    def _derive(self, table: str, file_id: int, of: int, gone: Places, file: DataFile) -> bool:
        """Whether the loader has it now. It may know nothing of that, as one of an application's own."""
        derive = getattr(self._loader, "derive", None)
        done = derive is not None and bool(derive(table, file_id, of, gone))
        if done:
            self._keep(table, {file_id: file})
        return done

    def _note(self, table: str, path: str, vector: _Vector) -> None:
        with self._lock:
            self._vectors.setdefault(table, {})[path] = vector

    def _read(self, table: str, files: Sequence[DataFile]) -> dict[str, int]:
        schema = self._schemas[table]
        self._meter.asked(files)
        outcomes = list(self._map(lambda file: self._acquire(file, schema), files))
        copies = [copy for copy in outcomes if isinstance(copy, LocalCopy)]
        try:
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
            ids = {file.path: self._next_id() for file in files}
            rows = self._loader.load(
                table,
                [
                    LocalFile(
                        file_id=ids[file.path], path=copy.path, format=copy.format, name=file.path, gone=copy.gone
                    )
                    for file, copy in zip(files, copies, strict=True)
                ],
            )
        finally:
            self._cache.release(copies)
        expected = sum(file.rows for file in files)
        if rows != expected:
            self._loader.unload(table, ids.values())
            raise StoreError(f"the data files of table '{table}' hold {rows} rows where manifests say {expected}")
        self._meter.loaded(files)
        self._keep(table, {ids[file.path]: file for file in files})
        for file, copy in zip(files, copies, strict=True):
            if file.original is not None:
                self._note(table, file.path, _Vector(file.original.path, len(copy.gone), copy.gone))
        return ids

    def _acquire(self, file: DataFile, schema: pa.Schema) -> LocalCopy | Exception:
        try:
            copy = self._cache.acquire(file, schema)
            self._meter.here(file)
            return copy
        except Exception as error:
            return error

    def stage(self, table: str, files: Sequence[tuple[DataFile, pa.Table]]) -> None:
        """Load the rows of files that are about to be committed, together, so that they need not be read back.

        What cannot be loaded now is read back when it is needed.
        """
        with self._lock:
            drops = self._drops.get(table, 0)
        ids = {self._next_id(): file for file, _ in files}
        try:
            at_hand = [RowsAtHand(file_id=n, rows=rows) for n, (_, rows) in zip(ids, files, strict=True)]
            self._loader.load(table, at_hand)
            self._keep(table, ids)
        except BallistaError as error:
            log_event(_log, "not_staged", table=table, code=error.code, reason=error)
            return
        self._stays(table, {file.path: file_id for file_id, file in ids.items()}, drops)

    def stage_vector(self, table: str, file: DataFile, of: int, gone: Places, newly: Places) -> None:
        """Have a deletion vector that is about to be committed, by the id of the loaded file that it was made from.

        `gone` are all places, `newly` those that are not gone from that file yet. As `stage` otherwise.
        """
        with self._lock:
            drops = self._drops.get(table, 0)
        file_id = self._next_id()
        try:
            if not self._derive(table, file_id, of, newly, file):
                return
        except BallistaError as error:
            log_event(_log, "not_staged", table=table, code=error.code, reason=error)
            return
        self._note(table, file.path, _Vector(file.paths[-1], len(gone), gone))
        self._stays(table, {file.path: file_id}, drops)

    def gone(self, table: str, path: str) -> Places | None:
        """The places that the deletion vector at `path` names, if it is loaded."""
        with self._lock:
            found = self._vectors.get(table, {}).get(path)
        return None if found is None else found.gone

    def _stays(self, table: str, ids: Mapping[str, int], drops: int) -> None:
        """Note what was staged, in the place of what two attempts at one statement have both staged; unless the table
        was dropped since."""
        with self._lock:
            if self._drops.get(table, 0) == drops:
                staged = self._staged.setdefault(table, {})
                unneeded = [staged[path] for path in ids if path in staged]
                staged.update(ids)
            else:
                unneeded = list(ids.values())
                for path in ids:
                    self._vectors.get(table, {}).pop(path, None)
        if unneeded:
            self._loader.unload(table, unneeded)

    def unstage(self, table: str, paths: Iterable[str]) -> None:
        """Unload what was staged and then not needed."""
        with self._lock:
            staged = self._staged.get(table, {})
            gone = {path: staged.pop(path) for path in paths if path in staged}
            for path in gone:
                self._vectors.get(table, {}).pop(path, None)
        if gone:
            self._loader.unload(table, gone.values())

    def keep_only(self, needed: Mapping[str, Collection[str]]) -> int:
        """Unload every file that is not `needed`, and drop the tables that are not named; how many files went."""
        count = 0
        for table, loaded in list(self._loaded.items()):
            unneeded = loaded.keys() - set(needed.get(table, ()))
            count += len(unneeded)
            if table not in needed:
                self._drop(table)
            elif unneeded:
                self._loader.unload(table, [loaded[path] for path in sorted(unneeded)])
                self._loaded[table] = {path: id_ for path, id_ in loaded.items() if path not in unneeded}
                with self._lock:
                    for path in unneeded:
                        self._vectors.get(table, {}).pop(path, None)
        return count

    def _drop(self, table: str) -> None:
        with self._lock:
            self._staged.pop(table, None)
            self._vectors.pop(table, None)
            self._drops[table] = self._drops.get(table, 0) + 1
        self._loader.drop_table(table)
        self._loaded.pop(table, None)
        self._schemas.pop(table, None)
        self._definitions.pop(table, None)

    def _next_id(self) -> int:
        with self._lock:
            self._last_file_id += 1
            return self._last_file_id


def mark_of(file: DataFile) -> str:
    """What tells the rows of a file from those of every other one, for ever; nothing if its bytes are not known.

    >>> mark_of(DataFile(path="f", rows=2, bytes=70, checksum="crc32:98a6e92f"))
    'f crc32:98a6e92f 70 2 parquet'
    """
    parts: list[DataFile | OriginalFile] = [file] if file.original is None else [file, file.original]
    if not all(part.checksum for part in parts):
        return ""
    return " ".join(f"{p.path} {p.checksum} {p.bytes} {p.rows} {p.format}" for p in parts)


class Definitions(Protocol):
    """What is asked of the holder; `PartitionHolder` is one."""

    def require_definition(self, wanted: LegTable, *, exact: bool) -> None: ...


@contextmanager
def altered_under(holder: Definitions, tables: Iterable[LegTable]) -> Iterator[None]:
    """The block asks the engine for what was made by these definitions.

    A text is made for one definition of a table, and the engine's table is given another one in place. So whatever an
    engine cannot do is held against the definition that is told by then: only what fails by the same one is an error
    of the statement.

    Raises `TableAltered` in the place of an error when one of them is not the newest any more.
    """
    try:
        yield
    except (PlanningError, WriteError, ConfigError):
        for table in tables:
            holder.require_definition(table, exact=True)
        raise


def rows_unless_altered(
    holder: Definitions, tables: Sequence[LegTable], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same batches; errors among them as in `altered_under`."""
    with altered_under(holder, tables):
        yield from batches


def definition_of(table: TableSpec) -> LegTable:
    """The definition of a table, as it is asked for."""
    return LegTable(
        table=table.name,
        revision=0,
        partitions=(),
        epochs=(),
        definition=table.definition,
        incarnation=table.incarnation,
    )
