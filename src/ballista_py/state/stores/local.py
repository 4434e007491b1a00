"""`file:///folder`: documents and data as plain files, correct between the processes of one machine.

Objects lie under their keys, so other programs read and write data files there. Readers take no lock. A writer
prepares a temporary file, takes the lock of the key for the instant of *check and rename*, and so a `kill -9` at
any line leaves the old object or the new one, whole. Versions never come from times, sizes or inodes: an object
changed by `replace` carries a random nonce written as white space behind its last byte, which JSON readers
skip and `get` takes off; one that was only created, by us or by a stranger, has no nonce and is known by its
contents. `docs/design/020-local-store.md` says why.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ballista_py.errors import ConfigError, ObjectExists, OutcomeUnknown, StoreUnavailable, VersionConflict
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.stores.store import (
    MAX_DOCUMENT_BYTES,
    ConditionalStore,
    ObjectEntry,
    StoredObject,
    check_key,
    check_prefix,
    missing,
    too_large,
)

_BITS = 128
_MARKS = b" \t"
_AS_DIGITS = bytes.maketrans(_MARKS, b"01")
NONCE_BYTES = 1 + _BITS
PRIVATE_FOLDER = ".ballista-local"
LOCK_FILES = 1_024
LOCK_WAIT_MS = 10_000.0
_TEMP_NAME_TRIES = 8
_CANNOT_HOLD = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}


def with_nonce(data: bytes, nonce: str) -> bytes:
    """`data` and behind it a line feed and the 128 bits of `nonce`, 32 hexadecimal digits, as spaces and tabs.

    >>> read_nonce(with_nonce(b"{}", "00" * 15 + "2a")[-NONCE_BYTES:])
    '0000000000000000000000000000002a'
    """
    bits = f"{int(nonce, 16):0{_BITS}b}"
    return data + b"\n" + bytes(_MARKS[bit == "1"] for bit in bits)


def read_nonce(tail: bytes) -> str | None:
    """The nonce that the last `NONCE_BYTES` bytes of a file are, or None if they are something else."""
    if len(tail) != NONCE_BYTES or tail[0:1] != b"\n" or tail[1:].strip(_MARKS):
        return None
    return f"{int(tail[1:].translate(_AS_DIGITS), 2):032x}"


class LocalStore(ConditionalStore):
    """A folder of this machine as a `ConditionalStore`. The folder is made if it is missing.

    Raises `ConfigError` for a folder that cannot be written and for keys that lead out of it, by symbolic links
    too. A key cannot be both an object and the folder of others. Leftovers of killed writers are swept when a
    store is opened.
    """

    def __init__(self, folder: str, *, runtime: Runtime | None = None) -> None:
        self._runtime = runtime or SystemRuntime()
        self._root = os.path.realpath(folder)
        self._locks = os.path.join(self._root, PRIVATE_FOLDER, "locks")
        self._temps = os.path.join(self._root, PRIVATE_FOLDER, "temporary")
        try:
            os.makedirs(self._locks, exist_ok=True)
            os.makedirs(self._temps, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"state location '{folder}' cannot be written: {error.strerror}") from error
        if not all(os.access(path, os.W_OK | os.X_OK) for path in (self._root, self._locks, self._temps)):
            raise ConfigError(f"state location '{folder}' cannot be written: permission denied")
        _sweep(self._temps)

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        try:
            with open(self._path(key), "rb") as file:
                if os.fstat(file.fileno()).st_size > max_bytes + NONCE_BYTES:
                    raise too_large(key, max_bytes)
                raw = file.read()
        except OSError as error:
            raise _read_error(key, error) from error
        nonce = read_nonce(raw[-NONCE_BYTES:])
        if len(raw) - (NONCE_BYTES if nonce is not None else 0) > max_bytes:
            raise too_large(key, max_bytes)
        if nonce is None:
            return StoredObject(raw, _content_version(raw))
        return StoredObject(raw[:-NONCE_BYTES], nonce)

    def create(self, key: str, data: bytes) -> str:
        def check(path: str) -> None:
            if os.path.lexists(path):
                if os.path.isdir(path):
                    raise ConfigError(
                        f"object '{key}' cannot be stored: other objects lie below that key", key=key
                    )
                raise ObjectExists(f"object '{key}' exists already", key=key)

        if read_nonce(data[-NONCE_BYTES:]) is not None:  # taken for a nonce of ours, so it gets one
            return self._put(key, data, check, nonce=self._runtime.new_id())
        return self._put(key, data, check, nonce=None)

    def replace(self, key: str, data: bytes, version: str) -> str:
        def check(path: str) -> None:
            if _version_of(path, full=True) != version:
                raise VersionConflict(f"object '{key}' was changed or removed by another writer", key=key)

        return self._put(key, data, check, nonce=self._runtime.new_id())

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            with self._locked(key):
                os.unlink(path)
            _fsync_folder(os.path.dirname(path))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        except OSError as error:
            if not os.path.isdir(path):  # some systems answer EPERM for a folder
                raise OutcomeUnknown(f"object '{key}' may be deleted: {error.strerror}", key=key) from error

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        check_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self._root
        keys = [key for key in _walk(start, folder + "/" if folder else "") if key.startswith(prefix)]
        for key in sorted(keys):
            entry = self._entry(key)
            if entry is not None:
                yield entry

    def local_path(self, key: str) -> str:
        return self._path(key)

    def _entry(self, key: str) -> ObjectEntry | None:
        try:
            path = self._path(key)
            found = os.stat(path)
        except (OSError, ConfigError):  # gone meanwhile, or a link that leads out: no object of this store
            return None
        version = _version_of(path, full=False)
        size = found.st_size - (NONCE_BYTES if version is not None else 0)
        return ObjectEntry(key=key, size=size, version=version, modified_ms=found.st_mtime_ns // 1_000_000)

    def _path(self, key: str) -> str:
        """The file of `key`, surely inside the folder."""
        if check_key(key).split("/", 1)[0] == PRIVATE_FOLDER:
            raise ConfigError(f"key '{key}' is not usable: '{PRIVATE_FOLDER}' belongs to the store", key=key)
        path = os.path.join(self._root, key)
        real = os.path.realpath(path)
        if not real.startswith(self._root.rstrip("/") + "/"):
            raise ConfigError(f"key '{key}' is not usable: it leads out of the state location", key=key)
        return path

    def _put(self, key: str, data: bytes, check: Callable[[str], None], nonce: str | None) -> str:
        """Write `data` under `key` if `check` lets it pass, decided and done under the lock of the key."""
        path = self._path(key)
        renamed = False
        try:
            with self._temporary(data, nonce) as temp:
                _make_folders(os.path.dirname(path))
                with self._locked(key):
                    check(path)
                    os.replace(temp, path)
                    renamed = True
            _fsync_folder(os.path.dirname(path))
        except OSError as error:
            if renamed or error.errno == errno.EIO:
                raise OutcomeUnknown(f"object '{key}' may be written: {error.strerror}", key=key) from error
            if error.errno in _CANNOT_HOLD:
                message = f"object '{key}' cannot be stored: {error.strerror} (an object is no folder of others)"
                raise ConfigError(message, key=key) from error
            raise StoreUnavailable(f"object '{key}' was not written: {error.strerror}", key=key) from error
        return nonce if nonce is not None else _content_version(data)

    @contextmanager
    def _temporary(self, data: bytes, nonce: str | None) -> Iterator[str]:
        """A durable file with these bytes. Its lock says that the writer lives, so that nobody sweeps it."""
        path, fd = self._new_temporary()
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
                if nonce is not None:
                    file.write(with_nonce(b"", nonce))
            os.fsync(fd)
            yield path
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
            os.close(fd)

    def _new_temporary(self) -> tuple[str, int]:
        for _ in range(_TEMP_NAME_TRIES):
            path = os.path.join(self._temps, self._runtime.new_id())
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # A sweeper may take the file between these two lines: then it is gone, and another name is tried.
            if _try_lock(fd) and os.fstat(fd).st_nlink == 1:
                return path, fd
            os.close(fd)
        raise StoreUnavailable("no temporary file could be made in the state location")

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Alone with `key` on this machine. A lock file is never deleted, else two of one name could be locked."""
        number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest()) % LOCK_FILES
        fd = os.open(os.path.join(self._locks, f"{number:04d}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait_for_lock(fd, key)
            try:
                yield
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough: a forked child may share the file
        finally:
            os.close(fd)

    def _wait_for_lock(self, fd: int, key: str) -> None:
        deadline_ms = self._runtime.monotonic_ms() + LOCK_WAIT_MS
        pause_ms = 0.05
        while not _try_lock(fd):
            if self._runtime.monotonic_ms() > deadline_ms:
                raise StoreUnavailable(
                    f"object '{key}' was not written: its lock is held by a stuck process", key=key
                )
            self._runtime.sleep_ms(pause_ms * (0.5 + self._runtime.random()))
            pause_ms = min(2 * pause_ms, 10.0)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _content_version(data: bytes) -> str:
    return "c" + _content_digest(data).hexdigest()


def _content_digest(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


def _version_of(path: str, *, full: bool) -> str | None:
    """The version of a file; without `full`, None for one that only its contents tell. None if it is missing."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - NONCE_BYTES))
            nonce = read_nonce(file.read(NONCE_BYTES))
            if nonce is not None or not full:
                return nonce
            file.seek(0)
            return "c" + hashlib.file_digest(file, _content_digest).hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _read_error(key: str, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return missing(key)
    return StoreUnavailable(f"object '{key}' cannot be read: {error.strerror}", key=key)


def _walk(folder: str, prefix: str) -> Iterator[str]:
    """The keys of the files below `folder`; links to folders are not followed, so there is no circle."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        key = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if key != PRIVATE_FOLDER:
                yield from _walk(entry.path, key + "/")
        elif entry.is_file():
            try:
                yield check_key(key)
            except ConfigError:  # a stranger's file whose name is no key
                continue


def _make_folders(folder: str) -> None:
    """Make the folder and its parents, each durable in the one above it."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folders(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _fsync_folder(parent)


def _fsync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sweep(folder: str) -> None:
    """Delete the temporary files of writers that are no more: those whose lock nobody holds."""
    for entry in os.scandir(folder):
        try:
            fd = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if _try_lock(fd):
                with suppress(OSError):
                    os.unlink(entry.path)
        finally:
            os.close(fd)
