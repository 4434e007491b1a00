"""A partition of changes keeps its job on while it is read, whatever went in between."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.agents import table_changes
from ballista_py.agents.agent import ReadSource
from ballista_py.agents.read_job import ReadPartition
from ballista_py.agents.table_changes import ChangedPartition
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.table_read.tokens.positions import Position

SCHEMA = pa.schema([("n", pa.int64())])
LEASE_MS = 9_000


class Clock(SystemRuntime):
    now_ms = 0.0

    def monotonic_ms(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def renewed(monkeypatch, clock):
    """When the job was renewed, while each batch takes a second."""
    found = []

    class Search:
        def __init__(self, partition, runtime):
            pass

        def placed(self):
            for section in range(2):
                for row in range(5):
                    clock.now_ms += 1_000
                    yield Position(section, row), pa.record_batch({"n": [10 * section + row]}, schema=SCHEMA)

    def renew(partition, runtime=None):
        found.append(runtime.monotonic_ms())
        return LEASE_MS

    monkeypatch.setattr(table_changes, "PartitionSearch", Search)
    monkeypatch.setattr(ReadPartition, "renew", renew)
    return found


@pytest.mark.parametrize("former", [0, 1])
def test_the_job_is_renewed_while_changes_are_read(renewed, clock, former):
    partition = ReadPartition(
        source=ReadSource(url="ballista://127.0.0.1:1"), read_id="r", number=0, rows=10, data_bytes=1, schema=SCHEMA,
        base_schema=SCHEMA, plan="", relation="", passes_rows=True, locations=(), ticket=b"",
    )  # fmt: skip
    rows = pa.Table.from_batches(ChangedPartition(partition=partition, former=former).batches(clock))
    assert rows.num_rows == 10
    assert renewed == [1_000.0, 5_000.0, 9_000.0]
