"""How far the executors are with what the maps ask of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import frozen

from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.control import HeldPartitions

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
