"""Rows on their way to the owners of their partitions: one stream an owner, opened as it is needed.

A partition goes to one stream only, for as long as the statement lasts, so that what one owner is asked to apply
under a token is all that the statement has for that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
import pyarrow as pa

from ballista_py.planning.partition_map import NOBODY, Owner, PartitionMap
from ballista_py.planning.router import PartitionRouter
from ballista_py.planning.selector import unassigned


class OutStream(Protocol):
    """One open stream of rows to an owner."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> dict[str, Any]: ...
    def abort(self) -> None: ...


Open = Callable[[str, Sequence[int]], OutStream]
Known = Callable[[Sequence[tuple[Any, ...]]], tuple[PartitionMap, frozenset[Owner]]]


class RowRoutes:
    """Routes the batches of one statement. Used by one thread.

    `open_stream(executor_id, partitions)` starts a stream for these partitions. `known(values)` gives a map, and the
    live owners, in which these values have partitions and owners; it is asked for values never seen.
    """

    def __init__(
        self, pmap: PartitionMap, live: frozenset[Owner], open_stream: Open, known: Known, skip: frozenset[int]
    ) -> None:
        self._open = open_stream
        self._known = known
        self._skip = skip
        self.streams: list[tuple[OutStream, set[int]]] = []  # with the partitions that it has rows for
        self._owners: list[tuple[str, list[int]]] = []  # by stream number, of those that are or may be opened
        self._opened: dict[int, tuple[OutStream, set[int]]] = {}
        self._stream_of = np.empty(0, np.int32)
        self._extend(pmap, live)

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
            self._extend(*self._known(distinct_values(self._pmap, rows)))
            self.write(rows)
        for name, part in routed.by_executor.items():
            number = int(name)
            if self._owners[number][0]:
                stream, partitions = self._stream(number)
                partitions.update(np.unique(part.column(part.num_columns - 1).to_numpy()).tolist())
                stream.write(part)

    def open_all(self, partitions: Sequence[int]) -> None:
        """Have a stream for each of these partitions, also if no rows of theirs come."""
        for partition in partitions:
            number = int(self._stream_of[partition])
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
            executor_id, partitions = self._owners[number]
            found = self._opened[number] = (self._open(executor_id, partitions), set())
            self.streams.append(found)
        return found

    def _extend(self, pmap: PartitionMap, live: frozenset[Owner]) -> None:
        """Give every partition that has no stream yet one of its owner's; those that have one keep it."""
        before = self._stream_of
        self._stream_of = np.full(len(pmap), NOBODY, np.int32)
        self._stream_of[: len(before)] = before
        fresh: dict[str, int] = {}
        for partition in pmap.ids().tolist():
            if self._stream_of[partition] != NOBODY:
                continue
            owner = pmap.owner(partition)
            if partition in self._skip:
                owner = ("", "")  # applied already: its rows go nowhere
            elif owner not in live or owner is None:
                continue
            number = fresh.get(owner[0])
            if number is None:
                number = fresh[owner[0]] = len(self._owners)
                self._owners.append((owner[0], []))
            self._owners[number][1].append(partition)
            self._stream_of[partition] = number
        self._pmap = pmap
        names = tuple((str(number), "") for number in range(len(self._owners)))
        by_stream = attrs.evolve(pmap, executors=names, owner_index=self._stream_of[:, None])
        self._router = PartitionRouter(pmap.spec, by_stream, by_partition=True)


def distinct_values(pmap: PartitionMap, rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The partition values of the rows, each once."""
    columns = pmap.spec.evaluate(rows)
    return list(dict.fromkeys(zip(*(column.to_pylist() for column in columns), strict=True)))
