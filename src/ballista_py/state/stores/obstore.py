"""Any store of obstore as a `ConditionalStore`, for applications that have one at hand.

obstore says the same for "condition did not hold" and "another write was under way", and its text alone tells a
throttled request from a lost one; where that leaves doubt, the doubt is passed on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ballista_py.errors import ConfigError, ObjectExists, StoreUnavailable, UnsafeStore
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.stores.remote import Meaning, Page, RemoteStore, Trouble, require_bound
from ballista_py.state.stores.store import ObjectEntry, StoredObject

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_MEANINGS = {
    "NotFoundError": Meaning.MISSING,
    "FileNotFoundError": Meaning.MISSING,
    "AlreadyExistsError": Meaning.MISMATCH,
    "PreconditionError": Meaning.MISMATCH,
    "PermissionDeniedError": Meaning.REFUSED,
    "UnauthenticatedError": Meaning.REFUSED,
    "InvalidPathError": Meaning.REFUSED,
    "UnknownConfigurationKeyError": Meaning.REFUSED,
}
_NEVER_ASKED = ("NotSupportedError", "NotImplementedError")
_BUSY = re.compile(r"SlowDown|ServerBusy|\b429\b")


class ObstoreStore(RemoteStore):
    """The objects of `store`, an obstore store, below its own prefix.

    A store that talks to a network must be built with `retry_config={"max_retries": 0}`, because a write that is
    repeated below reports its own success as a conflict; else `ConfigError`. A store without conditional writes
    (obstore's `LocalStore`) raises `UnsafeStore` on the first `replace`.

    >>> from obstore.store import MemoryStore
    >>> store = ObstoreStore(MemoryStore())
    >>> version = store.create("a", b"1")
    >>> store.get("a") == StoredObject(b"1", version)
    True
    """

    def __init__(self, store: ObjectStore, *, runtime: Runtime | None = None) -> None:
        super().__init__("", runtime=runtime or SystemRuntime())
        if hasattr(store, "retry_config") and (store.retry_config or {}).get("max_retries") != 0:
            raise ConfigError(
                f"{type(store).__name__} of obstore repeats writes whose reply was lost: "
                "build it with retry_config={'max_retries': 0}"
            )
        self._store = store

    def __repr__(self) -> str:
        return f"ObstoreStore({type(self._store).__name__})"

    def create(self, key: str, data: bytes) -> str:
        try:
            return super().create(key, data)
        except ObjectExists:  # also said when two creations met and this one was sent away
            if self._repeat(lambda: self._store.head(self._path(key)), key, "cannot be read") is not None:
                raise
        raise StoreUnavailable(f"object '{key}' was not written: another write of it was under way", key=key)

    def _send_get(self, path: str, max_bytes: int) -> StoredObject:
        found = self._store.get(path)
        require_bound(found.meta["size"], max_bytes)
        return StoredObject(bytes(found.bytes()), _version(found.meta))

    def _send_create(self, path: str, data: bytes) -> str:
        return _version(self._store.put(path, data, mode="create", use_multipart=False))

    def _send_replace(self, path: str, data: bytes, version: str) -> str:
        try:
            return _version(self._store.put(path, data, mode={"e_tag": version}, use_multipart=False))
        except Exception as error:
            if type(error).__name__ in _NEVER_ASKED:
                raise UnsafeStore(
                    f"object '{path}' was not written: {self!r} cannot write on a condition; use another store"
                ) from None
            raise

    def _send_delete(self, path: str) -> None:
        self._store.delete(path)

    def _send_list(self, path: str, token: Any) -> Page:
        # obstore matches whole parts of paths, so ask for the folder and choose here.
        folder = path.rpartition("/")[0]
        entries = [
            ObjectEntry(
                key=found["path"],
                size=found["size"],
                version=found["e_tag"],
                modified_ms=int(found["last_modified"].timestamp() * 1e3),
            )
            for part in self._store.list(folder or None)
            for found in part
            if found["path"].startswith(path)
        ]
        return Page(tuple(sorted(entries, key=lambda entry: entry.key)))

    def _trouble(self, error: Exception) -> Trouble:
        name = type(error).__name__
        if name in _MEANINGS:
            return Trouble(_MEANINGS[name], name)
        return Trouble(Meaning.BUSY if _BUSY.search(str(error)) else Meaning.UNKNOWN, name)


def _version(meta: Any) -> str:
    if not meta["e_tag"]:
        raise UnsafeStore(f"the store gives no version with object '{meta.get('path', '')}'; use another store")
    return str(meta["e_tag"])
