"""What the statistics of data files say of their columns: which files may hold rows of a predicate, and, for estimates
alone, between which values columns lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ballista_py.partitions.columns import stored_name
from ballista_py.sql.estimate.statistics import Range, position_of, spanning
from ballista_py.sql.prune.file_bounds import ColumnBounds
from ballista_py.storage.formats.statistics import parse_bound, table_statistics
from ballista_py.storage.manifest import DataFile

if TYPE_CHECKING:
    from ballista_py.sql.prune.files import FilePruner

T = TypeVar("T")
MAX_COLUMNS = 64
"""Of so many columns of a table ranges are told, so that heartbeats of wide tables stay short."""
_MAX_FILES = 64


def may_hold(files: Iterable[DataFile], pruner: FilePruner) -> list[DataFile]:
    """Those files that may hold a row which the predicate is true for; the statistics of the others rule it out."""
    return [file for file in files if pruner.may_match(file.rows, bounds_of(file, pruner.schema))]


def bounds_of(file: DataFile, schema: pa.Schema) -> dict[str, ColumnBounds]:
    """The bounds of the columns of a file as values of the table's types; what cannot be read counts as unknown."""
    return {
        field.name: ColumnBounds(
            low=_bound(found.min, field.type), high=_bound(found.max, field.type), nulls=found.null_count
        )
        for field in schema
        if (found := file.columns.get(stored_name(field))) is not None
    }


def ranges_of_files(files: Sequence[DataFile], schema: pa.Schema) -> dict[str, Range]:
    """The ranges of the numbers, dates and times among the columns, by what the manifest says of some of the files.

    >>> from ballista_py.storage.formats.statistics import ColumnStatistics
    >>> columns = {"id": ColumnStatistics(min="3", max="9"), "name": ColumnStatistics(min="a", max="b")}
    >>> schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    >>> ranges_of_files([DataFile(path="a", rows=2, bytes=9, columns=columns)], schema)
    {'id': (3.0, 9.0)}
    """
    told = pa.schema([field for field in schema if _is_told(field.type)][:MAX_COLUMNS])
    return merged_ranges(_positions(bounds_of(file, told)) for file in some(files, _MAX_FILES))


def range_of_rows(rows: pa.Table) -> dict[str, Range]:
    """The same of rows at hand."""
    file = DataFile(path="", rows=rows.num_rows, bytes=rows.nbytes, columns=table_statistics(rows))
    return ranges_of_files([file], rows.schema)


def _positions(bounds: Mapping[str, ColumnBounds]) -> dict[str, Range]:
    ends = {name: (position_of(one.low), position_of(one.high)) for name, one in bounds.items()}
    return {name: (low, high) for name, (low, high) in ends.items() if low is not None and high is not None}


def merged_ranges(found: Iterable[Mapping[str, Range]]) -> dict[str, Range]:
    """The ranges that hold all of the ranges of each column."""
    merged: dict[str, Range] = {}
    for ranges in found:
        for name, one in ranges.items():
            merged[name] = spanning(merged[name], one) if name in merged else one
    return merged


def some(of: Sequence[T], most: int) -> Sequence[T]:
    """At most so many of them, taken evenly."""
    return of[:: -(-len(of) // most)] if len(of) > most else of


def _is_told(kind: pa.DataType) -> bool:
    types = pa.types
    told = (types.is_integer, types.is_floating, types.is_decimal, types.is_date, types.is_timestamp)
    return any(is_of(kind) for is_of in told)


def _bound(text: str | None, kind: pa.DataType) -> object:
    if text is None:
        return None
    try:
        return parse_bound(text, kind)
    except (ValueError, ArithmeticError):
        return None
