"""What the planner leaves to the merge can be said as a plan, and gives the rows of the whole statement."""

import pytest

from ballista_py.errors import UnsupportedExpression
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query
from ballista_py.sql.substrait.reading import read_plan
from ballista_py.sql.substrait.writing import write_plan

AGGREGATES = [
    "sum(i64)", "avg(i64)", "count(*)", "count(f64)", "min(f64)", "max(d)", "min(g)", "avg(f32)", "sum(dc)", "avg(dc)",
    "stddev(f32)", "count(distinct s)", "bool_and(bo)", "sum(i64) filter (where bo)", "var_pop(i64)", "any_value(k)",
    "median(f32)", "max(ts)", "sum(f32) / count(*)", "min(i64) + max(i64)",
]  # fmt: skip
FORMS = [
    "select {} as z from f0",
    "select g, {} as z from f0 group by g",
    "select g, {} as z from f0 where f32 > -5 group by g having count(*) > 2 order by z desc, g limit 5",
    "select i8 % 3 as y, {} as z from f0 group by 1",
    "select g, bo, {} as z, sum(i64) as s from f0 group by g, bo order by 1, 2",
]
OTHERS = [
    "select k, s, f64 from f0 order by f32 desc nulls last, k limit 10 offset 2",
    "select distinct g from f0",
    "select k, row_number() over (partition by g order by k) as z from f0",
    "select g, sum(i64) as s, rank() over (order by sum(i64) desc) as z from f0 group by g",
    "select upper(g) as u, i64 + 1 as z from f0 order by k",
    "select k, lag(i64) over (partition by g order by k) as z from f0",
]
NOT_SAID = 10  # any_value and median, which are merged from values


@pytest.fixture
def remainders(engine):
    """Statements with what is left of them, and with the relation that it is over."""
    rows = engine.sql("select * rename (count as i64) from f0").to_arrow_table()
    engine.register("f0", rows)
    spec = PartitionSpec.parse(["bucket(8, k)"], rows.schema)
    table = TableSpec(name="f0", schema=rows.schema, spec=spec)
    catalog = Catalog(tables={"f0": table}, maps={"f0": PartitionMap.build("f0", spec, spec.static_values())})
    found = []
    for sql in [*(form.format(one) for one in AGGREGATES for form in FORMS), *OTHERS]:
        whole = engine.sql(sql).to_arrow_table()
        plan = plan_query(sql, catalog, whole.schema)
        assert plan.merge_sql is not None
        fragment = plan.fragments[0].sql
        parts = [f"k % 3 = {n}" for n in range(3)]  # three legs, as far as they are not cut off themselves
        legs = [fragment] if " LIMIT " in fragment else [_over(fragment, part) for part in parts]
        found.append((sql, plan.merge_sql, whole, [engine.sql(leg).to_arrow_table() for leg in legs]))
    return found


def _over(fragment, part):
    return fragment.replace(" FROM f0", f" FROM (SELECT * FROM f0 WHERE {part}) AS f0")


def _plans(remainders):
    for sql, merge, whole, legs in remainders:
        try:
            yield sql, write_plan(merge, {"f0": legs[0].schema}), whole, legs
        except UnsupportedExpression:
            continue


def test_what_is_left_of_most_statements_can_be_said(remainders):
    assert len(list(_plans(remainders))) == len(remainders) - NOT_SAID


def test_what_is_left_gives_the_rows_of_the_statement(remainders, engine, same):
    import pyarrow as pa

    for sql, data, whole, legs in _plans(remainders):
        gathered = pa.concat_tables(legs)
        engine.register("gathered", gathered)
        query = read_plan(data, {"f0": gathered.schema})
        found = engine.sql(query.sql.replace('FROM "f0"', 'FROM gathered AS "f0"')).to_arrow_table()
        assert same.of(sql, whole, found), (sql, query.sql)


def test_datafusion_finishes_what_is_left(remainders, same):
    datafusion = pytest.importorskip("datafusion")
    substrait = pytest.importorskip("datafusion.substrait")
    for sql, data, whole, legs in _plans(remainders):
        context = datafusion.SessionContext()
        context.register_record_batches("f0", [[batch for leg in legs for batch in leg.to_batches()]])
        plan = substrait.Consumer.from_substrait_plan(context, substrait.Serde.deserialize_bytes(data))
        found = context.create_dataframe_from_logical_plan(plan).to_arrow_table()
        assert same.of(sql, whole, found), (sql, same.rows(whole)[:3], same.rows(found)[:3])
        assert same.types(whole) == same.types(found), sql
