"""One executor that takes nothing in holds back whoever sends rows, and grows nobody's memory."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import psutil
import pyarrow as pa
import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.string())])
BATCHES = 100
ROWS = 16_384  # a batch has 1 MiB
BOUND_BYTES = 64 << 20  # far more than the windows of one client and two executors, far less than the rows


@pytest.mark.long
def test_a_stopped_executor_holds_back_the_client_and_afterwards_every_row_is_there_once():
    drawn = []
    text = pa.array(["x" * 52] * ROWS)

    def batches():
        for number in range(BATCHES):
            drawn.append(number)
            ids = np.arange(number * ROWS, (number + 1) * ROWS)
            yield pa.record_batch([ids, text], schema=SCHEMA)

    with LocalCluster(schedulers=1, executors=2, ttl_ms=15_000) as cluster, cluster.client() as client:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        scheduler = psutil.Process(cluster.pid("scheduler-1"))
        before = scheduler.memory_info().rss
        os.kill(cluster.pid("executor-1"), signal.SIGSTOP)
        try:
            rows = pa.RecordBatchReader.from_batches(SCHEMA, batches())
            ingesting = threading.Thread(target=lambda: client.ingest("t", rows))
            ingesting.start()
            time.sleep(3)
            held_back = len(drawn)
            time.sleep(2)
            assert len(drawn) == held_back < BATCHES / 2
            assert scheduler.memory_info().rss - before < BOUND_BYTES
        finally:
            os.kill(cluster.pid("executor-1"), signal.SIGCONT)
        ingesting.join(60)
        assert not ingesting.is_alive()
        found = client.sql("select count(*) as n, count(distinct id) as ids from t").to_pylist()
        assert found == [{"n": BATCHES * ROWS, "ids": BATCHES * ROWS}]
