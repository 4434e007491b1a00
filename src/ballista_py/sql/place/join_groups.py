"""Which FROM items of a block can meet where their rows are.

A *unit* is a run of sources that one leg can join over its own partitions, with the conjuncts that it can apply.
A block with a single unit and nothing left over is joined in the legs; otherwise the units meet at the merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
from attrs import Factory, define, field
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    aliases_of,
    all_of,
    conjuncts,
    copied,
    disjuncts,
    equated_columns,
    facts_of,
)
from ballista_py.sql.bind.query import ColumnId, Draft, Expr, JoinKind, Select, Source, column
from ballista_py.sql.place.placement import (
    MERGED,
    WHOLE,
    Merged,
    Placement,
    Split,
    Whole,
    full_join,
    inner_join,
    left_join,
    same_family,
)


@define(eq=False)
class Unit:
    """Sources joined in the leg. `join` and `on` say how the unit joins the others at the merge."""

    sources: list[Source]
    placement: Placement
    where: list[Expr] = Factory(list)
    join: JoinKind = "inner"
    on: list[Expr] = Factory(list)
    _aliases: frozenset[str] = field(init=False, default=frozenset())

    @property
    def aliases(self) -> frozenset[str]:
        if len(self._aliases) != len(self.sources):  # they are unique, and sources are only added
            self._aliases = frozenset(source.alias for source in self.sources)
        return self._aliases


class Equalities:
    """Columns that are equal in every row of a block, by transitive closure."""

    def __init__(self, pairs: Iterable[tuple[ColumnId, ColumnId]]) -> None:
        self._class_of: dict[ColumnId, set[ColumnId]] = {}
        self._stated: set[frozenset[ColumnId]] = set()
        for left, right in pairs:
            self._stated.add(frozenset((left, right)))
            self.add(left, right)

    def add(self, left: ColumnId, right: ColumnId) -> None:
        """Note that two columns are equal."""
        merged = self._class_of.get(left, {left}) | self._class_of.get(right, {right})
        for member in merged:
            self._class_of[member] = merged

    def include(self, other: Equalities) -> None:
        """Note all that `other` knows."""
        for member, equals in other._class_of.items():
            for equal in equals:
                self.add(member, equal)

    def is_stated(self, left: ColumnId, right: ColumnId) -> bool:
        """Whether the block itself equates the two columns."""
        return frozenset((left, right)) in self._stated

    def between(self, left: frozenset[str], right: frozenset[str]) -> tuple[ColumnId, ColumnId] | None:
        """The first two equal columns, one of each group of sources."""
        for member in sorted(self._class_of):
            if member[0] in left:
                for other in sorted(self._class_of[member]):
                    if other[0] in right:
                        return member, other
        return None

    def same(self, left: ColumnId, right: ColumnId) -> bool:
        """Whether the two columns are equal."""
        return left == right or right in self._class_of.get(left, ())

    def meets(self, left: frozenset[ColumnId], right: frozenset[ColumnId]) -> bool:
        """Whether some column of `left` equals some column of `right`."""
        return any(not right.isdisjoint(self._class_of.get(member, {member})) for member in left)


def null_supplied(sources: Sequence[Source]) -> frozenset[str]:
    """The sources whose columns an outer join of the block may turn into NULL."""
    found: set[str] = set()
    for place, source in enumerate(sources):
        if source.join in ("left", "full"):
            found.add(source.alias)
        if source.join in ("right", "full"):
            found.update(before.alias for before in sources[:place])
    return frozenset(found)


def is_reorderable(select: Select) -> bool:
    """Whether inner joins and filters of the block may be moved past each other: no RIGHT or FULL join."""
    return all(source.join in ("inner", "left") for source in select.sources)


def pooled(select: Select) -> list[Expr]:
    """The conjuncts that every row of the block satisfies: WHERE and, if they may move there, inner ON."""
    pool = list(select.where)
    if is_reorderable(select):
        for source in select.sources:
            if source.join == "inner":
                pool.extend(source.on)
    return pool


def equalities_of(select: Select) -> Equalities:
    """What WHERE and inner joins equate, between columns that no outer join touches."""
    touched = null_supplied(select.sources)
    pairs = (equated_columns(conjunct) for conjunct in pooled(select))
    return Equalities(pair for pair in pairs if pair and pair[0][0] not in touched and pair[1][0] not in touched)


def colocated(left: Placement, right: Placement, equal: Equalities, draft: Draft) -> bool:
    """Whether rows of two splits that satisfy the equalities are always in one leg."""
    if not (isinstance(left, Split) and isinstance(right, Split) and same_form(left, right)):
        return False
    if not all(equal.meets(a, b) for a, b in zip(left.carriers, right.carriers, strict=True)):
        return False
    if not same_family(left, right, draft.catalog):
        draft.note(
            f"tables {', '.join(sorted(left.tables | right.tables))} are not joined in place: "
            "some of their equal partitions have different owners at the moment"
        )
        return False
    return True


def same_form(left: Split, right: Split) -> bool:
    """Whether two splits have keys of one family, so that their carriers correspond."""
    return left.family == right.family and len(left.carriers) == len(right.carriers)


def form_units(select: Select, placements: dict[str, Placement], draft: Draft) -> list[Unit]:
    """The sources of a block in as few units as the joins allow; conjuncts of WHERE are not in them yet."""
    if is_reorderable(select):
        return _fold_inner(select, placements, draft)
    return _fold_outer(select, placements, draft)


def _fold_inner(select: Select, placements: dict[str, Placement], draft: Draft) -> list[Unit]:
    equal = equalities_of(select)
    units: list[Unit] = []
    for source in select.sources:
        placement = placements[source.alias]
        if source.join == "left":
            _add_left(units, source, placement, equal, draft)
        else:
            # Its ON is among the pooled conjuncts, which are applied wherever their columns meet.
            bare = attrs.evolve(source, on=()) if source.on else source
            _add_inner(units, Unit([bare], placement), equal, draft)
    _absorb_whole(units)
    _pair_whole(units, select)
    return units


def _add_inner(units: list[Unit], unit: Unit, equal: Equalities, draft: Draft) -> None:
    for other in list(units):
        if other.join == "inner" and colocated(other.placement, unit.placement, equal, draft):
            assert isinstance(other.placement, Split)
            assert isinstance(unit.placement, Split)
            where = [*other.where, *unit.where, *_key_equalities(other.placement, unit.placement, equal)]
            unit = Unit([*other.sources, *unit.sources], inner_join(other.placement, unit.placement), where)
            units.remove(other)
    units.append(unit)


def _key_equalities(left: Split, right: Split, equal: Equalities) -> Iterator[Expr]:
    """The equalities of keys that follow only by transitivity; without them the leg would join by a product."""
    for mine, theirs in zip(left.carriers, right.carriers, strict=True):
        pairs = sorted((a, b) for a in mine for b in theirs if equal.same(a, b))
        if not any(equal.is_stated(a, b) for a, b in pairs):
            yield exp.EQ(this=column(*pairs[0][0]), expression=column(*pairs[0][1]))


def _add_left(units: list[Unit], source: Source, placement: Placement, equal: Equalities, draft: Draft) -> None:
    needed = frozenset[str]().union(*(aliases_of(conjunct, draft) for conjunct in source.on)) - {source.alias}
    hosts = [unit for unit in units if not needed.isdisjoint(unit.aliases)]
    if len(hosts) > 1 and all(unit.join == "inner" for unit in hosts) and _combines(hosts):
        hosts = [_combined_whole(units, hosts)]
    if not hosts and len(units) == 1:
        hosts = list(units)
    local = all(_is_plain(conjunct, draft) for conjunct in source.on)
    if len(hosts) == 1 and local and needed <= hosts[0].aliases and _may_join_first(hosts[0], source):
        joined = _left_placement(hosts[0].placement, placement, source, equal, draft)
        if not isinstance(joined, Merged):
            hosts[0].sources.append(source)
            hosts[0].placement = joined
            return
    units.append(Unit([source], placement, join="left", on=list(source.on)))


def _may_join_first(host: Unit, source: Source) -> bool:
    """Whether a source may be joined to the unit before the unit itself is joined to what stands left of it.

    `(a LEFT JOIN b) LEFT JOIN c` is `a LEFT JOIN (b LEFT JOIN c)` only if no row of `c` meets one of `a` that has no
    `b`: if the condition is not true where all columns of `b` are NULL, as `b.x IS NOT DISTINCT FROM c.x` may be.
    """
    return host.join == "inner" or any(
        isinstance(conjunct, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE)
        and any(
            isinstance(side, exp.Column) and side.table in host.aliases
            for side in (conjunct.this, conjunct.expression)
        )
        for conjunct in source.on
    )


def _left_placement(
    left: Placement, right: Placement, source: Source, equal: Equalities, draft: Draft
) -> Placement:
    if isinstance(left, Merged) or isinstance(right, Merged):
        return MERGED
    if isinstance(right, Whole):
        return left
    with_on = Equalities(pair for pair in map(equated_columns, source.on) if pair)
    with_on.include(equal)
    if isinstance(left, Split) and colocated(left, right, with_on, draft):
        return left_join(left, right)
    return MERGED


def _combines(units: Sequence[Unit]) -> bool:
    """Whether a leg can join all of them: they are whole, but for one that may be split."""
    partial = [unit for unit in units if not isinstance(unit.placement, Whole)]
    return not partial or (len(partial) == 1 and isinstance(partial[0].placement, Split))


def _combined_whole(units: list[Unit], hosts: list[Unit]) -> Unit:
    """One unit of several that combine; sources keep their order of joining."""
    rank = sorted(hosts, key=lambda unit: isinstance(unit.placement, Whole))
    sources = [source for unit in rank for source in unit.sources]
    combined = Unit(sources, rank[0].placement, [part for unit in rank for part in unit.where])
    for unit in hosts:
        units.remove(unit)
    units.append(combined)
    return combined


def _absorb_whole(units: list[Unit]) -> None:
    """Join whole relations into the only unit that is not; what would meet at the merge anyway stays apart."""
    inner = [unit for unit in units if unit.join == "inner"]
    if len(inner) == len(units) and len(inner) > 1 and _combines(inner):
        _combined_whole(units, inner)


def _pair_whole(units: list[Unit], select: Select) -> None:
    """Join whole relations that the block equates with each other: one leg gives less than two tables."""
    for conjunct in pooled(select) if len(units) >= 3 else ():
        pair = equated_columns(conjunct)
        if pair is None or len(units) < 3:
            continue
        sides = [unit for unit in units for alias, _ in pair if alias in unit.aliases]
        if len({id(unit) for unit in sides}) == 2 and all(
            isinstance(unit.placement, Whole) and unit.join == "inner" for unit in sides
        ):
            _combined_whole(units, sides)


def _fold_outer(select: Select, placements: dict[str, Placement], draft: Draft) -> list[Unit]:
    """Left to right as written; the sources after the first join that no leg can do stay single."""
    units: list[Unit] = []
    for source in select.sources:
        placement = placements[source.alias]
        if not units:
            units.append(Unit([source], placement))
            continue
        joined = MERGED if len(units) > 1 else _outer_placement(units[0], placement, source, draft)
        if isinstance(joined, Merged):
            units.append(Unit([source], placement, join=source.join, on=list(source.on)))
        else:
            units[0].sources.append(source)
            units[0].placement = joined
    return units


def _outer_placement(unit: Unit, right: Placement, source: Source, draft: Draft) -> Placement:
    left, seen = unit.placement, unit.aliases | {source.alias}
    for conjunct in source.on:
        if not _is_plain(conjunct, draft) or not aliases_of(conjunct, draft) <= seen:
            return MERGED
    if isinstance(left, Merged) or isinstance(right, Merged):
        return MERGED
    if isinstance(left, Whole) and isinstance(right, Whole):
        return WHOLE
    if isinstance(right, Whole):
        return left if source.join in ("inner", "left") else MERGED
    if isinstance(left, Whole):
        return right if source.join in ("inner", "right") else MERGED
    on = Equalities(pair for pair in map(equated_columns, source.on) if pair)
    assert isinstance(left, Split)
    assert isinstance(right, Split)
    if not colocated(left, right, on, draft):
        return MERGED
    if source.join == "inner":
        return inner_join(left, right)
    if source.join == "left":
        return left_join(left, right)
    return left_join(right, left) if source.join == "right" else full_join(left, right)


def implied(conjunct: Expr, unit: Unit, draft: Draft) -> Expr | None:
    """What a disjunction over several units implies for one of them: the OR of each branch's own conjuncts."""
    branches = list(disjuncts(conjunct))
    if len(branches) < 2:
        return None
    kept: list[Expr] = []
    for branch in branches:
        mine = [
            part for part in conjuncts(branch)
            if _is_plain(part, draft) and _only_of(part, unit, draft)
        ]  # fmt: skip
        condition = all_of(map(copied, mine))
        if condition is None:
            return None
        kept.append(condition)
    joined = kept[0]
    for condition in kept[1:]:
        joined = exp.Or(this=joined, expression=condition)
    return joined


def _is_plain(expr: Expr, draft: Draft) -> bool:
    facts = facts_of(expr, draft)
    return facts.portable and not facts.nested


def _only_of(part: Expr, unit: Unit, draft: Draft) -> bool:
    used = aliases_of(part, draft)
    return bool(used) and used <= unit.aliases
