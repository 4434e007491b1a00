"""Rows on their way to the owners of their partitions: one stream an owner, opened as it is needed.

A partition goes to one stream only, for as long as the statement lasts, so that what one owner is asked to apply
under a token is all that the statement has for that partition.

Which stream the rows of each partition go to: one an owner, for as long as a statement lasts; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.map import NOBODY, Owner, PartitionMap
from ballista_py.partitions.router import PartitionRouter
from ballista_py.partitions.set_cover import unassigned
from ballista_py.partitions.values import require_short_value


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


class OutStream(Protocol):
    """One open stream of rows to an owner."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def finish(self, token: str | None = None) -> dict[str, Any]: ...
    def abort(self) -> None: ...


Open = Callable[[str, Sequence[int]], OutStream]
Among = Callable[[PartitionMap], Sequence[int]]
Known = Callable[[Sequence[tuple[Any, ...]]], tuple[PartitionMap, frozenset[Owner]]]


class RowRoutes:
    """Routes the batches of one statement. Used by one thread.

    `open_stream(executor_id, partitions)` starts a stream for these partitions. `known(values)` gives a map, and the
    live owners, in which these values have partitions and owners; it is asked for values never seen. With `among` no
    stream is for any other partition than those, though somebody makes one meanwhile.
    """

    def __init__(
        self,
        pmap: PartitionMap,
        live: frozenset[Owner],
        open_stream: Open,
        known: Known,
        skip: frozenset[int],
        among: Among | None = None,
    ) -> None:
        self._among = among
        self._open = open_stream
        self._known = known
        self._skip = skip
        self.streams: list[tuple[OutStream, set[int]]] = []  # with the partitions that it has rows for
        self._opened: dict[int, tuple[OutStream, set[int]]] = {}
        self._extend(pmap, live, RowStreams())

    def write(self, batch: pa.RecordBatch) -> None:
        """Send the rows to the owners of their partitions. Raises `PartitionsUnassigned`, and what streams raise."""
        routed = self._router.route(batch)
        rest = routed.unassigned
        if rest.num_rows:
            partitions = rest.column(rest.num_columns - 1)
            unowned = sorted(set(partitions.drop_null().to_pylist()))
            if unowned:
                raise unassigned(unowned)
            rows = rest.select(rest.schema.names[:-1])
            self._extend(*self._known(distinct_values(self._pmap, rows)), self._plan)
            self.write(rows)
        for name, part in routed.by_executor.items():
            number = int(name)
            if self._plan.executors[number]:
                stream, partitions = self._stream(number)
                partitions.update(np.unique(part.column(part.num_columns - 1).to_numpy()).tolist())
                stream.write(part)

    def open_all(self, partitions: Sequence[int]) -> None:
        """Have a stream for each of these partitions, also if no rows of theirs come."""
        for partition in partitions:
            number = int(self._plan.number_of[partition])
            if number == NOBODY:
                raise unassigned([partition])
            self._stream(number)[1].add(partition)

    def abort(self) -> None:
        """Give all streams up."""
        for stream, _ in self.streams:
            stream.abort()

    def _stream(self, number: int) -> tuple[OutStream, set[int]]:
        found = self._opened.get(number)
        if found is None:
            executor_id, partitions = self._plan.executors[number], self._plan.partitions[number]
            found = self._opened[number] = (self._open(executor_id, partitions), set())
            self.streams.append(found)
        return found

    def _extend(self, pmap: PartitionMap, live: frozenset[Owner], plan: RowStreams) -> None:
        others = set() if self._among is None else {*pmap.ids().tolist()}.difference(self._among(pmap))
        self._plan = plan.extended(pmap, live, self._skip | others)
        self._pmap, self._router = pmap, self._plan.router(pmap)


def partitions_of(pmap: PartitionMap, rows: pa.Table) -> list[int]:
    """The partitions, of those that there are, that these rows belong to."""
    if not pmap.spec.keys:
        return list(pmap.ids().tolist())
    values = {value for batch in rows.to_batches() for value in distinct_values(pmap, batch)}
    return sorted(place for place in map(pmap.index, values) if place is not None)


def distinct_values(pmap: PartitionMap, rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The partition values of the rows, each once. Raises `SchemaMismatch` for one that can name no partition."""
    columns = pmap.spec.evaluate(rows)
    try:
        found = list(dict.fromkeys(zip(*(column.to_pylist() for column in columns), strict=True)))
    except (ValueError, OverflowError):
        raise SchemaMismatch(
            f"a row of table '{pmap.table}' has a partition value beyond the years 1 to 9999, which none can have"
        ) from None
    keys = [key.expression for key in pmap.spec.keys]
    for value in found:
        require_short_value(pmap.table, keys, value)
    return found
