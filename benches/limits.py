"""What bounds of memory and time cost, and whether they hold.

python benches/limits.py lookups --peer ../old/src    point lookups, in turns with another checkout
python benches/limits.py lookups --peer ../old/src --sql "update t set s = 'x' where id = 4711"
python benches/limits.py apart                        a statement in the node's process and in one of its own
python benches/limits.py attacks [--engine polars]    statements that take everything
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pyarrow as pa

from ballista_py import LocalCluster
from ballista_py.transport.client.client import Client

ROWS = pa.table({"id": pa.array(range(200_000), pa.int64()), "s": ["abcdefgh"] * 200_000})
MEMORY_MB = 256
PATIENCE_S = 12.0
KILLED_AFTER_S = 2.0
QUIET_CPU_S = 0.2


def names(count: int) -> range:
    return range(1, count + 1)


ATTACKS = {
    "a list of 2,000,000,000": "select len(generate_series(1, 2000000000)) x",
    "the same in every row": "select len(generate_series(1, 2000000000 + id)) x from t",
    "replace in repeat": "select max(len(replace(repeat(s, 20000), 'a', repeat('b', 10000)))) x from t",
    "one value of 400 MB": "select repeat('x', 400000000) x",
    "200,000 rows of 800 kB": "select id, repeat(s, 100000) x from t",
    "WITH doubled 22 times": "with a0 as not materialized (select 1 x)"
    + "".join(f", a{i} as not materialized (select p.x from a{i - 1} p, a{i - 1} q)" for i in names(22))
    + " select count(*) from a22",
    "names doubled 26 times": "select 1 as a0" + "".join(f", a{i - 1}+a{i - 1} as a{i}" for i in names(26)),
    "join order of 60": "select count(*) from range(3) t0"
    + "".join(f", range(3) t{i}" for i in names(60))
    + " where "
    + " and ".join(f"t{i}.range+t{j}.range=t{(i + j) % 60}.range" for i in names(60) for j in range(i)),
    "three tables crossed": "select count(*) n from t a, t b, t c where a.id + b.id + c.id < 0",
    "text of everything": "select string_agg(a.s || b.s, ',') from t a, t b",
    "list of everything": "select list(a.id order by b.s desc) from t a, t b",
    "text doubled for ever": "with recursive r(s) as (select 'x' union all select s || s from r)"
    " select max(len(s)) from r",
    "rows for ever": "with recursive r(i) as (select 1 union all select i + 1 from r) select max(i) from r",
    "everything sorted": "select * from t a, t b order by a.s || b.s || a.id::varchar",
    "a pivot": "select * from (select id, s from t) pivot (max(s) for id in (1, 2, 3))",
    "one vector for half an hour": "select max(levenshtein(repeat(s, 4000 + id % 2), repeat('b', 30000))) m from t",
    "UPDATE with repeat": "update t set s = repeat(s, 200000)",
    "UPDATE with a subquery": "update t set s = (select string_agg(a.s || b.s, ',') from t a, t b)",
    "MERGE with repeat": "merge into t using (select 1 as id) q on t.id = q.id"
    " when matched then update set s = repeat(t.s, 100000000)",
}
CLIENT = """
import sys
from ballista_py import connect
with connect(sys.argv[1]) as client:
    print("asks", flush=True)
    try:
        client.sql(sys.argv[2])
        print("answered")
    except Exception as error:
        print(type(error).__name__)
