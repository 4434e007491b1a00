"""Opens the files that tables of a lake name, with whatever credentials there are now.

A file is read as what it was when it was planned: its size, and where there is one its version. Another one, or one
that is changed while it is read, is `SnapshotGone`, never other rows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import ConfigError, DocumentUnreadable, ObjectMissing, SnapshotGone, StoreUnavailable
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.state.stores.store import open_store
from ballista_py.storage.lake.paths import is_below, split_bucket, true_path
from ballista_py.storage.plain.folders import BucketFolder, PlainFile
from ballista_py.threads import map_some

CredentialsNow = Callable[[], StorageCredentials | None]
"""Gives the credentials of the moment; called before each file is opened."""

AT_ONCE = 16
MAX_FOOTERS, MAX_FOOTER_BYTES = 100_000, 128 << 20
MAX_STORES = 64
_OPTIONS = {  # of pyiceberg's FileIO, and what our stores call them
    "s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.session-token": "token",
    "s3.endpoint": "endpoint_url", "s3.region": "region", "client.region": "region",
}  # fmt: skip
_ANONYMOUS = "s3.anonymous"
KNOWN_OPTIONS = frozenset(_OPTIONS) | {_ANONYMOUS}
T = TypeVar("T")
R = TypeVar("R")


@frozen(kw_only=True)
class LakeFile:
    """A file that lies there: its path, its size, and what tells its bytes from what they were and will be."""

    path: str
    size: int
    version: str


@frozen
class OpenedFile:
    """One version of a file, open: its bytes, and a check that what was read until now is of that version."""

    file: LakeFile
    source: pa.NativeFile
    check: Callable[[], None]


@define
class LakeOpener:
    """Files by their paths, and what their footers said. One for a process; safe to share between threads.

    `pool` is where files are read at the same time, and batches ahead; it is not the one in which tasks run, which
    would wait for themselves. Without one they are read one after the other.
    """

    runtime: Runtime = field(factory=SystemRuntime)
    pool: Executor | None = None
    footers: Remembered[Any] = field(init=False)
    _stores: Remembered[Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.footers = Remembered(MAX_FOOTERS, MAX_FOOTER_BYTES, self.runtime)
        self._stores = Remembered(MAX_STORES, 1 << 20, self.runtime)

    @contextmanager
    def open(
        self, path: str, credentials: StorageCredentials | None = None, *, size: int | None = None,
        version: str | None = None,
    ) -> Iterator[OpenedFile]:  # fmt: skip
        """The file at `path`, if it has this size and version; raises `SnapshotGone` and `StoreUnavailable`."""
        true = true_path(path)
        opened = self._bucket_file if true.startswith("s3://") else _local_file
        with opened(true, credentials, size, version) as found:
            if (size is not None and found.file.size != size) or (version and found.file.version != version):
                raise changed(path)
            yield found
            found.check()

    def read(
        self, path: str, credentials: StorageCredentials | None, offset: int = 0, length: int | None = None,
        *, most: int,
    ) -> bytes:  # fmt: skip
        """`length` bytes of a file from `offset` on, or all; raises `DocumentUnreadable` for more than `most`, or fewer
        than `length`."""
        with self.open(path, credentials) as opened:
            wanted = opened.file.size - offset if length is None else length
            if wanted < 0 or wanted > most or offset < 0 or offset + wanted > opened.file.size:
                raise DocumentUnreadable(
                    f"'{path}' has not the bytes that are asked of it, or too many", file=path
                )
            opened.source.seek(offset)
            found = opened.source.read(wanted)
            opened.check()
        if len(found) != wanted:
            raise DocumentUnreadable(f"'{path}' ended while it was read", file=path)
        return bytes(found)

    def list(self, folder: str, credentials: StorageCredentials | None, most: int) -> Iterator[LakeFile]:
        """All files below a folder, in the order of their paths; more than `most` are refused (`ConfigError`)."""
        true = true_path(folder).rstrip("/")
        found = self._bucket_list(true, credentials) if true.startswith("s3://") else _local_list(true)
        for number, file in enumerate(found):
            if number >= most:
                raise ConfigError(f"'{folder}' has more than {most:,} files: name a folder or a glob with fewer")
            yield file

    def each(self, call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """What `call` gives for each, in order; some at the same time, where there is a pool."""
        if self.pool is None:
            return map(call, items)
        return map_some(self.pool, call, items, AT_ONCE)

    def _store(self, bucket: str, credentials: StorageCredentials | None) -> Any:
        values = {} if credentials is None else {name: one.reveal() for name, one in credentials.values.items()}
        key = bucket, tuple(sorted(values.items()))
        store = self._stores.get(key)
        if store is None:
            options = store_options(values)
            store = open_store(f"s3://{bucket}", runtime=self.runtime, **options)
            self._stores.put(key, store, 1)
        return store

    @contextmanager
    def _bucket_file(
        self, path: str, credentials: StorageCredentials | None, size: int | None, version: str | None
    ) -> Iterator[OpenedFile]:
        bucket, key = split_bucket(path)
        store = self._store(bucket, _within(credentials, path))
        if size is None or not version:
            try:
                seen = store.look(key)
            except ObjectMissing:
                raise changed(path) from None
            size, version = seen.size, str(seen.version)
        found = LakeFile(path=path, size=size, version=version)
        try:
            with BucketFolder(store).open(PlainFile(path=key, size=size, version=version)) as pinned:
                yield OpenedFile(found, pinned.source, pinned.check)
        except SnapshotGone:
            raise changed(path) from None

    def _bucket_list(self, path: str, credentials: StorageCredentials | None) -> Iterator[LakeFile]:
        bucket, key = split_bucket(path)
        store = self._store(bucket, _within(credentials, path))
        for entry in store.entries(f"{key}/" if key else ""):
            if not entry.key.endswith("/"):
                yield LakeFile(path=f"s3://{bucket}/{entry.key}", size=entry.size, version=entry.version or "")


def store_options(values: Mapping[str, str]) -> dict[str, Any]:
    """Options of pyiceberg's FileIO as those of our stores; others are left out.

    >>> store_options({"s3.endpoint": "http://h", "s3.anonymous": "true", "uri": "x"})
    {'endpoint_url': 'http://h', 'anon': True}
    """
    found: dict[str, Any] = {_OPTIONS[name]: value for name, value in values.items() if name in _OPTIONS}
    if values.get(_ANONYMOUS, "").lower() == "true":
        found["anon"] = True
    return found


def changed(path: str) -> SnapshotGone:
    """The error for a file that is not what it was when it was planned."""
    return SnapshotGone(
        f"file '{path}' was changed or removed since the statement was planned: ask again, which plans it anew"
    )


def _within(credentials: StorageCredentials | None, path: str) -> StorageCredentials | None:
    if credentials is not None and not is_below(path, (credentials.location,)):
        raise ConfigError(f"the credentials of this scan are not for '{path}'")
    return credentials


@contextmanager
def _local_file(path: str, credentials: object, size: int | None, version: str | None) -> Iterator[OpenedFile]:
    del credentials, size, version  # what is there is told, and compared by whoever asked
    seen = _stat(path)
    try:
        opened = pa.OSFile(path, "rb")
    except OSError as error:
        raise _unreadable(path, error) from None

    def check() -> None:
        if _stat(path) != seen:
            raise changed(path)

    with opened:
        check()  # so that what was opened is what was looked at
        yield OpenedFile(seen, opened, check)


def _stat(path: str) -> LakeFile:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise changed(path)
    times = f"{found.st_mtime_ns:x}.{found.st_ctime_ns:x}"
    return LakeFile(path=path, size=found.st_size, version=f"{found.st_ino:x}.{found.st_size:x}.{times}")


def _local_list(path: str) -> Iterator[LakeFile]:
    if os.path.isfile(path):
        yield _stat(path)
        return
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(folder, error) from None
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                try:
                    yield _stat(entry.path)
                except SnapshotGone:
                    continue  # removed meanwhile


def _unreadable(path: str, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return changed(path)
    return StoreUnavailable(f"'{path}' cannot be read: {error.strerror}", key=path)
