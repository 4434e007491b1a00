"""How far the executors are with what the maps ask of them.

What executors report of one table, as the reconciler asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attrs import frozen

from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.control import HeldPartitions
from ballista_py.state.ownership.table_sizes import by_folder


class Reports:
    """What executors report, found by table."""

    def __init__(self, held: Mapping[Owner, Sequence[HeldPartitions]]) -> None:
        self._told = by_folder(held)

    def of(self, folder: str) -> Mapping[Owner, Sequence[HeldPartitions]]:
        """What is said of that table."""
        found: dict[Owner, list[HeldPartitions]] = {}
        for owner, report in self._told.get(folder, ()):
            found.setdefault(owner, []).append(report)
        return found


MAX_AHEAD = 1_000_000  # no copy of a document is that many commits behind: who says more says nothing


def newest_heard(
    folder: str, reports: Mapping[Owner, Sequence[HeldPartitions]], committed: int = 0
) -> tuple[int, str]:
    """The newest revision of a table's map that an executor says it was told of, and which executor that is.

    No map read after that is older. What is further ahead of the `committed` one than a map can be counts for nothing.
    """
    told = [
        (report.revision, owner[0])
        for owner, held in reports.items()
        for report in held
        if report.table == folder and report.revision <= committed + MAX_AHEAD
    ]
    return max(told, default=(0, ""))


def loaded_in(
    folder: str, pmap: PartitionMap, reports: Mapping[Owner, Sequence[HeldPartitions]]
) -> dict[int, Owner]:
    """The partitions that their targets report to have loaded, so that they can take over."""
    found: dict[int, Owner] = {}
    for owner, held in sorted(reports.items()):
        ready = {partition for report in held if report.table == folder for partition in report.loaded}
        if ready:
            found.update((p, owner) for p in pmap.targeted_at(*owner).tolist() if p in ready)
    return found


def parting_in(
    folder: str, pmap: PartitionMap, reports: Mapping[Owner, Sequence[HeldPartitions]]
) -> dict[int, int]:
    """The partitions whose owners report to know that they are on their way elsewhere, and the epochs they said."""
    return {
        partition: epoch
        for owner, held in sorted(reports.items())
        for report in held
        if report.table == folder
        for partition, epoch in report.parting.items()
        if partition < len(pmap) and pmap.owner(partition) == owner
    }


def released_in(
    folder: str, pmap: PartitionMap, reports: Mapping[Owner, Sequence[HeldPartitions]]
) -> dict[int, int]:
    """The partitions whose former owners report to have heard of this map, and the epochs they have in it."""
    return {
        partition: pmap.epoch(partition)
        for owner, held in sorted(reports.items())
        if any(report.table == folder and report.revision >= pmap.revision for report in held)
        for partition in pmap.handed_over_by(*owner).tolist()
    }


Held = Mapping[Owner, tuple[HeldPartitions, ...]]


@frozen(kw_only=True)
class TableStatus:
    """One table: how many of its `partitions` are served by their owners, and why others are not.

    For a replicated table the count is of executors instead: all are to serve it; `owned` says whether its owner does,
    where queries of it alone are answered.
    """

    table: str
    partitions: int
    serving: int
    failed: Mapping[str, str]
    owned: bool = False

    @property
    def ready(self) -> bool:
        """Whether everything that should be served is served."""
        return self.serving == self.partitions


def table_status(
    table: TableSpec, partition_map: PartitionMap, members: Collection[Owner], held: Held
) -> TableStatus:
    """Compare the committed map with what the executors reported last; pure.

    `failed` gives a reason by `executor_id/partition path`.
    """
    serving: set[tuple[Owner, int]] = set()
    failed: dict[str, str] = {}
    for member in members:
        for holding in held.get(member, ()):
            if holding.table != table.folder or (table.definition and holding.revision < partition_map.revision):
                continue
            for partition, epoch in zip(holding.active, holding.epochs, strict=True):
                if partition < len(partition_map) and epoch >= partition_map.epoch(partition):
                    serving.add((member, partition))
            for partition, reason in holding.failed.items():
                if partition < len(partition_map):
                    failed[f"{member[0]}/{partition_map.path(partition)}"] = reason
    if table.distribution == "replicated":
        wanted = {(member, 0) for member in members}
        owned = len(partition_map) > 0 and (partition_map.owner(0), 0) in serving
    else:
        wanted = {(partition_map.owner(p) or ("", ""), p) for p in partition_map.ids().tolist()}
        owned = wanted <= serving
    serves = len(wanted & serving)
    return TableStatus(table=table.name, partitions=len(wanted), serving=serves, failed=failed, owned=owned)
