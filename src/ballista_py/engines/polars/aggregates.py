"""Aggregates of a bound plan as Polars expressions: NULL where no row had a value, wide sums, NaN above all."""

from __future__ import annotations

import polars as pl

from ballista_py.engines.polars.expressions import Expressions, Node, function_name
from ballista_py.engines.polars.types import Kind, refused

_KNOWN_KEYS = frozenset((
    "aggregate_type", "alias", "arguments", "children", "expression_class", "filter", "function_data",
    "has_serialize", "is_operator", "qname", "query_location", "query_location_length", "return_type", "type",
))  # fmt: skip
_MAX_SUMMED_DIGITS = 28  # ten thousand million rows of so many digits stay below 39


def aggregate(node: Node, row: Expressions) -> pl.Expr:
    """One aggregate over the rows that `row` describes. Raises `SqlError` naming what is not done exactly."""
    name = function_name(node)
    unknown = node.keys() - _KNOWN_KEYS
    if node.get("expression_class") != "BOUND_AGGREGATE" or unknown:
        raise refused(f"the aggregate '{name}' with {min(unknown, default='other arguments')}")
    kept = row.expr(node["filter"]) if "filter" in node else None
    distinct = node.get("aggregate_type") == "DISTINCT"
    children = node.get("children", [])
    if name == "count_star" and not children:
        return pl.len().cast(pl.Int64) if kept is None else kept.sum().cast(pl.Int64)
    if len(children) != 1:
        raise refused(f"the aggregate '{name}' over {len(children)} arguments")
    kind, result = row.kind(children[0]), row.kind(node)
    values = row.expr(children[0])
    if kept is not None:
        values = values.filter(kept)
    if distinct:
        if kind.is_float:
            raise refused("DISTINCT over floats")
        values = values.unique()
    return _over(name, values, kind, result)


def _over(name: str, values: pl.Expr, kind: Kind, result: Kind) -> pl.Expr:
    """The aggregate over the values that are not NULL, which Polars' own aggregates pass over too."""
    if name == "count":
        return values.count().cast(pl.Int64)
    if name in ("min", "max"):
        return _extreme(name, values, kind)
    if name in ("bool_and", "bool_or") and kind.name == "BOOLEAN":
        return _or_null(values.all() if name == "bool_and" else values.any(), values)
    if name in ("sum", "sum_no_overflow", "avg", "mean"):
        total = _total(values, kind)
        if name in ("avg", "mean") and result.name == "DOUBLE":
            mean = total.cast(pl.Float64) / values.count().cast(pl.Float64)
            return _or_null(mean / float(10**kind.scale), values)
        if result.name in ("HUGEINT", "DECIMAL", "DOUBLE"):
            return _or_null(total.cast(result.held), values)
    raise refused(f"the aggregate '{name}' over {kind}")


def _total(values: pl.Expr, kind: Kind) -> pl.Expr:
    if kind.is_float:
        return values.cast(pl.Float64).sum()
    if kind.is_integer and kind.name != "HUGEINT":
        return values.cast(pl.Int128).sum()
    if kind.name == "DECIMAL" and kind.width <= _MAX_SUMMED_DIGITS:
        return values.cast(pl.Int128).sum()
    raise refused(f"sums over {kind}")


def _extreme(name: str, values: pl.Expr, kind: Kind) -> pl.Expr:
    if not kind.is_float:
        return values.max() if name == "max" else values.min()
    nan = float("nan")
    if name == "max":
        return pl.when(values.is_nan().any()).then(pl.lit(nan, kind.held)).otherwise(values.max())
    numbers = values.filter(values.is_not_nan())
    return (
        pl.when(values.is_nan().all() & (values.count() > 0)).then(pl.lit(nan, kind.held)).otherwise(numbers.min())
    )


def _or_null(value: pl.Expr, values: pl.Expr) -> pl.Expr:
    return pl.when(values.count() > 0).then(value)
