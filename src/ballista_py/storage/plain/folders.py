"""A folder whose files others write: what lies there, each file with its version, and reading exactly that version.

Nobody keeps these files for us. So whoever reads one says which version of it, and is told `SnapshotGone` where that
is there no more: never other rows.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast
from urllib.parse import unquote

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import (
    ConfigError,
    ObjectMissing,
    SnapshotGone,
    StoreUnavailable,
    TryLater,
    VersionConflict,
)
from ballista_py.runtime import Runtime
from ballista_py.state.stores.remote import RemoteStore
from ballista_py.state.stores.store import check_key, open_store

SETTLE_MS = 50.0  # after which a change of a file has another time than the one before
MAX_LOOKS = 20


@frozen(kw_only=True)
class PlainFile:
    """A file below the folder: its path from there, and what tells its bytes from what they were and will be.

    `odd` says why it cannot be read, if it cannot.
    """

    path: str
    size: int
    version: str
    odd: str = ""


class PinnedFile(Protocol):
    """One version of a file, open."""

    @property
    def source(self) -> pa.NativeFile:
        """Its bytes, wherever a reader wants them."""
        ...

    def check(self) -> None:
        """That what was read until now is of that version. Raises `SnapshotGone`, and what reading raised."""
        ...


class PlainFolder(Protocol):
    """What lies in a folder. Safe to share between threads."""

    def files(self, prefix: str = "") -> list[PlainFile]:
        """The files whose paths start with `prefix`, in order of their paths. Raises `StoreUnavailable`, and `TryLater`
        for one that is being changed."""
        ...

    def open(self, file: PlainFile) -> Any:
        """A context manager that gives the `PinnedFile`. Raises `SnapshotGone`."""
        ...


def open_folder(location: str, runtime: Runtime, **options: Any) -> PlainFolder:
    """The folder at `/absolute/path`, `file:///absolute/path` or `s3://bucket/prefix`.

    Raises `ConfigError` for any other location, a folder that is missing and options that are not known.
    """
    scheme, separator, rest = location.partition("://")
    if separator and scheme == "s3":
        return BucketFolder(cast(RemoteStore, open_store(location.rstrip("/"), runtime=runtime, **options)))
    path = unquote(rest.removeprefix("localhost")) if separator and scheme == "file" else location
    if (separator and scheme != "file") or not path.startswith("/"):
        raise ConfigError(
            f"'{location}' cannot be served: take the absolute path of a folder, or s3://bucket/prefix"
        )
    if options:
        raise ConfigError(f"a folder of this machine takes no store option '{min(options)}'")
    if not os.path.isdir(path):
        raise ConfigError(f"there is no folder '{path}'")
    return LocalFolder(path, runtime)


@frozen
class LocalFolder:
    """A folder of this machine. A version is a file's number, size and times.

    A file that is written in place is seen by its times, which the system counts in steps: one that was changed less
    than `SETTLE_MS` ago is looked at again, so that whatever changes it next gives it another time.
    """

    root: str
    runtime: Runtime

    def files(self, prefix: str = "") -> list[PlainFile]:
        """See `PlainFolder`. Links to folders are not followed."""
        for _ in range(MAX_LOOKS):
            found, changed_ms = self._look(prefix)
            now_ms = self.runtime.wall_ms()
            if all(abs(now_ms - one) > SETTLE_MS for one in changed_ms):
                return found
            self.runtime.sleep_ms(SETTLE_MS)
        raise TryLater("files of the folder are being changed all the time: read again when that is done")

    @contextmanager
    def open(self, file: PlainFile) -> Iterator[PinnedFile]:
        """See `PlainFolder`."""
        try:
            number = os.open(os.path.join(self.root, file.path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise gone(file.path) from None
            raise _unreadable(file.path, error) from None
        if _version_of(os.fstat(number)) != file.version:  # it may be a folder by now
            os.close(number)
            raise gone(file.path)
        with open(number, "rb", buffering=0) as opened:
            yield _LocalVersion(opened, file)

    def _look(self, prefix: str) -> tuple[list[PlainFile], list[float]]:
        """The files, and when each of them was changed last, whatever was written as its time."""
        found: list[PlainFile] = []
        changed_ms: list[float] = []
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                entries = list(os.scandir(os.path.join(self.root, folder)))
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:
                raise _unreadable(folder or "the folder", error) from None
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if not (path.startswith(prefix) or prefix.startswith(f"{path}/")):
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(path)
                        continue
                    seen = os.stat(os.path.join(self.root, path))
                except OSError:
                    if entry.is_symlink():  # to nowhere
                        found.append(PlainFile(path=path, size=0, version="", odd="a link to nowhere"))
                    continue  # removed meanwhile
                if not path.startswith(prefix):
                    continue
                changed_ms.append(seen.st_ctime_ns / 1e6)
                odd = _odd(path) if stat.S_ISREG(seen.st_mode) else "no regular file"
                found.append(PlainFile(path=path, size=seen.st_size, version=_version_of(seen), odd=odd))
        return sorted(found, key=lambda file: file.path), changed_ms


class _LocalVersion:
    """A file of this machine, which is looked at again after each read."""

    def __init__(self, opened: Any, file: PlainFile) -> None:
        self._opened = opened
        self._file = file
        self.source = pa.PythonFile(opened, mode="r")

    def check(self) -> None:
        if _version_of(os.fstat(self._opened.fileno())) != self._file.version:
            raise gone(self._file.path)


@frozen
class BucketFolder:
    """A folder of a bucket. A version is an ETag, which each request for a part of the file names."""

    store: RemoteStore

    def files(self, prefix: str = "") -> list[PlainFile]:
        """See `PlainFolder`."""
        return [
            PlainFile(path=entry.key, size=entry.size, version=entry.version or "", odd=_odd(entry.key))
            for entry in self.store.entries(prefix)
            if entry.key and not entry.key.endswith("/")  # a marker of a folder
        ]

    @contextmanager
    def open(self, file: PlainFile) -> Iterator[PinnedFile]:
        """See `PlainFolder`."""
        yield _BucketVersion(self.store, file)


class _BucketVersion(io.RawIOBase):
    """Parts of one version of an object, as a file."""

    def __init__(self, store: Any, file: PlainFile) -> None:
        super().__init__()
        self._store = store
        self._file = file
        self._at = 0
        self._error: BaseException | None = None  # pyarrow may make a text of it
        self.source = pa.PythonFile(self, mode="r")

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._file.size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        try:
            data = bytes(self._store.get_range(self._file.path, self._file.version, self._at, wanted))
        except (ObjectMissing, VersionConflict):
            self._error = gone(self._file.path)
            raise self._error from None
        except BaseException as error:
            self._error = error
            raise
        self._at += len(data)
        return data


def gone(path: str) -> SnapshotGone:
    """The error for a file that is not what it was when the job began."""
    return SnapshotGone(f"file '{path}' was changed or removed since the read job began: read again")


def _odd(path: str) -> str:
    try:
        check_key(path)
    except ConfigError:
        return "a name that cannot be used"
    return ""


def _version_of(seen: os.stat_result) -> str:
    return f"{seen.st_ino:x}.{seen.st_size:x}.{seen.st_mtime_ns:x}.{seen.st_ctime_ns:x}"


def _unreadable(path: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"'{path}' cannot be read: {error.strerror}", key=path)
