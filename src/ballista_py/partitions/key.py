"""One partition key: its expression, and what planners ask about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.expression.functions import buckets_of, is_bucket_of_column, is_monotonic
from ballista_py.partitions.expression.nodes import ColumnNode, Node, columns_of, evaluate
from ballista_py.partitions.values import as_key, key_type

KeyKind = Literal["bucket", "column", "function"]


@frozen
class PartitionKey:
    """One key: its name, and the expression that gives its value for a row."""

    name: str
    node: Node

    @property
    def expression(self) -> str:
        """The expression as text that parses to the same key."""
        return self.node.text()

    @property
    def type(self) -> pa.DataType:
        """The type of its values in a partition map."""
        return key_type(self.node.type)

    @property
    def nullable(self) -> bool:
        """Whether its value can be null."""
        return self.node.nullable

    @property
    def kind(self) -> KeyKind:
        """`bucket` for `bucket(N, column)`, `column` for a column itself, `function` for anything else."""
        if isinstance(self.node, ColumnNode):
            return "column"
        return "bucket" if is_bucket_of_column(self.node) else "function"

    @property
    def buckets(self) -> int | None:
        """N of a `bucket` key; None for the other kinds."""
        return buckets_of(self.node) if self.kind == "bucket" else None

    @property
    def is_monotonic(self) -> bool:
        """Whether a greater value of its only column never has a smaller key value (nulls aside)."""
        return is_monotonic(self.node)

    @property
    def columns(self) -> tuple[ColumnNode, ...]:
        """The columns it reads."""
        return columns_of(self.node)

    @property
    def column(self) -> str | None:
        """The column that it reads, if it reads exactly one."""
        return self.columns[0].name if len(self.columns) == 1 else None

    @property
    def column_type(self) -> pa.DataType | None:
        """The type of `column` in the table."""
        return self.columns[0].type if len(self.columns) == 1 else None

    def evaluate(self, columns: Mapping[str, pa.Array], length: int, time_zone: str = "UTC") -> pa.Array:
        """The key's value for each of `length` rows, as an array of `type`."""
        return as_key(evaluate(self.node, columns, length, time_zone), self.type)

    def value_for(self, column_value: Any, time_zone: str = "UTC") -> Any:
        """The key's value for one value of its only column.

        Raises `SchemaMismatch` if `column_value` is not one of the column's type.
        """
        (column,) = self.columns
        try:
            array = pa.array([column_value], column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise SchemaMismatch(f"{column_value!r} is not a value of column '{column.name}'") from error
        return self.evaluate({column.name: array}, 1, time_zone)[0].as_py()
