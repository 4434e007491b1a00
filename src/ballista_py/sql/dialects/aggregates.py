"""Functions over many rows: aggregates with DISTINCT, FILTER and ORDER BY, and functions of windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen
from sqlglot import exp

from ballista_py.sql.dialects.operators import condition
from ballista_py.sql.dialects.typed import Reader, Typed, TypedScope, cast_to, refused, require_only
from ballista_py.sql.dialects.value_types import (
    BIGINT,
    BOOL,
    DOUBLE,
    INTEGER,
    NULL,
    QUOTIENT,
    TEXT,
    ValueType,
)


@frozen
class Over:
    """The engine's function, its arguments, the type of the result, and whether that has to be cast to it."""

    name: str
    arguments: tuple[exp.Expr, ...]
    type: ValueType
    cast: bool = False


Aggregate: TypeAlias = Callable[[str, Sequence[Typed]], Over | None]
_UNBOUND = ("UNBOUNDED", "CURRENT ROW")


def _sum(dialect: str, values: Sequence[Typed]) -> Over | None:
    if len(values) != 1:
        return None
    kind, expr = values[0].type, values[0].expr
    if kind.family == "int":
        wide = dialect == "postgres" and kind == BIGINT
        return Over("sum", (expr,), ValueType("decimal", 38, 0) if wide else BIGINT, True)
    if kind.family == "decimal":
        size = 38 if dialect == "postgres" else min(kind.size + 10, 38)
        return Over("sum", (expr,), ValueType("decimal", size, kind.scale))
    if kind == DOUBLE:
        return Over("sum", (expr,), DOUBLE)
    if kind.family == "float" and dialect == "spark":
        return Over("sum", (cast_to(expr, DOUBLE),), DOUBLE)
    return None


def _avg(dialect: str, values: Sequence[Typed]) -> Over | None:
    if len(values) != 1:
        return None
    kind, expr = values[0].type, values[0].expr
    if kind.is_exact and dialect == "postgres":
        return Over("avg", (expr,), QUOTIENT)
    if kind.family == "int" or kind == DOUBLE:
        return Over("avg", (expr,), DOUBLE)
    return Over("avg", (cast_to(expr, DOUBLE),), DOUBLE) if kind.family == "float" else None


def _extreme(name: str) -> Aggregate:
    def made(dialect: str, values: Sequence[Typed]) -> Over | None:
        if len(values) != 1 or values[0].type.family in ("null", "unknown", "parameter", "bytes", "quotient"):
            return None
        if values[0].type == BOOL and dialect == "postgres":
            return None
        return Over(name, (values[0].expr,), values[0].type)

    return made


def _spread(name: str) -> Aggregate:
    def made(dialect: str, values: Sequence[Typed]) -> Over | None:
        kinds = ("double", "float") if dialect == "postgres" else ("int", "decimal", "double", "float")
        if len(values) != 1 or values[0].type.family not in kinds:
            return None
        return Over(name, (cast_to(values[0].expr, DOUBLE),), DOUBLE)

    return made


def _of_conditions(name: str, kind: ValueType = BOOL) -> Aggregate:
    def made(dialect: str, values: Sequence[Typed]) -> Over | None:
        if len(values) != 1 or values[0].type != BOOL:
            return None
        return Over(name, (values[0].expr,), kind, kind != BOOL)

    return made


def _count(dialect: str, values: Sequence[Typed]) -> Over | None:
    return Over("count", (values[0].expr,), BIGINT) if len(values) == 1 else None


def _text_of_all(dialect: str, values: Sequence[Typed]) -> Over | None:
    if len(values) != 2 or values[0].type != TEXT or values[1].literal is None:
        return None
    return Over("string_agg", (values[0].expr, values[1].expr), TEXT)


def _number(name: str, dialect_kinds: Mapping[str, ValueType]) -> Aggregate:
    def made(dialect: str, values: Sequence[Typed]) -> Over | None:
        return None if values else Over(name, (), dialect_kinds[dialect], True)

    return made


def _ntile(dialect: str, values: Sequence[Typed]) -> Over | None:
    if len(values) != 1 or not values[0].whole:
        return None
    return Over("ntile", (values[0].expr,), INTEGER, True)


def _beside(name: str) -> Aggregate:
    def made(dialect: str, values: Sequence[Typed]) -> Over | None:
        if (
            not 1 <= len(values) <= 3
            or values[0].type == NULL
            or values[0].type.family in ("unknown", "parameter")
        ):
            return None
        if len(values) > 1 and values[1].whole is None:
            return None
        if len(values) == 3 and values[2].type not in (values[0].type, NULL):
            return None
        return Over(name, tuple(value.expr for value in values), values[0].type)

    return made


def _at_end(name: str) -> Aggregate:
    def made(dialect: str, values: Sequence[Typed]) -> Over | None:
        return Over(name, (values[0].expr,), values[0].type) if len(values) == 1 else None

    return made


