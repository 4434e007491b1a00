"""Small tables full of what goes wrong: NULL keys, NaN, -0.0, ties, empty partitions, an empty table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ballista_py.runtime import seeded_chance
from ballista_py.testing.sql.chooser import Chooser
from ballista_py.testing.sql.single_node import InProcessCluster

PARTITIONED = {
    "t": ("bucket(5, k)", "g"),
    "u": ("bucket(5, k)", "g"),
    "e": ("bucket(5, k)", "g"),
    "v": ("bucket(3, s)", None),
    "w": ("s", None),
    "y": ("year(dt)", None),
    "m": ("date_trunc('month', ts)", None),
    "x": ("k", "kk"),
    "x2": ("k", "kk"),
    "z": (("bucket(2, a)", "bucket(3, b)"), "h"),
    "z2": (("bucket(2, a)", "bucket(3, b)"), "h"),
}
REPLICATED = ("r", "r2")
_WORDS = ("", "a", "A", "b", "ab", "é", "null", "a'b", "zz")
_DOUBLES = (0.0, -0.0, 1.5, -2.25, 1e9, 0.1, float("nan"), 3.0)
_DECIMALS = (*(Decimal(f"{n}.{n % 10}5") for n in range(12)), Decimal("-7.50"), Decimal("9999999999.99"))
_DATES = tuple(dt.date(2019, 12, 30) + dt.timedelta(days=11 * n) for n in range(40))
_STAMPS = tuple(dt.datetime(2020, 1, 1, 10, 0, 0, 5) + dt.timedelta(hours=31 * n) for n in range(40))


def fill_with_small_tables(cluster: InProcessCluster, seed: int = 1, rows: int = 60) -> InProcessCluster:
    """Add the tables of `PARTITIONED` and `REPLICATED`; the same seed gives the same rows. Returns `cluster`.

    Every table has the columns `k a b s d x dt ts bo id`: a key, two small integers, text, decimal, float, date,
    timestamp, boolean, and a number that is unique in the table.
    """
    rng = seeded_chance(seed)
    for name, (keys, group) in PARTITIONED.items():
        count = 0 if name == "e" else rows if name in ("t", "z") else rows // 2
        table = pa.table(_columns(rng, count))
        if name == "u":  # the other side of joins on the key has a wider integer
            table = table.set_column(0, "k", table.column(0).cast(pa.int64()))
        cluster.add(name, table, keys, group, seed)
    for name, count in zip(REPLICATED, (7, 5), strict=True):
        cluster.add(name, pa.table(_columns(rng, count)), None)
    return cluster


def _columns(rng: Chooser, count: int) -> dict[str, pa.Array]:
    return {
        "k": pa.array(_pick(rng, range(-3, 12), 0.15, count), pa.int32()),
        "a": pa.array(_pick(rng, range(5), 0.2, count), pa.int64()),
        "b": pa.array(_pick(rng, range(-2, 3), 0.2, count), pa.int32()),
        "s": pa.array(_pick(rng, _WORDS, 0.2, count), pa.string()),
        "d": pa.array(_pick(rng, _DECIMALS, 0.2, count), pa.decimal128(12, 2)),
        "x": pa.array(_pick(rng, _DOUBLES, 0.2, count), pa.float64()),
        "dt": pa.array(_pick(rng, _DATES, 0.2, count), pa.date32()),
        "ts": pa.array(_pick(rng, _STAMPS, 0.2, count), pa.timestamp("us")),
        "bo": pa.array(_pick(rng, (True, False), 0.3, count), pa.bool_()),
        "id": pa.array(range(count), pa.int64()),
    }


def _pick(rng: Chooser, values: Sequence[Any], null: float, count: int) -> list[Any]:
    return [None if rng.random() < null else rng.choice(values) for _ in range(count)]
