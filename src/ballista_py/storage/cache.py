"""Data files of the state location as plain files of this machine, for as long as they are being read.

On a local store they are used where they lie. From any other store they are copied into a folder that never holds
more than its bound (but for files in use), checked against the manifest, and kept for the next reader.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from weakref import finalize

from ballista_py.errors import ConfigError, StoreUnavailable
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.store import ConditionalStore, local_path
from ballista_py.storage.files import check_bytes, check_local, require_known_format
from ballista_py.storage.manifest import DataFile

DEFAULT_MAX_BYTES = 8 << 30
_COPY = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]+)?$")


class FileCache:
    """Safe to share between threads. A `folder` serves one cache at a time; copies of an earlier one are removed.

    Without a `folder` a temporary one is made at the first copy. A file larger than `max_bytes` is still copied,
    and removed after its use. Raises `ConfigError` when the folder cannot be used.
    """

    def __init__(
        self,
        store: ConditionalStore,
        folder: str | None = None,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        runtime: Runtime | None = None,
    ) -> None:
        self._store = store
        self._runtime = runtime or SystemRuntime()
        self._max_bytes = max_bytes
        self._lock = self._runtime.lock()
        self._folder = folder
        self._sizes: OrderedDict[str, int] = OrderedDict()  # path -> bytes, least recently used first
        self._readers: dict[str, int] = {}
        if folder is not None:
            _remove_copies(folder)

    def acquire(self, file: DataFile) -> str:
        """Where the file lies, until the path is handed to `release`.

        Raises `ObjectMissing`, `DocumentUnreadable` for a file that is not what its manifest says,
        `ConfigError` for an unknown format, `StoreUnavailable`.
        """
        require_known_format(file)
        path = local_path(self._store, file.path)
        if path is not None and file.format == "vortex":  # which itself does not notice damage
            check_local(path, file)
        return path or self._copy(file)

    def release(self, paths: Iterable[str]) -> None:
        """Let go of paths that `acquire` gave."""
        with self._lock:
            for path in paths:
                left = self._readers.get(path, 0) - 1
                if left > 0:
                    self._readers[path] = left
                else:
                    self._readers.pop(path, None)
            self._evict()

    @property
    def bytes(self) -> int:
        """How much the copies take now."""
        with self._lock:
            return sum(self._sizes.values())

    def _copy(self, file: DataFile) -> str:
        path = os.path.join(self._home(), sha256(file.path.encode()).hexdigest())
        with self._lock:
            self._readers[path] = self._readers.get(path, 0) + 1
            if path in self._sizes:
                self._sizes.move_to_end(path)
                return path
        temporary = f"{path}.{self._runtime.new_id()}"
        try:
            data = check_bytes(self._store.get(file.path).data, file)
            with open(temporary, "wb") as copy:
                copy.write(data)
            os.replace(temporary, path)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary)
            self.release([path])
            if isinstance(error, OSError):
                raise StoreUnavailable(f"data file '{file.path}' cannot be cached: {error.strerror}") from error
            raise
        with self._lock:
            self._sizes[path] = file.bytes
        return path

    def _evict(self) -> None:
        excess = sum(self._sizes.values()) - self._max_bytes
        for path in [path for path in self._sizes if path not in self._readers]:
            if excess <= 0:
                return
            excess -= self._sizes.pop(path)
            with suppress(FileNotFoundError):
                os.unlink(path)

    def close(self) -> None:
        """Remove every copy."""
        with self._lock:
            self._readers.clear()
            self._max_bytes = 0
            self._evict()

    def _home(self) -> str:
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.mkdtemp(prefix="ballista-files-")
                finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            return self._folder


def _remove_copies(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
        for name in filter(_COPY.match, os.listdir(folder)):
            os.unlink(os.path.join(folder, name))
    except OSError as error:
        raise ConfigError(f"cache folder '{folder}' cannot be used: {error.strerror}") from error
