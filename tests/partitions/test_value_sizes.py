"""How large values are: counted by powers of two, and what no table takes is named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.conform import conform
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.value_sizes import LargeValues, first_too_large, may_be_large, value_sizes, windows

LONG = "x" * 9_000
COLUMNS = {
    "text": pa.array(["a", LONG, None]),
    "large text": pa.array(["a", LONG, None], pa.large_string()),
    "bytes": pa.array([b"a", LONG.encode(), None], pa.large_binary()),
    "view": pa.array(["a", LONG, None]).cast(pa.string_view()),
    "dictionary": pa.array(["a", LONG, None]).dictionary_encode(),
    "list": pa.array([["a"], [LONG, "b"], None]),
    "list of numbers": pa.array([[1], [2] * 2_000, None]),
    "list of lists": pa.array([[["a"]], [["b"], [LONG]], None]),
    "map": pa.array([[("a", "b")], [("a", LONG)], None], pa.map_(pa.string(), pa.string())),
    "struct": pa.array([{"a": "b"}, {"a": LONG}, None], pa.struct([("a", pa.string())])),
    "fixed lists": pa.array([["a", "b"], ["a", LONG], None], pa.list_(pa.string(), 2)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_large_value_is_found_wherever_it_is(name):
    column = COLUMNS[name]
    assert may_be_large(column.type)
    sizes = value_sizes(column)
    assert sizes[1] >= 9_000
    assert max(sizes[0], sizes[2]) < 50
    assert LargeValues.of(column).largest == 16_384
    assert first_too_large(column, 8_000)[0] == 1
    assert first_too_large(column, 20_000) is None
    assert value_sizes(column[1:2])[0] == sizes[1]  # a slice has the sizes of its own rows
    assert not LargeValues.of(column[:1]).counts


@pytest.mark.parametrize("kind", [pa.int64(), pa.bool_(), pa.timestamp("us"), pa.decimal128(38, 2), pa.binary(16)])
def test_values_of_one_size_cost_nothing(kind):
    assert not may_be_large(kind)
    assert not LargeValues.of(pa.nulls(100_000, kind)).counts


def test_what_stands_together_is_the_largest_of_all():
    both = LargeValues.all_of([LargeValues({20: 3}), LargeValues({13: 5_000, 20: 1})])
    assert both.counts == {20: 4, 13: 5_000}
    assert both.together(2) == 2 << 20
    assert both.together(10) == (4 << 20) + 6 * (1 << 13)
    assert both.together(1_000_000) == (4 << 20) + 5_000 * (1 << 13)


def test_windows_hold_all_rows_once_and_little_each():
    sizes = np.random.default_rng(5).integers(0, 3_000, 10_000).astype(float)
    sizes[77] = 1e7
    found = windows(sizes, 100_000, 500)
    assert [start for start, _ in found[1:]] == [end for _, end in found[:-1]]
    assert (found[0][0], found[-1][1]) == (0, 10_000)
    assert all(end - start <= 500 for start, end in found)
    assert all(sizes[start:end].sum() - sizes[start:end].max() <= 100_000 for start, end in found)
    assert windows(np.zeros(0), 10, 10) == []


def test_a_table_takes_no_value_beyond_the_bound():
    schema = pa.schema([("id", pa.int64()), ("x", pa.string())])
    table = TableSpec(name="t", schema=schema, spec=PartitionSpec.whole(), distribution="replicated")
    rows = pa.record_batch({"id": [1, 2], "x": ["a" * (16 << 20), "b"]}, schema=schema)
    assert conform(table, rows).num_rows == 2
    rows = pa.record_batch({"id": [1, 2], "x": ["b", "a" * ((16 << 20) + 1)]}, schema=schema)
    with pytest.raises(SchemaMismatch, match=r"row 8 has a value of 16,777,217 bytes in column 'x' of table 't'"):
        conform(table, rows, 7)
    assert conform(table, rows, max_value_bytes=None).num_rows == 2
