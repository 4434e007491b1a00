"""The engine's side of a comparison with another dialect's own engine, and what counts as the same value.

Not compared are dates outside the years 1 to 9999, which this language has no values for; a null here where the other
engine fails over something that the null does not depend on; and infinity where PostgreSQL calls an overflow.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from attrs import frozen

from ballista_py.errors import BallistaError
from ballista_py.sql.parse.kind import engine_sql
from ballista_py.testing.sql.dialect_expressions import EMPTY, ROWS

SCHEMA = pa.schema([
    ("id", pa.int32()), ("i", pa.int32()), ("j", pa.int32()), ("l", pa.int64()), ("h", pa.int16()),
    ("d", pa.float64()), ("e", pa.float64()), ("f", pa.float32()), ("n", pa.decimal128(9, 2)),
    ("m", pa.decimal128(18, 4)), ("s", pa.string()), ("t", pa.string()), ("z", pa.string()), ("b", pa.bool_()),
    ("dt", pa.date32()), ("du", pa.date32()), ("ts", pa.timestamp("us")), ("tz", pa.timestamp("us", "UTC")),
])  # fmt: skip
IDS = tuple(range(1, len(ROWS) + 1))
_FAMILIES = {
    "int": ("tinyint", "smallint", "int", "integer", "bigint", "hugeint"),
    "decimal": ("decimal", "numeric"),
    "double": ("double", "float", "real"),
    "text": ("varchar", "string", "text", "character varying"),
    "timestamp": ("timestamp_ntz", "timestamp without time zone"),
    "timestamptz": ("timestamp with time zone", "timestamptz"),
}


class Failed:
    """What an engine gives where it gives no value."""

    def __repr__(self) -> str:
        return "an error"


@frozen
class Here:
    """What the engine makes of an expression: of which family of types, and its value (or `Failed`) by row."""

    expression: str
    text: str
    family: str
    values: Mapping[int, Any]

    @property
    def rows(self) -> list[int]:
        """The rows that it has values for."""
        return [row for row, value in self.values.items() if not isinstance(value, Failed)]


def cell(name: str, row: int, text: str | None) -> Any:
    """The value of a column in a row of `ROWS`."""
    kind = SCHEMA.field(name).type
    if not text and EMPTY.get(name) != str(row):
        return None
    assert text is not None
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(text)
        return moment.replace(tzinfo=dt.UTC) if kind.tz else moment
    made = (
        (pa.types.is_integer, int), (pa.types.is_floating, float), (pa.types.is_decimal, decimal.Decimal),
        (pa.types.is_boolean, "true".__eq__),
    )  # fmt: skip
    return next((make(text) for is_it, make in made if is_it(kind)), text)


def rows() -> pa.Table:
    """The table `v` that the expressions are about."""
    found = [{name: cell(name, row, text) for name, text in values.items()} for row, values in enumerate(ROWS, 1)]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def family(kind: str) -> str:
    """What two engines' types have in common, by their names.

    >>> family("decimal(9,2)"), family("double precision"), family("HUGEINT")
    ('decimal', 'double', 'int')
    """
    lower = kind.lower()
    for name, starts in _FAMILIES.items():
        if lower in starts or lower.split("(")[0] in starts or lower.startswith("double "):
            return name if not lower.startswith("double ") else "double"
    return lower


class Engine:
    """The engine over the table `v`."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("set timezone = 'UTC'")
        self.connection.register("rows_of_v", rows())
        self.connection.execute("create table v as select * from rows_of_v")

    def close(self) -> None:
        """Give up the connection."""
        self.connection.close()

    def value(self, expression: str, dialect: str) -> Here | None:
        """The expression's values here; None where it is refused."""
        try:
            text = engine_sql(f"select {expression} as c from v where id = 0", dialect, {"v": SCHEMA})
            text = text.removesuffix("0")
            row = self.connection.execute(f"select typeof(c) from ({text} 3)").fetchone()
        except (BallistaError, duckdb.BinderException):
            return None
        assert row is not None
        kind = family(row[0])
        return Here(expression, text, kind, {one: self._shown(kind, value) for one, value in self._values(text)})

    def _values(self, text: str) -> Sequence[tuple[int, Any]]:
        """The value of each row: of all at once, or one by one where one of them fails."""
        all_rows = text.removesuffix("WHERE id = ")
        if " OVER " in text:
            return [(row, self._at(text, row)) for row in IDS]
        try:
            found = self.connection.execute(f"{all_rows} order by v.id").fetchall()
            return [(row, value) for row, (value,) in zip(IDS, found, strict=True)]
        except duckdb.Error:
            return [(row, self._at(text, row)) for row in IDS]

    @staticmethod
    def _shown(kind: str, value: Any) -> Any:
        beyond = isinstance(value, str) and kind != "text"  # a year that there is no value for here
        return Failed() if beyond else value

    def query(self, sql: str, dialect: str) -> list[tuple[Any, ...]] | None:
        """The rows of a query; None where it is refused."""
        try:
            text = engine_sql(sql, dialect, {"v": SCHEMA})
        except BallistaError:
            return None
        return self.connection.execute(text).fetchall()

    def _at(self, text: str, row: int) -> Any:
        try:
            found = self.connection.execute(f"{text} {row}").fetchone()
        except duckdb.Error:
            return Failed()
        assert found is not None
        return found[0]


def unlike(
    here: Here, family_there: str, there: Mapping[int, Any], dialect: str, single: bool = False
) -> str | None:
    """How the values differ, in words, or None. `single` says that the other engine's are floats of 32 bits."""
    quotient = dialect == "postgres" and (family_there, here.family) == ("decimal", "double")
    if family_there != here.family and not quotient:
        return f"{here.expression}: {here.family} here, {family_there} there ({here.text})"
    for row in here.rows:
        mine, other = here.values[row], there.get(row, Failed())
        if not same(mine, other, 1e-6 if single else 1e-13):
            return f"{here.expression}, row {row}: {mine!r} here, {other!r} there ({here.text} {row})"
    return None


def same(mine: Any, other: Any, relative: float = 1e-13) -> bool:
    """Whether two values are one, floats but for their last digits."""
    if isinstance(other, Failed):
        return mine is None or mine in (math.inf, -math.inf)
    if mine is None or other is None or isinstance(mine, bool) or isinstance(other, bool):
        return mine is other
    if isinstance(mine, float) or isinstance(other, float):
        one, two = float(mine), float(other)
        alike = math.isclose(one, two, rel_tol=relative, abs_tol=1e-300)
        return one == two or alike or (math.isnan(one) and math.isnan(two))
    if isinstance(mine, dt.datetime) and isinstance(other, dt.datetime):
        return _moment(mine) == _moment(other)
    numbers = (int, decimal.Decimal)
    return bool(mine == other) and (type(mine) is type(other) or isinstance(mine, numbers))


def same_rows(mine: Sequence[tuple[Any, ...]], other: Sequence[tuple[Any, ...]]) -> bool:
    """Whether two answers have the same rows in the same order."""
    return len(mine) == len(other) and all(
        len(one) == len(two) and all(map(same, one, two)) for one, two in zip(mine, other, strict=True)
    )


def _moment(value: dt.datetime) -> dt.datetime:
    return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
