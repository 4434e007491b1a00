"""Which reader a data file wants: by its format, batch by batch, with exactly the columns of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ballista_py.errors import ConfigError
from ballista_py.storage import parquet
from ballista_py.storage.local_file import LocalFile

_READERS = {"parquet": parquet.read_batches}


def read_batches(file: LocalFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of `file` under exactly `schema`.

    Raises `ConfigError` for a format that is not known, `DocumentUnreadable` for a damaged file, `SchemaMismatch`
    for rows that do not fit.
    """
    reader = _READERS.get(file.format)
    if reader is None:
        raise ConfigError(f"data file '{file.name}' has format '{file.format}', which is not known")
    yield from reader(file.path, schema, file.name)
