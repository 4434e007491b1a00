"""Values for the parameters of a statement, as a client gives them and as commands carry them.

The rows that a client sends: whatever holds Arrow data.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import ConfigError, SqlError
from ballista_py.transport.flight.wire import require_utf8
from ballista_py.transport.flight_sql.statement import ipc_bytes

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


def require_dialect(dialect: object) -> None:
    """Raise `SqlError` for what stands in the place of a dialect and is none: most probably values."""
    if dialect is not None and not isinstance(dialect, str):
        raise SqlError(
            "the second argument is the dialect; values for parameters are given by name: parameters=[…]"
        )


def parameters_text(parameters: Parameters | None) -> str:
    """Values as one row of Arrow in base64, as jobs carry them, by name or in order.

    Raises `SqlError` for a value that Arrow has not, and for what is neither a list nor an object of names.

    >>> parameters_text(None), len(parameters_text([1, "a"])) > 0
    ('', True)
    """
    if parameters is None:
        return ""
    from ballista_py.sql.parse.given_values import marked  # with a tokenizer, which most clients do without

    if isinstance(parameters, str | bytes | bytearray) or not isinstance(parameters, Sequence | Mapping):
        kind = type(parameters).__name__
        raise SqlError(f"parameters are a list of values, or values by name in a dict, not {kind}: write [value]")
    if isinstance(parameters, Mapping):
        for name in parameters:
            require_utf8("a parameter's name", str(name))
        named = [(marked(str(name)), value) for name, value in parameters.items()]
    else:
        named = [(str(number), value) for number, value in enumerate(parameters, 1)]
    if not named:
        return ""
    columns = [_column(name, value) for name, value in named]
    row = pa.RecordBatch.from_arrays(columns, names=[name for name, _ in named])
    return base64.b64encode(ipc_bytes(row)).decode()


def _column(name: str, value: Any) -> pa.Array:
    kind = type(value).__name__
    try:
        if isinstance(value, pa.Scalar):
            return pa.array([value], value.type)
        column = pa.array([value], _beyond_bigint(value))
        is_whole = _is_same(column[0].as_py(), value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = _reason(value, error)
        raise SqlError(f"parameter {name}: a value of type {kind} cannot be bound{reason}") from None
    if not is_whole:
        raise SqlError(
            f"parameter {name}: a value of type {kind} would be bound as {column.type}, and lose a part of it (as the "
            "zone of a time, or nanoseconds): give it as text or as a pyarrow scalar of the type that is meant"
        )
    return column


def _beyond_bigint(value: Any) -> pa.DataType | None:
    """The type of an integer that is longer than 64 bits with a sign; None for all else, whose type Arrow finds."""
    if type(value) is not int or -(1 << 63) <= value < 1 << 63:
        return None
    return pa.uint64() if 0 <= value < 1 << 64 else pa.decimal128(38, 0)


def _reason(value: Any, error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return ": it holds half a character (a lone surrogate), which no UTF-8 has"
    if isinstance(value, int):
        return ": it has more than 38 digits"
    if isinstance(value, Mapping | Sequence | set):
        return ": its values are of types that have none in common, or that Arrow has not"
    return ": Arrow has no such type; give text, or None for what is missing"


def _is_same(bound: Any, given: Any) -> bool:
    """Whether nothing of a given value is lost in the one that is bound.

    >>> from datetime import UTC, time
    >>> _is_same([1.0, None], (1, None)), _is_same(time(1, 2), time(1, 2, tzinfo=UTC))
    (True, False)
    """
    if isinstance(bound, list):
        items = list(given)
        return len(bound) == len(items) and all(map(_is_same, bound, items))
    if isinstance(bound, dict) and isinstance(given, Mapping):
        return all(_is_same(value, given.get(name)) for name, value in bound.items())
    return bool(bound == given) or (bound != bound and given != given)  # NaN is like nothing, itself too


BATCH_ROWS = 65_536
Rows: TypeAlias = Any
"""A pyarrow Table, RecordBatch or RecordBatchReader, or anything that shows itself as an Arrow stream (PyCapsule)."""


@frozen
class ArrowRows:
    """Rows of one schema; `batches` can be called again if they are `repeatable`."""

    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]
    repeatable: bool = True


def arrow_rows(data: Rows) -> ArrowRows:
    """The rows of `data`. Raises `ConfigError` for something that holds no Arrow rows."""
    if isinstance(data, ArrowRows):
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return ArrowRows(data.schema, lambda: iter(data), repeatable=False)
    if not isinstance(data, pa.Table):
        if not hasattr(data, "__arrow_c_stream__"):
            raise ConfigError(f"{type(data).__name__} holds no Arrow rows: give a table, a batch or a dataframe")
        data = pa.table(data)
    table: pa.Table = data
    return ArrowRows(table.schema, lambda: iter(table.to_batches(BATCH_ROWS)))
