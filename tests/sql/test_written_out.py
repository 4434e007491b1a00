"""Blocks in each other of which each names a column of the next twice: planned in steps, not in two to their power."""

import pyarrow as pa
import pytest

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query

SCHEMA = pa.schema([("id", pa.int64())])
SPEC = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
CATALOG = Catalog(
    tables={"t": TableSpec(name="t", schema=SCHEMA, spec=SPEC)},
    maps={"t": PartitionMap.build("t", SPEC, SPEC.static_values())},
)
LINKS = 40
BODIES = {
    "sum": ("select l + l as l from {}", ""),
    "case": ("select case when l > 1 then l else l end as l from {}", "where l > 3"),
    "filters": ("select l + l as l from {} where l > 0", "where l = 5"),
    "groups": ("select l + l as l from {} group by l", "where l = 5"),
    "coalesce": ("select coalesce(l, l, l) as l from {}", "where l = 5"),
}


@pytest.mark.turn(3)
@pytest.mark.timeout(120)  # two to the power of 40 takes longer
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("first", ["select id as l from t", "select 1 as l"])
@pytest.mark.parametrize("nested", [True, False])
def test_columns_that_are_named_twice_each_are_planned_in_steps(body, first, nested):
    block, last = BODIES[body]
    if nested:
        text = f"({first}) q"
        for level in range(LINKS):
            text = f"({block.format(text)}) q{level}"
        sql = f"select l from {text} {last}"
    else:
        chain = "".join(f", c{n} as ({block.format(f'c{n - 1}')})" for n in range(1, LINKS + 1))
        sql = f"with c0 as ({first}){chain} select l from c{LINKS} {last}"
    plan = plan_query(sql, CATALOG, pa.schema([("l", pa.int64())]))
    assert len(str(plan)) < 1_000_000


def test_small_columns_are_still_taken_into_the_block_around_them():
    sql = "select sum(v) as s from (select id * 2 + 1 as v from t) q where v > 7"
    plan = plan_query(sql, CATALOG, pa.schema([("s", pa.decimal128(38, 0))]))
    assert [fragment.sql for fragment in plan.fragments] == [
        "SELECT SUM((t.id * 2 + 1)) AS sum FROM t WHERE (t.id * 2 + 1) > 7"
    ]
