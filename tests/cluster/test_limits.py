"""Memory and time of statements: what one takes too much of ends it alone, and a vanished client's work ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import psutil
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import MergeTooLarge, SchemaMismatch, TimeLimit, WriteIncomplete

pytestmark = pytest.mark.cluster

MEMORY_MB = 256
SLACK_MB = 768  # of which 512 are promised: other work of the machine delays who looks
ROWS = pa.table({"id": pa.array(range(100_000), pa.int64()), "s": ["abcdefgh"] * 100_000})
PATIENCE_S = 90.0
# Nothing interrupts one vector of it, which takes half an hour.
ON_EXECUTORS = "select max(levenshtein(repeat(s, 4000 + id % 2), repeat('b', 30000))) as m from t"
AT_SCHEDULER = "select max(levenshtein(repeat('a', 30000 + i % 2), repeat('b', 30000))) as m from range(9999) r(i)"

UPDATE = (
    "update t set s = (select max(levenshtein(repeat(b.s, 4000 + id % 2), repeat('b', 30000)))::varchar from t b)"
)


@pytest.fixture(scope="module")
def cluster(resident_mb):
    memory = {"max-merge-bytes": str(MEMORY_MB << 20), "memory-limit": f"{MEMORY_MB}MB"}
    with LocalCluster(schedulers=1, executors=2, node_options=memory) as made:
        made.create_table("t", schema=ROWS.schema, partition_by=["bucket(4, id)"])
        made.ingest("t", ROWS)
        made.wait_until_loaded("t")
        made.pids = {name: made.pid(name) for name in made.node_ids}
        made.resident_mb = resident_mb
        yield made
        assert made.pids == {name: made.pid(name) for name in made.node_ids}


class Watched:
    """The resident memory of each node with its children, while the block runs; another statement goes on in it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self.most_mb = 0
        self.answered = 0

    def __enter__(self):
        self._threads = [threading.Thread(target=work) for work in (self._sample, self._ask)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _sample(self):
        while not self._over.wait(0.05):
            self.most_mb = max(self.most_mb, *map(self._cluster.resident_mb, self._cluster.pids.values()))

    def _ask(self):
        with self._cluster.client() as client:
            while not self._over.is_set():
                assert client.sql("select count(*) as c from t where id < 50")["c"].to_pylist() == [50]
                self.answered += 1


def test_rows_that_share_a_value_take_what_they_are_when_they_are_written_out(cluster):
    """64 kB on their way stand for 640 MB; 4 MB that stood for 1.6 GB took a scheduler of 512 MB to 3.4 GB."""
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array(["y" * 64_000]))
    with cluster.client() as client:
        client.sql("create table shared (id bigint, s varchar) partitioned by (bucket(2, id))")
        with Watched(cluster) as watched:
            rows = pa.table({"id": pa.array(range(10_000), pa.int64()), "s": shared})
            assert client.ingest("shared", rows) == 10_000
        assert client.sql("select count(*) as n from shared").to_pylist() == [{"n": 10_000}]
        assert len(client.sql("select s from shared where id = 9999")["s"][0].as_py()) == 64_000
        client.sql("drop table shared")
    assert watched.most_mb < MEMORY_MB + SLACK_MB
    assert watched.answered


def workers_of(cluster: LocalCluster) -> set[int]:
    """The processes of engines that are alive and have work."""
    nodes = [psutil.Process(pid) for pid in cluster.pids.values()]
    return {child.pid for node in nodes for child in node.children(recursive=True)}


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def nothing_runs(cluster: LocalCluster) -> bool:
    with cluster.client() as client:
        return not any(task["outcome"] == "running" for task in client.tasks())


