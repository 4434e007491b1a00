"""`memory://`: a store inside the process, for tests, simulations and trying things out."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from ballista_py.errors import ObjectExists, VersionConflict
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


@frozen
class _Kept:
    data: bytes
    version: str
    modified_ms: int


class MemoryStore(ConditionalStore):
    """Keeps every promise of `ConditionalStore` between the threads of one process; nothing survives it.

    >>> store = MemoryStore()
    >>> version = store.create("a", b"1")
    >>> store.get("a") == StoredObject(b"1", version)
    True
    """

    def __init__(self, *, runtime: Runtime | None = None) -> None:
        self._runtime = runtime or SystemRuntime()
        self._lock = self._runtime.lock()
        self._objects: dict[str, _Kept] = {}
        self._writes = 0

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        check_key(key)
        with self._lock:
            kept = self._objects.get(key)
        if kept is None:
            raise missing(key)
        if len(kept.data) > max_bytes:
            raise too_large(key, max_bytes)
        return StoredObject(kept.data, kept.version)

    def create(self, key: str, data: bytes) -> str:
        check_key(key)
        with self._lock:
            if key in self._objects:
                raise ObjectExists(f"object '{key}' exists already", key=key)
            return self._put(key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        check_key(key)
        with self._lock:
            kept = self._objects.get(key)
            if kept is None or kept.version != version:
                raise VersionConflict(f"object '{key}' was changed or removed by another writer", key=key)
            return self._put(key, data)

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            self._objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        check_prefix(prefix)
        with self._lock:
            found = [(k, self._objects[k]) for k in sorted(self._objects) if k.startswith(prefix)]
        for key, kept in found:
            yield ObjectEntry(key=key, size=len(kept.data), version=kept.version, modified_ms=kept.modified_ms)

    def _put(self, key: str, data: bytes) -> str:
        self._writes += 1
        version = f"m{self._writes}"
        self._objects[key] = _Kept(bytes(data), version, self._runtime.wall_ms())
        return version


_NAMED: dict[str, MemoryStore] = {}
_NAMED_LOCK = SystemRuntime().lock()


def named(name: str, runtime: Runtime) -> MemoryStore:
    """The store of that name in this process; the first call makes it."""
    with _NAMED_LOCK:
        return _NAMED.setdefault(name, MemoryStore(runtime=runtime))
