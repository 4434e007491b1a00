"""Rows held against the table that they are for: the very columns, in order, of the types declared, or an error.

A value is taken as it is or not at all: numbers may come in another width if they fit, text and bytes in another
encoding, nothing else is converted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.columns import is_required
from ballista_py.partitions.expression.time_zones import no_zone, zone_that_is_none
from ballista_py.partitions.loadable import first_not_loaded, why_not_loaded
from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.type_names import type_name
from ballista_py.partitions.value_sizes import MAX_VALUE_BYTES, first_too_large

_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda kind: bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)),
    lambda kind: bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ),
    lambda kind: bool(pa.types.is_integer(kind)),
    lambda kind: bool(pa.types.is_floating(kind)),
    lambda kind: bool(pa.types.is_decimal(kind)),
    lambda kind: bool(pa.types.is_date(kind)),
    lambda kind: bool(pa.types.is_time(kind)),
    lambda kind: bool(pa.types.is_timestamp(kind) and kind.tz is None),
    lambda kind: bool(pa.types.is_timestamp(kind) and kind.tz is not None),
)


def check_columns(table: TableSpec, schema: pa.Schema) -> None:
    """Raise `SchemaMismatch` unless rows of `schema` have the columns of the table, in order, of types that fit.

    >>> from ballista_py.partitions.spec import PartitionSpec
    >>> declared = pa.schema([("id", pa.int64())])
    >>> table = TableSpec(name="t", schema=declared, spec=PartitionSpec.whole(), distribution="replicated")
    >>> check_columns(table, pa.schema([("id", pa.int32())]))
    >>> check_columns(table, pa.schema([("id", pa.string())]))
    Traceback (most recent call last):
    ballista_py.errors.SchemaMismatch: column 'id' is VARCHAR in the rows, table 't' declares BIGINT
    """
    declared, given = table.schema.names, schema.names
    times = Counter(given)
    for name in declared:
        if times[name] != 1:
            found = "more than one column" if times[name] else "no column"
            raise SchemaMismatch(f"the rows have {found} '{name}', which table '{table.name}' declares")
    known = set(declared)
    extra = next((name for name in given if name not in known), None)
    if extra is not None:
        raise SchemaMismatch(f"the rows have a column '{extra}', which table '{table.name}' does not have")
    if given != declared:
        raise SchemaMismatch(
            f"the rows have the columns of table '{table.name}' in another order: select {', '.join(declared)}"
        )
    for field in table.schema:
        kind = schema.field(field.name).type
        zone = zone_that_is_none(kind)
        if zone is not None:
            raise SchemaMismatch(f"column '{field.name}' of the rows: {no_zone(zone)}")
        if not _may_fit(kind, field.type):
            one, other = type_name(kind), type_name(field.type)
            if one == other:  # what Arrow keeps in more than one form
                one, other = str(kind), str(field.type)
            raise SchemaMismatch(
                f"column '{field.name}' is {one} in the rows, table '{table.name}' declares {other}"
            )


def conform(
    table: TableSpec,
    batch: pa.RecordBatch,
    first_row: int = 0,
    *,
    max_value_bytes: int | None = MAX_VALUE_BYTES,
    new: pa.Array | None = None,
) -> pa.RecordBatch:
    """The batch (whose columns were checked) in exactly the table's schema; `first_row` is its place in all rows.

    Where not all rows are `new`, the others may lack a value in a column that only new ones must have one in: whether
    older ones have is looked at by SET NOT NULL, which may have come to no end.

    Raises `SchemaMismatch` naming column and row for a null that is forbidden, a value out of range, text that is not
    UTF-8, what no engine could load (`why_not_loaded`), and a value that takes more than `max_value_bytes`.
    """
    if max_value_bytes is not None:
        require_small_values(table, batch, first_row, max_value_bytes)
    columns = []
    required = set(table.primary_key)
    for column, field in zip(batch.columns, table.schema, strict=True):
        lacking = column.is_null() if column.null_count else None
        if lacking is not None and new is not None and field.nullable and field.name not in required:
            lacking = pc.and_(lacking, new)
        place = -1 if lacking is None else lacking.index(True).as_py()
        if place >= 0 and (is_required(field) or field.name in required):
            row = first_row + place
            raise SchemaMismatch(f"row {row} has no value in column '{field.name}', which must not be null")
        columns.append(_loadable(_converted(column, field, table.name, first_row), field, table.name, first_row))
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def require_small_values(
    table: TableSpec, batch: pa.RecordBatch, first_row: int = 0, max_bytes: int = MAX_VALUE_BYTES
) -> None:
    """Raise `SchemaMismatch`, naming column and row, for a value that takes more than a table may hold of one."""
    for column, field in zip(batch.columns, table.schema, strict=True):
        found = first_too_large(column, max_bytes)
        if found is not None:
            raise SchemaMismatch(
                f"row {first_row + found[0]} has a value of {found[1]:,} bytes in column '{field.name}' of table "
                f"'{table.name}': {max_bytes:,} are the most, keep it in parts or elsewhere"
            )


def _converted(column: pa.Array, field: pa.Field, table: str, first_row: int) -> pa.Array:
    try:
        found = column if column.type == field.type else column.cast(field.type)
        if _FAMILIES[0](field.type):
            found.validate(full=True)
    except pa.ArrowException:
        row = first_row + _first_bad(column, field.type)
        value = "text that is not UTF-8" if _FAMILIES[0](field.type) else "a value out of range"
        raise SchemaMismatch(
            f"row {row} has {value} in column '{field.name}', which table '{table}' declares as {type_name(field.type)}"
        ) from None
    return found


def _loadable(column: pa.Array, field: pa.Field, table: str, first_row: int) -> pa.Array:
    """The column, if every engine can load it; without a null among the values of a dictionary, which no file has."""
    reason = why_not_loaded(column)
    if reason is not None:
        row = first_row + first_not_loaded(column)
        declared = type_name(field.type)
        raise SchemaMismatch(
            f"row {row} has {reason} in column '{field.name}', which table '{table}' declares as {declared}"
        )
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        return column.cast(field.type.value_type).dictionary_encode().cast(field.type)
    return column


def _first_bad(column: pa.Array, kind: pa.DataType) -> int:
    """The first value that cannot be converted, found by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if _converts(column.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    return low


def _converts(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        column.cast(kind).validate(full=True)
    except pa.ArrowException:
        return False
    return True


def _may_fit(given: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_dictionary(given):
        given = given.value_type
    if given == declared or pa.types.is_null(given):
        return True
    if pa.types.is_nested(declared):
        return _nested_fits(given, declared)
    if pa.types.is_floating(declared) and pa.types.is_floating(given):
        return bool(given.bit_width <= declared.bit_width)
    return any(family(given) and family(declared) for family in _FAMILIES)


def _nested_fits(given: pa.DataType, declared: pa.DataType) -> bool:
    if not pa.types.is_nested(given) or given.num_fields != declared.num_fields:
        return False
    if given.id != declared.id and not (_is_list(given) and _is_list(declared)):
        return False
    named = pa.types.is_struct(declared)
    return all(
        (not named or given.field(n).name == declared.field(n).name)
        and _may_fit(given.field(n).type, declared.field(n).type)
        for n in range(declared.num_fields)
    )


def _is_list(kind: pa.DataType) -> bool:
    """Whether its values are lists of any length, of the two forms that Arrow makes of each other."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
