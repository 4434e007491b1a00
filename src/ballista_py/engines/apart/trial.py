"""A statement tried: read, bound and run over a few made-up rows, in a process that may end over it.

What a node's parser and engine do with a text that nobody has sent before is known only once they have done it: some
texts end the process, some break the database, some are read for hours. All of that happens here first.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa

from ballista_py.engines.apart.frames import FAILED
from ballista_py.engines.duckdb.binder import Binder
from ballista_py.engines.duckdb.broken_database import BROKE
from ballista_py.engines.duckdb.change import check_change
from ballista_py.engines.duckdb.guard import Guard
from ballista_py.engines.duckdb.library import LOCKDOWN, duckdb
from ballista_py.engines.duckdb.types import quoted
from ballista_py.errors import BallistaError
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.descriptions import DescribeQuery, Explain, read_description
from ballista_py.sql.parse.kind import engine_sql, statement_kind
from ballista_py.sql.parse.parameters import with_nulls
from ballista_py.sql.parse.parsing import SqlglotError
from ballista_py.threads import spawn

MAX_RUN_MS = 1_000.0
MAX_ROWS = 4_096
FEW_TABLES = 4  # of which each has two rows; of more each has one
_NO_MEMORY = ("Memory allocation failure", "std::bad_alloc")
_ROWS = '"rows of a trial"'


class Trial:
    """Tries statements, one after the other, in a database that holds nothing between them.

    >>> from ballista_py.runtime import SystemRuntime
    >>> trial = Trial(Binder(SystemRuntime()), SystemRuntime())
    >>> trial.run("select n + 1 from t", None, {"t": pa.schema([("n", pa.int64())])})
    True
    """

    def __init__(self, binder: Binder, runtime: Runtime) -> None:
        self._binder = binder
        self._runtime = runtime
        self._scratch = duckdb.connect(":memory:", config={"threads": 1})
        self._scratch.execute(LOCKDOWN)
        self._scratch.execute("set global lock_configuration = true")
        self._guard = Guard(self._scratch)

    def run(self, sql: str, dialect: str | None, schemas: Mapping[str, pa.Schema]) -> bool:
        """Do with a client's text what a node does, over tables of these schemas. Whether it was understood.

        What is wrong with the text is for the node to say. Raises `SystemError` when the engine fails inside.
        """
        try:
            text = engine_sql(sql, dialect, schemas)
            kind = statement_kind(text)
            if kind in ("explain", "describe"):
                asked = read_description(text)
                if not isinstance(asked, Explain | DescribeQuery):
                    return True
                text, kind = asked.query, "query"
            if kind == "refused" or (kind == "change" and not _changes_rows(text)):
                return True
            text = with_nulls(text)
            if kind == "query" and self._binder.check(text, schemas).is_apart(schemas.values()):
                return True  # the node has it bound and run apart, too
            if kind == "change":
                check_change(self._guard, text, schemas)
            self._over_few_rows(text, schemas)
        except (BallistaError, SqlglotError):
            if self._binder.is_broken():
                raise SystemError(FAILED) from None
            return False
        return True

    def _over_few_rows(self, text: str, schemas: Mapping[str, pa.Schema]) -> None:
        connection = self._scratch
        connection.begin()
        try:
            for name, schema in schemas.items():
                rows = sample_rows(schema, 2 if len(schemas) <= FEW_TABLES else 1)
                connection.register(_ROWS.strip('"'), rows)
                connection.execute(f"create table {quoted(name)} as from {_ROWS}")
                connection.unregister(_ROWS.strip('"'))
            with _for_a_while(connection.interrupt, self._runtime):
                connection.execute(text).fetchmany(MAX_ROWS)
        except duckdb.Error as error:
            if str(error).startswith(BROKE) and not any(words in str(error) for words in _NO_MEMORY):
                raise SystemError(FAILED) from None
        finally:
            with suppress(duckdb.Error):
                connection.rollback()


def _changes_rows(text: str) -> bool:
    return text.split(None, 1)[0].lower() in ("insert", "update", "delete", "merge", "with")


@contextmanager
def _for_a_while(stop: Callable[[], None], runtime: Runtime) -> Iterator[None]:
    """Stop what the block does when it takes longer than a moment."""
    is_over, changed = False, runtime.condition()

    def watch() -> None:
        until_ms = runtime.monotonic_ms() + MAX_RUN_MS
        with changed:
            while not is_over and (left_ms := until_ms - runtime.monotonic_ms()) > 0:
                changed.wait(left_ms)
        if not is_over:
            stop()

    spawn(watch)
    try:
        yield
    finally:
        with changed:
            is_over = True
            changed.notify_all()


def sample_rows(schema: pa.Schema, count: int) -> pa.Table:
    """Rows of these columns: one of ordinary values, and one without any.

    >>> sample_rows(pa.schema([("n", pa.int32()), ("t", pa.list_(pa.string()))]), 2).to_pydict()
    {'n': [1, None], 't': [['1'], None]}
    """
    columns = [_sample(field.type, count) for field in schema]
    return pa.table(columns, schema=pa.schema([pa.field(field.name, field.type) for field in schema]))


def _sample(kind: pa.DataType, count: int) -> pa.Array:
    with suppress(pa.ArrowException, TypeError, ValueError, NotImplementedError):
        return pa.array([_value(kind), None][:count], kind)
    return pa.nulls(count, kind)


def _value(kind: pa.DataType) -> object:
    """An ordinary value of the type, as Python has it."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(kind.value_type)]
    if pa.types.is_fixed_size_list(kind):
        return [_value(kind.value_type)] * kind.list_size
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_value(kind.key_type), _value(kind.item_type))]
    if pa.types.is_date(kind):
        return datetime.date(2020, 1, 1)
    if pa.types.is_timestamp(kind):
        return datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC if kind.tz else None)
    if pa.types.is_time(kind):
        return datetime.time(1)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(0)
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_floating(kind):
        return 1.0
    if pa.types.is_interval(kind):
        return pa.MonthDayNano([0, 1, 0])
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return b"1"
    if pa.types.is_fixed_size_binary(kind):
        return b"1" * kind.byte_width
    return 1 if pa.types.is_integer(kind) else "1"


__all__ = ["Trial", "sample_rows"]
