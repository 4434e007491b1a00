"""Plans from templates: exactly the plan that the statement would get by itself, or none."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import SqlError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.bind.now import mentions_moment
from ballista_py.sql.estimate.statistics import TableSizes, spreads
from ballista_py.sql.parse.shape import INTEGER, LONG, TEXT, Shape, shape_of, shapes_of
from ballista_py.sql.plan import BroadcastLimits, Catalog
from ballista_py.sql.plan_template import PlanTemplate, marked, plan_template
from ballista_py.sql.planner import plan_query
from ballista_py.testing.sql.fuzz import random_query

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    ("small", pa.int8()),
    ("kind", pa.string()),
    ("day", pa.date32()),
    ("price", pa.decimal128(12, 2)),
    ("weight", pa.float64()),
])  # fmt: skip
LAYOUTS = {
    "bucket": (["bucket(8, id)"], None),
    "two keys": (["bucket(4, id)", "kind"], [(n, k) for n in (0, 1, 2, 3) for k in ("a", "b b", "it", None)]),
    "text": (["kind"], [("a",), ("b b",), ("it",), (None,)]),
    "year": (["year(day)"], [(2019,), (2020,), (2021,), (None,)]),
    "whole numbers": (["small"], [(n,) for n in (-3, 0, 1, 5, 100, None)]),
    "decimals": (["bucket(5, price)"], None),
}
SHARED = [
    "select id, kind from e where id = 5",
    "select * from e where id=5 and kind = 'a'",
    "select kind, count(*), avg(price) from e where id >= 5 and id < 9 group by kind having count(*) between 1 and 3",
    "select id from e where id = 5 or kind = 'a' or small < 3",
    "select id from e where not (id = 5 and kind = 'a')",
    "select id as x, weight + 1 as y from e where kind = 'a' and weight is not null order by price desc limit 7",
    "select distinct kind from e where small > 5",
    "select count(distinct id) from e where price = 5",
    "select id from e where day >= '2020-03-04'",
    "select id, row_number() over (partition by id order by day) as n from e where small <> 5",
    "select e.id from e where e.small = 5 and e.kind between 'a' and 'b' and e.small in (1, 2)",
    'select "id" from e as "x y" where "x y"."kind" = \'a\'',
    "select id from e where id = 5000000000000",
    "select max(id), sum(weight) from e where id = 5 and id = 6",
    "select id from e where id = 5 and year(day) = 2020",
    "select id, kind from e where id in (5, 6, 7) and kind in ('a', 'x') and small not in (3)",
    "select id from e where small between 1 and 7 and (day is null or not id between 5 and 9)",
    "select id, kind from e where kind = 'a' limit 5",
    "select id, kind from e where id > 5 order by id desc limit 6",
    "select distinct kind from e where small in (1, 2) limit 4",
    "select kind, sum(price) as m from e group by kind order by m limit 9",
    "select a.id, b.kind from e a join e b using (id) where a.id = 5 and b.small between 1 and 3",
    "select a.kind, count(*) from e a, f b where a.id = b.id and a.price = 7 and b.id in (5, 6) group by 1 limit 8",
    "select a.id from e a left join f b on a.id = b.id and b.small > a.small where a.id = 5 or a.small = 3",
    "select a.id, b.id from e a full join f b on a.id = b.id where a.id = 5",
    "select a.id, b.small from e a right join f b on a.id = b.id where b.id = 5 and a.small < 7",
    "select r.kind, max(e.id) from r join e on r.small = e.small where r.id = 7 and e.id = 5 group by r.kind",
    "select e.id from e left join r on r.small = e.small join f on f.id = e.id and f.id = 5 where e.kind = 'x' limit 4",
]
NOT_SHARED = [
    "select id from e where small = 5 and id = 5 + 1",
    "select id = 5 from e",  # the constant is in a name
    "select id from e where id = 5 order by small = 5",
    "select count(*) filter (where id = 5) from e",
    "select id from e where id = 5 group by id having sum(small) > 6",
    "select id from e where exists (select 1 from e f where f.id = 5)",
    "select a.id from e a join e b on a.small = b.small where a.id = 5",
    "select a.id from e a left join f b on a.id = b.id and b.small = 5 where a.id = 6",
    "select a.id from e a full join f b on a.id = b.id and a.small = 5",
    "select a.id from (select id from e limit 5) a where a.id = 6",
    "select id from e limit 20 offset 5",
    "select id in (5, 6) from e where id in (7, 8)",
    "select id from e where id between 5 and 8 order by small between 6 and 7",
    "select id from e where id = 5 union all select id from e where id = 6",
    "with c as (select * from e where id = 5 order by x limit 3) select id from c",
    "select id from e where id = 5 and random() > 1",
    "select id from r where id = 5",
    "select 1 as one where 2 = 3",
]
CONDITIONS = [
    "k = 3", "k <> 'x'", "a >= 2 or k = 1", "not (b < 4)", "d = 5", "x > 6", "s = 'p'", "coalesce(s, 'q') = 'r'",
    "a + 1 = 7", "b in (1, 2)", "dt is not null", "case when a = 8 then bo else not bo end", "k = 9::bigint",
]  # fmt: skip
ITEMS = ["*", "k, count(*), sum(d) as m", "distinct s", "max(x) as m", "id, sum(a) over (partition by k) as m"]
VALUES = {
    INTEGER: ["0", "1", "5", "7", "127", "128", "2019", "2020", "2147483647", "99999"],
    LONG: ["2147483648", "9007199254740993", "999999999999999999"],
    TEXT: ["'a'", "'b b'", "''", "'it'", "'2020-02-29'", "'2020-02-30'", "'5'", "'5 = 5'", "'\n'", "'mark 1'"],
}


@pytest.fixture(scope="module")
def engine() -> Any:
    made = DuckDBEngine()
    yield made
    made.close()


def catalog_of(layout: str) -> Catalog:
    """The table `e` in that layout, and `r` on every executor."""
    keys, values = LAYOUTS[layout]
    tables, maps = {}, {}
    for name in ("e", "f", "r"):
        spec = PartitionSpec.parse(keys, SCHEMA) if name != "r" else PartitionSpec.whole()
        found = (spec.static_values() if values is None else values) if name != "r" else [()]
        weights = np.arange(10.0, 10.0 + len(found))
        maps[name] = PartitionMap.build(name, spec, found, weights=weights)
        distribution = "partitioned" if name != "r" else "replicated"
        group = "g" if name != "r" else None
        tables[name] = TableSpec(name=name, schema=SCHEMA, spec=spec, distribution=distribution, group=group)
    spread = spreads([(900.0, {"id": (0.0, 90.0), "price": (0.0, 10.0), "small": (-3.0, 127.0)})])
    sizes = {name: TableSizes(pmap.weights * 50, pmap.weights * 5_000, spread) for name, pmap in maps.items()}
    return Catalog(tables=tables, maps=maps, broadcasts=BroadcastLimits(), sizes=sizes)


def template_of(sql: str, catalog: Catalog, engine: DuckDBEngine) -> tuple[Shape, PlanTemplate] | None:
    for shape in shapes_of(sql):
        text = marked(shape)
        assert text is not None
        try:
            template = plan_template(shape, catalog, engine.describe(text, catalog.schemas))
        except SqlError:
            continue
        if template is not None:
            return shape, template
    return None


def check(shape: Shape, template: PlanTemplate, catalog: Catalog, engine: DuckDBEngine, draws: int) -> int:
    """Compare plans for random constants; how many came from the template."""
    chance, shared = random.Random(shape.key), 0
    for _ in range(draws):
        other = shape.filled([chance.choice(VALUES[kind]) for kind in shape.kinds])
        found = next(one for one in shapes_of(other) if one == shape)
        plan = template.filled(found.constants)
        if plan is None:
            assert len(set(found.constants)) < len(found.constants)
            continue
        try:
            output = engine.describe(other, catalog.schemas)
        except SqlError:  # a constant that is none of the column's type: the legs say so
            output = template.output
        assert plan == plan_query(other, catalog, output), other
        shared += 1
    return shared


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_template_gives_the_plan_of_the_statement_itself(layout: str, engine: DuckDBEngine) -> None:
    catalog, shared, pruned = catalog_of(layout), 0, set()
    for sql in SHARED:
        found = template_of(sql, catalog, engine)
        if found is None:  # the mark is no date, or the tables do not meet in their legs
            assert "'2020" in sql or (layout != "bucket" and (" f" in sql or "e b" in sql))
            continue
        shape, template = found
        shared += check(shape, template, catalog, engine, 8)
        plan = template.filled(shape.constants)
        pruned |= {len(t.partitions) < t.total for f in plan.fragments for t in f.tables} if plan else set()
    assert shared > 120
    assert pruned == {True, False}


@pytest.mark.parametrize("sql", NOT_SHARED)
def test_whatever_else_depends_on_a_constant_has_no_template(sql: str, engine: DuckDBEngine) -> None:
    assert template_of(sql, catalog_of("bucket"), engine) is None


def test_equal_constants_are_planned_from_the_text(engine: DuckDBEngine) -> None:
    found = template_of("select id from e where id = 5 and small = 6", catalog_of("bucket"), engine)
    assert found is not None
    template = found[1]
    assert template.filled(["5", "5"]) is None
    assert template.filled(["5", "6"]) is not None


def test_a_statement_that_holds_a_mark_has_no_template(engine: DuckDBEngine) -> None:
    (mark,) = shape_of(marked(shape_of("select 1 where 2 = 3")) or "").constants  # type: ignore[union-attr, arg-type]
    shape = shape_of(f"select id from e where id = 5 and small + {mark} > id")
    assert shape is not None
    assert marked(shape) is None
    assert plan_template(shape, catalog_of("bucket"), SCHEMA) is None


def test_random_statements_get_their_own_plan_from_a_template(small: Any, engine: DuckDBEngine) -> None:
    catalog, shared = small.catalog, 0
    chance = random.Random(5)
    for seed in range(150):
        written = random_query(seed).sql
        conditions = [c for c in CONDITIONS if chance.random() < 0.4]
        for sql in (written, _block(chance.choice(ITEMS), conditions)):
            found = None if mentions_moment(sql) else template_of(sql, catalog, engine)
            if found is not None:
                shared += check(*found, catalog, engine, 2)
    assert shared > 80


def _block(items: str, conditions: list[str]) -> str:
    group = " group by k" if items.startswith("k,") else ""
    return f"select {items} from t where {' and '.join(conditions) or 'a = 1'}{group}"
