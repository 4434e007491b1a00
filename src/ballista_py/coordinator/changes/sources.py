"""Which source of changes a declaration names; pure but for what the source itself opens, which is nothing yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ballista_py.coordinator.changes.debezium import DebeziumSource
from ballista_py.coordinator.changes.debezium_types import declared_columns
from ballista_py.coordinator.changes.delta import DeltaLake
from ballista_py.coordinator.changes.event_logs import FolderLog
from ballista_py.coordinator.changes.iceberg import IcebergLake
from ballista_py.coordinator.changes.postgres import open_postgres
from ballista_py.coordinator.changes.source import DescribedSource
from ballista_py.coordinator.changes.versioned import VersionedSource
from ballista_py.errors import ConfigError
from ballista_py.partitions.table import TableSpec, follows_changes
from ballista_py.runtime import Runtime

_USER = re.compile(r"://[^/]*@")
_STORAGE, _CATALOG = "storage.", "catalog."
_DELTA = "format, changes, path (its location) and storage.… (what its object store needs)"
_ICEBERG = "format, changes, table (namespace.table), catalog (its name) and catalog.… (its properties)"
_DEBEZIUM = (
    "format, path (a folder), columns, time_unit, decimals, start and storage.… (what its object store needs)"
)


def require_changes_known(name: str, source: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a source that is to be followed by its changes and has none that can be read."""
    if "changes" in source and not follows_changes(source):
        raise ConfigError(
            f"the source of table '{name}': 'changes' is true, of the formats delta and iceberg; leave it out to have "
            "the table refreshed by Spark"
        )


def open_changes(
    name: str, source: Mapping[str, Any], runtime: Runtime, table: TableSpec | None = None
) -> DescribedSource:
    """The source of changes of table `name`, which is `table` once it was made; secrets are in their places.

    Raises `ConfigError` for options that are lacking, unknown or no texts.
    """
    kind = source.get("format")
    if kind == "delta":
        own, storage = _options(name, source, ("path",), (), _STORAGE, _DELTA)
        return VersionedSource(name, DeltaLake(own["path"], storage), runtime, table)
    if kind == "iceberg":
        own, properties = _options(name, source, ("table",), ("catalog",), _CATALOG, _ICEBERG)
        return VersionedSource(
            name, IcebergLake(own["table"], own.get("catalog", "default"), properties), runtime, table
        )
    if kind == "debezium":
        return _debezium(name, source, runtime, table)
    return open_postgres(name, source, table)


def _debezium(name: str, source: Mapping[str, Any], runtime: Runtime, table: TableSpec | None) -> DebeziumSource:
    may = ("columns", "time_unit", "decimals", "start")
    own, storage = _options(name, source, ("path",), may, _STORAGE, _DEBEZIUM)
    if own.get("start", "earliest") != "earliest":
        raise ConfigError(f"the source of table '{name}': start is 'earliest', or left out")
    try:
        declared = None
        if "columns" in own:
            declared = declared_columns(own["columns"], own.get("time_unit"), own.get("decimals"))
        elif "time_unit" in own or "decimals" in own:
            raise ConfigError("time_unit and decimals are of columns that are declared: declare columns, too")
    except ConfigError as error:
        raise ConfigError(f"the source of table '{name}': {error.message}") from None
    return DebeziumSource(name, FolderLog(own["path"], storage), runtime, declared, "start" in own, table)


def _options(
    name: str,
    source: Mapping[str, Any],
    must: tuple[str, ...],
    may: tuple[str, ...],
    prefix: str,
    known: str,
) -> tuple[dict[str, str], dict[str, str]]:
    """The options of a source, which are texts, and those that are handed on, without their prefix."""
    own: dict[str, str] = {}
    handed: dict[str, str] = {}
    for option, value in source.items():
        if option in ("format", "changes"):
            continue
        if not isinstance(value, str) or not value:
            raise ConfigError(f"the source of table '{name}': option '{option[:60]}' is no text: {known}")
        if option.startswith(prefix) and len(option) > len(prefix):
            handed[option[len(prefix) :]] = value
        elif option in must or option in may:
            own[option] = value
        else:
            raise ConfigError(f"the source of table '{name}' has an option '{option[:60]}' that is none: {known}")
    if _USER.search(own.get("path", "")):
        raise ConfigError(f"the source of table '{name}': its path has a password in it: say it by {_STORAGE}…")
    lacking = next((option for option in must if option not in own), None)
    if lacking is not None:
        raise ConfigError(f"the source of table '{name}' needs '{lacking}', a text: {known}")
    return own, handed
