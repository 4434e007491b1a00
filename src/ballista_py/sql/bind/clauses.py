"""Binding the clauses of one SELECT block after its FROM, from the select list to LIMIT.

Which source a column name means, by the rules of DuckDB.

A name means a column of the block's sources first, then an alias of its SELECT list, then a column of an
enclosing block. Where a rule depends on more than that, `UnplannableError` is raised instead of guessing: the
whole statement then runs at the merge, where the engine itself resolves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Protocol

import attrs
from attrs import Factory, define, frozen
from sqlglot import exp

from ballista_py.sql.bind.expressions import columns_of, conjuncts, enclosed, is_aggregate, is_number, is_portable
from ballista_py.sql.bind.query import (
    Draft,
    Expr,
    Item,
    OrderTerm,
    Query,
    Select,
    Source,
    UnplannableError,
    column,
    relation_names,
)


@frozen(eq=False)
class Visible:
    """A source as a block sees it: by the name the statement gave it, with the columns it shows.

    `columns` maps lower-case names to real ones; a name that occurs twice means the first. `order` is what `*`
    gives. `hidden` are columns that a USING folded into their left counterpart.
    """

    name: str
    source: Source
    columns: dict[str, str]
    order: tuple[str, ...]
    hidden: frozenset[str] = frozenset()


def visible(name: str, source: Source, shown: tuple[str, ...] | None = None) -> Visible:
    """`source` under `name`; `shown` are the column aliases of the FROM item, if it has some."""
    real = relation_names(source.relation)
    if shown is not None and len(shown) > len(real):
        raise UnplannableError(f"table '{name}' has more column aliases than columns")
    labels = (*(shown or ()), *real[len(shown or ()) :])
    columns: dict[str, str] = {}
    for label, column_name in zip(labels, real, strict=True):
        columns.setdefault(label.lower(), column_name)
    return Visible(name=name.lower(), source=source, columns=columns, order=real)


@define(eq=False)
class CommonTable:
    """A common table expression in scope. `uses` counts what is still to come of its references."""

    name: str
    query: Query
    uses: int


@define(eq=False)
class Scope:
    """The names that one block sees. `labels` are the aliases of its SELECT list, as far as they are known."""

    parent: Scope | None = None
    common: dict[str, CommonTable] = Factory(dict)
    sources: list[Visible] = Factory(list)
    labels: set[str] = Factory(set)

    def common_table(self, name: str) -> CommonTable | None:
        """The nearest common table expression of that name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.common:
                return scope.common[name]
            scope = scope.parent
        return None

    def own(self, name: str, table: str | None) -> exp.Column | None:
        """The column of this block that a name means, if any."""
        found: exp.Column | None = None
        for seen in self.sources:
            if table is not None and seen.name != table:
                continue
            real = seen.columns.get(name)
            if real is None or (table is None and name in seen.hidden):
                continue
            if found is not None:
                raise UnplannableError(f"column name '{name}' is ambiguous")
            found = column(seen.source.alias, real)
        return found

    def outer(self, name: str, table: str | None) -> exp.Column | None:
        """The column of the nearest enclosing block that a name means, if any."""
        scope = self.parent
        while scope is not None:
            found = scope.own(name, table)
            if found is not None:
                return found
            if table is None and name in scope.labels:
                raise UnplannableError(f"alias '{name}' of an enclosing block")
            if table is not None and any(seen.name == table for seen in scope.sources):
                return None
            scope = scope.parent
        return None


_TYPED = (exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.ColumnDef)
_OF_THE_TEXT = frozenset(("alias", "current_query", "query", "query_table", "stats", "vector_type"))
_EXPANDING = (exp.Columns, exp.Explode, exp.ExplodeOuter, exp.Posexplode, exp.Unnest, exp.Star)
_PARAMETERS = (exp.Placeholder, exp.Parameter)
_LEAVES = (exp.Identifier, exp.Literal, exp.DataType, exp.Var, exp.Null, exp.Boolean)
_MAX_GROUPING_SETS = 64
_WINDOW_PARTS = ("partition_by", "order", "spec")


class NestedQueryBinder(Protocol):
    """Who binds the queries nested in an expression."""

    draft: Draft

    def query(self, node: Expr, parent: Scope | None) -> Query: ...


