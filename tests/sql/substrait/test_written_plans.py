"""Statements that were written as plans give the same rows: read again here, and run by DataFusion if it is there."""
# ruff: noqa: E501 (statements stand in one line each)

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.substrait.reading import read_plan
from ballista_py.sql.substrait.writing import write_plan

STATEMENTS = """
SELECT groups.g, SUM(CAST(groups.sum AS INT128)) AS "sum(size)", (CAST(SUM(CAST(groups.sum AS INT128)) AS DOUBLE) / SUM(groups.count)) AS "avg(size)", CAST(COALESCE(SUM(groups.count), 0) AS BIGINT) AS "count_star()", MIN(groups.f64) AS "min(f)", MAX(groups.d) AS "max(dt)" FROM f0 AS groups GROUP BY groups.g
SELECT groups.g, (CAST(SUM(groups.dc) AS DOUBLE) / SUM(groups.count)) AS "avg(d)" FROM f0 AS groups GROUP BY groups.g HAVING SUM(CAST(groups.sum AS INT128)) > 5 ORDER BY 2 DESC, 1 LIMIT 3
SELECT COUNT(DISTINCT groups.g) AS "count(DISTINCT g)", SUM(groups.f32) AS "sum(f)" FROM f0 AS groups
SELECT groups.g AS y, CASE WHEN SUM(groups.k) > 1 THEN SQRT(ABS(SUM(groups.k * (groups.f32 + (groups.f32 - groups.mean_of_mean) * (groups.f32 - groups.mean_of_mean)))) / (SUM(groups.k) - 1)) END AS "stddev(f)", SUM(groups.sum) AS z FROM (SELECT groups.g, groups.k, groups.f32, groups.sum, SUM(groups.k * groups.f32) OVER (PARTITION BY groups.g) / SUM(groups.k) OVER (PARTITION BY groups.g) AS mean_of_mean FROM f0 AS groups) AS groups GROUP BY groups.g
SELECT f0.k, ROW_NUMBER() OVER (PARTITION BY f0.g ORDER BY f0.k) AS "row_number() OVER (PARTITION BY g ORDER BY f)" FROM f0
SELECT groups.g, SUM(CAST(groups.sum AS INT128)) AS s, RANK() OVER (ORDER BY SUM(CAST(groups.sum AS INT128)) DESC) AS "rank()" FROM f0 AS groups GROUP BY groups.g
SELECT f0.k, f0.g, f0.dc FROM f0 ORDER BY 3 DESC, 1 ASC LIMIT 10 OFFSET 2
SELECT DISTINCT f0.g FROM f0
SELECT DISTINCT f0.g, f0.bo FROM f0 ORDER BY g NULLS FIRST, bo DESC
SELECT f0.g, CASE WHEN SUM(f0.n) > 10 THEN 'big' ELSE 'small' END AS x, BOOL_AND(CAST(f0.f64 > 1 AS BOOLEAN)) AS b, BOOL_OR(f64 < 0) AS c FROM (SELECT g, count AS n, f64 FROM f0) AS f0 GROUP BY f0.g
SELECT f0.s, f0.i32 FROM f0 ORDER BY f0.k ASC
SELECT SUM(groups.sum) / CAST(COALESCE(SUM(groups.count), 0) AS BIGINT) AS "(sum(size) / count_star())", groups.g AS m FROM f0 AS groups GROUP BY groups.g ORDER BY 1 ASC, 2
SELECT k FROM f0 WHERE bo AND (k > 3 AND (f64 / f64 > 1 OR k < 20))
SELECT f64 / f64 AS z, COUNT(*) AS n, COUNT(DISTINCT f64 - f64) AS v FROM f0 GROUP BY f64 / f64
SELECT MIN(groups.i8) + MAX(groups.i8) AS a, MIN(f64) FILTER (WHERE k > 25) AS b, MAX(f64) FILTER (WHERE k < 4) AS c, MIN(f32) AS d, MAX(f64) AS e FROM f0 AS groups
SELECT g, MIN(f64) AS a, MAX(f64) AS b, MIN(f64 / f64) AS c FROM f0 GROUP BY g
SELECT k + 1 AS a, k - i32 AS b, i32 * i32 AS c, i8 + 1 AS d, i8 + i32 AS e, -i32 AS f, -k AS g, i32 % 7 AS h, i32 // 7 AS i, i32 / 4 AS j FROM f0
SELECT dc + dc AS a, dc * 2 AS b, dc - 1 AS c, dc * dc AS d, -dc AS e, dc / 3 AS f, dc + k AS g, abs(dc) AS h FROM f0
SELECT sum + 1 AS a, sum * 2 AS b, sum - k AS c FROM f0
SELECT f64 + 1 AS a, f32 * 2 AS b, f32 + f64 AS c, f64 * 1.5 AS d, f64 / f64 AS e FROM f0
SELECT k FROM f0 WHERE f64 = 0
SELECT k FROM f0 WHERE f64 >= 0.0 AND NOT (f64 > 1)
SELECT k, f64 > 1.5 AS a, f64 IN (0, 1.5) AS b, f64 BETWEEN 0 AND 3 AS c, f64 IS NOT DISTINCT FROM NULL AS d, f64 < 0 AS e, 0 <= f64 AS f FROM f0
SELECT k, g = 'x' AS a, g IN ('x', 'y') AS b, g LIKE 'x%' AS c, upper(g) AS d, s = 'it''s' AS e FROM f0
SELECT k, bo IS TRUE AS a, bo IS NOT FALSE AS b, bo IS NULL AS c, NOT bo AS d, bo OR k > 3 AS e, bo AND g = 'x' AND k > 2 AS f FROM f0
SELECT k, CASE WHEN bo THEN 1 WHEN k > 9 THEN 2 END AS a, CASE g WHEN 'x' THEN 1.5 ELSE 0 END AS b, COALESCE(i32, 0) AS c, COALESCE(g, '-') AS d, CASE WHEN bo THEN i8 ELSE 1000 END AS e FROM f0
SELECT k, d < '1971-01-01' AS a, d < DATE '1971-01-01' AS b, ts < TIMESTAMP '1971-01-01 00:00:00' AS c, CAST(d AS TIMESTAMP) AS e, ts = '1970-01-01' AS f FROM f0
SELECT CAST(k AS DOUBLE) AS a, CAST(k AS VARCHAR) AS b, CAST(dc AS DOUBLE) AS c, CAST(dc AS DECIMAL(20, 4)) AS d, CAST(i8 AS BIGINT) AS e, CAST(bo AS INT) AS f, CAST(sum AS BIGINT) AS h FROM f0
SELECT g, COUNT(*) AS n, COUNT(s) AS m, COUNT(DISTINCT s) AS v, SUM(k) FILTER (WHERE bo) AS z FROM f0 GROUP BY g HAVING COUNT(*) > 2 ORDER BY n DESC, g LIMIT 4
SELECT k, SUM(i32) OVER (PARTITION BY g ORDER BY k) AS a, LAG(s, 1) OVER (PARTITION BY g ORDER BY k DESC) AS b, SUM(k) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS c, LEAD(i32, 2, 0) OVER (ORDER BY k) AS d, COUNT(*) OVER () AS e, DENSE_RANK() OVER (ORDER BY g) AS f, FIRST_VALUE(k) OVER (PARTITION BY g ORDER BY k) AS h FROM f0
SELECT k, SUM(i32) OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a, SUM(i32) OVER (ORDER BY k ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS b, MAX(s) OVER (PARTITION BY bo) AS c FROM f0
SELECT k, f64 FROM f0 ORDER BY f64 DESC, k
SELECT k, f64 FROM f0 ORDER BY f64 NULLS FIRST, k LIMIT 7
SELECT COUNT(*) AS n FROM (SELECT DISTINCT g, bo FROM f0) AS q
SELECT g FROM f0 GROUP BY 1
SELECT COUNT(DISTINCT f64) AS n FROM f0
SELECT MIN(s) AS a, MAX(s) AS b, MIN(d) AS c, MAX(ts) AS e, MIN(bo) AS f FROM f0
SELECT 1 AS a, 2.50 AS b, 'x' AS c, TRUE AS d, 3000000000 AS e, 1e5 AS f, -7 AS h, CAST(NULL AS INT) AS i FROM f0
SELECT AVG(k) AS a, AVG(dc) AS b, AVG(f32) AS c FROM f0
SELECT * FROM f0 WHERE k < 3
SELECT k FROM f0 LIMIT 0
SELECT q.x + 1 AS y FROM (SELECT k * 2 AS x FROM f0 ORDER BY k DESC LIMIT 3) AS q WHERE q.x > 50
SELECT SUM(k) AS a, SUM(i8) AS b FROM f0 WHERE k > 1000
SELECT wide + wide AS a, wide + dc AS b, CAST(wide AS DOUBLE) AS c, wide > 1000 AS d, wide > dc AS e FROM f0
""".strip().splitlines()  # fmt: skip
REFUSED = {
    "SELECT NULL AS a, k FROM f0": "NULL without a type",
    "SELECT CAST(f64 AS INT) AS a FROM f0": "several ways",
    "SELECT k FROM f0 WHERE s LIKE g": "LIKE",
    "SELECT g || s AS x FROM f0": "cannot be said",
    "SELECT median(k) AS x FROM f0": "cannot be said",
    "SELECT any_value(k) AS x FROM f0": "cannot be said",
    "SELECT g, SUM(k) AS x FROM f0 GROUP BY GROUPING SETS ((g), ())": "grouping sets",
    "SELECT a.k FROM f0 AS a JOIN f0 AS b ON a.k = b.k": "clause 'joins'",
    "SELECT k FROM f0 UNION ALL SELECT k FROM f0": "one SELECT",
    "SELECT k FROM f0 WHERE k IN (SELECT k FROM f0)": "query within IN",
    "SELECT k FROM nowhere": "no relation",
    "SELECT nothing FROM f0": "cannot be found",
    "SELECT k FROM f0 ORDER BY k LIMIT 10%": ".",
    "SELECT k FROM f0 QUALIFY ROW_NUMBER() OVER (ORDER BY k) = 1": "clause",
    "SELECT k, SUM(f64) OVER (ORDER BY k ROWS 2 PRECEDING) AS x FROM f0": "floats over a frame",
    "SELECT k FROM f0 WHERE dc = s": "beside",
    "SELECT k FROM f0 WHERE d = '1971-1-1'": "several ways",
    "SELECT abs(k) AS x FROM f0": "wraps around",
    "SELECT k FROM f0; SELECT k FROM f0": "one statement",
    "SELECT": ".",
    "SELECT k FROM f0 SAMPLE 10": ".",
    "SELECT DISTINCT ON (g) g, k FROM f0": "DISTINCT ON",
    "DELETE FROM f0": "one SELECT",
    "SELECT SUM(k ORDER BY g) AS x FROM f0": ".",
    "SELECT k FROM f0 AS q(a, b)": "new names for its columns",
}


