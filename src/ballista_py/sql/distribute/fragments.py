"""Collects the fragments of one plan: SQL, and which partitions of which tables it must cover."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import Factory, define

from ballista_py.partitions.table import TableSpec
from ballista_py.sql.bind.expressions import sources_of
from ballista_py.sql.bind.query import BroadcastScan, Draft, FragmentScan, Query, Scan
from ballista_py.sql.distribute.render import render
from ballista_py.sql.estimate.sizes import bytes_of_query
from ballista_py.sql.place.placement import Placement, Split, left_of
from ballista_py.sql.plan import Fragment, FragmentTable


@define(eq=False)
class Fragments:
    """The fragments so far; equal ones are one."""

    draft: Draft
    found: dict[tuple[str, tuple[object, ...]], str] = Factory(dict)
    tables: dict[tuple[str, tuple[object, ...]], tuple[FragmentTable, ...]] = Factory(dict)
    uses: dict[str, tuple[str, ...]] = Factory(dict)
    broadcast: set[str] = Factory(set)
    estimated: dict[str, int] = Factory(dict)
    queries: dict[str, Query] = Factory(dict)

    def next_name(self) -> str:
        """The name that the next new fragment will have."""
        return f"f{len(self.found)}"

    def add(self, query: Query, placement: Placement) -> str:
        """The name of the fragment that runs `query`, new or not."""
        tables = {table.name: table for table in tables_of(query, self.draft)}
        parts = tuple(fragment_table(tables[name], placement, self.draft) for name in sorted(tables))
        # The partitions of tables that are read whole go by their identity, which is that of the catalog.
        same = tuple((id(part.partitions) if part.pruned_by == "" else part.partitions) for part in parts)
        key = (render(query, self.draft), same)
        name, self.tables[key] = self.found.setdefault(key, self.next_name()), parts
        self.uses[name], self.queries[name] = broadcasts_of(query, self.draft), query
        self.estimated[name] = int(bytes_of_query(query, placement, self.draft))
        return name

    def fragments(self, uses: dict[str, int]) -> tuple[Fragment, ...]:
        """All of them; `uses` says how often the merge reads each."""
        return tuple(
            Fragment(
                name=name,
                sql=key[0],
                tables=self.tables[key],
                reused=uses.get(name, 1) > 1,
                uses=self.uses[name],
                merged=name in uses or name not in self.broadcast,
                estimated_bytes=self.estimated[name],
            )
            for key, name in self.found.items()
        )


def fragment_table(table: TableSpec, placement: Placement, draft: Draft) -> FragmentTable:
    """The partitions of a table that a fragment of that placement must cover: all, unless it is split and pruned."""
    pmap = draft.catalog.maps[table.name]
    ids = draft.catalog.once("ids", table.name, lambda: tuple(pmap.ids().tolist()))
    if table.distribution == "replicated":
        return FragmentTable(table=table.name, partitions=ids, total=len(ids), whole=True)
    found = left_of(table, placement, draft) if isinstance(placement, Split) else None
    if found is None or not isinstance(placement, Split):
        return FragmentTable(table=table.name, partitions=ids, total=len(ids))
    reason = " AND ".join(placement.reasons)
    return FragmentTable(table=table.name, partitions=tuple(found.tolist()), total=len(ids), pruned_by=reason)


def tables_of(query: Query, draft: Draft) -> Iterator[TableSpec]:
    """The catalog's tables that a query reads, at any depth, with repetitions."""
    for source in sources_of(query, draft):
        if isinstance(source.relation, Scan):
            yield source.relation.table


def broadcasts_of(query: Query, draft: Draft, shared: bool = False) -> tuple[str, ...]:
    """The broadcasts that a query reads, at any depth, each once; with `shared` as for `fragment_uses`."""
    roots = [query, *(one.merged for one in draft.shared if shared and one.merged is not None)]
    found = (source.relation for root in roots for source in sources_of(root, draft))
    return tuple(sorted({relation.name for relation in found if isinstance(relation, BroadcastScan)}))


def fragment_uses(query: Query, draft: Draft, shared: bool = True) -> dict[str, int]:
    """How often the merge reads each fragment; with `shared`, expressions that are computed once are a part of it."""
    uses: dict[str, int] = {}
    roots = [query, *(one.merged for one in draft.shared if shared and one.merged is not None)]
    for root in roots:
        for source in sources_of(root, draft):
            if isinstance(source.relation, FragmentScan):
                uses[source.relation.name] = uses.get(source.relation.name, 0) + 1
    return uses
