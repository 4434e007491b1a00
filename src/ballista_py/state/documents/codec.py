"""Documents as JSON: a header that every commit stamps, then the fields of a frozen attrs class.

The codec promises that what it did not understand survives: a field that a newer release added to any attrs class
inside the document is still there after an older release read, changed and wrote it. It also tells foreign
objects from documents of ours, and a document from one that lies in the place of another: each carries the key that
it was written under, and is read under no other. One entry of a mapping that this release cannot read need not make
all of the document unreadable: a class may name a field in which such entries are set aside, and they are written back
as they were. The columns of a partition map are planning's to choose; here they become JSON.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import attrs
import orjson
import pyarrow as pa
from attrs import evolve, frozen
from cattrs.preconf.orjson import OrjsonConverter, make_converter

from ballista_py.errors import ConfigError, DocumentUnreadable, InvariantViolated, SchemaVersionUnsupported
from ballista_py.one_line import one_line
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.remembered import Remembered
from ballista_py.state.documents.large_documents import (
    MAX_PARSED_BYTES,
    DecodedDocument,
    in_turn,
    is_large,
    kept,
    parsed_bytes,
    require_parsable,
)
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES

RECENT_COMMITS = 32
_KEPT_TABLES = 16_384
_KEPT_DECLARATIONS = 1_024
_KEPT_BYTES = 64 << 20
_TABLE_SIZE = 6  # what a declaration takes in memory, by its JSON
# In the metadata of a field: the mapping whose unreadable entries, as JSON, it takes. It is no field of the JSON.
SET_ASIDE_OF = "entries of another field that this release cannot read"
# In the metadata of a field: a mapping of many values, of which a commit changes few. The others are written as they
# were read.
AS_READ = "entries that did not change are written as they were read"
# In the metadata of a field: the field among whose entries its own stand in the JSON, each under `STANDS_AS` of the
# metadata. A release that does not know them takes them for entries that it cannot read, and keeps their names.
AMONG = "entries stand among those of another field"
STANDS_AS = "the word under which such an entry stands"
_SHOWN_CHARS = 256

T = TypeVar("T")


@frozen(kw_only=True)
class Header:
    """What the last commit says of itself. `revision` counts the document's commits, from 1.

    `recent_commits` are the ids of the last 32 commits, the newest last and equal to `commit_id`, so that a
    writer whose reply was lost can tell later whether its commit landed. `updated_at_ms` is for people to read.
    `key` is where the document belongs; earlier releases did not write it.
    """

    kind: str
    schema_version: int
    revision: int
    commit_id: str
    committed_by: str
    updated_at_ms: int
    recent_commits: tuple[str, ...]
    key: str = ""


@frozen(kw_only=True)
class Decoded(Generic[T]):
    """A document as it was read; `raw` holds all its fields, those unknown to this release too."""

    header: Header
    document: T
    raw: Mapping[str, Any]


class DocumentCodec(Generic[T]):
    """Bytes to documents of one attrs class and back.

    The class may name its `document_kind` (default: the name of the class) and its `schema_version` (default 1) as
    class variables; a document of another kind or version is refused. So is one that belongs elsewhere: by the key
    in its header, and, where the class has a property `own_key`, by what its fields say.
    """

    def __init__(self, document_type: type[T]) -> None:
        if not attrs.has(document_type) or "header" in attrs.fields_dict(document_type):
            raise ConfigError(
                f"{document_type.__name__} is no document: take an attrs class without a field 'header'"
            )
        self.document_type: Any = document_type
        self.kind: str = getattr(document_type, "document_kind", document_type.__name__)
        self.schema_version: int = getattr(document_type, "schema_version", 1)
        self._reads_back: bool = getattr(document_type, "reads_back", True)
        self._asides = {
            field.metadata[SET_ASIDE_OF]: field.name
            for field in attrs.fields(attrs.resolve_types(document_type))
            if SET_ASIDE_OF in field.metadata
        }
        self._as_read = tuple(
            field.name for field in attrs.fields(self.document_type) if AS_READ in field.metadata
        )
        self._among = {
            field.name: (field.metadata[AMONG], field.metadata[STANDS_AS])
            for field in attrs.fields(self.document_type)
            if AMONG in field.metadata
        }

    def encode(self, key: str, header: Header, document: T, before: Decoded[T] | None = None) -> bytes:
        """The bytes of `document` under `header`, with what `before` held that this release does not know.

        The key goes into the header, whoever made that. Raises `InvariantViolated` above 64 MiB, for a document that
        belongs elsewhere, and for one that nobody could read afterwards.
        """
        if getattr(document, "own_key", key) != key:
            raise InvariantViolated(f"document '{key}' would become that of '{document.own_key}'", key=key)  # type: ignore[attr-defined]
        raw = self._unstructured(document, before)
        for entries, aside in self._asides.items():
            raw[entries] = {**raw.pop(aside), **raw[entries]}
        if before is not None:
            _keep_unknown(self.document_type, before.raw, raw)
        for name, (entries, word) in self._among.items():
            twice = raw[entries].keys() & raw[name].keys()
            if twice:
                raise InvariantViolated(f"document '{key}' would have two entries '{min(twice)}'", key=key)
            raw[entries] = {**raw[entries], **{entry: {word: item} for entry, item in raw.pop(name).items()}}
        stamped = converter().unstructure(evolve(header, key=key))
        data = orjson.dumps({"header": stamped, **raw}, option=orjson.OPT_SERIALIZE_NUMPY)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise InvariantViolated(
                f"document '{key}' would grow to {len(data)} bytes; {MAX_DOCUMENT_BYTES} is the limit", key=key
            )
        if is_large(data) and parsed_bytes(data) > MAX_PARSED_BYTES:
            raise InvariantViolated(f"document '{key}' would grow to more values than one may have", key=key)
        if self._reads_back:
            self._check_readable(key, data, document)
        return data

    def _unstructured(self, document: T, before: Decoded[T] | None) -> dict[str, Any]:
        """All fields as JSON; entries that are those of `before` as they stood there."""
        same: dict[str, dict[str, Any]] = {}
        if before is not None:
            same = {name: _unchanged(name, document, before) for name in self._as_read}
        others = {
            name: {entry: value for entry, value in getattr(document, name).items() if entry not in stood}
            for name, stood in same.items()
        }
        changed = evolve(document, **others) if others else document  # type: ignore[misc]
        raw: dict[str, Any] = converter().unstructure(changed, self.document_type)
        for name, stood in same.items():
            raw[name] = {e: stood[e] if e in stood else raw[name][e] for e in getattr(document, name)}
        return raw

    def _check_readable(self, key: str, data: bytes, document: T) -> None:
        """JSON has no NaN, for one: what is wrong in a single value must not make all of the document unreadable."""
        try:
            back = self.decode(key, data).document
        except DocumentUnreadable as error:
            raise InvariantViolated(
                f"document '{key}' would not be readable: nothing was written", key=key
            ) from error
        for aside in self._asides.values():
            if len(getattr(back, aside)) > len(getattr(document, aside)):
                raise InvariantViolated(
                    f"entries of document '{key}' would not be readable: nothing was written", key=key
                )

    def decode(self, key: str, data: bytes) -> Decoded[T]:
        """The document that `encode` made.

        Raises `DocumentUnreadable` for anything else, also for one that belongs under another key (`belongs_to` in its
        details), and `SchemaVersionUnsupported` for another release's format.
        """
        require_parsable(key, data)
        return in_turn(data, lambda: self._decoded(key, data))

    def kept(self, key: str, data: bytes) -> DecodedDocument[Decoded[T]]:
        """As `decode`, with the bytes; large documents are shared with whoever has the same one."""
        require_parsable(key, data)
        return kept(self.document_type, key, data, lambda: self._decoded(key, data))

    def _decoded(self, key: str, data: bytes) -> Decoded[T]:
        try:
            raw = orjson.loads(data)
            header = converter().structure(raw.pop("header"), Header)
        except Exception as error:
            raise _foreign(key, self.kind) from error
        if header.kind != self.kind:
            kind = one_line(header.kind, _SHOWN_CHARS)
            raise DocumentUnreadable(f"object '{key}' is a '{kind}' document, not '{self.kind}'", key=key)
        if header.schema_version != self.schema_version:
            raise SchemaVersionUnsupported(
                f"document '{key}' has schema version {header.schema_version}; this release reads and writes "
                f"{self.schema_version}: use the release that wrote it, or a state location of its own",
                key=key,
                schema_version=header.schema_version,
            )
        try:
            self._take_apart(raw)
            document = self._structured(raw)
            own_key = getattr(document, "own_key", key)  # made of what stands in it
        except Exception as error:
            raise _foreign(key, self.kind) from error
        for own in (header.key or key, own_key):
            if own != key:
                raise _misplaced(key, own)
        return Decoded(header=header, document=document, raw=raw)

    def _take_apart(self, raw: dict[str, Any]) -> None:
        """Give each field its own entries; one that this release cannot read stays where it stood."""
        for name, (entries, word) in self._among.items():
            kind = get_args(attrs.fields_dict(self.document_type)[name].type)[1]
            found = {
                entry: item[word]
                for entry, item in raw.get(entries, {}).items()
                if type(item) is dict and item.keys() == {word} and _is_readable(item[word], kind)
            }
            raw[name] = found
            if found:
                raw[entries] = {entry: item for entry, item in raw[entries].items() if entry not in found}

    def _structured(self, raw: Mapping[str, Any]) -> T:
        plain = {name: value for name, value in raw.items() if name not in self._asides.values()}
        try:
            found: T = converter().structure(plain, self.document_type)
        except Exception:
            if not self._asides:
                raise
            found = converter().structure(self._without_unreadable(plain), self.document_type)
        return found

    def _without_unreadable(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """`raw` with every entry that cannot be read in the field that takes it."""
        apart = dict(raw)
        for entries, aside in self._asides.items():
            kind = get_args(attrs.fields_dict(self.document_type)[entries].type)[1]
            unreadable = {name: item for name, item in raw[entries].items() if not _is_readable(item, kind)}
            apart[aside] = unreadable
            apart[entries] = {name: item for name, item in raw[entries].items() if name not in unreadable}
        return apart


def table_to_json(table: TableSpec) -> bytes:
    """A table spec as JSON; `table_from_json` reads it back."""
    return orjson.dumps(converter().unstructure(table))


def table_from_json(data: bytes) -> TableSpec:
    """The table spec that `table_to_json` wrote. Raises `DocumentUnreadable` for anything else."""
    try:
        return converter().structure(orjson.loads(data), TableSpec)
    except Exception as error:
        raise DocumentUnreadable("a table spec cannot be read: it was written by another release") from error


@cache
def converter() -> OrjsonConverter:
    """The one converter of documents, with a form for Arrow schemas and partition specs."""
    made = make_converter(detailed_validation=False)
    for kind in (bool, float, int, str):
        made.register_structure_hook(kind, _PLAIN[kind])
    made.register_unstructure_hook(pa.Schema, lambda schema: base64.b64encode(schema.serialize()).decode())
    made.register_structure_hook(pa.Schema, lambda text, _: _schema(text))
    made.register_unstructure_hook(PartitionSpec, lambda spec: spec.to_json())
    made.register_structure_hook(PartitionSpec, lambda data, _: _spec(orjson.dumps(data)))
    made.register_structure_hook_func(lambda kind: kind == tuple[str, ...], lambda items, _: _texts(items))
    made.register_unstructure_hook(PartitionMap, lambda pmap: {"table": pmap.table, **pmap.to_columns()})
    read_table = made.get_structure_hook(TableSpec)
    made.register_structure_hook(TableSpec, lambda data, kind: _table(data, kind, read_table))
    made.register_structure_hook(PartitionMap, lambda data, _: PartitionMap.from_columns(data["table"], 0, data))
    return made


def _flag(value: Any, _kind: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("it is neither true nor false")
    return value


def _whole(value: Any, _kind: Any) -> int:
    """A number that can be written again: JSON of somebody else may have longer ones."""
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError("it is no whole number of 64 bits")
    return value


def _number(value: Any, _kind: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("it is no number")
    return float(value)


def _text(value: Any, _kind: Any) -> str:
    if type(value) is not str:
        raise ValueError("it is no text")
    return value


def _texts(items: Any) -> tuple[str, ...]:
    if type(items) is not list or not all(type(item) is str for item in items):
        raise ValueError("it is no list of texts")
    return tuple(items)


# What stands in a document is taken for what it is, and for nothing that it might be made into.
_PLAIN: Mapping[type, Callable[[Any, Any], Any]] = {bool: _flag, int: _whole, float: _number, str: _text}


# Tables are declared once and read with every `cluster.json`; the values are immutable and can be shared.
_tables: Remembered[TableSpec] = Remembered(_KEPT_TABLES, _KEPT_BYTES)
_schemas: Remembered[pa.Schema] = Remembered(_KEPT_DECLARATIONS, _KEPT_BYTES)
_specs: Remembered[PartitionSpec] = Remembered(_KEPT_DECLARATIONS, _KEPT_BYTES)


def _table(data: Any, kind: Any, read: Callable[[Any, Any], TableSpec]) -> TableSpec:
    """A table's declaration; the same JSON is the same value, so that a commit reads only what it changed."""
    text = orjson.dumps(data)
    found = _tables.get(text)
    if found is None:
        found = read(data, kind)
        _tables.put(text, found, _TABLE_SIZE * len(text))
    return found


