"""Files of the client's machine for COPY, read and written by a DuckDB of its own: options mean what they mean there.

A CSV file is read as the table declares its columns. Whether its first line is a header is told by the names of the
columns and by what the line holds; where that leaves a doubt nothing is loaded.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ballista_py.errors import BallistaError, ConfigError, InvalidData, MissingExtra, SchemaMismatch
from ballista_py.one_line import ends_of, printable
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.copies import CopyFrom, CopyTo
from ballista_py.transport.client.given import BATCH_ROWS, ArrowRows, arrow_rows
from ballista_py.transport.client.pipes import is_pipe, relayed

if TYPE_CHECKING:
    import duckdb

    from ballista_py.transport.client.client_answers import QueryStream

_ON_LINE = re.compile(r"CSV Error on Line: (\d+)")
_NOTHING_SAID = re.compile(r"^(?:\s*[\w ]+ Error: |Original Line: .*|\s*$)", re.MULTILINE)
_TEXTS = ("VARCHAR", "BLOB")
# What Arrow raises for files that are spoilt: its own errors, and those that Python has for such values.
_OF_FILES = (OSError, pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError, NotImplementedError)
_SYSTEM = ("/dev/", "/proc/")


class Asking(Protocol):
    """What a client of a cluster does for COPY."""

    def sql(self, query: str) -> pa.Table: ...

    def ingest(
        self,
        table: str,
        data: ArrowRows,
        *,
        token: str | None = None,
        atomic: bool = False,
        timeout: float | None = None,
        wait: Any = None,
    ) -> int: ...

    def stream(self, query: str, dialect: str | None = None, *, timeout: float | None = None) -> QueryStream: ...


def load_file(
    client: Asking,
    copy: CopyFrom,
    token: str | None,
    atomic: bool,
    timeout: float | None,
    wait: str | None = None,
) -> int:
    """Add the rows of the file to its table; how many. Raises as `file_rows` and `Client.ingest`."""
    columns, defaults = _described(client.sql(f"describe {_quoted(copy.table)}"))
    rows = file_rows(copy, columns, defaults)
    return client.ingest(copy.table, rows, token=token, atomic=atomic, timeout=timeout, wait=wait)


def _described(answer: pa.Table) -> tuple[dict[str, str], dict[str, str | None]]:
    """Types and defaults of columns, by their names, as a scheduler says. Raises `InvalidData` for other things."""
    names = ("column_name", "column_type", "default")
    if any(answer.schema.get_all_field_indices(name) == [] for name in names):
        raise InvalidData("the scheduler did not describe the table")
    said = [answer[name].to_pylist() for name in names]
    kinds = (str, str, str | None)
    if not all(isinstance(text, kind) for texts, kind in zip(said, kinds, strict=True) for text in texts):
        raise InvalidData("the scheduler did not describe the table in words")
    return dict(zip(said[0], said[1], strict=True)), dict(zip(said[0], said[2], strict=True))


def write_answer(
    client: Asking, copy: CopyTo, dialect: str | None, timeout: float | None, runtime: Runtime
) -> int:
    """Write the answer of the query to the file; how many rows. Raises as `write_file` and `Client.stream`."""
    answer = client.stream(copy.query, dialect, timeout=timeout)
    try:
        return write_file(copy, answer.schema, answer.batches(), runtime, timeout)
    finally:
        answer.cancel()


def file_rows(copy: CopyFrom, columns: Mapping[str, str], defaults: Mapping[str, str | None]) -> ArrowRows:
    """The rows of the file for a table with these columns and SQL types, in the table's order.

    A column that COPY does not name has the same value in all of them, its default or NULL.

    Raises `ConfigError` for a file that cannot be read, `SchemaMismatch` for one whose columns or values do not fit
    or whose first line may be a header or a row.
    """
    if not os.path.isfile(copy.path):
        raise ConfigError(f"file '{copy.path}' cannot be read: there is no such file")
    names = _file_columns(copy, list(columns))
    try:
        if copy.format == "parquet":
            rows = _parquet_rows(copy.path)
        else:
            rows = _csv_rows(copy, {name: columns[name] for name in names})
    except _OF_FILES as error:
        raise _spoilt(copy.path, error) from None
    if copy.columns is None:
        return rows
    absent = [name for name in columns if name not in names]
    values = _computed([f"cast({defaults[name] or 'null'} as {columns[name]})" for name in absent])
    return _in_order(rows, names, list(columns), dict(zip(absent, values, strict=True)))


def write_file(
    copy: CopyTo,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    runtime: Runtime,
    timeout: float | None = None,
) -> int:
    """Write the rows to the file, whole or not at all; how many. Raises `ConfigError` where it cannot be written.

    A file that was there keeps its permissions, and a link goes on leading to it. A pipe or device is written into;
    `TimeLimit` for a pipe that is not read within `timeout` seconds.
    """
    duckdb = _duckdb()
    failed: list[BaseException] = []
    target = _replaceable(copy.path)
    try:
        if target is None and is_pipe(copy.path):
            with relayed(copy.path, runtime, timeout, failed.append) as path:
                return _written(duckdb, copy, path, schema, _watched(batches, failed))
        if target is None:
            return _written(duckdb, copy, copy.path, schema, _watched(batches, failed))
        with tempfile.TemporaryDirectory(prefix=".copy-", dir=os.path.dirname(target)) as beside:
            path = os.path.join(beside, os.path.basename(target))  # whose ending may say how it is packed
            count = _written(duckdb, copy, path, schema, _watched(batches, failed))
            if os.path.exists(target):
                os.chmod(path, stat.S_IMODE(os.stat(target).st_mode))
            os.replace(path, target)
        return count
    except (OSError, duckdb.Error, pa.ArrowException) as error:
        if failed:
            raise failed[0] from None
        said = error.strerror if isinstance(error, OSError) else _said(error, copy.path)
        raise ConfigError(f"file '{copy.path}' cannot be written: {said}") from None


def _replaceable(path: str) -> str | None:
    """The plain file that another one can take the place of, behind all links; None for what is written into.

    Those are pipes and devices, and also `/dev/stdout` where it leads to a file: others write there, too.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        return None
    if any(os.path.abspath(path).startswith(home) for home in _SYSTEM):
        return None
    return target