@define(eq=False)
class _Names:
    """What names mean in one clause: sources, then these aliases, then enclosing blocks.

    In a grouped block's HAVING, QUALIFY and ORDER BY a column that is not grouped gives way to an alias of the
    same name; `grouped` are the columns that do not.
    """

    binder: NestedQueryBinder
    scope: Scope
    aliases: dict[str, Expr] = Factory(dict)
    grouped: list[Expr] | None = None
    windows: dict[str, Expr] = Factory(dict)
    ambiguous: set[str] = Factory(set)
    sizes: dict[int, int] = Factory(dict)  # of the expressions that aliases stand for

    def alias(self, name: str) -> Expr | None:
        """The expression that the SELECT list calls so, if any."""
        if name in self.ambiguous:
            raise UnplannableError(f"two outputs named '{name}'")
        return self.aliases.get(name)

    def column(self, node: exp.Column, aggregated: bool) -> Expr:
        if node.args.get("db") is not None or isinstance(node.this, exp.Star):
            raise UnplannableError(f"column {node.sql('duckdb')}")
        name, table = node.name.lower(), node.table.lower() or None
        own = self.scope.own(name, table)
        alias = self.alias(name) if table is None else None
        yields = self.grouped is not None and not aggregated and own not in self.grouped
        if own is not None and not (yields and alias is not None):
            return own
        if alias is not None:
            return enclosed(self.repeated(alias))
        outer = self.scope.outer(name, table)
        if outer is None:
            raise UnplannableError(f"column '{node.sql('duckdb')}' is not one of a table in scope")
        return outer

    def repeated(self, expr: Expr) -> Expr:
        """A copy of an expression of the select list; it must not matter that it is evaluated twice."""
        size = self.sizes.get(id(expr))
        if size is None:
            size = self.sizes[id(expr)] = sum(1 for _ in expr.walk())
        self.binder.draft.write_out(size)
        if not is_portable(expr):
            raise UnplannableError("an alias of an expression that must be evaluated once")
        return expr.copy()

    def bind(self, node: Expr, aggregated: bool = False) -> Expr:
        if isinstance(node, exp.Column):
            return self.column(node, aggregated)
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            query = self.binder.query(node, self.scope)
            return self.binder.draft.nest(_existing(query) if isinstance(node.parent, exp.Exists) else query)
        if isinstance(node, _PARAMETERS):
            raise UnplannableError("a parameter")
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            raise UnplannableError("a function behind a dot")
        if isinstance(node, exp.DataType) and not isinstance(node.parent, _TYPED):
            raise UnplannableError(f"a column named as the type {node.sql('duckdb')}")
        if isinstance(node, exp.DateBin) and isinstance(node.args.get("unit"), exp.Var):
            raise UnplannableError("a time zone that is read as a unit")
        if isinstance(node, exp.Anonymous) and node.name.lower() in _OF_THE_TEXT:
            raise UnplannableError(f"{node.name} is about the text of the statement")
        counted = isinstance(node, exp.Star) and isinstance(node.parent, exp.Count)
        if isinstance(node, _EXPANDING) and not counted:
            raise UnplannableError(f"{node.key.upper()} in an expression")
        if isinstance(node, exp.Subquery):
            only(node, "this")
        if isinstance(node, exp.Window):
            node = self._window(node)
        inside = aggregated or is_aggregate(node)
        for key, value in node.args.items():
            if isinstance(value, exp.Expr) and not isinstance(value, _LEAVES):
                fresh = self.bind(value, inside)
                if fresh is not value:
                    node.set(key, fresh)
            elif isinstance(value, list):
                node.set(key, [self.bind(v, inside) if isinstance(v, exp.Expr) else v for v in value])
        return node

    def _window(self, node: exp.Window) -> exp.Window:
        name = node.args.get("alias")
        if name is None:
            return node
        named = self.windows.get(name.name.lower())
        if named is None or any(node.args.get(key) for key in (*_WINDOW_PARTS, "first")):
            raise UnplannableError("a window that extends a named one")
        parts = {key: value for key, value in named.copy().args.items() if key in _WINDOW_PARTS}
        return exp.Window(this=node.this, over=node.args.get("over"), **parts)


def bound(binder: NestedQueryBinder, node: Expr, scope: Scope) -> Expr:
    """An expression of a FROM clause with its names resolved."""
    return _Names(binder, scope).bind(node)


