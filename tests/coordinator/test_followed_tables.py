"""Whoever reads a source for a table touches no other table that has its name later."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.writes.target_tables import TargetTables
from ballista_py.errors import SqlError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
FIRST = TableSpec(
    name="events",
    schema=SCHEMA,
    spec=PartitionSpec.parse(["bucket(2, id)"], SCHEMA),
    source={"format": "postgres", "dsn": "postgresql://a", "table": "public.a"},
    incarnation="one",
    primary_key=("id",),
)


class Catalog:
    def __init__(self, *tables: TableSpec) -> None:
        self._view = SimpleNamespace(catalog=SimpleNamespace(tables={table.name: table for table in tables}))

    def refresh(self, _words: object) -> SimpleNamespace:
        return self._view


def test_a_table_is_followed_under_each_of_its_definitions():
    assert FIRST.by_changes
    for now in (FIRST, evolve(FIRST, definition=3)):
        assert TargetTables(Catalog(now), None, None).followed("events", FIRST.folder) == now


@pytest.mark.parametrize(
    "now",
    [
        [],
        [evolve(FIRST, incarnation="two")],
        [evolve(FIRST, incarnation="two", source={**FIRST.source, "table": "public.b"})],
        [evolve(FIRST, source=None)],
    ],
)
def test_another_table_of_its_name_is_not_touched(now):
    with pytest.raises(SqlError, match="table 'events' was dropped, or another one has its name"):
        TargetTables(Catalog(*now), None, None).followed("events", FIRST.folder)
