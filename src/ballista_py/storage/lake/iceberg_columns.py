"""The columns and conditions of an Iceberg table, between pyiceberg's forms and ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import orjson
import pyarrow as pa

from ballista_py.errors import SourceUnfit
from ballista_py.partitions.columns import INITIAL, initial_text, with_said
from ballista_py.scans.task import FIELD_ID, ScanCondition
from ballista_py.storage.lake.lake_types import kept_schema
from ballista_py.storage.lake.matching import NAMES

NAME_MAPPING = "schema.name-mapping.default"
WAY_OUT = "leave the column out of a view of the table that its own engine writes, or give it another type there"
_NO_LITERAL = (ValueError, OverflowError, ArithmeticError, TypeError)


def columns_of(schema: Any, properties: Mapping[str, str], there: str) -> pa.Schema:
    """The columns as Arrow has them, each with its id, its initial value and its names in files without ids.

    Raises `SourceUnfit` for a column of a type that cannot be read.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    names = _name_mapping(properties, there)
    by_id = {field.field_id: field for field in _all_fields(schema.fields)}
    shown = []
    for field in schema.fields:
        try:
            shown.append(schema_to_pyarrow(type(schema)(field)).field(0))
        except (TypeError, ValueError, NotImplementedError):
            raise SourceUnfit(
                f"column '{field.name}' of {there} has the type {field.field_type}, which cannot be read: {WAY_OUT}"
            ) from None
    kept = kept_schema(there, pa.schema(shown), WAY_OUT, noted=True)
    return pa.schema([_noted(field, by_id, names, there) for field in kept])


def _all_fields(fields: Sequence[Any]) -> list[Any]:
    """The fields and all that are within them; the parts of lists and maps are fields, too."""
    found = []
    waiting = list(fields)
    while waiting:
        field = waiting.pop()
        found.append(field)
        waiting.extend(getattr(field.field_type, "fields", ()))
    return found


def _noted(field: pa.Field, by_id: Mapping[int, Any], names: Mapping[int, list[str]], there: str) -> pa.Field:
    number = int((field.metadata or {}).get(FIELD_ID, b"-1"))
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_noted(kind.field(n), by_id, names, there) for n in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_noted(kind.value_field, by_id, names, there))
    elif pa.types.is_map(kind):
        kind = pa.map_(_noted(kind.key_field, by_id, names, there), _noted(kind.item_field, by_id, names, there))
    metadata = {FIELD_ID: str(number).encode()}
    found = pa.field(field.name, kind, field.nullable, metadata)
    if names:
        found = with_said(found, NAMES, orjson.dumps(names.get(number, [])).decode())
    own = by_id.get(number)
    if own is not None and own.initial_default is not None:
        found = with_said(found, INITIAL, initial_text(_initial(own, kind, there)))
    return found


def _initial(own: Any, kind: pa.DataType, there: str) -> pa.Array:
    from pyiceberg.conversions import from_json

    value = own.initial_default
    try:
        if isinstance(value, str) and not pa.types.is_string(kind):
            value = from_json(own.field_type, value)
        return pa.array([getattr(value, "bytes", value)], kind)
    except (pa.ArrowException, *_NO_LITERAL, NotImplementedError):
        raise SourceUnfit(
            f"column '{own.name}' of {there} has an initial value that cannot be read: {WAY_OUT}"
        ) from None


def _name_mapping(properties: Mapping[str, str], there: str) -> dict[int, list[str]]:
    """The names of columns in files without ids, by the ids."""
    text = properties.get(NAME_MAPPING)
    found: dict[int, list[str]] = {}
    if text is None:
        return found
    try:
        waiting = list(orjson.loads(text))
        while waiting:
            one = waiting.pop()
            if "field-id" in one:
                found[int(one["field-id"])] = [str(name) for name in one["names"]]
            waiting.extend(one.get("fields", ()))
    except (orjson.JSONDecodeError, KeyError, *_NO_LITERAL, AttributeError):
        raise SourceUnfit(f"the property {NAME_MAPPING} of {there} cannot be read") from None
    return found


def expression_of(conditions: Sequence[ScanCondition], schema: Any) -> Any:
    """The conditions as pyiceberg has them. One that it cannot have excludes nothing: rows are filtered later."""
    from pyiceberg.expressions import AlwaysTrue, And

    found: Any = AlwaysTrue()
    for one in conditions:
        try:
            made = _expression(one, schema.find_field(one.column).field_type)
        except _NO_LITERAL:
            continue
        found = made if isinstance(found, AlwaysTrue) else And(found, made)
    return found


def _expression(one: ScanCondition, kind: Any) -> Any:
    e: Any = import_module("pyiceberg.expressions")
    from pyiceberg.expressions.literals import literal

    makers: dict[str, Callable[..., Any]] = {
        "=": e.EqualTo, "!=": e.NotEqualTo, "<": e.LessThan, "<=": e.LessThanOrEqual, ">": e.GreaterThan,
        ">=": e.GreaterThanOrEqual,
    }  # fmt: skip
    if one.operator == "is_null":
        return e.IsNull(one.column)
    if one.operator in ("is_not_null", "!="):  # bounds say nothing of what is not there
        return e.NotNull(one.column)
    values = [value.as_py() for value in one.values]
    if any(hasattr(value, "nanosecond") for value in values) or str(kind).endswith("_ns"):
        raise ValueError
    floats = pa.types.is_floating(one.values[0].type) if one.values else False
    if one.operator == "in":
        found: Any = e.AlwaysFalse()
        for value in values:
            nan = isinstance(value, float) and math.isnan(value)
            found = e.Or(found, e.IsNaN(one.column) if nan else e.EqualTo(one.column, literal(value).to(kind)))
        return found
    value = values[0]
    if floats and math.isnan(value):
        nan_makers = {"=": e.IsNaN(one.column), ">": e.AlwaysFalse(), ">=": e.IsNaN(one.column)}
        return nan_makers.get(one.operator, e.NotNull(one.column))
    made = makers[one.operator](one.column, literal(value).to(kind))
    return e.Or(made, e.IsNaN(one.column)) if floats and one.operator in (">", ">=") else made
