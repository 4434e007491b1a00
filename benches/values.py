"""What nodes take for statements over very large values: their memory with that of their processes, sampled, and VmHWM.

python benches/values.py [--engine polars] [--only NAME]
"""

from __future__ import annotations

import argparse
import os
import threading
import time

import psutil
import pyarrow as pa

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError

MEMORY_MB = 512
LARGE, ROWS = 8_000_000, 36
MIDDLE, MANY = 20_000, 6_000
SHAPES = {
    "plain": "select x from w",
    "point": "select x from w where id = 7",
    "put together": "select x||x||x||x||x as y from w",
    "put together, aggregated": "select max(length(x||x||x||x||x)) as y from w",
    "functions": "select length(upper(reverse(x))) as y from w",
    "sorted by it": "select x from w order by x",
    "distinct": "select count(distinct x) as y from w",
    "grouped": "select x, count(*) as y from w group by x",
    "joined": "select max(length(a.x || b.x)) as y from w a, w b",
    "joined with many": "select max(length(a.x || b.m)) as y from w a, v b",
    "joined, plain": "select a.x from w a, v b",
    "string_agg": "select length(string_agg(x, ',')) as y from w",
    "list": "select len(list(x)) as y from w",
    "over a LIMIT": "select max(length(x || x || x || x)) as y from (select id, x from w order by id limit 30) q",
    "over a GROUP BY": "select max(length(x || x || x || x)) as y from (select x from w group by x) q",
    "window": "select max(length(p || x)) as y from (select x, lag(x) over (order by id) as p from w) q",
    "middle values": "select max(length(m || m || m || m || m || m || m || m || m || m || m || m)) as y from v",
    "UPDATE too large": "update w set x = x||x||x||x||x",
    "UPDATE RETURNING": "update w set x = reverse(x) returning x",
    "MERGE": "merge into w using (select 3 as id) q on w.id = q.id when matched then update set x = w.x || w.x",
    "CREATE TABLE AS": "create table z{n} as select id, x || x as x from w",
}


class Watch:
    """Samples the nodes while the block runs."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.most = dict.fromkeys(pids, 0)
        self.over_s = dict.fromkeys(pids, 0.0)
        self._pids, self._end = pids, threading.Event()

    def __enter__(self) -> Watch:
        for pid in self._pids.values():
            with open(f"/proc/{pid}/clear_refs", "w") as file:
                file.write("5")
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        self._thread.join()

    def peak(self, name: str) -> int:
        with open(f"/proc/{self._pids[name]}/status") as file:
            return next(int(line.split()[1]) >> 10 for line in file if line.startswith("VmHWM"))

    def _sample(self) -> None:
        nodes = {name: psutil.Process(pid) for name, pid in self._pids.items()}
        last = time.monotonic()
        while not self._end.wait(0.03):
            now = time.monotonic()
            for name, node in nodes.items():
                found = sum(map(_resident, (node, *node.children(recursive=True)))) >> 20
                self.most[name] = max(self.most[name], found)
                self.over_s[name] += (now - last) * (found > MEMORY_MB + 512)
            last = now


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default="duckdb")
    parser.add_argument("--only")
    found = parser.parse_args()
    memory = {"max-merge-bytes": str(MEMORY_MB << 20), "memory-limit": f"{MEMORY_MB}MB"}
    with LocalCluster(schedulers=1, executors=1, engine=found.engine, node_options=memory) as cluster:
        large = pa.schema([("id", pa.int64()), ("x", pa.string())])
        cluster.create_table("w", schema=large, partition_by=["bucket(1, id)"])
        middle = pa.schema([("id", pa.int64()), ("m", pa.string())])
        cluster.create_table("v", schema=middle, partition_by=["bucket(1, id)"])
        with cluster.client() as client:
            for i in range(0, ROWS, 4):
                texts = [os.urandom(LARGE // 2).hex() for _ in range(4)]
                client.ingest("w", pa.table({"id": range(i, i + 4), "x": texts}, schema=large))
            texts = [os.urandom(MIDDLE // 2).hex() for _ in range(MANY)]
            client.ingest("v", pa.table({"id": range(MANY), "m": texts}, schema=middle))
        pids = {name: cluster.pid(name) for name in cluster.node_ids}
        names = sorted(pids)
        print(f"{'shape':26}" + "".join(f"{name:>26}" for name in names) + "    s  how")
        with cluster.client() as client:
            for number, (shape, sql) in enumerate(SHAPES.items()):
                if found.only and found.only not in shape:
                    continue
                began = time.monotonic()
                with Watch(pids) as watch:
                    try:
                        rows = (
                            client.stream(sql.format(n=number), timeout=120) if sql.startswith("select") else None
                        )
                        if rows is None:
                            client.sql(sql.format(n=number), timeout=120)
                        else:
                            for _ in rows.batches():
                                pass
                        how = "answered"
                    except BallistaError as error:
                        how = f"{type(error).__name__}: {str(error)[:90]}"
                took = time.monotonic() - began
                shown = "".join(
                    f"  {watch.most[one]:6} hwm {watch.peak(one):5} {watch.over_s[one]:4.1f}s" for one in names
                )
                print(f"{shape:26}{shown} {took:6.1f}  {how}", flush=True)
                time.sleep(1.5)


if __name__ == "__main__":
    main()
