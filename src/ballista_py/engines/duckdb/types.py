"""DuckDB's names and types: identifiers quoted, the Arrow schema of a relation found without running it.

Values of the engine that Arrow does not have: they are refused, never handed out as other values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
from pyarrow import types as t

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.errors import SqlError

_MAX_REMEMBERED_TYPES = 4_096
_NUL = "\0"


class ArrowTypes:
    """Knows which Arrow type DuckDB gives for each of its own; learns a type by asking once. Safe to share.

    Binding a statement and looking its types up takes a third of the time that opening a result for its schema
    takes, and it touches no stream that the statement reads.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._known: dict[str, pa.Field] = {}

    def schema(self, relation: duckdb.DuckDBPyRelation) -> pa.Schema:
        """The schema of the relation's batches, duplicate column names kept.

        Raises `SqlError` for a map whose keys have no type, as `map {}` has: Arrow ends the process that casts one;
        and for a name with the sign U+0000, at which Arrow ends it.
        """
        if any(_NUL in name for name in (*relation.columns, *map(str, relation.types))):
            raise SqlError(
                "a column or field of the statement has the sign U+0000 in its name, at which names end: call it "
                "otherwise, with AS"
            )
        pairs = zip(map(str, relation.types), relation.columns, strict=True)
        return pa.schema(
            [(self._known.get(kind) or self._learn(kind, name)).with_name(name) for kind, name in pairs]
        )

    def _learn(self, name: str, column: str) -> pa.Field:
        with self._connection.cursor() as cursor:
            try:
                found = cursor.sql(f"select cast(null as {name})").to_arrow_reader(1).schema.field(0)
            except duckdb.NotImplementedException:
                raise _held_by_nobody(name, column) from None
        if _is_opaque(found.type):
            raise _held_by_nobody(name, column)
        if _has_keys_without_type(found.type):
            raise SqlError(
                "a column of the answer holds a map whose keys have no type, such as map {}: give it one, for example "
                "map {}::map(varchar, varchar)"
            )
        if len(self._known) >= _MAX_REMEMBERED_TYPES:
            self._known.clear()
        self._known[name] = found
        return found


class ColumnLists:
    """Knows how a schema is written in CREATE TABLE; learns one by making a table of it once. Safe to share.

    Making an empty table from such a text takes a quarter of the time that making it from Arrow takes.
    """

    def __init__(self) -> None:
        self._known: dict[pa.Schema, str] = {}

    def make(self, cursor: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema) -> None:
        """Make an empty temporary table on `cursor`. Raises what DuckDB raises."""
        known = self._known.get(schema)
        if known is not None:
            with suppress(duckdb.Error):  # a type whose name is none in SQL
                cursor.execute(f"create temp table {quoted(name)} ({known})")
                return
        cursor.register("no rows", schema.empty_table())
        cursor.execute(f'create temp table {quoted(name)} as select * from "no rows"')
        cursor.unregister("no rows")
        made = cursor.sql(f"from {quoted(name)}")
        if len(self._known) >= _MAX_REMEMBERED_TYPES:
            self._known.clear()
        pairs = zip(made.columns, made.types, strict=True)
        self._known[schema] = ", ".join(f"{quoted(column)} {kind}" for column, kind in pairs)


def _held_by_nobody(name: str, column: str) -> SqlError:
    return SqlError(
        f"column '{column}' would be {name}, which no answer and no table can hold: cast it in the query, "
        f"with CAST(… AS VARCHAR)"
    )


def _is_opaque(kind: pa.DataType) -> bool:
    """Whether DuckDB gives bytes that only DuckDB can read, as it does for a BIGNUM."""
    return isinstance(kind, pa.OpaqueType) or any(_is_opaque(kind.field(n).type) for n in range(kind.num_fields))


