"""Data files on the object store: written once, never changed, checked when they come from afar.

The rows of an immutable data file, ready to be loaded: as a plain file of this machine, or still at hand.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import DocumentUnreadable, SchemaMismatch
from ballista_py.partitions.columns import in_files, in_fills, is_same, restored, stored_names
from ballista_py.state.stores.store import ConditionalStore, local_path
from ballista_py.storage.formats import deletion_vector, parquet
from ballista_py.storage.formats.deletion_vector import NONE_GONE, Places, numbered, original_of
from ballista_py.storage.formats.formats import file_format
from ballista_py.storage.manifest import DataFile

_BLOCK_BYTES = 1 << 20
MAX_DATA_FILE_BYTES = 5 << 30  # of one that no manifest describes yet: as much as one request can store


def write_data_file(
    store: ConditionalStore, key: str, rows: pa.Table, format_name: str = "parquet", definition: int = 0
) -> DataFile:
    """Store the rows as a file under `key`, which must be fresh. Nobody sees it until a manifest names it.

    Their schema is that of their table by that `definition`.

    Raises `ObjectExists` when something is stored there already, `ConfigError` for a format that is not known or
    not installed, and what `store.create` raises.
    """
    data, columns = file_format(format_name).encode(in_files(rows))
    store.create(key, data)
    return DataFile(
        path=key,
        rows=rows.num_rows,
        bytes=len(data),
        checksum=checksum(data),
        format=format_name,
        columns=columns,
        definition=definition,
    )


def write_deletion_vector(store: ConditionalStore, key: str, of: DataFile, gone: Places) -> DataFile:
    """Store which rows of a data file are gone under `key`, which must be fresh. Nobody sees it until a manifest
    names it.

    `gone` are all places, ascending, those of a vector that `of` is, too. Raises what `store.create` raises.
    """
    data = deletion_vector.encode(gone)
    store.create(key, data)
    return deletion_vector.described(key, of, gone, len(data), checksum(data))


def read_places(store: ConditionalStore, file: DataFile) -> Places:
    """The places that a deletion vector names. Raises `ObjectMissing` and `DocumentUnreadable`."""
    return deletion_vector.decode(check_bytes(store.get(file.path, file.bytes).data, file), file)


def describe_data_file(store: ConditionalStore, key: str) -> DataFile:
    """The description of a file that another program put under `key`.

    Raises `ObjectMissing`, and `DocumentUnreadable` when it is no Parquet file.
    """
    path = local_path(store, key)
    if path is None:
        data = store.get(key, MAX_DATA_FILE_BYTES).data
        return _describe(key, pa.py_buffer(data), len(data), checksum(data))
    return describe_local_file(path, key)


def describe_local_file(path: str, key: str) -> DataFile:
    """The description of the file at `path` of this machine, which is or will be stored under `key`.

    Raises `DocumentUnreadable` when it is missing or no Parquet file.
    """
    try:
        with open(path, "rb") as file:
            text, size = _checksum_of(file)
    except OSError as error:
        raise DocumentUnreadable(f"data file '{key}' cannot be read: {error.strerror}", file=key) from None
    return _describe(key, path, size, text)


def read_data_file(store: ConditionalStore, file: DataFile, schema: pa.Schema) -> pa.Table:
    """The rows of a file, its bytes checked. Raises `ObjectMissing`, `DocumentUnreadable`, `SchemaMismatch`."""
    if file.original is not None:
        rows = read_data_file(store, original_of(file), schema).to_batches()
        left = [batch for _, batch in numbered(rows, read_places(store, file))]
        return pa.Table.from_batches(left, schema=schema)
    data = check_bytes(store.get(file.path, file.bytes).data, file)
    batches = file_format(file.format, file.path).read_batches(pa.py_buffer(data), schema, file.path)
    return pa.Table.from_batches(batches, schema=schema)


def check_bytes(data: bytes, file: DataFile) -> bytes:
    """`data` itself if it is what the manifest describes, else `DocumentUnreadable`."""
    if len(data) != file.bytes:
        raise DocumentUnreadable(
            f"data file '{file.path}' holds {len(data)} bytes instead of {file.bytes}", file=file.path
        )
    if file.checksum and checksum(data) != file.checksum:
        raise DocumentUnreadable(f"data file '{file.path}' is damaged: its checksum differs", file=file.path)
    return data


def check_local(path: str, file: DataFile) -> None:
    """Raises `DocumentUnreadable` unless the file at `path` of this machine is what the manifest describes."""
    try:
        with open(path, "rb") as opened:
            found, size = _checksum_of(opened)
    except OSError as error:
        raise DocumentUnreadable(
            f"data file '{file.path}' cannot be read: {error.strerror}", file=file.path
        ) from None
    if size != file.bytes or (file.checksum and found != file.checksum):
        raise DocumentUnreadable(f"data file '{file.path}' is damaged: its checksum differs", file=file.path)


def checksum(data: bytes) -> str:
    """The checksum of a data file as manifests keep it.

    >>> checksum(b"ballista")
    'crc32:98a6e92f'
    """
    return f"crc32:{zlib.crc32(data):08x}"


def require_known_format(file: DataFile) -> None:
    """Raises `ConfigError` for a file format that this release cannot read, or not without another extra."""
    file_format(file.rows_format, file.path)


def _checksum_of(file: BinaryIO) -> tuple[str, int]:
    value, size = 0, 0
    while block := file.read(_BLOCK_BYTES):
        value, size = zlib.crc32(block, value), size + len(block)
    return f"crc32:{value:08x}", size


def _describe(key: str, source: str | pa.Buffer, size: int, checksum_text: str) -> DataFile:
    rows, columns = parquet.footer(source, key)
    return DataFile(path=key, rows=rows, bytes=size, checksum=checksum_text, columns=columns)


@frozen(kw_only=True)
class LocalFile:
    """An immutable data file on this machine. `file_id` is unique in the process for the life of the engine.

    `name` is what errors call it: the key on the object store, never a path of this machine. The rows at the places
    `gone` are not of it any more.
    """

    file_id: int
    path: str
    format: str = "parquet"
    name: str = ""
    gone: Places = field(default=NONE_GONE, eq=False, repr=False)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows under exactly `schema`. Raises `DocumentUnreadable`, `SchemaMismatch`."""
        return (batch for _, batch in self.numbered(schema))

    def numbered(self, schema: pa.Schema) -> Iterator[tuple[Places, pa.RecordBatch]]:
        """The same with the places of the rows in the file."""
        return numbered(file_format(self.format, self.name).read_batches(self.path, schema, self.name), self.gone)


@frozen(kw_only=True, eq=False)
class RowsAtHand:
    """The rows that were just written to a data file, which need not be read back. `rows` have the schema that the
    table had then."""

    file_id: int
    rows: pa.Table

    def numbered(self, schema: pa.Schema) -> Iterator[tuple[Places, pa.RecordBatch]]:
        """As `batches`, with the places of the rows."""
        return numbered(self.batches(schema))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows under exactly `schema`. Raises `SchemaMismatch` where that is the schema of another table."""
        if is_same(self.rows.schema, schema):
            yield from self.rows.to_batches()
            return
        held = stored_names(self.rows.schema)
        try:
            for batch in self.rows.to_batches():
                for part in in_fills(batch, held, schema):
                    yield restored(part, schema)
        except (KeyError, pa.ArrowException):  # which took the place of theirs
            raise SchemaMismatch("the rows were made for another table of that name") from None


Loadable: TypeAlias = LocalFile | RowsAtHand
