"""The files of a partition that a predicate may find rows in, by the statistics in its manifest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from ballista_py.partitions.columns import stored_name
from ballista_py.sql.prune.file_bounds import ColumnBounds
from ballista_py.storage.formats.statistics import parse_bound
from ballista_py.storage.manifest import DataFile

if TYPE_CHECKING:
    from ballista_py.sql.prune.files import FilePruner


def may_hold(files: Iterable[DataFile], pruner: FilePruner) -> list[DataFile]:
    """Those files that may hold a row which the predicate is true for; the statistics of the others rule it out."""
    return [file for file in files if pruner.may_match(file.rows, bounds_of(file, pruner.schema))]


def bounds_of(file: DataFile, schema: pa.Schema) -> dict[str, ColumnBounds]:
    """The bounds of the columns of a file as values of the table's types; what cannot be read counts as unknown."""
    return {
        field.name: ColumnBounds(
            low=_value(found.min, field.type), high=_value(found.max, field.type), nulls=found.null_count
        )
        for field in schema
        if (found := file.columns.get(stored_name(field))) is not None
    }


def _value(text: str | None, kind: pa.DataType) -> object:
    if text is None:
        return None
    try:
        return parse_bound(text, kind)
    except (ValueError, ArithmeticError):
        return None
