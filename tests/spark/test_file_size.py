"""No data file is much larger than asked, whatever the rows are like. Only the last test needs Spark."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.spark.file_size import _runs, rows_per_file, split_large
from ballista_py.spark.pipeline import SparkPipeline


def test_a_file_is_divided_between_its_row_groups_in_order(tmp_path: Path):
    rows = pa.table({"id": range(10_000), "nested": [{"a": [n], "b": {"x": "é"}} for n in range(10_000)]})
    path = tmp_path / "part-00007-x.parquet"
    pq.write_table(rows, path, row_group_size=1_000, compression="zstd")
    size = path.stat().st_size
    pieces = split_large(path, size // 3)
    assert len(pieces) in (4, 5)
    assert not path.exists()
    assert pieces == sorted(tmp_path.iterdir())
    assert all(piece.stat().st_size <= size // 3 + size // 10 for piece in pieces)
    assert pa.concat_tables(pq.read_table(piece) for piece in pieces).equals(rows)
    assert pq.ParquetFile(pieces[0]).metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_file_that_is_small_or_cannot_be_divided_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "part-00000-x.parquet"
    pq.write_table(pa.table({"id": range(1_000)}), path)
    assert split_large(path, 1 << 20) == [path]
    assert split_large(path, 10) == [path]


@given(st.lists(st.integers(1, 100), min_size=1), st.integers(1, 300))
def test_runs_hold_every_group_once_and_stay_within_the_bound(sizes: list[int], bound: int):
    runs = _runs(sizes, bound)
    assert [group for run in runs for group in run] == list(range(len(sizes)))
    assert all(len(run) == 1 or sum(sizes[group] for group in run) <= bound for run in runs)
    assert all(sum(sizes[group] for group in first) + sizes[second[0]] > bound for first, second in pairwise(runs))


def test_rows_are_guessed_for_every_type():
    nested = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.float64()))])
    assert rows_per_file(pa.schema([("s", nested)]), 112_000) == 1_000
    assert rows_per_file(pa.schema([("b", pa.bool_())]), 1 << 60) == 50_000_000
    assert rows_per_file(pa.schema([]), 0) == 1


@pytest.mark.spark
def test_a_large_partition_gets_several_files(spark, store, declare, partitions):
    texts = [f"{number:x}" * 40 for number in np.random.default_rng(1).integers(1 << 60, 1 << 62, 4_000).tolist()]
    frame = spark.createDataFrame(pa.table({"id": range(4_000), "text": texts}))
    table = declare(frame, "bucket(2, id)")
    pipeline = SparkPipeline(spark, store, max_file_bytes=12_000)
    report = pipeline.materialize(table, source=frame, sort_by=["id"])
    assert [written.files > 2 for written in report.partitions.values()] == [True, True, False]  # no id is null
    for value, rows in partitions.all(table, report.partitions):
        assert all(file.bytes < 60_000 for file in partitions.manifest(table, value).files)
        assert rows["id"].to_pylist() == sorted(rows["id"].to_pylist())
    assert report.rows == 4_000