@pytest.fixture
def schemas(engine):
    return {"f0": engine.sql("from f0").to_arrow_table().schema}


@pytest.fixture
def on_datafusion(engine):
    """What DataFusion gives for a plan over `f0`."""
    datafusion = pytest.importorskip("datafusion")
    substrait = pytest.importorskip("datafusion.substrait")
    batches = engine.sql("from f0").to_arrow_table().to_batches()

    def run(data):
        context = datafusion.SessionContext()
        context.register_record_batches("f0", [batches])
        plan = substrait.Consumer.from_substrait_plan(context, substrait.Serde.deserialize_bytes(data))
        return context.create_dataframe_from_logical_plan(plan).to_arrow_table()

    return run


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_statement_read_again_gives_its_rows(sql, engine, schemas, same):
    found = read_plan(write_plan(sql, schemas), schemas)
    wanted, rows = engine.sql(sql).to_arrow_table(), engine.sql(found.sql).to_arrow_table()
    assert same.of(sql, wanted, rows), found.sql
    assert (wanted.schema.names, wanted.schema.types) == (rows.schema.names, rows.schema.types)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_datafusion_gives_the_rows_of_a_statement(sql, engine, schemas, same, on_datafusion):
    wanted, found = engine.sql(sql).to_arrow_table(), on_datafusion(write_plan(sql, schemas))
    assert same.of(sql, wanted, found), (same.rows(wanted)[:4], same.rows(found)[:4])
    assert same.types(wanted) == same.types(found)


