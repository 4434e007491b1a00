"""Much of one thing: partitions, tables, columns, clients, rows in one partition."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from load import SCHEMA, compare, counted, rows
from outcome import Outcome

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError
from ballista_py.transport.client.client import connect

BATCH_ROWS = 400_000
BATCH_BYTES = BATCH_ROWS * 5 * 8
GB = 1 << 30
MEMORY = "2GB"


def timed(outcome: Outcome, name: str, run: Callable[[], object]) -> object:
    """What `run` gives; how long it took becomes a note."""
    began = time.monotonic()
    found = run()
    outcome.notes.append(f"{name} {time.monotonic() - began:.1f} s")
    print(f"  {outcome.notes[-1]}", file=sys.stderr, flush=True)
    return found


def many_partitions(quick: bool) -> Outcome:
    """One table with 5,000 partitions: made, filled, counted, changed; an executor dies, and all is loaded anew."""
    outcome, partitions = Outcome(), 200 if quick else 5_000
    count = 20 * partitions
    most = str(partitions)
    options = {"max-partition-assignments-per-interval": most, "max-partitions-per-executor": most}
    with LocalCluster(1, 2, ttl_ms=15_000, node_options=options) as cluster, cluster.client() as client:
        by = [f"bucket({partitions}, id)"]
        timed(outcome, "create", lambda: cluster.create_table("t", schema=SCHEMA, partition_by=by))
        timed(outcome, f"{count:,} rows in", lambda: client.ingest("t", rows(0, count)))
        timed(outcome, "count", lambda: outcome.held("t", count, *counted(client)))
        timed(outcome, "one row", lambda: client.sql(f"select * from t where id = {count - 1}"))
        timed(outcome, "atomic rows in", lambda: client.ingest("t", rows(count, count // 10), atomic=True))
        timed(outcome, "update of all", lambda: client.sql("update t set text = 'y'"))
        count += count // 10
        (ys,) = client.sql("select count(*) as n from t where text = 'y'").to_pylist()
        if ys["n"] != count:
            outcome.wrong.append(f"an update of all {count} rows changed {ys['n']}")
        cluster.kill("executor-2")
        timed(outcome, "all answered after a kill", lambda: compare(outcome, cluster, count))
    outcome.size = f"{partitions:,} partitions, 2 executors"
    return outcome


def many_tables(quick: bool) -> Outcome:
    """200 tables: made, filled, counted; all nodes are restarted; counted, dropped."""
    outcome, tables = Outcome(), 10 if quick else 200
    names = [f"t{number}" for number in range(tables)]
    with LocalCluster(1, 2, ttl_ms=3_000) as cluster:
        columns = "(id bigint not null, text varchar) partitioned by (bucket(4, id))"
        with cluster.client() as client:
            timed(outcome, "create", lambda: [client.sql(f"create table {name} {columns}") for name in names])
            timed(outcome, "rows in", lambda: [client.ingest(name, rows(0, 10)) for name in names])
            timed(outcome, "count", lambda: [outcome.held(name, 10, *counted(client, name)) for name in names])
        for node in cluster.node_ids:
            cluster.kill(node)
        timed(outcome, "start anew", lambda: [cluster.start(), cluster.wait_until_loaded()])
        with cluster.client() as client:
            for name in names:
                outcome.held(name, 10, *counted(client, name))
            timed(outcome, "drop", lambda: [client.sql(f"drop table {name}") for name in names])
            if client.tables():
                outcome.wrong.append(f"{len(client.tables())} tables are still there")
    outcome.size = f"{tables} tables of 4 partitions, 2 executors"
    return outcome


def many_columns(quick: bool) -> Outcome:
    """A table of 2,000 columns: rows in and out, a change, a column more."""
    outcome, columns, count = Outcome(), 200 if quick else 2_000, 500
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), *((f"c{n}", pa.float64()) for n in range(columns))]
    )
    sent = pa.table([range(count), *([float(n)] * count for n in range(columns))], schema=schema)
    with LocalCluster(1, 2, ttl_ms=3_000) as cluster, cluster.client() as client:
        by = ["bucket(4, id)"]
        timed(outcome, "create", lambda: cluster.create_table("t", schema=schema, partition_by=by))
        timed(outcome, "rows in", lambda: client.ingest("t", sent))
        found = timed(outcome, "all columns", lambda: client.sql("select * from t order by id"))
        if not found.equals(sent.cast(found.schema)):
            outcome.wrong.append("what came out is not what went in")
        sums = ", ".join(f"sum(c{n}) as s{n}" for n in range(columns))
        (total,) = timed(outcome, "sums of all", lambda: client.sql(f"select {sums} from t").to_pylist())
        if any(total[f"s{n}"] != n * count for n in range(columns)):
            outcome.wrong.append("a sum is wrong")
        timed(outcome, "update", lambda: client.sql("update t set c7 = -1 where id < 5"))
        timed(outcome, "column more", lambda: client.sql("alter table t add column more bigint"))
        if client.sql("select count(*) as n from t where c7 = -1 and more is null").to_pylist() != [{"n": 5}]:
            outcome.wrong.append("an update or a new column is not seen")
        outcome.held("t", count, *counted(client))
    outcome.size = f"{columns:,} columns, {count} rows"
    return outcome


def many_clients(quick: bool) -> Outcome:
    """500 clients at once, a connection each: each asks, writes and asks again; refusals say to try later."""
    outcome, clients, lock = Outcome(), 30 if quick else 500, threading.Lock()
    took: list[float] = []
    written = [0]
    with LocalCluster(2, 2, ttl_ms=5_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        start, url = threading.Barrier(clients), ",".join(cluster.addresses())

        def one(number: int) -> None:
            start.wait()
            began = time.monotonic()
            try:
                with connect(url, retry_reads=True) as client:
                    counted(client)
                    client.ingest("t", rows(number * 10, 10))
                    with lock:
                        written[0] += 10
                    least = written[0]
                    if counted(client)[0] < least:
                        outcome.wrong.append("a row was acknowledged and not seen")
            except BallistaError as error:
                with lock:
                    outcome.met(error)
                    if error.code not in ("transport.try_later", "transport.scheduler_lost"):
                        outcome.wrong.append(f"{error.code}: {error.message}")
            with lock:
                took.append(time.monotonic() - began)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not outcome.saw:
            compare(outcome, cluster, written[0])
        if any(not cluster._nodes.process(node).running for node in cluster.node_ids):
            outcome.wrong.append("a node has ended")
    outcome.size = f"{clients} clients, 2 schedulers"
    outcome.notes.append(f"three statements each: p50 {statistics.median(took):.1f} s, max {max(took):.1f} s")
    return outcome


def large_partition(quick: bool) -> Outcome:
    """One partition of 5 GB, at an executor that may take 2 GB: rows in, an answer, a change, a restart, an answer."""
    return large(0.1 if quick else 5.0)


def large(gigabytes: float) -> Outcome:
    """As `large_partition`, of that size."""
    outcome = Outcome()
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *((f"c{n}", pa.float64()) for n in range(4))])
    batches = max(2, int(gigabytes * GB / BATCH_BYTES))
    random = np.random.default_rng(1)

    def sent() -> Iterator[pa.RecordBatch]:
        for number in range(batches):
            ids = pa.array(np.arange(number * BATCH_ROWS, (number + 1) * BATCH_ROWS))
            yield pa.RecordBatch.from_arrays(
                [ids, *(pa.array(random.random(BATCH_ROWS)) for _ in range(4))], schema=schema
            )

    count = batches * BATCH_ROWS
    with LocalCluster(1, 1, ttl_ms=5_000, node_options={"memory-limit": MEMORY}) as cluster:
        cluster.create_table("t", schema=schema, partition_by=["bucket(1, id)"])
        with Peaks(cluster) as peaks, cluster.client() as client:
            reader = pa.RecordBatchReader.from_batches(schema, sent())
            timed(outcome, "rows in", lambda: client.ingest("t", reader))
            timed(outcome, "count", lambda: _held(outcome, client, count))
            timed(outcome, "sums", lambda: client.sql("select sum(c0), avg(c1), max(c2) from t"))
            timed(outcome, "update of 10 rows", lambda: client.sql("update t set c0 = -1 where id < 10"))
            cluster.kill("executor-1")
            cluster.start("executor-1")
            timed(outcome, "loaded anew", lambda: cluster.wait_until_loaded("t"))
            (found,) = client.sql("select count(*) as n from t where c0 = -1").to_pylist()
            if found["n"] != 10:
                outcome.wrong.append(f"an update of 10 rows is seen in {found['n']}")
            _held(outcome, client, count)
        size = sum(path.stat().st_size for path in Path(cluster.state_location[7:]).rglob("*.parquet"))
    outcome.size = f"1 partition, {count:,} rows, {size / GB:.1f} GB of files, memory limit {MEMORY}"
    outcome.notes += [f"{node} at most {most / GB:.1f} GB" for node, most in sorted(peaks.most.items())]
    return outcome


def _held(outcome: Outcome, client, count: int) -> None:
    text = "select count(*) as n, min(id) as l, max(id) as h, sum(id) as s from t"
    (found,) = client.sql(text).to_pylist()
    outcome.missing += max(0, count - found["n"])
    outcome.doubled += max(0, found["n"] - count)
    if (found["l"], found["h"], int(found["s"])) != (0, count - 1, count * (count - 1) // 2):
        outcome.wrong.append(f"other rows than were sent: {found}")


class Peaks:
    """The most that each node had resident inside the block, looked at ten times a second."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.most: dict[str, int] = {}
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for node in self._cluster.node_ids:
                try:
                    lines = Path(f"/proc/{self._cluster.pid(node)}/status").read_text().splitlines()
                except OSError:
                    continue
                for line in lines:
                    if line.startswith("VmRSS:"):
                        self.most[node] = max(self.most.get(node, 0), int(line.split()[1]) * 1024)
