"""What the readers of another dialect share: values with their types, names in scope, refusals, pieces of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from attrs import define, field, frozen
from sqlglot import exp

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.dialects.value_types import ValueType, engine_name
from ballista_py.sql.parse.parsing import ENGINE_DIALECT, parsed_one

MAX_WRITTEN_OUT = 20_000
_CALL = "\x01"
_SIMPLE = (
    exp.Column, exp.Literal, exp.Paren, exp.Cast, exp.Anonymous, exp.Null, exp.Boolean, exp.Case, exp.Window, exp.Func,
    exp.Placeholder, exp.Parameter,
)  # fmt: skip
_BOUND = (exp.And, exp.Or, exp.Xor, exp.Binary)


@frozen(eq=False)
class Typed:
    """An expression in the engine's dialect and the type of its values."""

    expr: exp.Expr
    type: ValueType

    @property
    def literal(self) -> str | None:
        """The text of a string literal."""
        return self.expr.name if isinstance(self.expr, exp.Literal) and self.expr.is_string else None

    @property
    def whole(self) -> int | None:
        """The value of a literal that is an integer."""
        return _whole(self.expr)


@frozen
class Relation:
    """The columns of something in FROM, in order; `known` is False where nobody told which they are."""

    columns: tuple[tuple[str, ValueType], ...] = ()
    known: bool = True


@define(eq=False)
class TypedScope:
    """The relations whose columns an expression can name, and those of the queries around it."""

    parent: TypedScope | None = None
    sources: dict[str, Relation] = field(factory=dict)
    aliases: dict[str, ValueType] = field(factory=dict)
    tables: dict[str, Relation] = field(factory=dict)  # of WITH


class Reader(Protocol):
    """What reads a statement of one dialect."""

    @property
    def dialect(self) -> str: ...

    def value(self, node: exp.Expr, scope: TypedScope) -> Typed:
        """The expression in the engine's dialect. Raises `UnsupportedExpression` for what is not known to be it."""
        ...

    def query(self, node: exp.Expr, scope: TypedScope | None) -> Relation:
        """Rewrite a query in place; its columns."""
        ...

    def table(self, name: str) -> Relation:
        """The columns of a table of the cluster, by its name in small letters; not known where nobody told."""
        ...


def refused(node: exp.Expr | str, dialect: str, hint: str = "") -> UnsupportedExpression:
    """The error for a piece of a statement of that dialect."""
    shown = node if isinstance(node, str) else node.sql(dialect, comments=False)
    short = " ".join(shown.replace(_CALL, "").split())
    short = short if len(short) <= 80 else short[:79] + "…"
    instead = hint or f"write it in the engine's dialect ({ENGINE_DIALECT})"
    return UnsupportedExpression(
        f"'{short}' is not known to mean the same here as in the dialect '{dialect}': {instead}"
    )


def require_only(node: exp.Expr, dialect: str, *names: str) -> None:
    """Raise `UnsupportedExpression` for an argument of the node that is not among these."""
    for key, value in node.args.items():
        if key not in names and value not in (None, False, [], ""):
            raise refused(node, dialect)


def literal(text: str) -> exp.Expr:
    """A string literal."""
    return exp.Literal.string(text)


def cast_to(expr: exp.Expr, kind: ValueType) -> exp.Expr:
    """The expression in a cast of the engine."""
    return exp.Cast(this=expr, to=exp.DataType.build(engine_name(kind), dialect=ENGINE_DIALECT))


def enclosed(expr: exp.Expr) -> exp.Expr:
    """The expression in parentheses, unless it needs none."""
    simple = isinstance(expr, _SIMPLE) and not isinstance(expr, _BOUND)
    return expr if simple else exp.Paren(this=expr)


def filled(template: str, values: Sequence[exp.Expr], dialect: str) -> exp.Expr:
    """A piece of the engine's SQL with expressions for `{0}`, `{1}` and so on.

    >>> filled("{0} + length({1})", [exp.column("a"), exp.column("b")], "spark").sql("duckdb")
    'a + LENGTH(b)'
    """
    tree = _template(template).copy()
    places = [node for node in tree.find_all(exp.Column) if node.name.startswith(_CALL)]
    uses: dict[int, int] = {}
    for node in places:
        number = int(node.name[1:])
        uses[number] = uses.get(number, 0) + 1
    for number, times in uses.items():
        if times > 1 and times * sum(1 for _ in values[number].walk()) > MAX_WRITTEN_OUT:
            raise UnsupportedExpression(
                f"the statement is too long when it is written out from the dialect '{dialect}'"
            )
    for node in places:
        new = enclosed(values[int(node.name[1:])].copy())
        if node is tree:
            return new
        node.replace(new)
    return tree


@lru_cache(maxsize=1_000)
def _template(text: str) -> exp.Expr:
    marked = text
    for number in range(9):
        marked = marked.replace(f"{{{number}}}", f'"{_CALL}{number}"')
    found: exp.Expr = parsed_one(f"select {marked}").expressions[0]
    return found


def _whole(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Paren):
        return _whole(node.this)
    if isinstance(node, exp.Neg):
        found = _whole(node.this)
        return None if found is None else -found
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    return None
