"""When to look at the sources of tables again, and what the last look found.

Several schedulers may do so at once without knowing of each other. A partition leaves its table only when two looks
in a row, at least an interval apart, do not show its value; what keeps them apart is a count in the table's map, not
a clock that two machines would have to share. Nothing here reads a source: `find` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import Factory, define, field, frozen

from ballista_py.errors import BallistaError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.ownership.reconciler import Discovery

DISCOVERY_INTERVAL_MS = 300_000.0


@frozen(kw_only=True)
class WatchReport:
    """What one tick did, by table: how many values each look found, and the `errors` of looks that failed."""

    found: Mapping[str, int] = Factory(dict)
    errors: Mapping[str, BallistaError] = Factory(dict)


@define
class _Seen:
    """The count of discoveries in a table's map, and since when this watch has known it unchanged."""

    discoveries: int
    since_ms: float


@define
class SourceWatch:
    """Looks at the source of every table whose partitions are not known beforehand, once an interval.

    `find(table, map)` gives the partition values that the source shows now. A look begins when this watch has seen
    the map's count of discoveries unchanged for `interval_ms` on its own monotonic clock, and counts only if it is
    unchanged still when it is committed; so a value that one scheduler just missed is not dropped because another
    missed it a moment later. `tick` belongs to one thread, `take` may be called by another.
    """

    find: Callable[[TableSpec, PartitionMap], Sequence[tuple[Any, ...]]]
    interval_ms: float = DISCOVERY_INTERVAL_MS
    runtime: Runtime = Factory(SystemRuntime)
    _seen: dict[str, _Seen] = field(factory=dict, init=False)
    _found: dict[str, Discovery] = field(factory=dict, init=False)  # by folder
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def tick(self, tables: Mapping[str, TableSpec], maps: Mapping[str, PartitionMap]) -> WatchReport:
        """Look at the sources that are due, one after the other. A look that fails is due again an interval later."""
        found: dict[str, int] = {}
        errors: dict[str, BallistaError] = {}
        watched = {name: table for name, table in sorted(tables.items()) if is_watched(table) and name in maps}
        self._seen = {name: seen for name, seen in self._seen.items() if name in watched}
        for name, table in watched.items():
            if not self._due(name, maps[name]):
                continue
            try:
                found[name] = self._look(table, maps[name])
            except BallistaError as error:
                errors[name] = error
            # Only now: two looks are an interval apart, however long one takes.
            self._seen[name].since_ms = self.runtime.monotonic_ms()
        return WatchReport(found=found, errors=errors)

    def take(self, table: TableSpec) -> Discovery | None:
        """What the last look at the table found, once; None if there is nothing new. (`Reconciler`'s `discover`.)"""
        with self._lock:
            return self._found.pop(table.folder, None)

    def _due(self, name: str, pmap: PartitionMap) -> bool:
        now_ms = self.runtime.monotonic_ms()
        seen = self._seen.get(name)
        if seen is None or seen.discoveries != pmap.discoveries:
            self._seen[name] = _Seen(pmap.discoveries, now_ms)
            return False
        return now_ms - seen.since_ms >= self.interval_ms

    def _look(self, table: TableSpec, pmap: PartitionMap) -> int:
        values = self.find(table, pmap)
        with self._lock:
            self._found[table.folder] = Discovery(values=values, after=pmap.discoveries)
        return len(values)


def is_watched(table: TableSpec) -> bool:
    """Whether the table has partitions that only a look at its source can tell."""
    return table.is_piped and table.distribution == "partitioned" and not table.spec.is_static
