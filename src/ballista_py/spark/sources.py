"""Where a table's rows come from: a path, a glob, Spark reader options or a DataFrame, all read by Spark.

Promises that a source that is missing or cannot be read is one `ConfigError` that names it, without its secrets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from ballista_py.errors import BallistaError, ConfigError, SchemaMismatch
from ballista_py.spark.reasons import is_of_a_lost_spark, is_of_a_missing_part, is_of_too_deep_a_type, reason_of
from ballista_py.spark.schema import arrow_schema
from ballista_py.spark.text_files import misfit_in, strict_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Source: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | DataFrame"

MAX_FOOTERS = 1_000
_FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".orc": "orc"}
_TEXT_OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}}


def source_options(source: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The source as a table's declaration keeps it: Spark reader options with `format` and, for files, `path`.

    A path or glob gets its format from its suffix (Parquet where that says nothing) and becomes absolute; a CSV
    file is read with its header and inferred types. A mapping that names a format is taken as it is; one that has
    a path only is read as that path, its other options on top.

    >>> source_options("/data/events.csv")
    {'format': 'csv', 'path': '/data/events.csv', 'header': 'true', 'inferSchema': 'true'}
    """
    if isinstance(source, Mapping):
        place = source.get("path")
        if not isinstance(place, str | os.PathLike):
            return {"format": "parquet", **source}
        guessed = source_options(place)
        return {**(guessed if "format" not in source else {}), **source, "path": guessed["path"]}
    path = _absolute(os.fspath(source))
    suffix = os.path.splitext(path.rstrip("/*").removesuffix(".gz"))[1].lower()
    kind = _FORMATS.get(suffix, "parquet")
    options = {"format": kind, "path": path, **_TEXT_OPTIONS.get(kind, {})}
    return options | ({"sep": "\t"} if suffix == ".tsv" else {})


def reader_options(source: str | os.PathLike[str] | Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The options by which Spark reads the source: as declared, and strict where nothing else is declared.

    Raises `ConfigError` for options by which rows would be left out.
    """
    options = source_options(source)
    try:
        return strict_options(str(options["format"]), options)
    except ConfigError as error:
        raise ConfigError(f"{owner}: source {source_name(source)}: {error}") from None


def read_source(spark: SparkSession, source: Source, owner: str) -> DataFrame:
    """The rows of `source` as a DataFrame; nothing but schemas is read yet.

    `owner` says in errors whose source it is ("table 'events'"). Raises `ConfigError` in one line.
    """
    if not isinstance(source, str | os.PathLike | Mapping):
        return source
    options = reader_options(source, owner)
    try:
        reader = spark.read.format(options.pop("format"))
        if "schema" in options:
            reader = reader.schema(options.pop("schema"))
        path = options.pop("path", None)
        rows = reader.options(**options).load(path)
        _ = rows.schema  # Spark's Python makes it of Java's at the first look, and does not like all of them
        return rows
    except Exception as error:
        raise source_error(source, owner, error) from error


def describe_source(spark: SparkSession, source: Source, owner: str) -> pa.Schema:
    """The schema of the rows of `source`, as `materialize` keeps them.

    A column of Parquet files is not nullable if every file's own schema says so; of other sources every column is
    nullable, of a DataFrame those that it calls so. Raises `ConfigError`.
    """
    rows = read_source(spark, source, owner)
    required: frozenset[str] = frozenset()
    if isinstance(source, str | os.PathLike | Mapping) and source_options(source)["format"] == "parquet":
        try:
            required = _required_columns(rows.inputFiles())
        except Exception as error:
            raise source_error(source, owner, error) from error
    try:
        return arrow_schema(rows.schema, required)
    except ConfigError as error:
        raise ConfigError(f"{owner}: {error}") from None


def source_error(source: Source, owner: str, error: BaseException) -> BallistaError:
    """The one-line error for a source that Spark could not read."""
    if (named := named_error(source, owner, error)) is not None:
        return named
    reason = reason_of(error)
    if is_of_a_missing_part(error):
        reason = (
            f"Spark lacks the driver or format that it needs ({reason}): give its jar to the schedulers, as "
            "spark: {jars: [/path/to.jar]} in their configuration, and to LocalCluster, as "
            "spark=SparkSettings(jars=('/path/to.jar',))"
        )
    return ConfigError(f"{owner}: source {source_name(source)} cannot be read: {reason}")


def named_error(source: Source, owner: str, error: BaseException) -> BallistaError | None:
    """The error for work over the source that failed because of a text file or of Spark itself; else None."""
    name = source_name(source)
    if (misfit := misfit_in(error)) is not None:
        return SchemaMismatch(f"{owner}: source {name}: {misfit}: nothing was changed")
    if is_of_too_deep_a_type(error):
        return ConfigError(f"{owner}: source {name} has a column that is nested too deep: flatten it")
    if not is_of_a_lost_spark(error):
        return None
    return ConfigError(
        f"{owner}: Spark ended while it worked on source {name}, mostly for lack of memory: a value or a row group of "
        "it may be larger than Spark's heap. Nothing was changed: write smaller ones, or try again if Spark was ended "
        "from outside"
    )


def source_name(source: Source) -> str:
    """What people call the source: its path, or the format and table of other readers; never a credential.

    >>> source_name({"format": "jdbc", "url": "jdbc:postgresql://db/x?password=y", "dbtable": "events"})
    "'events' (jdbc)"
    """
    if not isinstance(source, str | os.PathLike | Mapping):
        return "DataFrame"
    options = source_options(source)
    for name in ("path", "dbtable", "table"):
        if name in options:
            shown = _without_user(str(options[name]))
            return f"'{shown}'" if options["format"] == "parquet" else f"'{shown}' ({options['format']})"
    return f"of format '{options['format']}'"


def _required_columns(files: list[str]) -> frozenset[str]:
    """The top-level columns in which no file of `files` can hold a null; none if a file cannot be looked into."""
    if not files or len(files) > MAX_FOOTERS:
        return frozenset()
    required: frozenset[str] | None = None
    for url in files:
        try:
            with fsspec.open(url, "rb") as file:
                schema = pq.read_schema(file)
        except Exception:  # whatever a filesystem raises: then nothing is promised
            return frozenset()
        here = frozenset(field.name for field in schema if not field.nullable)
        required = here if required is None else required & here
    return required or frozenset()


def _absolute(path: str) -> str:
    # Spark would take a relative path from the folder in which its JVM was started.
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)


def _without_user(text: str) -> str:
    parts = urlsplit(text)
    return text.replace(f"{parts.netloc}", parts.netloc.rpartition("@")[2]) if "@" in parts.netloc else text
