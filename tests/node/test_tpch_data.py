"""TPC-H files appear complete or not at all."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ballista_py.errors import ConfigError, MissingExtra
from ballista_py.node.demo.tpch_data import TABLES, generate_tpch

pytestmark = pytest.mark.skipif(
    not (Path(sys.executable).parent / "tpchgen-cli").exists() and shutil.which("tpchgen-cli") is None,
    reason="needs tpchgen-cli",
)


def test_all_eight_tables_are_made_once_and_anew_for_another_scale(tmp_path):
    seen = []
    folder = generate_tpch(tmp_path / "data", 0.001, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (8, 8)
    assert {path.name for path in folder.glob("*.parquet")} == {f"{table}.parquet" for table in TABLES}
    assert pq.read_metadata(folder / "region.parquet").num_rows == 5
    stamp = (folder / "lineitem.parquet").stat().st_mtime_ns
    orders = pq.read_metadata(folder / "orders.parquet").num_rows
    assert generate_tpch(folder, 0.001) == folder
    assert (folder / "lineitem.parquet").stat().st_mtime_ns == stamp
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert pq.read_metadata(generate_tpch(folder, 0.002) / "orders.parquet").num_rows == 2 * orders


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="holds something else than TPC-H data"):
        generate_tpch(tmp_path, 0.001)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_scale_that_cannot_be_made_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match="tpchgen-cli could not make TPC-H at scale -1: "):
        generate_tpch(tmp_path / "data", -1)
    assert list(tmp_path.iterdir()) == []


def test_without_the_generator_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match=r"pip install 'ballista_py\[demo\]'"):
        generate_tpch(tmp_path / "data", 0.001)