"""


def started(engine: str = "duckdb", **options: str) -> LocalCluster:
    cluster = LocalCluster(schedulers=1, executors=1, engine=engine, node_options=options)  # type: ignore[arg-type]
    cluster.__enter__()
    cluster.create_table("t", schema=ROWS.schema, partition_by=["bucket(4, id)"])
    cluster.ingest("t", ROWS)
    cluster.wait_until_loaded("t")
    return cluster


def times(client: Client, sql: str, count: int) -> list[float]:
    found = []
    for _ in range(count):
        before = time.perf_counter()
        client.sql(sql)
        found.append((time.perf_counter() - before) * 1e3)
    return found


def serve(sql: str) -> None:
    """For each line of the input, the statement so often; their times in one line of the output."""
    cluster = started()
    with cluster.client() as client:
        times(client, sql, 50)
        print("ready", flush=True)
        for line in sys.stdin:
            print(*times(client, sql, int(line)), flush=True)
    cluster.stop()


def lookups(peer: str, sql: str, rounds: int, each: int) -> None:
    sources = {
        "here": os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"),
        "peer": peer,
    }
    running = {
        name: subprocess.Popen(
            [sys.executable, __file__, "serve", "--sql", sql],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.path.abspath(source)},
        )
        for name, source in sources.items()
    }
    found: dict[str, list[float]] = {name: [] for name in running}
    for one in running.values():
        assert one.stdout is not None
        one.stdout.readline()
    for _ in range(rounds):
        for name, one in running.items():
            assert one.stdin is not None
            assert one.stdout is not None
            print(each, file=one.stdin, flush=True)
            found[name] += map(float, one.stdout.readline().split())
    for name, one in running.items():
        assert one.stdin is not None
        one.stdin.close()
        one.wait()
        quantiles = statistics.quantiles(found[name], n=20)
        print(
            f"{name}: p50 {statistics.median(found[name]):.2f} ms, p95 {quantiles[18]:.2f} ms of {len(found[name])}"
        )


def apart(each: int) -> None:
    cluster = started()
    with cluster.client() as client:
        for name, sql in {
            "one row, in the process": "select upper(s) as s from t where id = 4711",
            "one row, apart": "select repeat(s, 2) as s from t where id = 4711",
            "200,000 rows, in the process": "select max(len(s || s)) as n from t",
            "200,000 rows, apart": "select max(len(repeat(s, 2))) as n from t",
        }.items():
            first = times(client, sql, 1)[0]
            print(f"{name}: first {first:.0f} ms, then p50 {statistics.median(times(client, sql, each)):.2f} ms")
    cluster.stop()


def family(node: psutil.Process) -> Iterator[psutil.Process]:
    yield node
    yield from node.children(recursive=True)


def resident_mb(node: psutil.Process) -> int:
    found = 0
    for process in family(node):
        try:
            found += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return found >> 20


def cpu_s(nodes: list[psutil.Process]) -> float:
    found = 0.0
    for process in (process for node in nodes for process in family(node)):
        try:
            found += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return found


def attack(cluster: LocalCluster, sql: str, patience_s: float) -> str:
    """Run it by a client that is killed after `patience_s`; what was seen."""
    nodes = [psutil.Process(cluster.pid(name)) for name in cluster.node_ids]
    most, over_s, ended, gone = 0, 0.0, "", None
    command = [sys.executable, "-c", CLIENT, f"ballista://{cluster.addresses()[0]}", sql]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        client.stdout.readline()
        begun = last = time.monotonic()
        while client.poll() is None and time.monotonic() - begun < patience_s:
            time.sleep(0.05)
            sizes, now = max(map(resident_mb, nodes)), time.monotonic()
            over_s += now - last if sizes > MEMORY_MB + 512 else 0.0
            most, last = max(most, sizes), now
        client.kill()
        ended = client.stdout.read().strip() or "killed"
    killed = time.monotonic()
    with cluster.client() as asking:
        while gone is None and time.monotonic() - killed < 60:
            before = cpu_s(nodes)
            time.sleep(0.3)
            if not any(t["outcome"] == "running" for t in asking.tasks()) and cpu_s(nodes) - before < QUIET_CPU_S:
                gone = time.monotonic() - killed - 0.3
        alive = asking.sql("select count(*) as c from t where id < 50")["c"].to_pylist() == [50]
    late = f"{gone:.1f}" if gone is not None else ">60"
    return f"{most} | {over_s:.1f} | {killed - begun:.1f} | {ended} | {late} | {'yes' if alive else 'NO'}"


def attacks(engine: str, only: str) -> None:
    options = {"max-merge-bytes": str(MEMORY_MB << 20)}
    if engine == "duckdb":
        options["memory-limit"] = f"{MEMORY_MB}MB"
    cluster = started(engine, **options)
    print(
        "| attack | peak MB | s beyond +512 MB | s | client | s until gone | answers |\n|---|---|---|---|---|---|---|"
    )
    for name, sql in ATTACKS.items():
        if only in name:
            print(f"| {name} | {attack(cluster, sql, PATIENCE_S)} |", flush=True)
            print(f"| {name}, client killed | {attack(cluster, sql, KILLED_AFTER_S)} |", flush=True)
    cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["lookups", "apart", "attacks", "serve"])
    parser.add_argument("--peer", default="")
    parser.add_argument("--engine", default="duckdb")
    parser.add_argument("--only", default="")
    parser.add_argument("--sql", default="select s from t where id = 4711")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--each", type=int, default=50)
    given = parser.parse_args()
    if given.what == "serve":
        serve(given.sql)
    elif given.what == "lookups":
        lookups(given.peer, given.sql, given.rounds, given.each)
    elif given.what == "apart":
        apart(given.each)
    else:
        attacks(given.engine, given.only)


if __name__ == "__main__":
    main()
