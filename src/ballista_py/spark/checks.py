"""What can be wrong with a source or with its rows, each in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ballista_py.errors import BallistaError, ConfigError, SchemaMismatch
from ballista_py.partitions.table import TableSpec
from ballista_py.spark.layout import NO_PARTITION
from ballista_py.spark.on_workers import failure_on_a_worker
from ballista_py.spark.reasons import reason_of
from ballista_py.spark.schema import arrow_schema
from ballista_py.spark.sources import Source, named_error, source_name
from ballista_py.storage.manifest import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def origin_of(table: TableSpec, source: Source | None) -> Source:
    """`source`, or else that of the table. Raises `ConfigError` for a table that has none."""
    origin = table.source if source is None else source
    if origin is None:
        raise ConfigError(f"table '{table.name}' has no source: it is managed, its rows come by INSERT")
    return origin


def check_columns(table: TableSpec, origin: Source, rows: DataFrame) -> None:
    """Raises `SchemaMismatch` unless the rows have every column of the table, with its type."""
    found = {column.name: column.type for column in arrow_schema(rows.schema)}
    for column in table.schema:
        if column.name not in found:
            raise SchemaMismatch(f"table '{table.name}': source {source_name(origin)} has no '{column.name}'")
        if found[column.name] != column.type:
            raise SchemaMismatch(
                f"table '{table.name}': column '{column.name}' is {found[column.name]} in source "
                f"{source_name(origin)}, the table declares {column.type}"
            )


def failure_of(table: TableSpec, origin: Source, error: Exception) -> BallistaError:
    """The one-line error for Spark work over a source that failed."""
    if (named := failure_on_a_worker(error)) is not None:
        return type(named)(f"table '{table.name}': {named}")
    if (named := named_error(origin, f"table '{table.name}'", error)) is not None:
        return named
    if NO_PARTITION in str(error):
        return SchemaMismatch(
            f"table '{table.name}': a row of source {source_name(origin)} has a key that is null though declared "
            "not null, or that came while the source was read: nothing was changed"
        )
    reason = reason_of(error)
    return ConfigError(
        f"table '{table.name}': Spark could not make partitions from source {source_name(origin)}: {reason}"
    )


def check_nulls(table: TableSpec, origin: Source, files: Mapping[int, Sequence[DataFile]]) -> None:
    """Raises `SchemaMismatch` if the files hold a null that the table forbids."""
    forbidden = [column.name for column in table.schema if not column.nullable]
    for file in (file for several in files.values() for file in several):
        for name in forbidden:
            if name in file.columns and file.columns[name].null_count:
                raise SchemaMismatch(
                    f"table '{table.name}': column '{name}' of source {source_name(origin)} holds nulls, though "
                    "it is declared not null: nothing was changed"
                )
