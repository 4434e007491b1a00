"""Read jobs while nodes are killed, join and go, and the table is changed: each row of the instant once; or none."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py import LocalCluster, read_job
from ballista_py.agents.read_job import ReadPartition
from ballista_py.errors import BallistaError, SnapshotGone, TransportError, TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.liveness import SKEW_MS
from ballista_py.state.stores.store import open_store
from ballista_py.storage.reads.leases import READS_PREFIX, ReadLeases
from ballista_py.storage.upkeep.garbage import GARBAGE_KEY, GarbageMarks, find_garbage, remove_garbage

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("word", pa.string())])
ROWS, PATIENCE_S = 60_000, 120
AGENT = """
import os, pickle, sys, time
from ballista_py import read_job
job = read_job(sys.argv[1], table="t", target_bytes=10_000, lease=float(sys.argv[2]))
sys.stdout.buffer.write(pickle.dumps((job.read_id, job.partitions)))
sys.stdout.buffer.flush()
os.close(1)
time.sleep(600)
"""


def rows_of(start: int, stop: int) -> pa.Table:
    values = range(start, stop)
    return pa.table({"id": values, "v": [n % 10 for n in values], "word": [f"w{n % 7}" for n in values]}, SCHEMA)


def url_of(cluster: LocalCluster) -> str:
    return "ballista://" + ",".join(cluster.addresses())


def filled(cluster: LocalCluster) -> pa.Table:
    """The rows of a table in many files."""
    cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(12, id)"], primary_key=["id"])
    for start in range(0, ROWS, 20_000):
        cluster.ingest("t", rows_of(start, start + 20_000))
    cluster.sql("update t set v = v + 100 where id % 3 = 0")
    return cluster.sql("select * from t").sort_by("id")


def rows_read(partition: ReadPartition, process: bool) -> pa.Table:
    """All rows of a partition, read again for as long as nodes go away amid it."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return pa.Table.from_batches(partition.batches(process=process), schema=partition.schema)
        except (TransportError, TryLater):
            if time.monotonic() > until:
                raise


