"""Values of columns here as texts that PostgreSQL reads as the very same values; pure.

What it would round, cut, pad or turn into something else is refused before anything is sent, by an error that names
the column and the value. So is what could not be read back from its log: a table that follows would stand still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from ballista_py.coordinator.changes.postgres_types import values
from ballista_py.errors import SchemaMismatch, SourceUnfit

_NAME, _OID, _CHAR, _VARCHAR, _TIME, _TIMESTAMP, _TIMESTAMPTZ, _NUMERIC = (
    19,
    26,
    1042,
    1043,
    1083,
    1114,
    1184,
    1700,
)
_HEADER: Final = 4  # what the modifier of a length has more than it says
_MICROS: Final = 6  # digits of a second
MAX_NAME_BYTES: Final = 63
MAX_OID: Final = (1 << 32) - 1
MAX_SHOWN: Final = 60
# As what a text is given: texts of a length are assigned as texts, because a cast would cut them.
_CASTS: Final[Mapping[int, str]] = {
    16: "bool", 17: "bytea", 19: "text", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid", 114: "json",
    700: "float4", 701: "float8", 1042: "text", 1043: "text", 1082: "date", 1083: "time", 1114: "timestamp",
    1184: "timestamptz", 1700: "numeric", 2950: "uuid", 3802: "jsonb",
}  # fmt: skip


@frozen
class WrittenColumn:
    """A column of the table there: its name, as SQL too, and its type with what modifies that."""

    name: str
    quoted: str
    type_id: int
    modifier: int

    @property
    def cast(self) -> str:
        """The type that a text is cast to. Raises `SourceUnfit` for a column of a type that is not written."""
        found = _CASTS.get(self.type_id)
        if found is None:
            raise SourceUnfit(f"column '{self.name}' has a type there that cannot be written: read it only")
        return f"pg_catalog.{found}"


def texts(table: str, column: WrittenColumn, given: pa.Array) -> list[str | None]:
    """The texts of the values of a column. Raises `SchemaMismatch` for the first that would become another value."""
    found = _texts(given)
    wrong = _misfits(column, given, found)
    if wrong is None:
        read = _read_back(table, column, found, given.type)
        wrong = None if read is None else _first_other(given, read)
        wrong = 0 if read is None and len(given) else wrong
    if wrong is not None:
        shown = str(found.slice(wrong, 1)[0].as_py())[:MAX_SHOWN]
        raise SchemaMismatch(
            f"column '{column.name}' of table '{table}' has the value {shown!r}, which its source cannot hold as it "
            "is: nothing was written, give it another value"
        )
    return list(found.to_pylist())


def same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """By row, whether two columns have one value; NULL is NULL, and NaN is NaN."""
    equal = pc.fill_null(pc.equal(left, right), False)
    same = pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_floating(left.type):
        both = pc.and_(pc.fill_null(pc.is_nan(left), False), pc.fill_null(pc.is_nan(right), False))
        same = pc.or_(same, both)
    return same


def _texts(given: pa.Array) -> pa.Array:
    kind = given.type
    if pa.types.is_binary(kind):
        shown = [None if cell is None else "\\x" + cell.hex() for cell in given.to_pylist()]
        return pa.array(shown, pa.string())
    if pa.types.is_boolean(kind):
        return pc.if_else(given, "t", "f")
    if pa.types.is_timestamp(kind):  # in UTC, and said so
        plain = given.cast(pa.timestamp(kind.unit)).cast(pa.string())
        return plain if kind.tz is None else pc.binary_join_element_wise(plain, "+00", "")
    return given.cast(pa.string())


def _read_back(table: str, column: WrittenColumn, found: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """What the texts are as values, by the rules by which the log is read; None if one of them is none."""
    try:
        return values(table, column.name, found.to_pylist(), kind)
    except SourceUnfit:
        return None


def _first_other(given: pa.Array, read: pa.Array) -> int | None:
    same = same_values(pa.chunked_array([given]), pa.chunked_array([read]))
    return _first(pc.invert(same))


def _first(wrong: pa.ChunkedArray | pa.Array) -> int | None:
    place = pc.index(pc.fill_null(wrong, False), True).as_py()
    return None if place < 0 else int(place)


def _misfits(column: WrittenColumn, given: pa.Array, found: pa.Array) -> int | None:
    """The place of the first value that the type there would change, or refuse."""
    if pa.types.is_string(given.type):
        nul = _first(pc.match_substring(found, "\0"))
        if nul is not None:
            return nul
    check = _CHECKS.get(column.type_id)
    return None if check is None or not len(given) else _first(check(given, column.modifier))


def _char(given: pa.Array, modifier: int) -> pa.Array:
    return pc.or_(_varchar(given, modifier), pc.ends_with(given, " "))


def _varchar(given: pa.Array, modifier: int) -> pa.Array:
    length = modifier - _HEADER if modifier >= _HEADER else (1 << 30)
    return pc.greater(pc.utf8_length(given), length)


def _name(given: pa.Array, _modifier: int) -> pa.Array:
    return pc.greater(pc.binary_length(given), MAX_NAME_BYTES)


def _oid(given: pa.Array, _modifier: int) -> pa.Array:
    return pc.or_(pc.less(given, 0), pc.greater(given, MAX_OID))


def _rounded(given: pa.Array, modifier: int) -> pa.Array:
    """Times with more digits of a second than the column keeps, or before the year 1, which the log tells otherwise."""
    ticks = given.cast(pa.int64())
    step = 10 ** (_MICROS - modifier) if 0 <= modifier < _MICROS else 1
    return pc.not_equal(pc.multiply(pc.divide(ticks, step), step), ticks)


_CHECKS: Final[Mapping[int, Callable[[pa.Array, int], pa.Array]]] = {
    _CHAR: _char,
    _VARCHAR: _varchar,
    _NAME: _name,
    _OID: _oid,
    _TIME: _rounded,
    _TIMESTAMP: _rounded,
    _TIMESTAMPTZ: _rounded,
}
