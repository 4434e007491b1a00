"""Small relations sent to the legs of large ones, where the large ones would have to come to the merge.

Three ways, all by estimates, all without effect on the answer: a small side of a join becomes a relation that every
leg has, so that the block runs in the legs; so does an uncorrelated subquery; and where the large side must come to
the merge nevertheless, the keys that can match are sent first and only rows with them come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import attrs
from attrs import Factory, define
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    free_aliases,
    rewritten,
)
from ballista_py.sql.bind.query import (
    ColumnId,
    Draft,
    Expr,
    Query,
    Select,
    Source,
)
from ballista_py.sql.bind.types import kinds_of_query
from ballista_py.sql.distribute.broadcast_relations import KEY_BYTES, QueryMerger, Sent, SentRelations
from ballista_py.sql.distribute.fragments import tables_of
from ballista_py.sql.distribute.semi_joins import Reduced, SentKeys
from ballista_py.sql.estimate.sizes import (
    rows_of_query,
    share_of,
)
from ballista_py.sql.place.join_groups import Unit, is_reorderable, pooled
from ballista_py.sql.place.placement import Merged, Split, Whole
from ballista_py.sql.place.placer import BlockPlace
from ballista_py.sql.plan import Broadcast, BroadcastLimits


@define(eq=False)
class Broadcaster:
    """Rewrites blocks that would run at the merge; `found` are the broadcasts that they then read."""

    merger: QueryMerger
    sent: SentRelations = Factory(lambda self: SentRelations(self.merger), takes_self=True)
    keys: SentKeys = Factory(lambda self: SentKeys(self.sent), takes_self=True)
    _done: dict[int, Select] = Factory(dict)
    _asked: dict[int, Select] = Factory(dict)

    @property
    def draft(self) -> Draft:
        return self.merger.draft

    @property
    def found(self) -> list[Broadcast]:
        return self.sent.found

    def closer(self, select: Select, place: BlockPlace) -> Select | None:
        """The block with something small broadcast, or None if nothing is worth it any more."""
        limits = self.draft.catalog.broadcasts
        if limits is None or not is_reorderable(select) or id(select) in self._done:
            return None
        self._done[id(select)] = select
        for step in (self._with_subqueries_sent, self._with_sides_sent):
            found = step(select, place, limits)
            if found is not None:
                return found
        return self._reduced(select, place, limits)

    def asked(self, select: Select, place: BlockPlace) -> Select | None:
        """The block, whose rows come to the merge for what it computes there, with its nested queries reduced."""
        limits = self.draft.catalog.broadcasts
        if limits is None or not is_reorderable(select) or id(select) in self._asked:
            return None
        self._asked[id(select)] = select
        return self._reduced(select, place, limits)

    def _reduced(self, select: Select, place: BlockPlace, limits: BroadcastLimits) -> Select | None:
        found = self.keys.with_rows_kept(select, place, limits)
        if found is None:
            found = self.keys.with_nested_reduced(select, place, limits)
            if found is not None:
                self._done[id(found)] = self._asked[id(found)] = found
        return found

    def reducing(self, select: Select, place: BlockPlace, units: Sequence[Unit]) -> Reduced:
        """How the legs of `units`, which are all gathered, may drop rows that no row of another will match."""
        return self.keys.reducing(select, place, units)

    def _with_subqueries_sent(self, select: Select, place: BlockPlace, limits: BroadcastLimits) -> Select | None:
        """Uncorrelated subqueries of WHERE that keep a large unit from being filtered in its legs."""
        anchor = self._anchor(select, place)
        if anchor is None or anchor[1] < limits.worth_bytes:
            return None
        names = {
            node.this
            for conjunct in place.rest
            for node in conjunct.find_all(exp.Placeholder)
            if self._may_be_sent(self.draft.nested[node.this], anchor[1] / self.sent.executors(anchor[0]), limits)
        }
        if not names:
            return None
        sent = {name: self.sent.sent_query(self.draft.nested[name]) for name in sorted(names)}

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, exp.Placeholder) and node.this in sent:
                return self.draft.nest(sent[node.this])
            return None

        return attrs.evolve(
            select,
            sources=tuple(attrs.evolve(s, on=()) if s.join == "inner" else s for s in select.sources),
            where=tuple(rewritten(conjunct, replace) for conjunct in pooled(select)),
        )

    def _may_be_sent(self, query: Query, most: float, limits: BroadcastLimits) -> bool:
        if free_aliases(query, self.draft) or not any(True for _ in tables_of(query, self.draft)):
            return False
        if isinstance(self.merger.placer.placement(query), Whole) or None in kinds_of_query(query, self.draft):
            return False
        weight = rows_of_query(query, self.draft) * KEY_BYTES * len(query.names)
        return weight <= min(most, limits.max_bytes) and not self.sent.shares(query)

    def _with_sides_sent(self, select: Select, place: BlockPlace, limits: BroadcastLimits) -> Select | None:
        """All sides of a join but the largest."""
        anchor = self._anchor(select, place)
        sent_units = [unit for unit in place.units if anchor and unit is not anchor[0] and not _is_whole(unit)]
        if anchor is None or not sent_units or any(unit.join not in ("inner", "left") for unit in place.units):
            return None
        needed = self.merger.needed(select, place)
        mapping: dict[ColumnId, Expr] = {}
        sent: dict[int, Sent] = {}
        for unit in sent_units:
            one = self.sent.side(unit, needed, mapping)
            if one is None:
                return None
            sent[id(unit)] = one
        weight = sum(one.bytes for one in sent.values())
        cost = weight * (1 + self.sent.executors(anchor[0]))
        shares = [share_of(unit.where, self.draft) for unit in sent_units]
        spared = self.sent.probes(anchor[0]) * (1 - prod(shares))
        if weight > limits.max_bytes or anchor[1] + spared - cost < limits.worth_bytes:
            return None
        closer = self.merger.renamed_columns(_joined(select, place, anchor[0], sent), mapping)
        found = self.merger.placer.place(closer)
        filtered = any(
            share_of(unit.where, self.draft) < 1 or isinstance(unit.placement, Merged) for unit in sent_units
        )
        if found.reach == "rows" and not filtered:
            return None
        for one in sent.values():
            self.sent.add(one.query, one.source, one.query.names, one.bytes)
        return closer

    def _anchor(self, select: Select, place: BlockPlace) -> tuple[Unit, float] | None:
        """The unit that weighs most, which stays where it is, with its bytes."""
        needed = self.merger.needed(select, place)
        split = [unit for unit in place.units if unit.join == "inner" and isinstance(unit.placement, Split)]
        sizes = [(unit, self.sent.bytes(unit, needed)) for unit in split]
        return max(sizes, key=lambda pair: pair[1], default=None)


def _joined(select: Select, place: BlockPlace, anchor: Unit, sent: dict[int, Sent]) -> Select:
    """The block over the anchor, replicated relations, and broadcasts."""
    inner: list[Source] = list(anchor.sources)
    left: list[Source] = []
    where = [*anchor.where, *place.rest]
    for unit in place.units:
        if unit is anchor:
            continue
        one = sent.get(id(unit))
        if one is not None:
            (inner if unit.join == "inner" else left).append(one.source)
            continue
        first, *others = unit.sources
        if unit.join == "inner":
            inner.extend((attrs.evolve(first, on=()), *others))
            where.extend(unit.where)
        else:
            left.extend((attrs.evolve(first, join=unit.join, on=(*unit.on, *unit.where)), *others))
    return attrs.evolve(select, sources=(*inner, *left), where=tuple(where))


def _is_whole(unit: Unit) -> bool:
    return isinstance(unit.placement, Whole)