@pytest.mark.parametrize(
    "sql",
    [
        "select len(generate_series(1, 2000000000)) as n",
        "select max(len(generate_series(1, 2000000000 + id))) as n from t",
        "select id, repeat(s, 200000) as s from t",
        "select string_agg(a.s || b.s, ',') as s from t a, t b",
        "with recursive r(s) as (select 'x' union all select s || s from r) select max(len(s)) as n from r",
        "update t set s = (select string_agg(a.s || b.s, ',') from t a, t b)",
        "update t set s = repeat(s, 100000000)",
        "delete from t where id < -len(generate_series(1, 2000000000))",
        "insert into t select id, repeat(s, 100000000) from t",
        "create table made as select len(generate_series(1, 2000000000)) as n",
        "merge into t using (select 1 as id) q on t.id = q.id when matched then update set s = repeat(t.s, 100000000)",
    ],
)
def test_a_statement_that_takes_all_memory_fails_alone(cluster, sql):
    with Watched(cluster) as watched, pytest.raises((MergeTooLarge, WriteIncomplete), match="memory"):
        cluster.sql(sql)
    assert watched.most_mb < MEMORY_MB + SLACK_MB
    until(lambda: nothing_runs(cluster))
    assert cluster.sql("select count(distinct s) as c from t")["c"].to_pylist() == [1]


@pytest.fixture(scope="module")
def large(cluster):
    columns = pa.schema([("id", pa.int64()), ("x", pa.string())])
    cluster.create_table("w", schema=columns, partition_by=["bucket(1, id)"])
    for first in range(0, 24, 4):
        texts = [os.urandom(2_000_000).hex() for _ in range(4)]
        cluster.ingest("w", pa.table({"id": range(first, first + 4), "x": texts}, schema=columns))
    return cluster


@pytest.mark.parametrize(
    "sql",
    [
        "select max(length(x || x || x || x || x || x || x || x)) as n from w",
        "select max(length(upper(x) || lower(y))) as n from (select a.x, b.x as y from w a join w b on a.id < b.id) q",
        "select x from w order by x",
    ],
)
def test_values_that_are_large_in_the_table_take_no_more(large, sql):
    with Watched(large) as watched:
        try:
            large.sql(sql)
        except MergeTooLarge:  # a node of this size may have too little for it
            watched.most_mb = max(watched.most_mb, 1)
    assert 0 < watched.most_mb < MEMORY_MB + SLACK_MB
    until(lambda: nothing_runs(large))


def test_no_statement_makes_a_value_that_is_too_large(large):
    with pytest.raises((SchemaMismatch, WriteIncomplete, MergeTooLarge), match=r"bytes in column 'x'|memory"):
        large.sql("update w set x = x || x || x || x || x where id = 3")
    with pytest.raises(SchemaMismatch, match=r"row 1 has a value of 17,000,000 bytes in column 'x' of table 'w'"):
        large.ingest("w", pa.table({"id": pa.array([50, 51], pa.int64()), "x": ["a", "b" * 17_000_000]}))
    assert large.sql("select max(length(x)) as n from w where id = 3")["n"].to_pylist() == [4_000_000]


CLIENT = """
import sys
from ballista_py import connect
with connect(sys.argv[1]) as client:
    print("asks", flush=True)
    client.sql(sys.argv[2])
"""


@pytest.mark.parametrize(
    "sql",
    [ON_EXECUTORS, AT_SCHEDULER, UPDATE],
    ids=["legs", "merge", "update"],
)
def test_the_work_of_a_killed_client_ends_though_nothing_interrupts_it(cluster, sql):
    url = f"ballista://{cluster.addresses()[0]}"
    before = workers_of(cluster)
    with subprocess.Popen([sys.executable, "-c", CLIENT, url, sql], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.readline()
        until(lambda: client.poll() is not None or any(busy(pid) for pid in workers_of(cluster) | before))
        client.kill()
    until(lambda: nothing_runs(cluster) and not any(busy(pid) for pid in workers_of(cluster)))


def busy(pid: int) -> bool:
    """Whether a process of an engine works; one that starts is counted, too, and is done in a moment."""
    try:
        process = psutil.Process(pid)
        before = process.cpu_times().user
        time.sleep(0.5)
        return process.cpu_times().user - before > 0.05
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("sql", [ON_EXECUTORS, AT_SCHEDULER, UPDATE])
def test_a_statement_ends_with_the_time_that_its_client_gives_it(cluster, sql):
    with cluster.client() as client:
        with pytest.raises(TimeLimit, match="timeout"):
            client.sql(sql, timeout=1.5)
        until(lambda: nothing_runs(cluster) and not any(busy(pid) for pid in workers_of(cluster)))
        assert client.sql("select count(*) as c from t", timeout=60)["c"].to_pylist() == [100_000]
