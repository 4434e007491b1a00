"""Statements that nobody has sent before, or over large values: where they run, and how many rows at a time.

Parsers and engines are large, partly compiled, and change with each version: nobody has a list of the texts that end
a process, break a database or are read for hours. What such a text ends is the process in which it was tried. What is
plain is not tried, nor what is like a statement that was: so a lookup pays some microseconds for it.

Where a statement over large values runs, and in how many rows at a time: pure.

DuckDB works on vectors of 2,048 rows, a thread each, and counts none of the values that an expression makes of one
vector. With values of kilobytes that is nothing; with values of megabytes it is all the memory of a node. So what is
read is looked at: how large its values are, how many of them can stand together, how often a statement copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.engines.apart.shares import MIN_SHARE_BYTES
from ballista_py.errors import SqlError
from ballista_py.partitions.value_sizes import NONE_LARGE, SMALL_BYTES, LargeValues, may_be_large
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.parsing import ENGINE_DIALECT, READ_BYTES_PER_CHARACTER
from ballista_py.sql.parse.plain_text import is_plain, masked
from ballista_py.turns import Turns
from ballista_py.work import current_client, pause, run_apart

__all__ = ["Tables", "Trials", "Tries"]


VECTOR_ROWS = 2_048
BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
ANSWER_BATCH_BYTES = 1 << 20  # of a batch of an answer, as far as its types tell
LEAST_BATCH_BYTES = 64 << 10
STREAMED_BYTES = 10 << 20  # of an answer, by an engine that is not told otherwise
AT_ONCE = 32  # of such batches, what a node may take
_TEXT_BYTES = 24  # as one guesses
FEED_BYTES = 4 << 20  # of rows for a process: what comes in small batches is worked on in small vectors
MAX_UNCOUNTED_BYTES = 192 << 20  # that a statement may take in the node's process beyond what its engine counts
LARGEST_VALUE = b"ballista largest value"  # in the metadata of the columns of an answer
UNKNOWN_BYTES = 1 << 62
MAX_DIGITS = 18  # what peers say is no larger than what is unknown


class LargeByFile:
    """The large values of loaded files, by column; of files that have none nothing is kept."""

    def __init__(self) -> None:
        self._files: dict[int, dict[str, LargeValues]] = {}

    def note(self, file_id: int, batch: pa.RecordBatch) -> None:
        """Count those of some rows of a file."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            found = LargeValues.of(column)
            if found.counts:
                columns = self._files.setdefault(file_id, {})
                columns[name] = LargeValues.all_of([columns.get(name, NONE_LARGE), found])

    def take(self, others: LargeByFile) -> None:
        """Keep those of other files, too."""
        self._files.update(others._files)

    def copy(self, of: int, file_id: int) -> None:
        """Keep for another file what is kept of one whose rows it has."""
        if of in self._files:
            self._files[file_id] = self._files[of]

    def forget(self, file_id: int) -> None:
        """Keep nothing of a file."""
        self._files.pop(file_id, None)

    def under(self, names: Sequence[str]) -> LargeByFile:
        """The same where the columns have other names: any may hold what one of them held."""
        made = LargeByFile()
        for file_id, columns in self._files.items():
            made._files[file_id] = dict.fromkeys(names, LargeValues.all_of(columns.values()))
        return made

    def of(self, file_ids: Iterable[int], columns: Iterable[str]) -> dict[str, LargeValues]:
        """Those of these columns in these files, where there are any."""
        if not self._files:
            return {}
        found = [self._files[file_id] for file_id in file_ids if file_id in self._files]
        named = {column: [one[column] for one in found if column in one] for column in columns}
        return {column: LargeValues.all_of(values) for column, values in named.items() if values}


@frozen
class LargeInputs:
    """The large values of what a statement reads; `unknown` of relations of which nobody counted them."""

    values: LargeValues = NONE_LARGE
    unknown: int = 0  # bytes that none of their values exceeds
    schemas: Sequence[pa.Schema] = ()  # of all that is read

    @property
    def largest(self) -> int:
        """What no value exceeds; 0 if all are small."""
        return max(self.values.largest, self.unknown)

    def together(self, rows: int, *, joined: bool) -> int:
        """What so many rows take at most; those of a join may all have the largest value."""
        if joined:
            return rows * self.largest
        return min(UNKNOWN_BYTES, self.values.together(rows) + rows * self.unknown)


class Reads(Protocol):
    """A statement that was checked: what it reads."""

    @property
    def relations(self) -> frozenset[str]: ...
    def columns_of(self, schema: pa.Schema) -> list[str]: ...


