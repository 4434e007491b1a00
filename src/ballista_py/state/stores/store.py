"""The one face of every object store: five verbs over bytes, two of them conditional.

Everything above builds on two promises: `create` writes only where nothing is, `replace` writes only over the
version that the caller read, and both are decided at the store. What a backend cannot promise it must not fake.
Which URL opens which backend is decided here; how a backend keeps its promises is its own module's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote

from attrs import frozen

from ballista_py.errors import ConfigError, DocumentUnreadable, ObjectMissing
from ballista_py.runtime import Runtime, SystemRuntime

MAX_KEY_BYTES = 1_024
MAX_KEY_SEGMENT_BYTES = 240
MAX_DOCUMENT_BYTES = 64 << 20  # whoever expects more than a document says how much


@frozen
class StoredObject:
    """The bytes of an object and the version under which the store holds exactly them."""

    data: bytes
    version: str


@frozen(kw_only=True)
class ObjectEntry:
    """One object of a listing. `version` is None where the store does not tell it without a read."""

    key: str
    size: int
    version: str | None
    modified_ms: int


class ConditionalStore(Protocol):
    """Bytes under keys. Blocking calls, safe to share between threads; no cache stands in between.

    Keys are relative paths with `/` between their parts (see `check_key`). Every verb may raise `StoreUnavailable`
    (surely nothing was written); those that write may raise `OutcomeUnknown` (sent, and no reply came), which
    is neither success nor conflict. Errors name the key.
    """

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        """The newest object under `key`, whole.

        Raises `ObjectMissing`, and `DocumentUnreadable` for one of more than `max_bytes`, before its bytes are taken
        (`too_large`): what lies there may be anything, of any size.
        """
        ...

    def create(self, key: str, data: bytes) -> str:
        """Write where nothing is, atomically; returns the version. Raises `ObjectExists`."""
        ...

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Write over exactly `version`, atomically; returns the new version.

        Raises `VersionConflict` when the object has another version or is missing.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove whatever is there; a missing object is fine. Unconditional: only for what nobody else writes."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        """The objects whose keys start with `prefix`, in order of their keys."""
        ...

    def get_if_changed(self, key: str, version: str) -> StoredObject | None:
        """The object, or None when it still has `version`. Raises `ObjectMissing`."""
        found = self.get(key)
        return None if found.version == version else found


@runtime_checkable
class LocalFiles(Protocol):
    """What a store offers in addition when its objects are plain files of this machine."""

    def local_path(self, key: str) -> str:
        """The path of the object's file. Its bytes are the object's for every object written by `create`."""
        ...


def local_path(store: ConditionalStore, key: str) -> str | None:
    """Where another program on this machine finds the object as a plain file, or None if the store is elsewhere.

    The file of an immutable object (one that is created and never replaced) holds exactly its bytes. Nothing is
    said about whether it exists. A file that another program puts there is an object like any other.
    """
    return store.local_path(key) if isinstance(store, LocalFiles) else None


_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\\]")


def check_key(key: str) -> str:
    """`key` itself if it is usable on every backend, else `ConfigError`.

    Usable: parts between single `/`, none empty, `.` or `..`; no control characters or backslashes; at most
    1,024 bytes of UTF-8, 240 a part.

    >>> check_key("heartbeats/s1.json")
    'heartbeats/s1.json'
    """
    reason = _objection(key)
    if reason is not None:
        raise ConfigError(f"key {key[:200]!r} is not usable: {reason}", key=key[:200])
    return key


def check_prefix(prefix: str) -> str:
    """`prefix` itself if some usable key may start with it, else `ConfigError`."""
    if prefix:
        check_key(prefix + "x")
    return prefix


def _objection(key: str) -> str | None:
    if _UNUSABLE.search(key):
        return "it holds a control character or a backslash"
    try:
        parts = [part.encode() for part in key.split("/")]
    except UnicodeEncodeError:
        return "it is not valid unicode"
    if any(part in (b"", b".", b"..") for part in parts):
        return "a part of it is empty, '.' or '..'"
    if max(map(len, parts)) > MAX_KEY_SEGMENT_BYTES or len(key.encode()) > MAX_KEY_BYTES:
        return f"it is longer than {MAX_KEY_BYTES} bytes, or a part of it than {MAX_KEY_SEGMENT_BYTES}"
    return None


def open_store(url: str, *, runtime: Runtime | None = None, **options: Any) -> ConditionalStore:
    """The store under `url`: `file:///absolute/folder`, `s3://`, `gs://` or `abfs://bucket/prefix`, `memory://name`.

    A folder is made if it is missing; a bucket must be there. `memory://name` is one store a process and name,
    gone with the process. Options of a remote store go to its client (see `docs/guide-stores.md`). Raises
    `ConfigError` for a location that cannot be used and for options that the backend does not know, `MissingExtra`
    where the client of a remote store is not installed.

    >>> open_store("memory://docs").create("a", b"1") != ""
    True
    """
    from ballista_py.state.stores import local, memory

    require_location(url)
    runtime = runtime or SystemRuntime()
    scheme, _, rest = url.partition("://")
    if scheme in _REMOTE:
        return _open_remote(scheme, rest, runtime, options)
    if options:
        raise ConfigError(f"{scheme}:// takes no option '{sorted(options)[0]}'")
    if scheme == "memory":
        return memory.named(rest, runtime)
    return local.LocalStore(_folder(rest), runtime=runtime)


def require_location(url: str) -> None:
    """Raise `ConfigError` for a text that names no location, whatever is there.

    >>> require_location("./state")
    Traceback (most recent call last):
    ballista_py.errors.ConfigError: state location './state' is not usable: take file:///absolute/folder, \
s3://bucket/prefix, gs://bucket/prefix, abfs://container/prefix or memory://name
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _REMOTE:
        if not rest.partition("/")[0] or "@" in rest.partition("/")[0] or "?" in rest:
            raise ConfigError(
                f"state location '{scheme}://…' is not usable: take {scheme}://bucket/prefix and options"
            )
    elif not separator or scheme not in ("file", "memory"):
        raise ConfigError(
            f"state location '{url}' is not usable: take file:///absolute/folder, s3://bucket/prefix, "
            "gs://bucket/prefix, abfs://container/prefix or memory://name"
        )
    elif scheme == "file" and not _folder(rest).startswith("/"):
        raise ConfigError(f"state location '{url}' is not usable: a file:// location needs an absolute folder")


def _folder(rest: str) -> str:
    return unquote(rest.removeprefix("localhost"))


_REMOTE = {"s3": ("s3", "S3Store"), "gs": ("gcs", "GcsStore"), "abfs": ("azure", "AzureStore")}


def _open_remote(scheme: str, rest: str, runtime: Runtime, options: dict[str, Any]) -> ConditionalStore:
    from importlib import import_module

    bucket, _, prefix = rest.partition("/")
    module, kind = _REMOTE[scheme]
    store: ConditionalStore = getattr(import_module(f"ballista_py.state.stores.{module}"), kind)(
        bucket, prefix, runtime=runtime, **options
    )
    return store


def too_large(key: str, max_bytes: int) -> DocumentUnreadable:
    """The error for an object that is larger than whatever belongs under its key."""
    return DocumentUnreadable(
        f"object '{key}' has more than {max_bytes:,} bytes, which nothing that belongs there has: it was not read; "
        "put back what was there",
        key=key,
    )


def missing(key: str) -> ObjectMissing:
    """The error for a key under which nothing is stored."""
    return ObjectMissing(f"object '{key}' does not exist", key=key)
