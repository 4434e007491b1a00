"""The operators of partition keys: checked `+ - *` on integers, and comparisons.

Integers meet as 64-bit ones; what leaves that range is an error in every engine, never another number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.partitions.expression.nodes import CallNode, Dialect, LiteralNode, Node
from ballista_py.partitions.type_names import type_name
from ballista_py.partitions.values import as_key, key_type

_ARITHMETIC: Mapping[str, tuple[str, str]] = {
    "+": ("add_checked", "try_add"),
    "-": ("subtract_checked", "try_subtract"),
    "*": ("multiply_checked", "try_multiply"),
}
_COMPARISON: Mapping[str, str] = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


@frozen
class Arithmetic:
    """`a + b`, `a - b`, `a * b`."""

    name: str

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        for argument in arguments:
            if not pa.types.is_integer(key_type(argument.type)):
                kind = type_name(argument.type)
                raise UnsupportedExpression(f"'{self.name}' takes integers, not {argument.text()} of type {kind}")
        return pa.int64()

    def text(self, *arguments: str) -> str:
        return f"({arguments[0]} {self.name} {arguments[1]})"

    def evaluate(self, node: CallNode, arguments: Sequence[Any], _time_zone: str, /) -> pa.Array:
        compute, _ = _ARITHMETIC[self.name]
        try:
            return getattr(pc, compute)(*(as_bigint(argument) for argument in arguments))
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"{node.text()} leaves the range of 64-bit integers") from error

    def render(self, _node: CallNode, arguments: Sequence[str], dialect: Dialect, _time_zone: str, /) -> str:
        left, right = (bigint_sql(argument) for argument in arguments)
        if dialect == "duckdb":
            return f"({left} {self.name} {right})"
        # Spark wraps around unless the session is in ANSI mode.
        _, attempt = _ARITHMETIC[self.name]
        checked = f"coalesce({attempt}({left}, {right}), cast(raise_error('overflow') as bigint))"
        return f"if({left} is null or {right} is null, null, {checked})"


@frozen
class Comparison:
    """`a = b` and its siblings, on integers, texts, booleans, dates and timestamps of one type."""

    name: str

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        left, right = arguments
        kinds = [_comparable(argument) for argument in arguments]
        if kinds[0] != kinds[1]:
            raise UnsupportedExpression(
                f"'{self.name}' compares values of one type, not {type_name(left.type)} and {type_name(right.type)}"
            )
        return pa.bool_()

    def text(self, *arguments: str) -> str:
        return f"({arguments[0]} {self.name} {arguments[1]})"

    def evaluate(self, node: CallNode, arguments: Sequence[Any], _time_zone: str, /) -> pa.Array:
        kind = _comparable(node.arguments[0])
        sides = [
            pa.scalar(side.value, kind)
            if isinstance(side, LiteralNode)
            else (as_bigint(side) if pa.types.is_int64(kind) else as_key(side, kind))
            for side in arguments
        ]
        return getattr(pc, _COMPARISON[self.name])(*sides)

    def render(self, node: CallNode, arguments: Sequence[str], dialect: Dialect, _time_zone: str, /) -> str:
        sides = list(arguments)
        if dialect == "spark" and pa.types.is_string(_comparable(node.arguments[0])):
            # Bytes, whatever the collation of the column.
            sides = [f"cast({side} as binary)" for side in sides]
        return f"({sides[0]} {self.name} {sides[1]})"


def as_bigint(value: Any) -> Any:
    """An integer column or literal as 64-bit; raises `SchemaMismatch` for unsigned values beyond them."""
    if isinstance(value, LiteralNode):
        return pa.scalar(value.value, pa.int64())
    try:
        return as_key(value, key_type(value.type)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise SchemaMismatch("a partition key reads an unsigned integer of 2^63 or more") from error


def bigint_sql(value: str) -> str:
    """`value` as a 64-bit integer, in any dialect."""
    return f"cast({value} as bigint)"


def _comparable(node: Node) -> pa.DataType:
    of, kind = pa.types, key_type(node.type)
    if of.is_integer(kind):
        return pa.int64()
    if of.is_string(kind) or of.is_boolean(kind) or of.is_date32(kind) or of.is_timestamp(kind):
        return kind
    raise UnsupportedExpression(
        f"{node.text()} of type {type_name(node.type)} cannot be compared in a partition key"
    )


OPERATORS: Mapping[str, Arithmetic | Comparison] = {
    **{name: Arithmetic(name) for name in _ARITHMETIC},
    **{name: Comparison(name) for name in _COMPARISON},
}
