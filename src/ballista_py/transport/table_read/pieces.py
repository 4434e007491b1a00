"""Pieces of sections: data files on their way as they lie on disk, or rows packed as Arrow; docs/table-read.md."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import InvalidData
from ballista_py.transport.arrow.door import read_rows

PARQUET, VORTEX, ARROW = "parquet", "vortex", "arrow"
PACKINGS: dict[str, str | None] = {ARROW: None, "arrow+lz4": "lz4", "arrow+zstd": "zstd"}
ON_DISK = frozenset({PARQUET, VORTEX})
ENCODINGS = ON_DISK | PACKINGS.keys()
MAX_SECTION_BYTES = 64 << 30
MAX_GONE = 1 << 20  # rows of a section that are named because they are no more: with more it comes as Arrow

_COLUMNS = pa.schema(
    [
        pa.field("encoding", pa.string(), nullable=False),
        pa.field("offset", pa.uint64(), nullable=False),
        pa.field("bytes", pa.binary(), nullable=False),
        pa.field("crc32", pa.uint32(), nullable=False),
        pa.field("first", pa.uint64(), nullable=False),
        pa.field("stop", pa.uint64(), nullable=False),
        pa.field("section_bytes", pa.uint64(), nullable=False),
        pa.field("gone", pa.list_(pa.field("item", pa.uint64(), nullable=False))),
    ]
)
PIECES = _COLUMNS
NO_PLACES = np.empty(0, np.int64)


@frozen(kw_only=True)
class SectionPiece:
    """Some bytes of a section, at their `offset` in its file of `section_bytes`, in one of the `ENCODINGS`.

    Once it is there rows `first` to `stop` of the file can be read, counted as they lie there; none where these are
    the same. The first piece of a file says which of its rows are `gone`. Of Arrow each piece is a stream by itself,
    and the rest says nothing.
    """

    encoding: str
    data: Any = field(repr=False)
    offset: int = 0
    first: int = 0
    stop: int = 0
    section_bytes: int = 0
    gone: npt.NDArray[np.int64] | None = field(default=None, eq=False, repr=False)

    def to_batch(self) -> pa.RecordBatch:
        """The piece as a batch of one row of `PIECES`."""
        size = np.array([0, len(self.data)], np.int32).tobytes()
        data = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(size), pa.py_buffer(self.data)])
        values: Iterable[Any] = (
            self.encoding, self.offset, None, zlib.crc32(self.data), self.first, self.stop, self.section_bytes,
            None if self.gone is None else self.gone,
        )  # fmt: skip
        arrays = [
            data if column.name == "bytes" else pa.array([value], column.type)
            for column, value in zip(PIECES, values, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=PIECES)


def pieces_in(batch: pa.RecordBatch) -> Iterator[SectionPiece]:
    """The pieces that a Server sent. Raises `InvalidData` for columns, values or bytes that cannot be.

    >>> one = SectionPiece(encoding="parquet", data=b"PAR1", section_bytes=4)
    >>> next(pieces_in(one.to_batch())) == one
    True
    """
    if batch.schema.types != PIECES.types or any(column.null_count for column in batch.columns[:-1]):
        raise InvalidData("a node gave other columns than pieces of sections have")
    for row in range(batch.num_rows):
        values = {name: column[row] for name, column in zip(PIECES.names, batch.columns, strict=True)}
        said = {name: values[name].as_py() for name in ("encoding", "offset", "first", "stop", "section_bytes")}
        data = values["bytes"].as_buffer()
        gone = values["gone"].values
        if zlib.crc32(data) != values["crc32"].as_py():
            raise InvalidData("a piece of a section was damaged on its way: read again")
        if said["encoding"] not in ENCODINGS or said["section_bytes"] > MAX_SECTION_BYTES:
            raise InvalidData(
                "a node gave a section in a form that this client does not know, or that is too large"
            )
        if said["encoding"] not in PACKINGS and said["offset"] + len(data) > said["section_bytes"]:
            raise InvalidData("a node gave bytes of a section from behind its end")
        yield SectionPiece(data=data, gone=None if gone is None else _places(gone), **said)


def packing_of(encodings: Sequence[str]) -> str | None:
    """How a Client likes best to have rows packed as Arrow, of the forms that it takes; None: it has named none.

    >>> packing_of(["parquet", "arrow+lz4", "arrow"]), packing_of(["parquet"])
    ('arrow+lz4', None)
    """
    return next((name for name in encodings if name in PACKINGS), None)


def packed_piece(batch: pa.RecordBatch, packing: str) -> SectionPiece:
    """Rows as a piece, which is an IPC stream by itself."""
    options = pa.ipc.IpcWriteOptions(compression=PACKINGS[packing])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return SectionPiece(encoding=packing, data=sink.getvalue())


def unpacked(piece: SectionPiece) -> list[pa.RecordBatch]:
    """The rows of such a piece. Raises `InvalidData` for one of another form, and for what is no stream of rows."""
    if piece.encoding not in PACKINGS:
        raise InvalidData("a node gave a section in a form that was not asked for")
    rows = read_rows(bytes(piece.data), compressed=PACKINGS[piece.encoding] is not None)
    return list(rows.to_batches())


def _places(gone: pa.Array) -> npt.NDArray[np.int64]:
    found = gone.to_numpy(zero_copy_only=False).astype(np.int64)
    if len(found) > MAX_GONE or not bool(np.all(found[1:] > found[:-1])) or (len(found) and found[0] < 0):
        raise InvalidData("a node named rows of a section that are gone, but not in their order")
    return np.asarray(found, np.int64)