@pytest.mark.parametrize(("sql", "reason"), REFUSED.items())
def test_what_cannot_be_said_is_refused_by_name(sql, reason, schemas):
    with pytest.raises(UnsupportedExpression, match=reason):
        write_plan(sql, schemas)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k + 9223372036854775807 AS a FROM f0 WHERE k = 1",
        "SELECT i8 * i8 AS a FROM f0 WHERE k = 1",
        "SELECT i32 // 0 AS a FROM f0",
        "SELECT CAST(i32 AS TINYINT) + CAST(100 AS TINYINT) AS a FROM f0",
        "SELECT -CAST(-32768 AS SMALLINT) AS a FROM f0",
        "SELECT k * 9223372036854775807 AS a FROM f0 WHERE k = 29",
    ],
)
def test_what_does_not_fit_is_an_error_and_never_another_number(sql, engine, schemas, on_datafusion):
    data = write_plan(sql, schemas)
    with pytest.raises(duckdb.Error):
        engine.sql(read_plan(data, schemas).sql).to_arrow_table()
    with pytest.raises(Exception, match=r"(?i)overflow|cast|divide|zero|can't|too large|out of range|convert"):
        on_datafusion(data)


WHOLE, DECIMALS, FLOATS = ["k", "i32", "i16", "i8", "count"], ["dc", "sum"], ["f64", "f32"]
TEXTS, TRUTHS = ["s", "g"], ["bo"]