def _written(duckdb: Any, copy: CopyTo, path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    options = [f"format {copy.format}", "use_tmp_file false"]  # it is one, or stands for what cannot be replaced
    for name, value in copy.options:
        options.append(f"{name} " + (f"({value[1:-1]})" if value.startswith("[") else value))
    with _connected(duckdb) as connection:
        connection.register("rows to write", pa.RecordBatchReader.from_batches(schema, batches))
        text = f'copy (from "rows to write") to {_literal(path)} ({", ".join(options)})'
        (count,) = connection.execute(text).fetchone() or (0,)
    return int(count)


def _connected(library: Any, **config: bool) -> duckdb.DuckDBPyConnection:
    """An engine of the client's in the time zone of the cluster, wherever the client is."""
    connection: duckdb.DuckDBPyConnection = library.connect(config=config)
    connection.execute("set global TimeZone = 'UTC'")
    return connection


def _watched(batches: Iterator[pa.RecordBatch], failed: list[BaseException]) -> Iterator[pa.RecordBatch]:
    """The batches; what ends them too early is kept, because the engine passes on no more than its text."""
    try:
        for batch in batches:
            if failed:
                raise failed[0]
            yield batch
    except GeneratorExit:  # the engine reads no further, and says why itself
        raise
    except BaseException as error:
        failed.append(error)
        raise


def has_header(first: Sequence[str | None], columns: Mapping[str, str], fits: Sequence[bool]) -> bool | None:
    """Whether the first line of a CSV file is a header; None where nobody can tell.

    It is one if it names the columns, and none if it does not and its values are of the types of columns that do
    not take every text. `fits` says which values are.

    >>> columns = {"id": "INTEGER", "kind": "VARCHAR"}
    >>> has_header(["ID", "Kind"], columns, [False, True]), has_header(["1", "a"], columns, [True, True])
    (True, False)
    >>> has_header(["number", "sort"], columns, [False, True]) is None
    True
    """
    if [_folded(value) for value in first] == [_folded(name) for name in columns]:
        return True
    told = [
        fit
        for value, kind, fit in zip(first, columns.values(), fits, strict=False)
        if value is not None and kind not in _TEXTS
    ]
    return False if told and all(told) and len(first) == len(columns) else None


def _file_columns(copy: CopyFrom, declared: list[str]) -> list[str]:
    """The table's names of the columns of the file, in the file's order."""
    if copy.columns is None:
        return declared
    by_name = {name.lower(): name for name in declared}
    wanted = [name.lower() for name in copy.columns]
    for name in wanted:
        if name not in by_name or wanted.count(name) > 1:
            problem = "twice" if name in by_name else f"which table '{copy.table}' does not have"
            raise SchemaMismatch(f"COPY names the column '{name}' {problem}")
    return [by_name[name] for name in wanted]


def _csv_rows(copy: CopyFrom, columns: Mapping[str, str]) -> ArrowRows:
    duckdb = _duckdb()
    with _connected(duckdb) as connection:
        if os.path.getsize(copy.path) == 0:
            nulls = ", ".join(f"null::{kind} as {_quoted(name)}" for name, kind in columns.items())
            return arrow_rows(connection.sql(f"select {nulls} limit 0").to_arrow_table())
        try:
            header = _header_of(connection, copy, columns)
            text = _read_csv(copy, columns, header)
            schema = connection.sql(f"{text} limit 0").to_arrow_reader(1).schema
        except duckdb.Error as error:
            raise _unreadable(copy, error) from None

    def batches() -> Iterator[pa.RecordBatch]:
        with _connected(duckdb) as reading:
            try:
                yield from reading.sql(text).to_arrow_reader(BATCH_ROWS)
            except (duckdb.Error, OSError, pa.ArrowException) as error:
                raise _unreadable(copy, error) from None

    return ArrowRows(schema, batches)


def _header_of(connection: duckdb.DuckDBPyConnection, copy: CopyFrom, columns: Mapping[str, str]) -> bool:
    """Whether the first line is a header. Raises `SchemaMismatch` where that is in doubt, or it names others."""
    said = copy.option("header")
    if said == "false":
        return False
    texts = dict.fromkeys(columns, "VARCHAR")
    given = connection.execute(f"{_read_csv(copy, texts, False, first=True)} limit 1").fetchall()
    if not given:
        return False
    first = [None if value is None else str(value) for value in given[0]]
    found, wanted = [_folded(value) for value in first], [_folded(name) for name in columns]
    if found != wanted and sorted(found) == sorted(wanted):
        order = ", ".join(str(value) for value in first)
        raise SchemaMismatch(
            f"file '{copy.path}' names the columns in another order: COPY {copy.table} ({order}) FROM …"
        )
    if said == "true":
        return True
    fits = _computed([_tried(copy, kind, value) for kind, value in zip(columns.values(), first, strict=False)])
    told = has_header(first, columns, [bool(fit.as_py()) for fit in fits])
    if told is None:
        raise SchemaMismatch(
            f"the first line of file '{copy.path}' may be a header or a row: say (HEADER true) or (HEADER false)"
        )
    return told


def _tried(copy: CopyFrom, kind: str, value: str | None) -> str:
    form, text = _form(copy, kind), "null::varchar" if value is None else _literal(value)
    return f"try_strptime({text}, {form}) is not null" if form else f"try_cast({text} as {kind}) is not null"


def _computed(expressions: Sequence[str]) -> list[pa.Scalar]:
    """The values of expressions in which words of the cluster stand, by an engine that reaches no file."""
    if not expressions:
        return []
    with _connected(_duckdb(), enable_external_access=False) as connection:
        row = connection.sql(f"select {', '.join(expressions)}").to_arrow_table()
    return [column[0] for column in row.columns]


def _form(copy: CopyFrom, kind: str) -> str | None:
    if kind == "DATE":
        return copy.option("dateformat")
    return copy.option("timestampformat") if kind.startswith("TIMESTAMP") else None


def _read_csv(copy: CopyFrom, columns: Mapping[str, str], header: bool, *, first: bool = False) -> str:
    """The query that gives the rows of the file with these columns; `first`: of the first line, as texts."""
    named = ", ".join(f"{_literal(name)}: {_literal(kind)}" for name, kind in columns.items())
    plain = ("header", "force_not_null", "dateformat", "timestampformat") if first else ("header",)
    more = "".join(f", {name} = {value}" for name, value in _with_quotes(copy.options) if name not in plain)
    path = _literal(re.sub(r"([*?\[])", r"[\1]", copy.path))
    return f"select * from read_csv({path}, columns = {{{named}}}, header = {str(header).lower()}{more})"


def _with_quotes(options: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The options with quotes as of RFC 4180 where nothing is said: else a file's own lines would say what they mean.

    >>> _with_quotes([("quote", "'|'")])
    [('quote', "'|'"), ('escape', "'|'")]
    """
    given = dict(options)
    quote = given.get("quote", "'\"'")
    return [*options, *((name, quote) for name in ("quote", "escape") if name not in given)]


def _unreadable(copy: CopyFrom, error: Exception) -> BallistaError:
    """The engine's words without its advice, which is for another command."""
    text = str(error)
    line = _ON_LINE.search(text)
    where = f"file '{copy.path}'" + (f", line {line[1]}" if line else "")
    if "unicode" in text.lower() and "utf-8" in text.lower():
        return SchemaMismatch(f"{where}: the text is not UTF-8: name its encoding, as in (ENCODING 'latin-1')")
    if "sniffing file" in text:
        return SchemaMismatch(
            f"{where}: its lines cannot be told as those of the table's columns: "
            "name the columns that it has, in its order, as COPY t (a, b) FROM; if those are right, say how it is "
            "written with DELIM, QUOTE and ESCAPE"
        )
    return SchemaMismatch(f"{where}: {_said(error, copy.path)}")


def _said(error: Exception, path: str) -> str:
    lines = [_NOTHING_SAID.sub("", line).strip() for line in ends_of(str(error)).splitlines()]
    told = [line for line in lines if line and not _ON_LINE.search(line)]
    return printable((told[0] if told else type(error).__name__).replace(path, "it").rstrip("."))


def _spoilt(path: str, error: Exception) -> BaseException:
    """That a file cannot be read, in one line; an error of ours says so itself."""
    if isinstance(error, BallistaError):
        return error
    said = printable(str(error).splitlines()[0]) if str(error) else type(error).__name__
    return ConfigError(f"file '{path}' cannot be read: {said}")


def _parquet_rows(path: str) -> ArrowRows:
    import pyarrow.parquet as pq

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH_ROWS):
                    batch.validate(full=True)
                    yield batch
        except _OF_FILES as error:  # wherever in the file it is spoilt
            raise _spoilt(path, error) from None

    return ArrowRows(pq.read_schema(path), batches)


def _in_order(
    rows: ArrowRows, names: list[str], wanted: list[str], constant: Mapping[str, pa.Scalar]
) -> ArrowRows:
    """The columns of the file, which are `names` of the table, in the table's order, with those that are constant."""
    if len(rows.schema) != len(names):
        raise SchemaMismatch(f"the file has {len(rows.schema)} columns, COPY names {len(names)}")
    places = {name: place for place, name in enumerate(names)}
    schema = pa.schema(
        [
            rows.schema.field(places[name]).with_name(name)
            if name in places
            else pa.field(name, constant[name].type)
            for name in wanted
        ]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows.batches():
            columns = [
                batch.column(places[name]) if name in places else pa.repeat(constant[name], batch.num_rows)
                for name in wanted
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return ArrowRows(schema, batches)


def _folded(name: str | None) -> str:
    return (name or "").strip().lower()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise MissingExtra.of("duckdb", "node") from None
    return duckdb
