"""Bound queries: what a statement means once every name is resolved, as plain values.

A query is a `Select` or a `SetOperation`; a relation is what a FROM item stands for. Scalar expressions stay
sqlglot trees in which every `Column` names a source by an alias that is unique in the whole statement, so a tree
can be moved between blocks without capturing anything. A nested query inside an expression is a `Placeholder`
that `Draft.nested` resolves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import attrs
from attrs import Factory, define, frozen
from sqlglot import exp

from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.identifiers import identifier
from ballista_py.sql.plan import Catalog

MAX_WRITTEN_OUT = 50_000  # nodes: half a second
Expr: TypeAlias = exp.Expr
ColumnId: TypeAlias = tuple[str, str]
JoinKind = Literal["inner", "left", "right", "full"]
SetKind = Literal["union", "intersect", "except"]


class UnplannableError(Exception):
    """The planner does not understand a piece of the statement; the whole statement must run at the merge."""


@frozen(eq=False)
class Scan:
    """A table of the catalog."""

    table: TableSpec


@frozen(eq=False)
class ValuesList:
    """`VALUES` rows of constants."""

    names: tuple[str, ...]
    rows: tuple[tuple[Expr, ...], ...]


@frozen(eq=False)
class FragmentScan:
    """The result of a fragment, at the merge. `huge` are its columns that Arrow narrowed from HUGEINT."""

    name: str
    names: tuple[str, ...]
    huge: frozenset[str] = frozenset()


@frozen(eq=False)
class BroadcastScan:
    """A relation that is computed before the legs run and sent along with them. `kinds` are those of its columns."""

    name: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]


@frozen(eq=False)
class SharedScan:
    """A use of a common table expression that is computed once at the merge."""

    shared: Shared


@define(eq=False)
class Shared:
    """A common table expression with several uses. `merged` is its form at the merge, once there is one."""

    name: str
    query: Query
    merged: Query | None = None


@frozen(eq=False)
class Source:
    """A FROM item: how it joins what stands left of it, and on which conjuncts. The first has kind `inner`."""

    alias: str
    relation: Relation
    join: JoinKind = "inner"
    on: tuple[Expr, ...] = ()


@frozen(eq=False)
class Item:
    """One output column."""

    name: str
    expr: Expr


@frozen(eq=False)
class OrderTerm:
    """One sort key over the sources of its block."""

    expr: Expr
    descending: bool
    nulls_first: bool


@frozen(eq=False, kw_only=True)
class Select:
    """One SELECT block. `where`, `having`, `qualify` and `on` are conjuncts; `sets` are grouping sets as indices
    into `group`; `grouped` says whether rows are aggregated, with or without GROUP BY."""

    sources: tuple[Source, ...]
    items: tuple[Item, ...]
    where: tuple[Expr, ...] = ()
    grouped: bool = False
    group: tuple[Expr, ...] = ()
    sets: tuple[tuple[int, ...], ...] | None = None
    having: tuple[Expr, ...] = ()
    qualify: tuple[Expr, ...] = ()
    distinct: bool = False
    order: tuple[OrderTerm, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.items)

    def upper(self) -> Iterator[Expr]:
        """The expressions that are evaluated after WHERE."""
        yield from self.group
        yield from self.having
        yield from self.qualify
        yield from (item.expr for item in self.items)
        yield from (term.expr for term in self.order)

    def expressions(self) -> Iterator[Expr]:
        """Every expression of the block itself, without those of its sources."""
        for source in self.sources:
            yield from source.on
        yield from self.where
        yield from self.upper()


@frozen(eq=False, kw_only=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT of two queries by position; `order` are (position, descending, nulls first)."""

    kind: SetKind
    distinct: bool
    left: Query
    right: Query
    order: tuple[tuple[int, bool, bool], ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return self.left.names


Query: TypeAlias = Select | SetOperation
Relation: TypeAlias = Scan | ValuesList | FragmentScan | BroadcastScan | SharedScan | Select | SetOperation


@frozen(eq=False)
class Facts:
    """What a bound expression consists of: references and nested queries in the order of a walk, and whether it is
    portable."""

    columns: tuple[ColumnId, ...]
    nested: tuple[str, ...]
    portable: bool


@define(eq=False)
class Draft:
    """What is gathered while one statement is planned: its catalog, nested queries, unique names."""

    catalog: Catalog
    nested: dict[str, Query] = Factory(dict)
    sources: dict[str, Source] = Factory(dict)
    wanted: dict[str, str] = Factory(dict)
    shared: list[Shared] = Factory(list)
    notes: list[str] = Factory(list)
    free_of: dict[int, tuple[Query, frozenset[str]]] = Factory(dict)
    aliases_in: dict[int, tuple[Expr, frozenset[str]]] = Factory(dict)
    facts: dict[int, tuple[Expr, Facts]] = Factory(dict)
    rows_of: dict[int, tuple[Query, float]] = Factory(dict)
    pruned: dict[Any, Any] = Factory(dict)
    written_out: int = 0

    def new_alias(self, wanted: str) -> str:
        """An alias that nothing else in the statement has, `wanted` itself if possible."""
        base = "".join(c if c.isalnum() and c.isascii() else "_" for c in wanted.lower()) or "t"
        alias, n = base, 1
        while alias in self.sources:
            n += 1
            alias = f"{base}_{n}"
        self.wanted[alias] = base
        return alias

    def nest(self, query: Query) -> exp.Placeholder:
        """The placeholder that stands for `query` inside an expression."""
        name = f"q{len(self.nested)}"
        self.nested[name] = query
        return exp.Placeholder(this=name)

    def write_out(self, pieces: int) -> None:
        """Count pieces that an alias or a star becomes: those that are made of each other double with each step.

        Raises `UnplannableError` for too many: who runs the statement as it stands measures it, and can be ended.
        """
        self.written_out += pieces
        if self.written_out > MAX_WRITTEN_OUT:
            raise UnplannableError("names that stand for very much")

    def note(self, text: str) -> None:
        """Remember why something was not pushed down, once."""
        if text not in self.notes:
            self.notes.append(text)


def relation_names(relation: Relation) -> tuple[str, ...]:
    """The column names of a relation, in order."""
    if isinstance(relation, Scan):
        return tuple(relation.table.schema.names)
    if isinstance(relation, SharedScan):
        return relation.shared.query.names
    return relation.names


def column(alias: str, name: str) -> exp.Column:
    """A bound reference."""
    return exp.Column(this=identifier(name), table=identifier(alias))


def column_id(node: exp.Column) -> ColumnId:
    """The (alias, name) of a bound reference."""
    return node.args["table"].this, node.args["this"].this


def renamed(query: Query, names: tuple[str, ...]) -> Query:
    """The same query with other output names."""
    if isinstance(query, SetOperation):
        return attrs.evolve(query, left=renamed(query.left, names))
    items = tuple(Item(name, item.expr) for name, item in zip(names, query.items, strict=True))
    return attrs.evolve(query, items=items)


def map_expressions(select: Select, change: Callable[[Expr], Expr]) -> Select:
    """The block with every expression of its own changed."""
    return attrs.evolve(
        select,
        sources=tuple(
            attrs.evolve(source, on=tuple(map(change, source.on))) if source.on else source
            for source in select.sources
        ),
        where=tuple(map(change, select.where)),
        group=tuple(map(change, select.group)),
        having=tuple(map(change, select.having)),
        qualify=tuple(map(change, select.qualify)),
        items=tuple(Item(item.name, change(item.expr)) for item in select.items),
        order=tuple(OrderTerm(change(term.expr), term.descending, term.nulls_first) for term in select.order),
    )
