"""Subqueries of FROM that only select and compute are taken into the block around them.

`SELECT g, sum(v) FROM (SELECT … AS g, … AS v FROM a, b WHERE …) GROUP BY g` is a join and a grouping; as one block
both can be done in the legs, as two the rows of the join would have to come to the merge.
"""

from __future__ import annotations

import attrs
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    MAX_WRITTEN,
    copied,
    enclosed,
    facts_of,
    free_aliases,
    nodes_written,
    query_references,
    rewritten,
)
from ballista_py.sql.bind.query import ColumnId, Draft, Expr, Select, Source, column_id, map_expressions
from ballista_py.sql.place.join_groups import is_reorderable


def flattened(select: Select, draft: Draft) -> Select:
    """The block without the FROM subqueries that it can do itself; it has the same rows."""
    if select.sets is not None or not is_reorderable(select):  # sets tell apart keys that are equal inside
        return select
    sources: list[Source] = []
    where: list[Expr] = []
    mapping: dict[ColumnId, Expr] = {}
    for source in select.sources:
        inner = source.relation
        if source.join == "inner" and isinstance(inner, Select):
            inner = flattened(inner, draft)
            if _dissolves(inner, source.alias, select, draft):
                first, *others = inner.sources
                sources += [attrs.evolve(first, join="inner", on=()), *others]
                where += [*source.on, *inner.where]
                mapping.update({(source.alias, item.name): item.expr for item in inner.items})
                continue
        sources.append(source)
    if not mapping:
        return select

    def replace(node: Expr) -> Expr | None:
        found = mapping.get(column_id(node)) if isinstance(node, exp.Column) else None
        return None if found is None else enclosed(copied(found))

    whole = attrs.evolve(select, sources=tuple(sources), where=(*where, *select.where))
    return map_expressions(whole, lambda expr: rewritten(expr, replace))


def _dissolves(inner: Select, alias: str, outer: Select, draft: Draft) -> bool:
    """Whether the rows of `inner` are those of its sources and filters, and its columns may stand anywhere."""
    bounded = inner.limit is not None or inner.offset > 0 or bool(inner.order)
    if bounded or inner.grouped or inner.distinct or inner.qualify or not inner.sources:
        return False
    if not is_reorderable(inner) or free_aliases(inner, draft):
        return False
    if not all(_may_stand_anywhere(item.expr, len(outer.sources) == 1, draft) for item in inner.items):
        return False
    if nodes_written(inner.items, alias, outer.expressions()) > MAX_WRITTEN:
        return False
    nested = (name for expr in outer.expressions() for name in facts_of(expr, draft).nested)
    return not any(alias == used for name in nested for used, _ in query_references(draft.nested[name], draft))


def _may_stand_anywhere(expr: Expr, alone: bool, draft: Draft) -> bool:
    """Whether a column's expression can replace it: a constant would be taken for a position in ORDER BY, and two
    relations are only joined in their legs by bare columns."""
    if isinstance(expr, exp.Column):
        return True
    facts = facts_of(expr, draft)
    return alone and facts.portable and not facts.nested and bool(facts.columns) and not expr.find(exp.Window)
