"""Relations that travel with legs: how one is planned, named and read, and what it weighs."""

from __future__ import annotations

from typing import Protocol

import attrs
from attrs import Factory, define, frozen
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    free_aliases,
    sources_of,
)
from ballista_py.sql.bind.query import (
    BroadcastScan,
    ColumnId,
    Draft,
    Expr,
    FragmentScan,
    Item,
    Query,
    Select,
    SharedScan,
    Source,
    column,
    renamed,
)
from ballista_py.sql.bind.types import Kind, kind_of, kinds_of_query
from ballista_py.sql.distribute.fragments import Fragments, broadcasts_of, fragment_uses
from ballista_py.sql.distribute.render import render_merge
from ballista_py.sql.estimate.sizes import (
    bytes_of_columns,
    bytes_of_probes,
    rows_of_query,
    rows_of_select_unit,
)
from ballista_py.sql.place.join_groups import Unit
from ballista_py.sql.place.placement import Merged, Split
from ballista_py.sql.place.placer import BlockPlace, Placer
from ballista_py.sql.plan import Broadcast

KEY_BYTES = 9


class QueryMerger(Protocol):
    """Who plans the queries whose results are broadcast."""

    draft: Draft
    placer: Placer
    fragments: Fragments

    def merged(self, query: Query) -> Query: ...
    def needed(self, select: Select, place: BlockPlace) -> list[ColumnId]: ...
    def renamed_columns(self, select: Select, mapping: dict[ColumnId, Expr]) -> Select: ...


@frozen(eq=False)
class Sent:
    """A unit that is to be broadcast: its query, and the source that stands for it."""

    query: Select
    source: Source
    bytes: float


@define(eq=False)
class SentRelations:
    """The broadcasts of a statement so far."""

    merger: QueryMerger
    found: list[Broadcast] = Factory(list)
    _named: int = 0

    @property
    def draft(self) -> Draft:
        return self.merger.draft

    def sent_query(self, query: Query, rows: float | None = None) -> Select:
        """The query that reads the broadcast result of `query`, of about so many rows."""
        kinds = kinds_of_query(query, self.draft)
        labels = tuple(f"c{place}" for place in range(len(query.names)))
        source = self._source(labels, kinds)
        weight = (rows_of_query(query, self.draft) if rows is None else rows) * KEY_BYTES * len(labels)
        self.add(query, source, labels, weight)
        items = zip(query.names, labels, strict=True)
        return Select(
            sources=(source,), items=tuple(Item(name, self.read(source, label)) for name, label in items)
        )

    def side(self, unit: Unit, needed: list[ColumnId], mapping: dict[ColumnId, Expr]) -> Sent | None:
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
        if self.shares(query) or free_aliases(query, self.draft):
            return None
        for label, one in zip(labels, columns, strict=False):
            mapping[one] = self.read(source, label)
        joined = attrs.evolve(source, join=unit.join, on=tuple(unit.on))
        return Sent(query, joined, self.bytes(unit, columns))

    def add(self, query: Query, source: Source, labels: tuple[str, ...], weight: float) -> None:
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
        return self.alias_of(BroadcastScan(name, labels, tuple(str(kind) for kind in kinds)))

    def alias_of(self, scan: BroadcastScan) -> Source:
        source = Source(alias=self.draft.new_alias(scan.name), relation=scan)
        self.draft.sources[source.alias] = source
        return source

    def read(self, source: Source, label: str) -> Expr:
        """A column of a broadcast, in the type that it had before it went through Arrow."""
        assert isinstance(source.relation, BroadcastScan)
        reference = column(source.alias, label)
        if source.relation.kinds[source.relation.names.index(label)] != "huge":
            return reference
        return exp.Cast(this=reference, to=exp.DataType.build("HUGEINT", dialect="duckdb"))

    def bytes(self, unit: Unit, needed: list[ColumnId]) -> float:
        columns = [one for one in needed if one[0] in unit.aliases]
        return self.rows(unit) * bytes_of_columns(columns, self.draft)

    def rows(self, unit: Unit) -> float:
        sources = [(source.relation, unit.placement) for source in unit.sources]
        return rows_of_select_unit(sources, unit.where, self.draft)

    def probes(self, unit: Unit) -> float:
        sources = [(source.relation, unit.placement) for source in unit.sources]
        return bytes_of_probes(sources, unit.where, self.draft)

    def executors(self, unit: Unit) -> int:
        if not isinstance(unit.placement, Split):
            return 1
        return max(1, len(self.draft.catalog.maps[min(unit.placement.tables)].executors))

    def shares(self, query: Query) -> bool:
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