def _schema(text: str) -> pa.Schema:
    found = _schemas.get(text)
    if found is None:
        found = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
        _schemas.put(text, found, 3 * len(text))
    return found


def _spec(data: bytes) -> PartitionSpec:
    found = _specs.get(data)
    if found is None:
        found = PartitionSpec.from_json(orjson.loads(data))
        _specs.put(data, found, 20 * len(data))
    return found


_OPAQUE = {PartitionSpec, PartitionMap}  # classes with a JSON form of their own


def _unchanged(field: str, document: Any, before: Decoded[Any]) -> dict[str, Any]:
    """As they were read, the entries of a mapping that are the very values that were read."""
    was, raw = getattr(before.document, field), before.raw.get(field, {})
    return {
        entry: raw[entry]
        for entry, value in getattr(document, field).items()
        if entry in raw and was.get(entry) is value
    }


def _is_readable(item: Any, kind: Any) -> bool:
    try:
        converter().structure(item, kind)
    except Exception:  # whatever is wrong with it
        return False
    return True


def _foreign(key: str, kind: str) -> DocumentUnreadable:
    return DocumentUnreadable(
        f"object '{key}' is not a '{kind}' document of ballista_py: this location holds something else, or it "
        "is damaged: put the newest copy back, or stop all nodes and run `ballista-py storage repair`",
        key=key,
    )


