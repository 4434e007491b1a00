"""What loading partitions took: bytes, milliseconds and failures, and a span where somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from ballista_py.figures import Figures
from ballista_py.runtime import Runtime
from ballista_py.storage.held.hydration import HydrationMeter
from ballista_py.storage.held.loads import PartitionLoad
from ballista_py.traces import spanned

Load = Callable[[str, Sequence[PartitionLoad]], list[PartitionLoad]]
_BOOTSTRAP = "dataset_acceleration_snapshot_bootstrap"


@frozen
class LoadFigures:
    """Tells `figures` what the `meter` of one holder saw. One load at a time."""

    figures: Figures
    meter: HydrationMeter
    runtime: Runtime

    def loaded(self, table: str, part: Sequence[PartitionLoad], load: Load) -> list[PartitionLoad]:
        """What `load` makes of these partitions; files that were here already count for nothing."""
        before, began_ms = self._bytes(), self.runtime.monotonic_ms()
        with spanned("load", table=table, partitions=len(part)):
            outcome = load(table, part)
        size = self._bytes() - before
        if size:
            self.figures.add(f"{_BOOTSTRAP}_bytes", size, table=table)
            self.figures.record(f"{_BOOTSTRAP}_duration_ms", self.runtime.monotonic_ms() - began_ms, table=table)
        failed = sum(bool(work.reason) for work in outcome)
        if failed:
            self.figures.add(f"{_BOOTSTRAP}_failures", failed, table=table)
        return outcome

    def _bytes(self) -> int:
        return self.meter.progress(0, 0).bytes_loaded
