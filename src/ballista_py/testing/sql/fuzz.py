"""Random queries by the thousand: `python -m ballista_py.testing.sql.fuzz --queries 100000`.

Prints every query that a partitioned cluster answers otherwise than a single node, with the seed that gives it
again, and ends with status 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from attrs import frozen

from ballista_py.errors import BallistaError
from ballista_py.runtime import seeded_chance
from ballista_py.sql.plan import BroadcastLimits
from ballista_py.testing.sql.queries import Queries, RandomQuery
from ballista_py.testing.sql.single_node import InProcessCluster
from ballista_py.testing.sql.tables import fill_with_small_tables

QUERIES_PER_CLUSTER = 250
MAX_BYTES = 64 << 20
_SHAPES = ((3, 1, 50), (2, 1, 30), (2, 2, 12), (3, 2, 40), (1, 1, 25), (2, 1, 90), (5, 1, 60))
_WHENEVER_POSSIBLE = BroadcastLimits(worth_bytes=-(1 << 60))


@frozen
class Tried:
    """One query that a single node could run. `wrong` says how the cluster's answer differs, or is None."""

    seed: int
    sql: str
    wrong: str | None
    notes: tuple[str, ...] = ()


def fuzz(first_seed: int, count: int) -> Iterator[Tried]:
    """Try the queries of `count` seeds; what a single node cannot run either is left out."""
    cluster: InProcessCluster | None = None
    for seed in range(first_seed, first_seed + count):
        if cluster is None or seed % QUERIES_PER_CLUSTER == 0:
            if cluster is not None:
                cluster.close()
            cluster = cluster_of(seed // QUERIES_PER_CLUSTER)
        tried = attempt(seed, random_query(seed), cluster)
        if tried is not None:
            yield tried
    if cluster is not None:
        cluster.close()


def random_query(seed: int) -> RandomQuery:
    """The query of a seed."""
    return Queries(seeded_chance(seed)).query()


def cluster_of(number: int) -> InProcessCluster:
    """A cluster full of small tables; its shape and its rows are functions of `number`."""
    executors, replicas, rows = _SHAPES[number % len(_SHAPES)]
    limits = _WHENEVER_POSSIBLE if number % 2 else None
    cluster = InProcessCluster(executors, replicas, limits, MAX_BYTES)
    fill_with_small_tables(cluster, seed=number, rows=rows)
    if number % 4 >= 2:
        cluster.measure()
    return cluster


def attempt(seed: int, query: RandomQuery, cluster: InProcessCluster) -> Tried | None:
    """Run one query both ways; None if a single node cannot run it, or not with an answer up to `MAX_BYTES`."""
    try:
        plan = cluster.check(query.sql, ordered=query.ordered)
    except BallistaError:
        return None
    except AssertionError as error:
        return Tried(seed, query.sql, str(error))
    return Tried(seed, query.sql, None, plan.notes)


def main() -> int:
    """Try as many queries as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    ran = wrong = whole = 0
    for tried in fuzz(options.first_seed, options.queries):
        ran += 1
        whole += any("everything" in note for note in tried.notes)
        if tried.wrong is not None:
            wrong += 1
            print(f"seed {tried.seed}: {tried.wrong}\n", flush=True)
        if ran % 1000 == 0:
            print(f"{ran:,} queries, {wrong} wrong, {whole} gathered whole", flush=True)
    print(f"{ran:,} queries ran, {wrong} wrong, {whole} gathered whole")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
