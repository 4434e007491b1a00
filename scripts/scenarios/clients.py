"""Clients that are killed in every phase of what they ask for: nothing of it goes on, and no row comes of it."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pyarrow as pa
from load import until
from outcome import Outcome

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError

ROWS = 10_000
WANTED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("k", pa.int64(), nullable=False)])
START = """
import sys, time
import pyarrow as pa
from ballista_py import connect
import adbc_driver_flightsql.dbapi as flightsql
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("k", pa.int64(), nullable=False)])
def reached():
    print("reached", flush=True)
def half():
    return pa.RecordBatchReader.from_batches(SCHEMA, batches())
def batches():
    for first in range(1_000_000, 1_400_000, 100_000):
        ids = pa.array(range(first, first + 100_000))
        yield pa.RecordBatch.from_arrays([ids, pa.array([1] * len(ids))], schema=SCHEMA)
    reached()
    time.sleep(600)
PAIRS = "select a.id, b.id as other from items a join items b on a.k = b.k"
ENDLESS = ("select {} from items a join items b on a.k = b.k join items c on b.k = c.k join items d on c.k = d.k "
           "where a.id + b.id + c.id + d.id = {}")
client = connect(sys.argv[1])
connection = flightsql.connect("grpc://" + sys.argv[1], autocommit=True)
cursor = connection.cursor()
"""
PHASES = {  # what the client does until it has said that it is there, and goes on doing
    "query that runs": "reached(); client.sql(ENDLESS.format('a.id', -1))",
    "query with a merge": "reached(); client.sql(ENDLESS.format('count(*)', -1))",
    "answer half read": "s = client.stream(PAIRS); next(iter(s)); reached(); time.sleep(600)",
    "rows half sent": "client.ingest('items', half())",
    "rows half sent, atomic": "client.ingest('items', half(), atomic=True)",
    "rows half sent, replace": "client.ingest('items', half(), mode='replace')",
    "statement prepared": "cursor.adbc_prepare('select * from items where id = ?'); reached(); time.sleep(600)",
    "prepared and running": "reached(); cursor.execute(ENDLESS.format('a.id', '?'), (-1,)); cursor.fetchone()",
    "driver, answer half read": "cursor.execute(PAIRS); cursor.fetchone(); reached(); time.sleep(600)",
    "driver, rows half sent": ("cursor.adbc_ingest('items', half(), mode='append')"),
    "parts named": "cursor.adbc_execute_partitions(PAIRS); reached(); time.sleep(600)",
    "part half read": (
        "p, _ = cursor.adbc_execute_partitions(PAIRS); cursor.adbc_read_partition(p[0]); cursor.fetchone(); reached(); "
        "time.sleep(600)"
    ),
    "change that runs": "reached(); client.sql('delete from items where id in (' + ENDLESS.format('a.id', -1) + ')')",
    "table made of a query": "reached(); client.sql('create table made as ' + ENDLESS.format('a.id', -1))",
}
QUICK = ("query with a merge", "rows half sent, atomic", "part half read")
BUSY = re.compile(r"^(?:node_tasks_active|node_open_calls)\S* [1-9]", re.MULTILINE)
GONE_S = 60.0


def vanishing_clients(quick: bool) -> Outcome:
    """A client is killed in each phase of queries, rows, prepared statements, parts: in a minute nothing is left."""
    outcome, longest = Outcome(), 0.0
    phases = QUICK if quick else tuple(PHASES)
    with LocalCluster(1, 2, ttl_ms=3_000) as cluster:
        cluster.sql("create table items (id bigint not null, k bigint not null) partitioned by (bucket(8, k))")
        cluster.ingest("items", pa.table({"id": range(ROWS), "k": [n % 64 for n in range(ROWS)]}, schema=WANTED))
        for phase in phases:
            _vanish(cluster, PHASES[phase])
            began = time.monotonic()
            try:
                until(lambda: all(_is_idle(cluster, node) for node in cluster.node_ids), GONE_S)
            except TimeoutError:
                outcome.wrong.append(f"{phase}: something goes on a minute after its client was killed")
            longest = max(longest, time.monotonic() - began)
            (found,) = cluster.sql("select count(*) as n, count(distinct id) as d from items").to_pylist()
            outcome.held(phase, ROWS, found["n"], found["d"])
            _writes_go_on(cluster, phase, outcome)
        names = set(cluster.sql("select table_name from information_schema.tables").column(0).to_pylist())
        if names != {"items"}:
            outcome.wrong.append(f"tables are {', '.join(sorted(names))}")
    outcome.size = f"{len(phases)} phases"
    outcome.notes.append(f"all calls and legs were over {longest:.1f} s after a kill at the latest")
    return outcome


def _vanish(cluster: LocalCluster, does: str) -> None:
    words = [sys.executable, "-c", START + does, cluster.addresses()[0]]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert client.stdout is not None
        said = client.stdout.readline()
        if said != "reached\n":
            raise RuntimeError(client.communicate()[1])
        time.sleep(1.0)  # what was reached goes on
        if client.poll() is not None:
            raise RuntimeError(f"it ended by itself: {client.communicate()[1]}")
    finally:
        client.kill()
        client.communicate()


def _is_idle(cluster: LocalCluster, node: str) -> bool:
    shown = cluster.shown(node, "/metrics")
    tasks = cluster.shown(node, "/tasks")["tasks"]
    return not BUSY.search(shown) and not any(task["outcome"] == "running" for task in tasks)


def _writes_go_on(cluster: LocalCluster, phase: str, outcome: Outcome) -> None:
    try:
        cluster.sql("insert into items values (-5, 1), (-6, 2), (-7, 3)", atomic=True)
        cluster.sql("delete from items where id < 0")
    except BallistaError as error:
        outcome.met(error)
        outcome.wrong.append(f"{phase}: writes do not go on: {error.message}")
