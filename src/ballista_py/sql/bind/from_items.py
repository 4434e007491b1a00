"""Binding FROM: tables, subqueries and VALUES, joined left to right.

What SQL writes in several ways gets one form here: USING and NATURAL become equalities, parentheses around inner
joins go, and a SEMI or ANTI JOIN becomes a conjunct with EXISTS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import attrs
from attrs import Factory, define
from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.sql.bind.clauses import CommonTable, Scope, Visible, bound, only, visible
from ballista_py.sql.bind.expressions import conjuncts, free_aliases
from ballista_py.sql.bind.query import (
    Draft,
    Expr,
    Item,
    JoinKind,
    Query,
    Relation,
    Scan,
    Select,
    Shared,
    SharedScan,
    Source,
    UnplannableError,
    ValuesList,
    renamed,
)
from ballista_py.sql.own_words import meant

_CONSTANTS = (exp.Literal, exp.Null, exp.Boolean, exp.Neg, exp.Cast, exp.DataType, exp.DataTypeParam)


class FromQueryBinder(Protocol):
    """Who binds the queries that stand in FROM."""

    draft: Draft

    def query(self, node: Expr, parent: Scope | None) -> Query: ...


@define(eq=False)
class FromBinder:
    """Binds the FROM of one block into `scope`. `where` are the conjuncts that its SEMI and ANTI JOINs became."""

    binder: FromQueryBinder
    scope: Scope
    sources: list[Source] = Factory(list)
    where: list[Expr] = Factory(list)
    _comma: bool = False

    def bind(self, node: exp.Select) -> None:
        """Bind all FROM items and joins of `node`."""
        from_ = node.args.get("from_")
        if from_ is not None:
            self._add(from_.this, "inner")
        for join in node.args.get("joins") or ():
            self._join(join)

    def _join(self, join: exp.Join) -> None:
        only(join, "this", "on", "using", "side", "kind", "method")
        side, kind, method = ((text or "").upper() for text in (join.side, join.kind, join.method))
        known = side in ("", "LEFT", "RIGHT", "FULL") and kind in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI")
        if not known or method not in ("", "NATURAL"):
            raise UnplannableError(" ".join((method, side, kind, "JOIN")).strip())
        plain = not (side or kind or method or join.args.get("on") or join.args.get("using"))
        self._comma = self._comma or plain
        if kind in ("SEMI", "ANTI"):
            self._filter(join, kind)
            return
        joined: JoinKind = side.lower() or "inner"  # type: ignore[assignment]
        if joined in ("right", "full") and (self._comma or self.where):
            raise UnplannableError("a RIGHT or FULL JOIN beside a comma or a SEMI JOIN in FROM")
        before = len(self.sources)
        self._add(join.this, joined)
        on = self._condition(join, joined, before)
        source = self.sources[before]
        self.sources[before] = attrs.evolve(source, join=joined, on=(*source.on, *on))

    def _condition(self, join: exp.Join, kind: JoinKind, before: int) -> list[Expr]:
        """The conjuncts that join the sources from place `before` on with those left of them."""
        using, on = join.args.get("using"), join.args.get("on")
        if not using and (join.method or "").upper() != "NATURAL":
            return list(conjuncts(bound(self.binder, on, self.scope))) if on is not None else []
        if kind not in ("inner", "left") or len(self.sources) > before + 1:
            raise UnplannableError(f"{kind.upper()} JOIN with USING")
        right = self.scope.sources.pop()
        if using:
            keys = [key.name.lower() for key in using]
        else:
            seen = {name for source in self.scope.sources for name in source.columns if name not in source.hidden}
            keys = [name for name in right.columns if name in seen]
        return self._equated(keys, right)

    def _equated(self, keys: list[str], right: Visible) -> list[Expr]:
        """Equalities of the named columns; on the right side they can no longer be meant without its name."""
        left = [self.scope.own(key, None) for key in keys]
        self.scope.sources.append(attrs.evolve(right, hidden=frozenset(keys)))
        on: list[Expr] = []
        for key, column in zip(keys, left, strict=True):
            other = self.scope.own(key, right.name)
            if column is None or other is None:
                raise UnplannableError(f"USING names '{key}', which is not on both sides")
            on.append(exp.EQ(this=column, expression=other))
        return on

    def _filter(self, join: exp.Join, kind: str) -> None:
        """A SEMI or ANTI JOIN: rows of the left side with or without a match, no column of the right one."""
        before = len(self.sources)
        self._add(join.this, "inner")
        on = self._condition(join, "inner", before)
        inner = Select(
            sources=tuple(self.sources[before:]),
            items=(Item("one", exp.Literal.number(1)),),
            where=tuple(on),
        )
        del self.scope.sources[len(self.scope.sources) - (len(self.sources) - before) :]
        del self.sources[before:]
        exists = exp.Exists(this=self.binder.draft.nest(inner))
        self.where.append(exists if kind == "SEMI" else exp.Not(this=exists))

    def _add(self, node: Expr, kind: JoinKind) -> None:
        """Bind one FROM item, or the joined items in parentheses, and make them visible."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
            self._add_group(node, kind)
            return
        relation, name = self._relation(node)
        if any(seen.name == name.lower() for seen in self.scope.sources if name):
            raise UnplannableError(f"two tables named '{name}' in one FROM")
        source = Source(alias=self.binder.draft.new_alias(name or "t"), relation=relation)
        self.binder.draft.sources[source.alias] = source
        labels = node.args["alias"].args.get("columns") if node.args.get("alias") else None
        shown = tuple(label.name for label in labels) if labels else None
        self.scope.sources.append(visible(name, source, shown))
        self.sources.append(source)

    def _add_group(self, node: exp.Subquery, kind: JoinKind) -> None:
        """`a JOIN (b JOIN c ON …) ON …` joins left to right as well, if no join is outer but LEFT ones within."""
        only(node, "this")
        joins = node.this.args.pop("joins", None) or ()
        if kind != "inner" or any((join.side or "").upper() not in ("", "LEFT") for join in joins):
            raise UnplannableError("outer joins with parentheses")
        self._add(node.this, kind)
        for join in joins:
            self._join(join)

    def _relation(self, node: Expr) -> tuple[Relation, str]:
        """What a FROM item stands for, and its name."""
        if isinstance(node, exp.Table):
            only(node, "this", "alias", "db")
            return self._table(node), node.alias_or_name
        if isinstance(node, exp.Values):
            only(node, "expressions", "alias")
            return _values(node), node.alias
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias")
            query = with_distinct_names(self.binder.query(node.this, self.scope))
            if free_aliases(query, self.binder.draft):
                raise UnplannableError("a lateral subquery")
            return query, node.alias
        raise UnplannableError(f"{node.key.upper()} in FROM")

    def _table(self, node: exp.Table) -> Relation:
        if not isinstance(node.this, exp.Identifier) or node.db.lower() not in ("", "main"):
            raise UnplannableError(f"{node.sql('duckdb')} in FROM")
        name = node.name.lower()
        common = None if node.db else self.scope.common_table(name)
        if common is not None:
            return _use(common, self.binder.draft)
        table = self.binder.draft.catalog.tables.get(name)
        if table is None:
            raise unknown_table(node.this, self.binder.draft.catalog.tables)
        return Scan(table)


