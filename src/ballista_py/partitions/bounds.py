"""How large the declaration of a table may be: pure. It is in every catalog and every message about the table.

What was declared before there were bounds stays usable, and can be made smaller: only what comes or grows is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ballista_py.errors import ConfigError
from ballista_py.partitions.columns import COMMENT, DEFAULT, initial_of, said
from ballista_py.partitions.table import TableSpec

MAX_COLUMNS = 10_000  # the fields of nested ones counted
MAX_NAME_CHARS = 255
MAX_COMMENT_CHARS = 4_096
MAX_DEFAULT_CHARS = 4_096
MAX_DEFAULT_BYTES = 4_096
MAX_DEFAULTS_BYTES = 64 << 10  # of all columns that older rows lack: each such row takes so much
MAX_CHECK_CHARS = 16_384
MAX_DECLARATION_BYTES = 4 << 20


def require_bounded(wanted: TableSpec, now: TableSpec | None = None) -> None:
    """Raise `ConfigError`, naming what is too large, if a table is declared, or altered from `now`, beyond a bound."""
    name = wanted.name
    before = {} if now is None else {column.name: column for column in now.schema}
    for column in wanted.schema:
        had = before.get(column.name)
        if had is None or not had.equals(column, check_metadata=True):
            _require_column(name, column)
    if wanted.comment != (None if now is None else now.comment):
        require_chars(wanted.comment, MAX_COMMENT_CHARS, f"the comment on table '{name}'")
    for check in wanted.checks if now is None else ():
        require_chars(check, MAX_CHECK_CHARS, f"a CHECK of table '{name}'")
    if now is None or len(wanted.schema) > len(now.schema):
        require_count(name, len(wanted.schema))
    for what, most, found, had_found in (
        ("bytes of defaults that older rows have", MAX_DEFAULTS_BYTES, *_both(wanted, now, defaults_bytes)),
        ("bytes in its declaration", MAX_DECLARATION_BYTES, *_both(wanted, now, declaration_bytes)),
    ):
        if found > most and found > had_found:
            raise ConfigError(f"table '{name}' would have {found:,} {what}: {most:,} are the most")


def require_count(table: str, columns: int) -> None:
    """Raise `ConfigError` if a table is declared with too many columns; asked before anything is done for each."""
    if columns > MAX_COLUMNS:
        raise ConfigError(
            f"table '{table}' would have {columns:,} columns, fields of nested ones counted: {MAX_COLUMNS:,} are the "
            "most"
        )


def columns_in(kinds: Iterable[pa.DataType]) -> int:
    """How many columns there are of these types, fields of nested ones counted.

    >>> columns_in([pa.int64(), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])])
    5
    """
    found, pending = 0, list(kinds)
    while pending:
        kind = pending.pop()
        found += 1
        pending += [kind.field(number).type for number in range(kind.num_fields)]
    return found


def require_chars(text: str | None, most: int, what: str) -> None:
    """Raise `ConfigError` for a text that is longer."""
    if text is not None and len(text) > most:
        raise ConfigError(f"{what} has {len(text):,} characters: {most:,} are the most")


def defaults_bytes(table: TableSpec) -> int:
    """How much a row takes that was written before any column with a default was added."""
    values = (initial_of(column) for column in table.schema)
    return sum(value.nbytes for value in values if value is not None and not value.null_count)


def declaration_bytes(table: TableSpec) -> int:
    """How much all texts of a declaration take."""
    return sum(len(text) for text in _texts(table))


def _require_column(table: str, column: pa.Field) -> None:
    if len(column.name) > MAX_NAME_CHARS:
        raise ConfigError(
            f"table '{table}': a column's name has {len(column.name):,} characters: {MAX_NAME_CHARS} are the most"
        )
    require_chars(said(column, COMMENT), MAX_COMMENT_CHARS, f"the comment on column '{column.name}'")
    require_chars(said(column, DEFAULT), MAX_DEFAULT_CHARS, f"the default of column '{column.name}'")
    initial = initial_of(column)
    if initial is not None and initial.nbytes > MAX_DEFAULT_BYTES:
        raise ConfigError(
            f"the default of column '{column.name}' takes {initial.nbytes:,} bytes: {MAX_DEFAULT_BYTES:,} are the "
            "most; add the column without one and fill it with UPDATE"
        )


def _both(wanted: TableSpec, now: TableSpec | None, measure: object) -> tuple[int, int]:
    assert callable(measure)
    return measure(wanted), 0 if now is None else measure(now)


def _texts(table: TableSpec) -> Iterator[str | bytes]:
    yield table.name
    yield table.comment or ""
    yield from table.checks
    yield from table.gone
    yield from table.primary_key
    for key in table.spec.keys:
        yield key.expression
    for column in table.schema:
        yield column.name
        yield str(column.type)
        for name, value in (column.metadata or {}).items():
            yield name
            yield value
