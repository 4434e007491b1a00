"""Parts of an answer: together they are all of it, and no row is in two."""

import attrs
import pyarrow as pa
import pytest

from ballista_py.errors import SqlError
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.legs import legs_of
from ballista_py.sql.parts import is_divisible, portion_of, restricted
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("size", pa.int64())])
MEMBERS = [("e1", "i1"), ("e2", "i2"), ("e3", "i3")]


@pytest.fixture(scope="module")
def catalog():
    spec = PartitionSpec.parse(["bucket(12, id)"], SCHEMA)
    executors = [Executor(name, instance_id=instance) for name, instance in MEMBERS]
    tables = {n: TableSpec(name=n, schema=SCHEMA, spec=spec, group="items") for n in ("items", "other")}
    pmap = PartitionMap.build("items", spec, spec.static_values())
    pmap = pmap.apply(PartitionAssigner().assign(pmap, executors))
    maps = {"items": pmap, "other": attrs.evolve(pmap, table="other")}
    tables["small"] = TableSpec(name="small", schema=SCHEMA, spec=PartitionSpec.whole(), distribution="replicated")
    pmap = PartitionMap.build("small", PartitionSpec.whole(), PartitionSpec.whole().static_values())
    maps["small"] = pmap.apply(PartitionAssigner().assign(pmap, executors))
    return Catalog(tables=tables, maps=maps)


def plan(catalog, sql):
    return plan_query(sql, catalog, pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize(
    "sql",
    [
        "select id from items",
        "select id from items where id in (1, 2, 3, 4, 5, 6, 7, 8, 9)",
        "select a.id from items a join other b on a.id = b.id",
        "select a.id from items a join small b on a.size = b.size",
        "select id from items group by id",
    ],
)
def test_the_parts_share_the_partitions_of_the_plan(catalog, sql):
    found = plan(catalog, sql)
    assert is_divisible(found)
    parts = [portion_of(found, leg).partitions for leg in legs_of(found, catalog, MEMBERS)]
    assert len(parts) > 1
    for table in found.fragments[0].tables:
        of_parts = [restricted(found, part).fragments[0].tables for part in parts]
        named = [p for tables in of_parts for t in tables if t.table == table.table for p in t.partitions]
        wanted = list(table.partitions) * (len(parts) if table.whole else 1)
        assert sorted(named) == sorted(wanted)


@pytest.mark.parametrize(
    "sql", ["select count(*) as id from items", "select id from items order by id", "select 1 as id"]
)
def test_what_needs_a_merge_is_not_divided(catalog, sql):
    found = plan(catalog, sql)
    assert not is_divisible(found)
    with pytest.raises(SqlError, match="run it again"):
        restricted(found, {"items": [1]})


def test_a_part_keeps_only_what_the_plan_still_needs(catalog):
    found = restricted(plan(catalog, "select id from items where id = 7"), {"items": range(12)})
    assert len(found.fragments[0].tables[0].partitions) == 1
    assert restricted(found, {}).fragments[0].tables[0].partitions == ()
