"""What the footers of plain Parquet files say, and their rows: of exactly the version that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define, evolve, field, frozen

from ballista_py.errors import DocumentUnreadable, SchemaMismatch
from ballista_py.partitions.columns import two_alike
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime
from ballista_py.storage.formats.columns import as_schema, columns_to_read
from ballista_py.storage.formats.parquet import BATCH_ROWS
from ballista_py.storage.plain.folders import PlainFile, PlainFolder

MAX_KNOWN, MAX_KNOWN_BYTES = 200_000, 256 << 20
_ENTRY_BYTES, _GROUP_BYTES, _COLUMN_BYTES = 512, 128, 256


@frozen(kw_only=True)
class PlainShape:
    """The columns of a file, and rows and bytes of each of its row groups."""

    schema: pa.Schema
    groups: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return sum(rows for rows, _ in self.groups)


@frozen(kw_only=True)
class PlainSection:
    """Row groups of one version of a file that are read one after the other: `count` of them from `first` on."""

    file: PlainFile
    first: int
    count: int
    rows: int
    bytes: int


@define
class PlainFiles:
    """The files of a folder, read. What footers say is remembered. Safe to share between threads."""

    folder: PlainFolder
    runtime: Runtime
    _known: Remembered[PlainShape] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._known = Remembered(MAX_KNOWN, MAX_KNOWN_BYTES, self.runtime)

    def shape(self, file: PlainFile) -> PlainShape:
        """What the footer says. Raises `SnapshotGone`, `DocumentUnreadable`, and what reading raises."""
        known = self._known.get((file.path, file.version))
        if known is not None:
            return known
        with self.folder.open(file) as pinned:
            try:
                with _parquet(pinned.source) as opened:
                    footer = opened.metadata
                    groups = tuple(_group(footer, number) for number in range(footer.num_row_groups))
                    found = PlainShape(schema=_declared(opened.schema_arrow), groups=groups)
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                pinned.check()
                raise _unreadable(file.path, error) from None
            pinned.check()
        size = _ENTRY_BYTES + _GROUP_BYTES * len(groups) + _COLUMN_BYTES * len(found.schema)
        self._known.put((file.path, file.version), found, size)
        return found

    def fits(self, file: PlainFile, schema: pa.Schema) -> PlainShape:
        """As `shape`. Raises `SchemaMismatch` for a file that has not these columns, each once and of that type."""
        found = self.shape(file)
        if found.schema.equals(schema):
            return evolve(found, schema=schema)
        alike = len(set(map(str.lower, found.schema.names))) < len(found.schema)
        why = f"it has {two_alike(found.schema.names)}" if alike else _difference(found.schema, schema)
        if why is not None:
            raise SchemaMismatch(f"file '{file.path}' is not of its table: {why}", file=file.path)
        return found

    def batches(self, section: PlainSection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a section under exactly `schema`. Raises as `shape`, and `SchemaMismatch`."""
        name = section.file.path
        with self.folder.open(section.file) as pinned:
            try:
                with _parquet(pinned.source) as opened:
                    columns = columns_to_read(opened.schema_arrow, schema, name)
                    for number in range(section.first, section.first + section.count):
                        for batch in opened.iter_batches(BATCH_ROWS, row_groups=[number], columns=columns):
                            pinned.check()
                            yield from as_schema(batch.select(columns), schema, name)
            except pa.ArrowMemoryError:  # says nothing of the file
                raise
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                pinned.check()
                raise _unreadable(name, error) from None
            pinned.check()


def sections_of(file: PlainFile, shape: PlainShape, target_bytes: int) -> list[PlainSection]:
    """The row groups with rows of a file, in sections of about `target_bytes`.

    >>> shape = PlainShape(schema=pa.schema([]), groups=((5, 10), (0, 0), (5, 10), (5, 10)))
    >>> file = PlainFile(path="a", size=30, version="1")
    >>> [(one.first, one.count, one.rows) for one in sections_of(file, shape, 20)]
    [(0, 3, 10), (3, 1, 5)]
    """
    found: list[PlainSection] = []
    for number, (rows, size) in enumerate(shape.groups):
        if not rows:
            continue
        if found and found[-1].bytes + size <= target_bytes:
            last = found[-1]
            count = number + 1 - last.first
            found[-1] = evolve(last, count=count, rows=last.rows + rows, bytes=last.bytes + size)
        else:
            found.append(PlainSection(file=file, first=number, count=1, rows=rows, bytes=size))
    return found


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, pre_buffer=True, coerce_int96_timestamp_unit="us")


def _group(footer: pq.FileMetaData, number: int) -> tuple[int, int]:
    group = footer.row_group(number)
    size = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
    return group.num_rows, max(0, size)


def _declared(schema: pa.Schema) -> pa.Schema:
    """The columns as a table of a cluster would have them: values as such, however they lie in the file."""
    return pa.schema([pa.field(column.name, _plain_type(column.type)) for column in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _difference(held: pa.Schema, schema: pa.Schema) -> str | None:
    """What a file lacks or has beside the columns of its table, in words."""
    for column in schema:
        place = held.get_field_index(column.name)
        if place < 0:
            return f"it has no column '{column.name}'"
        if held.field(place).type != column.type:
            return f"its column '{column.name}' is {held.field(place).type}, where others have {column.type}"
    more: Sequence[str] = [name for name in held.names if name not in schema.names]
    return f"it has a column '{more[0]}', which others have not" if more else None


def _unreadable(name: str, error: BaseException) -> DocumentUnreadable:
    return DocumentUnreadable(f"file '{name}' is damaged or no Parquet file ({type(error).__name__})", file=name)
