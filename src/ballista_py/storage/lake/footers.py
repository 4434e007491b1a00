"""Footers of Parquet files of a lake: read once for each version of a file, and held against what is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from ballista_py.errors import BallistaError, DocumentUnreadable, Unsupported
from ballista_py.partitions.columns import with_said
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.storage.formats.parquet_ranges import TAIL_BYTES, footer_range
from ballista_py.storage.lake.footer_check import Leaf, require_sound
from ballista_py.storage.lake.matching import INT96
from ballista_py.storage.lake.opening import LakeOpener, OpenedFile

MAX_FOOTER = 64 << 20
_ENCRYPTED = b"PARE"
_KEPT_PER_COLUMN = 256


@frozen
class Footer:
    """What a file says of itself."""

    metadata: pq.FileMetaData
    schema: pa.Schema

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows)

    def leaves(self, names: Collection[str]) -> list[int]:
        """The numbers of the leaf columns of which these columns are made."""
        return [leaf for leaf, top in enumerate(self._tops()) if top in names]

    def group_bytes(self, group: int, leaves: Collection[int]) -> tuple[int, int]:
        """Bytes of some leaf columns in a row group, as they lie and when they are decompressed."""
        found = self.metadata.row_group(group)
        chunks = [found.column(leaf) for leaf in leaves]
        return sum(max(0, c.total_compressed_size) for c in chunks), sum(
            max(0, c.total_uncompressed_size) for c in chunks
        )

    def _tops(self) -> Iterator[str]:
        for leaf in range(self.metadata.num_columns):
            column = self.metadata.schema.column(leaf)
            yield column.path if column.path in self.schema.names else column.path.split(".")[0]


def footer_of(opener: LakeOpener, opened: OpenedFile) -> Footer:
    """The footer of an open file. Raises `DocumentUnreadable`, `Unsupported`, and what reading raises."""
    file = opened.file
    key = file.path, file.size, file.version
    known: Footer | None = opener.footers.get(key)
    if known is not None:
        return known
    with reading(opened):
        if file.size < 2 * TAIL_BYTES:
            raise DocumentUnreadable(f"file '{file.path}' is no Parquet file", file=file.path)
        opened.source.seek(file.size - TAIL_BYTES)
        tail = bytes(opened.source.read(TAIL_BYTES))
        if tail[4:] == _ENCRYPTED:
            raise Unsupported(f"file '{file.path}' is encrypted, which is not read here", file=file.path)
        try:
            start, stop = footer_range(file.size, tail)
        except DocumentUnreadable:
            raise DocumentUnreadable(f"file '{file.path}' is damaged or no Parquet file", file=file.path) from None
        if stop - start > MAX_FOOTER:
            raise DocumentUnreadable(
                f"the footer of file '{file.path}' has {stop - start:,} bytes", file=file.path
            )
        opened.source.seek(start)
        said = bytes(opened.source.read(stop - start - TAIL_BYTES))
        opened.source.seek(0)
        with pq.ParquetFile(opened.source, coerce_int96_timestamp_unit="us") as parquet:
            columns = [parquet.metadata.schema.column(leaf) for leaf in range(parquet.metadata.num_columns)]
            leaves = [
                Leaf(c.physical_type, c.length, (c.max_repetition_level, c.max_definition_level)) for c in columns
            ]
            require_sound(said, leaves, file.path)
            found = Footer(parquet.metadata, _noted(parquet))
            for field in found.schema:
                _look_at(field.type)
        _check(found, file.path)
        opened.check()
    size = stop - start + _KEPT_PER_COLUMN * found.metadata.num_columns * (1 + found.metadata.num_row_groups)
    opener.footers.put(key, found, size)
    return found


def footer_at(
    opener: LakeOpener, path: str, credentials: StorageCredentials | None, size: int | None, version: str | None
) -> Footer:
    """The footer of a file, which need not be opened where its version is known and its footer remembered."""
    if size is not None and version:
        known: Footer | None = opener.footers.get((path, size, version))
        if known is not None:
            return known
    with opener.open(path, credentials, size=size, version=version) as opened:
        return footer_of(opener, opened)


@contextmanager
def reading(opened: OpenedFile) -> Iterator[None]:
    """Errors of reading as ours: first whether the file is still what it was, and the store's own."""
    path = opened.file.path
    try:
        yield
    except (BallistaError, pa.ArrowMemoryError):
        raise
    except pa.ArrowNotImplementedError as error:
        opened.check()
        raise Unsupported(
            f"file '{path}' has something that is not read here: {_short(error)}", file=path
        ) from None
    except (OSError, pa.ArrowException, UnicodeDecodeError, ValueError, OverflowError) as error:
        opened.check()
        if "encrypted" in str(error).lower():
            raise Unsupported(f"file '{path}' is encrypted, which is not read here", file=path) from None
        raise DocumentUnreadable(
            f"file '{path}' is damaged or no Parquet file ({type(error).__name__})", file=path
        ) from None


def _noted(parquet: pq.ParquetFile) -> pa.Schema:
    """The columns of the file; of times without a zone, whether they are INT96."""
    kinds = {}
    for leaf in range(parquet.metadata.num_columns):
        column = parquet.metadata.schema.column(leaf)
        kinds[column.path] = column.physical_type
    fields = [
        with_said(field, INT96, "1") if kinds.get(field.name) == "INT96" else field
        for field in parquet.schema_arrow
    ]
    return pa.schema(fields)


def _look_at(kind: pa.DataType) -> None:
    """Raises `UnicodeDecodeError` for names and zones that are no text, which is told when they are asked for."""
    if pa.types.is_timestamp(kind):
        _ = kind.tz
    for place in range(kind.num_fields):
        _ = kind.field(place).name
        _look_at(kind.field(place).type)


def _check(footer: Footer, path: str) -> None:
    groups = [footer.metadata.row_group(number).num_rows for number in range(footer.metadata.num_row_groups)]
    if any(rows < 0 for rows in groups) or sum(groups) != footer.rows:
        raise DocumentUnreadable(f"the row groups of file '{path}' have other rows than it says", file=path)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
