"""What counts as a constant in a statement: values that are written down, and the moment of the statement."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.sql.parse.parsing import SqlglotError, parsed_one

# What a constant may be made of besides literals and operators; and what is the moment of the statement.
_MADE_OF = (exp.Cast, exp.TryCast, exp.Array, exp.Struct, exp.Map, exp.ToMap, exp.VarMap, exp.Tuple, exp.Interval)
_MOMENTS = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp)
_MOMENT_NAMES = ("now", "today", "get_current_timestamp", "transaction_timestamp")


def require_constant(expression: str) -> None:
    """Raise `SqlError` unless the default of a column is a constant, or the moment of the statement.

    >>> require_constant("[1, 2]::int[]")
    >>> require_constant("a + 1")
    Traceback (most recent call last):
    ballista_py.errors.SqlError: DEFAULT a + 1 cannot be kept: a default is a constant, now() or current_date
    """
    shown = " ".join(expression.split())
    try:
        constant = _is_constant(expression)
    except SqlglotError:
        raise SqlError(f"DEFAULT {shown} cannot be kept: write the constant in another way") from None
    if not constant:
        raise SqlError(f"DEFAULT {shown} cannot be kept: a default is a constant, now() or current_date")


def require_partition_value(column: str, expression: str) -> None:
    """Raise `SqlError` unless the value that PARTITION gives a column is a constant."""
    try:
        constant = _is_constant(expression)
    except SqlglotError:
        constant = False
    if not constant:
        shown = " ".join(expression.split())
        raise SqlError(f"PARTITION ({column} = {shown}) cannot be run here: its value is a constant")


def _is_constant(expression: str) -> bool:
    found: Any = parsed_one(f"select ({expression}\n)").args["expressions"][0]
    for node in found.walk():
        is_call = isinstance(node, exp.Func) and not isinstance(node, (*_MADE_OF, *_MOMENTS, exp.And, exp.Or))
        is_call = is_call and not (isinstance(node, exp.Anonymous) and node.name.lower() in _MOMENT_NAMES)
        if is_call or isinstance(node, exp.Column | exp.Query | exp.Star | exp.Placeholder | exp.Parameter):
            return False
    return True
