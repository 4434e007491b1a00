"""Deletion vectors: which rows of a data file are gone, as a small file beside it that spares it being written anew.

A vector names places, counted from 0 in the order in which the rows lie in the file. It is a Parquet file with the
one column `pos`, ascending. A manifest names the vector, and in its entry the original; neither is ever changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import evolve

from ballista_py.errors import DocumentUnreadable
from ballista_py.storage.formats.statistics import ColumnStatistics
from ballista_py.storage.manifest import DataFile, OriginalFile

FORMAT = "deletions"
Places: TypeAlias = npt.NDArray[np.int64]
NONE_GONE: Places = np.empty(0, np.int64)
_SCHEMA = pa.schema([pa.field("pos", pa.int64(), nullable=False)])


def encode(gone: Places) -> bytes:
    """The places as a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table([pa.array(gone)], schema=_SCHEMA),
        sink,
        compression="zstd",
        use_dictionary=False,
        column_encoding="DELTA_BINARY_PACKED",
        write_statistics=False,
    )
    return bytes(sink.getvalue())


def decode(data: bytes, file: DataFile) -> Places:
    """The places that a vector names. Raises `DocumentUnreadable` unless they are what its manifest says."""
    original = _original(file)
    try:
        found = pq.read_table(pa.py_buffer(data), schema=_SCHEMA).column("pos")
        gone = np.asarray(found.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DocumentUnreadable(f"deletion vector '{file.path}' cannot be read", file=file.path) from error
    ascends = bool(np.all(gone[1:] > gone[:-1]))
    if not ascends or (len(gone) and not 0 <= gone[0] <= gone[-1] < original.rows):
        raise DocumentUnreadable(
            f"deletion vector '{file.path}' names rows that '{original.path}' does not have, or not in their order",
            file=file.path,
        )
    if len(gone) != original.rows - file.rows:
        raise DocumentUnreadable(
            f"deletion vector '{file.path}' names {len(gone)} rows instead of {original.rows - file.rows}",
            file=file.path,
        )
    return gone


def described(key: str, of: DataFile, gone: Places, size: int, checksum: str) -> DataFile:
    """What a manifest says of a vector of so many bytes at `key`, of a file or of a vector's original."""
    original = of.original or OriginalFile(
        path=of.path, rows=of.rows, bytes=of.bytes, checksum=of.checksum, format=of.format
    )
    return DataFile(
        path=key,
        rows=original.rows - len(gone),
        bytes=size,
        checksum=checksum,
        format=FORMAT,
        columns=_still_true(of.columns),
        definition=of.definition,
        original=original,
    )


def original_of(file: DataFile) -> DataFile:
    """The data file that a vector is of."""
    original = _original(file)
    return evolve(
        file,
        path=original.path,
        rows=original.rows,
        bytes=original.bytes,
        checksum=original.checksum,
        format=original.format,
        original=None,
    )


def numbered(
    batches: Iterable[pa.RecordBatch], gone: Places = NONE_GONE
) -> Iterator[tuple[Places, pa.RecordBatch]]:
    """The rows of a file that are not `gone`, each batch with the places of its rows.

    >>> batches = [pa.record_batch({"n": [7, 8]}), pa.record_batch({"n": [9]})]
    >>> [(places.tolist(), rows.to_pydict()) for places, rows in numbered(batches, np.array([0]))]
    [([1], {'n': [8]}), ([2], {'n': [9]})]
    """
    first = 0
    for batch in batches:
        places = np.arange(first, first + batch.num_rows, dtype=np.int64)
        low, high = np.searchsorted(gone, (first, first + batch.num_rows))
        if high > low:
            kept = np.ones(batch.num_rows, np.bool_)
            kept[gone[low:high] - first] = False
            yield places[kept], batch.filter(pa.array(kept))
        else:
            yield places, batch
        first += batch.num_rows


def _original(file: DataFile) -> OriginalFile:
    if file.original is None or file.format != FORMAT:
        raise DocumentUnreadable(
            f"the manifest of data file '{file.path}' names its format '{file.format}', and "
            f"{'no' if file.original is None else 'an'} original file",
            file=file.path,
        )
    return file.original


def _still_true(columns: Mapping[str, ColumnStatistics]) -> dict[str, ColumnStatistics]:
    """The statistics after some rows went: bounds hold, and how many values are null is known where none was."""
    return {
        name: evolve(found, null_count=0 if found.null_count == 0 else None) for name, found in columns.items()
    }
