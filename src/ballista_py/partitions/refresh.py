"""What a table declares about its source and its old rows: how it is refreshed, what it forgets, and how often.

Values, checked field by field when they are made, and held against the columns of a table by `require_usable`. Who
carries them out, and when, is decided above (`coordinator.refreshes`).
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import ConfigError

RefreshMode: TypeAlias = Literal["full", "append", "changes"]
OnSchemaChange: TypeAlias = Literal["fail", "append"]
WriteMode: TypeAlias = Literal["read_only", "write_through"]
WriteWait: TypeAlias = Literal["source", "visible"]
WRITE_WAITS: tuple[WriteWait, ...] = get_args(WriteWait)
REFRESH_MODES: tuple[RefreshMode, ...] = get_args(RefreshMode)
ON_SCHEMA_CHANGE: tuple[OnSchemaChange, ...] = get_args(OnSchemaChange)
MIN_EVERY_MS = 1_000.0
MAX_EVERY_MS = 366 * 86_400_000.0
MAX_RETENTION_CHARS = 4_096
RETENTION_EVERY = "1h"
INTERVALS = ("refresh_check_interval", "retention_check_interval")  # options that ALTER TABLE can change
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}
_NUMBER = re.compile(r"[0-9]{1,18}")
_MAX_SHOWN = 60


def duration_ms(text: str, what: str = "a time") -> float:
    """The milliseconds of a text such as `30s`, `5m`, `1h`. Raises `ConfigError`, which says of `what`.

    >>> duration_ms("30s"), duration_ms("1.5 h")
    (30000.0, 5400000.0)
    """
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ConfigError(f"{what}: {_shown(text)} is no time; write a number with ms, s, m, h or d, as '30s'")
    return float(found[1]) * _UNIT_MS[found[2]]


def duration_text(interval_ms: float) -> str:
    """The one way in which a time is written here: in the largest unit of which it is a whole number.

    >>> duration_text(300_000), duration_text(90_000), duration_text(86_400_000)
    ('5m', '90s', '1d')
    """
    for unit in reversed(_UNIT_MS):
        if interval_ms >= _UNIT_MS[unit] and interval_ms % _UNIT_MS[unit] == 0:
            return f"{int(interval_ms / _UNIT_MS[unit])}{unit}"
    return f"{interval_ms:g}ms"


def _written(text: Any) -> Any:
    """The same time as it is written here; what is no time is left for the validator."""
    try:
        return duration_text(duration_ms(text))
    except ConfigError:
        return text


def _every(_instance: object, attribute: Any, text: str) -> None:
    interval_ms = duration_ms(text, attribute.name)
    if not MIN_EVERY_MS <= interval_ms <= MAX_EVERY_MS:
        raise ConfigError(f"{attribute.name}: {_shown(text)} is not from 1s to 366d")


def _maybe_every(instance: object, attribute: Any, text: str | None) -> None:
    if text is not None:
        _every(instance, attribute, text)


def _one_of(choices: tuple[str, ...]) -> Any:
    def check(_instance: object, attribute: Any, value: object) -> None:
        if value not in choices:
            raise ConfigError(f"{attribute.name}: {_shown(value)} is none of {', '.join(choices)}")

    return check


def _overlap(_instance: object, attribute: Any, text: str | None) -> None:
    if text is not None and not (isinstance(text, str) and _NUMBER.fullmatch(text)):
        duration_ms(text, attribute.name)


def _column(_instance: object, attribute: Any, name: str | None) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"{attribute.name}: {_shown(name)} is no name of a column")


@frozen(kw_only=True)
class Refresh:
    """How a table follows its source: anew ("full"), by the rows that it lacks ("append"), or by the source's changes.

    Schedulers do it `every` so often, one of them each time; without that it is done when it is asked for. An append
    finds new rows by the `time_column`, from the `overlap` below the highest one on: a time for dates and timestamps,
    a whole number for integers. What the source has more columns than the table `on_schema_change` says: "fail" says
    so and leaves the table as it is, "append" gives the table those columns, behind its own.

    Raises `ConfigError` naming the field.

    >>> Refresh(mode="append", every="5m", time_column="created_at", overlap="1h").every_ms
    300000.0
    """

    mode: RefreshMode = field(default="full", validator=_one_of(REFRESH_MODES))
    every: str | None = field(default=None, converter=_written, validator=_maybe_every)
    time_column: str | None = field(default=None, validator=_column)
    overlap: str | None = field(default=None, converter=_written, validator=_overlap)
    on_schema_change: OnSchemaChange = field(default="fail", validator=_one_of(ON_SCHEMA_CHANGE))

    def __attrs_post_init__(self) -> None:
        if self.mode == "append" and self.time_column is None:
            raise ConfigError("time_column: missing; an append finds new rows by a column that grows with time")
        if self.overlap is not None and self.mode != "append":
            raise ConfigError(f"overlap: is of a refresh by 'append', not of one by '{self.mode}'")

    @property
    def every_ms(self) -> float | None:
        """Milliseconds from one refresh to the next; None for one that is only asked for."""
        return None if self.every is None else duration_ms(self.every)

    @property
    def overlap_of_times(self) -> timedelta | int:
        """How far below the highest value rows are looked for: a number or a time."""
        if self.overlap is None:
            return 0
        if _NUMBER.fullmatch(self.overlap):
            return int(self.overlap)
        return timedelta(milliseconds=duration_ms(self.overlap))

    def require_usable(self, table: str, schema: pa.Schema, *, has_source: bool) -> None:
        """Raise `ConfigError` unless a table of these columns can be refreshed so."""
        if not has_source:
            raise ConfigError(f"table '{table}' has no source that it could be refreshed from: leave refresh out")
        if self.time_column is None:
            return
        if self.time_column not in schema.names:
            raise ConfigError(f"table '{table}' has no column '{self.time_column}' to be its time_column")
        kind = schema.field(self.time_column).type
        timed = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        if not (timed or pa.types.is_integer(kind)):
            raise ConfigError(
                f"table '{table}': column '{self.time_column}' is {kind}; a time_column is an integer, a date or a "
                "timestamp"
            )
        if self.overlap is not None and isinstance(self.overlap_of_times, timedelta) != timed:
            wanted = "a time, as '1h'" if timed else "a whole number"
            raise ConfigError(
                f"table '{table}': the overlap of '{self.time_column}', which is {kind}, is {wanted}"
            )


def _retention(_instance: object, attribute: Any, text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{attribute.name}: missing; write the DELETE that takes old rows away")
    if len(text) > MAX_RETENTION_CHARS:
        raise ConfigError(f"{attribute.name}: is longer than {MAX_RETENTION_CHARS:,} characters")


@frozen(kw_only=True)
class Retention:
    """Which rows a table forgets: one DELETE of its own rows, in the engine's SQL, that is run `every` so often.

    >>> Retention(sql="DELETE FROM events WHERE created_at < now() - INTERVAL 30 DAY").every_ms
    3600000.0
    """

    sql: str = field(validator=_retention)
    every: str = field(default=RETENTION_EVERY, converter=_written, validator=_every)

    @property
    def every_ms(self) -> float:
        """Milliseconds from one run to the next."""
        return duration_ms(self.every)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    cut = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return f"'{cut}'" if cut.isprintable() else ascii(cut)
