"""Columns of a file as those of a task: found by id or name, at every level, and in its types; pure.

How a file's columns become a task's is decided once a file, from its schema: what cannot fit is refused before any
row is read. Values that do not fit (a number too large, a time that is finer) are refused when they are met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson
import pyarrow as pa
from attrs import frozen

from ballista_py.errors import DocumentUnreadable, SchemaMismatch
from ballista_py.partitions.columns import initial_of, said, stored_name
from ballista_py.scans.task import FIELD_ID, FoundBy

NAMES = b"ballista.lake.names"
"""In the metadata of a field: the names (JSON) that it has in files whose columns have no ids."""

MAX_DEPTH = 32
INT96 = b"ballista.lake.int96"
"""In the metadata of a file's column: times of Spark and Impala, which count in UTC and do not say so."""

Convert = Callable[[pa.Array], pa.Array]


@frozen
class Matched:
    """A column of a task in a file: its name there (None: the file lacks it), and how its values become the task's."""

    field: pa.Field
    held: str | None
    convert: Convert | None = None


def matched(held: pa.Schema, wanted: Sequence[pa.Field], found_by: FoundBy, file: str) -> tuple[Matched, ...]:
    """Where each wanted column is in a file with the columns `held`. Raises `SchemaMismatch`, `DocumentUnreadable`."""
    by_id = found_by == "field_id" and any(_id(field) is not None for field in held)
    found = []
    for field in wanted:
        there = _find(list(held), field, found_by, by_id, file)
        if there is not None and held.names.count(there.name) > 1:
            raise DocumentUnreadable(f"file '{file}' has two columns named '{there.name}'", file=file)
        if there is None:
            if not field.nullable and initial_of(field) is None:
                raise SchemaMismatch(
                    f"file '{file}' has no column '{field.name}', which may not be null", file=file
                )
            found.append(Matched(field, None))
        else:
            convert = _conversion(there, field, found_by, by_id, f"column '{field.name}' of file '{file}'", 0)
            found.append(Matched(field, there.name, convert))
    return tuple(found)


def _find(held: Sequence[pa.Field], field: pa.Field, found_by: FoundBy, by_id: bool, file: str) -> pa.Field | None:
    if found_by == "name":
        names = [stored_name(field)]
    elif by_id:
        wanted = _id(field)
        fits = [one for one in held if _id(one) == wanted]
        if len(fits) > 1:
            raise DocumentUnreadable(f"file '{file}' has two columns with one id", file=file)
        return fits[0] if fits and wanted is not None else None
    else:
        text = said(field, NAMES)
        if text is None:
            raise SchemaMismatch(
                f"the columns of file '{file}' have no ids, and the table has no names for them "
                "(schema.name-mapping.default): set that property there",
                file=file,
            )
        names = list(orjson.loads(text))
    fits = [one for one in held if one.name in names]
    if len(fits) > 1:
        raise DocumentUnreadable(f"file '{file}' has several columns for '{field.name}'", file=file)
    return fits[0] if fits else None


