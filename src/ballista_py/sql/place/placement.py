"""Where a relation can be produced: whole by every executor, split over the legs, or at the merge only.

The rules for combining placements are those of Citus' pushdown: rows meet in a leg only if nothing that they could
meet is in another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np
from attrs import frozen

from ballista_py.partitions.map import NOBODY, REMOVED, PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.value_index import Ids
from ballista_py.sql.bind.query import ColumnId, Draft
from ballista_py.sql.plan import Catalog

Carriers: TypeAlias = tuple[frozenset[ColumnId], ...]
Allowed: TypeAlias = tuple[frozenset[Any] | None, ...]


class Whole:
    """Every executor can produce all of it."""


class Merged:
    """It exists at the merge only."""


@frozen(eq=False, kw_only=True)
class Split:
    """Each leg produces the rows of its own partitions, and no row comes from two legs.

    `carriers` holds, for every column that the partition keys read, the columns of the relation that still have
    its value (none if it was projected away). `allowed` holds, for every key, the values that any row can have
    (None: all); `reasons` say why.
    """

    family: str
    spec: PartitionSpec
    carriers: Carriers
    allowed: Allowed
    tables: frozenset[str]
    reasons: tuple[str, ...] = ()

    def under(self, alias: str) -> Split:
        """The same relation as a source called `alias`."""
        carriers = tuple(frozenset((alias, name) for _, name in names) for names in self.carriers)
        return attrs.evolve(self, carriers=carriers)

    def covered_by(self, columns: Collection[ColumnId]) -> bool:
        """Whether rows equal in `columns` are always in one partition."""
        return all(not names.isdisjoint(columns) for names in self.carriers)

    def narrowed(self, allowed: Mapping[int, frozenset[Any]], reason: str) -> Split:
        """The relation when the keys with these places can have these values only."""
        if not allowed:
            return self
        merged = tuple(_meet(old, allowed.get(place)) for place, old in enumerate(self.allowed))
        return attrs.evolve(self, allowed=merged, reasons=(*self.reasons, reason))


Placement: TypeAlias = Whole | Split | Merged
WHOLE = Whole()
MERGED = Merged()


def left_of(table: TableSpec, split: Split, draft: Draft) -> Ids | None:
    """The partitions of a table that pruning left; None if it left all."""
    key = table.name, split.allowed
    if key not in draft.pruned:
        pairs = zip(table.spec.keys, split.allowed, strict=True)
        allowed = {key.name: values for key, values in pairs if values is not None}
        draft.pruned[key] = draft.catalog.maps[table.name].matching(allowed) if allowed else None
    found: Ids | None = draft.pruned[key]
    return found


def place_table(table: TableSpec) -> Placement:
    """The placement of a base table; its carriers are under the alias ''."""
    if table.distribution == "replicated":
        return WHOLE
    columns = [column for key in table.spec.keys for column in key.columns]
    return Split(
        family=f"group {table.group}" if table.group is not None else f"table {table.name}",
        spec=table.spec,
        carriers=tuple(frozenset([("", column.name)]) for column in columns),
        allowed=(None,) * len(table.spec.keys),
        tables=frozenset([table.name]),
    )


def inner_join(left: Split, right: Split) -> Split:
    """Co-located partitions joined on their keys: every row has the key of both sides."""
    return attrs.evolve(
        left,
        carriers=tuple(a | b for a, b in zip(left.carriers, right.carriers, strict=True)),
        allowed=tuple(_meet(a, b) for a, b in zip(left.allowed, right.allowed, strict=True)),
        tables=left.tables | right.tables,
        reasons=tuple(dict.fromkeys((*left.reasons, *right.reasons))),
    )


def left_join(left: Split, right: Split) -> Split:
    """The preserved side lends its partitions; the other side's keys may be NULL where there was no match."""
    return attrs.evolve(left, tables=left.tables | right.tables)


def full_join(left: Split, right: Split) -> Split:
    """Either side's key may be NULL, so no column carries it any more."""
    return attrs.evolve(
        left,
        carriers=(frozenset(),) * len(left.carriers),
        allowed=tuple(_union(a, b) for a, b in zip(left.allowed, right.allowed, strict=True)),
        tables=left.tables | right.tables,
    )


def same_family(left: Split, right: Split, catalog: Catalog) -> bool:
    """Whether equal keys of both are in partitions of one executor, now."""
    if left.family != right.family or not left.spec.colocates_with(right.spec):
        return False
    tables = tuple(sorted(left.tables | right.tables))
    first = catalog.maps[tables[0]]
    others = (catalog.maps[name] for name in tables[1:])
    return bool(catalog.once("agree", tables, lambda: all(owners_agree(first, other) for other in others)))


def owners_agree(left: PartitionMap, right: PartitionMap) -> bool:
    """Whether each value's partitions in both maps have an executor in common, or none that is known."""
    right_ids = right.lookup(left.columns, len(left))
    left_ids = np.flatnonzero((right_ids != NOBODY) & ((left.flags & REMOVED) == 0))
    mine, theirs = left.owner_index[left_ids], right.owner_index[right_ids[left_ids]]
    names = {executor_id: place for place, executor_id in enumerate(sorted({e for e, _ in left.executors}))}
    ours = _by_name(left, names)[mine]
    others = _by_name(right, names)[theirs]
    shared = (ours[:, :, None] == others[:, None, :]) & (ours >= 0)[:, :, None]
    unowned = (ours < 0).all(axis=1) | (others[:, 0] == NOBODY)
    return bool((shared.any(axis=(1, 2)) | unowned).all())


def _by_name(pmap: PartitionMap, names: Mapping[str, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Owner indices of a map to common numbers: -2 for an executor that `names` lacks, -1 for nobody."""
    places = [names.get(executor_id, -2) for executor_id, _ in pmap.executors]
    return np.array([*places, NOBODY], np.int64)


def _meet(left: frozenset[Any] | None, right: frozenset[Any] | None) -> frozenset[Any] | None:
    if left is None or right is None:
        return left if right is None else right
    return left & right


def _union(left: frozenset[Any] | None, right: frozenset[Any] | None) -> frozenset[Any] | None:
    return None if left is None or right is None else left | right


def union_all(parts: Iterable[Split], carriers: Carriers) -> Split:
    """Rows of several splits of one family, side by side."""
    first, *others = parts
    allowed, tables = first.allowed, first.tables
    for other in others:
        allowed = tuple(_union(a, b) for a, b in zip(allowed, other.allowed, strict=True))
        tables |= other.tables
    return attrs.evolve(first, carriers=carriers, allowed=allowed, tables=tables)
