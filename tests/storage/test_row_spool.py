"""Rows on their way to files: nothing lost between batches, flushes and partitions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.row_spool import RowSpool

SCHEMA = pa.schema([("k", pa.int64())])


def batch(*rows: tuple[int, int]) -> pa.RecordBatch:
    """Rows as (partition, key)."""
    keys, partitions = pa.array([key for _, key in rows], pa.int64()), pa.array([p for p, _ in rows], pa.int32())
    return pa.record_batch({"k": keys, "__partition": partitions})


def spool(store: MemoryStore, **more) -> RowSpool:
    return RowSpool(store, "t", SCHEMA, SystemRuntime(), **more)


def keys(store: MemoryStore, files) -> list[int]:
    return [key for file in files for key in read_data_file(store, file, SCHEMA)["k"].to_pylist()]


@pytest.mark.parametrize(
    "first", [((1, 10), (1, 11), (2, 20)), ((2, 20), (1, 10), (1, 11))], ids=["in order", "not"]
)
def test_rows_of_several_flushes_are_in_files_of_their_own_in_their_order(first):
    store, told = MemoryStore(), []
    rows = spool(store, max_bytes=1, definition=7, on_files=told.append)
    rows.add(batch(*first))
    rows.add(batch())
    rows.add(batch((2, 21), (3, 30)))
    files = rows.finish()
    assert {partition: keys(store, files[partition]) for partition in sorted(files)} == {
        1: [10, 11],
        2: [20, 21],
        3: [30],
    }
    written = [file for partition in files.values() for file in partition]
    assert len({file.path for file in written}) == len(written) == 4
    assert {file.definition for file in written} == {7}
    assert [len(together) for together in told] == [2, 2]
    assert sorted((file.path, table.num_rows) for together in told for file, table in together) == sorted(
        (file.path, file.rows) for file in written
    )


def test_files_are_written_as_soon_as_there_is_as_much_as_was_said_and_not_before():
    one = batch((1, 10))
    store = MemoryStore()
    rows = spool(store, max_bytes=2 * one.nbytes)
    rows.add(one)
    assert list(store.list("")) == []
    rows.add(one)
    assert len(list(store.list(""))) == 1
    rows.add(one)
    assert len(list(store.list(""))) == 1
    assert [file.rows for file in rows.finish()[1]] == [2, 1]


def test_what_is_discarded_is_gone_and_told():
    store = MemoryStore()
    rows = spool(store, max_bytes=1)
    rows.add(batch((1, 10), (2, 20)))
    paths = sorted(entry.key for entry in store.list(""))
    assert len(paths) == 2
    assert sorted(rows.discard()) == paths
    assert list(store.list("")) == []
    assert rows.finish() == {}
    assert rows.discard() == []
