"""Arrow schemas as JSON, and back: one text for one schema, whatever release of Arrow writes it; pure.

Arrow's own form of a schema is a flatbuffer, which says the same in many ways and which its reader trusts. Here each
type is made by its name, from a list: what is not on it is refused, and what was read is written again exactly as it
stood.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from ballista_py.scans.checked import fields, flag, items, one_of, refused, text, whole

MAX_FIELDS = 32_768  # nested ones counted
MAX_DEPTH = 32
MAX_NAME_BYTES = 64 << 10
MAX_METADATA_BYTES = 4 << 20
MAX_WIDTH = 1 << 24
_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(), "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(),
    "int64": pa.int64(), "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(),
    "large_string": pa.large_string(), "binary": pa.binary(), "large_binary": pa.large_binary(),
    "date32": pa.date32(), "date64": pa.date64(), "time32_s": pa.time32("s"), "time32_ms": pa.time32("ms"),
    "time64_us": pa.time64("us"), "time64_ns": pa.time64("ns"), "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"), "timestamp_us": pa.timestamp("us"), "timestamp_ns": pa.timestamp("ns"),
    "duration_s": pa.duration("s"), "duration_ms": pa.duration("ms"), "duration_us": pa.duration("us"),
    "duration_ns": pa.duration("ns"),
}  # fmt: skip
_NAMES = {kind: name for name, kind in _PLAIN.items()}
_EXTENSION = b"ARROW:extension:"  # would make another type of a column, at whoever sends its schema on
_LISTS = {"list": pa.list_, "large_list": pa.large_list}
_DECIMALS = {
    "decimal32": (pa.decimal32, 9),
    "decimal64": (pa.decimal64, 18),
    "decimal128": (pa.decimal128, 38),
    "decimal256": (pa.decimal256, 76),
}
_ZONED = "timestamp"


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """JSON-ready values; `schema_from_json` reads them back. Raises `InvalidData` for a type that no task can give."""
    found = {
        "columns": [_field_to(column, f"schema.{column.name}") for column in schema],
        "metadata": _metadata_to(schema),
    }
    schema_from_json(found)  # nothing is written that nobody would take
    return found


def schema_from_json(said: Any, place: str = "schema") -> pa.Schema:
    """The schema that `schema_to_json` wrote. Raises `InvalidData`, naming the column, for anything else.

    >>> schema_from_json(schema_to_json(pa.schema([("a", pa.list_(pa.decimal128(9, 2)))]))).field("a").type
    ListType(list<item: decimal128(9, 2)>)
    """
    found = fields(said, place, ("columns", "metadata"))
    reader = _Reading()
    columns = [reader.field(one, place, 1) for one in items(found["columns"], place, MAX_FIELDS)]
    names = [column.name for column in columns]
    if len({*names}) != len(names):
        raise refused(place, "has two columns of one name")
    return pa.schema(columns, metadata=reader.metadata(found["metadata"], f"{place}.metadata"))


def type_to_json(kind: pa.DataType, place: str) -> Any:
    """A type as JSON: its name, or its name with what belongs to it."""
    if kind in _NAMES:
        return _NAMES[kind]
    if types.is_timestamp(kind):
        return {_ZONED: [kind.unit, kind.tz]}
    if types.is_decimal(kind):
        return {f"decimal{kind.bit_width}": [kind.precision, kind.scale]}
    if types.is_fixed_size_binary(kind) and not isinstance(kind, pa.BaseExtensionType):
        return {"fixed_size_binary": [kind.byte_width]}
    if types.is_list(kind) or types.is_large_list(kind):
        name = "list" if types.is_list(kind) else "large_list"
        return {name: [_field_to(kind.value_field, f"{place}[]")]}
    if types.is_fixed_size_list(kind):
        return {"fixed_size_list": [_field_to(kind.value_field, f"{place}[]"), kind.list_size]}
    if types.is_struct(kind):
        return {
            "struct": [_field_to(kind.field(n), f"{place}.{kind.field(n).name}") for n in range(kind.num_fields)]
        }
    if types.is_map(kind):
        key, item = _field_to(kind.key_field, f"{place}.key"), _field_to(kind.item_field, f"{place}.value")
        return {"map": [key, item, kind.keys_sorted]}
    raise refused(place, f"has the type {kind}, which no scan gives")


def type_from_json(said: Any, place: str) -> pa.DataType:
    """The type that `type_to_json` wrote. Raises `InvalidData` for anything else."""
    return _Reading().type(said, place, 1)


def _field_to(column: pa.Field, place: str) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": type_to_json(column.type, place),
        "nullable": column.nullable,
        "metadata": _metadata_to(column),
    }


def _metadata_to(holder: Any) -> list[list[str]]:
    """Bytes as texts of as many characters, sorted."""
    return [
        [key.decode("latin-1"), value.decode("latin-1")] for key, value in sorted((holder.metadata or {}).items())
    ]


class _Reading:
    """One walk over a schema: what it has counted so far."""

    def __init__(self) -> None:
        self._fields = 0
        self._metadata_bytes = 0

    def field(self, said: Any, place: str, depth: int) -> pa.Field:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise refused(place, f"has more than {MAX_FIELDS} columns, nested ones counted")
        found = fields(said, place, ("name", "type", "nullable", "metadata"))
        name = text(found["name"], f"{place}.name", MAX_NAME_BYTES)
        here = f"{place}.{name}"
        metadata = self.metadata(found["metadata"], f"{here}.metadata")
        kind = self.type(found["type"], here, depth)
        nullable = flag(found["nullable"], f"{here}.nullable")
        if types.is_null(kind) and not nullable:
            raise refused(here, "has no value but null, which it may not be")
        return pa.field(name, kind, nullable, metadata)

    def metadata(self, said: Any, place: str) -> dict[bytes, bytes] | None:
        found: dict[bytes, bytes] = {}
        before = None
        for pair in items(said, place, MAX_FIELDS):
            if len(items(pair, place, 2)) != 2 or not all(_is_bytes(one) for one in pair):
                raise refused(place, "is no list of pairs of texts")
            key, value = (one.encode("latin-1") for one in pair)
            if before is not None and key <= before:
                raise refused(place, "is not in order")
            before = key
            if key.startswith(_EXTENSION):
                raise refused(place, "makes an extension type of a column")
            self._metadata_bytes += len(key) + len(value)
            if self._metadata_bytes > MAX_METADATA_BYTES:
                raise refused(place, f"is more than {MAX_METADATA_BYTES >> 20} MiB")
            found[key] = value
        return found or None

    def type(self, said: Any, place: str, depth: int) -> pa.DataType:
        if depth > MAX_DEPTH:
            raise refused(place, f"is nested more than {MAX_DEPTH} deep")
        if isinstance(said, str):
            return _PLAIN[one_of(said, f"the type of {place}", _PLAIN)]
        if type(said) is not dict or len(said) != 1:
            raise refused(place, "has no type")
        ((name, parts),) = said.items()
        if name == "struct":
            return self._struct(items(parts, place, MAX_FIELDS), place, depth)
        if name in _LISTS:
            (item,) = _exactly(parts, place, 1)
            return _LISTS[name](self.field(item, place, depth + 1))
        if name == "fixed_size_list":
            item, size = _exactly(parts, place, 2)
            return pa.list_(self.field(item, place, depth + 1), whole(size, place, MAX_WIDTH))
        if name == "map":
            return self._map(_exactly(parts, place, 3), place, depth)
        return _flat(name, parts, place)

    def _struct(self, parts: list[Any], place: str, depth: int) -> pa.DataType:
        return pa.struct([self.field(one, place, depth + 1) for one in parts])

    def _map(self, parts: list[Any], place: str, depth: int) -> pa.DataType:
        key, item = (self.field(one, place, depth + 1) for one in parts[:2])
        if key.nullable or types.is_null(key.type):
            raise refused(place, "is a map whose keys may be null")
        return pa.map_(key, item, keys_sorted=flag(parts[2], place))


def _flat(name: str, parts: Any, place: str) -> pa.DataType:
    if name == _ZONED:
        unit, zone = _exactly(parts, place, 2)
        return pa.timestamp(one_of(unit, place, ("s", "ms", "us", "ns")), _zone(zone, place))
    if name == "fixed_size_binary":
        (size,) = _exactly(parts, place, 1)
        if not whole(size, place, MAX_WIDTH):
            raise refused(place, "has values of no bytes")
        return pa.binary(size)
    if name in _DECIMALS:
        make, most = _DECIMALS[name]
        precision, scale = _exactly(parts, place, 2)
        if not whole(precision, place, most) >= 1 or whole(scale, place, precision) > precision:
            raise refused(place, "is no decimal")
        return make(precision, scale)
    raise refused(place, f"has the type '{name}', which is not known")


def _zone(zone: Any, place: str) -> str:
    found = text(zone, place, 64)
    if not found or not all(sign.isascii() and (sign.isalnum() or sign in "_+-/:") for sign in found):
        raise refused(place, "has a time zone that is none")
    return found


def _exactly(parts: Any, place: str, count: int) -> list[Any]:
    if len(items(parts, place, count)) != count:
        raise refused(place, "has a type that is not whole")
    return list(parts)


def _is_bytes(value: Any) -> bool:
    return type(value) is str and (value.isascii() or max(value) <= "\xff")