def bind_select(binder: NestedQueryBinder, node: exp.Select, scope: Scope, sources: tuple[Source, ...]) -> Select:
    """The bound block of `node`, whose sources are in `scope`."""
    windows = {window.this.name.lower(): window for window in node.args.get("windows") or ()}
    names = _Names(binder, scope, windows=windows)
    items = _bind_items(names, node)
    where = node.args.get("where")
    bound_where = names.bind(where.this) if where else None
    group, sets = _bind_group(names, node.args.get("group"), items)
    tail = attrs.evolve(names)
    grouped = node.args.get("group") is not None or node.args.get("having") is not None
    grouped = grouped or any(is_aggregate(part) for item in items for part in item.expr.walk())
    tail.grouped = list(group) if grouped else None
    having, qualify = node.args.get("having"), node.args.get("qualify")
    distinct = node.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise UnplannableError("DISTINCT ON")
    order = tuple(_bind_order(tail, node.args.get("order"), items))
    grouped = grouped or any(is_aggregate(part) for term in order for part in term.expr.walk())
    return Select(
        sources=sources,
        items=tuple(items),
        where=tuple(conjuncts(bound_where)),
        grouped=grouped,
        group=group,
        sets=sets,
        having=tuple(conjuncts(tail.bind(having.this))) if having else (),
        qualify=tuple(conjuncts(tail.bind(qualify.this))) if qualify else (),
        distinct=distinct is not None,
        order=order,
        limit=int_literal(node.args.get("limit")),
        offset=int_literal(node.args.get("offset")) or 0,
    )


def _existing(query: Query) -> Query:
    """What EXISTS needs of a query: whether it has a row, whatever its columns."""
    if not isinstance(query, Select) or query.grouped or query.qualify or query.limit is not None or query.offset:
        return query
    return Select(sources=query.sources, where=query.where, items=(Item("one", exp.Literal.number(1)),))


def only(node: Expr, *keys: str) -> None:
    """Raise `UnplannableError` if a node has a part beyond those named."""
    for key, value in node.args.items():
        if value and key not in keys:
            raise UnplannableError(f"{key.strip('_').upper().replace('_', ' ')} in {node.key.upper()}")


def int_literal(node: Expr | None) -> int | None:
    """The number of a LIMIT, FETCH or OFFSET; None if there is none."""
    if node is None:
        return None
    if isinstance(node, exp.Fetch):
        options = node.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            raise UnplannableError("FETCH of percents or ties")
        value = node.args.get("count")
    else:
        only(node, "expression")
        value = node.args.get("expression")
    if not (isinstance(value, exp.Literal) and value.is_int):
        raise UnplannableError(f"{node.key.upper()} that is not a number")
    return int(value.name)


def _bind_items(names: _Names, node: exp.Select) -> list[Item]:
    items: list[Item] = []
    for part in node.expressions:
        if part.is_star:
            for item in _star(names, part):
                names.binder.draft.write_out(1)
                items.append(item)
        else:
            items.append(_bind_item(names, part, len(items)))
    return items


def _bind_item(names: _Names, part: Expr, position: int) -> Item:
    if isinstance(part, exp.Alias):
        item = Item(part.alias, names.bind(part.this))
        name = part.alias.lower()
        if name in names.aliases and names.aliases[name] != item.expr:
            names.ambiguous.add(name)
        names.aliases[name] = item.expr
        names.scope.labels.add(name)
        return item
    expr = names.bind(part)
    return Item(expr.name if isinstance(expr, exp.Column) else f"_column{position}", expr)


def _star(names: _Names, part: Expr) -> Iterator[Item]:
    star = part.this if isinstance(part, exp.Column) else part
    table = part.table.lower() if isinstance(part, exp.Column) else None
    if not isinstance(star, exp.Star):
        raise UnplannableError(f"{part.key.upper()} in a select list")
    only(star, "except_", "replace")
    skipped = {column.name.lower() for column in star.args.get("except_") or ()}
    replaced = {alias.alias.lower(): alias.this for alias in star.args.get("replace") or ()}
    seen = [source for source in names.scope.sources if table in (None, source.name)]
    if not seen:
        raise UnplannableError(f"table '{table}' is not in scope")
    for source in seen:
        for label, real in _shown(source, hide=table is None):
            if label.lower() in replaced:
                yield Item(label, names.bind(replaced[label.lower()].copy()))
            elif label.lower() not in skipped:
                yield Item(label, column(source.source.alias, real))


def _shown(source: Visible, hide: bool) -> Iterator[tuple[str, str]]:
    """The (label, column) pairs that `*` gives for one source."""
    labels = {real: label for label, real in source.columns.items()}
    for real in source.order:
        label = labels.get(real, real)
        if not (hide and label in source.hidden):
            yield (real if label == real.lower() else label), real


