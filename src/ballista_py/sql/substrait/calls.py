"""What a function is called with: values with their types, and the few ways in which trees are put together.

No function here uses a value twice: a plan of n pieces becomes a statement of about n pieces, whatever it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from attrs import field, frozen
from sqlglot import exp

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.substrait.kinds import in_engine, shown

BOOL, I32, I64, FP64, TEXT = pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string()


@frozen(eq=False)
class Value:
    """An expression of the engine and the type of what it gives; nobody changes its tree."""

    tree: exp.Expr
    kind: pa.DataType


@frozen(eq=False, kw_only=True)
class Call:
    """One call of a function: its plain name, arguments, words among the arguments, options, and what it shall give.

    `standard` says that the plan names an extension of Substrait; others go by the name alone, as DataFusion does.
    """

    name: str
    values: tuple[Value, ...] = ()
    words: tuple[str, ...] = ()
    options: Mapping[str, Sequence[str]] = field(factory=dict)
    said: pa.DataType | None = None
    standard: bool = False

    @property
    def kinds(self) -> tuple[pa.DataType, ...]:
        return tuple(value.kind for value in self.values)

    @property
    def trees(self) -> tuple[exp.Expr, ...]:
        return tuple(value.tree for value in self.values)

    def unfit(self, possible: str) -> UnsupportedExpression:
        """The error for arguments that the function is not taken with."""
        given = ", ".join([*(shown(kind) for kind in self.kinds), *self.words]) or "nothing"
        return UnsupportedExpression(f"'{self.name}' of ({given[:200]}) is not taken: {possible}")

    def require(self, holds: bool, possible: str) -> None:
        """Raise `UnsupportedExpression` unless it holds, with what is possible."""
        if not holds:
            raise self.unfit(possible)


def cast(tree: exp.Expr, kind: pa.DataType) -> exp.Expr:
    """The tree as a value of this type, or an error of the statement that computes it."""
    return exp.Cast(this=tree, to=in_engine(kind).copy())


def function(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A call of a function of the engine by its name."""
    return exp.func(name, *arguments, dialect="duckdb")


def joined(kind: type[exp.Binary], parts: Sequence[exp.Expr]) -> exp.Expr:
    """The parts under an operator for which their grouping means nothing: as a tree that is as flat as can be.

    >>> joined(exp.And, [exp.column(name) for name in "abc"]).sql()
    'a AND (b AND c)'
    """
    if len(parts) == 1:
        return enclosed(parts[0])
    middle = len(parts) // 2
    return kind(this=_grouped(kind, parts[:middle]), expression=_grouped(kind, parts[middle:]))


def _grouped(kind: type[exp.Binary], parts: Sequence[exp.Expr]) -> exp.Expr:
    made = joined(kind, parts)
    return made if len(parts) == 1 else exp.Paren(this=made)


def enclosed(tree: exp.Expr) -> exp.Expr:
    """The tree so that it can stand beside any operator."""
    loose = isinstance(tree, exp.Binary | exp.Unary | exp.Between | exp.In | exp.Case | exp.Is | exp.Not)
    return exp.Paren(this=tree) if loose and not isinstance(tree, exp.Paren | exp.Dot) else tree


def between_signs(kind: type[exp.Binary], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """An operator between two trees."""
    return kind(this=enclosed(left), expression=enclosed(right))


def holds_columns(tree: exp.Expr) -> bool:
    """Whether the value depends on a row."""
    return tree.find(exp.Column) is not None


def given(call: Call, value: Value) -> Value:
    """The value as the plan says that the function gives it.

    Whole numbers become whole numbers, floats floats, decimals decimals of at least that scale; anything else that
    differs is refused, because it says that another function is meant.
    """
    said, found = call.said, value.kind
    if said is None or said == found:
        return value
    types = pa.types
    alike = (
        (types.is_integer(said) and types.is_integer(found))
        or (types.is_floating(said) and types.is_floating(found))
        or (types.is_decimal(said) and types.is_decimal(found) and said.scale >= found.scale)
    )
    if not alike:
        raise call.unfit(f"it gives {shown(found)} here, and the plan takes it for {shown(said)}")
    return Value(cast(value.tree, said), said)


def plain_number(tree: exp.Expr) -> exp.Expr:
    """A whole number without its type, where only its value counts: planners look for it.

    >>> plain_number(cast(exp.Literal.number(7), I64)).sql()
    '7'
    """
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        return tree.this
    return tree