def _id(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(FIELD_ID)
    return found if found and not found.startswith(b"-") else None  # pyarrow has -1 for none


def _conversion(
    held: pa.Field, want: pa.Field, found_by: FoundBy, by_id: bool, what: str, depth: int
) -> Convert | None:
    """How values of `held` become those of `want`; None where they are as they are. Raises `SchemaMismatch`."""
    have, kind = held.type, want.type
    if depth > MAX_DEPTH:
        raise SchemaMismatch(f"{what} is nested more than {MAX_DEPTH} deep")
    types = pa.types
    if not types.is_nested(kind):
        if said(held, INT96) and types.is_timestamp(kind) and kind.tz:
            have = pa.timestamp(have.unit, kind.tz)
        return _flat(have, kind, what) or (None if have == held.type else lambda values: values.cast(kind))
    deeper = found_by, by_id, what, depth + 1
    if types.is_struct(kind) and types.is_struct(have):
        return _of_struct(have, kind, *deeper)
    if types.is_list(kind) and (
        types.is_list(have) or types.is_large_list(have) or types.is_fixed_size_list(have)
    ):
        return _of_list(have, kind, _conversion(have.value_field, kind.value_field, *deeper))
    if types.is_map(kind) and types.is_map(have):
        key = _conversion(have.key_field, kind.key_field, *deeper)
        return _of_map(have, kind, key, _conversion(have.item_field, kind.item_field, *deeper))
    raise _unfit(what, have, kind)


def _flat(have: pa.DataType, kind: pa.DataType, what: str) -> Convert | None:
    if have == kind:
        return None
    types = pa.types
    if isinstance(have, pa.BaseExtensionType):
        inner = _flat(have.storage_type, kind, what)
        return lambda values: values.storage if inner is None else inner(values.storage)
    if types.is_dictionary(have):
        return lambda values: _cast(values, kind, what)
    zones = types.is_timestamp(have) and types.is_timestamp(kind) and (have.tz is None) != (kind.tz is None)
    if zones or not _is_alike(have, kind):
        raise _unfit(what, have, kind)
    return lambda values: _cast(values, kind, what)


def _is_alike(have: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of one type mean the same as those of another one, as far as they fit."""
    types = pa.types

    def is_number(one: pa.DataType) -> bool:
        return bool(types.is_integer(one) or types.is_floating(one) or types.is_decimal(one))

    def is_bytes(one: pa.DataType) -> bool:
        loose = types.is_binary(one) or types.is_large_binary(one) or types.is_binary_view(one)
        return bool(loose or types.is_fixed_size_binary(one))

    def is_text(one: pa.DataType) -> bool:
        return bool(types.is_string(one) or types.is_large_string(one) or types.is_string_view(one))

    pairs = (is_number, types.is_timestamp, types.is_time, is_text, is_bytes)
    if any(test(have) and test(kind) for test in pairs) or (is_bytes(have) and is_text(kind)):
        if types.is_floating(have):
            return bool(types.is_floating(kind) and kind.bit_width > have.bit_width)
        return not (types.is_decimal(have) and types.is_floating(kind))
    return bool(types.is_null(have) or (types.is_date(have) and (types.is_date(kind) or types.is_timestamp(kind))))


def _cast(values: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    try:
        return values.cast(kind)
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        raise SchemaMismatch(f"{what} has a value that does not fit {kind} ({type(error).__name__})") from None


def _of_struct(
    have: pa.DataType, kind: pa.DataType, found_by: FoundBy, by_id: bool, what: str, depth: int
) -> Convert | None:
    held = [have.field(place) for place in range(have.num_fields)]
    wanted = [kind.field(place) for place in range(kind.num_fields)]
    plan: list[tuple[pa.Field, int | None, Convert | None]] = []
    for field in wanted:
        there = _find(held, field, found_by, by_id, what)
        if there is None:
            plan.append((field, None, None))
        else:
            inner = _conversion(there, field, found_by, by_id, what, depth)
            plan.append((field, held.index(there), inner))
    same = [place for _, place, _ in plan] == list(range(len(held))) and have.num_fields == kind.num_fields
    if same and all(convert is None for *_, convert in plan) and have == kind:
        return None

    def convert(values: pa.Array) -> pa.Array:
        children = []
        for field, place, inner in plan:
            if place is None:
                children.append(lacking(field, len(values)))
            else:
                child = values.field(place)
                children.append(child if inner is None else inner(child))
        if not children:
            return pa.nulls(len(values), kind)
        return pa.StructArray.from_arrays(children, fields=wanted, mask=values.is_null())

    return convert


def _of_list(have: pa.DataType, kind: pa.DataType, inner: Convert | None) -> Convert | None:
    if inner is None and have == kind:
        return None

    def convert(values: pa.Array) -> pa.Array:
        if not pa.types.is_list(have):
            values = values.cast(pa.list_(have.value_field))
        items = values.values if inner is None else inner(values.values)
        buffers = values.buffers()[:2]
        return pa.Array.from_buffers(kind, len(values), buffers, offset=values.offset, children=[items])

    return convert


def _of_map(have: pa.DataType, kind: pa.DataType, key: Convert | None, item: Convert | None) -> Convert | None:
    if key is None and item is None and have == kind:
        return None
    entry = pa.struct([kind.key_field, kind.item_field])

    def convert(values: pa.Array) -> pa.Array:
        # `keys` and `items` are whole where they are asked of the parent's own buffers.
        keys = values.keys if key is None else key(values.keys)
        items = values.items if item is None else item(values.items)
        entries = pa.StructArray.from_arrays([keys, items], fields=list(entry))
        buffers = values.buffers()[:2]
        return pa.Array.from_buffers(kind, len(values), buffers, offset=values.offset, children=[entries])

    return convert


def lacking(field: pa.Field, rows: int) -> pa.Array:
    """The column in a file that lacks it: its initial value in all rows, or null."""
    initial = initial_of(field)
    if initial is None or initial.null_count:
        return pa.nulls(rows, field.type)
    return pa.repeat(initial[0], rows)


def _unfit(what: str, have: pa.DataType, kind: pa.DataType) -> SchemaMismatch:
    return SchemaMismatch(f"{what} is {have} and does not fit {kind}")
