"""What changed in a table between two places in its history: each row that came or went, once, and nothing else."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, changes_between, read_job, table_place
from ballista_py.errors import ConfigError, SnapshotGone, SqlError, Unsupported

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.float64()), ("word", pa.string())])


def rows_of(start: int, stop: int) -> pa.Table:
    values = range(start, stop)
    return pa.table(
        {
            "id": values,
            "v": [None if n % 7 == 0 else float("nan") if n % 5 == 0 else n / 4 for n in values],
            "word": [None if n % 3 == 0 else f"w{n % 11}" for n in values],
        },
        SCHEMA,
    )


@pytest.fixture(scope="module")
def shared():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=3_000) as cluster:
        yield cluster


@pytest.fixture
def table(shared, request):
    name = f"t{abs(hash(request.node.name)) % 1_000_000}"
    shared.create_table(name, schema=SCHEMA, partition_by=["bucket(4, id)"], primary_key=["id"])
    shared.ingest(name, rows_of(0, 2_000))
    return name


def url_of(cluster) -> str:
    return "ballista://" + ",".join(cluster.addresses())


def counted(rows: pa.Table) -> Counter:
    return Counter(map(repr, rows.select(SCHEMA.names).to_pylist()))


def changed(since, until) -> tuple[Counter, Counter]:
    """What came and what went."""
    with changes_between(since, until) as changes:
        rows = changes.read()
    kinds = rows["_change"].to_pylist()
    came = rows.filter(pa.array([kind == "insert" for kind in kinds], pa.bool_()))
    went = rows.filter(pa.array([kind == "delete" for kind in kinds], pa.bool_()))
    assert came.num_rows + went.num_rows == rows.num_rows
    return counted(came), counted(went)


def test_each_change_comes_once_whatever_files_it_lies_in(shared, table):
    start = table_place(url_of(shared), table)
    came, went = changed(None, start)
    assert (came, went) == (counted(rows_of(0, 2_000)), Counter())
    assert start.later() is start
    chance, known, before = random.Random(7), start, came
    for number in range(6):
        low = chance.randrange(2_000)
        shared.sql(f"update {table} set v = v + 1, word = 'u' where id between {low} and {low + 40}")
        shared.sql(f"delete from {table} where id % 97 = {number}")
        shared.ingest(table, rows_of(2_000 + 50 * number, 2_050 + 50 * number))
        if number % 2:
            shared.sql(f"update {table} set word = word || '!' where id % 2 = 0")
            shared.sql(
                f"update {table} set word = left(word, length(word) - 1) where id % 2 = 0"
            )  # and back again
        now = known.later()
        assert now is not known
        came, went = changed(known, now)
        after = counted(shared.sql(f"select * from {table}"))
        assert (came, went) == (after - before, before - after)
        assert changed(known, now) == (came, went)  # again, as a batch that is repeated
        known, before = now, after
    assert changed(start, known) == (before - counted(rows_of(0, 2_000)), counted(rows_of(0, 2_000)) - before)
    assert changed(known, start) == (counted(rows_of(0, 2_000)) - before, before - counted(rows_of(0, 2_000)))


def test_places_and_partitions_go_to_other_processes(shared, table):
    start = pickle.loads(pickle.dumps(table_place(url_of(shared), table)))
    shared.sql(f"update {table} set word = 'x' where id = 3")
    with changes_between(start, start.later()) as changes:
        (partition,) = pickle.loads(pickle.dumps(changes.partitions))
        rows = pa.Table.from_batches(partition.batches(), partition.schema)
    assert rows.select(["id", "word", "_change"]).to_pylist() == [
        {"id": 3, "word": None, "_change": "delete"},
        {"id": 3, "word": "x", "_change": "insert"},
    ]


def test_a_statement_over_several_partitions_is_in_it_whole(shared, table):
    start = table_place(url_of(shared), table, consistency="decided")
    for _ in range(8):
        shared.sql(f"update {table} set word = coalesce(word, '') || 'z'")
        later = start.later()
        came, went = changed(start, later)
        assert sum(came.values()) in (0, 2_000)
        assert sum(went.values()) == sum(came.values())
        start = later


def test_a_place_that_is_over_and_one_of_another_table_are_refused(shared, table):
    start = table_place(url_of(shared), table)
    shared.sql(f"delete from {table} where id = 1")
    later = start.later()
    start.close()
    with pytest.raises(SnapshotGone):
        changes_between(start, later)
    with pytest.raises(SnapshotGone):
        start.renew()
    shared.sql(f"alter table {table} add column more bigint")
    with pytest.raises(Unsupported, match="was altered in between"):
        changes_between(later, later.later())
    shared.sql(f"drop table {table}")
    with pytest.raises(SqlError, match="does not exist"):
        later.later()
    shared.create_table(table, schema=SCHEMA, partition_by=["bucket(4, id)"])
    with pytest.raises(Unsupported, match="dropped and made again"):
        changes_between(later, later.later())


def test_what_is_no_place_is_refused_by_name(shared, table):
    url = url_of(shared)
    with pytest.raises(SqlError, match="'nowhere' does not exist"):
        table_place(url, "nowhere")
    with pytest.raises(ConfigError, match="for how many seconds"):
        table_place(url, table, lease=-1)
    with pytest.raises(ConfigError, match="snapshot or decided"):
        table_place(url, table, consistency="none")
    place = table_place(url, table.upper())
    with read_job(url, table=table) as job, pytest.raises(ConfigError, match="this is a read job"):
        changes_between(pickle.loads(pickle.dumps(place)), _as_place(place, job.read_id))
    with pytest.raises(ConfigError, match="86,400,000 ms"):
        changes_between(None, place, lease=100_000)
    shared.sql(f"create table {table}_odd (id bigint not null, _change text) partitioned by (bucket(2, id))")
    with pytest.raises(ConfigError, match="has a column '_change'"):
        changes_between(None, table_place(url, f"{table}_odd"))


def _as_place(place, read_id):
    from attrs import evolve

    return evolve(place, read_id=read_id)
