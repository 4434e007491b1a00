"""The digest of rows: of the rows, not of their order or batches, and of every value of every type."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from ballista_py.partitions.rows_digest import RowsDigest

DAY = datetime.date(2024, 2, 29)
# Four values of each type, all different.
COLUMNS = {
    "int8": pa.array([1, None, 3, 0], pa.int8()),
    "int64": pa.array([1, None, 3, 0]),
    "uint64": pa.array([1, None, 2**64 - 1, 0], pa.uint64()),
    "float16": pa.array(np.array([1, 2, 3, 4], np.float16)),
    "double": pa.array([1.5, float("nan"), None, 0.0]),
    "bool": pa.array([True, None, False]),
    "string": pa.array(["a", None, "", "é"]),
    "large_string": pa.array(["a", None, "", "é"], pa.large_string()),
    "string_view": pa.array(["a", None, "", "longer than twelve"], pa.string_view()),
    "binary": pa.array([b"a", None, b"", b"\0"]),
    "fixed": pa.array([b"ab", None, b"cd", b"\0\0"], pa.binary(2)),
    "decimal": pa.array([Decimal("1.10"), None, Decimal("-1.10"), Decimal(0)], pa.decimal128(20, 2)),
    "date": pa.array([DAY, None, datetime.date(1, 1, 1), datetime.date(1970, 1, 1)]),
    "far date": pa.array([2_000_000_000, None, 3, 4], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([1, None, -1, 0], pa.timestamp("us", "UTC")),
    "time": pa.array([1, None, 2, 0], pa.time64("us")),
    "interval": pa.array([(1, 2, 3), None, (0, 0, 0), (1, 0, 0)], pa.month_day_nano_interval()),
    "list": pa.array([[1], None, [], [1, 2]]),
    "list of far dates": pa.array([[2_000_000_000], None, [], [5]], pa.list_(pa.int32())).cast(
        pa.list_(pa.date32())
    ),
    "struct": pa.array([{"a": 1}, None, {"a": None}, {"a": 2}]),
    "map": pa.array([[("a", 1)], None, [], [("a", 2)]], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["a", None, "b", "c"]).dictionary_encode(),
}


def digest(rows: pa.Table, step: int = 1_000) -> str:
    found = RowsDigest()
    for batch in rows.to_batches(step):
        found.add(batch)
    return found.value


@pytest.mark.parametrize("name", COLUMNS)
def test_it_tells_every_value_and_no_order_or_batches(name):
    values = pa.chunked_array([COLUMNS[name]])
    rows = pa.table({"n": range(len(values)), "v": values})
    turned = pa.concat_tables([rows.slice(n, 1) for n in reversed(range(len(values)))])
    assert digest(rows) == digest(turned, 1)
    singles = [digest(rows.slice(n, 1).drop_columns(["n"])) for n in range(len(values))]
    assert len(set(singles)) == len(values)


def test_it_tells_how_often_a_row_is_there_and_which_values_belong_together():
    one = pa.table({"a": [1, 2], "b": [1, 2]})
    assert len({digest(pa.concat_tables([one] * n)) for n in range(1, 6)}) == 5
    assert digest(one) != digest(pa.table({"a": [1, 2], "b": [2, 1]}))
    assert digest(one) != digest(pa.table({"b": [2, 1], "a": [1, 2]}))


def test_it_never_changes():
    """Two schedulers of two releases must agree on what was sent again."""
    rows = pa.table({"a": [1, None], "s": ["x", None], "d": pa.array([Decimal("1.10"), None])})
    assert digest(rows) == "2.6d046120b663badf.07c11420a2a50b7a"


def test_it_begins_anew_when_the_rows_are_gone_through_again():
    rows = pa.table({"a": [1, 2, 3]}).to_batches()
    found = RowsDigest()
    first = [len(list(found.counted(rows))), found.value]
    assert first == [len(list(found.counted(rows))), found.value]