def _has_keys_without_type(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and pa.types.is_null(kind.key_type):
        return True
    return any(_has_keys_without_type(kind.field(n).type) for n in range(kind.num_fields))


def whole_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows as DuckDB takes them: it refuses a struct within a struct that is part of a longer array.

    >>> rows = pa.RecordBatch.from_pylist([{"s": {"a": {"b": number}}} for number in range(4)]).slice(2)
    >>> rows.column(0).offset, whole_batch(rows).column(0).offset, whole_batch(rows) == rows
    (2, 0, True)
    """
    deep = [_is_struct_in_struct(kind) for kind in batch.schema.types]
    if not any(deep):
        return batch
    every = pa.array(range(batch.num_rows), pa.int64())
    columns = [
        column.take(every) if is_deep else column for column, is_deep in zip(batch.columns, deep, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def whole_table(rows: pa.Table) -> pa.Table:
    """As `whole_batch`."""
    if not any(_is_struct_in_struct(kind) for kind in rows.schema.types):
        return rows
    return pa.Table.from_batches(map(whole_batch, rows.to_batches()), schema=rows.schema)


def _is_struct_in_struct(kind: pa.DataType) -> bool:
    below = [kind.field(number).type for number in range(kind.num_fields)]
    nested = (t.is_struct, t.is_union)
    inner = any(is_kind(one) for one in below for is_kind in nested)
    return (t.is_struct(kind) and inner) or any(map(_is_struct_in_struct, below))


def quoted(name: str) -> str:
    """The name as a SQL identifier.

    >>> quoted("Mixed Case")
    '"Mixed Case"'
    """
    return '"' + name.replace('"', '""') + '"'


_HUGE = str(pa.decimal128(38, 0))  # as which DuckDB hands out its HUGEINT, also one that is larger
_TOO_HUGE = (
    "a whole number in the answer does not fit DECIMAL(38, 0): cast it to DOUBLE or VARCHAR in the statement"
)
_LOWEST = -(2**127)  # whose digits Arrow miscounts: it takes it for one that fits
_TIME = str(pa.time64("us"))  # DuckDB's has 24:00:00 besides, Arrow's ends before
_TOO_LATE = "the time 24:00:00 cannot be kept or answered: take 00:00:00, or cast it to VARCHAR in the statement"


_ZONED = "TIME WITH TIME ZONE"  # comes from DuckDB as a time without its offset
_NO_ZONE = (
    "the answer has a TIME WITH TIME ZONE, whose offset cannot be answered: cast it to VARCHAR in the statement"
)


class AnswerCheck:
    """Looks at the columns of an answer whose types can hold what Arrow cannot.

    `kinds` are the engine's own names of their types, as it has more of them than Arrow: UHUGEINT and HUGEINT come
    as one type, where the upper half of UHUGEINT would be negative, and a time with an offset as one without.
    """

    def __init__(self, schema: pa.Schema, kinds: Sequence[str]) -> None:
        shown = [str(kind) for kind in schema.types]
        self._zoned = any(_ZONED in kind for kind in kinds)
        self._times = [place for place, kind in enumerate(shown) if _TIME in kind]
        self._huge = [(place, "UHUGEINT" in kinds[place]) for place, kind in enumerate(shown) if _HUGE in kind]

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `SqlError` for a value that would be another one, or none, in Arrow."""
        if self._zoned and batch.num_rows:
            raise SqlError(_NO_ZONE)
        for place in self._times:
            _require_valid(batch.column(place), _TOO_LATE)
        if self._huge:
            import pyarrow.compute as pc  # it loads pandas where that is installed
        for place, is_unsigned in self._huge:
            column = batch.column(place)
            _require_valid(column, _TOO_HUGE)
            for numbers in _whole_numbers(column):
                least = pc.min(numbers)
                if least.is_valid and ((is_unsigned and least.as_py() < 0) or least.as_py() == _LOWEST):
                    raise SqlError(_TOO_HUGE)


def _require_valid(column: pa.Array, said: str) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise SqlError(said) from None


def _whole_numbers(column: pa.Array) -> Iterator[pa.Array]:
    """The columns of DECIMAL(38, 0) in a column, however deep."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        yield from _whole_numbers(column.storage)
    elif t.is_dictionary(kind):
        yield from _whole_numbers(column.dictionary)
    elif t.is_map(kind):
        yield from _whole_numbers(column.keys)
        yield from _whole_numbers(column.items)
    elif t.is_union(kind):
        for place in range(kind.num_fields):
            yield from _whole_numbers(column.field(place))
    elif t.is_struct(kind):
        for part in column.flatten():
            yield from _whole_numbers(part)
    elif t.is_nested(kind):
        yield from _whole_numbers(column.flatten())
    elif kind == pa.decimal128(38, 0):
        yield column