def _bind_group(
    names: _Names, group: exp.Group | None, items: list[Item]
) -> tuple[tuple[Expr, ...], tuple[tuple[int, ...], ...] | None]:
    if group is None:
        return (), None
    only(group, "expressions", "all")
    if group.args.get("all"):
        plain = [item.expr for item in items if not any(is_aggregate(part) for part in item.expr.walk())]
        if any(_mixes_levels(item.expr) for item in items):
            raise UnplannableError("GROUP BY ALL over windows or over columns beside aggregates")
        if any(is_number(expr) for expr in plain):
            raise UnplannableError("GROUP BY ALL with a number")
        return tuple(dict.fromkeys(names.repeated(expr) for expr in plain)), None
    keys: list[Expr] = []
    choices = [_grouping_sets(names, part, items, keys) for part in group.expressions]
    if prod(map(len, choices)) > _MAX_GROUPING_SETS:  # before they are made
        raise UnplannableError(f"more than {_MAX_GROUPING_SETS} grouping sets")
    sets = tuple(tuple(dict.fromkeys(key for chosen in combo for key in chosen)) for combo in product(*choices))
    if len(sets) == 1 and len(sets[0]) == len(keys):
        return tuple(keys), None
    if any(is_number(key) for key in keys):
        raise UnplannableError("grouping sets with a number")
    shown = [names.repeated(item.expr).unnest() for item in items]
    if any(shown.count(key) > 1 for key in keys):  # to the engine a place, or an alias, is a key of its own
        raise UnplannableError("grouping sets over an expression that is selected twice")
    return tuple(keys), sets


def _mixes_levels(expr: Expr) -> bool:
    """Whether it has a window, or columns both inside and outside of aggregates."""
    if expr.find(exp.Window) is not None:
        return True
    aggregates = [part for part in expr.walk() if is_aggregate(part)]
    inside = {id(column) for aggregate in aggregates for column in columns_of(aggregate)}
    return bool(aggregates) and any(id(column) not in inside for column in columns_of(expr))


def _grouping_sets(names: _Names, part: Expr, items: list[Item], keys: list[Expr]) -> list[tuple[int, ...]]:
    """The sets that one element of GROUP BY allows, as indices into `keys`, which grows."""
    if isinstance(part, exp.Tuple):
        if part.expressions:
            raise UnplannableError("a tuple in GROUP BY")
        return [()]
    if not isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets):
        return [(_key(names, part, items, keys),)]
    parts: list[tuple[int, ...]] = []
    for piece in part.expressions:
        if isinstance(piece, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise UnplannableError("nested grouping sets")
        together = piece.expressions if isinstance(piece, exp.Tuple) else [piece]
        parts.append(tuple(_key(names, one, items, keys) for one in together))
    if isinstance(part, exp.GroupingSets):
        return parts
    if isinstance(part, exp.Rollup):
        return [sum(parts[:n], ()) for n in range(len(parts), -1, -1)]
    if 2 ** len(parts) > _MAX_GROUPING_SETS:
        raise UnplannableError(f"more than {_MAX_GROUPING_SETS} grouping sets")
    return [sum(chosen, ()) for chosen in product(*([part, ()] for part in parts))]


def _key(names: _Names, part: Expr, items: list[Item], keys: list[Expr]) -> int:
    if isinstance(part, exp.Literal) and part.is_int:
        if not 1 <= int(part.name) <= len(items):
            raise UnplannableError("GROUP BY position out of range")
        expr = names.repeated(items[int(part.name) - 1].expr)
    else:
        expr = names.bind(part)
    expr = expr.unnest()
    if expr in keys:
        return keys.index(expr)
    keys.append(expr)
    return len(keys) - 1


def _bind_order(names: _Names, order: exp.Order | None, items: list[Item]) -> Iterator[OrderTerm]:
    for term in order.expressions if order else ():
        only(term, "this", "desc", "nulls_first")
        descending, nulls_first = bool(term.args.get("desc")), bool(term.args.get("nulls_first"))
        for expr in _order_keys(names, term.this, items):
            if not isinstance(expr, exp.Literal) and not is_number(expr):
                yield OrderTerm(expr=expr, descending=descending, nulls_first=nulls_first)


def _order_keys(names: _Names, key: Expr, items: list[Item]) -> list[Expr]:
    if isinstance(key, exp.Var) and key.name.upper() == "ALL":
        return [item.expr.copy() for item in items]
    if isinstance(key, exp.Literal) and key.is_int:
        if not 1 <= int(key.name) <= len(items):
            raise UnplannableError("ORDER BY position out of range")
        return [items[int(key.name) - 1].expr.copy()]
    if isinstance(key, exp.Column) and not key.table:
        alias = names.alias(key.name.lower())
        if alias is not None:
            return [alias.copy()]
    return [names.bind(key)]
