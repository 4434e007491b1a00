"""Turns a placed query into its form at the merge: what legs can do becomes fragments, the rest reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import attrs
from attrs import Factory, define
from sqlglot import exp

from ballista_py.sql.bind.expressions import copied, free_aliases, query_references, references, rewritten
from ballista_py.sql.bind.query import (
    ColumnId,
    Draft,
    Expr,
    FragmentScan,
    Item,
    OrderTerm,
    Query,
    Relation,
    Scan,
    Select,
    SetOperation,
    SharedScan,
    Source,
    UnplannableError,
    column,
    column_id,
    map_expressions,
    renamed,
)
from ballista_py.sql.bind.types import kind_of, kinds_of_query
from ballista_py.sql.distribute.broadcast_joins import Broadcaster
from ballista_py.sql.distribute.fragments import Fragments, tables_of
from ballista_py.sql.distribute.join_order import join_order
from ballista_py.sql.distribute.two_phase_aggregates import IndivisibleError, TwoPhase
from ballista_py.sql.estimate.sizes import rows_of_relation, rows_of_select_unit, share_of
from ballista_py.sql.place.join_groups import Unit
from ballista_py.sql.place.placement import Merged, Placement, Whole
from ballista_py.sql.place.placer import BlockPlace, Placer

Change: TypeAlias = Callable[[Expr], Expr]


@define(eq=False)
class Merger:
    """Rewrites queries for the merge and collects the fragments that they read."""

    draft: Draft
    placer: Placer
    fragments: Fragments
    broadcaster: Broadcaster = Factory(lambda self: Broadcaster(self), takes_self=True)

    def merged(self, query: Query, final: bool = False) -> Query:
        """The query over fragments. `final` says that nothing computes with its columns any more."""
        if not any(True for _ in tables_of(query, self.draft)):
            return query
        placement = self.placer.placement(query)
        if not isinstance(placement, Merged) and not free_aliases(query, self.draft):
            return self._read_all(query, placement, final)
        if isinstance(query, SetOperation):
            return attrs.evolve(query, left=self.merged(query.left), right=self.merged(query.right))
        return self._merged_select(query, final)

    def runs_on_one_leg(self, query: Query) -> bool:
        """Whether any one executor can run the query to its end, its order and limit included."""
        if isinstance(query, SetOperation) or free_aliases(query, self.draft):
            return False
        place = self.placer.place(query)
        return isinstance(place.joined, Whole) and place.reach == "items"

    def _merged_select(self, select: Select, final: bool) -> Query:
        place = self.placer.place(select)
        closer = self.broadcaster.closer(select, place) if isinstance(place.joined, Merged) else None
        if closer is not None:
            return self.merged(closer, final)
        if self.runs_on_one_leg(select):
            return self._read_all(select, place.joined, final)
        if place.reach == "items":
            return self._bounded(select, place, final)
        if place.reach == "groups":
            try:
                return self._grouped(select, place)
            except IndivisibleError as reason:
                self.draft.note(f"rows are grouped at the merge: {reason}")
        asked = self.broadcaster.asked(select, place) if closer is None else None
        return self._over_rows(select, place) if asked is None else self.merged(asked, final)

    def _read_all(self, query: Query, placement: Placement, final: bool) -> Select:
        """A query that legs finish: the merge reads what they give."""
        names = distinct_names(query.names)
        query = renamed(query, names)
        kinds = kinds_of_query(query, self.draft)
        if not final and None in kinds:
            raise UnplannableError(f"the type of column '{names[kinds.index(None)]}' of a subquery is not known")
        huge = frozenset(name for name, kind in zip(names, kinds, strict=True) if kind == "huge")
        name = self.fragments.add(query, placement)
        scan = FragmentScan(name, names, huge)
        source = self._source(scan)
        items = tuple(Item(one, _reference(scan, source.alias, one)) for one in names)
        return Select(sources=(source,), items=items)

    def _source(self, scan: FragmentScan) -> Source:
        source = Source(alias=self.draft.new_alias(scan.name), relation=scan)
        self.draft.sources[source.alias] = source
        return source

    def _bounded(self, select: Select, place: BlockPlace, final: bool) -> Select:
        """Legs finish the select list; ORDER BY, LIMIT and DISTINCT are done by them and again by the merge."""
        names = list(distinct_names(select.names))
        items = [Item(name, item.expr) for name, item in zip(names, select.items, strict=True)]
        keys: list[str] = []
        for term in select.order:
            known = next((item.name for item in items if item.expr == term.expr), None)
            if known is None:
                known = _unused("key", [item.name for item in items])
                items.append(Item(known, term.expr))
            keys.append(known)
        if select.distinct and len(items) > len(names):
            raise UnplannableError("DISTINCT ordered by what is not selected")
        limited = select.limit is not None
        leg = attrs.evolve(
            select,
            items=tuple(items),
            order=select.order if limited else (),
            limit=(select.limit or 0) + select.offset if limited else None,
            offset=0,
        )
        inner = self._read_all(leg, place.joined, final)
        by_name = {item.name: item.expr for item in inner.items}
        return attrs.evolve(
            inner,
            items=tuple(Item(label, by_name[name]) for label, name in zip(select.names, names, strict=True)),
            order=tuple(
                OrderTerm(by_name[key], term.descending, term.nulls_first)
                for key, term in zip(keys, select.order, strict=True)
            ),
            distinct=select.distinct,
            limit=select.limit,
            offset=select.offset,
        )

    def _grouped(self, select: Select, place: BlockPlace) -> Select:
        (unit,) = place.units
        relation = self.draft.new_alias("groups")
        self.draft.sources[relation] = Source(alias=relation, relation=FragmentScan(relation, ()))
        halves = TwoPhase(select=select, unit=unit, placer=self.placer, relation=relation)
        merge = halves.merge()
        name = self.fragments.add(halves.leg(), place.joined)
        merge = attrs.evolve(merge, sources=tuple(_renamed_scan(source, name) for source in merge.sources))
        return self._with_nested_merged(merge, {})

    def _over_rows(self, select: Select, place: BlockPlace) -> Select:
        """Legs give the joined, filtered rows of each unit; everything else happens at the merge."""
        mapping: dict[ColumnId, Expr] = {}
        needed = self.needed(select, place)
        sources: list[Source] = []
        where = list(place.rest)
        ordered = join_order(select, place.units, self._rows, self.draft)
        gathered = [unit for unit in ordered if not isinstance(unit.placement, Merged) and self._has_tables(unit)]
        reduced = self.broadcaster.reducing(select, place, gathered)
        for unit in ordered:
            kept = reduced.kept.get(id(unit))
            if kept is not None:
                sources.append(kept.source)
                mapping.update(kept.columns)
            elif unit not in gathered:
                sources.extend(self._kept(unit, where))
            else:
                unit = attrs.evolve(unit, where=[*unit.where, *reduced.fewer.get(id(unit), ())])
                sources.append(self._gathered(unit, needed, mapping))
        block = attrs.evolve(select, sources=tuple(sources), where=tuple(where))
        return self._with_nested_merged(block, mapping)

    def _rows(self, unit: Unit) -> float:
        sources = [(source.relation, unit.placement) for source in unit.sources]
        whole = [rows_of_relation(relation, self.draft) for relation, _ in sources if isinstance(relation, Scan)]
        if isinstance(unit.placement, Whole):
            return max(whole, default=1.0) * share_of(unit.where, self.draft)
        return rows_of_select_unit(sources, unit.where, self.draft)

    def needed(self, select: Select, place: BlockPlace) -> list[ColumnId]:
        """The columns that the merge reads of the block's sources, in a fixed order."""
        exprs = [*place.rest, *(expr for unit in place.units for expr in unit.on), *select.upper()]
        return list(dict.fromkeys(reference for expr in exprs for reference in references(expr, self.draft)))

    def _kept(self, unit: Unit, where: list[Expr]) -> list[Source]:
        """The sources of a unit that the merge itself produces; `where` receives what the unit would apply."""
        first, *others = (
            attrs.evolve(source, relation=self._merged_relation(source.relation)) for source in unit.sources
        )
        if unit.join == "inner":
            where.extend(unit.where)
            return [attrs.evolve(first, join=unit.join, on=tuple(unit.on)), *others]
        return [attrs.evolve(first, join=unit.join, on=(*unit.on, *unit.where)), *others]

    def _gathered(self, unit: Unit, needed: list[ColumnId], mapping: dict[ColumnId, Expr]) -> Source:
        """The source of the merge that stands for a unit; `mapping` learns what its columns are called there."""
        items: list[Item] = []
        huge: set[str] = set()
        for alias, name in needed:
            if alias not in unit.aliases:
                continue
            label = _unused(name, [item.name for item in items])
            kind = kind_of(column(alias, name), self.draft)
            if kind is None:
                raise UnplannableError(f"the type of column '{name}' of a subquery is not known")
            if kind == "huge":
                huge.add(label)
            items.append(Item(label, column(alias, name)))
        shipped = tuple(items) or (Item("one", exp.Literal.number(1)),)
        query = Select(sources=tuple(unit.sources), where=tuple(unit.where), items=shipped)
        fragment = self.fragments.add(query, unit.placement)
        scan = FragmentScan(fragment, query.names, frozenset(huge))
        source = self._source(scan)
        for item in items:
            assert isinstance(item.expr, exp.Column)
            mapping[column_id(item.expr)] = _reference(scan, source.alias, item.name)
        return attrs.evolve(source, join=unit.join, on=tuple(unit.on))

    def _has_tables(self, unit: Unit) -> bool:
        query = Select(sources=tuple(unit.sources), items=(), where=tuple(unit.where))
        return any(True for _ in tables_of(query, self.draft))

    def _merged_relation(self, relation: Relation) -> Relation:
        if isinstance(relation, SharedScan):
            if relation.shared.merged is None:
                relation.shared.merged = self.merged(relation.shared.query)
            return relation
        return self.merged(relation) if isinstance(relation, Query) else relation

    def _with_nested_merged(self, select: Select, mapping: dict[ColumnId, Expr]) -> Select:
        """The block with its columns renamed and its nested queries in their form at the merge."""
        nested: dict[str, exp.Placeholder] = {}

        def merged(name: str) -> Expr:
            # One query that stands in two clauses (a grouped subquery) stays one.
            if name not in nested:
                query = self._renamed_free(self.merged(self.draft.nested[name]), mapping)
                nested[name] = self.draft.nest(query)
            return copied(nested[name])

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, exp.Column):
                return mapping.get(column_id(node))
            if isinstance(node, exp.Placeholder):
                return merged(node.this)
            return None

        return map_expressions(select, lambda expr: rewritten(expr, replace))

    def renamed_columns(self, select: Select, mapping: dict[ColumnId, Expr]) -> Select:
        """The block with columns of its sources renamed, also where its nested queries refer to them."""
        nested: dict[str, exp.Placeholder] = {}

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, exp.Column):
                return mapping.get(column_id(node))
            if isinstance(node, exp.Placeholder):
                if node.this not in nested:  # one query that stands in two clauses stays one
                    nested[node.this] = self.draft.nest(self._renamed_free(self.draft.nested[node.this], mapping))
                return copied(nested[node.this])
            return None

        return map_expressions(select, lambda expr: rewritten(expr, replace))

    def _renamed_free(self, query: Query, mapping: dict[ColumnId, Expr]) -> Query:
        """A query at the merge with its references to an enclosing block renamed."""
        if not any(reference in mapping for reference in query_references(query, self.draft)):
            return query

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, exp.Column):
                return mapping.get(column_id(node))
            if isinstance(node, exp.Placeholder):
                return self.draft.nest(self._renamed_free(self.draft.nested[node.this], mapping))
            return None

        return map_query(query, lambda expr: rewritten(expr, replace))


