"""A bound plan of DuckDB as a Polars query over frames: each operator on the list gives the same rows, or is refused.

DuckDB has resolved every name, put every cast in place and turned subqueries into joins, so that nothing is left
to be understood otherwise here. A key of an operator that is not known is refused too: it could change its meaning.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from attrs import frozen

from ballista_py.engines.polars import joins as polars_joins
from ballista_py.engines.polars.aggregates import aggregate
from ballista_py.engines.polars.expressions import BOOLEAN, Expressions, Node, literal
from ballista_py.engines.polars.types import Kind, refused

_ROW_ID = 2**64 - 1
_NOISE = frozenset((
    "type", "children", "table_index", "estimated_cardinality", "has_estimated_cardinality", "expressions", "groups",
    "group_index", "aggregate_index", "groupings_index", "column_count", "ctename", "mark_index", "mark_types",
))  # fmt: skip
_KNOWN: dict[str, frozenset[str]] = {
    "LOGICAL_GET": frozenset((
        "returned_types", "names", "projection_ids", "table_filters", "qname", "has_serialize", "arguments",
        "function_data", "parameters", "named_parameters", "input_table_types", "input_table_names",
        "projected_input", "column_indexes", "table_filters_by_projection",
    )),
    "LOGICAL_AGGREGATE_AND_GROUP_BY": frozenset(("grouping_sets",)),
    "LOGICAL_ORDER_BY": frozenset(("orders",)),
    "LOGICAL_LIMIT": frozenset(("limit_val", "offset_val")),
    "LOGICAL_DISTINCT": frozenset(("distinct_type", "distinct_targets")),
    "LOGICAL_COMPARISON_JOIN": frozenset(("join_type", "conditions")),
    "LOGICAL_ANY_JOIN": frozenset(("join_type", "condition")),
    "LOGICAL_UNION": frozenset(("setop_all", "allow_out_of_order")),
    "LOGICAL_MATERIALIZED_CTE": frozenset(("materialize",)),
    "LOGICAL_CTE_REF": frozenset(("cte_index", "chunk_types", "bound_columns")),
    "LOGICAL_EMPTY_RESULT": frozenset(("return_types", "bindings")),
    "LOGICAL_EXPRESSION_GET": frozenset(("expr_types",)),
}  # fmt: skip


@frozen
class Rows:
    """A query under construction: its columns have unique names; a kind is None where the row id stands."""

    frame: pl.LazyFrame
    names: tuple[str, ...]
    kinds: tuple[Kind | None, ...]

    def row(self) -> Expressions:
        """How expressions over one of these rows are translated."""
        return Expressions(self.names, self.kinds)


def translate(plan: Node, relations: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    """The plan over these relations, whose columns are those of the tables that it was bound with.

    Raises `SqlError` naming the first piece that this engine does not do exactly as DuckDB.
    """
    made = _Translation(relations).rows(plan)
    if None in made.kinds:
        raise refused("the row id of a table")
    return made.frame.select(made.names)


def _as_they_are(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


class _Translation:
    def __init__(self, relations: Mapping[str, pl.LazyFrame]) -> None:
        self._relations = relations
        self._shared: dict[int, Rows] = {}
        self._numbers = itertools.count()

    def rows(self, node: Node) -> Rows:
        kind = str(node["type"])
        method = _BY_TYPE.get(kind)
        unknown = node.keys() - _NOISE - _KNOWN.get(kind, frozenset())
        if method is None or unknown:
            words = kind.removeprefix("LOGICAL_").lower().replace("_", " ")
            raise refused(f"the operation '{words}'" + (f" with {min(unknown)}" if method else ""))
        return method(self, node)

    def _get(self, node: Node) -> Rows:
        if node["qname"]["path"] != ["seq_scan"]:
            raise refused(f"the table function '{node['qname']['path'][-1]}'")
        table = str(node["function_data"]["table"])
        places = [int(column.get("index", 0)) for column in node["column_indexes"]]
        if any(column.keys() - {"index"} for column in node["column_indexes"]):
            raise refused("parts of a column")
        columns: list[pl.Expr] = []
        kinds: list[Kind | None] = []
        names = tuple(self._fresh(len(places)))
        for name, place in zip(names, places, strict=True):
            if place >= _ROW_ID - 1:  # asked for when no column is: it counts rows
                columns.append(pl.lit(False).alias(name))
                kinds.append(None)
            else:
                columns.append(pl.col(node["names"][place]).alias(name))
                kinds.append(Kind.of(node["returned_types"][place]))
        frame = self._relations[table]
        if None in kinds:  # a literal alone would be one row
            frame = frame.with_columns(c for c, kind in zip(columns, kinds, strict=True) if kind is None)
            columns = [pl.col(n) if k is None else c for n, c, k in zip(names, columns, kinds, strict=True)]
        made = Rows(frame.select(columns), names, tuple(kinds))
        for entry in (node.get("table_filters") or {}).get("filters", ()):
            one = Expressions([names[entry["key"]]], [kinds[entry["key"]]])
            made = Rows(made.frame.filter(_filter(entry["value"], one)), names, made.kinds)
        chosen = node.get("projection_ids")
        if chosen:
            made = Rows(made.frame, tuple(names[i] for i in chosen), tuple(kinds[i] for i in chosen))
        return made

    def _projection(self, node: Node) -> Rows:
        below = self._child(node)
        return self._select(below, node["expressions"])

    def _select(self, below: Rows, expressions: Sequence[Node]) -> Rows:
        row = below.row()
        names = tuple(self._fresh(len(expressions)))
        kinds = tuple(row.kind(node) for node in expressions)
        made = [row.expr(node).alias(name) for node, name in zip(expressions, names, strict=True)]
        return Rows(below.frame.with_columns(made).select(names), names, kinds)

    def _filter(self, node: Node) -> Rows:
        below = self._child(node)
        return Rows(below.frame.filter(below.row().condition(node["expressions"])), below.names, below.kinds)

    def _aggregate(self, node: Node) -> Rows:
        below = self._child(node)
        groups, wanted = node.get("groups", []), node.get("expressions", [])
        if node.get("grouping_sets", [list(range(len(groups)))]) != [list(range(len(groups)))]:
            raise refused("GROUPING SETS, ROLLUP and CUBE")
        row = below.row()
        names = tuple(self._fresh(len(groups) + len(wanted)))
        keys = [row.expr(key).alias(name) for key, name in zip(groups, names, strict=False)]
        kinds = tuple(row.kind(each) for each in (*groups, *wanted))
        if any(kind.is_float for kind in kinds[: len(groups)]):
            raise refused("groups of floats")
        made = [aggregate(each, row).alias(name) for each, name in zip(wanted, names[len(groups) :], strict=True)]
        frame = below.frame.group_by(keys).agg(made) if groups else below.frame.select(made)
        return Rows(frame, names, kinds)

    def _order(self, node: Node) -> Rows:
        below = self._child(node)
        row = below.row()
        orders = node["orders"]
        frame = below.frame.sort(
            [row.expr(order["expression"]) for order in orders],
            descending=[_one_of(order["type"], "DESCENDING", "ASCENDING") for order in orders],
            nulls_last=[_one_of(order["null_order"], "NULLS LAST", "NULLS FIRST") for order in orders],
        )
        return Rows(frame, below.names, below.kinds)

    def _limit(self, node: Node) -> Rows:
        below = self._child(node)
        offset, limit = (_bound(node.get(key, {"type": "UNSET"})) for key in ("offset_val", "limit_val"))
        if limit is None and not offset:  # a barrier (`sql.barriers`), below which nothing of what follows may go
            kept = below.frame.map_batches(_as_they_are, predicate_pushdown=False, slice_pushdown=False)
            return Rows(kept, below.names, below.kinds)
        return Rows(below.frame.slice(offset or 0, limit), below.names, below.kinds)

    def _distinct(self, node: Node) -> Rows:
        below = self._child(node)
        if node["distinct_type"] != "DISTINCT":
            raise refused("DISTINCT ON")
        if any(kind is None or kind.is_float for kind in below.kinds):
            raise refused("DISTINCT over floats")
        return Rows(below.frame.unique(list(below.names)), below.names, below.kinds)

    def _union(self, node: Node) -> Rows:
        sides = [self.rows(child) for child in node["children"]]
        if any(side.kinds != sides[0].kinds for side in sides):
            raise refused("UNION of several types")
        names = tuple(self._fresh(len(sides[0].names)))
        frames = [
            side.frame.select(pl.col(a).alias(b) for a, b in zip(side.names, names, strict=True)) for side in sides
        ]
        return Rows(pl.concat(frames), names, sides[0].kinds)

    def _join(self, node: Node) -> Rows:
        left, right = (self.rows(child) for child in node["children"])
        frame, mark = polars_joins.join(
            str(node["join_type"]),
            node["conditions"],
            left.frame,
            left.row(),
            right.frame,
            right.row(),
            self._fresh,
        )
        kind = node["join_type"]
        if mark is not None:
            return Rows(frame, (*left.names, mark), (*left.kinds, BOOLEAN))
        if kind in ("SEMI", "ANTI"):
            return Rows(frame, left.names, left.kinds)
        return Rows(frame, (*left.names, *right.names), (*left.kinds, *right.kinds))

    def _any_join(self, node: Node) -> Rows:
        if node["join_type"] != "INNER":
            raise refused("outer joins on conditions that are not equalities")
        crossed = self._cross(node)
        return Rows(crossed.frame.filter(crossed.row().expr(node["condition"])), crossed.names, crossed.kinds)

    def _cross(self, node: Node) -> Rows:
        left, right = (self.rows(child) for child in node["children"])
        frame = left.frame.join(right.frame, how="cross")
        return Rows(frame, (*left.names, *right.names), (*left.kinds, *right.kinds))

    def _one_row(self, _node: Node) -> Rows:
        (name,) = self._fresh(1)
        return Rows(pl.LazyFrame({name: [False]}), (name,), (None,))

    def _empty(self, node: Node) -> Rows:
        kinds = tuple(map(Kind.of, node["return_types"]))
        names = tuple(self._fresh(len(kinds)))
        schema = {name: kind.held for name, kind in zip(names, kinds, strict=True)}
        return Rows(pl.LazyFrame(schema=schema), names, kinds)

    def _values(self, node: Node) -> Rows:
        kinds = tuple(map(Kind.of, node["expr_types"]))
        names = tuple(self._fresh(len(kinds)))
        frames = []
        for row in node["expressions"]:
            if any(value.get("expression_class") != "BOUND_CONSTANT" for value in row):
                raise refused("VALUES that are no constants")
            if tuple(Kind.of(value["value"]["type"]) for value in row) != kinds:
                raise refused("VALUES of several types")
            frames.append(pl.select(literal(v["value"]).alias(n) for v, n in zip(row, names, strict=True)).lazy())
        return Rows(pl.concat(frames), names, kinds)

    def _with(self, node: Node) -> Rows:
        shared, rest = node["children"]
        self._shared[int(node.get("table_index", 0))] = self.rows(shared)
        return self.rows(rest)

    def _shared_rows(self, node: Node) -> Rows:
        found = self._shared.get(int(node.get("cte_index", 0)))
        if found is None:
            raise refused("recursive queries")
        names = tuple(self._fresh(len(found.names)))
        renamed = (pl.col(a).alias(b) for a, b in zip(found.names, names, strict=True))
        return Rows(found.frame.select(renamed), names, found.kinds)

    def _child(self, node: Node) -> Rows:
        (child,) = node["children"]
        return self.rows(child)

    def _fresh(self, count: int) -> Iterator[str]:
        return (f"c{next(self._numbers)}" for _ in range(count))


def _filter(node: Node, row: Expressions) -> pl.Expr:
    """A filter that lies at a scan; `row` has the one column that it is about."""
    kind = node["filter_type"]
    column = {"expression_class": "BOUND_REF", "type": "BOUND_REF"}
    if kind == "EXPRESSION_FILTER":
        return row.expr(node["expr"])
    if kind == "LEGACY_OPTIONAL_FILTER":  # a hint: the condition itself stands above the scan
        return pl.lit(True)
    value = row.expr(column)
    if kind == "LEGACY_CONSTANT_COMPARISON":
        constant = {"expression_class": "BOUND_CONSTANT", "type": "VALUE_CONSTANT", "value": node["constant"]}
        if Kind.of(node["constant"]["type"]) != row.kinds[0]:
            raise refused("a filter that compares several types")
        other = {"return_type": node["constant"]["type"], **column}
        return row.expr(
            {"expression_class": "BOUND_FUNCTION", "type": node["comparison_type"], "children": [other, constant]}
        )
    if kind in ("LEGACY_IS_NULL", "LEGACY_IS_NOT_NULL"):
        return value.is_null() if kind == "LEGACY_IS_NULL" else value.is_not_null()
    if kind in ("LEGACY_CONJUNCTION_AND", "LEGACY_CONJUNCTION_OR"):
        parts = [_filter(child, row) for child in node["child_filters"]]
        return pl.all_horizontal(parts) if kind == "LEGACY_CONJUNCTION_AND" else pl.any_horizontal(parts)
    raise refused(f"filters of the kind '{str(kind).lower()}'")


def _one_of(word: Any, yes: str, no: str) -> bool:
    if word not in (yes, no):
        raise refused(f"the order '{word}'")
    return bool(word == yes)


def _bound(value: Node) -> int | None:
    if value["type"] == "UNSET":
        return None
    if value["type"] != "CONSTANT_VALUE":
        raise refused("LIMIT and OFFSET that are no plain numbers")
    return int(value.get("constant_integer", 0))


_BY_TYPE: dict[str, Callable[[_Translation, Node], Rows]] = {
    "LOGICAL_GET": _Translation._get,
    "LOGICAL_PROJECTION": _Translation._projection,
    "LOGICAL_FILTER": _Translation._filter,
    "LOGICAL_AGGREGATE_AND_GROUP_BY": _Translation._aggregate,
    "LOGICAL_ORDER_BY": _Translation._order,
    "LOGICAL_LIMIT": _Translation._limit,
    "LOGICAL_DISTINCT": _Translation._distinct,
    "LOGICAL_UNION": _Translation._union,
    "LOGICAL_COMPARISON_JOIN": _Translation._join,
    "LOGICAL_ANY_JOIN": _Translation._any_join,
    "LOGICAL_CROSS_PRODUCT": _Translation._cross,
    "LOGICAL_DUMMY_SCAN": _Translation._one_row,
    "LOGICAL_EMPTY_RESULT": _Translation._empty,
    "LOGICAL_EXPRESSION_GET": _Translation._values,
    "LOGICAL_MATERIALIZED_CTE": _Translation._with,
    "LOGICAL_CTE_REF": _Translation._shared_rows,
}
