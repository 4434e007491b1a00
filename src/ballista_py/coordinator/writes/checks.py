"""What rows must be before a table takes them: its columns, no forbidden nulls, its CHECK conditions.

Changes that were found to bind, by their shape: what the next one of that shape need not be asked again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from attrs import Factory, define, evolve, field
from sqlglot.tokenizer_core import TokenType

from ballista_py.coordinator.tables.follows import require_choice, retention_of, with_quoted
from ballista_py.engines.engine import Engine
from ballista_py.engines.row_checks import require_checks, said_in_own_words
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.columns import DEFAULT, default_of, with_said
from ballista_py.partitions.conform import check_columns, conform
from ballista_py.partitions.refresh import Retention
from ballista_py.partitions.table import TableSpec
from ballista_py.remembered import Remembered
from ballista_py.sql.column_types import require_kept
from ballista_py.sql.own_words import NO_ROW_ID, without_position
from ballista_py.sql.parse.changes import Local, quoted, text_for_engine
from ballista_py.sql.parse.creates import CreateTable
from ballista_py.sql.parse.insert_values import Meant, conversions, names_of_columns, needs_conversion
from ballista_py.sql.parse.inserts import Insert
from ballista_py.sql.parse.parsing import tokenized
from ballista_py.sql.parse.shape import shape_of
from ballista_py.sql.prune.changes import local_rewrite
from ballista_py.work import require_wanted

MAX_REMEMBERED = 512
MAX_REMEMBERED_BYTES = 8 << 20
LEAST_BYTES = 2_048
# Constants between two of these go into the same types of integers; with as many digits, into the same decimals.
_LIMITS = (127, 255, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1)


# A text or a name in quotes as a whole, or a number that is no part of something else.
_NUMBER = re.compile(r"""'[^']*'|"[^"]*"|(?<![\w.])(?P<number>\d{1,18})(?![\w.])""", re.ASCII)


@define
class BoundShapes:
    """Safe to share between threads. The last few hundred are remembered.

    >>> schema = pa.schema([("v", pa.int8())])
    >>> known = BoundShapes()
    >>> known.add("update t set v = 1 where v = 7", schema)
    >>> [known.knows(f"update t set v = {v} where v = 9", schema) for v in (2, 300)]
    [True, False]
    """

    _known: Remembered[bool] = Factory(lambda: Remembered(MAX_REMEMBERED, MAX_REMEMBERED_BYTES))

    def add(self, text: str, schema: pa.Schema) -> None:
        """Remember that the text binds over a table of this schema."""
        self._known.put(_key(text, schema), True, LEAST_BYTES + 8 * len(text))

    def knows(self, text: str, schema: pa.Schema) -> bool:
        """Whether one was added that differs only in values of constants, which go into the same types."""
        return self._known.get(_key(text, schema)) is not None


def _key(text: str, schema: pa.Schema) -> tuple[object, ...]:
    """The text and the schema, with a class in place of every whole number in plain SQL."""
    if shape_of(text) is None:
        return text, schema
    classes: list[tuple[int, int]] = []

    def classed(found: re.Match[str]) -> str:
        if found["number"] is None:
            return found[0]
        classes.append(_class_of(found["number"]))
        return "\0"

    return _NUMBER.sub(classed, text), schema, *classes


def _class_of(constant: str) -> tuple[int, int]:
    number = int(constant)
    return len(constant), next((place for place, limit in enumerate(_LIMITS) if number <= limit), len(_LIMITS))


