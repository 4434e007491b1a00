"""The options of a table that say how it follows its source and what it forgets, by the names that the field has; pure.

The same names stand in `WITH (…)` of CREATE TABLE, in `ALTER TABLE … SET (…)` and in an application file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.refresh import Refresh, Retention

_OF_REFRESH: Mapping[str, str] = {
    "refresh_mode": "mode",
    "refresh_check_interval": "every",
    "refresh_append_overlap": "overlap",
    "time_column": "time_column",
    "on_schema_change": "on_schema_change",
}
_OF_RETENTION: Mapping[str, str] = {"retention_sql": "sql", "retention_check_interval": "every"}
FOLLOW_OPTIONS = (*_OF_REFRESH, *_OF_RETENTION)
OPTIONS = ("file_format", *FOLLOW_OPTIONS)


def follows_of(options: Mapping[str, Any]) -> tuple[Refresh | None, Retention | None]:
    """What these options declare; None where none of them says anything of it. Others are passed over.

    Raises `ConfigError` naming the option.

    >>> follows_of({"refresh_mode": "full", "refresh_check_interval": "5m"})[0].every
    '5m'
    """
    refresh = {field: options[name] for name, field in _OF_REFRESH.items() if name in options}
    retention = {field: options[name] for name, field in _OF_RETENTION.items() if name in options}
    if retention and "sql" not in retention:
        raise ConfigError("retention_sql: missing; write the DELETE that takes old rows away")
    return (
        _made(Refresh, refresh, _OF_REFRESH) if refresh else None,
        _made(Retention, retention, _OF_RETENTION) if retention else None,
    )


def declared_in(options: Mapping[str, str]) -> tuple[Refresh | None, Retention | None]:
    """As `follows_of`, for options of a statement: raises `SqlError`."""
    try:
        return follows_of(options)
    except ConfigError as error:
        raise SqlError(error.message) from None


def _made(kind: Any, fields: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    """The value. An error names the option, not the field."""
    try:
        return kind(**fields)
    except ConfigError as error:
        field, colon, problem = error.message.partition(":")
        option = next((name for name, known in names.items() if known == field), field)
        raise ConfigError(f"{option}{colon}{problem}") from None
