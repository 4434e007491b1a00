"""Places every query of a statement: what its legs can compute, and from where on it belongs to the merge.

Placing decides and changes nothing; `merging` acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from attrs import Factory, define, frozen
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    aliases_of,
    copied,
    equated_columns,
    facts_of,
    free_aliases,
    nested_of,
    sources_of,
)
from ballista_py.sql.bind.query import (
    BroadcastScan,
    ColumnId,
    Draft,
    Expr,
    Item,
    Query,
    Relation,
    Scan,
    Select,
    SetOperation,
    SharedScan,
    ValuesList,
    column,
    column_id,
)
from ballista_py.sql.parse.parsing import ENGINE
from ballista_py.sql.place.join_groups import (
    Unit,
    equalities_of,
    form_units,
    implied,
    null_supplied,
    pooled,
    same_form,
)
from ballista_py.sql.place.placement import (
    MERGED,
    WHOLE,
    Merged,
    Placement,
    Split,
    Whole,
    place_table,
    same_family,
    union_all,
)
from ballista_py.sql.prune.partitions import Pruner

MAX_INLINED_SCANS = 32
MAX_REASON_CHARS = 300
Reach = Literal["rows", "groups", "items"]
NO_ALIASES: frozenset[str] = frozenset()


@frozen(eq=False, kw_only=True)
class BlockPlace:
    """Where one SELECT block runs.

    `rest` are the conjuncts that no unit can apply. `joined` is the placement of the rows after WHERE. `reach`
    says how far a leg gets: its `rows` only, `groups` (aggregates in two phases), or the final `items`.
    `placement` is that of the block as a relation, its columns under the alias ''.
    """

    units: tuple[Unit, ...]
    rest: tuple[Expr, ...]
    joined: Placement
    reach: Reach
    placement: Placement


@define(eq=False)
class Placer:
    """Places queries and remembers the answers."""

    draft: Draft
    _sizes: dict[int, tuple[Query, int]] = Factory(dict)
    _places: dict[tuple[int, frozenset[str]], tuple[Query, BlockPlace]] = Factory(dict)

    def placement(self, query: Query, admitted: frozenset[str] = NO_ALIASES) -> Placement:
        """Where a query can be produced, if legs see the sources `admitted` of enclosing blocks."""
        if isinstance(query, Select):
            return self.place(query, admitted).placement
        return self._place_set_operation(query, admitted)

    def place(self, select: Select, admitted: frozenset[str] = NO_ALIASES) -> BlockPlace:
        """Where the parts of a block run."""
        key = (id(select), admitted & free_aliases(select, self.draft))
        known = self._places.get(key)
        if known is None:
            known = self._places[key] = (select, self._place(select, key[1]))
        return known[1]

    def of_relation(self, relation: Relation, admitted: frozenset[str] = NO_ALIASES) -> Placement:
        """Where a FROM item can be produced; carriers are under the alias ''."""
        if isinstance(relation, Scan):
            table = relation.table
            found: Placement = self.draft.catalog.once("place", table.name, lambda: place_table(table))
            return found
        if isinstance(relation, ValuesList | BroadcastScan):
            return WHOLE
        if isinstance(relation, SharedScan):
            if self._scans_in(relation.shared.query) > MAX_INLINED_SCANS:
                return MERGED
            return self.placement(relation.shared.query)
        if isinstance(relation, Query):
            return self.placement(relation, admitted)
        return MERGED

    def _scans_in(self, query: Query) -> int:
        """How many tables a leg would read for a query, shared ones as often as they are used."""
        known = self._sizes.get(id(query))
        if known is None:
            count = 0
            for source in sources_of(query, self.draft, shared=False):
                inner = source.relation
                count += self._scans_in(inner.shared.query) if isinstance(inner, SharedScan) else 1
            known = self._sizes[id(query)] = (query, count)
        return known[1]

    def is_local(self, expr: Expr, unit: Unit, filtering: bool = False) -> bool:
        """Whether a leg that has the rows of `unit` can evaluate the expression on them.

        `filtering` says that it is a conjunct of WHERE, where NULL is as good as false.
        """
        facts = facts_of(expr, self.draft)
        if not facts.portable or not facts.nested:
            return facts.portable
        return all(
            self._is_local_query(query, unit) or (filtering and self._is_member_by_key(expr, query, unit))
            for query in nested_of(expr, self.draft)
        )

    def _place(self, select: Select, admitted: frozenset[str]) -> BlockPlace:
        placements = {}
        for source in select.sources:
            placement = self.of_relation(source.relation, admitted)
            placements[source.alias] = placement.under(source.alias) if isinstance(placement, Split) else placement
        units = form_units(select, placements, self.draft)
        rest = self._apply_conjuncts(select, units, admitted)
        if len(units) > 1:
            self._reduce_by_whole(select, units)
        joined: Placement = MERGED
        if not units:
            joined = MERGED if rest else WHOLE
        elif len(units) == 1 and not rest:
            joined = units[0].placement
        reach, placement = self._reach(select, units, joined, admitted)
        return BlockPlace(units=tuple(units), rest=tuple(rest), joined=joined, reach=reach, placement=placement)

    def _apply_conjuncts(self, select: Select, units: list[Unit], admitted: frozenset[str]) -> list[Expr]:
        """Give every conjunct to the unit that can apply it; returns those that none can."""
        rest: list[Expr] = []
        own = frozenset(source.alias for source in select.sources)
        nullable = null_supplied(select.sources)
        reordered = all(unit.join in ("inner", "left") for unit in units)
        for conjunct in pooled(select):
            used = aliases_of(conjunct, self.draft)
            hosts = [unit for unit in units if not used.isdisjoint(unit.aliases)]
            if not used & own and len(units) == 1:
                hosts = list(units)
            fits = len(hosts) == 1 and used - hosts[0].aliases <= admitted and hosts[0].join == "inner"
            fits = fits and (reordered or len(units) == 1 or used.isdisjoint(nullable))
            fits = fits and not isinstance(hosts[0].placement, Merged)
            if fits and self.is_local(conjunct, hosts[0], filtering=True):
                self._apply(conjunct, hosts[0])
                continue
            rest.append(conjunct)
            if reordered:
                self._apply_implied(conjunct, units)
        for unit in units:
            if unit.join == "left":
                self._apply_own_on(unit)
        return rest

    def _apply(self, conjunct: Expr, unit: Unit) -> None:
        unit.where.append(conjunct)
        if isinstance(unit.placement, Split):
            unit.placement = pruned(unit.placement, conjunct, self.draft, reason_of)

    def _apply_implied(self, conjunct: Expr, units: list[Unit]) -> None:
        for unit in units:
            if unit.join == "inner" and not isinstance(unit.placement, Merged):
                weaker = implied(conjunct, unit, self.draft)
                if weaker is not None:
                    self._apply(weaker, unit)

    def _reduce_by_whole(self, select: Select, units: list[Unit]) -> None:
        """Let legs drop rows of a split unit that no row of a filtered replicated one will match.

        The replicated relation is in every leg anyway, and a membership test never multiplies rows as a join may.
        """
        equal = equalities_of(select)
        for whole in units:
            if whole.join != "inner" or not isinstance(whole.placement, Whole) or not whole.where:
                continue
            for unit in units:
                if unit.join != "inner" or not isinstance(unit.placement, Split):
                    continue
                pair = equal.between(unit.aliases, whole.aliases)
                if pair is not None:
                    values = Select(
                        sources=tuple(whole.sources),
                        where=tuple(whole.where),
                        items=(Item(pair[1][1], column(*pair[1])),),
                    )
                    members = exp.Subquery(this=self.draft.nest(values))
                    unit.where.append(exp.In(this=column(*pair[0]), query=members))

    def _apply_own_on(self, unit: Unit) -> None:
        """Conjuncts of a LEFT JOIN that concern its right side only filter that side."""
        kept: list[Expr] = []
        for conjunct in unit.on:
            used = aliases_of(conjunct, self.draft)
            fits = bool(used) and used <= unit.aliases and not isinstance(unit.placement, Merged)
            if fits and self.is_local(conjunct, unit):
                self._apply(conjunct, unit)
            else:
                kept.append(conjunct)
        unit.on = kept

    def _reach(
        self, select: Select, units: list[Unit], joined: Placement, admitted: frozenset[str]
    ) -> tuple[Reach, Placement]:
        if isinstance(joined, Merged):
            return "rows", MERGED
        unit = units[0] if units else Unit([], WHOLE)
        bounded = select.limit is not None or select.offset > 0
        seen = unit.aliases | admitted
        pure = all(self.is_local(expr, unit) and aliases_of(expr, self.draft) <= seen for expr in select.upper())
        if isinstance(joined, Whole):
            if not pure:
                return "rows", MERGED
            # Replicas may number ties differently, so a window's rows must come from one of them.
            once = bounded or bool(select.order) or any(expr.find(exp.Window) for expr in select.upper())
            return "items", MERGED if once else WHOLE
        if select.grouped and not _groups_are_local(select, joined):
            return "groups", MERGED
        if not pure or not _windows_are_local(select, joined):
            return "rows", MERGED
        carriers = tuple(_outputs(select, names) for names in joined.carriers)
        relation = Split(
            family=joined.family,
            spec=joined.spec,
            carriers=carriers,
            allowed=joined.allowed,
            tables=joined.tables,
            reasons=joined.reasons,
        )
        scattered = select.distinct and not all(carriers)
        return "items", MERGED if bounded or select.order or scattered else relation

    def _is_local_query(self, query: Query, unit: Unit) -> bool:
        if isinstance(self.placement(query, unit.aliases), Whole):
            return True
        if not isinstance(unit.placement, Split) or not isinstance(query, Select):
            return False
        return self._is_correlated_on_key(query, unit.placement, unit.aliases)

    def _is_correlated_on_key(self, query: Select, outer: Split, admitted: frozenset[str]) -> bool:
        """Whether the rows that a correlated query sees for one outer row are all in that row's partition."""
        inner = self.place(query, admitted).joined
        if not isinstance(inner, Split) or not same_form(inner, outer):
            return False
        touched = null_supplied(query.sources)
        own = frozenset(source.alias for source in query.sources)
        pairs: list[tuple[ColumnId, ColumnId]] = []
        for conjunct in pooled(query):
            pair = equated_columns(conjunct)
            if pair is not None and pair[0][0] not in touched and pair[1][0] not in touched:
                pairs.extend((a, b) for a, b in (pair, pair[::-1]) if a[0] in own and b[0] not in own)
        matched = all(
            any(a in mine and b in theirs for a, b in pairs)
            for mine, theirs in zip(inner.carriers, outer.carriers, strict=True)
        )
        upper_is_local = all(self._sees_only(expr, own | admitted) for expr in query.upper())
        return matched and upper_is_local and same_family(inner, outer, self.draft.catalog)

    def _sees_only(self, expr: Expr, seen: frozenset[str]) -> bool:
        """Whether an expression of a correlated block is portable and holds no query but whole ones."""
        if not facts_of(expr, self.draft).portable or not aliases_of(expr, self.draft) <= seen:
            return False
        return all(isinstance(self.placement(query, seen), Whole) for query in nested_of(expr, self.draft))

    def _is_member_by_key(self, expr: Expr, query: Query, unit: Unit) -> bool:
        """Whether `expr` is `key IN (query of keys)`: a match can only be in the row's own partition.

        Not so for NOT IN, nor under other operators, where "no match" must be told from "NULL".
        """
        inner, outer = self.placement(query, unit.aliases), unit.placement
        if not (isinstance(expr, exp.In) and isinstance(inner, Split) and isinstance(outer, Split)):
            return False
        subject = expr.this.unnest()
        if not same_form(inner, outer) or len(inner.carriers) != 1 or not isinstance(subject, exp.Column):
            return False
        by_key = column_id(subject) in outer.carriers[0] and ("", query.names[0]) in inner.carriers[0]
        return by_key and same_family(inner, outer, self.draft.catalog)

    def _place_set_operation(self, operation: SetOperation, admitted: frozenset[str]) -> Placement:
        left = self.placement(operation.left, admitted)
        right = self.placement(operation.right, admitted)
        bounded = operation.limit is not None or operation.offset > 0 or bool(operation.order)
        if bounded or isinstance(left, Merged) or isinstance(right, Merged):
            return MERGED
        if isinstance(left, Whole) and isinstance(right, Whole):
            return WHOLE
        if not (isinstance(left, Split) and isinstance(right, Split) and same_form(left, right)):
            return MERGED
        carriers = tuple(_lined_up(operation, a, b) for a, b in zip(left.carriers, right.carriers, strict=True))
        by_row = operation.kind == "union" and not operation.distinct
        if not (by_row or all(carriers)) or not same_family(left, right, self.draft.catalog):
            return MERGED
        return union_all((left, right), carriers)


