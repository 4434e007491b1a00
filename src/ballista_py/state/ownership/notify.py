"""What each executor is to hold, derived from what is committed and from nothing else; pure.

Notification is level-triggered: whatever an executor reports, the difference to what is committed is sent again
until there is none. So a lost message heals itself, and nobody hears of an assignment that is not committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.control import HeldPartitions, PartitionAssignment, Role, UpdatePartitions
from ballista_py.state.ownership.table_status import MAX_AHEAD


@frozen(eq=False)
class Committed:
    """What a scheduler has read: the maps and tables by name, and by name what was dropped, with its map's revision."""

    maps: Mapping[str, PartitionMap]
    tables: Mapping[str, TableSpec]
    dropped: Mapping[str, tuple[TableSpec, int]]

    def is_same(self, other: Committed | None) -> bool:
        """Whether nothing was read since."""
        return (
            other is not None
            and self.maps is other.maps
            and self.tables is other.tables
            and self.dropped is other.dropped
        )


def desired(
    maps: Mapping[str, PartitionMap], tables: Mapping[str, TableSpec], executor_id: str, instance_id: str
) -> list[UpdatePartitions]:
    """One update per table with a committed map, by table name: all that this instance is to hold of it.

    A table of which it is to hold nothing has an empty update, which unloads the rest. Every executor that does
    not own a replicated table is a replica of it.
    """
    names = sorted(maps.keys() & tables.keys())
    return [desired_of(maps[name], tables[name], executor_id, instance_id) for name in names]


def desired_of(pmap: PartitionMap, table: TableSpec, executor_id: str, instance_id: str) -> UpdatePartitions:
    """All that this instance is to hold of one table."""
    return UpdatePartitions(
        instance_id=instance_id,
        table=table,
        revision=pmap.revision,
        partitions=_assignments(pmap, table, executor_id, instance_id),
        parting=_parting(pmap, executor_id, instance_id),
        # An altered table has a map of a newer revision, though its owners are the same.
        until_heard=bool(table.definition or pmap.handed_over_by(executor_id, instance_id).size),
    )


def newer_than(
    maps: Mapping[str, PartitionMap], tables: Mapping[str, TableSpec], held: Iterable[HeldPartitions]
) -> frozenset[str]:
    """The tables of which an executor was told a newer map than these, as far as that can be."""
    told = {report.table: report.revision for report in held}
    return frozenset(
        name
        for name, pmap in maps.items()
        if pmap.revision < told.get(tables[name].folder, 0) <= pmap.revision + MAX_AHEAD
    )


def farewells(
    dropped: Mapping[str, tuple[TableSpec, int]], held: Iterable[HeldPartitions], instance_id: str
) -> list[UpdatePartitions]:
    """An empty update for each dropped table of which the executor still holds something."""
    ended = {spec.folder: (spec, revision) for spec, revision in dropped.values()}
    return [
        UpdatePartitions(
            instance_id=instance_id,
            table=ended[report.table][0],
            revision=ended[report.table][1],
            partitions=(),
        )
        for report in held
        if report.table in ended and (report.active or report.loaded)
    ]


def unsettled(updates: Iterable[UpdatePartitions], held: Iterable[HeldPartitions]) -> list[UpdatePartitions]:
    """The updates that differ from what the executor reports to hold, and so are to be sent (again)."""
    reports = {report.table: report for report in held}
    return [update for update in updates if not is_settled(update, reports.get(update.table.folder))]


def _assignments(
    pmap: PartitionMap, table: TableSpec, executor_id: str, instance_id: str
) -> tuple[PartitionAssignment, ...]:
    roles: dict[int, Role] = {}
    if table.distribution == "replicated":
        roles.update(dict.fromkeys(pmap.ids().tolist(), "replica"))
    roles.update(dict.fromkeys(pmap.replicated_at(executor_id, instance_id).tolist(), "replica"))
    roles.update(dict.fromkeys(pmap.targeted_at(executor_id, instance_id).tolist(), "target"))
    roles.update(dict.fromkeys(pmap.owned_by(executor_id, instance_id).tolist(), "owner"))
    return tuple(
        PartitionAssignment(partition=partition, path=pmap.path(partition), epoch=pmap.epoch(partition), role=role)
        for partition, role in sorted(roles.items())
    )


def _parting(pmap: PartitionMap, executor_id: str, instance_id: str) -> tuple[int, ...]:
    """What this instance owns and another one is to take over."""
    owner = (executor_id, instance_id)
    return tuple(p for p in pmap.owned_by(*owner).tolist() if pmap.target(p) not in (None, owner))


def is_settled(update: UpdatePartitions, report: HeldPartitions | None) -> bool:
    """Whether the executor reports to hold of a table what it is to hold."""
    served = {a.partition: a.epoch for a in update.partitions if a.role != "target"}
    loading = {a.partition for a in update.partitions if a.role == "target"}
    if report is None:
        return not update.partitions
    if update.until_heard and report.revision < update.revision:
        return False
    epochs = {a.partition: a.epoch for a in update.partitions}
    if any(report.parting.get(partition) != epochs.get(partition) for partition in update.parting):
        return False
    held = dict(zip(report.active, report.epochs, strict=True))
    return held == served and set(report.loaded) == loading
