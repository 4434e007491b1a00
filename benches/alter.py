"""ALTER TABLE of a table with 10,000 partitions, through a cluster, until every executor shows it.

python benches/alter.py [PARTITIONS]
"""

from __future__ import annotations

import sys
import time

from ballista_py import LocalCluster

PARTITIONS = 10_000
STEPS = (
    "add column c int default 7",
    "rename c to d",
    "alter d type bigint",
    "alter d set default 8",
    "comment on column big.d is 'more'",
    "drop column d",
)


def main(partitions: int) -> None:
    options = {"max-partitions-per-executor": str(partitions)}
    with LocalCluster(schedulers=1, executors=2, ttl_ms=30_000, node_options=options) as cluster:
        begun = time.perf_counter()
        with cluster.client() as client:
            client.sql(f"create table big (id bigint, a int) partitioned by (bucket({partitions}, id))")
            client.sql("insert into big select i, i from range(100000) r(i)", atomic=True)
            print(
                f"a table of {partitions:,} partitions and 100,000 rows made in {time.perf_counter() - begun:.0f} s"
            )
            for step in STEPS:
                statement = step if step.startswith("comment") else f"alter table big {step}"
                begun = time.perf_counter()
                client.sql(statement)
                took = time.perf_counter() - begun
                begun = time.perf_counter()
                client.sql("select count(*), max(a) from big")
                print(f"{took:6.2f} s  {statement}; a query behind it {time.perf_counter() - begun:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PARTITIONS)
