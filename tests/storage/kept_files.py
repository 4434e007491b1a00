"""What the tests of leases share: a clock that is set, a table with a partition, and a collector of garbage."""

from __future__ import annotations

from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.garbage import find_garbage, remove_garbage

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class Clock(SystemRuntime):
    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms


class KeptFiles:
    """A table `t` with a partition, and a collector."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(runtime=self.clock)
        self.storage = PartitionStorage(self.store, "t", "expr0=0", runtime=self.clock)
        self.storage.create()
        self.storage.activate(1)

    def collect(self, meanwhile=lambda: None, hours: int = 3, folders: tuple[str, ...] = ("t",)) -> list[str]:
        """Looks as far apart as they must be, with something every five minutes; what they removed."""
        removed = []
        for _ in range(2):
            for _ in range(hours * 12):
                self.clock.now_ms += 5 * MINUTE_MS
                meanwhile()
            found = find_garbage(self.store, set(folders), runtime=self.clock)
            remove_garbage(self.store, found)
            removed += [file.key for file in found.files]
        return removed