def map_query(query: Query, change: Change) -> Query:
    """The query with every expression of its blocks, those of its sources included, changed."""
    if isinstance(query, SetOperation):
        return attrs.evolve(query, left=map_query(query.left, change), right=map_query(query.right, change))
    sources = tuple(
        attrs.evolve(source, relation=map_query(source.relation, change))
        if isinstance(source.relation, Query)
        else source
        for source in query.sources
    )
    return map_expressions(attrs.evolve(query, sources=sources), change)


def _reference(scan: FragmentScan, alias: str, name: str) -> Expr:
    """A column of a fragment, in the type that it had in the leg."""
    reference = column(alias, name)
    if name not in scan.huge:
        return reference
    return exp.Cast(this=reference, to=exp.DataType.build("HUGEINT", dialect="duckdb"))


def _renamed_scan(source: Source, fragment: str) -> Source:
    """The source over the fragment's real name."""
    if isinstance(source.relation, FragmentScan):
        return attrs.evolve(source, relation=attrs.evolve(source.relation, name=fragment))
    assert isinstance(source.relation, Select)
    inner = tuple(_renamed_scan(one, fragment) for one in source.relation.sources)
    return attrs.evolve(source, relation=attrs.evolve(source.relation, sources=inner))


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names, made different where they are not, without regard to case."""
    taken: list[str] = []
    for name in names:
        taken.append(_unused(name, taken))
    return tuple(taken)


def _unused(wanted: str, taken: Iterable[str]) -> str:
    used = {name.lower() for name in taken}
    name, number = wanted, 1
    while name.lower() in used:
        number += 1
        name = f"{wanted}_{number}"
    return name
