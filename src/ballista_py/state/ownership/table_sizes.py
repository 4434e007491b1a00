"""What the executors' heartbeats say of the sizes of partitions, for the planner's estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from attrs import evolve

from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.estimate.column_ranges import spreads
from ballista_py.sql.estimate.table_sizes import TableSizes
from ballista_py.state.members.control import HeldPartitions


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