@st.composite
def numbers(draw, depth=2):
    """An expression that is a number."""
    kind = draw(st.integers(0, 8 if depth else 1))
    if kind == 0:
        return draw(st.sampled_from(WHOLE + DECIMALS + FLOATS))
    if kind == 1:
        return draw(
            st.sampled_from(["0", "1", "7", "-3", "100", "2.5", "0.0", "3000000000", "CAST(1.5 AS DOUBLE)"])
        )
    below = numbers(depth - 1)
    if kind == 2:
        return f"CASE WHEN {draw(conditions(depth - 1))} THEN {draw(below)} ELSE {draw(below)} END"
    if kind == 3:
        return f"COALESCE({draw(below)}, {draw(below)})"
    if kind == 4:
        kind = draw(st.sampled_from(["DOUBLE", "BIGINT", "DECIMAL(20, 2)"]))
        return f"CAST({draw(st.sampled_from(WHOLE))} AS {kind})"
    if kind == 5:
        return f"(-{draw(st.sampled_from(WHOLE + DECIMALS + FLOATS))})"
    operator = draw(st.sampled_from(["+", "-", "*", "/", "+", "-", "*", "%", "//"]))
    return f"({draw(below)} {operator} {draw(below)})"


@st.composite
def conditions(draw, depth=2):
    """An expression that is true or false."""
    kind = draw(st.integers(0, 8 if depth else 3))
    if kind == 0:
        return draw(st.sampled_from(TRUTHS))
    if kind in (1, 2):
        sign = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]))
        return f"({draw(numbers(max(0, depth - 1)))} {sign} {draw(numbers(max(0, depth - 1)))})"
    if kind == 3:
        return draw(
            st.sampled_from(["(s = 'a')", "(g IN ('x', 'z'))", "(s LIKE 'a%')", "(g > 'x')", "(s IS NULL)"])
        )
    if kind == 4:
        return f"(NOT {draw(conditions(depth - 1))})"
    if kind == 5:
        return f"({draw(numbers(depth - 1))} BETWEEN {draw(numbers(0))} AND {draw(numbers(0))})"
    if kind == 6:
        return f"({draw(conditions(depth - 1))} IS {draw(st.sampled_from(['TRUE', 'NOT TRUE', 'FALSE', 'NULL']))})"
    operator = draw(st.sampled_from(["AND", "OR"]))
    return f"({draw(conditions(depth - 1))} {operator} {draw(conditions(depth - 1))})"


