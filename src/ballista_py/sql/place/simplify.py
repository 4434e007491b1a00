"""What changes nothing in a query's answer and much in its cost: filters moved down, unused columns dropped.

A conjunct moves into a subquery only if that filters exactly the rows that it would have filtered outside: never
past LIMIT, a window or an aggregate, nor into the side of an outer join that may be NULL.

Subqueries of FROM that only select and compute are taken into the block around them.

`SELECT g, sum(v) FROM (SELECT … AS g, … AS v FROM a, b WHERE …) GROUP BY g` is a join and a grouping; as one block
both can be done in the legs, as two the rows of the join would have to come to the merge.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    MAX_WRITTEN,
    aliases_of,
    copied,
    enclosed,
    facts_of,
    free_aliases,
    nodes_written,
    query_references,
    references,
    rewritten,
)
from ballista_py.sql.bind.query import (
    ColumnId,
    Draft,
    Expr,
    Query,
    Select,
    SetOperation,
    Source,
    column_id,
    map_expressions,
)
from ballista_py.sql.place.join_groups import is_reorderable, null_supplied, pooled


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


def simplify(query: Query, draft: Draft) -> Query:
    """The query with filters pushed into subqueries and unused output columns of subqueries dropped."""
    draft.facts.clear()  # binding changes trees
    for name, nested in list(draft.nested.items()):
        draft.nested[name] = _simplified(nested, draft)
    for shared in draft.shared:
        shared.query = _simplified(shared.query, draft)
    draft.free_of.clear()
    draft.aliases_in.clear()
    draft.facts.clear()
    return _simplified(query, draft)


def _simplified(query: Query, draft: Draft) -> Query:
    if isinstance(query, SetOperation):
        return attrs.evolve(query, left=_simplified(query.left, draft), right=_simplified(query.right, draft))
    select = _pushed_down(flattened(query, draft), draft)
    if not any(isinstance(source.relation, Query) for source in select.sources):
        return select
    used = {reference for expr in select.expressions() for reference in references(expr, draft)}
    sources = []
    for source in select.sources:
        if isinstance(source.relation, Query):
            relation = source.relation
            if isinstance(relation, Select):
                relation = _without_unused(relation, {name for alias, name in used if alias == source.alias})
            source = attrs.evolve(source, relation=_simplified(relation, draft))
            draft.sources[source.alias] = source
        sources.append(source)
    return attrs.evolve(select, sources=tuple(sources))


def _pushed_down(select: Select, draft: Draft) -> Select:
    if not any(isinstance(source.relation, Select) for source in select.sources):
        return select
    nullable = null_supplied(select.sources)
    movable: dict[str, Select] = {}
    for source in select.sources:
        inner = source.relation
        if isinstance(inner, Select) and source.alias not in nullable and _admits_filters(inner):
            movable[source.alias] = inner
    pushed: dict[str, list[Expr]] = {}
    where: list[Expr] = []
    pool = pooled(select)
    for conjunct in pool:
        target = _target(conjunct, movable, draft)
        if target is None:
            where.append(conjunct)
        else:
            pushed.setdefault(target, []).append(_inside(conjunct, movable[target]))
    if not pushed:
        return select
    sources = [_with_filters(source, pushed.get(source.alias, [])) for source in select.sources]
    if is_reorderable(select):
        sources = [attrs.evolve(source, on=()) if source.join == "inner" else source for source in sources]
    return attrs.evolve(select, sources=tuple(sources), where=tuple(where))


def _admits_filters(select: Select) -> bool:
    bounded = select.limit is not None or select.offset > 0 or bool(select.order)
    windows = bool(select.qualify) or any(item.expr.find(exp.Window) for item in select.items)
    return not (bounded or windows or select.sets is not None or (select.grouped and not select.group))


def _target(conjunct: Expr, movable: dict[str, Select], draft: Draft) -> str | None:
    """The subquery that can apply the conjunct to the rows that it is made of."""
    used = aliases_of(conjunct, draft)
    if len(used) != 1 or not used <= movable.keys() or not _is_plain(conjunct, draft):
        return None
    (alias,) = used
    select = movable[alias]
    exprs = {item.name: item.expr for item in select.items}
    for _, name in facts_of(conjunct, draft).columns:
        if not _is_plain(exprs[name], draft) or (select.grouped and exprs[name] not in select.group):
            return None
    return alias if nodes_written(select.items, alias, (conjunct,)) <= MAX_WRITTEN else None


def _is_plain(expr: Expr, draft: Draft) -> bool:
    facts = facts_of(expr, draft)
    return facts.portable and not facts.nested


def _inside(conjunct: Expr, select: Select) -> Expr:
    """The conjunct over the sources of the subquery instead of its output."""
    exprs = {item.name: item.expr for item in select.items}

    def replace(node: Expr) -> Expr | None:
        if isinstance(node, exp.Column):
            return enclosed(copied(exprs[column_id(node)[1]]))
        return None

    return rewritten(conjunct, replace)


def _with_filters(source: Source, filters: Iterable[Expr]) -> Source:
    filters = tuple(filters)
    if not filters:
        return source
    assert isinstance(source.relation, Select)
    return attrs.evolve(source, relation=attrs.evolve(source.relation, where=(*source.relation.where, *filters)))


def _without_unused(select: Select, used: set[str]) -> Select:
    """A subquery without the output columns that nobody reads; one is always left."""
    if select.distinct:
        return select
    # The engine wants a window beside QUALIFY, even if the condition itself has none.
    bare = bool(select.qualify) and not any(expr.find(exp.Window) for expr in select.qualify)
    kept = (item for item in select.items if item.name in used or (bare and item.expr.find(exp.Window)))
    items = tuple(kept) or select.items[:1]
    return attrs.evolve(select, items=items)