_PLACES = {"spark": INTEGER, "postgres": BIGINT}
_SHARES = {"spark": DOUBLE, "postgres": DOUBLE}
_SHARED: Mapping[str, Aggregate] = {
    "count": _count, "sum": _sum, "avg": _avg, "min": _extreme("min"), "max": _extreme("max"),
    "stddev": _spread("stddev_samp"), "stddev_samp": _spread("stddev_samp"), "stddev_pop": _spread("stddev_pop"),
    "variance": _spread("var_samp"), "var_samp": _spread("var_samp"), "var_pop": _spread("var_pop"),
    "bool_and": _of_conditions("bool_and"), "every": _of_conditions("bool_and"),
    "bool_or": _of_conditions("bool_or"),
}  # fmt: skip
AGGREGATES: Mapping[str, Mapping[str, Aggregate]] = {
    "spark": {**_SHARED, "mean": _avg, "count_if": _of_conditions("count_if", BIGINT)},
    "postgres": {**_SHARED, "string_agg": _text_of_all},
}
WINDOWS: Mapping[str, Aggregate] = {
    "row_number": _number("row_number", _PLACES), "rank": _number("rank", _PLACES),
    "dense_rank": _number("dense_rank", _PLACES), "percent_rank": _number("percent_rank", _SHARES),
    "cume_dist": _number("cume_dist", _SHARES), "ntile": _ntile, "lag": _beside("lag"), "lead": _beside("lead"),
    "first_value": _at_end("first_value"), "last_value": _at_end("last_value"),
}  # fmt: skip


def over_rows(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """An aggregate, with what stands around it: FILTER and OVER."""
    window = node if isinstance(node, exp.Window) else None
    inner = node if window is None else window.this
    condition_node = None
    if isinstance(inner, exp.Filter):
        require_only(inner, reader.dialect, "this", "expression")
        condition_node, inner = inner.expression.this, inner.this
    name = str(inner.this)[1:] if isinstance(inner, exp.Anonymous) else ""
    found = AGGREGATES[reader.dialect].get(name) or (WINDOWS.get(name) if window is not None else None)
    if found is None:
        raise refused(node, reader.dialect)
    call, over = _call(reader, inner, found, scope)
    if condition_node is not None:
        if name in WINDOWS:
            raise refused(node, reader.dialect)
        where = exp.Where(this=condition(reader, condition_node, scope))
        call = exp.Filter(this=call, expression=where)
    if window is not None:
        call = _window(reader, window, call, scope)
    return Typed(cast_to(call, over.type) if over.cast else call, over.type)


def _call(reader: Reader, node: exp.Expr, found: Aggregate, scope: TypedScope) -> tuple[exp.Expr, Over]:
    arguments = list(node.expressions)
    if str(node.this)[1:] == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        return exp.Anonymous(this="count", expressions=[exp.Star()]), Over("count", (), BIGINT)
    order, distinct = None, False
    if arguments and isinstance(arguments[-1], exp.Order):
        order = ordered(reader, arguments[-1], scope)
        arguments[-1] = arguments[-1].this
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        require_only(arguments[0], reader.dialect, "expressions")
        distinct, arguments = True, list(arguments[0].expressions)
    over = found(reader.dialect, [reader.value(argument, scope) for argument in arguments])
    if over is None or (distinct and (len(over.arguments) != 1 or order)):
        raise refused(node, reader.dialect)
    made = list(over.arguments)
    if distinct:
        made = [exp.Distinct(expressions=made)]
    if order is not None:
        if over.name != "string_agg":
            raise refused(node, reader.dialect)
        made[-1] = exp.Order(this=made[-1], expressions=order)
    return exp.Anonymous(this=over.name, expressions=made), over


def ordered(reader: Reader, node: exp.Expr, scope: TypedScope) -> list[exp.Expr]:
    """The terms of an ORDER BY, each with the place of nulls written down."""
    made: list[exp.Expr] = []
    for term in node.expressions:
        require_only(term, reader.dialect, "this", "desc", "nulls_first")
        value = reader.value(term.this, scope)
        if isinstance(value.expr, exp.Literal | exp.Neg) and value.whole is None:
            raise refused(term, reader.dialect)
        last = not term.args.get("nulls_first")
        made.append(exp.Ordered(this=value.expr, desc=bool(term.args.get("desc")), nulls_first=not last))
    return made


def _window(reader: Reader, node: exp.Window, call: exp.Expr, scope: TypedScope) -> exp.Expr:
    require_only(node, reader.dialect, "this", "partition_by", "order", "spec", "over")
    parts = [reader.value(part, scope).expr for part in node.args.get("partition_by") or ()]
    order, spec = node.args.get("order"), node.args.get("spec")
    if spec is not None:
        require_only(spec, reader.dialect, "kind", "start", "start_side", "end", "end_side")
        rows = str(spec.args.get("kind")).upper()
        for side in (spec.args.get("start"), spec.args.get("end")):
            literal = isinstance(side, exp.Literal) and not side.is_string and rows == "ROWS"
            if not (side is None or str(side).upper() in _UNBOUND or literal) or rows not in ("ROWS", "RANGE"):
                raise refused(node, reader.dialect)
    return exp.Window(
        this=call,
        partition_by=parts,
        order=exp.Order(expressions=ordered(reader, order, scope)) if order is not None else None,
        spec=spec.copy() if spec is not None else None,
        over="OVER",
    )
