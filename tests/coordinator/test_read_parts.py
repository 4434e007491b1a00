"""Parts of a read job: every file is in one, what belongs together stays so, and what is left to do is right."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py import bucket
from ballista_py.agents.done_here import done_here
from ballista_py.coordinator.reads.answers import scan_sql
from ballista_py.coordinator.reads.cutting import parts_of
from ballista_py.coordinator.reads.planning import part_plan
from ballista_py.errors import Unsupported
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parts import columns_read, is_row_by_row
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query
from ballista_py.storage.manifest import DataFile

OWNERS = [None, ("executor-1", "i1"), ("executor-2", "i2"), ("executor-3", "i3")]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("size", pa.int64()),
        ("word", pa.string()),
        ("price", pa.float64()),
    ]
)
ROWS = pa.table(
    {
        "id": range(40),
        "size": [None if n % 7 == 0 else n % 5 for n in range(40)],
        "word": [None if n % 6 == 0 else f"w{n % 4}" for n in range(40)],
        "price": [float("nan") if n % 11 == 0 else -0.0 if n % 9 == 0 else n / 4 for n in range(40)],
    },
    SCHEMA,
)


@given(
    files=st.dictionaries(st.integers(0, 20), st.lists(st.integers(0, 100), max_size=6), max_size=12),
    owners=st.lists(st.sampled_from(OWNERS), min_size=21, max_size=21),
    target=st.integers(1, 400),
    most=st.integers(1, 30),
    divides=st.booleans(),
)
def test_every_file_is_in_one_part_in_its_order_and_there_are_not_too_many(files, owners, target, most, divides):
    given_files = {
        partition: [DataFile(path=f"{partition}/{n}", rows=1, bytes=size) for n, size in enumerate(sizes)]
        for partition, sizes in files.items()
    }
    parts = parts_of(given_files, dict(enumerate(owners)), target_bytes=target, max_parts=most, divides=divides)
    found = [(one.partition, one.file.path) for part in parts for one in part]
    assert sorted(found) == sorted((p, file.path) for p, several in given_files.items() for file in several)
    assert len(parts) <= most
    assert all(parts)
    for part in parts:
        for partition in {one.partition for one in part}:
            own = [one.file.path for one in part if one.partition == partition]
            assert own == sorted(own, key=lambda path: int(path.partition("/")[2]))
    if not divides:
        for partition in given_files:
            assert sum(partition in {one.partition for one in part} for part in parts) <= 1
    needed = {owners[partition] for partition, several in given_files.items() if several}
    if len(parts) < most and len(needed) <= most:
        assert all(len({owners[one.partition] for one in part}) == 1 for part in parts)


def test_small_files_share_a_part_and_no_part_is_larger_than_it_has_to_be():
    files = {0: [DataFile(path=str(n), rows=1, bytes=10) for n in range(10)]}
    parts = parts_of(files, {0: None}, target_bytes=35, divides=True)
    assert [len(part) for part in parts] == [3, 3, 3, 1]


def catalog(partition_by=("bucket(4, id)",), schema=SCHEMA) -> Catalog:
    spec = PartitionSpec.parse(list(partition_by), schema)
    values = spec.static_values()
    table = TableSpec(name="events", schema=schema, spec=spec)
    other = TableSpec(name="others", schema=schema, spec=spec)
    maps = {name: PartitionMap.build(name, spec, values) for name in ("events", "others")}
    return Catalog(tables={"events": table, "others": other}, maps=maps)


STATEMENTS = [
    "select * from events",
    "select id, word from events where size > 2",
    "select count(*) from events",
    "select count(*) as n, sum(size), avg(price), min(word), max(price) from events",
    "select word, count(*) as n, sum(size) as s from events group by word",
    "select word, count(distinct size) as n from events group by word having count(*) > 2",
    "select id, count(*) as n from events group by id",
    "select distinct size, word from events",
    "select * from events order by id limit 7",
    "select id, row_number() over (partition by word order by id) as r from events",
    "select id from events where size = (select max(size) from events)",
    "select a.id from events a join events b on a.id = b.size",
    "select size + 1 as s, upper(word) as w, case when price > 3 then 'x' end as c from events where word like 'w%'",
    "select id from events where id = 7",
    "select id from events where id in (1, 2, 3) and word is not null",
    "select size, word, grouping(size) as g, count(*) as n from events group by rollup (size, word)",
    "select count(*) filter (where size > 1) as n from events where price is not null",
    "with big as (select * from events where size > 1) select word, count(*) as n from big group by word",
    "select * from events union all select * from events where id < 3",
    "select stddev(price) as s, median(size) as m from events",
    "select string_agg(word, ',' order by id) as s from events",
    "select 1 as one from events where false",
]


@pytest.mark.parametrize("little", [False, True])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_plan_of_each_part_and_then_what_is_left_give_the_answer(statement, little):
    """Whatever parts the rows are in: here rows of a partition that may be divided lie in many."""
    with duckdb.connect() as connection:
        connection.register("events_arrow", ROWS)
        connection.execute("create table events as from events_arrow")
        known = catalog()
        output = connection.sql(statement).to_arrow_table().schema
        made = part_plan(plan_query(statement, known, output), known, ["events"], little=little)
        assert made.table == "events"
        wanted = connection.sql(statement).to_arrow_table().to_pylist()
        buckets = bucket(4, ROWS["id"]).to_pylist()
        pieces = [
            ROWS.slice(n, 5) if made.divides else ROWS.filter(pa.array([b == n for b in buckets]))
            for n in (range(0, ROWS.num_rows, 5) if made.divides else range(4))
        ]
        rows = pa.concat_tables(
            [done_here(made.sql, "events", piece.select(list(made.columns))) for piece in pieces],
            promote_options="permissive",
        )
        answer = rows if made.rest is None else done_here(made.rest, made.relation, rows)
        found = [dict(zip(output.names, row.values(), strict=True)) for row in answer.to_pylist()]
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("select 1", "reads no table"),
        ("select * from events e join others o on e.id = o.id", "reads tables 'events', 'others'"),
    ],
)
def test_a_read_job_is_of_one_table(statement, said):
    known = catalog()
    with pytest.raises(Unsupported, match=said):
        part_plan(plan_query(statement, known, pa.schema([])), known, [])


@pytest.mark.parametrize(
    "fragment",
    [
        "SELECT DISTINCT id FROM events",
        "SELECT COUNT(*) FROM events",
        "SELECT id FROM events LIMIT 3",
        "SELECT id FROM events ORDER BY id",
        "SELECT id, ROW_NUMBER() OVER () FROM events",
        "SELECT id FROM events WHERE id IN (SELECT MAX(id) FROM events)",
        "SELECT UNNEST([id]) FROM events",
        "SELECT id FROM events GROUP BY id",
        "SELECT id FROM events QUALIFY ROW_NUMBER() OVER (PARTITION BY id) = 1",
        "SELECT id FROM events USING SAMPLE 10%",
        "SELECT id FROM events UNION ALL SELECT id FROM events",
        "WITH e AS (SELECT MAX(id) AS id FROM events) SELECT id FROM e",
        "SELECT some_aggregate(id) FROM events",
    ],
)
def test_what_looks_at_several_rows_is_not_done_row_by_row(fragment):
    assert not is_row_by_row(fragment)


def test_rows_without_columns_can_be_counted():
    assert columns_read("SELECT COUNT(*) FROM events", ["a", "b"]) == ("a",)
    assert columns_read("SELECT 1 AS one FROM events", ["a", "b"]) == ("a",)


def test_names_and_conditions_are_written_as_they_are_meant():
    assert (
        scan_sql('a"b', ["x y", 'q"'], "x > 1 -- big") == 'SELECT "x y", "q""" FROM "a""b" WHERE (x > 1 -- big\n)'
    )