@frozen
class Way:
    """How a statement runs: `apart` or in the node's process, and at most so many rows of its answer at a time."""

    apart: bool = False
    batch_rows: int = BATCH_ROWS


def way_of(
    given: LargeInputs,
    *,
    copies: int,
    growth: int,
    joined: bool,
    threads: int,
    rows: int | None = None,
    vector_rows: int = VECTOR_ROWS,
) -> Way:
    """How a steady statement runs that makes so many `copies` of what it reads, and of values `growth` times as large.

    It looks at no more than so many `rows`, if that is known, and works on `vector_rows` of them at a time in a thread.

    >>> text = LargeValues({24: 36})
    >>> way_of(LargeInputs(text), copies=0, growth=1, joined=False, threads=2).apart
    True
    >>> way_of(LargeInputs(LargeValues({14: 1_000_000})), copies=1, growth=1, joined=False, threads=2)
    Way(apart=False, batch_rows=1024)
    """
    if not given.largest:
        return Way()
    at_once = vector_rows * threads if rows is None else min(rows, vector_rows * threads)
    # One more than the copies: the answer's rows, which wait to be read.
    uncounted = given.together(at_once, joined=joined) * (copies + 1)
    return Way(
        apart=uncounted > MAX_UNCOUNTED_BYTES,
        batch_rows=_rows(given, growth, joined),
    )


def _rows(given: LargeInputs, growth: int, joined: bool) -> int:
    """The most rows, as a power of two, that take no more than a batch shall."""
    rows = BATCH_ROWS
    while rows > 1 and given.together(rows, joined=joined) * growth > BATCH_BYTES:
        rows //= 2
    return rows


