"""The files of a leg, once everything that was decided before its moment counts in them.

A partition may come to an executor, or come anew, between the look at what waits in it and the moment at which its
files are named. Then nobody has looked, and a statement over several partitions would be seen in the others only. So
it is asked of each partition by itself: that an attempt was looked at in one says nothing of another. What was found to
count must wait nowhere when the files are named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeAlias

from ballista_py.errors import NotOwner
from ballista_py.sql.plan import Leg
from ballista_py.storage.held.holdings import Holdings

LOOKS = 10
Waiting: TypeAlias = tuple[str, int, str]  # table, partition, and an attempt that waits in it for its decision


class DecidedFilesHolder(Protocol):
    """What is asked of the holder; `PartitionHolder` is one."""

    def waiting(self, leg: Leg) -> frozenset[Waiting]: ...
    def files_if(self, leg: Leg, undecided: Collection[Waiting]) -> dict[str, list[int]] | None: ...


def decided_files(
    holder: DecidedFilesHolder, leg: Leg, look: Callable[[], Collection[Waiting]]
) -> dict[str, list[int]]:
    """The file ids that hold the rows of a leg as of its moment; `look` lets count what waits here and was decided.

    It gives what it let count, which is not to wait any more. Raises what `look` and `PartitionHolder.files_for` raise,
    and `NotOwner` when there was something else each time.
    """
    for _ in range(LOOKS):
        waiting = holder.waiting(leg)
        counts = look()
        files = holder.files_if(leg, waiting.difference(counts))
        if files is not None:
            return files
    raise NotOwner("what is to be read here changes all the time: plan the query again")


def waiting_in(leg: Leg, tables: Mapping[str, Holdings]) -> frozenset[Waiting]:
    """What waits for a decision in what a leg reads as the owner; pure."""
    return frozenset(
        (wanted.table, partition, attempt)
        for wanted in leg.tables
        if wanted.sequence is not None and (holdings := tables.get(wanted.table)) is not None
        for partition in wanted.partitions
        if (held := holdings.held.get(partition)) is not None and held.assignment.role == "owner"
        for attempt in (*held.prepared, *held.outside)
    )


def has_unasked_replicas(leg: Leg, tables: Mapping[str, Holdings]) -> bool:
    """Whether a replica was not compared with its manifest since the leg's moment was known; pure."""
    return any(
        wanted.sequence is not None and held.assignment.role == "replica" and held.known_to < wanted.sequence
        for wanted in leg.tables
        if (holdings := tables.get(wanted.table)) is not None and not holdings.table.is_piped
        for partition in wanted.partitions
        if (held := holdings.held.get(partition)) is not None
    )
