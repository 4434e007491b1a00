"""Which stream the rows of each partition go to: one an owner, for as long as a statement lasts; pure."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import numpy as np
import numpy.typing as npt

from ballista_py.partitions.map import NOBODY, Owner, PartitionMap
from ballista_py.partitions.router import PartitionRouter


@attrs.frozen(eq=False)
class RowStreams:
    """The streams of a statement so far: by number the executor (empty: rows that go nowhere) and its partitions.

    `number_of` gives the stream of each partition of the map, or NOBODY. A partition keeps its stream, so that what
    one owner is asked to apply under a token is all that the statement has for that partition.
    """

    executors: tuple[str, ...] = ()
    partitions: tuple[tuple[int, ...], ...] = ()
    number_of: npt.NDArray[np.int32] = attrs.field(factory=lambda: np.empty(0, np.int32))

    def extended(self, pmap: PartitionMap, live: Collection[Owner], skip: Collection[int] = ()) -> RowStreams:
        """With a stream for each partition that has none and a `live` owner; the rows of those in `skip` go nowhere."""
        number_of = np.full(len(pmap), NOBODY, np.int32)
        number_of[: len(self.number_of)] = self.number_of
        executors, partitions = list(self.executors), [list(found) for found in self.partitions]
        fresh: dict[str, int] = {}
        for partition in pmap.ids().tolist():
            if number_of[partition] != NOBODY:
                continue
            owner = ("", "") if partition in skip else pmap.owner(partition)
            if owner is None or (owner[0] and owner not in live):
                continue
            if owner[0] not in fresh:
                fresh[owner[0]] = len(executors)
                executors.append(owner[0])
                partitions.append([])
            partitions[fresh[owner[0]]].append(partition)
            number_of[partition] = fresh[owner[0]]
        return RowStreams(tuple(executors), tuple(tuple(found) for found in partitions), number_of)

    def router(self, pmap: PartitionMap) -> PartitionRouter:
        """What splits batches by the numbers of streams, as text; rows come partition by partition."""
        names = tuple((str(number), "") for number in range(len(self.executors)))
        by_stream = attrs.evolve(pmap, executors=names, owner_index=self.number_of[:, None])
        return PartitionRouter(pmap.spec, by_stream, by_partition=True)
