"""What a run of the pipeline wrote, and which partitions came out far too large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from ballista_py.storage.manifest import DataFile

SKEW_FACTOR = 4.0
MIN_SKEWED_BYTES = 16 << 20
MAX_NAMED = 5


@frozen(kw_only=True)
class WrittenPartition:
    """What a run wrote for one partition."""

    rows: int
    bytes: int
    files: int

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> WrittenPartition:
        """What these files hold."""
        return cls(
            rows=sum(file.rows for file in files), bytes=sum(file.bytes for file in files), files=len(files)
        )


@frozen(kw_only=True)
class SkewedPartition:
    """A partition that is far above the mean: `times_the_mean` of the bytes of the others."""

    value: tuple[Any, ...]
    rows: int
    bytes: int
    times_the_mean: float

    def __str__(self) -> str:
        named = ", ".join("null" if item is None else str(item) for item in self.value)
        return (
            f"partition ({named}) holds {self.rows:,} rows in {self.bytes / 1e6:,.1f} MB, "
            f"{self.times_the_mean:,.1f} times the mean of the others"
        )


@frozen(kw_only=True)
class MaterializeReport:
    """What a run wrote, by partition value in the order of their numbers; its files lie under `run_id`.

    After an append that is what was added; partitions that got no rows may be left out. One that is `repeated` changed
    nothing: an earlier run under its token counts.
    """

    table: str
    run_id: str
    partitions: Mapping[tuple[Any, ...], WrittenPartition] = field(repr=False)
    repeated: bool = False

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(partition.rows for partition in self.partitions.values())

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(partition.bytes for partition in self.partitions.values())

    def skewed(
        self, factor: float = SKEW_FACTOR, min_bytes: int = MIN_SKEWED_BYTES
    ) -> tuple[SkewedPartition, ...]:
        """The partitions with more than `factor` times the mean bytes of the others, largest first.

        One owner holds and one task writes each of them alone. Those below `min_bytes` hurt nobody and are left out.
        """
        total, others = self.bytes, len(self.partitions) - 1
        found = [
            SkewedPartition(value=value, rows=part.rows, bytes=part.bytes, times_the_mean=part.bytes / mean)
            for value, part in self.partitions.items()
            if others and part.bytes >= min_bytes
            if part.bytes > factor * (mean := max(1.0, (total - part.bytes) / others))
        ]
        return tuple(sorted(found, key=lambda part: (-part.bytes, str(part.value))))

    def skew_text(self) -> str | None:
        """The skewed partitions in one sentence for people, the largest named; None if there are none."""
        found = self.skewed()
        if not found:
            return None
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        named = "; ".join(map(str, found[:MAX_NAMED]))
        return f"table '{self.table}': {named}{more}. Take a key that spreads the rows, such as bucket(N, column)"
