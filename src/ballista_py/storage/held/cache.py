"""Data files of the state location as plain files of this machine, for as long as they are being read.

On a local store they are used where they lie. From any other store they are copied into a folder that never holds
more than its bound (but for files in use), and kept for the next reader, in this process or the next one. A copy is
compared with its checksum each time before it is handed out; one that was damaged is fetched anew.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from weakref import finalize

import pyarrow as pa
from attrs import evolve, field, frozen

from ballista_py.errors import SchemaMismatch, StoreUnavailable
from ballista_py.partitions.columns import in_files, plain
from ballista_py.partitions.table import FileFormatName
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.stores.store import ConditionalStore, local_path
from ballista_py.storage.formats.deletion_vector import NONE_GONE, Places, original_of
from ballista_py.storage.formats.files import (
    check_bytes,
    check_local,
    read_data_file,
    read_places,
    require_known_format,
)
from ballista_py.storage.formats.formats import file_format
from ballista_py.storage.held.cache_folder import Copy, found_copies, mark_used, put_copy, remove_copy, stem_of
from ballista_py.storage.manifest import DataFile

DEFAULT_MAX_BYTES = 8 << 30


@frozen(kw_only=True)
class CacheStats:
    """What lies in the cache, and what it did since it was opened.

    `reused` files were there already, `fetched` ones came from the store (`fetched_bytes`), `damaged` ones were
    dropped.
    """

    files: int = 0
    bytes: int = 0
    reused: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    damaged: int = 0


@frozen
class LocalCopy:
    """A data file on this machine, and its format there; in use until it is handed to `FileCache.release`.

    The rows at the places `gone` are not of it any more.
    """

    path: str
    format: str
    stem: str = field(default="", repr=False)
    gone: Places = field(default=NONE_GONE, eq=False, repr=False)


class FileCache:
    """Safe to share between threads. A `folder` serves one process at a time, and keeps its copies for the next one.

    Without a `folder` a temporary one is made at the first copy. A file larger than `max_bytes` is still copied, and
    removed after its use. With a `format` files of another one are written anew in it, from a local store, too,
    where it holds their columns: Vortex copies of Parquet files load faster at every start but the first.

    Raises `ConfigError` when the folder cannot be used and `MissingExtra` for a format that is not installed.
    """

    def __init__(
        self,
        store: ConditionalStore,
        folder: str | None = None,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        format: FileFormatName | None = None,  # noqa: A002
        runtime: Runtime | None = None,
    ) -> None:
        if format is not None:
            file_format(format)
        self._store = store
        self._runtime = runtime or SystemRuntime()
        self._max_bytes = max_bytes
        self._format = format
        self._changed = self._runtime.condition()
        self._folder = folder
        self._copies: OrderedDict[str, Copy] = OrderedDict()  # stem -> copy, least recently used first
        self._users: dict[str, int] = {}  # stem -> how many
        self._making: set[str] = set()
        self._stats = CacheStats()
        if folder is not None:
            self._adopt(folder)

    def acquire(self, file: DataFile, schema: pa.Schema | None = None, *, as_table: bool = False) -> LocalCopy:
        """The file on this machine, until it is handed to `release`. `schema` has the columns of its table.

        With `as_table` it is a Parquet file of exactly these columns by their own names, for programs that do not know
        what files of tables are that were altered.

        Raises `ObjectMissing`, `DocumentUnreadable` for a file that is not what its manifest says,
        `ConfigError` for an unknown format, `StoreUnavailable`.
        """
        require_known_format(file)
        if file.original is not None and not as_table:
            gone = self.places(file)
            return evolve(self.acquire(original_of(file), schema), gone=gone)
        wanted = self._format if self._format is not None and schema is not None else file.format
        wanted = "parquet" if as_table else wanted
        path = local_path(self._store, file.path)
        if path is not None and wanted == file.format and not as_table:
            if file.checksum or file.format == "vortex":  # a flipped bit would else be other rows, in Parquet, too
                check_local(path, file)
            return LocalCopy(path, file.format)
        stem = stem_of(file, wanted, schema, as_table=as_table)
        self._begin(stem)
        try:
            copy = self._found(stem, file) or self._made(stem, file, wanted, schema, as_table)
        except BaseException as error:
            self._leave([stem])
            if isinstance(error, OSError):
                raise StoreUnavailable(f"data file '{file.path}' cannot be cached: {error.strerror}") from error
            raise
        finally:
            self._end(stem)
        return LocalCopy(copy.path, copy.format, stem)

    def places(self, file: DataFile) -> Places:
        """The places of the rows that are gone from the original of a file; none, of one that has no original.

        Raises as `acquire`.
        """
        return NONE_GONE if file.original is None else read_places(self._store, file)

    def release(self, copies: Iterable[LocalCopy]) -> None:
        """Let go of files that `acquire` gave."""
        self._leave(copy.stem for copy in copies if copy.stem)

    def stats(self) -> CacheStats:
        """What lies there now, and what was done so far."""
        with self._changed:
            return evolve(
                self._stats, files=len(self._copies), bytes=sum(copy.bytes for copy in self._copies.values())
            )

    def clear(self) -> None:
        """Remove every copy, those in use, too; to be called when nobody reads any more."""
        with self._changed:
            self._users.clear()
            self._evict(0)

    def _adopt(self, folder: str) -> None:
        for copy in found_copies(folder):
            if copy.stem in self._copies:
                remove_copy(self._copies[copy.stem])
            self._copies[copy.stem] = copy
        self._evict(self._max_bytes)

    def _begin(self, stem: str) -> None:
        """Be the only one that looks for this copy or makes it."""
        with self._changed:
            self._users[stem] = self._users.get(stem, 0) + 1
            while stem in self._making:
                self._changed.wait()
            self._making.add(stem)

    def _end(self, stem: str) -> None:
        with self._changed:
            self._making.discard(stem)
            self._changed.notify_all()

    def _found(self, stem: str, file: DataFile) -> Copy | None:
        """The copy that is there, if it is as it was made."""
        with self._changed:
            copy = self._copies.get(stem)
        if copy is None:
            return None
        whole = copy.is_of(file)
        with self._changed:
            if whole:
                self._copies.move_to_end(stem)
                self._stats = evolve(self._stats, reused=self._stats.reused + 1)
            else:
                self._drop(stem)
                self._stats = evolve(self._stats, damaged=self._stats.damaged + 1)
        if not whole:
            return None
        mark_used(copy)
        return copy

    def _made(self, stem: str, file: DataFile, wanted: str, schema: pa.Schema | None, as_table: bool) -> Copy:
        if as_table and schema is not None:
            rows = read_data_file(self._store, file, schema).cast(plain(schema))
            return self._put(stem, "parquet", file_format("parquet").encode(rows)[0], file, written_anew=True)
        data = check_bytes(self._store.get(file.path, file.bytes).data, file)
        if schema is not None and wanted != file.format:
            with suppress(SchemaMismatch):  # which that format cannot hold
                batches = file_format(file.format).read_batches(pa.py_buffer(data), schema, file.path)
                copied = file_format(wanted).encode(in_files(pa.Table.from_batches(batches, schema=schema)))[0]
                return self._put(stem, wanted, copied, file, written_anew=True)
        return self._put(stem, file.format, data, file, written_anew=False)

    def _put(self, stem: str, format_name: str, data: bytes, file: DataFile, *, written_anew: bool) -> Copy:
        new_id = self._runtime.new_id()
        copy = put_copy(self._home(), stem, format_name, data, new_id, written_anew=written_anew)
        with self._changed:
            self._copies[stem] = copy
            self._stats = evolve(
                self._stats,
                fetched=self._stats.fetched + 1,
                fetched_bytes=self._stats.fetched_bytes + file.bytes_to_read,
            )
        return copy

    def _drop(self, stem: str) -> int:
        copy = self._copies.pop(stem)
        remove_copy(copy)
        return copy.bytes

    def _leave(self, stems: Iterable[str]) -> None:
        with self._changed:
            for stem in stems:
                left = self._users.get(stem, 0) - 1
                if left > 0:
                    self._users[stem] = left
                else:
                    self._users.pop(stem, None)
            self._evict(self._max_bytes)

    def _evict(self, max_bytes: int) -> None:
        excess = sum(copy.bytes for copy in self._copies.values()) - max_bytes
        for stem in [stem for stem in self._copies if stem not in self._users]:
            if excess <= 0:
                return
            excess -= self._drop(stem)

    def _home(self) -> str:
        with self._changed:
            if self._folder is None:
                self._folder = tempfile.mkdtemp(prefix="ballista-files-")
                finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            return self._folder
