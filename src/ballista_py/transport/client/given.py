"""Values for the parameters of a statement, as a client gives them and as commands carry them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from ballista_py.errors import SqlError
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
        named = [(marked(str(name)), value) for name, value in parameters.items()]
    else:
        named = [(str(number), value) for number, value in enumerate(parameters, 1)]
    if not named:
        return ""
    columns = [_column(name, value) for name, value in named]
    row = pa.RecordBatch.from_arrays(columns, names=[name for name, _ in named])
    return base64.b64encode(ipc_bytes(row)).decode()


def _column(name: str, value: Any) -> pa.Array:
    try:
        return pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else pa.array([value])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise SqlError(f"parameter {name}: a value of type {type(value).__name__} cannot be bound") from None
