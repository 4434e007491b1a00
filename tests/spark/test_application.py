"""Datasets with a source in an application file: made by the Spark that runs, once, in the order that they need."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.node.app_file import read_app_file
from ballista_py.node.app_outside import applier_of, apply_app

FILE = """\
version: v1
name: shop
revision: 1
datasets:
  - name: lines
    from: lines.parquet
    colocate_with: orders
    acceleration: {partition_by: ["bucket(4, id)"]}
  - name: orders
    from: orders.csv
    params: {file_format: csv, header: true, inferSchema: true}
    description: a hundred
    acceleration: {partition_by: ["bucket(4, id)"]}
"""


@pytest.fixture
def folder(spark, tmp_path):
    pq.write_table(pa.table({"id": pa.array(range(300), pa.int64())}), tmp_path / "lines.parquet")
    (tmp_path / "orders.csv").write_text("id,kind\n" + "".join(f"{n},k{n % 3}\n" for n in range(100)))
    (tmp_path / "app.yaml").write_text(FILE)
    return tmp_path


def apply(folder, state):
    file = read_app_file(folder / "app.yaml")
    with applier_of(file, state, {}, None) as applier:
        return apply_app(file, applier), applier.tables.cluster()


def test_they_are_made_in_order_with_their_comment_and_once(folder):
    state = (folder / "state").as_uri()
    applied, cluster = apply(folder, state)
    assert [change.dataset for change in applied.changes] == ["orders", "lines"], applied.problems
    orders, lines = cluster.tables["orders"], cluster.tables["lines"]
    assert (orders.comment, orders.schema.names, lines.group) == ("a hundred", ["id", "kind"], "orders")
    assert orders.source == {
        "format": "csv",
        "header": "true",
        "inferSchema": "true",
        "path": str(folder / "orders.csv"),
    }
    again, later = apply(folder, state)
    assert (again.standing, again.changes, later.tables) == ("applied", (), cluster.tables)


def test_a_source_that_is_not_there_stops_no_other_and_is_tried_again(folder):
    state = (folder / "state").as_uri()
    (folder / "lines.parquet").rename(folder / "later.parquet")
    failed, cluster = apply(folder, state)
    assert (failed.standing, [*cluster.tables]) == ("failed", ["orders"])
    assert failed.problems[0].path == "datasets[0]"
    assert "lines.parquet" in failed.problems[0].text
    (folder / "later.parquet").rename(folder / "lines.parquet")
    applied, cluster = apply(folder, state)
    assert (applied.standing, sorted(cluster.tables)) == ("applied", ["lines", "orders"])
    assert cluster.namings == 2