class Changes:
    """Somebody who changes the table until told to stop; what fails meanwhile fails."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster, self.over, self.done = cluster, threading.Event(), 0
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> Changes:
        self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.over.set()
        self.thread.join()

    def _run(self) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            update = f"update t set v = v + 1000, word = 'x{number}' where id % 4 = {number % 4}"
            delete = f"delete from t where id % 50 = {number % 50}"
            new = rows_of(ROWS + 100 * number, ROWS + 100 * (number + 1))
            for change in (
                lambda update=update: self.cluster.sql(update),
                lambda delete=delete: self.cluster.sql(delete),
                lambda new=new: self.cluster.ingest("t", new),
            ):
                with suppress(BallistaError):
                    change()
                    self.done += 1


def test_every_row_of_the_instant_is_there_once_whichever_nodes_are_killed():
    chance = random.Random(11)
    with LocalCluster(schedulers=2, executors=3, ttl_ms=2_000) as cluster:
        before = filled(cluster)
        with read_job(url_of(cluster), table="t", target_bytes=10_000) as job, Changes(cluster) as changes:
            partitions = list(job.partitions)
            assert len(partitions) > 8
            with ThreadPoolExecutor(3) as workers:
                asked = [
                    workers.submit(rows_read, partition, number % 2 == 0)
                    for _ in range(3)  # each is read three times
                    for number, partition in enumerate(partitions)
                ]
                cluster.kill("scheduler-1")  # which began it
                for _ in range(3):
                    node = chance.choice([f"executor-{n}" for n in (1, 2, 3)])
                    cluster.kill(node)
                    time.sleep(0.5)
                    assert job.renew() == job.lease_ms
                    cluster.start(node)
                found = [one.result() for one in asked]
            for turn in range(3):
                rows = pa.concat_tables(found[turn * len(partitions) : (turn + 1) * len(partitions)])
                assert rows.sort_by("id").equals(before)
            cluster.start("scheduler-1")
            assert job.renew() == job.lease_ms
            deadline = time.monotonic() + PATIENCE_S
            while not changes.done:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert job.read().sort_by("id").equals(before)


def test_partitions_that_move_to_an_executor_that_joins_are_read_on():
    with LocalCluster(schedulers=1, executors=2, ttl_ms=2_000) as cluster:
        cluster.kill("executor-2")
        before = filled(cluster)
        with read_job(url_of(cluster), table="t", target_bytes=10_000) as job, Changes(cluster):
            locations = {uri for partition in job.partitions for uri in partition.locations}
            assert len(locations) == 1
            half = len(job.partitions) // 2
            found = [rows_read(partition, False) for partition in job.partitions[:half]]
            cluster.start("executor-2")
            deadline = time.monotonic() + PATIENCE_S
            while not all(owned(cluster).values()):
                assert time.monotonic() < deadline, owned(cluster)
                time.sleep(0.2)
            found += [
                rows_read(partition, number % 2 == 0) for number, partition in enumerate(job.partitions[half:])
            ]
            assert pa.concat_tables(found).sort_by("id").equals(before)
            assert job.read().sort_by("id").equals(before)


def owned(cluster: LocalCluster) -> dict[str, int]:
    members = [row for row in cluster.members() if row["role"] == "executor"]
    return {row["node_id"]: row["partitions"] for row in members} if len(members) == 2 else {"executor-2": 0}


def left_by_an_agent(cluster: LocalCluster, lease_s: float) -> tuple[str, tuple[ReadPartition, ...]]:
    """A job whose Agent was killed when it had handed its partitions out."""
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, url_of(cluster), str(lease_s)], stdout=subprocess.PIPE, env=dict(os.environ)
    )
    try:
        assert agent.stdout is not None
        read_id, partitions = pickle.loads(agent.stdout.read())
    finally:
        agent.send_signal(signal.SIGKILL)
        agent.wait()
    return read_id, partitions


def collected(cluster: LocalCluster) -> set[str]:
    """What a collector removes of a location without tables, as if all of it had been there for a day."""
    store, long_ago = open_store(cluster.state_location), time.time() - 86_400
    for file in Path(urlparse(cluster.state_location).path, "snapshots").rglob("*"):
        if file.is_file():
            os.utime(file, (long_ago, long_ago))
    find_garbage(store, ())
    marks = ObjectState(store, GARBAGE_KEY, GarbageMarks)
    marks.update(lambda now: evolve(now, unnamed=dict.fromkeys(now.unnamed, int(1_000 * long_ago))))
    garbage = find_garbage(store, ())
    remove_garbage(store, garbage)
    return {file.key for file in garbage.files}


def test_what_a_killed_agent_left_goes_with_its_lease_and_not_before():
    """Its table was dropped, so that nothing but the job keeps its files."""
    lease_s = 6.0
    with LocalCluster(schedulers=1, executors=2, ttl_ms=2_000) as cluster:
        before = filled(cluster)
        read_id, partitions = left_by_an_agent(cluster, lease_s)
        store = open_store(cluster.state_location)
        leases = ReadLeases(store, SystemRuntime())
        named = set(leases.files(read_id, leases.read(read_id).digest).paths())
        cluster.sql("update t set v = 0, word = 'x'")
        cluster.sql("drop table t")
        until = time.monotonic() + 2 * lease_s
        while time.monotonic() < until:  # whoever has a partition renews it, though the Agent is gone
            partitions[0].renew()
            assert (collected(cluster), leases.tick()) == (set(), 0)
            time.sleep(1)
        found = pa.concat_tables([rows_read(partition, False) for partition in partitions])
        assert found.sort_by("id").equals(before)
        time.sleep(lease_s + SKEW_MS / 1_000 + 1)
        assert named <= collected(cluster)
        assert leases.tick() == 1
        assert list(store.list(READS_PREFIX)) == []
        for use in (partitions[0].to_table, partitions[0].renew):
            with pytest.raises(SnapshotGone):
                use()
