"""A time zone that there is not is refused by its name, and lists fit lists however Arrow keeps them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.coordinator.tables.held_columns import require_columns
from ballista_py.errors import ConfigError, SchemaMismatch
from ballista_py.partitions.conform import check_columns, conform
from ballista_py.partitions.expression.time_zones import is_zone
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec

NOWHERE = ("Nowhere/Land", "utc", "Z", "+25:00", "+02", "../../etc/passwd", "A" * 300, "x\x1b[2J", "\0", "/")
THERE = ("UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "EST5EDT", "Etc/GMT+5", "+00:00", "-11:30")
ROWS = {
    "list": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
    "large_list": pa.array([[1, 2], None, []], pa.large_list(pa.int64())),
}


def table(kind):
    schema = pa.schema([("a", kind)])
    return TableSpec(name="t", schema=schema, spec=PartitionSpec.whole(), distribution="replicated")


def around(kind):
    """The type, and others with it inside."""
    return (
        kind,
        pa.list_(kind),
        pa.map_(pa.string(), kind),
        pa.struct([("b", pa.list_(pa.struct([("c", kind)])))]),
    )


@pytest.mark.parametrize("zone", NOWHERE)
def test_no_table_is_made_and_no_row_taken_with_a_zone_that_there_is_not(zone):
    for kind in around(pa.timestamp("us", zone)):
        with pytest.raises(
            ConfigError, match=r"column 'a': '.*' is not a time zone: name one such as 'UTC'"
        ) as found:
            require_columns("t", pa.schema([("a", kind)]))
        assert found.value.message.isprintable()
        assert len(found.value.message) < 250
    with pytest.raises(SchemaMismatch, match=r"column 'a' of the rows: '.*' is not a time zone"):
        check_columns(table(pa.timestamp("us", "UTC")), pa.schema([("a", pa.timestamp("s", zone))]))


@pytest.mark.parametrize("zone", THERE)
def test_zones_that_there_are_and_offsets_are_taken(zone):
    assert is_zone(zone)
    for kind in around(pa.timestamp("us", zone)):
        require_columns("t", pa.schema([("a", kind)]))
    check_columns(table(pa.timestamp("us", "UTC")), pa.schema([("a", pa.timestamp("s", zone))]))


@pytest.mark.parametrize("given", ROWS)
@pytest.mark.parametrize("declared", ROWS)
def test_lists_fit_lists_however_arrow_keeps_them(given, declared):
    wanted = table(ROWS[declared].type)
    batch = pa.record_batch({"a": ROWS[given]})
    check_columns(wanted, batch.schema)
    found = conform(wanted, batch)
    assert found.schema == wanted.schema
    assert found["a"].to_pylist() == [[1, 2], None, []]


def test_lists_of_one_length_are_others():
    with pytest.raises(SchemaMismatch, match=r"is BIGINT\[2\] in the rows, table 't' declares BIGINT\[\]"):
        check_columns(table(pa.list_(pa.int64())), pa.schema([("a", pa.list_(pa.int64(), 2))]))
    with pytest.raises(
        SchemaMismatch, match=r"is list_view<item: int64> in the rows, table 't' declares list<item: int64>"
    ):
        check_columns(table(pa.list_(pa.int64())), pa.schema([("a", pa.list_view(pa.int64()))]))
