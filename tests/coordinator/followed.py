"""A table in memory that follows a source: the real rules and reader over rows that a test can look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.changes.batches import read_changes
from ballista_py.coordinator.changes.net import filled, net_of
from ballista_py.coordinator.changes.reader import ChangeReader
from ballista_py.coordinator.changes.source import DescribedSource
from ballista_py.coordinator.changes.sources import open_changes
from ballista_py.errors import PositionMoved
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.decisions import SourcePosition, SourceSpan


class HandClock(SystemRuntime):
    """The real machine with a clock moved by hand; sleeping moves it."""

    now_ms = 1_000.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms


@define(eq=False)
class FollowedInMemory:
    """Rows by their keys, and the position that came with them."""

    table: TableSpec
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(factory=dict)
    at: SourcePosition | None = None

    @property
    def name(self) -> str:
        return self.table.name

    def position(self) -> SourcePosition | None:
        return self.at

    def copy(self, rows: Iterable[pa.RecordBatch], span: SourceSpan, token: str) -> None:
        come = pa.Table.from_batches(list(rows), schema=self.table.schema)
        self._at(span)
        self.rows = {}
        self._put(come)
        assert len(self.rows) == len(come)

    def apply(self, changes: pa.Table, span: SourceSpan, token: str) -> None:
        read = read_changes(self.table, changes.to_batches())
        base = pa.Table.from_pylist(list(self.rows.values()), schema=self.table.schema)
        net = net_of(self.table, filled(self.table, read, base))
        self._at(span)
        if net.replaces:
            self.rows = {}
        for key in net.gone.to_pylist():
            self.rows.pop(self._key(key), None)
        self._put(net.come)

    def _at(self, span: SourceSpan) -> None:
        if span.since != self.at:
            raise PositionMoved.at(self.name, span.since, self.at)
        self.at = span.to

    def _put(self, rows: pa.Table) -> None:
        self.rows.update({self._key(row): row for row in rows.to_pylist()})

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.table.primary_key)


def following(
    source: dict[str, Any], primary_key: Iterable[str] = (), runtime: Runtime | None = None, **more: Any
) -> tuple[FollowedInMemory, ChangeReader, DescribedSource]:
    """A table made of what the source says that it is, and who reads it."""
    runtime = runtime or SystemRuntime()
    described = open_changes("t", source, runtime).describe(tuple(primary_key))
    table = TableSpec(
        name="t",
        schema=described.schema,
        spec=PartitionSpec.whole(),
        distribution="replicated",
        source=source,
        primary_key=described.primary_key,
    )
    opened = open_changes("t", source, runtime, table)
    followed = FollowedInMemory(table)
    return followed, ChangeReader(followed, opened, **more), opened


def tick_out(reader: ChangeReader) -> int:
    """Tick until nothing is left; how many changes that were."""
    changes = 0
    while (progress := reader.tick()).did != "nothing":
        changes += progress.changes
    return changes