def answer_rows(schema: pa.Schema, running: int, node_bytes: int | None) -> int:
    """How many rows a batch of an answer has, with so many statements `running` at a node that may take `node_bytes`.

    About a megabyte of them, so that what is on its way and not read yet is little; less where very many run.

    >>> few, many = pa.schema({"a": pa.int64(), "b": pa.string()}), pa.schema({f"c{i}": pa.int64() for i in range(99)})
    >>> answer_rows(few, 1, 1 << 30), answer_rows(few, 128, 1 << 30), answer_rows(many, 512, 1 << 30)
    (32768, 8192, 2048)
    """
    share = ANSWER_BATCH_BYTES if node_bytes is None else node_bytes // (AT_ONCE * max(1, running))
    size = max(LEAST_BATCH_BYTES, min(ANSWER_BATCH_BYTES, share))
    rows = size // max(1, sum(map(_bytes_of, schema.types)))
    return int(min(BATCH_ROWS, max(VECTOR_ROWS, rows // VECTOR_ROWS * VECTOR_ROWS)))


def streams_little(running: int, node_bytes: int | None) -> bool:
    """Whether so many statements run that the engine shall make little of an answer before somebody asks for it.

    >>> streams_little(2, 1 << 30), streams_little(16, 1 << 30), streams_little(500, None)
    (False, True, False)
    """
    return node_bytes is not None and running * STREAMED_BYTES * 16 > node_bytes


def _bytes_of(kind: pa.DataType) -> int:
    """What a value takes; a guess, where that is told by the value."""
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES


def largest_given(given: LargeInputs, growth: int, *, steady: bool) -> int:
    """What no value of the answer exceeds; 0 if all are small."""
    if not steady:
        return UNKNOWN_BYTES
    if growth <= 1:
        return given.largest
    return max(given.largest, SMALL_BYTES) * growth


def said_largest(schema: pa.Schema) -> int:
    """What no value of a stream exceeds, by what its sender said of it; 0 if all are small."""
    if not any(may_be_large(kind) for kind in schema.types):
        return 0
    said = (schema.metadata or {}).get(LARGEST_VALUE, b"0")
    return int(said) if said.isdigit() and len(said) <= MAX_DIGITS else UNKNOWN_BYTES


def with_largest(schema: pa.Schema, largest: int) -> pa.Schema:
    """The columns of an answer, which say how large its values may be."""
    if not largest or not any(may_be_large(kind) for kind in schema.types):
        return schema
    return schema.with_metadata({**(schema.metadata or {}), LARGEST_VALUE: str(largest).encode()})


def given_by(
    statement: Reads,
    scans: Mapping[str, Iterable[int]],
    streams: Mapping[str, pa.RecordBatchReader | pa.Table],
    schema_of: Callable[[str], pa.Schema],
    large_of: Callable[[str, Iterable[int], Sequence[str]], LargeValues],
) -> LargeInputs:
    """The large values of what a statement reads: of loaded files (`large_of`), of rows at hand, of streams."""
    values, unknown, schemas = [], 0, []
    for name in statement.relations:
        schemas.append(schema_of(name) if name in scans else streams[name].schema)
        if name in scans:
            values.append(large_of(name, scans[name], statement.columns_of(schemas[-1])))
        elif isinstance(stream := streams[name], pa.Table):
            values.append(of_table(stream, statement.columns_of(stream.schema)))
        else:
            unknown = max(unknown, said_largest(stream.schema))
    return LargeInputs(LargeValues.all_of(values), unknown, schemas)


def of_table(table: pa.Table, columns: Collection[str]) -> LargeValues:
    """The large values in these columns of rows at hand."""
    return LargeValues.all_of(_of_chunks(table.column(name) for name in columns))


def _of_chunks(columns: Iterable[pa.ChunkedArray]) -> Iterable[LargeValues]:
    return (LargeValues.of(chunk) for column in columns for chunk in column.chunks)


MAX_REMEMBERED = 4_096
ENTRY_BYTES = 256
OF_CLIENT, IN_ALL = 2, 8
AFTER_DEATH_MS = (
    2_000.0  # that a client waits whose text has ended a process: another one takes half a second to start
)
_PLAIN_VALUES = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal128, pa.types.is_boolean, pa.types.is_string,
    pa.types.is_large_string, pa.types.is_date, pa.types.is_timestamp, pa.types.is_time, pa.types.is_null,
)  # fmt: skip

Tables = Callable[[bool], tuple[Mapping[str, pa.Schema], Mapping[str, str]]]
"""The tables that a statement may name, and what tells each from what it was and will be; with True as of now."""


class Tries(Protocol):
    """Where statements are tried: `Workers`."""

    def try_statement(
        self,
        sql: str,
        dialect: str | None,
        schemas: Mapping[str, pa.Schema],
        share: int,
        parameters: pa.Schema | None,
    ) -> bool: ...


@define
class Trials:
    """Remembers which statements were tried. Safe to share between threads."""

    tries: Tries
    runtime: Runtime
    _passed: Remembered[bool] = field(init=False)
    _turns: Turns = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._passed = Remembered(MAX_REMEMBERED, MAX_REMEMBERED * ENTRY_BYTES, self.runtime)
        self._turns = Turns(self.runtime, IN_ALL)

    def require_survived(
        self, text: str, dialect: str | None, tables: Tables, parameters: pa.Schema | None = None
    ) -> None:
        """Try a client's text, unless it is plain or like one that was tried over the same tables.

        `parameters` are the types of the values that it is to be run with, if they are known. A text that could not be
        run to its end there is no less hostile for that: whatever this call computes from it runs apart.

        Raises `SqlError` for a text over which a process ended, and as `Workers.try_statement`.
        """
        alike = masked(text) if dialect in (None, ENGINE_DIALECT) else None
        if is_plain(alike) and all(map(_is_plain_value, () if parameters is None else parameters.types)):
            return
        schemas, marks = tables(False)
        understood = self._passed.get(_key(alike or text, dialect, marks, parameters))
        if understood is None:
            understood = self._try(text, dialect, schemas, parameters)
            if not understood:  # it may be about a table that is new
                schemas, newer = tables(True)
                if newer != marks:
                    marks = newer
                    understood = self._try(text, dialect, schemas, parameters)
            self._passed.put(_key(alike or text, dialect, marks, parameters), understood, ENTRY_BYTES)
        if not understood:
            run_apart()

    def _try(
        self,
        text: str,
        dialect: str | None,
        schemas: Mapping[str, pa.Schema],
        parameters: pa.Schema | None,
    ) -> bool:
        share = max(MIN_SHARE_BYTES, READ_BYTES_PER_CHARACTER * len(text))
        with self._turns.turn(current_client(), OF_CLIENT):
            try:
                return self.tries.try_statement(text, dialect, schemas, share, parameters)
            except SqlError:
                pause(self.runtime, AFTER_DEATH_MS)
                raise


def _is_plain_value(kind: pa.DataType) -> bool:
    """Whether a parameter of the type stands in a text as an ordinary constant, perhaps with a cast.

    >>> _is_plain_value(pa.int64()), _is_plain_value(pa.duration("us"))
    (True, False)
    """
    return any(test(kind) for test in _PLAIN_VALUES)


def _key(alike: str, dialect: str | None, marks: Mapping[str, str], parameters: pa.Schema | None) -> bytes:
    """What is kept of a statement, which may be long."""
    given = "" if parameters is None else parameters.to_string(show_schema_metadata=False)
    parts = (dialect or ENGINE_DIALECT, given, alike, *(f"{name}\0{mark}" for name, mark in sorted(marks.items())))
    return blake2b("\0\0".join(parts).encode(errors="surrogatepass"), digest_size=16).digest()
