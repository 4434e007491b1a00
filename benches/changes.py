"""What following a database costs: changes a second and lag, beside a copy of the table and a merge by deltalake.

    python benches/changes.py [--rows 100000] [--share 0.01] [--rounds 3] [--singles 30] [--jdbc JAR] [--minutes 0]
        [--scattered] [--alone]

A real PostgreSQL holds a table; a cluster of one scheduler and two executors follows it. In each round the same share
of its rows is changed (updates, moves of keys, inserts, deletes; 100 rows a transaction) while nobody reads, and then
each candidate in turn brings its own copy to that very state: `ballista_py` by the changes, by a copy anew of all
rows (`refresh("full")`) and, given the JAR of PostgreSQL's JDBC driver, by a full refresh of another table on Spark;
`deltalake` by a plain script that reads a slot of its own by psycopg and merges into a Delta table (not with
`--alone`). Changed are rows that follow each other, or `--scattered` ones of all the table. A copy is there when it
shows the row that was changed last, and then has the sums that the database has, or the run fails. Then single rows
are changed one by one and awaited. With `--minutes` the memory of the nodes is watched while rows change all the
time.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow as pa

from _measure import claim
from ballista_py import LocalCluster, SparkSettings
from ballista_py.coordinator.changes.pgoutput import RowChange, read_message

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.cluster.postgres_server import PostgresServer

PER_TRANSACTION = 100
PATIENCE_S = 3_600.0
POLL_S = 0.01
LAST = 20_000_000_000
SUMS = "select count(*) as n, sum(id) as ids, sum(v) as vs from {}"
SLOT, PUBLICATION = "bench_deltalake", "bench_deltalake"
PEEK = """
select data from pg_logical_slot_get_binary_changes(%s, null, null, 'proto_version', '1', 'publication_names', %s)"""
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64()), ("word", pa.string())])


class DeltaPeer:
    """A plain script: the changes of a slot, of each key the last one, merged into a Delta table."""

    def __init__(self, there: psycopg.Connection[Any], folder: str) -> None:
        import deltalake

        self._there, self._folder, self._lake = there, folder, deltalake
        there.execute(f"create publication {PUBLICATION} for table events")
        there.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
        rows = there.execute("select id, v, word from events").fetchall()
        columns = [list(column) for column in zip(*rows, strict=True)]
        deltalake.write_deltalake(folder, pa.table(columns, schema=SCHEMA))

    def follow(self) -> None:
        """Bring the table to where the slot is."""
        last: dict[int, tuple[Any, ...] | None] = {}
        for (data,) in self._there.execute(PEEK, [SLOT, PUBLICATION]):
            found = read_message(bytes(data))
            if not isinstance(found, RowChange):
                continue
            if found.old is not None:
                last[int(found.old[0])] = None
            if found.new is not None:
                last[int(found.new[0])] = (int(found.new[0]), int(found.new[1]), found.new[2].decode())
        come = [row for row in last.values() if row is not None]
        gone = [(key, None, None) for key, row in last.items() if row is None]
        columns = [list(column) for column in zip(*come, *gone, strict=True)]
        rows = pa.table(columns, schema=pa.schema([c.with_nullable(True) for c in SCHEMA]))
        rows = rows.append_column("gone", pa.array([False] * len(come) + [True] * len(gone)))
        (
            self._lake.DeltaTable(self._folder)
            .merge(rows, "s.id = t.id", source_alias="s", target_alias="t")
            .when_matched_delete("s.gone")
            .when_matched_update({name: f"s.{name}" for name in SCHEMA.names})
            .when_not_matched_insert({name: f"s.{name}" for name in SCHEMA.names}, predicate="not s.gone")
            .execute()
        )

    def sums(self) -> list[Any]:
        found = self._lake.DeltaTable(self._folder).to_pyarrow_table(columns=["id", "v"])
        return [len(found), pa.compute.sum(found["id"]).as_py(), pa.compute.sum(found["v"]).as_py()]


def change(there: psycopg.Connection[Any], low: int, count: int, step: int, apart: int = 1) -> None:
    """Change `count` rows from id `low` on, so far `apart`: most of them in place, some by key, some go, some come."""
    for begin in range(low, low + count * apart, PER_TRANSACTION * apart):
        ids = [begin + number * apart for number in range(PER_TRANSACTION)]
        with there.transaction():
            there.execute("update events set v = v + %s where id = any(%s)", [step, ids[:-10]])
            there.execute("delete from events where id = any(%s)", [ids[-10:-5]])
            there.execute("update events set id = -id - %s where id = any(%s)", [step, ids[-5:]])
            there.execute(
                "insert into events select n, %s, 'new' from unnest(%s::bigint[]) n", [step, ids[-10:-5]]
            )


def wanted(there: psycopg.Connection[Any]) -> list[Any]:
    return [int(value) for value in there.execute(SUMS.format("events")).fetchone() or ()]


def ours(cluster: LocalCluster, table: str) -> list[Any]:
    return [int(value) for value in cluster.sql(SUMS.format(table)).to_pylist()[0].values()]


def until_shown(client: Any, key: int) -> None:
    """Return once the table shows the row that was changed last, and so all of them."""
    end = time.monotonic() + PATIENCE_S
    while not client.sql(f"select count(*) as n from events where id = {key}")["n"][0].as_py():
        if time.monotonic() > end:
            raise SystemExit(f"row {key} does not come")
        time.sleep(POLL_S)


def timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def rounds(cluster: LocalCluster, server: PostgresServer, delta: DeltaPeer | None, args: Any, spark: bool) -> None:
    """Each candidate brings its copy to the same state, in turn. The reader's slot is not read while rows change."""
    count = int(args.rows * args.share) // PER_TRANSACTION * PER_TRANSACTION
    times: dict[str, list[float]] = {}
    with server.connect() as there:
        for number in range(args.rounds + 1):
            os.kill(
                cluster.pid("scheduler-1"), signal.SIGSTOP
            )  # all changes wait for it, as they do for the others
            if args.scattered:
                change(there, 1 + number, count, number + 1, args.rows // count)
            else:
                change(there, 1 + number * count, count, number + 1)
            there.execute("insert into events values (%s, 0, 'last')", [LAST + number])
            right = wanted(there)
            os.kill(cluster.pid("scheduler-1"), signal.SIGCONT)
            with cluster.client() as client:
                found = {"ballista_py, changes": timed(partial(until_shown, client, LAST + number))}
            assert ours(cluster, "events") == right
            if delta is not None:
                found["psycopg to deltalake, merge"] = timed(delta.follow)
                assert delta.sums() == right, (delta.sums(), right)
            with cluster.client() as client:
                found["ballista_py, copy anew"] = timed(
                    partial(client.refresh, "events", "full", timeout=PATIENCE_S)
                )
                assert ours(cluster, "events") == right
                if spark:
                    refreshed = partial(client.refresh, "spark_events", "full", timeout=PATIENCE_S)
                    found["ballista_py, full refresh on Spark"] = timed(refreshed)
                    assert ours(cluster, "spark_events") == right
            if number or not args.rounds:  # the first one warms up
                for name, seconds in found.items():
                    times.setdefault(name, []).append(seconds)
    show(times, count, args.rows)


def show(times: dict[str, list[float]], count: int, rows: int) -> None:
    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"\n{count * 11 // 10:,} changes of {rows:,} rows")
    for name, seconds in medians.items():
        print(f"  {name:<36}{seconds * 1e3:>10.0f} ms{count * 1.1 / seconds:>12,.0f} changes/s")
    mine = medians["ballista_py, changes"]
    if "psycopg to deltalake, merge" in medians:
        ratio = medians["psycopg to deltalake, merge"] / mine
        claim(">= 2x of a plain merge by deltalake", ratio >= 2, f"{ratio:.2f}x")
    full = medians.get("ballista_py, full refresh on Spark", medians["ballista_py, copy anew"])
    claim("<= 1/10 of a full refresh", mine <= full / 10, f"{mine / full:.2f} of it")


