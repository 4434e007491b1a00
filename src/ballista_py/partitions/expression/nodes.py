"""The expressions that partition keys are made of: typed trees over the columns of one table.

A tree is made by `parse_expression` (which admits a short whitelist and names what it refuses) and can be
evaluated over Arrow batches or rendered for Spark and for the engine; all of these give equal values. What each
function means stands in `expression_functions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa
from attrs import frozen

if TYPE_CHECKING:
    from ballista_py.partitions.expression.functions import Function

Dialect = Literal["spark", "duckdb"]

_PLAIN_TEXT = re.compile(r"[ -&(-\[\]-~]*\Z")
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")


@frozen
class ColumnNode:
    """A column of the table, under the exact name that its schema has."""

    name: str
    type: pa.DataType
    nullable: bool = True

    def text(self) -> str:
        """The expression as it can be parsed again."""
        return quote_name(self.name)


@frozen
class LiteralNode:
    """A constant: an integer, a text, a boolean."""

    value: int | str | bool
    type: pa.DataType

    @property
    def nullable(self) -> bool:
        """A constant is never null."""
        return False

    def text(self) -> str:
        """The expression as it can be parsed again."""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        return quote_text(self.value) if isinstance(self.value, str) else str(self.value)


@frozen
class CallNode:
    """A function of the grammar over its arguments; `type` and `nullable` were settled when it was parsed."""

    function: Function
    arguments: tuple[Node, ...]
    type: pa.DataType
    nullable: bool

    def text(self) -> str:
        """The expression as it can be parsed again."""
        return self.function.text(*(argument.text() for argument in self.arguments))


Node: TypeAlias = ColumnNode | LiteralNode | CallNode


def columns_of(node: Node) -> tuple[ColumnNode, ...]:
    """The columns that `node` reads, each once, in the order of their first use."""
    if isinstance(node, ColumnNode):
        return (node,)
    if isinstance(node, CallNode):
        return tuple(dict.fromkeys(column for argument in node.arguments for column in columns_of(argument)))
    return ()


def evaluate(node: Node, columns: Mapping[str, pa.Array], length: int, time_zone: str) -> pa.Array:
    """The value of `node` for every row of `columns`, as an array of `node.type`."""
    if isinstance(node, ColumnNode):
        return columns[node.name]
    if isinstance(node, LiteralNode):
        return pa.repeat(pa.scalar(node.value, node.type), length)
    arguments = [
        argument if isinstance(argument, LiteralNode) else evaluate(argument, columns, length, time_zone)
        for argument in node.arguments
    ]
    return node.function.evaluate(node, arguments, time_zone)


def render(node: Node, dialect: Dialect, time_zone: str) -> str:
    """`node` as SQL of `dialect`; the session's time zone has no influence on its value."""
    if isinstance(node, ColumnNode):
        return column_sql(node, dialect)
    if isinstance(node, LiteralNode):
        return quote_text(node.value, dialect) if isinstance(node.value, str) else node.text()
    arguments = [render(argument, dialect, time_zone) for argument in node.arguments]
    return node.function.render(node, arguments, dialect, time_zone)


def column_sql(column: ColumnNode, dialect: Dialect) -> str:
    """The column as SQL, in the form that partition values have: no -0.0, no more than microseconds."""
    of, kind = pa.types, column.type
    name = quote_name(column.name, "`" if dialect == "spark" else '"', always=True)
    if of.is_floating(kind):
        return f"({name} + cast(0 as {'float' if of.is_float32(kind) else 'double'}))"
    if dialect == "spark" or not of.is_timestamp(kind) or kind.unit == "us":
        return name
    if kind.unit == "ns":
        rest = f"((epoch_ns({name}) % 1000 + 1000) % 1000)"
        make = "make_timestamp" if kind.tz is None else "make_timestamptz"
        return f"{make}((epoch_ns({name}) - {rest}) // 1000)"
    return f"cast({name} as {'timestamp' if kind.tz is None else 'timestamptz'})"


def shape_of(node: Node) -> str:
    """The expression with its columns replaced by their places: equal for two keys that do the same."""
    places = {column: ColumnNode(f"column_{place}", column.type) for place, column in enumerate(columns_of(node))}
    return _replaced(node, places).text()


def _replaced(node: Node, by: Mapping[ColumnNode, ColumnNode]) -> Node:
    if isinstance(node, ColumnNode):
        return by[node]
    if isinstance(node, LiteralNode):
        return node
    arguments = tuple(_replaced(argument, by) for argument in node.arguments)
    return CallNode(node.function, arguments, node.type, node.nullable)


def quote_name(name: str, mark: str = '"', always: bool = False) -> str:
    """`name` as an SQL identifier, quoted unless it is a plain lower-case one."""
    if not always and _PLAIN_NAME.match(name):
        return name
    return mark + name.replace(mark, mark * 2) + mark


def quote_text(text: str, dialect: Dialect = "duckdb") -> str:
    """`text` as an SQL string literal of `dialect`."""
    if dialect == "spark" and not _PLAIN_TEXT.match(text):
        # What a backslash means in Spark depends on a setting of the session.
        return f"cast(X'{text.encode().hex()}' as string)"
    return "'" + text.replace("'", "''") + "'"


def join_text(arguments: Sequence[str]) -> str:
    """Arguments as they stand between the parentheses of a call."""
    return ", ".join(arguments)
