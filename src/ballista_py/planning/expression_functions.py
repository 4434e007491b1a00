"""What each function of a partition key means: its types, its Arrow evaluation, its SQL in each engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from ballista_py.errors import UnsupportedExpression
from ballista_py.planning.bucket import BucketUDF, bucket, check_num_buckets
from ballista_py.planning.bucket_arrays import check_bucket_type
from ballista_py.planning.expression import CallNode, ColumnNode, Dialect, LiteralNode, Node, join_text

# An array, or the literal itself.
Argument: TypeAlias = Any


class Function(Protocol):
    """One function of the grammar. Literal arguments reach `evaluate` as they are, all others as arrays."""

    name: str

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
    nullable = any(argument.nullable for argument in arguments)
    return CallNode(function, arguments, function.check(arguments), nullable)


class _Call:
    """A function that is written as a call."""

    name: str

    def text(self, *arguments: str) -> str:
        return f"{self.name}({join_text(arguments)})"


class _Bucket(_Call):
    name = "bucket"

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        if len(arguments) != 2:
            raise UnsupportedExpression(f"bucket takes (N, column), not {len(arguments)} argument(s)")
        count, column = arguments
        if not isinstance(count, LiteralNode):
            raise UnsupportedExpression(
                f"bucket needs an integer literal as its first argument, not {count.text()}"
            )
        check_num_buckets(count.value)
        if isinstance(column, LiteralNode):
            raise UnsupportedExpression(f"bucket needs a column as its second argument, not {column.text()}")
        check_bucket_type(column.type)
        return pa.int32()

    def evaluate(self, node: CallNode, arguments: Sequence[Argument], _time_zone: str, /) -> pa.Array:
        return bucket(buckets_of(node), arguments[1])

    def render(self, node: CallNode, arguments: Sequence[str], dialect: Dialect, _time_zone: str, /) -> str:
        if dialect == "spark":
            return BucketUDF(buckets_of(node)).spark_sql(arguments[1], node.arguments[1].type)
        return f"bucket({arguments[0]}, {arguments[1]})"


def buckets_of(node: Node) -> int:
    """N of a `bucket(N, …)` call."""
    if isinstance(node, CallNode) and isinstance(node.function, _Bucket):
        count = node.arguments[0]
        if isinstance(count, LiteralNode):
            return int(count.value)
    raise UnsupportedExpression(f"{node.text()} is not a bucket")


def is_bucket_of_column(node: Node) -> bool:
    """Whether `node` is `bucket(N, column)`."""
    return (
        isinstance(node, CallNode)
        and isinstance(node.function, _Bucket)
        and isinstance(node.arguments[1], ColumnNode)
    )


FUNCTIONS: Mapping[str, Function] = {function.name: function for function in (_Bucket(),)}
