"""Statements that double with each of their steps are counted before anybody writes them out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.binder import Binder
from ballista_py.errors import SqlError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.parsing import measure
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SPEC = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
CATALOG = Catalog(
    tables={"t": TableSpec(name="t", schema=SCHEMA, spec=SPEC)},
    maps={"t": PartitionMap.build("t", SPEC, SPEC.static_values())},
)
LEVELS = 40  # two to that power would never end


def aliases(levels, form="{x} + {x}"):
    steps = "".join(f", {form.format(x=f'x{n - 1}')} as x{n}" for n in range(1, levels + 1))
    return f"select id as x0{steps} from t"


def in_conditions(levels):
    return f"{aliases(levels)} where x{levels} > 1 and x{levels} < 7"


def stars(levels):
    return "select count(*) from " + "(select *, * from " * levels + "t" + ")" * levels


def columns(levels):
    return "select count(*) from " + "(select columns(*), t.* from " * levels + "t" + ") t" * levels


def joins(levels):
    steps = "".join(f", c{n} as (select * from c{n - 1} a, c{n - 1} b)" for n in range(1, levels + 1))
    return f"with c0 as (from t){steps} select count(*) from c{levels}"


def unions(levels):
    steps = "".join(
        f", c{n} as (select * from c{n - 1} union all by name select *, 1 as y{n}, * from c{n - 1})"
        for n in range(1, levels + 1)
    )
    return f"with c0 as (from t){steps} select count(*) from c{levels}"


EXPRESSIONS = {"aliases": aliases, "filtered": in_conditions}
STARS = {"stars": stars, "columns": columns, "joins": joins, "unions by name": unions}


@pytest.fixture(scope="module")
def binder():
    made = Binder(SystemRuntime())
    yield made
    made.close()


def checked(binder, sql):
    measure(sql)
    return binder.check(sql, ["t"])


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("made", "message"),
    [(made, "computed of each other") for made in EXPRESSIONS.values()]
    + [(made, "name those that are needed") for made in STARS.values()],
    ids=[*EXPRESSIONS, *STARS],
)
def test_what_doubles_with_each_step_is_refused_before_the_engine_binds_it(binder, made, message):
    assert checked(binder, made(3)).written.of(1) < 200
    with pytest.raises(SqlError, match=message):
        checked(binder, made(LEVELS))


def test_the_columns_of_tables_count(binder):
    wide = pa.schema([(f"c{n}", pa.int64()) for n in range(1_000)])
    statement = checked(binder, stars(5))
    assert not statement.is_apart([SCHEMA])
    assert statement.is_apart([wide])
    assert not checked(binder, "select * from t").is_apart([wide])
    assert not checked(binder, "select a.*, b.* from t a, t b, (select id as i, v as w from t) c").is_apart([wide])


def test_names_that_are_used_once_are_not_counted_twice(binder):
    many = ", ".join(f"id + {n} as x{n}, x{n} * 2 as y{n}" for n in range(300))
    assert checked(binder, f"select {many} from t").steady
    steps = "".join(f", c{n} as (select x + x as x, * exclude (x) from c{n - 1})" for n in range(1, 30))
    assert checked(binder, f"with c0 as (select id as x, v from t){steps} select * from c29").written.of(1) < 1_000


@pytest.mark.turn(3)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("made", [aliases, in_conditions, stars, joins])
def test_the_planner_leaves_them_to_who_can_be_ended(made):
    plan = plan_query(made(LEVELS), CATALOG, pa.schema([]))
    assert plan.notes[0].startswith("everything is computed at the merge")
    assert plan.merge_sql == made(LEVELS)
    assert plan_query(aliases(4), CATALOG, pa.schema([])).merge_sql != aliases(4)


def windows(uses, size):
    keys = ", ".join(["id + 1"] * size)
    return "select " + ", ".join(["sum(id) over w"] * uses) + f" from t window w as (order by {keys})"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "sql",
    [
        windows(300, 300),
        f"select * from ({windows(2, 2)}) a, ({windows(300, 300)}) b",
        "select " + ", ".join(["(1 + sum(id) over (w order by 1))"] * 300)
        + " from t window w as (partition by " + ", ".join(["id"] * 300) + ")",
        "select " + ", ".join(f"sum(id) over w{n}" for n in range(100))
        + " from t window w0 as (partition by " + ", ".join(["id"] * 400) + ")"
        + "".join(f", w{n} as (w{n - 1})" for n in range(1, 100)),
    ],
)  # fmt: skip
def test_windows_that_have_a_name_are_counted_where_they_are_used(sql):
    with pytest.raises(SqlError, match="windows that have a name stand for more than 20,000 elements"):
        measure(sql)


@pytest.mark.parametrize(
    "sql",
    [
        windows(20, 20),
        windows(1, 2_000),
        " union all ".join([windows(5, 5)] * 60),
        "select window, over from window",
        "select 1 as window, sum(id) over (order by id) from t where window in (select window from t)",
    ],
)
def test_usual_windows_are_not_refused(sql):
    measure(sql)


def test_grouping_sets_are_counted_before_they_are_made():
    cubes = ", ".join(["cube(id, v)"] * LEVELS)
    plan = plan_query(f"select count(*) from t group by {cubes}", CATALOG, pa.schema([]))
    assert "more than" in plan.notes[0]
    assert "grouping sets" in plan.notes[0]
