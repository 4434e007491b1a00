"""Correlated subqueries that are gathered: which outer rows ask for which of their rows, and how few of these do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
from attrs import frozen
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    aliases_of,
    equated_columns,
    facts_of,
    free_aliases,
    references,
    rewritten,
)
from ballista_py.sql.bind.query import ColumnId, Draft, Expr, Item, Query, Select, Source, column, column_id
from ballista_py.sql.estimate.sizes import rows_of_query
from ballista_py.sql.place.join_groups import Unit, is_reorderable, null_supplied, pooled

_ROWS_A_KEY = 4
"""So many rows of a key and more are told apart in the legs; for fewer that takes longer than it saves."""


@frozen(eq=False, kw_only=True)
class CorrelatedQuery:
    """A nested query of which a row matters only if its column `mine` equals `theirs`, a column of the unit `host`."""

    query: Select
    mine: ColumnId
    theirs: ColumnId
    host: Unit

    def rows(self, draft: Draft) -> float:
        """The rows that its own conditions leave."""
        return rows_of_query(attrs.evolve(self.query, grouped=False), draft)

    def among(self, keys: Query, draft: Draft) -> Select:
        """The query when it gives only rows whose column is one of `keys`."""
        member = exp.In(this=column(*self.mine), query=exp.Subquery(this=draft.nest(keys)))
        return attrs.evolve(self.query, where=(*self.query.where, member))


def asked_by(query: Query, units: Iterable[Unit]) -> Iterator[CorrelatedQuery]:
    """The equalities by which rows of inner `units` ask for rows of a nested query."""
    if not isinstance(query, Select) or not is_reorderable(query):
        return
    own, touched = {source.alias for source in query.sources}, null_supplied(query.sources)
    for conjunct in pooled(query):
        for mine, theirs in both_ways(equated_columns(conjunct)):
            hosts = [unit for unit in units if theirs[0] in unit.aliases and unit.join == "inner"]
            if mine[0] in own and mine[0] not in touched and hosts:
                yield CorrelatedQuery(query=query, mine=mine, theirs=theirs, host=hosts[0])


def both_ways(pair: tuple[ColumnId, ColumnId] | None) -> Iterator[tuple[ColumnId, ColumnId]]:
    """An equality, read from either side."""
    if pair is not None:
        yield pair
        yield pair[1], pair[0]


def each_key_once(asked: CorrelatedQuery, among: Select, keys: float, draft: Draft) -> Select:
    """`among` when only the existence of its rows matters: the same, over its distinct keys where that is less.

    Legs then give every key once instead of every row. It stays as it is if anything but the key is asked for.
    """
    plain = Select(sources=among.sources, items=among.items, where=among.where)
    outer = [part for part in pooled(among) if not aliases_of(part, draft) <= {s.alias for s in among.sources}]
    read = {one for part in outer for one in references(part, draft) if one[0] == asked.mine[0]}
    if any(getattr(plain, name) != getattr(among, name) for name in ("grouped", "qualify", "limit", "offset")):
        return among
    if len(among.sources) != 1 or read != {asked.mine} or asked.rows(draft) < _ROWS_A_KEY * keys:
        return among
    if any(facts_of(part, draft).nested for part in outer):
        return among
    mine = tuple(part for part in pooled(among) if not any(part is other for other in outer))
    inner = Select(sources=among.sources, items=(Item("key", column(*asked.mine)),), where=mine, distinct=True)
    if free_aliases(inner, draft):
        return among
    source = Source(alias=draft.new_alias("keys"), relation=inner)
    draft.sources[source.alias] = source

    def replace(node: Expr) -> Expr | None:
        found = isinstance(node, exp.Column) and column_id(node) == asked.mine
        return column(source.alias, "key") if found else None

    return Select(
        sources=(source,),
        items=(Item("one", exp.Literal.number(1)),),
        where=tuple(rewritten(part, replace) for part in outer),
    )
