"""Rows that clients send to a table that is written through: claimed first, and written once whatever is lost."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from attrs import evolve
from tests.coordinator.followed import HandClock

from ballista_py.coordinator.changes.source_writer import Written
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.through import ThroughWrites
from ballista_py.errors import SourceUnavailable, SqlError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.write_tokens import WriteToken

ROWS = pa.table({"id": [1]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
TABLE = TableSpec(
    name="t",
    schema=ROWS.schema,
    spec=PartitionSpec.whole(),
    distribution="replicated",
    incarnation="5f",
    primary_key=("id",),
    source={"format": "postgres"},
    write_mode="write_through",
    write_wait="source",
)
GIVEN = WriteToken("k", ("ingest",), given=True)
MADE = WriteToken("k", ("ingest",), again=False)


class Source:
    """A writer that notes what is asked of it; the reply to its first commit is lost if `loses`."""

    def __init__(self, noted: list[str]) -> None:
        self.noted, self.loses, self.done = noted, False, {}

    def key(self):
        return ("id",)

    def known(self, token):
        return self.done.get(token)

    def write(self, token, make, limit_ms):
        self.noted.append("write")
        if self.done:
            raise SqlError("it violates a check over what it has done itself")
        self.done[token] = Written(affected=1, repeated=True)
        if self.loses:
            raise SourceUnavailable("the connection broke")
        return evolve(self.done[token], repeated=False)

    def forget(self, kept_s):
        return 0

    def close(self):
        pass


@pytest.fixture
def noted():
    return []


@pytest.fixture
def source(noted):
    return Source(noted)


@pytest.fixture
def through(noted, source):
    def sent(table, rows, token):
        return ROWS, token

    whole = SimpleNamespace(
        rounds=SimpleNamespace(runtime=HandClock(), patience_ms=10_000.0),
        max_bytes=1 << 20,
        checks=SimpleNamespace(batches=lambda table, rows: rows),
        claims=SimpleNamespace(claim=lambda folder, token: noted.append(f"claim {folder}")),
        gathered=lambda table, rows: pa.Table.from_batches(list(rows)),
        sent=sent,
    )
    keyed = SimpleNamespace(
        sent=lambda table, rows, token: (SimpleNamespace(ops=pa.array([]), old=ROWS, new=ROWS), token)
    )
    return ThroughWrites(SimpleNamespace(through=lambda name: TABLE), whole, keyed, lambda table: source)


def ingest(through, mode, token):
    return through.ingest("t", KeptRows(iter(ROWS.to_batches())), mode, token)


@pytest.mark.parametrize("mode", ["append", "upsert", "changes"])
def test_a_token_of_a_client_is_claimed_for_the_table_before_anything_is_written(through, noted, mode):
    """Or rows that are sent again, after the table was made anew over another source, would be written there, too."""
    assert ingest(through, mode, GIVEN) == 1
    assert noted == ["claim t-5f", "write"]


def test_a_commit_whose_reply_was_lost_is_told_and_not_computed_again(through, source, noted):
    source.loses = True
    assert ingest(through, "append", MADE) == 1
    assert noted == ["write"]
