"""From bound queries back to SQL text of the engine's dialect."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ballista_py.planning.sql.expressions import all_of, copied, rewritten
from ballista_py.planning.sql.identifiers import identifier
from ballista_py.planning.sql.query import (
    Draft,
    Expr,
    FragmentScan,
    Item,
    OrderTerm,
    Query,
    Scan,
    Select,
    SetOperation,
    SharedScan,
    Source,
    ValuesList,
)

ENGINE_DIALECT = "duckdb"
_SETS: dict[str, type[exp.SetOperation]] = {"union": exp.Union, "intersect": exp.Intersect, "except": exp.Except}


def render(query: Query, draft: Draft) -> str:
    """The text of a query; common table expressions that the merge computes once are not part of it."""
    return _text(_query(query, draft))


def render_with_shared(query: Query, draft: Draft) -> str:
    """The text of the merge: the query under the common table expressions that it uses more than once."""
    tree = _query(query, draft)
    tables = [
        exp.CTE(
            this=_query(shared.merged, draft),
            alias=exp.TableAlias(this=identifier(shared.name)),
            materialized=True,
        )
        for shared in draft.shared
        if shared.merged is not None
    ]
    if tables:
        tree.set("with_", exp.With(expressions=tables))
    return _text(tree)


def _text(tree: Expr) -> str:
    # Every node was made here, so the generator may do with them what it likes.
    return tree.sql(ENGINE_DIALECT, copy=False)


def _query(query: Query, draft: Draft) -> exp.Query:
    return _select(query, draft) if isinstance(query, Select) else _set_operation(query, draft)


def _select(select: Select, draft: Draft) -> exp.Select:
    tree = exp.Select(expressions=[_item(item, draft) for item in select.items])
    if select.sources:
        first, *others = select.sources
        tree.set("from_", exp.From(this=_relation(first, draft)))
        tree.set("joins", [_join(source, draft) for source in others])
    for key, kind, parts in (
        ("where", exp.Where, select.where),
        ("having", exp.Having, select.having),
        ("qualify", exp.Qualify, select.qualify),
    ):
        condition = all_of(_nested(part, draft) for part in parts)
        if condition is not None:
            tree.set(key, kind(this=condition))
    if select.grouped and (select.group or select.sets is not None):
        tree.set("group", _group(select, draft))
    if select.distinct:
        tree.set("distinct", exp.Distinct())
    if select.order:
        tree.set("order", exp.Order(expressions=[_order_term(term, select.items, draft) for term in select.order]))
    _bound(tree, select.limit, select.offset)
    return tree


def _set_operation(operation: SetOperation, draft: Draft) -> exp.SetOperation:
    sides = []
    for side in (operation.left, operation.right):
        tree = _query(side, draft)
        plain = isinstance(side, Select) and not side.order and side.limit is None and not side.offset
        sides.append(tree if plain else exp.Subquery(this=tree))
    tree = _SETS[operation.kind](this=sides[0], expression=sides[1], distinct=operation.distinct)
    if operation.order:
        terms = [
            exp.Ordered(this=exp.Literal.number(place + 1), desc=descending, nulls_first=nulls_first)
            for place, descending, nulls_first in operation.order
        ]
        tree.set("order", exp.Order(expressions=terms))
    _bound(tree, operation.limit, operation.offset)
    return tree


def _bound(tree: exp.Query, limit: int | None, offset: int) -> None:
    if limit is not None:
        tree.set("limit", exp.Limit(expression=exp.Literal.number(limit)))
    if offset:
        tree.set("offset", exp.Offset(expression=exp.Literal.number(offset)))


def _item(item: Item, draft: Draft) -> Expr:
    expr = _nested(item.expr, draft)
    if isinstance(expr, exp.Column) and expr.name == item.name:
        return expr
    return exp.Alias(this=expr, alias=identifier(item.name))


def _order_term(term: OrderTerm, items: Sequence[Item], draft: Draft) -> exp.Ordered:
    """A sort key; one that is an output column goes by position, so that it is evaluated once."""
    place = next((n for n, item in enumerate(items, 1) if item.expr == term.expr), None)
    key = exp.Literal.number(place) if place is not None else _nested(term.expr, draft)
    return exp.Ordered(this=key, desc=term.descending, nulls_first=term.nulls_first)


def _group(select: Select, draft: Draft) -> exp.Group:
    keys = [_nested(key, draft) for key in select.group]
    if select.sets is None:
        return exp.Group(expressions=keys)
    sets = [exp.Tuple(expressions=[copied(keys[place]) for place in chosen]) for chosen in select.sets]
    return exp.Group(expressions=[exp.GroupingSets(expressions=sets)])


def _join(source: Source, draft: Draft) -> exp.Join:
    condition = all_of(_nested(part, draft) for part in source.on)
    relation = _relation(source, draft)
    if source.join == "inner" and condition is None:
        return exp.Join(this=relation, kind="CROSS")
    if source.join == "inner":
        return exp.Join(this=relation, on=condition)
    return exp.Join(this=relation, side=source.join.upper(), on=condition or exp.Boolean(this=True))


def _relation(source: Source, draft: Draft) -> Expr:
    relation = source.relation
    if isinstance(relation, SharedScan) and relation.shared.merged is None:
        relation = relation.shared.query
    if isinstance(relation, Query):
        return exp.Subquery(this=_query(relation, draft), alias=exp.TableAlias(this=identifier(source.alias)))
    if isinstance(relation, ValuesList):
        rows = [exp.Tuple(expressions=[copied(value) for value in row]) for row in relation.rows]
        labels = [identifier(name) for name in relation.names]
        return exp.Values(expressions=rows, alias=exp.TableAlias(this=identifier(source.alias), columns=labels))
    name = _name(relation)
    table = exp.Table(this=identifier(name))
    if name != source.alias:
        table.set("alias", exp.TableAlias(this=identifier(source.alias)))
    return table


def _name(relation: Scan | FragmentScan | SharedScan) -> str:
    if isinstance(relation, Scan):
        return relation.table.name
    return relation.name if isinstance(relation, FragmentScan) else relation.shared.name


def _nested(expr: Expr, draft: Draft) -> Expr:
    """A copy of an expression with its nested queries written out."""

    def write(node: Expr) -> Expr | None:
        return _query(draft.nested[node.this], draft) if isinstance(node, exp.Placeholder) else None

    return rewritten(expr, write)
