"""The formats of data files behind one interface: Parquet, and Vortex where its extra is installed.

A manifest names the format of each file, so files of several formats may make up one partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Protocol, cast

import pyarrow as pa

from ballista_py.errors import ConfigError
from ballista_py.partitions.table import FILE_FORMATS
from ballista_py.storage.formats.statistics import ColumnStatistics


class FileFormat(Protocol):
    """What a format does; the modules `parquet` and `vortex` are one each. See there for the errors."""

    def encode(self, table: pa.Table) -> tuple[bytes, dict[str, ColumnStatistics]]:
        """The rows as one file, and the statistics of their columns."""
        ...

    def read_batches(self, source: str | pa.Buffer, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file under exactly `schema`; `name` is what errors call the file."""
        ...

    def footer(self, source: str | pa.Buffer, name: str) -> tuple[int, dict[str, ColumnStatistics]]:
        """How many rows a file has, and the statistics of its columns."""
        ...

    def why_not_held(self, schema: pa.Schema) -> str | None:
        """The first column that the format cannot hold, in words, or None."""
        ...


def file_format(name: str, file: str = "") -> FileFormat:
    """The format called `name`, in which `file` is.

    Raises `ConfigError` for an unknown one and `MissingExtra` for one whose library is not installed.

    >>> file_format("parquet").why_not_held(pa.schema([("n", pa.int64())])) is None
    True
    """
    if name not in FILE_FORMATS:
        subject = f"data file '{file}' has format '{name}', which is not known" if file else f"no format '{name}'"
        raise ConfigError(f"{subject}; this release knows {', '.join(FILE_FORMATS)}")
    return cast(FileFormat, import_module(f"ballista_py.storage.formats.{name}"))


def require_held(table: str, name: str, schema: pa.Schema) -> None:
    """Raises `ConfigError` unless a table with this schema can be kept in files of the format `name`."""
    reason = file_format(name).why_not_held(schema)
    if reason is not None:
        raise ConfigError(f"table '{table}' cannot be kept as {name}: it does not hold {reason}; parquet may")
