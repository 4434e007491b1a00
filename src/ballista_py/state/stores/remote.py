"""What every store behind a network does alike: keys to paths, one request a verb, telling failures apart.

A backend sends one request and says in a `Trouble` what its client's error means; this module turns that into the
errors of `ConditionalStore`. A write is sent exactly once, because a client that repeats it reports its own
success as a conflict; reads, listings and deletes are repeated a few times. Error texts name the key and the code
of the store and never what the client said, which may hold a signature or an address with a token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from enum import Enum
from typing import Any, TypeVar

from attrs import frozen

from ballista_py.errors import (
    ConfigError,
    ObjectExists,
    OutcomeUnknown,
    StoreUnavailable,
    UnsafeStore,
    VersionConflict,
)
from ballista_py.runtime import Runtime
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

REQUEST_TIMEOUT_MS = 30_000.0
READ_TRIES = 8
BUSY_RETRY_MS = 40.0
LOST_RETRY_MS = 5.0  # short: a write may wait to be judged by this read while others commit on

CREDENTIALS = {  # how to give them, to whom there are none
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or give the store options key and secret, "
    "or anon=true for a bucket that everybody may write",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to the file of a key, or give the store option token",
    "abfs": "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY; or give "
    "the store options connection_string, or account_name and account_key",
}

R = TypeVar("R")


class Meaning(Enum):
    """What an error of a client says about the request that was sent."""

    MISSING = "nothing is stored there"
    MISMATCH = "the condition did not hold"
    RACED = "another write of the object was under way"
    BUSY = "the store sent the request away"
    REFUSED = "the store refused the request"
    UNPROVEN = "the store refused the request: it was shown no credentials that it takes"
    UNSENT = "the store could not be reached"
    UNKNOWN = "no usable reply came"


@frozen
class Trouble:
    """The meaning of an error, and its code in the words of the store, free of secrets."""

    meaning: Meaning
    code: str
    way_out: str = ""

    def __str__(self) -> str:
        said = f"{self.meaning.value} ({self.code})"
        return f"{said}: {self.way_out}" if self.way_out else said

    @classmethod
    def unproven(cls, scheme: str, code: str) -> Trouble:
        """There were no credentials; how to give some."""
        return cls(Meaning.UNPROVEN, code, CREDENTIALS[scheme])


class TooLargeError(Exception):
    """An object is larger than the caller takes. The rest of it stays where it is."""


def require_bound(size: int | None, max_bytes: int) -> None:
    """Raises `TooLargeError` for an answer that says that it is too large. One that says nothing passes."""
    if size is not None and size > max_bytes:
        raise TooLargeError


async def read_bounded(parts: AsyncIterator[bytes], max_bytes: int) -> bytes:
    """All of a body, whatever was said about its size. Raises `TooLargeError` as soon as it is too large."""
    found, size = [], 0
    async for part in parts:
        size += len(part)
        require_bound(size, max_bytes)
        found.append(part)
    return b"".join(found)


@frozen
class Page:
    """A part of a listing; `token` asks for the next one."""

    entries: tuple[ObjectEntry, ...]
    token: Any = None


class RemoteStore(ConditionalStore):
    """`ConditionalStore` over six requests that a backend brings; see the methods that start with `_send`."""

    def __init__(self, prefix: str, *, runtime: Runtime) -> None:
        self._prefix = check_key(prefix.strip("/")) + "/" if prefix.strip("/") else ""
        self._runtime = runtime

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        path = self._path(key)
        try:
            found = self._repeat(lambda: self._send_get(path, max_bytes), key, "cannot be read")
        except TooLargeError:
            raise too_large(key, max_bytes) from None
        if found is None:
            raise missing(key)
        return found

    def create(self, key: str, data: bytes) -> str:
        path = self._path(key)
        try:
            return self._send_create(path, data)
        except UnsafeStore:
            raise
        except Exception as error:
            trouble = self._trouble(error)
        if trouble.meaning is Meaning.MISMATCH:
            raise ObjectExists(f"object '{key}' exists already", key=key)
        raise _not_written(key, trouble)

    def replace(self, key: str, data: bytes, version: str) -> str:
        path = self._path(key)
        if not self._is_version(version):
            raise _conflict(key)
        try:
            return self._send_replace(path, data, version)
        except UnsafeStore:
            raise
        except Exception as error:
            trouble = self._trouble(error)
        if trouble.meaning in (Meaning.MISMATCH, Meaning.RACED, Meaning.MISSING):
            raise _conflict(key)
        raise _not_written(key, trouble)

    def delete(self, key: str) -> None:
        path = self._path(key)
        self._repeat(lambda: self._send_delete(path), key, "may not be deleted")

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        return (entry for entry in self.entries(prefix) if _is_key(entry.key))

    def entries(self, prefix: str) -> Iterator[ObjectEntry]:
        """As `list`, with the objects of others whose names are no keys."""
        path = self._prefix + check_prefix(prefix)
        token: Any = None
        while True:
            page = self._repeat(lambda token=token: self._send_list(path, token), prefix, "cannot be listed")  # type: ignore[misc]
            for entry in page.entries if page is not None else ():
                key = entry.key.removeprefix(self._prefix)
                yield ObjectEntry(key=key, size=entry.size, version=entry.version, modified_ms=entry.modified_ms)
            token = page.token if page is not None else None
            if token is None:
                return

    def _path(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _repeat(self, send: Callable[[], R], key: str, failed: str) -> R | None:
        """What `send` returns, None if nothing is there. Only for what may be repeated."""
        for tries in range(1, READ_TRIES + 1):
            try:
                return send()
            except (UnsafeStore, TooLargeError):
                raise
            except Exception as error:
                trouble = self._trouble(error)
            if trouble.meaning is Meaning.MISSING:
                return None
            if trouble.meaning in (Meaning.REFUSED, Meaning.UNPROVEN):
                break
            if tries < READ_TRIES:
                unit_ms = BUSY_RETRY_MS if trouble.meaning is Meaning.BUSY else LOST_RETRY_MS
                self._runtime.sleep_ms(unit_ms * (2 ** (tries - 1) - 1) * self._runtime.random())
        raise StoreUnavailable(f"object '{key}' {failed}: {trouble}", key=key)

    def _is_version(self, version: str) -> bool:
        """Whether the store may have given this version; others would mean something else to it ('*': any)."""
        return version not in ("", "*")

    def _send_get(self, path: str, max_bytes: int) -> StoredObject:
        raise AssertionError

    def _send_create(self, path: str, data: bytes) -> str:
        raise AssertionError

    def _send_replace(self, path: str, data: bytes, version: str) -> str:
        raise AssertionError

    def _send_delete(self, path: str) -> None:
        raise AssertionError

    def _send_list(self, path: str, token: Any) -> Page:
        raise AssertionError

    def _trouble(self, error: Exception) -> Trouble:
        raise AssertionError


def in_loop(filesystem: Any, work: Callable[..., Awaitable[R]], *arguments: Any) -> R:
    """Run a coroutine function on the loop of an fsspec filesystem and wait for it."""
    from fsspec.asyn import sync

    result: R = sync(filesystem.loop, work, *arguments)
    return result


def open_filesystem(scheme: str, kind: Callable[..., Any], **options: Any) -> Any:
    """A filesystem that shares nothing and caches nothing. A `ConfigError` tells no option's value."""
    try:
        return kind(**options, use_listings_cache=False, skip_instance_cache=True)
    except Exception as error:
        raise cannot_open(scheme, options, error) from None


