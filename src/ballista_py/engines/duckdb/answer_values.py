"""Values of the engine that Arrow does not have: they are refused, never handed out as other values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import types as t

from ballista_py.errors import SqlError

_HUGE = str(pa.decimal128(38, 0))  # as which DuckDB hands out its HUGEINT, also one that is larger
_TOO_HUGE = (
    "a whole number in the answer does not fit DECIMAL(38, 0): cast it to DOUBLE or VARCHAR in the statement"
)
_LOWEST = -(2**127)  # whose digits Arrow miscounts: it takes it for one that fits
_TIME = str(pa.time64("us"))  # DuckDB's has 24:00:00 besides, Arrow's ends before
_TOO_LATE = "the time 24:00:00 cannot be kept or answered: take 00:00:00, or cast it to VARCHAR in the statement"


_ZONED = "TIME WITH TIME ZONE"  # comes from DuckDB as a time without its offset
_NO_ZONE = (
    "the answer has a TIME WITH TIME ZONE, whose offset cannot be answered: cast it to VARCHAR in the statement"
)


class AnswerCheck:
    """Looks at the columns of an answer whose types can hold what Arrow cannot.

    `kinds` are the engine's own names of their types, as it has more of them than Arrow: UHUGEINT and HUGEINT come
    as one type, where the upper half of UHUGEINT would be negative, and a time with an offset as one without.
    """

    def __init__(self, schema: pa.Schema, kinds: Sequence[str]) -> None:
        shown = [str(kind) for kind in schema.types]
        self._zoned = any(_ZONED in kind for kind in kinds)
        self._times = [place for place, kind in enumerate(shown) if _TIME in kind]
        self._huge = [(place, "UHUGEINT" in kinds[place]) for place, kind in enumerate(shown) if _HUGE in kind]

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `SqlError` for a value that would be another one, or none, in Arrow."""
        if self._zoned and batch.num_rows:
            raise SqlError(_NO_ZONE)
        for place in self._times:
            _require_valid(batch.column(place), _TOO_LATE)
        if self._huge:
            import pyarrow.compute as pc  # it loads pandas where that is installed
        for place, is_unsigned in self._huge:
            column = batch.column(place)
            _require_valid(column, _TOO_HUGE)
            for numbers in _whole_numbers(column):
                least = pc.min(numbers)
                if least.is_valid and ((is_unsigned and least.as_py() < 0) or least.as_py() == _LOWEST):
                    raise SqlError(_TOO_HUGE)


def _require_valid(column: pa.Array, said: str) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise SqlError(said) from None


def _whole_numbers(column: pa.Array) -> Iterator[pa.Array]:
    """The columns of DECIMAL(38, 0) in a column, however deep."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        yield from _whole_numbers(column.storage)
    elif t.is_dictionary(kind):
        yield from _whole_numbers(column.dictionary)
    elif t.is_map(kind):
        yield from _whole_numbers(column.keys)
        yield from _whole_numbers(column.items)
    elif t.is_union(kind):
        for place in range(kind.num_fields):
            yield from _whole_numbers(column.field(place))
    elif t.is_struct(kind):
        for part in column.flatten():
            yield from _whole_numbers(part)
    elif t.is_nested(kind):
        yield from _whole_numbers(column.flatten())
    elif kind == pa.decimal128(38, 0):
        yield column
