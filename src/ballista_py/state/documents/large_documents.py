"""Large documents are measured before they are parsed, parsed one at a time, and kept once for all their readers.

JSON takes up to thirty times its bytes once it is parsed, and what a release does not know in a document it keeps. So
an object of 60 MB made of empty lists would cost each loop that reads it 2 GB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from attrs import frozen

from ballista_py.errors import BallistaError, DocumentUnreadable
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES, ConditionalStore, StoredObject

LARGE_BYTES = 1 << 20
SHARED_BYTES = 16 << 10  # a catalog of twenty tables; what is smaller is read faster than it is found
ALONE_BYTES = 8 << 20  # a map of more than 700,000 partitions; such ones are also read one at a time
MAX_PARSED_BYTES = 256 << 20  # a map of a million partitions has 132 MiB by this measure
# What Python takes for it at most, with its place in what it is in.
_OBJECT_BYTES, _VALUE_BYTES = 192, 64

T = TypeVar("T")
_reading = SystemRuntime().lock()
_turn = SystemRuntime().lock()  # nothing waits for anything while it is held: parsing is all that is done then
_kept: WeakValueDictionary[tuple[type, str], DecodedDocument[Any]] = WeakValueDictionary()


@frozen
class DecodedDocument(Generic[T]):
    """The bytes of a document and what they mean."""

    data: bytes
    decoded: T


def read_in_turn(store: ConditionalStore, key: str, use: Callable[[StoredObject], T]) -> T:
    """What `use` makes of the object. The largest ones are read, and used, alone in this process.

    Raises as `store.get` and `use` do.
    """
    try:
        stored = store.get(key, ALONE_BYTES)
    except DocumentUnreadable:  # it is larger
        with _reading:
            return _used(store.get(key), use)
    return use(stored)


def _used(stored: StoredObject, use: Callable[[StoredObject], T]) -> T:
    try:
        return use(stored)
    except BallistaError as error:
        del stored
        raise error.with_traceback(None) from None  # whoever remembers it must not remember all that was read


def is_large(data: bytes) -> bool:
    """Whether a document is worth being measured, and waited for."""
    return len(data) > LARGE_BYTES


def parsed_bytes(data: bytes) -> int:
    """What JSON may take once it is parsed, by its marks alone. Those in texts count, too.

    >>> parsed_bytes(b"[[],[]]"), parsed_bytes(b'{"a":{}}')
    (263, 392)
    """
    lists_and_values = data.count(b"[") + data.count(b",")
    return len(data) + _OBJECT_BYTES * data.count(b"{") + _VALUE_BYTES * lists_and_values


def require_parsable(key: str, data: bytes) -> None:
    """Raises `DocumentUnreadable` for what is too large for a document as it is, or would be once it is parsed."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise DocumentUnreadable(
            f"object '{key}' has {len(data):,} bytes; no document has more than {MAX_DOCUMENT_BYTES:,}", key=key
        )
    if is_large(data) and (size := parsed_bytes(data)) > MAX_PARSED_BYTES:
        raise DocumentUnreadable(
            f"object '{key}' would take {size:,} bytes once it is parsed; no document takes more than "
            f"{MAX_PARSED_BYTES:,}",
            key=key,
        )


def in_turn(data: bytes, decode: Callable[[], T]) -> T:
    """What `decode` makes of the bytes; of large ones, alone in this process."""
    if not is_large(data):
        return decode()
    with _turn:
        return decode()


def kept(kind: type, key: str, data: bytes, decode: Callable[[], T]) -> DecodedDocument[T]:
    """What `decode` makes of the bytes under that key; if they are many, the same value for all who have them."""
    if len(data) < SHARED_BYTES:
        return DecodedDocument(data, decode())
    with _turn:
        found: DecodedDocument[T] | None = _kept.get((kind, key))
        if found is None or found.data != data:
            found = DecodedDocument(data, decode())
            _kept[kind, key] = found
        return found
