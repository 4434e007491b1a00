"""Refreshing a table: anew, or by the rows that it lacks; repeated, late, killed, and two at once."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import attrs
import pyarrow as pa
import pytest

from ballista_py.errors import ConfigError, VersionConflict
from ballista_py.partitions.refresh import Refresh
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.watermark import Watermark, declared_watermark, position_of
from ballista_py.state.stores.memory import MemoryStore

pytestmark = pytest.mark.spark
HOUR = dt.timedelta(hours=1)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(hours: float) -> dt.datetime:
    return START + hours * HOUR


class Source:
    """A Parquet file of events that grows: (id, when, region)."""

    def __init__(self, parquet) -> None:
        self._parquet = parquet
        self.rows: list[tuple] = []
        self.path = self.add()

    def add(self, *rows: tuple) -> str:
        self.rows += rows
        ids, times, regions = zip(*self.rows, strict=True) if self.rows else ((), (), ())
        return self._parquet(
            "events.parquet",
            ("id",),
            id=pa.array(ids, pa.int64()),
            seen_at=pa.array(times, pa.timestamp("us", "UTC")),
            region=pa.array(regions, pa.string()),
        )


@pytest.fixture
def source(parquet) -> Source:
    return Source(parquet)


@pytest.fixture
def held(partitions):
    """All rows of a table, by the manifests that are there now."""
    return lambda table: all_rows(partitions, table)


def all_rows(partitions, table) -> Counter:
    return Counter(tuple(row.values()) for row in partitions.every_row(table).to_pylist())


HOURLY = Watermark("seen_at", overlap=2 * HOUR)


@pytest.mark.parametrize("key", ["bucket(4, id)", "region"])
def test_an_append_adds_what_the_table_lacks_and_repeating_it_adds_nothing(source, declare, pipeline, held, key):
    source.add((1, at(0), "eu"), (2, at(5), "us"), (2, at(5), "us"), (3, at(9), None))
    table = declare(source.path, key)
    assert pipeline.refresh(table, watermark=HOURLY).rows == 4
    source.add((4, at(10), "eu"), (5, at(11), "asia"), (2, at(5), "us"))  # the last one is too late to be seen
    assert pipeline.refresh(table, mode="append", watermark=HOURLY).rows == 2
    assert pipeline.refresh(table, mode="append", watermark=HOURLY).rows == 0
    assert held(table) == Counter(source.rows) - Counter([(2, at(5), "us")])
    assert pipeline.refresh(table, watermark=HOURLY).rows == 7
    assert held(table) == Counter(source.rows)


def test_the_first_append_begins_where_the_first_copy_ended(source, declare, pipeline, held):
    source.add((1, at(0), "eu"), (2, at(9), "us"))
    table = declare(source.path, "bucket(2, id)")
    table = attrs.evolve(table, refresh=Refresh(mode="append", time_column="seen_at", overlap="1h"))
    pipeline.materialize(table)
    source.add((3, at(10), "eu"), (4, at(1), "asia"))  # the last one is too late to be seen
    assert pipeline.refresh(table, mode="append", watermark=declared_watermark(table)).rows == 1
    assert held(table) == Counter(source.rows) - Counter([(4, at(1), "asia")])


def test_a_late_row_within_the_overlap_comes_in_and_so_does_its_twin(source, declare, pipeline, held):
    source.add((1, at(10), "eu"))
    table = declare(source.path, "bucket(2, id)")
    pipeline.refresh(table, watermark=HOURLY)
    source.add((2, at(8), "eu"))
    assert pipeline.refresh(table, mode="append", watermark=HOURLY).rows == 1
    source.add((2, at(8), "eu"), (1, at(10), "eu"))  # equal rows that came twice are two rows
    assert pipeline.refresh(table, mode="append", watermark=HOURLY).rows == 2
    assert held(table) == Counter(source.rows)


def test_a_table_that_was_never_written_or_kept_no_position_is_compared_as_a_whole(
    source, declare, pipeline, held
):
    source.add((1, at(0), "eu"), (2, at(900), "us"))
    unwritten = declare(source.path, "region", name="unwritten")
    assert pipeline.refresh(unwritten, mode="append", watermark=HOURLY).rows == 2
    assert held(unwritten) == Counter(source.rows)
    plain = declare(source.path, "bucket(3, id)", name="plain")
    pipeline.materialize(plain)
    source.add((3, at(1), "eu"))
    assert pipeline.refresh(plain, mode="append", watermark=HOURLY).rows == 1
    assert held(plain) == Counter(source.rows)


def test_rows_without_a_watermark_come_in_once(source, declare, pipeline, held):
    source.add((1, None, "eu"), (2, at(5), "us"))
    table = declare(source.path, "bucket(2, id)")
    pipeline.refresh(table, watermark=HOURLY)
    source.add((3, None, "eu"), (1, None, "eu"))
    assert pipeline.refresh(table, mode="append", watermark=HOURLY).rows == 2
    assert pipeline.refresh(table, mode="append", watermark=HOURLY).rows == 0
    assert held(table) == Counter(source.rows)


@pytest.mark.parametrize("column", ["n", "day", "local"])
def test_integers_dates_and_local_times_can_be_watermarks(spark, declare, pipeline, held, column):
    def until(count: int):
        return spark.range(-3, count, 1, 2).selectExpr(
            "id", "cast(id * 10 as int) n", "date_add(date'1970-01-02', cast(id as int)) day",
            "timestampadd(HOUR, id, timestamp_ntz'1969-12-31 23:59:59.999999') local",
        )  # fmt: skip

    watermark = Watermark(column, overlap=5 if column == "n" else HOUR)
    table = declare(until(5), "bucket(2, id)")
    pipeline.refresh(table, source=until(5), watermark=watermark)
    report = pipeline.refresh(table, mode="append", source=until(9), watermark=watermark)
    assert report.rows == 4
    assert pipeline.refresh(table, mode="append", source=until(9), watermark=watermark).rows == 0
    assert sum(held(table).values()) == 12
    (row,) = until(5).selectExpr(f"max({column})").collect()
    assert row[0] is not None


def test_nested_rows_with_maps_are_compared_too(spark, declare, pipeline, partitions):
    def until(count: int):
        return spark.range(count).selectExpr(
            "id",
            "map('b', id, 'a', null) m",
            "array(named_struct('m', map(id, array(double('NaN'), -0.0d)))) deep",
            "cast(id as decimal(38, 3)) dec",
            "if(id % 2 = 0, null, named_struct('x y', map(1, 'é'))) s",
        )

    table = declare(until(6), "bucket(2, id)")
    watermark = Watermark("id", overlap=3)
    pipeline.refresh(table, source=until(6), watermark=watermark)
    assert pipeline.refresh(table, mode="append", source=until(8), watermark=watermark).rows == 2
    assert pipeline.refresh(table, mode="append", source=until(8), watermark=watermark).rows == 0
    found = [row["id"] for number in range(2) for row in partitions.rows(table, (number,)).to_pylist()]
    assert sorted(found) == list(range(8))


class Killed(Exception):
    """What the process dies of."""


class Dying(MemoryStore):
    """Lets some writes of manifests through and then none."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _spend(self, key: str) -> None:
        if key.endswith("manifest.json"):
            self.left -= 1
            if self.left < 0:
                raise Killed

    def create(self, key: str, data: bytes) -> str:
        self._spend(key)
        return super().create(key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        self._spend(key)
        return super().replace(key, data, version)


@pytest.mark.parametrize(
    ("key", "commits"), [("bucket(3, id)", 1), ("region", 1), ("region", 3), ("region", 5)]
)  # two partitions that are there, two that are new: all prepared, then all folded
def test_a_run_that_ends_among_its_commits_is_completed_by_the_next(spark, source, declare, reads, key, commits):
    source.add(*((n, at(n), ("eu", "us")[n % 2]) for n in range(6)))
    table = declare(source.path, key)
    store = Dying(1_000)
    pipeline = SparkPipeline(spark, store)
    pipeline.refresh(table, watermark=HOURLY)
    # Far above the position: a partition left behind would lose its rows if the newest position counted.
    source.add(*((n, at(100 * n), ("eu", "us", "asia", "mars")[n % 4]) for n in range(6, 16)))
    store.left = commits
    with pytest.raises(Killed):
        pipeline.refresh(table, mode="append", watermark=HOURLY)
    store.left = 1_000
    assert not all_rows(reads(store), table) - Counter(source.rows)
    pipeline.refresh(table, mode="append", watermark=HOURLY)
    assert all_rows(reads(store), table) == Counter(source.rows)


def test_of_two_appends_at_once_each_partition_takes_one(spark, source, declare, reads):
    """The second run reads everything before the first one commits, and commits after it."""
    source.add((1, at(0), "eu"))
    table = declare(source.path, "bucket(2, id)")
    store = MemoryStore()
    slow = SparkPipeline(spark, store, run_all=lambda call, items: overtaken(call, list(items)))
    quick = SparkPipeline(spark, store)
    quick.refresh(table, watermark=HOURLY)
    source.add(*((n, at(n), "eu") for n in range(2, 9)))
    turns = iter(range(100))

    def overtaken(call, items):
        if next(turns) == 2:  # the third round of requests prepares the manifests
            quick.refresh(table, mode="append", watermark=HOURLY)
        return map(call, items)

    with pytest.raises(VersionConflict, match="another run"):
        slow.refresh(table, mode="append", watermark=HOURLY)
    assert all_rows(reads(store), table) == Counter(source.rows)


def test_new_values_get_partitions_with_their_rows_and_nothing_else_changes(
    source, declare, pipeline, held, store
):
    source.add((1, at(0), "eu"), (2, at(5), None))
    table = declare(source.path, "region")
    pipeline.refresh(table, watermark=HOURLY)
    before = held(table)
    source.add((3, at(6), "eu"), (4, at(7), "asia"), (5, at(1), "asia"), (6, at(9), "mars"))
    values = pipeline.extend(table, {("eu",), (None,), ("mars",)}.__contains__)
    assert set(values) == {("eu",), (None,), ("asia",), ("mars",)}
    assert held(table) == before + Counter([(4, at(7), "asia"), (5, at(1), "asia")])
    keys = list(store.list("snapshots/"))
    assert pipeline.extend(table, lambda _value: True) == values
    assert list(store.list("snapshots/")) == keys
    # The new partition knows how far the source was read, so the append looks at what is newer, and takes none twice.
    assert pipeline.refresh(table, mode="append", watermark=HOURLY).rows == 2
    assert held(table) == Counter(source.rows)


def test_a_token_that_was_applied_adds_nothing_when_sent_again(source, declare, pipeline, held):
    source.add((1, at(0), "eu"))
    table = declare(source.path, "bucket(2, id)")
    pipeline.refresh(table, mode="append", watermark=HOURLY, token="load-1")
    source.add((2, at(1), "eu"))
    pipeline.refresh(table, mode="append", watermark=HOURLY, token="load-1")
    assert held(table) == Counter(source.rows[:1])
    pipeline.refresh(table, mode="append", watermark=HOURLY, token="load-2")
    assert held(table) == Counter(source.rows)


def test_what_cannot_be_refreshed_is_refused_by_name(source, declare, pipeline):
    source.add((1, at(0), "eu"))
    table = declare(source.path, "bucket(2, id)")
    for options, reason in (
        ({"mode": "changes"}, "cannot be refreshed by 'changes': take 'full', or 'append'"),
        ({"mode": "append"}, "an append needs a watermark"),
        ({"mode": "append", "watermark": Watermark("nope")}, "no column 'nope' to be its watermark"),
        ({"mode": "append", "watermark": Watermark("region")}, "column 'region' is string; a watermark is"),
        ({"mode": "append", "watermark": Watermark("seen_at", overlap=3)}, "must be a timedelta"),
        ({"mode": "append", "watermark": Watermark("id", overlap=HOUR)}, "must be a number"),
    ):
        with pytest.raises(ConfigError, match=f"table 'events'.*{reason}"):
            pipeline.refresh(table, **options)
    for overlap in (-1, -HOUR):
        with pytest.raises(ConfigError, match="negative"):
            Watermark("id", overlap=overlap)


def test_a_position_is_one_of_its_column_alone():
    text = '{"at": 7, "column": "id", "run": "r"}'
    assert position_of(text, Watermark("id")) == 7
    assert position_of(text, Watermark("other")) is None
    assert position_of('{"run": "r"}', Watermark("id")) is None
    assert position_of("lsn 0/16B3748", Watermark("id")) is None
    assert position_of(None, Watermark("id")) is None