@st.composite
def measures(draw):
    """An aggregate."""
    name = draw(st.sampled_from(["SUM", "MIN", "MAX", "COUNT", "AVG", "COUNT(DISTINCT", "BOOL_AND", "BOOL_OR"]))
    inner = draw(conditions(1)) if name.startswith("BOOL") else draw(numbers(1))
    made = f"{name}{' ' if name.endswith('DISTINCT') else '('}{inner})"
    return f"{made} FILTER (WHERE {draw(conditions(1))})" if draw(st.booleans()) else made


@st.composite
def statements(draw):
    """A statement over `f0`."""
    where = f" WHERE {draw(conditions())}" if draw(st.booleans()) else ""
    if draw(st.booleans()):
        keys = draw(st.lists(st.sampled_from(["g", "bo", "i8 % 3", "s"]), max_size=2, unique=True))
        found = [*keys, *draw(st.lists(measures(), min_size=1, max_size=3))]
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = f" HAVING COUNT(*) {draw(st.sampled_from(['>', '<']))} 3" if keys and draw(st.booleans()) else ""
        listed = ", ".join(f"{one} AS c{n}" for n, one in enumerate(found))
        return f"SELECT {listed} FROM f0{where}{group}{having}"
    found = draw(st.lists(st.one_of(numbers(), conditions(), st.sampled_from(TEXTS)), min_size=1, max_size=3))
    listed = ", ".join(f"{one} AS c{n}" for n, one in enumerate(found))
    if draw(st.booleans()):
        direction = draw(st.sampled_from(["", " DESC", " NULLS FIRST", " DESC NULLS FIRST"]))
        limit = draw(st.sampled_from(["", " LIMIT 5", " LIMIT 4 OFFSET 3"]))
        return (
            f"SELECT {listed} FROM f0{where} ORDER BY {draw(st.sampled_from(WHOLE + FLOATS))}{direction}, k{limit}"
        )
    distinct = draw(st.sampled_from(["", "", "DISTINCT "]))
    return f"SELECT {distinct}{listed} FROM f0{where}"


RANDOM = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def planned(sql, schemas):
    """The plan of a random statement, and None for one that cannot be said."""
    try:
        return write_plan(sql, schemas)
    except UnsupportedExpression:
        return None


@RANDOM
@given(sql=statements())
def test_a_random_statement_read_again_gives_its_rows(sql, engine, schemas, same):
    data = planned(sql, schemas)
    if data is None:
        return
    found = read_plan(data, schemas).sql
    try:
        wanted = engine.sql(sql).to_arrow_table()
    except duckdb.Error:
        return  # it does not fit, or a zero divides: reading again need not compute what nobody looks at
    rows = engine.sql(found).to_arrow_table()
    assert same.of(sql, wanted, rows), (found, same.rows(wanted)[:5], same.rows(rows)[:5])
    assert wanted.schema.types == rows.schema.types, found


@RANDOM
@given(sql=statements())
def test_datafusion_gives_the_rows_of_a_random_statement(sql, engine, schemas, same, on_datafusion):
    data = planned(sql, schemas)
    if data is None:
        return
    try:
        wanted = engine.sql(sql).to_arrow_table()
    except duckdb.Error:
        return
    found = on_datafusion(data)
    assert same.of(sql, wanted, found), (same.rows(wanted)[:5], same.rows(found)[:5])
    assert same.types(wanted) == same.types(found)


@settings(RANDOM, max_examples=5)
@given(sqls=st.lists(statements(), min_size=20, max_size=20))
def test_most_random_statements_can_be_said(sqls, schemas):
    said = [planned(sql, schemas) is not None for sql in sqls]
    assert sum(said) >= 8
