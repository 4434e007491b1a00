"""Joins of a bound plan in Polars: equal keys by hash, the rest of an inner join's conditions after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import polars as pl

from ballista_py.engines.polars.expressions import Expressions, Node
from ballista_py.engines.polars.types import Kind, refused

_HOW: Mapping[str, Literal["inner", "left", "right", "full", "semi", "anti"]] = {
    "INNER": "inner",
    "LEFT": "left",
    "RIGHT": "right",
    "FULL": "full",
    "OUTER": "full",
    "SEMI": "semi",
    "ANTI": "anti",
}
_EQUALITIES = ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM")
Fresh = Callable[[int], Iterator[str]]


def join(
    kind: str,
    conditions: Sequence[Node],
    left: pl.LazyFrame,
    left_row: Expressions,
    right: pl.LazyFrame,
    right_row: Expressions,
    fresh: Fresh,
) -> tuple[pl.LazyFrame, str | None]:
    """The joined frame and, for a mark join, the column that says whether there was a partner.

    Raises `SqlError` naming what is not done exactly.
    """
    if any(c.keys() != {"left", "right", "comparison"} for c in conditions):
        raise refused("joins on conditions that do not compare both sides")
    equalities = [c for c in conditions if c["comparison"] in _EQUALITIES]
    others = [c for c in conditions if c["comparison"] not in _EQUALITIES]
    if others and kind != "INNER":
        raise refused(f"{kind.lower()} joins on conditions that are not equalities")
    for condition in equalities:
        _check_types(left_row.kind(condition["left"]), right_row.kind(condition["right"]))
    if kind == "MARK":
        return _mark(conditions, left, left_row, right, right_row, fresh)
    if kind not in _HOW:
        raise refused(f"{kind.lower()} joins")
    if not equalities:
        joined = left.join(right, how="cross")
    else:
        null_safe = {c["comparison"] == "COMPARE_NOT_DISTINCT_FROM" for c in equalities}
        if len(null_safe) > 1:
            raise refused("joins on both = and IS NOT DISTINCT FROM")
        left, left_keys = _keys(left, left_row, [c["left"] for c in equalities], fresh)
        right, right_keys = _keys(right, right_row, [c["right"] for c in equalities], fresh)
        coalesce = None if kind in ("SEMI", "ANTI") else False
        joined = left.join(
            right,
            left_on=left_keys,
            right_on=right_keys,
            how=_HOW[kind],
            nulls_equal=null_safe == {True},
            coalesce=coalesce,
        )
    if others:
        both = Expressions([*left_row.names, *right_row.names], [*left_row.kinds, *right_row.kinds])
        shift = len(left_row.names)
        joined = joined.filter(both.condition([_as_function(c, shift) for c in others]))
    return joined, None


def _mark(
    conditions: Sequence[Node],
    left: pl.LazyFrame,
    left_row: Expressions,
    right: pl.LazyFrame,
    right_row: Expressions,
    fresh: Fresh,
) -> tuple[pl.LazyFrame, str]:
    """`x IN (…)` in three values: true with a partner, NULL if x or one of the others is NULL, else false."""
    if {c["comparison"] for c in conditions} == {"COMPARE_NOT_DISTINCT_FROM"}:
        return _exists(conditions, left, left_row, right, right_row, fresh)
    if len(conditions) != 1 or conditions[0]["comparison"] != "COMPARE_EQUAL":
        raise refused("IN over several conditions at once")
    key, other, partner, rows, nulls, mark = fresh(6)
    left = left.with_columns(left_row.expr(conditions[0]["left"]).alias(key))
    values = right.select(right_row.expr(conditions[0]["right"]).alias(other))
    facts = values.select(pl.len().alias(rows), pl.col(other).is_null().any().alias(nulls))
    partners = values.drop_nulls().unique().with_columns(pl.lit(True).alias(partner))
    joined = left.join(partners, left_on=key, right_on=other, how="left").join(facts, how="cross")
    unknown = (pl.col(rows) > 0) & (pl.col(key).is_null() | pl.col(nulls))
    found = pl.when(pl.col(partner).is_not_null()).then(True).when(unknown).then(None).otherwise(False)
    return joined.with_columns(found.cast(pl.Boolean).alias(mark)), mark


def _exists(
    conditions: Sequence[Node],
    left: pl.LazyFrame,
    left_row: Expressions,
    right: pl.LazyFrame,
    right_row: Expressions,
    fresh: Fresh,
) -> tuple[pl.LazyFrame, str]:
    """Whether there is a partner, NULL being like NULL: true or false, never NULL."""
    (mark,) = fresh(1)
    others = list(fresh(len(conditions)))
    values = right.select(
        right_row.expr(c["right"]).alias(name) for c, name in zip(conditions, others, strict=True)
    )
    left, keys = _keys(left, left_row, [c["left"] for c in conditions], fresh)
    partners = values.unique().with_columns(pl.lit(True).alias(mark))
    joined = left.join(partners, left_on=keys, right_on=others, how="left", nulls_equal=True)
    return joined.with_columns(pl.col(mark).is_not_null()), mark


def _keys(
    frame: pl.LazyFrame, row: Expressions, nodes: Sequence[Node], fresh: Fresh
) -> tuple[pl.LazyFrame, list[str]]:
    """The frame with a column for each key, and their names; a key that is a column stays what it is."""
    names, made = [], []
    for node in nodes:
        if node.get("expression_class") == "BOUND_REF" and row.names[node.get("index", 0)] not in names:
            row.expr(node)
            names.append(row.names[node.get("index", 0)])
        else:
            (name,) = fresh(1)
            made.append(row.expr(node).alias(name))
            names.append(name)
    return (frame.with_columns(made) if made else frame), names


def _check_types(left: Kind, right: Kind) -> None:
    if left.is_float or right.is_float:
        raise refused("joins on floats")
    if left != right and not (left.name == right.name == "DECIMAL" and left.scale == right.scale):
        raise refused(f"joins of {left} with {right}")
    if left.held != right.held:
        raise refused(f"joins of {left} with {right}")


def _as_function(condition: Node, shift: int) -> Node:
    """The condition over the columns of both sides, those of the right one `shift` places on."""
    return {
        "expression_class": "BOUND_FUNCTION",
        "type": condition["comparison"],
        "children": [condition["left"], _shifted(condition["right"], shift)],
    }


def _shifted(node: object, shift: int) -> Node:
    moved = _moved(node, shift)
    assert isinstance(moved, dict)
    return moved


def _moved(node: object, shift: int) -> object:
    if isinstance(node, list):
        return [_moved(each, shift) for each in node]
    if not isinstance(node, dict):
        return node
    if node.get("expression_class") == "BOUND_REF":
        return {**node, "index": int(node.get("index", 0)) + shift}
    return {key: _moved(value, shift) for key, value in node.items()}
