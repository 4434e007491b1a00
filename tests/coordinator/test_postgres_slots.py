"""A replication slot that does not go on where the table stands: nothing is read from it, nothing skipped."""

from __future__ import annotations

from contextlib import contextmanager

import pyarrow as pa
import pytest

from ballista_py.coordinator.changes.postgres import PostgresSource
from ballista_py.errors import SourceLost
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourcePosition

AT = SourcePosition(0x10, "ballista_py_5f_1")
TABLE = TableSpec(
    name="t",
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]),
    spec=PartitionSpec.whole(),
    distribution="replicated",
    primary_key=("id",),
)


class Slot(PostgresSource):
    """A source whose database says this of the slot, and nothing else."""

    said = ()

    @contextmanager
    def _asked(self):
        def ask(statement, *parameters):
            assert "from pg_replication_slots" in statement
            return [row for row in self.said if parameters == (AT.log,)]

        yield ask


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([], "no replication slot"),
        ([("0/10", "lost")], "has thrown away log"),
        ([(None, "reserved")], "has thrown away log"),
        ([("0/11", "reserved")], "moved on to 0/11 by somebody else"),
    ],
)
@pytest.mark.parametrize("verb", ["read", "confirm"])
def test_a_slot_with_a_gap_after_what_the_table_has_is_lost(said, reason, verb):
    source = Slot("t", "postgresql://h/db", "public.t", TABLE)
    source.said = said
    with pytest.raises(SourceLost, match=reason):
        source.read(AT, 10) if verb == "read" else source.confirm(AT)


def test_a_slot_that_stands_where_the_table_does_goes_on():
    source = Slot("t", "postgresql://h/db", "public.t", TABLE)
    source.said = [("0/10", "reserved")]
    with source._asked() as ask:
        assert source._require_log(ask, AT) == AT.at
