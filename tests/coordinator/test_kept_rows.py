"""Rows that are kept: gone through again whole, or refused, never in part."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.errors import TransportError, TryLater


def batches(count: int) -> Iterator[pa.RecordBatch]:
    return (pa.record_batch({"a": pa.array([n] * 10, pa.int64())}) for n in range(count))


def seen(rows: KeptRows) -> list[int]:
    return [batch["a"][0].as_py() for batch in rows]


def test_rows_that_were_seen_in_part_are_gone_through_from_the_start():
    rows = KeptRows(batches(5))
    half = iter(rows)
    assert [next(half)["a"][0].as_py() for _ in range(3)] == [0, 1, 2]
    assert seen(rows) == [0, 1, 2, 3, 4]
    assert seen(rows) == [0, 1, 2, 3, 4]


def test_too_many_rows_are_handed_on_once():
    rows = KeptRows(batches(5), max_bytes=200)
    assert seen(rows) == [0, 1, 2, 3, 4]
    assert not rows.repeatable
    with pytest.raises(TryLater):
        seen(rows)


def test_a_stream_that_broke_off_is_never_taken_for_one_that_ended():
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(2)
        raise TransportError("broke off")

    rows = KeptRows(broken())
    for _ in range(2):
        with pytest.raises(TransportError):
            seen(rows)
        assert not rows.repeatable
