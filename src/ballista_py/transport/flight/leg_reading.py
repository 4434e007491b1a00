"""One stream of a leg, and how much of it waits to be taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
from attrs import define, field


class LegStream(Protocol):
    """One leg under way: `flight_client.FlightStream`, or anything that promises the same."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def trailer(self) -> Mapping[str, Any]: ...
    def batches(self) -> Iterator[pa.RecordBatch]: ...
    def cancel(self) -> None: ...


@define(eq=False)
class Reading:
    """A stream that is read for the leg with this number; `seen` once a batch of it was taken."""

    leg: int
    stream: LegStream
    batches: int = field(default=0, init=False)  # that wait
    bytes: int = field(default=0, init=False)
    seen: bool = field(default=False, init=False)

    def put(self, size: int) -> None:
        """One more batch waits."""
        self.batches += 1
        self.bytes += size

    def taken(self, size: int) -> None:
        """A batch that waited was taken."""
        self.batches -= 1
        self.bytes -= size
        self.seen = True
