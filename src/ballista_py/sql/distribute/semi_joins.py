"""Keys that are sent where rows must come to the merge, so that only rows with them come back.

They are those of another unit of the block, or of the rows that ask a correlated subquery. A unit whose keys are sent
and whose rows are gathered as well is fetched once and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from attrs import Factory, define, frozen
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    aliases_of,
    copied,
    equated_columns,
    rewritten,
)
from ballista_py.sql.bind.query import (
    BroadcastScan,
    ColumnId,
    Draft,
    Expr,
    Item,
    Query,
    Scan,
    Select,
    Source,
    column,
    map_expressions,
)
from ballista_py.sql.bind.types import kind_of
from ballista_py.sql.distribute.broadcast_relations import KEY_BYTES, QueryMerger, SentRelations
from ballista_py.sql.distribute.correlated_subqueries import CorrelatedQuery, asked_by, both_ways, each_key_once
from ballista_py.sql.estimate.sizes import (
    bytes_of_columns,
    rows_of_select_unit,
    share_of,
)
from ballista_py.sql.place.join_groups import Unit, is_reorderable, null_supplied, pooled
from ballista_py.sql.place.placement import Split
from ballista_py.sql.place.placer import BlockPlace
from ballista_py.sql.plan import BroadcastLimits


@frozen
class _Size:
    """What it costs to have the rows of a relation come to the merge, as bytes, and how many they are."""

    bytes: float
    rows: float


@frozen(eq=False)
class _Keys:
    """A query for keys that legs have, and about how many they are, if that is known."""

    query: Select
    rows: float | None


@frozen(eq=False)
class KeptUnit:
    """A unit that is fetched once and kept: the source that stands for it, and what its columns are called there."""

    source: Source
    columns: dict[ColumnId, Expr]
    labels: dict[ColumnId, str]


@frozen(eq=False)
class Reduced:
    """What legs of units need not give, by the identity of the units: more conditions, and units that are kept."""

    fewer: dict[int, tuple[Expr, ...]] = Factory(dict)
    kept: dict[int, KeptUnit] = Factory(dict)


@define(eq=False)
class SentKeys:
    """Finds the keys that are worth sending."""

    sent: SentRelations
    _kept: dict[str, float] = Factory(dict)  # the rows of what is kept, by name

    @property
    def draft(self) -> Draft:
        return self.sent.draft

    @property
    def merger(self) -> QueryMerger:
        return self.sent.merger

    def reducing(self, select: Select, place: BlockPlace, units: Sequence[Unit]) -> Reduced:
        """How the legs of `units`, which are all gathered, may drop rows that no row of another, filtered one will
        match."""
        found = Reduced()
        limits = self.draft.catalog.broadcasts
        if limits is None or not is_reorderable(select):
            return found
        needed = self.merger.needed(select, place)
        for unit in units:
            if isinstance(unit.placement, Split) and id(unit) not in found.kept:
                member = self._member(select, place, unit, needed, found, limits)
                if member is not None:
                    found.fewer[id(unit)] = (member,)
        return found

    def _member(
        self,
        select: Select,
        place: BlockPlace,
        unit: Unit,
        needed: list[ColumnId],
        found: Reduced,
        limits: BroadcastLimits,
    ) -> Expr | None:
        """The condition that the rows of `unit` have a key of another one."""
        size = _Size(self.sent.bytes(unit, needed) + self.sent.probes(unit), self.sent.rows(unit))
        touched = null_supplied(select.sources)
        # In the ON of an outer join an unmatched row of this side has no effect, whatever else is true.
        stated = [(conjunct, touched) for conjunct in pooled(select)]
        stated += [(conjunct, touched - unit.aliases) for conjunct in unit.on]
        for conjunct, nullable in stated:
            for mine, theirs in both_ways(equated_columns(conjunct)):
                others = [other for other in place.units if theirs[0] in other.aliases and other is not unit]
                if mine[0] not in unit.aliases or not others or others[0].join != "inner":
                    continue
                (other, *_) = others
                if isinstance(other.placement, Split) and nullable.isdisjoint((mine[0], theirs[0])):
                    kept = found.kept.get(id(other))
                    worth = self._own_worth(other, theirs, size, limits)
                    if kept is None and worth is not None and id(other) not in found.fewer:
                        kept = self._kept_unit(other, needed, limits)
                        if kept is not None:
                            found.kept[id(other)] = kept
                    if kept is not None:
                        keys = self._kept_keys(kept, theirs) if worth is not None else None
                    else:
                        keys = self._keys(other, theirs, size, limits)
                    if keys is not None:
                        return exp.In(this=column(*mine), query=exp.Subquery(this=self.draft.nest(keys.query)))
        return None

    def with_rows_kept(self, select: Select, place: BlockPlace, limits: BroadcastLimits) -> Select | None:
        """The rows of a block of one table that will be gathered, kept once they are: the keys by which they ask
        nested queries for rows are taken from them, and not computed by the same conditions again."""
        if len(place.units) != 1 or len(place.units[0].sources) != 1:
            return None
        (unit,) = place.units
        asked = (
            one
            for query in self._nested_of((*place.rest, *select.upper()))
            for one in asked_by(query, place.units)
        )
        if not any(self._own_worth(one.host, one.theirs, self._size_of(one), limits) for one in asked):
            return None
        kept = self._kept_unit(unit, self.merger.needed(select, place), limits)
        if kept is None:
            return None
        over = attrs.evolve(select, sources=(kept.source,), where=tuple(place.rest))
        return self.merger.renamed_columns(over, kept.columns)

    def _kept_unit(self, unit: Unit, needed: list[ColumnId], limits: BroadcastLimits) -> KeptUnit | None:
        """A unit of one source as a relation that is fetched once and kept for all who read it."""
        if len(unit.sources) != 1:
            return None
        mapping: dict[ColumnId, Expr] = {}
        one = self.sent.side(unit, needed, mapping)
        if one is None or one.bytes > limits.max_bytes:
            return None
        assert isinstance(one.source.relation, BroadcastScan)
        self.sent.add(one.query, one.source, one.query.names, one.bytes)
        self._kept[one.source.relation.name] = one.bytes / bytes_of_columns(mapping, self.draft)
        return KeptUnit(one.source, mapping, dict(zip(mapping, one.query.names, strict=True)))

    def _kept_keys(self, kept: KeptUnit, key: ColumnId) -> _Keys:
        return self._keys_of(kept.source, kept.labels[key])

    def _keys_of(self, source: Source, label: str) -> _Keys:
        """The values of a column of what is complete before legs start."""
        assert isinstance(source.relation, BroadcastScan)
        other = self.sent.alias_of(source.relation)
        values = Select(sources=(other,), items=(Item("key", self.sent.read(other, label)),))
        rows = self._kept.get(source.relation.name)
        if rows is None:  # it goes to legs as it is
            return _Keys(values, None)
        return _Keys(self.sent.sent_query(attrs.evolve(values, distinct=True), rows), rows)

    def _nested_of(self, conjuncts: Iterable[Expr]) -> list[Query]:
        return [
            self.draft.nested[node.this] for conjunct in conjuncts for node in conjunct.find_all(exp.Placeholder)
        ]

    def _size_of(self, asked: CorrelatedQuery) -> _Size:
        rows = asked.rows(self.draft)
        return _Size(rows * KEY_BYTES * 2, rows)

    def with_nested_reduced(self, select: Select, place: BlockPlace, limits: BroadcastLimits) -> Select | None:
        """Correlated subqueries that will be gathered: of their rows only those that some outer row can ask for."""
        changed: dict[str, Select] = {}
        for expr in (*place.rest, *select.upper()):
            for node in expr.find_all(exp.Placeholder):
                reduced = None if node.this in changed else self._reduced(node, place, limits)
                if reduced is not None:
                    changed[node.this] = reduced
        if not changed:
            return None
        fresh = {name: self.draft.nest(query) for name, query in changed.items()}  # one in two clauses stays one

        def replace(node: Expr) -> Expr | None:
            return copied(fresh[node.this]) if isinstance(node, exp.Placeholder) and node.this in fresh else None

        sources = tuple(attrs.evolve(s, on=()) if s.join == "inner" else s for s in select.sources)
        whole = attrs.evolve(select, sources=sources, where=tuple(pooled(select)))
        return map_expressions(whole, lambda expr: rewritten(expr, replace))

    def _reduced(self, node: exp.Placeholder, place: BlockPlace, limits: BroadcastLimits) -> Select | None:
        for asked in asked_by(self.draft.nested[node.this], place.units):
            keys = self._keys(asked.host, asked.theirs, self._size_of(asked), limits)
            if keys is not None:
                among = asked.among(keys.query, self.draft)
                if isinstance(node.parent, exp.Exists) and keys.rows is not None:
                    return each_key_once(asked, among, keys.rows, self.draft)
                return among
        return None

    def _keys(self, unit: Unit, key: ColumnId, size: _Size, limits: BroadcastLimits) -> _Keys | None:
        """A query for the values that `key` has in the rows of `unit`, if sending them saves enough of `size`."""
        source = next(source for source in unit.sources if source.alias == key[0])
        if isinstance(source.relation, BroadcastScan) and source.join == "inner":
            return self._keys_of(source, key[1])
        own = self._own_worth(unit, key, size, limits)
        if own is None:
            return None
        query = Select(
            sources=(attrs.evolve(source, on=()),),
            where=own[0],
            items=(Item("key", column(*key)),),
            distinct=True,
        )
        return _Keys(self.sent.sent_query(query), own[1])

    def _own_worth(
        self, unit: Unit, key: ColumnId, size: _Size, limits: BroadcastLimits
    ) -> tuple[tuple[Expr, ...], float] | None:
        """The conditions of the key's table alone and the rows that they leave, if the keys save enough of `size`."""
        source = next(source for source in unit.sources if source.alias == key[0])
        own = tuple(part for part in unit.where if aliases_of(part, self.draft) == {key[0]})
        kind = kind_of(column(*key), self.draft)
        if not own or not isinstance(source.relation, Scan) or source.join != "inner" or kind is None:
            return None
        rows = rows_of_select_unit([(source.relation, unit.placement)], own, self.draft)
        weight = rows * KEY_BYTES
        # Each key finds a row at least, where keys are those of rows that are there.
        share = min(1.0, max(share_of(own, self.draft), rows / max(size.rows, 1.0)))
        saved = size.bytes * (1 - share) - weight * (1 + self.sent.executors(unit))
        return None if weight > limits.max_bytes or saved < limits.worth_bytes else (own, rows)