@define
class RowChecks:
    """Checks rows with the engine of a node. Thread-safe."""

    engine: Engine
    _bound: BoundShapes = field(factory=BoundShapes, init=False)

    def batches(self, table: TableSpec, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows in exactly the table's schema, lazily. Raises `SchemaMismatch` naming the first offending row."""
        first_row = 0
        for batch in rows:
            if not first_row:
                check_columns(table, batch.schema)
            fitting = conform(table, batch, first_row)
            require_checks(self.engine, table, fitting, first_row)
            first_row += batch.num_rows
            yield fitting

    def require_fitting(self, table: TableSpec, change: Insert, given: pa.Schema) -> None:
        """Raise `SqlError` unless an INSERT of rows of these columns names columns of the table, one for each."""
        _places(table, change, given)

    def converted(self, table: TableSpec, change: Insert) -> Insert:
        """The INSERT with what makes each value one of its column by itself, as one node does it."""
        if change.defaults or (change.by_name and not needs_conversion(change.query)):
            return change
        fixed = {name.lower() for name, _ in change.fixed}
        kinds = zip(table.schema, self.engine.sql_types(table.schema), strict=True)
        meant = {column.name.lower(): Meant(kind, default_of(column)) for column, kind in kinds}
        names = names_of_columns(change.query) if change.by_name else ()
        wanted = names if change.by_name else change.columns or table.schema.names
        wanted = [name.lower() for name in wanted if name.lower() not in fixed]
        if not wanted or not meant.keys() >= {*wanted}:
            return change
        return evolve(change, edits=conversions(change.query, [meant[name] for name in wanted], names))

    def given_columns(self, table: TableSpec, change: Insert, given: pa.Schema) -> list[str]:
        """The columns of the table that an INSERT of rows of these columns fills, in the order of those."""
        return list(_places(table, change, given)) or list(table.schema.names)

    def for_columns(
        self, table: TableSpec, change: Insert, given: pa.Schema, rows: Iterable[pa.RecordBatch]
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows of an INSERT, cast to the columns that they are meant for; the others have their defaults.

        Raises `SqlError` for a value that cannot be cast.
        """
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        places = _places(table, change, given)
        shown = ", ".join(
            f"cast({_given(column, places, dict(change.fixed))} as {types[column.name]}) as {quoted(column.name)}"
            for column in table.schema
        )
        names = {place: name for name, place in places.items()}
        plain = pa.schema([field.with_name(names.get(n, field.name)) for n, field in enumerate(given)])
        reader = pa.RecordBatchReader.from_batches(
            plain, (pa.RecordBatch.from_arrays(batch.columns, schema=plain) for batch in rows)
        )
        running = self.engine.query(f"select {shown} from rows", streams={"rows": reader})
        try:
            yield from said_in_own_words(running.batches(), " ".join(table.schema.names))
        finally:
            running.cancel()

    def bind(self, change: Local, table: TableSpec) -> bool:
        """Whether its pieces mean what the statement says; then owners can run them.

        Raises `SqlError` unless the statement means something over the table. What was found of one statement holds
        for all of its shape: what owners run is looked at by their own engines, too.
        """
        _require_no_row_ids(change.text, table.schema)
        if self._bound.knows(change.text, table.schema):
            return True
        schemas = {table.name: table.schema}
        is_same = self.engine.bind_change(change.text, schemas, change.put_together)
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        rewrite = local_rewrite(change, table, types)
        for sql in (rewrite.count, rewrite.rows):
            if sql is not None:
                try:
                    self.engine.describe(sql, schemas)
                except SqlError as error:
                    raise without_position(error) from None
        if is_same:
            self._bound.add(change.text, table.schema)
        return is_same

    def schema(self, change: CreateTable) -> pa.Schema:
        """The Arrow schema of the columns that a CREATE TABLE declares, as the engine reads their types.

        Raises `SqlError` for an unknown type.
        """
        declared = self.engine.declared(change.declaration)
        nullable, defaults = dict(change.columns or ()), dict(change.defaults)
        if [name for name, _ in declared] != [name for name, _ in change.columns or ()]:
            raise SqlError("the columns of the statement cannot be told apart")
        fields = []
        types: dict[str, pa.DataType] = {}
        for name, kind in declared:
            require_wanted()
            require_kept(change.table, name, kind)
            if kind not in types:
                types[kind] = self.engine.describe(f"select cast(null as {kind}) as c", {}).field(0).type
            field = with_said(pa.field(name, types[kind], nullable[name]), DEFAULT, defaults.get(name))
            self.constant(field, defaults.get(name))
            fields.append(field)
        return pa.schema(fields)

    def type_of(self, table: str, column: str, kind: str) -> pa.DataType:
        """The Arrow type of a column that is to have this type, as SQL. Raises `SqlError` for one that is not kept."""
        name = quoted(column)
        declaration = f"create table t ({name} {kind}\n)"
        try:
            declared = self.engine.declared(declaration)
            if [found for found, _ in declared] != [column]:
                raise SqlError(f"'{kind}' is no type")
            require_kept(table, column, declared[0][1])
            return self.engine.describe(f"select cast(null as {declared[0][1]}) as c", {}).field(0).type
        except SqlError as error:
            raise without_position(error) from None

    def constant(self, column: pa.Field, text: str | None) -> pa.Array:
        """The value of a constant as one of the column, alone in an array; NULL for None. Raises `SqlError`."""
        if text is None:
            return pa.nulls(1, column.type)
        (kind,) = self.engine.sql_types(pa.schema([pa.field("c", column.type)]))
        try:
            running = self.engine.query(f"select cast(({text}\n) as {kind}) as c")
            found = pa.Table.from_batches(running.batches(), schema=running.schema).column(0).combine_chunks()
        except SqlError as error:
            raise without_position(error) from None
        if len(found) != 1:
            raise SqlError(f"DEFAULT {text} is no single value")
        return found if found.type == column.type else found.cast(column.type)

    def require_valid(self, table: str, schema: pa.Schema, checks: Sequence[str]) -> None:
        """Raise `SqlError` unless every CHECK is a condition over the columns."""
        for check in checks:
            try:
                found = self.engine.describe(f'select ({check}\n) as ok from "{table}"', {table: schema})
            except SqlError as error:
                raise without_position(error) from None
            if not pa.types.is_boolean(found.field(0).type):
                raise SqlError(f"CHECK ({check}) is no condition")

    def require_retention(self, table: str, schema: pa.Schema, retention: Retention) -> None:
        """Raise `SqlError` unless the engine takes the SQL of a retention for a statement over these columns.

        Raises `ConfigError` for one that is no DELETE of the table's own old rows. An error says where in that SQL, and
        which of its columns need quotes.
        """
        try:
            self._require_retention(table, schema, retention)
        except (SqlError, ConfigError) as error:
            names = self._without_quotes(table, schema, retention)
            if not names:
                raise
            words = ", ".join(map(quoted, names))
            raise type(error)(
                f"{error.message}: what means something else in SQL needs quotes, write {words}"
            ) from None

    def _require_retention(self, table: str, schema: pa.Schema, retention: Retention) -> None:
        try:
            require_choice(table, change := retention_of(table, schema, retention))
            self.engine.require_change(text_for_engine(retention.sql) or retention.sql)
            self.engine.bind_change(retention.sql, {table: schema})
            # Constants that do not fit their columns are found when a row is looked at, and not before.
            row = pa.table([pa.nulls(1, column.type) for column in schema], schema.names)
            sql = f"select ({change.where}\n) as is_old from {quoted(table)}"
            for _ in self.engine.query(sql, streams={table: row}).batches():
                pass
        except SqlError as error:
            place = {key: error.details[key] for key in ("line", "column") if key in error.details}
            said = without_position(error)
            where = f" (line {place['line']}, column {place['column']} of it)" if len(place) == 2 else ""
            raise type(said)(
                f"table '{table}': its retention_sql: {said.message}{where}", **said.details
            ) from None

    def _without_quotes(self, table: str, schema: pa.Schema, retention: Retention) -> list[str]:
        """The columns that a retention names by bare words which are read as something else; none if it is not that."""

        def fits(names: Sequence[str]) -> bool:
            try:
                sql = with_quoted(retention.sql, names)
                self._require_retention(table, schema, evolve(retention, sql=sql))
            except (SqlError, ConfigError):
                return False
            return True

        names = [name for name in schema.names if with_quoted(retention.sql, [name]) != retention.sql]
        return [name for name in names if not fits([one for one in names if one != name])] if fits(names) else []


def _given(column: pa.Field, places: Mapping[str, int], fixed: Mapping[str, str]) -> str:
    """What the rows of an INSERT have in a column: what is given, or its default."""
    if column.name in places:
        return quoted(column.name)
    default = fixed.get(column.name.lower(), default_of(column))
    return "null" if default is None else f"({default}\n)"


def _places(table: TableSpec, change: Insert, given: pa.Schema) -> dict[str, int]:
    """By column of the table, which column of the query it takes."""
    if change.defaults:
        return {}
    names = {name.lower(): name for name in table.schema.names}
    fixed = dict(change.fixed)
    every = [name for name in table.schema.names if name.lower() not in fixed]
    wanted = [name.lower() for name in (given.names if change.by_name else change.columns or every)]
    times = Counter(wanted)
    for name in wanted:
        if name not in names or times[name] > 1 or name in fixed:
            state = "is named twice" if name in names else f"is not one of table '{table.name}'"
            raise SqlError(f"column '{name}' {state}")
    if len(wanted) != len(given):
        raise SqlError(f"INSERT has {len(given)} value(s) for {len(wanted)} column(s) of table '{table.name}'")
    return {names[name]: place for place, name in enumerate(wanted)}


def _require_no_row_ids(text: str, schema: pa.Schema) -> None:
    """Raise `SqlError` for a statement that names the row numbers of the engine: partitions have each their own."""
    if "rowid" not in text.lower() or any(name.lower() == "rowid" for name in schema.names):
        return
    if any(token.text.lower() == "rowid" and token.token_type != TokenType.STRING for token in tokenized(text)):
        raise SqlError(NO_ROW_ID)
