"""What replaces rows of some partitions asks no owner for another one, though somebody makes one in between."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import evolve

from ballista_py.coordinator.writes.row_routes import RowRoutes
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("j", pa.int64(), nullable=False)])
SPEC = PartitionSpec.parse(["k", "j"], SCHEMA)
OWNER = ("e", "i")


def held(*values: tuple[int, int]) -> PartitionMap:
    pmap = PartitionMap.build("t", SPEC, list(values))
    return evolve(pmap, executors=(OWNER,), owner_index=np.zeros((len(values), 1), np.int32))


class Stream:
    def __init__(self, opened: list[int], partitions) -> None:
        opened.extend(partitions)

    def write(self, batch) -> None: ...
    def finish(self, token=None): ...
    def abort(self) -> None: ...


def test_streams_are_for_the_replaced_partitions_of_the_newest_map():
    opened: list[int] = []
    first, later = held((1, 1), (2, 1)), held((1, 1), (2, 1), (1, 7), (2, 7))  # (2, 7) is somebody else's

    def among(pmap: PartitionMap) -> list[int]:
        return pmap.matching({"expr0": [1]}).tolist()

    routes = RowRoutes(
        first,
        frozenset([OWNER]),
        lambda _executor, partitions: Stream(opened, partitions),
        lambda _values: (later, frozenset([OWNER])),
        frozenset(),
        among,
    )
    routes.write(pa.record_batch([pa.array([1, 1]), pa.array([1, 7])], schema=SCHEMA))
    routes.open_all(among(later))
    assert sorted(opened) == [0, 2]


def test_without_a_choice_a_stream_is_for_all_that_its_owner_has():
    opened: list[int] = []
    routes = RowRoutes(
        held((1, 1), (2, 1)),
        frozenset([OWNER]),
        lambda _executor, partitions: Stream(opened, partitions),
        lambda _values: (held((1, 1), (2, 1)), frozenset([OWNER])),
        frozenset(),
    )
    routes.write(pa.record_batch([pa.array([1]), pa.array([1])], schema=SCHEMA))
    assert opened == [0, 1]
