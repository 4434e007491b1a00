"""What people get wrong in `partition_by`: one clear error each, in these words."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import UnsupportedExpression
from ballista_py.partitions.bucket import bucket
from ballista_py.partitions.spec import PartitionSpec

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("items", pa.list_(pa.int64())),
        ("place", pa.struct([("x", pa.int64())])),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)
ALLOWED = (
    "partition keys take bucket, cast, coalesce, date_trunc, day, hour, month, quarter, substr, truncate, year"
)
COLUMNS = "the columns are id, items, place, tags"
ERRORS = {
    "bucket(0, id)": "bucket takes 1 to 1,000,000 buckets, not 0",
    "bucket(-1, id)": "bucket takes 1 to 1,000,000 buckets, not -1",
    "bucket(1000001, id)": "bucket takes 1 to 1,000,000 buckets, not 1,000,001",
    "bucket(id, id)": "bucket needs an integer literal as its first argument, not id",
    "bucket('16', id)": "bucket needs an integer literal as its first argument, not '16'",
    "bucket(2.5, id)": "'2.5' is not a 64-bit integer",
    "bucket(8 + 8, id)": "(8 + 8) reads no column: write its value as a literal",
    "nope": f"there is no column 'nope'; {COLUMNS}",
    "bucket(16, nope)": f"there is no column 'nope'; {COLUMNS}",
    "rand()": f"function 'rand' is not allowed: {ALLOWED}",
    "now()": f"function 'now' is not allowed: {ALLOWED}",
    "uuid()": f"function 'uuid' is not allowed: {ALLOWED}",
    "bucket(16, rand())": f"function 'rand' is not allowed: {ALLOWED}",
    "current_timestamp": f"there is no column 'current_timestamp'; {COLUMNS}",
    "items": "column 'items' has type BIGINT[], which partition keys do not take",
    "bucket(16, items)": "column 'items' has type BIGINT[], which partition keys do not take",
    "place": "column 'place' has type STRUCT(x BIGINT), which partition keys do not take",
    "place.x": "'.x' is not part of a partition key",
    "tags": "column 'tags' has type MAP(VARCHAR, VARCHAR), which partition keys do not take",
}


@pytest.mark.parametrize("key", ERRORS)
def test_an_unusable_key_is_refused_in_one_sentence(key: str) -> None:
    with pytest.raises(UnsupportedExpression) as refused:
        PartitionSpec.parse([key], SCHEMA)
    assert str(refused.value) == f"partition key '{key}': {ERRORS[key]}"


@pytest.mark.parametrize("count", [0, -1, 1_000_001])
def test_an_unusable_number_of_buckets_is_refused_in_one_sentence(count: int) -> None:
    with pytest.raises(UnsupportedExpression) as refused:
        bucket(count, pa.array([1]))
    assert str(refused.value) == f"bucket takes 1 to 1,000,000 buckets, not {count:,}"


@pytest.mark.parametrize("count", [True, 2.0, "16", None])
def test_a_number_of_buckets_that_is_no_integer_is_refused_in_one_sentence(count: object) -> None:
    with pytest.raises(UnsupportedExpression) as refused:
        bucket(count, pa.array([1]))  # type: ignore[arg-type]  # that is what is tried
    assert str(refused.value) == f"bucket needs an integer literal as its first argument, not {count!r}"
