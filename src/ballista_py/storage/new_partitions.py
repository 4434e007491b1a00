"""The manifests of partitions that are about to be named: many at the same time, as long as somebody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.values import require_short_value
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.work import require_wanted

RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def make_manifests(
    store: ConditionalStore,
    table: TableSpec,
    values: Iterable[tuple[Any, ...]],
    runtime: Runtime,
    run_all: RunAll = map,
) -> None:
    """Make an empty manifest for each value that has none.

    `run_all` works as `map` does, on several at the same time. Raises `SchemaMismatch`, before it makes anything, for
    a value that is too large to name a partition; what the store raises; and as `Work.check` once
    nobody waits for it or its time is over: what was made by then belongs to no partition, and is found by the next
    statement that names these values.
    """

    values = list(values)
    for value in values:
        require_short_value(table.name, [key.expression for key in table.spec.keys], value)

    def make(value: tuple[Any, ...]) -> None:
        require_wanted()
        PartitionStorage(store, table.folder, table.spec.path(value), runtime=runtime).create()

    for _ in run_all(make, values):
        pass
