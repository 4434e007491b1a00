"""Where a statement over large values runs, and in how many rows at a time: pure.

DuckDB works on vectors of 2,048 rows, a thread each, and counts none of the values that an expression makes of one
vector. With values of kilobytes that is nothing; with values of megabytes it is all the memory of a node. So what is
read is looked at: how large its values are, how many of them can stand together, how often a statement copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from attrs import frozen

from ballista_py.partitions.value_sizes import NONE_LARGE, SMALL_BYTES, LargeValues, may_be_large

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

    def said(self, file_id: int) -> dict[str, dict[int, int]]:
        """What is kept of a file, as plain values."""
        return {name: dict(values.counts) for name, values in self._files.get(file_id, {}).items()}

    def restore(self, file_id: int, said: Mapping[str, Mapping[int, int]]) -> None:
        """Keep of a file what was said of it."""
        if said:
            self._files[file_id] = {name: LargeValues(dict(counts)) for name, counts in said.items()}

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
