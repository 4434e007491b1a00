"""Small relations sent to the legs of large ones, where the large ones would have to come to the merge.

Three ways, all by estimates, all without effect on the answer: a small side of a join becomes a relation that every
leg has, so that the block runs in the legs; so does an uncorrelated subquery; and where the large side must come to
the merge nevertheless, the keys that can match are sent first and only rows with them come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Protocol

import attrs
from attrs import Factory, define, frozen
from sqlglot import exp

from ballista_py.planning.query_plan import Broadcast, BroadcastLimits
from ballista_py.planning.sql.asked_rows import Asked, asked_by, both_ways, each_key_once
from ballista_py.planning.sql.estimates import (
    bytes_of_columns,
    bytes_of_probes,
    rows_of_query,
    rows_of_select_unit,
    share_of,
)
from ballista_py.planning.sql.expressions import (
    aliases_of,
    equated_columns,
    free_aliases,
    rewritten,
    sources_of,
)
from ballista_py.planning.sql.fragments import Fragments, broadcasts_of, fragment_uses, tables_of
from ballista_py.planning.sql.kinds import Kind, kind_of, kinds_of_query
from ballista_py.planning.sql.placement import Merged, Split, Whole
from ballista_py.planning.sql.places import Place, Placer
from ballista_py.planning.sql.query import (
    BroadcastScan,
    ColumnId,
    Draft,
    Expr,
    FragmentScan,
    Item,
    Query,
    Scan,
    Select,
    SharedScan,
    Source,
    column,
    renamed,
)
from ballista_py.planning.sql.render import render_merge
from ballista_py.planning.sql.units import Unit, is_reorderable, null_supplied, pooled

_KEY_BYTES = 9


class QueryMerger(Protocol):
    """Who plans the queries whose results are broadcast."""

    draft: Draft
    placer: Placer
    fragments: Fragments

    def merged(self, query: Query) -> Query: ...
    def needed(self, select: Select, place: Place) -> list[ColumnId]: ...
    def renamed_columns(self, select: Select, mapping: dict[ColumnId, Expr]) -> Select: ...


@frozen(eq=False)
class _Sent:
    """A unit that is to be broadcast: its query, and the source that stands for it."""

    query: Select
    source: Source
    bytes: float


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
class Kept:
    """A unit that is fetched once and kept: the source that stands for it, and what its columns are called there."""

    source: Source
    columns: dict[ColumnId, Expr]
    labels: dict[ColumnId, str]


@frozen(eq=False)
class Reduced:
    """What legs of units need not give, by the identity of the units: more conditions, and units that are kept."""

    fewer: dict[int, tuple[Expr, ...]] = Factory(dict)
    kept: dict[int, Kept] = Factory(dict)


@define(eq=False)
class Broadcaster:
    """Rewrites blocks that would run at the merge; `found` are the broadcasts that they then read."""

    merger: QueryMerger
    found: list[Broadcast] = Factory(list)
    _done: dict[int, Select] = Factory(dict)
    _kept: dict[str, float] = Factory(dict)
    _named: int = 0

    @property
    def draft(self) -> Draft:
        return self.merger.draft

    def closer(self, select: Select, place: Place) -> Select | None:
        """The block with something small broadcast, or None if nothing is worth it any more."""
        limits = self.draft.catalog.broadcasts
        if limits is None or not is_reorderable(select) or id(select) in self._done:
            return None
        self._done[id(select)] = select
        steps = (
            self._with_subqueries_sent, self._with_sides_sent, self._with_rows_kept, self._with_nested_reduced,
        )  # fmt: skip
        for step in steps:
            found = step(select, place, limits)
            if found is not None:
                return found
        return None

    def reducing(self, select: Select, place: Place, units: Sequence[Unit]) -> Reduced:
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
        place: Place,
        unit: Unit,
        needed: list[ColumnId],
        found: Reduced,
        limits: BroadcastLimits,
    ) -> Expr | None:
        """The condition that the rows of `unit` have a key of another one."""
        size = _Size(self._bytes(unit, needed) + self._probes(unit), self._rows(unit))
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

    def _with_subqueries_sent(self, select: Select, place: Place, limits: BroadcastLimits) -> Select | None:
        """Uncorrelated subqueries of WHERE that keep a large unit from being filtered in its legs."""
        anchor = self._anchor(select, place)
        if anchor is None or anchor[1] < limits.worth_bytes:
            return None
        names = {
            node.this
            for conjunct in place.rest
            for node in conjunct.find_all(exp.Placeholder)
            if self._may_be_sent(self.draft.nested[node.this], anchor[1] / self._executors(anchor[0]), limits)
        }
        if not names:
            return None
        sent = {name: self._sent_query(self.draft.nested[name]) for name in sorted(names)}

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
        weight = rows_of_query(query, self.draft) * _KEY_BYTES * len(query.names)
        return weight <= min(most, limits.max_bytes) and not self._shares(query)

    def _sent_query(self, query: Query, rows: float | None = None) -> Select:
        """The query that reads the broadcast result of `query`, of about so many rows."""
        kinds = kinds_of_query(query, self.draft)
        labels = tuple(f"c{place}" for place in range(len(query.names)))
        source = self._source(labels, kinds)
        weight = (rows_of_query(query, self.draft) if rows is None else rows) * _KEY_BYTES * len(labels)
        self._add(query, source, labels, weight)
        items = zip(query.names, labels, strict=True)
        return Select(
            sources=(source,), items=tuple(Item(name, self._read(source, label)) for name, label in items)
        )

    def _with_sides_sent(self, select: Select, place: Place, limits: BroadcastLimits) -> Select | None:
        """All sides of a join but the largest."""
        anchor = self._anchor(select, place)
        sent_units = [unit for unit in place.units if anchor and unit is not anchor[0] and not _is_whole(unit)]
        if anchor is None or not sent_units or any(unit.join not in ("inner", "left") for unit in place.units):
            return None
        needed = self.merger.needed(select, place)
        mapping: dict[ColumnId, Expr] = {}
        sent: dict[int, _Sent] = {}
        for unit in sent_units:
            one = self._side(unit, needed, mapping)
            if one is None:
                return None
            sent[id(unit)] = one
        weight = sum(one.bytes for one in sent.values())
        cost = weight * (1 + self._executors(anchor[0]))
        shares = [share_of(unit.where, self.draft) for unit in sent_units]
        spared = self._probes(anchor[0]) * (1 - prod(shares))
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
            self._add(one.query, one.source, one.query.names, one.bytes)
        return closer

    def _side(self, unit: Unit, needed: list[ColumnId], mapping: dict[ColumnId, Expr]) -> _Sent | None:
        """What would stand for a unit that is broadcast; `mapping` learns what its columns are called then."""
        columns = [one for one in needed if one[0] in unit.aliases]
        kinds = [kind_of(column(*one), self.draft) for one in columns]
        if None in kinds:
            return None
        labels = tuple(f"c{place}" for place in range(len(columns))) or ("one",)
        source = self._source(labels, kinds or ["int"])
        first, *others = unit.sources
        items = [Item(label, column(*one)) for label, one in zip(labels, columns, strict=False)]
        query = Select(
            sources=(attrs.evolve(first, join="inner", on=()), *others),
            where=tuple(unit.where),
            items=tuple(items) or (Item("one", exp.Literal.number(1)),),
        )
        if self._shares(query) or free_aliases(query, self.draft):
            return None
        for label, one in zip(labels, columns, strict=False):
            mapping[one] = self._read(source, label)
        joined = attrs.evolve(source, join=unit.join, on=tuple(unit.on))
        return _Sent(query, joined, self._bytes(unit, columns))

    def _with_rows_kept(self, select: Select, place: Place, limits: BroadcastLimits) -> Select | None:
        """The rows of a block of one table that will be gathered, kept once they are: the keys by which they ask
        nested queries for rows are taken from them, and not computed by the same conditions again."""
        if len(place.units) != 1 or len(place.units[0].sources) != 1:
            return None
        (unit,) = place.units
        asked = (one for query in self._nested_of(place.rest) for one in asked_by(query, place.units))
        if not any(self._own_worth(one.host, one.theirs, self._size_of(one), limits) for one in asked):
            return None
        kept = self._kept_unit(unit, self.merger.needed(select, place), limits)
        if kept is None:
            return None
        over = attrs.evolve(select, sources=(kept.source,), where=tuple(place.rest))
        return self.merger.renamed_columns(over, kept.columns)

    def _kept_unit(self, unit: Unit, needed: list[ColumnId], limits: BroadcastLimits) -> Kept | None:
        """A unit of one source as a relation that is fetched once and kept for all who read it."""
        if len(unit.sources) != 1:
            return None
        mapping: dict[ColumnId, Expr] = {}
        one = self._side(unit, needed, mapping)
        if one is None or one.bytes > limits.max_bytes:
            return None
        assert isinstance(one.source.relation, BroadcastScan)
        self._add(one.query, one.source, one.query.names, one.bytes)
        self._kept[one.source.relation.name] = one.bytes / bytes_of_columns(mapping, self.draft)
        return Kept(one.source, mapping, dict(zip(mapping, one.query.names, strict=True)))

    def _kept_keys(self, kept: Kept, key: ColumnId) -> _Keys:
        return self._keys_of(kept.source, kept.labels[key])

    def _keys_of(self, source: Source, label: str) -> _Keys:
        """The values of a column of what is complete before legs start."""
        assert isinstance(source.relation, BroadcastScan)
        other = self._alias_of(source.relation)
        values = Select(sources=(other,), items=(Item("key", self._read(other, label)),))
        rows = self._kept.get(source.relation.name)
        if rows is None:  # it goes to legs as it is
            return _Keys(values, None)
        return _Keys(self._sent_query(attrs.evolve(values, distinct=True), rows), rows)

    def _nested_of(self, conjuncts: Iterable[Expr]) -> list[Query]:
        return [
            self.draft.nested[node.this] for conjunct in conjuncts for node in conjunct.find_all(exp.Placeholder)
        ]

    def _size_of(self, asked: Asked) -> _Size:
        rows = asked.rows(self.draft)
        return _Size(rows * _KEY_BYTES * 2, rows)

    def _with_nested_reduced(self, select: Select, place: Place, limits: BroadcastLimits) -> Select | None:
        """Correlated subqueries that will be gathered: of their rows only those that some outer row can ask for."""
        changed: dict[str, Select] = {}
        for conjunct in place.rest:
            for node in conjunct.find_all(exp.Placeholder):
                reduced = self._reduced(node, place, limits)
                if reduced is not None:
                    changed[node.this] = reduced
        if not changed:
            return None

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, exp.Placeholder) and node.this in changed:
                return self.draft.nest(changed[node.this])
            return None

        where = tuple(rewritten(conjunct, replace) for conjunct in pooled(select))
        sources = tuple(attrs.evolve(s, on=()) if s.join == "inner" else s for s in select.sources)
        fresh = attrs.evolve(select, sources=sources, where=where)
        self._done[id(fresh)] = fresh
        return fresh

    def _reduced(self, node: exp.Placeholder, place: Place, limits: BroadcastLimits) -> Select | None:
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
        return _Keys(self._sent_query(query), own[1])

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
        weight = rows * _KEY_BYTES
        # Each key finds a row at least, where keys are those of rows that are there.
        share = min(1.0, max(share_of(own, self.draft), rows / max(size.rows, 1.0)))
        saved = size.bytes * (1 - share) - weight * (1 + self._executors(unit))
        return None if weight > limits.max_bytes or saved < limits.worth_bytes else (own, rows)

    def _add(self, query: Query, source: Source, labels: tuple[str, ...], weight: float) -> None:
        """Plan the query whose result `source` reads."""
        scan = source.relation
        assert isinstance(scan, BroadcastScan)
        merged = self.merger.merged(renamed(query, labels))
        fragments = tuple(fragment_uses(merged, self.draft, shared=False))
        self.merger.fragments.broadcast.update(fragments)
        self.found.append(
            Broadcast(
                name=scan.name,
                sql=render_merge(merged, self.draft, shared=False),
                fragments=fragments,
                uses=broadcasts_of(merged, self.draft),
                estimated_bytes=int(weight),
                plain=_is_plain(merged),
            )
        )

    def _source(self, labels: tuple[str, ...], kinds: list[Kind | None]) -> Source:
        """A source that reads a new broadcast."""
        name = f"b{self._named}"
        while name in self.draft.catalog.tables:
            self._named += 1
            name = f"b{self._named}"
        self._named += 1
        return self._alias_of(BroadcastScan(name, labels, tuple(str(kind) for kind in kinds)))

    def _alias_of(self, scan: BroadcastScan) -> Source:
        source = Source(alias=self.draft.new_alias(scan.name), relation=scan)
        self.draft.sources[source.alias] = source
        return source

    def _read(self, source: Source, label: str) -> Expr:
        """A column of a broadcast, in the type that it had before it went through Arrow."""
        assert isinstance(source.relation, BroadcastScan)
        reference = column(source.alias, label)
        if source.relation.kinds[source.relation.names.index(label)] != "huge":
            return reference
        return exp.Cast(this=reference, to=exp.DataType.build("HUGEINT", dialect="duckdb"))

    def _anchor(self, select: Select, place: Place) -> tuple[Unit, float] | None:
        """The unit that weighs most, which stays where it is, with its bytes."""
        needed = self.merger.needed(select, place)
        split = [unit for unit in place.units if unit.join == "inner" and isinstance(unit.placement, Split)]
        sizes = [(unit, self._bytes(unit, needed)) for unit in split]
        return max(sizes, key=lambda pair: pair[1], default=None)

    def _bytes(self, unit: Unit, needed: list[ColumnId]) -> float:
        columns = [one for one in needed if one[0] in unit.aliases]
        return self._rows(unit) * bytes_of_columns(columns, self.draft)

    def _rows(self, unit: Unit) -> float:
        sources = [(source.relation, unit.placement) for source in unit.sources]
        return rows_of_select_unit(sources, unit.where, self.draft)

    def _probes(self, unit: Unit) -> float:
        sources = [(source.relation, unit.placement) for source in unit.sources]
        return bytes_of_probes(sources, unit.where, self.draft)

    def _executors(self, unit: Unit) -> int:
        if not isinstance(unit.placement, Split):
            return 1
        return max(1, len(self.draft.catalog.maps[min(unit.placement.tables)].executors))

    def _shares(self, query: Query) -> bool:
        """Whether it reads a common table expression that is computed once at the merge."""
        found = (source.relation for source in sources_of(query, self.draft))
        placer = self.merger.placer
        return any(isinstance(one, SharedScan) and isinstance(placer.of_relation(one), Merged) for one in found)


def _is_plain(merged: Query) -> bool:
    """Whether it gives the rows of one fragment and does nothing else."""
    if not isinstance(merged, Select) or len(merged.sources) != 1:
        return False
    (source,) = merged.sources
    scan = source.relation
    if not isinstance(scan, FragmentScan) or scan.huge or source.on:
        return False
    more = (one for one in attrs.fields(Select) if one.default is not attrs.NOTHING)
    if any(getattr(merged, one.name) != one.default for one in more):
        return False
    read = [(name, column(source.alias, name)) for name in scan.names]
    return [(item.name, item.expr) for item in merged.items] == read


def _joined(select: Select, place: Place, anchor: Unit, sent: dict[int, _Sent]) -> Select:
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
