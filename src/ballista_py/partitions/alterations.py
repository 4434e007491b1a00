"""What becomes of the declaration of a table when it is altered: pure, and never a change of a data file.

Every function gives the next definition of the table, or the table itself where there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from attrs import evolve

from ballista_py.errors import ConfigError, SqlError, TryLater
from ballista_py.partitions.columns import (
    COMMENT,
    DEFAULT,
    INITIAL,
    REQUIRED,
    STORED,
    fresh_stored_name,
    initial_text,
    is_required,
    said,
    stored_name,
    stored_names,
    with_said,
)
from ballista_py.partitions.refresh import INTERVALS, Refresh, Retention
from ballista_py.partitions.table import FILE_FORMATS, TableSpec, check_names
from ballista_py.partitions.type_names import type_name

Alter = Callable[[TableSpec], TableSpec]
Mentions = Callable[[str], frozenset[str]]
"""The words of a condition, in lower case."""


def next_definition(table: TableSpec, schema: pa.Schema) -> TableSpec:
    """The table with these columns, by its next definition."""
    return evolve(table, schema=schema, definition=table.definition + 1)


def column_of(table: TableSpec, name: str) -> int:
    """Where a column is. Raises `SqlError` for one that there is not."""
    lower = [known.lower() for known in table.schema.names]
    if name.lower() not in lower:
        raise SqlError(f"table '{table.name}' has no column '{name}'")
    return lower.index(name.lower())


def has_column(table: TableSpec, name: str) -> bool:
    """Whether there is a column of that name, in whatever case."""
    return name.lower() in (known.lower() for known in table.schema.names)


def add_column(
    table: TableSpec, column: pa.Field, initial: pa.Array, default: str | None, *, if_not_exists: bool
) -> TableSpec:
    """With a column more; rows that are there have the value `initial` in it, and new ones that do not name it the
    `default`."""
    if has_column(table, column.name):
        if if_not_exists:
            return table
        raise SqlError(f"table '{table.name}' has a column '{column.name}' already")
    try:
        check_names(table.name, [column.name], managed=table.source is None)
    except ConfigError as error:
        raise SqlError(error.message) from None
    if not column.nullable and initial.null_count:
        raise SqlError(
            f"column '{column.name}' cannot be added to table '{table.name}' as NOT NULL without a DEFAULT, which "
            "rows that are there would have in it"
        )
    stored = fresh_stored_name(column.name, [*stored_names(table.schema), *table.gone])
    column = with_said(column, STORED, None if stored == column.name else stored)
    column = with_said(with_said(column, INITIAL, initial_text(initial)), DEFAULT, default)
    return next_definition(table, table.schema.append(column))


def drop_column(table: TableSpec, name: str, mentions: Mentions, *, if_exists: bool) -> TableSpec:
    """Without a column, whose values nobody ever sees again."""
    if if_exists and not has_column(table, name):
        return table
    place = column_of(table, name)
    _require_free(table, name, mentions, "dropped")
    if len(table.schema) == 1:
        raise SqlError(f"column '{name}' is the only one of table '{table.name}': drop the table")
    gone = (*table.gone, stored_name(table.schema.field(place)))
    return evolve(next_definition(table, table.schema.remove(place)), gone=gone)


def rename_column(table: TableSpec, name: str, to: str, mentions: Mentions) -> TableSpec:
    """With another name for a column."""
    place = column_of(table, name)
    column = table.schema.field(place)
    if column.name == to:
        return table
    _require_free(table, name, mentions, "renamed")
    if has_column(table, to) and to.lower() != name.lower():
        raise SqlError(f"table '{table.name}' has a column '{to}' already")
    try:
        check_names(table.name, [to], managed=table.source is None)
    except ConfigError as error:
        raise SqlError(error.message) from None
    stored = stored_name(column)
    return _with(table, place, with_said(column.with_name(to), STORED, None if stored == to else stored))


def rename_table(table: TableSpec, to: str) -> TableSpec:
    """Under another name; all that it keeps stays where it is. Its own name is fine, too."""
    if to == table.name:
        return table
    if not table.incarnation:
        raise SqlError(
            f"table '{table.name}' was made by an early release and cannot be renamed: keep its rows under the new "
            "name with CREATE TABLE … AS"
        )
    made_as = table.made_as or table.name
    try:
        return evolve(next_definition(table, table.schema), name=to, made_as="" if made_as == to else made_as)
    except ConfigError as error:
        raise SqlError(error.message) from None


def set_default(table: TableSpec, name: str, default: str | None) -> TableSpec:
    """With another default of a column, for rows to come."""
    place = column_of(table, name)
    return _with(table, place, with_said(table.schema.field(place), DEFAULT, default))


def set_required(table: TableSpec, name: str) -> TableSpec:
    """With a column that new rows must have a value in; that older ones have is to be found out (`proven`)."""
    place = column_of(table, name)
    column = table.schema.field(place)
    if not column.nullable:
        return table
    number = table.definition + 1
    return evolve(_with(table, place, with_said(column, REQUIRED, str(number))), accepts_from=number)


def proven(table: TableSpec, name: str, since: int) -> TableSpec:
    """With a column that all rows have a value in, as was found out by the definition `since`.

    Raises `TryLater` if the column need not have had one all the time since.
    """
    place = column_of(table, name)
    if said(table.schema.field(place), REQUIRED) != str(since):
        raise TryLater(f"column '{name}' of table '{table.name}' was altered meanwhile: try again")
    return _with(table, place, with_said(table.schema.field(place), REQUIRED, None).with_nullable(False))


def set_optional(table: TableSpec, name: str) -> TableSpec:
    """With a column that need not have a value."""
    place = column_of(table, name)
    column = table.schema.field(place)
    if column.name in table.primary_key:
        raise SqlError(
            f"column '{column.name}' of table '{table.name}' is part of its primary key: it stays NOT NULL"
        )
    if not is_required(column):
        return table
    return _with(table, place, with_said(column, REQUIRED, None).with_nullable(True))


def set_type(table: TableSpec, name: str, kind: pa.DataType, mentions: Mentions) -> TableSpec:
    """With a wider type of a column, to which every value of the present one belongs."""
    place = column_of(table, name)
    column = table.schema.field(place)
    if column.type == kind:
        return table
    _require_free(table, name, mentions, "given another type")
    if not is_wider(column.type, kind):
        raise SqlError(
            f"column '{column.name}' of table '{table.name}' is {type_name(column.type)} and cannot become "
            f"{type_name(kind)}: files are not written anew, so a type only grows, as INTEGER to BIGINT; add a column, "
            "fill it with UPDATE"
        )
    return _with(table, place, column.with_type(kind))


def set_option(table: TableSpec, name: str, value: str) -> TableSpec:
    """With another value of an option."""
    if name in INTERVALS:
        return _with_interval(table, name, value)
    if name != "file_format":
        raise SqlError(
            f"a table has no option '{name}' that can be changed: SET (file_format = 'parquet' or 'vortex'), "
            "(refresh_check_interval = '5m') or (retention_check_interval = '1h')"
        )
    known = {known: known for known in FILE_FORMATS}.get(value)  # type: ignore[call-overload]
    if known is None:
        raise SqlError(f"no file format '{value}': a table is kept as {' or '.join(FILE_FORMATS)}")
    if known == table.file_format:
        return table
    return evolve(table, file_format=known, definition=table.definition + 1)


def set_follows(table: TableSpec, refresh: Refresh | None, retention: Retention | None) -> TableSpec:
    """With another declaration of how it follows its source, and of what it forgets."""
    if (refresh, retention) == (table.refresh, table.retention):
        return table
    return evolve(table, refresh=refresh, retention=retention, definition=table.definition + 1)


def _with_interval(table: TableSpec, name: str, value: str) -> TableSpec:
    """With another interval of its refreshes, or of its retention."""
    field = name.partition("_")[0]
    declared = getattr(table, field)
    if declared is None:
        raise SqlError(f"table '{table.name}' was made without a {field}: it has no interval to be changed")
    try:
        wanted = evolve(declared, every=value)
    except ConfigError as error:
        raise SqlError(f"{name}{error.message.removeprefix('every')}") from None
    if wanted == declared:
        return table
    return evolve(table, **{field: wanted}, definition=table.definition + 1)


def set_comment(table: TableSpec, name: str | None, text: str | None) -> TableSpec:
    """With other words about the table or one of its columns."""
    if name is None:
        return evolve(table, comment=text, definition=table.definition + 1)
    place = column_of(table, name)
    return _with(table, place, with_said(table.schema.field(place), COMMENT, text))


def is_wider(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether each value of the type `one` is one of `other`, too, and nothing is lost on the way.

    >>> is_wider(pa.int32(), pa.int64()), is_wider(pa.int64(), pa.float64())
    (True, False)
    """
    types = pa.types
    if types.is_decimal128(other):
        whole = other.precision - other.scale
        if types.is_integer(one):
            return bool(whole >= _DIGITS[one.bit_width])
        return bool(types.is_decimal128(one) and other.scale >= one.scale and whole >= one.precision - one.scale)
    if types.is_integer(one) and types.is_integer(other):
        if types.is_signed_integer(one) == types.is_signed_integer(other):
            return bool(other.bit_width > one.bit_width)
        return bool(types.is_signed_integer(other) and other.bit_width > one.bit_width)
    if types.is_integer(one):
        return bool(types.is_float64(other) and one.bit_width <= 32)
    return bool(types.is_float32(one) and types.is_float64(other))


_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def _with(table: TableSpec, place: int, column: pa.Field) -> TableSpec:
    return next_definition(table, table.schema.set(place, column))


def _require_free(table: TableSpec, name: str, mentions: Mentions, what: str) -> None:
    """Raise `SqlError` if something that the table promises names the column."""
    lower = name.lower()
    keys = [key.expression for key in table.spec.keys if lower in (column.name.lower() for column in key.columns)]
    if keys:
        raise SqlError(
            f"column '{name}' of table '{table.name}' is part of how it is split ({', '.join(keys)}): it cannot be "
            f"{what}; make a table with other keys, and fill it with INSERT … SELECT"
        )
    if lower in (known.lower() for known in table.primary_key):
        raise SqlError(f"column '{name}' of table '{table.name}' is part of its primary key: it cannot be {what}")
    for check in table.checks:
        if lower in mentions(check):
            raise SqlError(f"CHECK ({check}) of table '{table.name}' names column '{name}': it cannot be {what}")
    if table.retention is not None and lower in mentions(table.retention.sql):
        raise SqlError(f"the retention of table '{table.name}' names column '{name}': it cannot be {what}")
