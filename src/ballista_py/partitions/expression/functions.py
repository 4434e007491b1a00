"""The functions that partition keys may use, and what each of them means in Arrow and in each engine's SQL.

The list is short on purpose: engines disagree about almost everything else. A function is taken in only with one
meaning for all of them; the ones that read times live in `expression_times`, operators in `expression_operators`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.partitions.bucket import BucketUDF, bucket, check_num_buckets
from ballista_py.partitions.bucket_hash import check_bucket_type
from ballista_py.partitions.expression.nodes import CallNode, ColumnNode, Dialect, LiteralNode, Node, join_text
from ballista_py.partitions.expression.operators import as_bigint, bigint_sql
from ballista_py.partitions.expression.times import CastToDate, TimePart, TruncateTime
from ballista_py.partitions.type_names import type_name
from ballista_py.partitions.values import as_key, key_type

# An array, or the literal itself.
Argument: TypeAlias = Any

MAX_TRUNCATE = 1_000_000


class Function(Protocol):
    """One function of the grammar. Literal arguments reach `evaluate` as they are, all others as arrays."""

    @property
    def name(self) -> str:
        """The name under which it is called."""
        ...

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        """The type of the value; raises `UnsupportedExpression` for arguments it does not take."""
        ...

    def text(self, *arguments: str) -> str:
        """The call as it can be parsed again."""
        ...

    def evaluate(self, node: CallNode, arguments: Sequence[Argument], time_zone: str, /) -> pa.Array:
        """The values over arrays of equal length."""
        ...

    def render(self, node: CallNode, arguments: Sequence[str], dialect: Dialect, time_zone: str, /) -> str:
        """The call as SQL of `dialect`."""
        ...


def call(function: Function, arguments: tuple[Node, ...]) -> CallNode:
    """The checked call of `function`."""
    arrow_type = function.check(arguments)
    some = all if isinstance(function, Coalesce) else any
    return CallNode(function, arguments, arrow_type, some(argument.nullable for argument in arguments))


@frozen
class Bucket:
    """`bucket(N, c)`."""

    name: str = "bucket"

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        if len(arguments) != 2:
            raise UnsupportedExpression(f"bucket takes (N, column), not {len(arguments)} argument(s)")
        count, value = arguments
        if not isinstance(count, LiteralNode):
            raise UnsupportedExpression(
                f"bucket needs an integer literal as its first argument, not {count.text()}"
            )
        check_num_buckets(count.value)
        if isinstance(value, LiteralNode):
            raise UnsupportedExpression(f"bucket needs a column as its second argument, not {value.text()}")
        check_bucket_type(value.type)
        return pa.int32()

    def text(self, *arguments: str) -> str:
        return f"bucket({join_text(arguments)})"

    def evaluate(self, node: CallNode, arguments: Sequence[Argument], _time_zone: str, /) -> pa.Array:
        return bucket(buckets_of(node), arguments[1])

    def render(self, node: CallNode, arguments: Sequence[str], dialect: Dialect, _time_zone: str, /) -> str:
        udf, arrow_type = BucketUDF(buckets_of(node)), node.arguments[1].type
        if dialect == "spark":
            return udf.spark_sql(arguments[1], arrow_type)
        return f"{udf.duckdb_name(arrow_type)}({arguments[1]})"


@frozen
class Truncate:
    """`truncate(c, n)`: the first n characters of a text, the multiple of n at or below an integer.

    `substr(c, 1, n)` is the same for texts.
    """

    name: str = "truncate"

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        numbers = arguments[1:]
        substr = self.name == "substr"
        if len(arguments) != 2 + substr or not all(isinstance(n, LiteralNode) for n in numbers):
            raise UnsupportedExpression("substr takes (column, 1, n)" if substr else "truncate takes (column, n)")
        values = [n.value for n in numbers if isinstance(n, LiteralNode)]
        if substr and values[0] != 1:
            raise UnsupportedExpression("substr takes the first characters only: substr(column, 1, n)")
        length = values[-1]
        if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MAX_TRUNCATE:
            raise UnsupportedExpression(f"{self.name} takes a length of 1 to {MAX_TRUNCATE:,}, not {length!r}")
        kind = key_type(arguments[0].type)
        if pa.types.is_integer(kind) and not substr:
            return pa.int64()
        if not pa.types.is_string(kind):
            raise UnsupportedExpression(
                f"{self.name} does not take {arguments[0].text()} of type {type_name(kind)}"
            )
        return pa.string()

    def text(self, *arguments: str) -> str:
        return f"{self.name}({join_text(arguments)})"

    def evaluate(self, node: CallNode, arguments: Sequence[Argument], _time_zone: str, /) -> pa.Array:
        length = int(arguments[-1].value)
        if pa.types.is_string(node.type):
            return pc.utf8_slice_codeunits(as_key(arguments[0], pa.string()), 0, length)
        values = as_bigint(arguments[0])
        raw = pc.fill_null(values, 0).to_numpy()
        if len(raw) and int(raw.min()) - int(raw.min()) % length < -(1 << 63):
            raise SchemaMismatch(f"{node.text()} leaves the range of 64-bit integers")
        floored = np.floor_divide(raw, length) * length
        return pc.if_else(values.is_valid(), pa.array(floored), pa.scalar(None, pa.int64()))

    def render(self, node: CallNode, arguments: Sequence[str], dialect: Dialect, _time_zone: str, /) -> str:
        length = arguments[-1]
        if pa.types.is_string(node.type):
            return f"substr({arguments[0]}, 1, {length})"
        value = bigint_sql(arguments[0])
        if dialect == "spark":
            rest = f"pmod({value}, cast({length} as bigint))"
            return f"if({value} < -9223372036854775807 - 1 + {rest}, raise_error('overflow'), {value} - {rest})"
        return f"({value} - ((({value} % {length}) + {length}) % {length}))"


@frozen
class Coalesce:
    """`coalesce(a, b, …)` over values of one type."""

    name: str = "coalesce"

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        if len(arguments) < 2:
            raise UnsupportedExpression("coalesce takes two or more arguments")
        kinds = {_unified(argument.type) for argument in arguments}
        if len(kinds) > 1:
            named = ", ".join(str(argument.type) for argument in arguments)
            raise UnsupportedExpression(f"coalesce takes arguments of one type, not {named}")
        return kinds.pop()

    def text(self, *arguments: str) -> str:
        return f"coalesce({join_text(arguments)})"

    def evaluate(self, node: CallNode, arguments: Sequence[Argument], _time_zone: str, /) -> pa.Array:
        length = len(next(item for item in arguments if not isinstance(item, LiteralNode)))
        columns = [
            pa.repeat(pa.scalar(item.value, node.type), length)
            if isinstance(item, LiteralNode)
            else (as_bigint(item) if pa.types.is_int64(node.type) else as_key(item, node.type))
            for item in arguments
        ]
        return pc.coalesce(*columns)

    def render(self, node: CallNode, arguments: Sequence[str], _dialect: Dialect, _time_zone: str, /) -> str:
        if pa.types.is_int64(node.type):
            arguments = [bigint_sql(argument) for argument in arguments]
        return f"coalesce({join_text(arguments)})"


def buckets_of(node: Node) -> int:
    """N of a `bucket(N, …)` call."""
    if isinstance(node, CallNode) and isinstance(node.function, Bucket):
        count = node.arguments[0]
        if isinstance(count, LiteralNode):
            return int(count.value)
    raise UnsupportedExpression(f"{node.text()} is not a bucket")


def is_bucket(node: Node) -> bool:
    """Whether `node` is `bucket(N, …)`."""
    return isinstance(node, CallNode) and isinstance(node.function, Bucket)


def is_bucket_of_column(node: Node) -> bool:
    """Whether `node` is `bucket(N, column)`."""
    return isinstance(node, CallNode) and is_bucket(node) and isinstance(node.arguments[1], ColumnNode)


def buckets_in(node: Node) -> list[CallNode]:
    """Every `bucket` call of the expression."""
    if not isinstance(node, CallNode):
        return []
    inner = [found for argument in node.arguments for found in buckets_in(argument)]
    return [node, *inner] if is_bucket(node) else inner


def is_monotonic(node: Node) -> bool:
    """Whether a greater value of the column never has a smaller value of `node`.

    Local times do not count, because clocks are set back; nor do floats, because engines order NaN differently.
    """
    if isinstance(node, ColumnNode):
        return not pa.types.is_floating(node.type)
    if not isinstance(node, CallNode) or not isinstance(node.function, _MONOTONIC):
        return False
    if isinstance(node.function, TimePart) and node.function.name != "year":
        return False
    values = [argument for argument in node.arguments if not isinstance(argument, LiteralNode)]
    instants = any(pa.types.is_timestamp(value.type) and value.type.tz is not None for value in values)
    return not instants and len(values) == 1 and is_monotonic(values[0])


def _unified(arrow_type: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(arrow_type) else key_type(arrow_type)


CAST_TO_DATE = CastToDate()
_MONOTONIC = (Truncate, TruncateTime, CastToDate, TimePart)
_ALL: tuple[Function, ...] = (
    Bucket(),
    Truncate(),
    Truncate("substr"),
    Coalesce(),
    TruncateTime(),
    *(TimePart(name) for name in ("year", "quarter", "month", "day", "hour")),
)
FUNCTIONS: Mapping[str, Function] = {function.name: function for function in _ALL}