def cannot_open(scheme: str, options: dict[str, Any], error: Exception) -> ConfigError:
    """The error for options that the client of `scheme` does not take."""
    names = ", ".join(sorted(options)) or "none"
    return ConfigError(
        f"{scheme}:// cannot be opened with the given options ({names}): {type(error).__name__}; "
        f"check their names and values. For credentials {CREDENTIALS[scheme]}"
    )


def aiohttp_trouble(error: BaseException) -> Trouble:
    """The meaning of an error below HTTP. Surely unsent is only what failed while connecting.

    Clients wrap a reset connection and a refused one alike, hence the look at what they wrapped.
    """
    import aiohttp

    code = type(error).__name__
    for inner in _wrapped(error):
        if isinstance(inner, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            return Trouble(Meaning.UNSENT, code)
    return Trouble(Meaning.UNKNOWN, code)


def meaning_of_status(status: int) -> Meaning:
    """What a bare HTTP status of 400 or above says. A gateway's 5xx does not tell whether the request landed."""
    if status == 404:
        return Meaning.MISSING
    if status == 412:
        return Meaning.MISMATCH
    if status == 429:
        return Meaning.BUSY
    return Meaning.REFUSED if 400 <= status < 500 and status != 408 else Meaning.UNKNOWN


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending: list[object] = [error]
    while pending:
        inner = pending.pop()
        if not isinstance(inner, BaseException) or id(inner) in seen:
            continue
        seen.add(id(inner))
        yield inner
        details = getattr(inner, "kwargs", None)
        wrapped = details.get("error") if isinstance(details, dict) else None
        pending += [inner.__cause__, wrapped, getattr(inner, "inner_exception", None)]


def _not_written(key: str, trouble: Trouble) -> StoreUnavailable | OutcomeUnknown:
    if trouble.meaning is Meaning.UNKNOWN:
        return OutcomeUnknown(f"object '{key}' may be written: {trouble}", key=key)
    return StoreUnavailable(f"object '{key}' was not written: {trouble}", key=key)


def _conflict(key: str) -> VersionConflict:
    return VersionConflict(f"object '{key}' was changed or removed by another writer", key=key)


def _is_key(key: str) -> bool:
    try:
        check_key(key)
    except ConfigError:  # a stranger's object whose name is no key
        return False
    return True