def is_misplaced(error: BaseException) -> bool:
    """Whether an error says that a document lies in the place of another, whose it is to be given back to."""
    return isinstance(error, DocumentUnreadable) and "belongs_to" in error.details


def _misplaced(key: str, own: str) -> DocumentUnreadable:
    own = one_line(own, _SHOWN_CHARS)
    return DocumentUnreadable(
        f"object '{key}' is the document that belongs to '{own}': stop all nodes and put each one back in its place",
        key=key,
        belongs_to=own,
    )


def _keep_unknown(kind: Any, before: Any, after: Any) -> None:
    """Carry into `after` what `before` holds beyond the fields of `kind`, at every depth that names tell apart."""
    if before is after or not isinstance(before, dict) or not isinstance(after, dict):
        return
    if isinstance(kind, type) and attrs.has(kind):
        if kind in _OPAQUE:
            return
        fields = attrs.fields_dict(attrs.resolve_types(kind))
        for name, value in before.items():
            if name not in fields:
                after.setdefault(name, value)
            elif isinstance(value, dict):
                _keep_unknown(fields[name].type, value, after.get(name))
    elif get_origin(kind) in (Union, UnionType):
        for option in get_args(kind):
            _keep_unknown(option, before, after)
    elif len(get_args(kind)) == 2:
        for name in before.keys() & after.keys():
            if isinstance(before[name], dict):
                _keep_unknown(get_args(kind)[1], before[name], after[name])
