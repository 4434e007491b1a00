"""Which columns are taken from another process: types by an allow-list, names, nesting and metadata within bounds."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.lib as lib

from ballista_py.errors import InvalidData

MAX_FIELDS = 32_768
MAX_DEPTH = 32
MAX_NAME_BYTES = 64 << 10
MAX_METADATA_BYTES = 4 << 20
MAX_WIDTH = 1 << 24

_PLAIN = frozenset((
    lib.Type_NA, lib.Type_BOOL, lib.Type_INT8, lib.Type_INT16, lib.Type_INT32, lib.Type_INT64, lib.Type_UINT8,
    lib.Type_UINT16, lib.Type_UINT32, lib.Type_UINT64, lib.Type_HALF_FLOAT, lib.Type_FLOAT, lib.Type_DOUBLE,
    lib.Type_DATE32, lib.Type_DATE64, lib.Type_TIME32, lib.Type_TIME64, lib.Type_DURATION,
    lib.Type_INTERVAL_MONTH_DAY_NANO, lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_STRING_VIEW,
    lib.Type_BINARY, lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW,
))  # fmt: skip
_DECIMALS = frozenset((lib.Type_DECIMAL32, lib.Type_DECIMAL64, lib.Type_DECIMAL128, lib.Type_DECIMAL256))
_NESTED = frozenset((
    lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW, lib.Type_FIXED_SIZE_LIST,
    lib.Type_STRUCT, lib.Type_MAP, lib.Type_SPARSE_UNION, lib.Type_DENSE_UNION,
))  # fmt: skip
_UNIONS = (lib.Type_SPARSE_UNION, lib.Type_DENSE_UNION)
# Engines read the storage of an extension as its name says, unchecked: one that says more than its storage holds
# makes them read beyond it. So only these, whose every value of that storage is valid.
_EXTENSIONS = {
    "arrow.uuid": (pa.binary(16),),
    "arrow.json": (pa.string(), pa.large_string(), pa.string_view()),
    "arrow.bool8": (pa.int8(),),
}
_EXTENSION_KEYS = (b"ARROW:extension:name", b"ARROW:extension:metadata")
_ZONE = re.compile(r"[A-Za-z0-9_+\-/:]{1,64}")


def check_schema(schema: pa.Schema) -> pa.Schema:
    """The schema, if its columns are such as nodes and clients take. Raises `InvalidData` naming the column."""
    _Columns().check(schema)
    return schema


class _Columns:
    """One walk over a schema: what it has counted so far."""

    def __init__(self) -> None:
        self._fields = 0
        self._metadata_bytes = 0

    def check(self, schema: pa.Schema) -> None:
        try:
            self._count(schema.metadata)
            for field in schema:
                self._field(field, 1)
        except (UnicodeDecodeError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
            raise _refused(f"its schema cannot be read ({type(error).__name__})") from None

    def _field(self, field: pa.Field, depth: int) -> None:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise _refused(f"it has more than {MAX_FIELDS:,} columns, nested ones counted")
        name = field.name
        if "\x00" in name or len(name.encode()) > MAX_NAME_BYTES:
            raise _refused("the name of a column holds a NUL or is too long")
        metadata = field.metadata
        self._count(metadata)
        if metadata and any(key in metadata for key in _EXTENSION_KEYS):
            extension = metadata.get(_EXTENSION_KEYS[0], b"").decode()
            if extension:
                self._extension(extension, field.type, name)
        self._type(field.type, name, depth)

    def _type(self, kind: pa.DataType, name: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _refused(f"column '{_shown(name)}' is nested more than {MAX_DEPTH} deep")
        if isinstance(kind, pa.BaseExtensionType):
            self._extension(kind.extension_name, kind.storage_type, name)
            kind = kind.storage_type
        if kind.id in _PLAIN:
            return
        if kind.id in _NESTED:
            if kind.id == lib.Type_FIXED_SIZE_LIST and not 0 <= kind.list_size <= MAX_WIDTH:
                raise _type_refused(name)
            if kind.id == lib.Type_MAP and kind.key_type.id == lib.Type_NA:  # Arrow ends the process that casts it
                raise _type_refused(name)
            for number in range(kind.num_fields):
                self._field(kind.field(number), depth + 1)
        elif kind.id in _DECIMALS:
            if not 0 <= kind.scale <= kind.precision:  # engines take it for a byte
                raise _type_refused(name)
        elif kind.id == lib.Type_FIXED_SIZE_BINARY:
            if not 1 <= kind.byte_width <= MAX_WIDTH:
                raise _type_refused(name)
        elif kind.id == lib.Type_TIMESTAMP:
            if kind.tz is not None and not _ZONE.fullmatch(kind.tz):
                raise _type_refused(name)
        elif kind.id in (lib.Type_DICTIONARY, lib.Type_RUN_END_ENCODED):
            values = kind.value_type
            if values.id in (*_NESTED, lib.Type_DICTIONARY, lib.Type_RUN_END_ENCODED):
                raise _type_refused(name)
            self._type(values, name, depth + 1)
        else:
            raise _type_refused(name)

    def _extension(self, extension: str, storage: pa.DataType, name: str) -> None:
        if storage not in _EXTENSIONS.get(extension, ()):
            raise _refused(
                f"column '{_shown(name)}' has the extension type '{_shown(extension)}' over {_shown(str(storage))}, "
                "which is not taken: send it without the extension"
            )

    def _count(self, metadata: dict[Any, Any] | None) -> None:
        if metadata:
            self._metadata_bytes += sum(len(key) + len(value) for key, value in metadata.items())
        if self._metadata_bytes > MAX_METADATA_BYTES:
            raise _refused(f"its columns carry more than {MAX_METADATA_BYTES >> 20} MiB of metadata")


def _type_refused(name: str) -> InvalidData:
    return _refused(f"column '{_shown(name)}' has a type that is not taken")


def _refused(reason: str) -> InvalidData:
    return InvalidData(f"what was sent cannot be taken: {reason}")


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:80])


def with_whole_unions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch itself, unless it has unions: then the same rows, in which an empty one has all its buffers.

    Reading a union of no values, at the top or inside a list, leaves it without its buffer of type codes; that is
    valid, and pyarrow ends the process when it is asked for `nbytes` or the offsets of such an array.
    """
    if not any(has_union(kind) for kind in batch.schema.types):
        return batch
    return pa.RecordBatch.from_arrays([_whole(column) for column in batch.columns], schema=batch.schema)


def has_union(kind: pa.DataType) -> bool:
    """Whether arrays of the type hold unions, at any depth."""
    return kind.id in _UNIONS or any(has_union(kind.field(number).type) for number in range(kind.num_fields))


def _whole(array: Any) -> pa.Array:
    kind = array.type
    if not has_union(kind):
        return array
    own = array.buffers()[: kind.num_buffers]
    if kind.id in _UNIONS and not len(array):
        own = [None, *(pa.py_buffer(b"") for _ in own[1:])]
    if kind.id in _UNIONS or kind.id == lib.Type_STRUCT:
        children = [_whole(array.field(number)) for number in range(kind.num_fields)]
    else:
        children = [_whole(array.values)]
    return pa.Array.from_buffers(kind, len(array), own, offset=array.offset, children=children)
