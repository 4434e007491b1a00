"""Defaults of columns, and groupings by places, as PostgreSQL and Spark mean them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import BallistaError, UnsupportedExpression
from ballista_py.sql.parse.kind import engine_sql
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query

TABLES = {"t": pa.schema([("a", pa.int32()), ("b", pa.int32())])}


@pytest.mark.parametrize(
    ("dialect", "declared", "read"),
    [
        ("postgres", "b int default 10", "b INT DEFAULT 10"),
        ("spark", "b int default 10", "b INT DEFAULT 10"),
        ("spark", "b string default 'x' not null", "b TEXT DEFAULT 'x' NOT NULL"),
        ("postgres", "b float default -1.5", "b DOUBLE DEFAULT -1.5"),
        ("postgres", "b bool default true", "b BOOLEAN DEFAULT TRUE"),
        ("postgres", "b date default '2020-01-01'", "b DATE DEFAULT CAST('2020-01-01' AS DATE)"),
        ("spark", "b date default date '2020-01-01'", "b DATE DEFAULT CAST('2020-01-01' AS DATE)"),
        ("postgres", "b int default null", "b INT DEFAULT NULL"),
    ],
)
def test_a_default_is_declared_in_every_dialect(dialect, declared, read):
    assert engine_sql(f"create table d (a int, {declared})", dialect, {}) == f"CREATE TABLE d (a INT, {read})"


@pytest.mark.parametrize("declared", ["b int default a", "b int default nextval('x')"])
def test_a_default_that_is_no_value_of_its_own_is_refused(declared):
    for dialect in ("postgres", "spark"):
        with pytest.raises(BallistaError):
            engine_sql(f"create table d (a int, {declared})", dialect, {})


def test_groupings_by_places_and_names_are_not_mixed():
    for dialect in ("postgres", "spark"):
        for keys in ("grouping sets ((1), (b), (a, 2))", "a, rollup (2)", "cube (1, b)"):
            with pytest.raises(UnsupportedExpression, match="name the column, as the other keys do"):
                engine_sql(f"select a, b, count(*) from t group by {keys}", dialect, TABLES)
        for keys in ("grouping sets ((1), (2))", "rollup (a, b)", "1, b", "a, cube (b)"):
            assert engine_sql(f"select a, b, count(*) from t group by {keys}", dialect, TABLES)


def test_names_for_more_columns_than_a_with_has_are_ignored_as_by_the_engine():
    sql = "with x(n, b) as (select 1) select * from x"
    engine = DuckDBEngine(threads=1)
    output = engine.describe(sql, {})
    assert output.names == ["n"]
    assert plan_query(sql, Catalog(tables={}, maps={}), output).output == output
    engine.close()
