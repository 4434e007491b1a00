"""Common tables of which each uses the one before twice: as many steps as there are tables, not two to that power."""

import pyarrow as pa
import pytest

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SPEC = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
CATALOG = Catalog(
    tables={"t": TableSpec(name="t", schema=SCHEMA, spec=SPEC)},
    maps={"t": PartitionMap.build("t", SPEC, SPEC.static_values())},
)
LINKS = 40
BODIES = {
    "natural join": "select * from {0} a natural join {0} b",
    "computed columns": "select a.id + b.id as id, a.v || b.v as v from {0} a, {0} b",
    "cases": "select case when a.id > b.id then a.id else b.id end as id, coalesce(a.v, b.v) as v"
    " from {0} a join {0} b on a.id = b.id",
    "union": "select * from {0} union all select * from {0}",
    "except": "select * from {0} except select * from {0}",
    "scalars": "select (select max(id) from {0}) + (select min(id) from {0}) as id, 'x' as v",
    "exists": "select * from {0} a where exists (select 1 from {0} b where b.id = a.id)",
    "members": "select * from {0} where id in (select id from {0}) and v in (select v from {0})",
    "groups": "select a.id, max(b.v) as v from {0} a join {0} b using (id) group by 1",
    "windows": "select a.id, max(b.v) over (partition by a.id) as v from {0} a join {0} b using (id)",
    "lateral": "select a.id, x.v from {0} a, lateral (select b.v from {0} b where b.id = a.id) x",
    "outer join": "select distinct a.* from {0} a left join {0} b on a.id = b.id",
    "limit": "select a.* from {0} a, {0} b order by 1 limit 5",
    "filters": "select a.id, b.v from (select * from {0} where id > 3) a join (select * from {0} where id < 9) b"
    " on a.id = b.id",
}


@pytest.mark.share(3)
@pytest.mark.timeout(60)  # two to the power of 40 takes longer
@pytest.mark.parametrize("kept", ["", "materialized", "not materialized"])
@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_a_chain_of_common_tables_is_planned_in_as_many_steps_as_it_has(body, kept):
    chain = ", ".join(f"c{n} as {kept} ({body.format(f'c{n - 1}')})" for n in range(1, LINKS + 1))
    text = f"with c0 as (select * from t), {chain} select count(*), max(id) from c{LINKS}"
    plan = plan_query(text, CATALOG, pa.schema([]))
    assert plan.fragments


@pytest.mark.timeout(60)
def test_a_chain_over_no_table_is_planned_in_as_many_steps_as_it_has():
    chain = ", ".join(
        f"c{n} as (select x from c{n - 1} union all select x from c{n - 1})" for n in range(1, LINKS + 1)
    )
    text = f"with c0 as (select 1 as x), {chain} select count(*) from c{LINKS}"
    assert plan_query(text, CATALOG, pa.schema([])).fragments == ()
