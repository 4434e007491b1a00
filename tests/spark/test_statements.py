"""A statement on Spark over the files of partitions gives the rows that the engine gives."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.same_answer import difference
from ballista_py.errors import SqlError, TransportError, TryLater
from ballista_py.partitions.map import PartitionMap
from ballista_py.spark.statement_jobs import StatementJobs
from ballista_py.spark.statements import SparkStatements, TablePart


def run(statements, sql, parts, output, jobs=None, **options):
    """The whole answer."""
    answer = statements.run(sql, parts, output, jobs, **options)
    return pa.Table.from_batches(answer.batches(), output)


QUERIES = [
    "select kind, count(*) as n, sum(size) as total, avg(price) as mean from events group by kind",
    "select id // 7 as week, max(moment) as latest from events where size > 3 group by 1 order by 1 desc limit 3",
    "select kind, size from events order by kind desc, size desc, id limit 5",
    "select e.kind, count(distinct f.id) from events e left join events f on e.id = f.id + 1 group by e.kind",
    "select id, row_number() over (partition by kind order by id) as n from events qualify n = 2",
    "select kind from events where kind is not null intersect select 'k1'",
    "select id / 2 as half, id % 3 as rest, kind || '!' as loud from events where id < 9",
]


@pytest.fixture
def events(pipeline, declare, parquet):
    """A table of 300 rows in four buckets, loaded, and the same rows for the engine."""
    rows = pa.table(
        {
            "id": pa.array(range(300), pa.int64()),
            "kind": pa.array([None if n % 11 == 0 else f"k{n % 5}" for n in range(300)]),
            "size": pa.array([n * 7 % 23 for n in range(300)], pa.int32()),
            "price": pa.array([n % 97 for n in range(300)], pa.int32()).cast(pa.decimal128(12, 2)),
            "moment": pa.array([n * 7_000_000_000_000 for n in range(300)], pa.timestamp("us")),
        }
    )
    table = declare(
        parquet("events.parquet", **dict(zip(rows.column_names, rows.columns, strict=True))), "bucket(4, id)"
    )
    report = pipeline.materialize(table)
    pmap = PartitionMap.build("events", table.spec, list(report.partitions))
    return rows, TablePart(table=table, map=pmap, partitions=range(len(pmap)))


@pytest.mark.spark
def test_the_answer_is_that_of_the_engine(spark, store, events):
    rows, part = events
    engine, statements = DuckDBEngine(threads=1), SparkStatements(spark, store)
    for sql in QUERIES:
        running = engine.query(sql, streams={"events": rows})
        expected = pa.Table.from_batches(running.batches(), running.schema)
        actual = run(statements, sql, [part], expected.schema)
        assert difference(actual, expected) is None, sql
    engine.close()


@pytest.mark.spark
def test_only_the_partitions_that_are_named_are_read(spark, store, events):
    _, part = events
    statements, output = SparkStatements(spark, store), pa.schema([("n", pa.int64())])
    counted = [
        run(
            statements,
            "select count(*) as n from events",
            [TablePart(table=part.table, map=part.map, partitions=p)],
            output,
        )
        for p in ([0], [1, 2, 3], [])
    ]
    numbers = [table.column(0)[0].as_py() for table in counted]
    assert numbers[0] + numbers[1] == 300
    assert numbers[0] > 0
    assert numbers[2] == 0


@pytest.mark.spark
def test_what_spark_refuses_is_an_error_in_one_line(spark, store, events):
    _, part = events
    with pytest.raises(SqlError, match=r"Spark refused the statement: .*nope") as caught:
        SparkStatements(spark, store).run("select nope from events", [part], pa.schema([("n", pa.int64())]))
    assert "\n" not in caught.value.message


# Spark's tasks look up from their rows where they are read or sorted, and not inside of a join: sorted pairs do often.
LONG = """select count(*) as n from (
    select a.size as size, row_number() over (partition by a.id order by b.id) as place from events a, events b
) pairs, events c, events d where pairs.size + pairs.place + c.size + d.size < -1"""


@pytest.mark.spark
@pytest.mark.parametrize("after_s", [0.0, 1.0])
def test_a_statement_that_is_cancelled_ends_soon_and_others_go_on(spark, store, events, after_s):
    """Cancelled before its jobs begin, and amid them: without the cancel it would count 8 * 10**9 rows."""
    _, part = events
    statements, output = SparkStatements(spark, store), pa.schema([("n", pa.int64())])
    jobs = statements.jobs()
    with ThreadPoolExecutor(2) as threads:
        endless = threads.submit(statements.run, LONG, [part], output, jobs)
        time.sleep(after_s)
        jobs.cancel()
        short = threads.submit(run, statements, "select count(*) as n from events", [part], output)
        until_it_ends(jobs)
        with pytest.raises(TransportError, match="cancelled"):
            endless.result(timeout=60)
        assert short.result(timeout=60).column(0).to_pylist() == [300]


def until_it_ends(jobs, within_s=60.0):
    """What the tick of a scheduler does."""
    until = time.monotonic() + within_s
    while jobs.go_on_cancelled():
        assert time.monotonic() < until, "the statement goes on"
        time.sleep(0.1)


@pytest.mark.spark
def test_a_stage_that_begins_just_after_the_cancel_is_cancelled_too(spark):
    """Spark forgets the cancel where a stage of an adaptive plan begins: without another it would go on for hours."""
    session = spark.newSession()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", -1)  # the first job is such a stage
    jobs = StatementJobs(spark.sparkContext, "cancelled-just-before")
    number = "row_number() over (partition by a.id % 7 order by b.id)"
    numbers = f"select a.id, {number} as n from range(300) a, range(300) b"
    endless = f"select count(*) from ({numbers}) p, range(300) c, range(300) d where p.id + p.n + c.id + d.id < -1"

    def run_cancelled():
        with jobs.running():
            jobs.cancel()
            session.sql(endless).collect()

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run_cancelled)
        while not (jobs.are_running() or running.done()):
            time.sleep(0.05)
        assert not running.done(), "Spark remembers the cancel now: go_on_cancelled is not needed any more"
        until_it_ends(jobs)
        with pytest.raises(TransportError, match="cancelled"):
            running.result(timeout=60)
    assert not jobs.go_on_cancelled()


@pytest.mark.spark
def test_a_job_that_somebody_else_ends_is_to_be_sent_again(spark, store, events):
    _, part = events
    statements, output = SparkStatements(spark, store), pa.schema([("n", pa.int64())])
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(statements.run, LONG, [part], output)
        while not running.done():
            spark.sparkContext.cancelAllJobs()
            time.sleep(0.1)
        with pytest.raises(TryLater, match="somebody ended the statement in Spark") as caught:
            running.result()
    assert "\n" not in caught.value.message


@pytest.mark.spark
def test_what_fails_amid_its_rows_is_named_by_what_spark_says_of_it(spark, store, events):
    _, part = events
    statements, output = SparkStatements(spark, store), pa.schema([("n", pa.int64())])
    for text, said in (
        ("select id + raise_error('no ' || id) as n from events", "no [0-9]+"),
        ("select id // (id - id) as n from events", "by zero"),
    ):
        with pytest.raises(SqlError, match=f"Spark refused the statement: .*{said}") as caught:
            statements.run(text, [part], output)
        assert "\n" not in caught.value.message
        assert "java" not in caught.value.message


@pytest.mark.spark
def test_statements_run_at_once_each_with_its_own_views(spark, store, events):
    _, part = events
    statements, output = SparkStatements(spark, store), pa.schema([("n", pa.int64())])

    def count(partitions):
        own = TablePart(table=part.table, map=part.map, partitions=partitions)
        return run(statements, "select count(*) as n from events", [own], output).column(0)[0].as_py()

    alone = [count([p]) for p in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda p: count([p]), [0, 1, 2, 3] * 3)) == alone * 3
