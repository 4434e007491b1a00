"""How far a source has been read: a column that grows with time, and the position that manifests keep of it.

Values and pure decisions. Positions are numbers inside (the integer itself, days, microseconds), so that an overlap
can be taken off exactly, whatever the column's type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import ConfigError
from ballista_py.partitions.expression.nodes import quote_name
from ballista_py.partitions.table import TableSpec
from ballista_py.storage.formats.statistics import parse_bound
from ballista_py.storage.manifest import DataFile

_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_LOWEST = -(1 << 63) + 1  # Spark cannot write down the one below


def _not_negative(_instance: object, _attribute: object, overlap: timedelta | int) -> None:
    if (overlap < timedelta(0)) if isinstance(overlap, timedelta) else (overlap < 0):
        raise ConfigError(f"watermark: an overlap of {overlap} is negative")


@frozen
class Watermark:
    """The column by which new rows of a source are found, and how late a row may come.

    Rows are taken from `overlap` before the last position on: a number for an integer column, a `timedelta` for
    dates and timestamps. A row whose value is more than that below the highest one taken before is not seen by an
    append; the next full refresh has it.

    >>> Watermark("updated_at", overlap=timedelta(hours=1)).column
    'updated_at'
    """

    column: str
    overlap: timedelta | int = field(default=0, validator=_not_negative)

    def check(self, table: TableSpec) -> pa.DataType:
        """The type of the column in `table`. Raises `ConfigError` if it is not there or cannot be a watermark."""
        if self.column not in table.schema.names:
            raise ConfigError(f"table '{table.name}' has no column '{self.column}' to be its watermark")
        kind = table.schema.field(self.column).type
        timed = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        if not (timed or pa.types.is_integer(kind)):
            raise ConfigError(
                f"table '{table.name}': column '{self.column}' is {kind}; a watermark is an integer, a date or a "
                "timestamp"
            )
        if self.overlap and isinstance(self.overlap, timedelta) != timed:
            wanted = "a timedelta" if timed else "a number"
            raise ConfigError(f"table '{table.name}': the overlap of watermark '{self.column}' must be {wanted}")
        return kind

    def start(self, kind: pa.DataType, position: int | None) -> int | None:
        """From where on rows are to be taken when `position` was reached before; None for all of them."""
        if position is None:
            return None
        if not isinstance(self.overlap, timedelta):
            return position - self.overlap
        unit = _DAY if pa.types.is_date(kind) else _MICROSECOND
        return position + (-self.overlap) // unit

    def rows_from(self, kind: pa.DataType, start: int) -> str:
        """Spark SQL: the row is at or above `start`, or has no value and so may be new at any time."""
        name = quote_name(self.column, "`", always=True)
        return f"({name} is null or {name} >= {_literal(kind, start)})"

    def reached(self, kind: pa.DataType, file: DataFile) -> int | None:
        """The highest value of the column in a file; None if it says nothing about it."""
        known = file.columns.get(self.column)
        if known is None or known.max is None:
            return None
        return _number(pa.scalar(parse_bound(known.max, kind), kind))

    def highest(
        self, kind: pa.DataType, files: Iterable[Sequence[DataFile]], before: int | None = None
    ) -> int | None:
        """The highest value in all these files, and `before`; None if nothing is known of it."""
        found = (self.reached(kind, file) for several in files for file in several)
        return max((number for number in (before, *found) if number is not None), default=None)

    def may_hold(self, kind: pa.DataType, file: DataFile, start: int) -> bool:
        """Whether a file may have rows that `rows_from` takes."""
        highest = self.reached(kind, file)
        return highest is None or highest >= start or file.columns[self.column].null_count != 0


def declared_watermark(table: TableSpec) -> Watermark | None:
    """The watermark that a table declares with its `time_column`, which its first copy reaches, too."""
    if table.refresh is None or table.refresh.time_column is None:
        return None
    return Watermark(table.refresh.time_column, overlap=table.refresh.overlap_of_times)


def position_text(run_id: str, watermark: Watermark | None = None, at: int | None = None) -> str:
    """What a manifest keeps about the run that last took rows for it; no two runs leave the same text.

    >>> position_text("run-1", Watermark("id"), 17)
    '{"at": 17, "column": "id", "run": "run-1"}'
    """
    if watermark is None or at is None:
        return json.dumps({"run": run_id})
    return json.dumps({"at": at, "column": watermark.column, "run": run_id})


def position_of(text: str | None, watermark: Watermark) -> int | None:
    """The position in a manifest's text, None if it is unknown or one of another column.

    >>> position_of('{"at": 17, "column": "id", "run": "run-1"}', Watermark("id"))
    17
    """
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return None
    if not isinstance(kept, dict) or kept.get("column") != watermark.column or not isinstance(kept.get("at"), int):
        return None
    return int(kept["at"])


def watermark_in(text: str | None) -> Watermark | None:
    """The watermark of a manifest's text, without its overlap, which only runs know; None if there is none.

    >>> watermark_in('{"at": 17, "column": "id", "run": "run-1"}')
    Watermark(column='id', overlap=0)
    """
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return None
    column = kept.get("column") if isinstance(kept, dict) else None
    return Watermark(column) if isinstance(column, str) else None


def _number(value: pa.Scalar) -> int:
    kind = value.type
    if pa.types.is_timestamp(kind):
        value = value.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date(kind):
        value = value.cast(pa.date32()).cast(pa.int32())
    return int(value.as_py())


def _literal(kind: pa.DataType, number: int) -> str:
    number = max(number, _LOWEST)
    if pa.types.is_date(kind):
        return f"date_from_unix_date({max(number, -(1 << 31))})"
    if not pa.types.is_timestamp(kind):
        return f"{number}L"
    if kind.tz is not None:
        return f"timestamp_micros({number}L)"
    return f"timestampadd(MICROSECOND, {number}L, timestamp_ntz'1970-01-01 00:00:00')"