def pruned(split: Split, conjunct: Expr, draft: Draft, reason: Callable[[Expr], str]) -> Split:
    """What the conjunct leaves of the relation, for that `reason`."""
    pruner = Pruner(split, draft.catalog.maps[min(split.tables)])
    allowed = pruner.constraints(conjunct)
    return split.narrowed(allowed, shorten(reason(conjunct))) if allowed else split


def reason_of(conjunct: Expr) -> str:
    """The conjunct as SQL."""
    return str(copied(conjunct).sql(ENGINE, copy=False))


def shorten(reason: str) -> str:
    """The text of a predicate for people to read."""
    return reason if len(reason) <= MAX_REASON_CHARS else f"{reason[:MAX_REASON_CHARS]} …"


def _groups_are_local(select: Select, joined: Split) -> bool:
    if select.sets is not None:
        return False
    keys = {column_id(expr) for expr in select.group if isinstance(expr, exp.Column)}
    return joined.covered_by(keys)


def _windows_are_local(select: Select, joined: Split) -> bool:
    for expr in select.upper():
        for window in expr.find_all(exp.Window):
            parts = (part.unnest() for part in window.args.get("partition_by") or ())
            if not joined.covered_by({column_id(part) for part in parts if isinstance(part, exp.Column)}):
                return False
    return True


def _outputs(select: Select, carriers: frozenset[ColumnId]) -> frozenset[ColumnId]:
    """The output columns that are one of `carriers`."""
    return frozenset(
        ("", item.name)
        for item in select.items
        if isinstance(item.expr, exp.Column) and column_id(item.expr) in carriers
    )


def _lined_up(operation: SetOperation, left: Iterable[ColumnId], right: Iterable[ColumnId]) -> frozenset[ColumnId]:
    places = {operation.left.names.index(name) for _, name in left}
    places &= {operation.right.names.index(name) for _, name in right}
    return frozenset(("", operation.names[place]) for place in places)