def singles(cluster: LocalCluster, server: PostgresServer, count: int) -> None:
    """From the commit of one row to the moment at which a query shows it."""
    lags = []
    with server.connect() as there, cluster.client() as client:
        for number in range(count + 1):
            there.execute("insert into events values (%s, 1, 'one')", [10_000_000_000 + number])
            begun = time.perf_counter()
            until_shown(client, 10_000_000_000 + number)
            if number:  # the first one comes upon the copy that was made anew, and warms up
                lags.append(time.perf_counter() - begun)
    lags.sort()
    p50, p99 = statistics.median(lags), lags[min(len(lags) - 1, int(len(lags) * 0.99))]
    print(f"\none row: visible after p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms of {count}")
    claim("a row is visible within 1 s", p99 <= 1, f"p99 {p99:.2f} s")


def memory(cluster: LocalCluster, server: PostgresServer, minutes: float) -> None:
    """The memory of the nodes while rows change all the time; a line a minute."""
    samples: list[float] = []
    with server.connect() as there:
        end, step = time.monotonic() + minutes * 60, 0
        noted = time.monotonic()
        while time.monotonic() < end:
            step += 1
            there.execute(
                "update events set v = v + 1 where id between %s and %s", [step % 1_000, step % 1_000 + 50]
            )
            time.sleep(0.05)
            if time.monotonic() - noted >= 60:
                noted = time.monotonic()
                samples.append(resident(cluster.pid(node) for node in cluster.node_ids) / 1e6)
                print(f"  minute {len(samples)}: {samples[-1]:.0f} MB, {step} statements", flush=True)
    if len(samples) > 1:
        half = len(samples) // 2
        early, late = statistics.median(samples[:half]), statistics.median(samples[half:])
        claim("memory is flat", late <= early * 1.1, f"{early:.0f} MB, then {late:.0f} MB")


def resident(pids: Iterable[int]) -> int:
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up; 0: that one alone")
    parser.add_argument("--singles", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--scattered", action="store_true", help="change rows of all the table")
    parser.add_argument("--alone", action="store_true", help="without deltalake")
    parser.add_argument("--jdbc", help="the JAR of PostgreSQL's driver")
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = PostgresServer(port)
    settings = SparkSettings(jars=(args.jdbc,)) if args.jdbc else SparkSettings()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(schedulers=1, executors=2, spark=settings) as cluster,
    ):
        try:
            with server.connect() as there:
                there.execute("create table events (id bigint primary key, v bigint, word text)")
                there.execute(
                    f"insert into events select n, n, md5(n::text) from generate_series(1, {args.rows}) n"
                )
                source = {"format": "postgres", "dsn": server.dsn, "table": "public.events"}
                took = timed(lambda: cluster.create_table("events", source, ["bucket(8, id)"]))
                print(f"first copy of {args.rows:,} rows: {took:.2f} s")
                if args.jdbc:
                    url = f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=postgres"
                    jdbc = {"format": "jdbc", "url": url, "dbtable": "events", "driver": "org.postgresql.Driver"}
                    cluster.create_table("spark_events", jdbc, ["bucket(8, id)"])
                installed = importlib.util.find_spec("deltalake") is not None
                delta = DeltaPeer(there, f"{folder}/delta") if installed and not args.alone else None
                rounds(cluster, server, delta, args, bool(args.jdbc))
            singles(cluster, server, args.singles)
            if args.minutes:
                memory(cluster, server, args.minutes)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
