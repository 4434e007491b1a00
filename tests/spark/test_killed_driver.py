"""The pipeline's process killed with `kill -9` at each step of a full refresh and of an append, on a real Spark."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from ballista_py.spark.watermark import Watermark
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import visible_files

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

DRIVER = """
import os, signal, sys
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark import runs
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.session import embedded_session
from ballista_py.spark.watermark import Watermark
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import Publication

location, step, mode = sys.argv[1:]

def killed(owner, name, after=0):
    verb, left = getattr(owner, name), [after]
    def stop(*arguments, **named):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return verb(*arguments, **named)
    setattr(owner, name, stop)

match step:
    case "before-files": killed(runs, "write_partitions")
    case "after-files": killed(Publication, "publish")
    case "two-prepared": killed(PartitionStorage, "prepare_run", 2)
    case "all-prepared": killed(TableDecisions, "commit")
    case "decided": killed(Publication, "finish")
    case "one-folded": killed(PartitionStorage, "fold", 1)
    case "folded": killed(TableDecisions, "settle")
    case _: assert step == "whole"
options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
spark = embedded_session(master="local[1]", memory="512m", options=options)
frame = spark.range(0, 200, 1, 2)
pipeline = SparkPipeline(spark, LocalStore(location))
schema = pipeline.describe("events", frame)
table = TableSpec(name="events", schema=schema, spec=PartitionSpec.parse(["bucket(4, id)"], schema))
mark = Watermark("id")
pipeline.refresh(table, mode=mode, source=frame, watermark=mark, token="second")
"""
STEPS = ["before-files", "after-files", "two-prepared", "all-prepared", "decided", "one-folded", "folded"]


@pytest.mark.parametrize(
    ("mode", "step"), [*(("full", step) for step in STEPS), ("append", "two-prepared"), ("append", "decided")]
)
def test_readers_see_all_old_or_all_new_and_the_next_run_completes(
    spark, declare, pipeline, partitions, store, tmp_path, step, mode
):
    old = spark.range(100)
    table = declare(old, "bucket(4, id)")
    mark = Watermark("id")
    pipeline.materialize(table, source=old, watermark=mark)
    ended = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path / "state"), step, mode], timeout=800)
    assert ended.returncode == -signal.SIGKILL
    assert _rows(store, table) == (200 if step in ("decided", "one-folded", "folded") else 100)
    new = spark.range(200)
    pipeline.refresh(table, mode=mode, source=new, watermark=mark, token="second")
    assert _rows(store, table) == 200
    assert sorted(partitions.every_row(table)["id"].to_pylist()) == list(range(200))
    assert all(decision.settled for decision in TableDecisions(store, table.folder).read().decisions)


def _rows(store, table) -> int:
    """What a reader counts."""
    decisions = TableDecisions(store, table.folder).read()
    paths = [table.spec.path(value) for value in table.spec.static_values()]
    manifests = [PartitionStorage(store, table.folder, path).read().document for path in paths]
    return sum(file.rows for manifest in manifests for file in visible_files(manifest, decisions))
