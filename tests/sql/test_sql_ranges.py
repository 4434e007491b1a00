"""How many rows conditions on ranges are taken to keep, where it is known between which values a column lies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from ballista_py.testing.sql.single_node import InProcessCluster

DAYS = [dt.date(2020, 1, 1) + dt.timedelta(days=n) for n in range(1000)]


@pytest.fixture(scope="module")
def sales() -> Iterator[InProcessCluster]:
    """A thousand rows, one a day."""
    rows = pa.table(
        {
            "id": range(1000),
            "day": DAYS,
            "moment": pa.array([dt.datetime(2020, 1, 1) + dt.timedelta(hours=n) for n in range(1000)]),
            "price": [Decimal(n) / 4 for n in range(1000)],
            "weight": [float(n) for n in range(999)] + [float("nan")],
            "same": [7] * 1000,
            "none": pa.array([None] * 1000, pa.int64()),
            "name": [str(n) for n in range(1000)],
        }
    )
    with InProcessCluster(2) as cluster:
        cluster.add("sales", rows, "bucket(4, id)")
        cluster.measure()
        yield cluster


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("id < 500", 500),
        ("500 > id", 500),
        ("id >= 900 and id < 950", 50),
        ("id < 950 and 900 <= id", 50),
        ("id between 100 and 199", 100),
        ("id > -5 and id < 5000", 1000),
        ("id < 2", 10),  # never less than a hundredth
        ("id > 4000", 10),
        ("day >= date '2020-01-01' + interval '100' day", 900),
        ("day >= '2020-02-01' and day < date '2020-02-01' + interval '3' month", 91),
        ("day < date '2020-12-31' - interval 1 year", 10),
        ("moment < timestamp '2020-01-11 10:00:00'", 250),
        ("price <= 100.00", 400),
        ("weight < 99", 100),
        ("same <= 7", 1000),
        ("same < 100 and id < 100", 100),
        ("(id < 500)", 500),
        ("id < 100 and id < 500", 100),
        # what is not understood keeps the share that its form is taken to keep
        ("none < 5", 400),
        ("name < '5'", 400),
        ("id < price", 400),
        ("id < 10.5", 400),
        ("day < date '2020-01-01' + interval '3 months'", 91),
        ("id + 1 < 500", 400),
        ("id < 500 or id > 900", 500),
    ],
)
def test_the_share_of_a_range_follows_from_where_the_values_lie(
    sales: InProcessCluster, condition: str, rows: int
) -> None:
    def estimated(sql: str) -> float:
        (fragment,) = sales.plan(sql).fragments
        return fragment.estimated_bytes

    whole = estimated("select id from sales")
    assert estimated(f"select id from sales where {condition}") == pytest.approx(whole * rows / 1000, rel=0.02)
    sales.check(f"select id from sales where {condition}")
