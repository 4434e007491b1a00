"""What the guide to tables in a lake says is so, on a real cluster."""

import re
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.node.cli.node_words import OPTIONS
from ballista_py.sql.parse.changes import read_change

GUIDE = (Path(__file__).parents[2] / "docs" / "guide-lake.md").read_text()


def test_each_option_of_nodes_that_it_names_is_one():
    named = set(re.findall(r"`--([a-z-]+)`", GUIDE)) | set(re.findall(r'"(lake-[a-z]+)":', GUIDE))
    assert {name.replace("-", "_") for name in named} <= OPTIONS.keys()
    assert len(named) >= 3


def test_the_declarations_in_it_are_read():
    (external,) = re.findall(r"`(CREATE EXTERNAL TABLE [^`]*)`", GUIDE)
    (using,) = re.findall(r"`(CREATE \[OR REPLACE\] TABLE t USING [^`]*)`", GUIDE)
    assert read_change(external.replace(" [OPTIONS ('name' 'value', …)]", "")).scan["path"] == "/lake/t"
    assert read_change(using.replace("[OR REPLACE] ", "").replace("…", "/t")).scan == {
        "format": "delta",
        "path": "/t",
    }


@pytest.mark.cluster
def test_its_statements_run(tmp_path):
    for number in range(4):
        rows = pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())})
        deltalake.write_deltalake(str(tmp_path / "trips"), rows, mode="append")
    (block,) = re.findall(r"```text\n(select \* from trips for version.*?)```", GUIDE, re.DOTALL)
    statements = [line.split(";")[0] for line in block.strip().splitlines()]
    with LocalCluster(schedulers=1, executors=1) as cluster, cluster.client() as client:
        cluster.create_table("trips", scan={"format": "delta", "path": str(tmp_path / "trips")})
        found = [client.sql(statement.replace("2026-01-31", "2096-01-31")) for statement in statements]
    assert (len(found[0]), found[2].column(0).to_pylist()) == (40, [0])
