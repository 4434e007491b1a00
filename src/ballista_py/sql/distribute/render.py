"""From bound queries back to SQL text of the engine's dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen
from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

from ballista_py.sql.bind.expressions import (
    all_of,
    copied,
    free_aliases,
    is_aggregate,
    is_number,
    nested_of,
    sources_of,
    written,
)
from ballista_py.sql.bind.query import (
    BroadcastScan,
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
    UnplannableError,
    ValuesList,
    column,
    column_id,
)
from ballista_py.sql.parse.identifiers import identifier
from ballista_py.sql.parse.parsing import ENGINE

_SETS: dict[str, type[exp.SetOperation]] = {"union": exp.Union, "intersect": exp.Intersect, "except": exp.Except}


def render(query: Query, draft: Draft) -> str:
    """The text of a fragment's query. Aliases are as short as the query alone allows, so that equal queries of
    different blocks have equal texts."""
    return _text(_Writer(draft, _own_aliases(query, draft)).query(query))


def render_merge(query: Query, draft: Draft, shared: bool = True) -> str:
    """The text of the merge: the query under the common table expressions that it uses more than once.

    Without `shared` it uses none.
    """
    writer = _Writer(draft, {})
    tree = writer.query(query)
    tables = [
        exp.CTE(
            this=writer.query(one.merged),
            alias=exp.TableAlias(this=identifier(one.name)),
            materialized=True,
        )
        for one in draft.shared
        if shared and one.merged is not None
    ]
    if tables:
        tree.set("with_", exp.With(expressions=tables))
    return _text(tree)


def _text(tree: Expr) -> str:
    # Every node was made here, so the generator may do with them what it likes.
    try:
        return tree.sql(ENGINE, copy=False, unsupported_level=ErrorLevel.RAISE, comments=False)
    except UnsupportedError as error:
        raise UnplannableError(f"what the parser cannot write: {error}") from None


def _own_aliases(query: Query, draft: Draft) -> dict[str, str]:
    """What the query would call its sources by itself, where the rest of the statement made an alias longer."""
    taken: dict[str, str] = {}
    for source in sources_of(query, draft):
        wanted = draft.wanted.get(source.alias, source.alias)
        name, number = wanted, 1
        while taken.setdefault(name, source.alias) != source.alias:
            number += 1
            name = f"{wanted}_{number}"
    return {alias: name for name, alias in taken.items() if alias != name}


@frozen(eq=False)
class _Writer:
    """Makes syntax trees of queries; `names` are the aliases to write for some sources."""

    draft: Draft
    names: Mapping[str, str]

    def query(self, query: Query) -> exp.Query:
        return self._select(query) if isinstance(query, Select) else self._set_operation(query)

    def _select(self, select: Select) -> exp.Select:
        tree = exp.Select(expressions=[self._item(item) for item in select.items])
        if select.sources:
            first, *others = select.sources
            tree.set("from_", exp.From(this=self._relation(first)))
            tree.set("joins", [self._join(source) for source in others])
        for key, kind, parts in (
            ("where", exp.Where, sorted(select.where, key=self._rank)),
            ("having", exp.Having, select.having),
            ("qualify", exp.Qualify, select.qualify),
        ):
            condition = all_of(map(self._expr, parts))
            if condition is not None:
                tree.set(key, kind(this=condition))
        if select.grouped and (select.group or select.sets is not None or not _aggregates(select)):
            tree.set("group", self._group(select))
        if select.distinct:
            tree.set("distinct", exp.Distinct())
        if select.order:
            terms = [self._order_term(term, select.items) for term in select.order]
            tree.set("order", exp.Order(expressions=terms))
        _bound(tree, select.limit, select.offset)
        return tree

    def _set_operation(self, operation: SetOperation) -> exp.SetOperation:
        sides = []
        for side in (operation.left, operation.right):
            tree = self.query(side)
            plain = isinstance(side, Select) and not side.order and side.limit is None and not side.offset
            sides.append(tree if plain else exp.Subquery(this=tree))
        made = _SETS[operation.kind](this=sides[0], expression=sides[1], distinct=operation.distinct)
        if operation.order:
            terms = [
                exp.Ordered(this=exp.Literal.number(place + 1), desc=descending, nulls_first=nulls_first)
                for place, descending, nulls_first in operation.order
            ]
            made.set("order", exp.Order(expressions=terms))
        _bound(made, operation.limit, operation.offset)
        return made

    def _item(self, item: Item) -> Expr:
        expr = self._expr(item.expr)
        if isinstance(expr, exp.Column) and expr.name == item.name:
            return expr
        return exp.Alias(this=expr, alias=identifier(item.name))

    def _order_term(self, term: OrderTerm, items: Sequence[Item]) -> exp.Ordered:
        """A sort key; one that is an output column goes by position, so that it is evaluated once."""
        place = next((n for n, item in enumerate(items, 1) if item.expr == term.expr), None)
        key = exp.Literal.number(place) if place is not None else self._expr(term.expr)
        return exp.Ordered(this=key, desc=term.descending, nulls_first=term.nulls_first)

    def _group(self, select: Select) -> exp.Group:
        keys = [_no_position(self._expr(key)) for key in select.group]
        if select.sets is None:
            return exp.Group(expressions=keys or [exp.Tuple()])
        sets = [exp.Tuple(expressions=[copied(keys[place]) for place in chosen]) for chosen in select.sets]
        return exp.Group(expressions=[exp.GroupingSets(expressions=sets)])

    def _join(self, source: Source) -> exp.Join:
        condition = all_of(map(self._expr, source.on))
        relation = self._relation(source)
        if source.join == "inner" and condition is None:
            return exp.Join(this=relation, kind="CROSS")
        if source.join == "inner":
            return exp.Join(this=relation, on=condition)
        return exp.Join(this=relation, side=source.join.upper(), on=condition or exp.Boolean(this=True))

    def _relation(self, source: Source) -> Expr:
        relation, alias = source.relation, self.names.get(source.alias, source.alias)
        if isinstance(relation, SharedScan) and relation.shared.merged is None:
            relation = relation.shared.query
        if isinstance(relation, Query):
            return exp.Subquery(this=self.query(relation), alias=exp.TableAlias(this=identifier(alias)))
        if isinstance(relation, ValuesList):
            rows = [exp.Tuple(expressions=[copied(value) for value in row]) for row in relation.rows]
            labels = [identifier(name) for name in relation.names]
            return exp.Values(expressions=rows, alias=exp.TableAlias(this=identifier(alias), columns=labels))
        name = _name(relation)
        table = exp.Table(this=identifier(name))
        if name != alias:
            table.set("alias", exp.TableAlias(this=identifier(alias)))
        return table

    def _rank(self, conjunct: Expr) -> int:
        """Plain conjuncts first, correlated ones last: a membership test after a correlated EXISTS makes DuckDB
        build the whole product of the joined tables."""
        nested = nested_of(conjunct, self.draft)
        return 0 if not nested else 1 + any(free_aliases(query, self.draft) for query in nested)

    def _expr(self, expr: Expr) -> Expr:
        """A copy of an expression with its nested queries written out."""
        copy = written(expr, self._replace)
        return exp.Subquery(this=copy) if isinstance(copy, exp.Query) else copy

    def _replace(self, node: Expr) -> Expr | None:
        if isinstance(node, exp.Placeholder):
            return self.query(self.draft.nested[node.this])
        if self.names and isinstance(node, exp.Column):
            alias, name = column_id(node)
            return column(self.names.get(alias, alias), name)
        return None


def _aggregates(select: Select) -> bool:
    """Whether the text shows by itself that its rows are one group."""
    return any(is_aggregate(node) for expr in select.upper() for node in expr.walk())


def _no_position(key: Expr) -> Expr:
    """A grouping key that nobody takes for the number of an output column."""
    return exp.Add(this=key, expression=exp.Literal.number(0)) if is_number(key) else key


def _bound(tree: exp.Query, limit: int | None, offset: int) -> None:
    if limit is not None:
        tree.set("limit", exp.Limit(expression=exp.Literal.number(limit)))
    if offset:
        tree.set("offset", exp.Offset(expression=exp.Literal.number(offset)))


def _name(relation: Scan | FragmentScan | BroadcastScan | SharedScan) -> str:
    if isinstance(relation, Scan):
        return relation.table.name
    return relation.shared.name if isinstance(relation, SharedScan) else relation.name
