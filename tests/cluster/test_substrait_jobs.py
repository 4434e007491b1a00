"""Plans of DataFusion are done by executors, and DataFusion finishes what is left: the same rows as by itself."""

from __future__ import annotations

import datafusion
import pyarrow as pa
import pytest
from datafusion import substrait

from ballista_py import LocalCluster, read_job
from ballista_py.errors import InvalidData, UnsupportedExpression

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("word", pa.string())])
ROWS = pa.table(
    {
        "id": range(4_000),
        "v": [None if n % 11 == 0 else n % 10 for n in range(4_000)],
        "word": [None if n % 13 == 0 else f"w{n % 7}" for n in range(4_000)],
    },
    SCHEMA,
)
STATEMENTS = [
    "select * from t",
    "select id, v + 1 as w from t where word = 'w3' and v > 2",
    "select id from t where word = 'w3' order by id desc limit 5",
    "select word, count(*) as n, sum(v) as s, avg(v) as a, min(id) as low from t where id > 100 group by word",
    "select word, max(v) as m from t group by word having max(v) > 3",
    "select count(*) as n from t",
    "select count(distinct word) as n from t",
    "select distinct v, word from t",
    "select id, row_number() over (partition by word order by id) as r from t where id < 60",
    "select case when v > 5 then 'much' when v is null then 'none' end as c, count(*) as n from t group by 1",
    "select id from t where v in (1, 2) and word is not null and id between 10 and 900",
]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=2) as made:
        made.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        made.ingest("t", ROWS)
        yield made


@pytest.fixture
def engine():
    made = datafusion.SessionContext()
    made.register_record_batches("t", [ROWS.to_batches()])
    return made


def plan_of(engine, statement: str) -> bytes:
    return substrait.Producer.to_substrait_plan(engine.sql(statement).logical_plan(), engine).encode()


def finished(job) -> pa.Table:
    """What DataFusion makes of the rows of all partitions."""
    rows = pa.Table.from_batches(list(job.rows()), schema=job.given)
    if job.remainder is None:
        return rows
    other = datafusion.SessionContext()
    other.register_record_batches(job.relation, [rows.to_batches()])
    plan = substrait.Serde.deserialize_bytes(job.substrait)
    return other.create_dataframe_from_logical_plan(
        substrait.Consumer.from_substrait_plan(other, plan)
    ).to_arrow_table()


def shown(table: pa.Table) -> list[str]:
    return sorted(str(tuple(row.values())) for row in table.to_pylist())


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_rows_are_those_of_the_engine_alone_whoever_finishes(cluster, engine, statement):
    wanted = shown(engine.sql(statement).to_arrow_table())
    url = "ballista://" + cluster.addresses()[0]
    with read_job(url, plan_of(engine, statement), target_bytes=10_000) as job:
        assert shown(job.read()) == wanted
        assert shown(finished(job)) == wanted


def test_little_comes_of_a_grouped_plan(cluster, engine):
    with read_job("ballista://" + cluster.addresses()[0], plan_of(engine, STATEMENTS[3])) as job:
        assert sum(batch.num_rows for batch in job.rows()) <= 8 * len(job.partitions)


def test_what_is_not_taken_is_refused_by_name(cluster, engine):
    url = "ballista://" + cluster.addresses()[0]
    with pytest.raises(UnsupportedExpression, match="median"):
        read_job(url, plan_of(engine, "select median(v) from t"))
    with pytest.raises(UnsupportedExpression, match="join"):
        read_job(url, plan_of(engine, "select a.id from t a join t b on a.id = b.v"))
    with pytest.raises(InvalidData):
        read_job(url, b"\x0a\xff\xff no plan")
