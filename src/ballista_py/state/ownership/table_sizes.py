"""What the executors' heartbeats say of the sizes of partitions, for the planner's estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from attrs import define, evolve, field, frozen

from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.estimate.statistics import TableSizes, spreads
from ballista_py.state.members.control import HeldPartitions


@frozen(eq=False)
class _Known:
    """What the sizes of one table were made of."""

    map: PartitionMap
    reports: tuple[tuple[Owner, HeldPartitions], ...]
    sizes: TableSizes


@define(eq=False)
class KnownSizes:
    """The sizes of all tables, of which those are made anew whose map or reports are others than before.

    Not for several threads.
    """

    _known: dict[str, _Known] = field(factory=dict, init=False)
    _held: Mapping[Owner, tuple[HeldPartitions, ...]] = field(factory=dict, init=False)
    _told: dict[str, tuple[tuple[Owner, HeldPartitions], ...]] = field(factory=dict, init=False)  # by folder

    def measured(
        self,
        tables: Mapping[str, TableSpec],
        maps: Mapping[str, PartitionMap],
        held: Mapping[Owner, tuple[HeldPartitions, ...]],
    ) -> dict[str, TableSizes]:
        """As `table_sizes`, of what it said before."""
        if not is_same_held(self._held, held):
            self._held, self._told = dict(held), by_folder(held)
        known: dict[str, _Known] = {}
        for name, pmap in maps.items():
            reports, before = self._told.get(tables[name].folder, ()), self._known.get(name)
            if before is None or before.map is not pmap or not _are_same(before.reports, reports):
                last = {} if before is None else {name: before.sizes}
                said: dict[Owner, list[HeldPartitions]] = {}
                for owner, report in reports:
                    said.setdefault(owner, []).append(report)
                found = table_sizes({name: tables[name]}, {name: pmap}, said, last)[name]
                before = _Known(pmap, reports, found)
            known[name] = before
        self._known = known
        return {name: one.sizes for name, one in known.items()}


def is_same_held(
    before: Mapping[Owner, tuple[HeldPartitions, ...]], now: Mapping[Owner, tuple[HeldPartitions, ...]]
) -> bool:
    """Whether the very same reports are there, of the same executors."""
    return before.keys() == now.keys() and all(before[owner] is reports for owner, reports in now.items())


def by_folder(
    held: Mapping[Owner, Iterable[HeldPartitions]],
) -> dict[str, tuple[tuple[Owner, HeldPartitions], ...]]:
    """What is reported of each table (by its folder), in the order of the executors."""
    told: dict[str, list[tuple[Owner, HeldPartitions]]] = {}
    for owner, reports in sorted(held.items(), key=lambda item: item[0]):
        for report in reports:
            told.setdefault(report.table, []).append((owner, report))
    return {folder: tuple(reports) for folder, reports in told.items()}


def _are_same(
    before: tuple[tuple[Owner, HeldPartitions], ...], now: tuple[tuple[Owner, HeldPartitions], ...]
) -> bool:
    if before is now:
        return True
    return len(before) == len(now) and all(
        one[0] == other[0] and one[1] is other[1] for one, other in zip(before, now, strict=True)
    )


def table_sizes(
    tables: Mapping[str, TableSpec],
    maps: Mapping[str, PartitionMap],
    held: Mapping[Owner, Iterable[HeldPartitions]],
    before: Mapping[str, TableSizes],
) -> dict[str, TableSizes]:
    """Rows and bytes of every table's partitions, as reported last; pure.

    A partition of which nobody has spoken yet has the rows of its weight in the map, and no bytes. Sizes that are
    much like those `before` are the same values as before, so that nothing needs to be planned anew for them.
    """
    folders = {table.folder: name for name, table in tables.items() if name in maps}
    found = {
        name: TableSizes(maps[name].weights.copy(), np.zeros(len(maps[name]))) for name in sorted(folders.values())
    }
    told: dict[str, list[HeldPartitions]] = {}
    for _, reports in sorted(held.items()):
        for report in reports:
            if report.table in folders:
                told.setdefault(folders[report.table], []).append(report)
                _take(found[folders[report.table]], report)
    for name, reports in told.items():
        spread = spreads((float(sum(report.rows)), report.ranges) for report in reports)
        found[name] = evolve(found[name], spreads=spread)
    return {
        name: before[name] if name in before and before[name].is_like(new) else new for name, new in found.items()
    }


def _take(sizes: TableSizes, report: HeldPartitions) -> None:
    if not len(report.active) == len(report.rows) == len(report.bytes):
        return  # an executor of an earlier release does not say
    partitions = np.array(report.active, np.int64)
    known = partitions < len(sizes.rows)
    sizes.rows[partitions[known]] = np.array(report.rows, np.float64)[known]
    sizes.bytes[partitions[known]] = np.array(report.bytes, np.float64)[known]