def with_distinct_names(query: Query) -> Query:
    """Of several outputs with one name the first keeps it, as in the engine; the others cannot be named."""
    return renamed(query, tuple(_distinct(query.names)))


def _distinct(names: tuple[str, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for place, name in enumerate(names):
        yield name if name.lower() not in seen else f"{name}:{place}"
        seen.add(name.lower())


def unknown_table(node: exp.Identifier, known: Iterable[str]) -> SqlError:
    """The error for a table that the catalog does not have, with its place in the text."""
    line, column = position_of(node)
    where = f" (line {line}, column {column})" if line else ""
    said = f"Table '{node.name}' does not exist{meant(node.name, known)}{where}"
    return SqlError(said, table=node.name, line=line, column=column)


def position_of(node: exp.Identifier) -> tuple[int, int]:
    """Line and column, from 1, where an identifier starts; (0, 0) if the parser did not say."""
    meta = node.meta
    if "line" not in meta:
        return 0, 0
    return int(meta["line"]), int(meta["col"]) - (int(meta["end"]) - int(meta["start"]))


def _use(common: CommonTable, draft: Draft) -> Relation:
    """One reference to a common table expression: inlined if it is the only one, else shared."""
    if common.uses == 1:
        return common.query
    for shared in draft.shared:
        if shared.query is common.query:
            return SharedScan(shared)
    shared = Shared(name=draft.new_alias(common.name), query=common.query)
    draft.shared.append(shared)
    draft.sources[shared.name] = Source(alias=shared.name, relation=common.query)
    return SharedScan(shared)


def _values(node: exp.Values) -> ValuesList:
    rows = tuple(tuple(row.expressions) for row in node.expressions if isinstance(row, exp.Tuple))
    if len(rows) != len(node.expressions) or len({len(row) for row in rows}) != 1:
        raise UnplannableError("VALUES of uneven rows")
    if not all(isinstance(part, _CONSTANTS) for row in rows for value in row for part in value.walk()):
        raise UnplannableError("VALUES that are not constants")
    return ValuesList(names=tuple(f"col{i}" for i in range(len(rows[0]))), rows=rows)
