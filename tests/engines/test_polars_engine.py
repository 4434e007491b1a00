"""What the Polars engine answers as DuckDB does, and what it refuses by name."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.engines.same_answer import difference
from ballista_py.errors import SchemaMismatch, SqlError, TransportError
from ballista_py.testing.sql.fuzz import cluster_of, random_query

NAN, INF = float("nan"), float("inf")
T = pa.table(
    {
        "n": pa.array([1, 2, 3, None, 5, 6, 2**62], pa.int64()),
        "word": ["a", "abc", None, "xay", "special x requests", "ß😀q", "a.b%"],
        "d": pa.array(
            [Decimal(x) if x else None for x in ("1.10", "", "-2.05", "0.06", "0.05", "0.07", "9999999999999.99")],
            pa.decimal128(15, 2),
        ),
        "wide": pa.array(
            [Decimal("12345678901234567890.123"), None, *map(Decimal, range(5))], pa.decimal128(25, 3)
        ),
        "day": pa.array(
            [
                dt.date(1990, 1, 1),
                None,
                dt.date(1998, 9, 2),
                dt.date(2020, 2, 29),
                dt.date(1, 1, 1),
                dt.date(1970, 1, 1),
                dt.date(1969, 12, 31),
            ]
        ),
        "f": [1.5, None, NAN, INF, -0.0, 0.0, 2.5],
        "i": pa.array([1, 2, None, 3, 4, 1, 2], pa.int32()),
        "ts": pa.array([0, 1, None, -1, 10**15, 5, 6], pa.timestamp("us")),
    }
)
S = pa.table({"n": pa.array([1, 2, 2, None, 9], pa.int64()), "v": pa.array([3, None, 5, 6, 7], pa.int32())})

_ANSWERED = """
select * from t
select word, sum(d * (1 - d)) as x, count(*)
    from t where d < 100 group by word having count(*) > 0
    order by x desc nulls first limit 3 offset 1
select count(*), count(distinct n) filter (where n > 2), avg(i), avg(n), avg(d),
    avg(f), sum(i), sum(n), sum(d), sum(f) from t
select sum(wide), max(wide), avg(wide), count(distinct wide), wide > 3 as big from t group by big
select min(f), max(f), min(d), max(d), min(day), max(word), bool_and(i = 1), bool_or(i = 1) from t
select i, min(f), max(f), sum(d), avg(i), sum(i), bool_or(word = 'a') from t group by i order by i
select count(*), sum(i), sum(d), min(day), max(word), avg(d), bool_and(i = 1), min(f), max(f)
    from t where n > 50 and n < 60
select sum(distinct n), sum(distinct i), count(distinct word), avg(distinct i) from t
select count(*) from t where ts < timestamptz '1970-01-01 00:00:00.000005+00'
select ts::timestamptz as at, day::timestamptz as since from t where ts < day::timestamptz or ts is null
select sum(case when d > 1 then 1 else 0 end), sum(f) filter (where f < 100) from t
select sum(d * d * d), avg(d * d) from t where d < 10
select n from t where not exists (select 1 from s where s.n = t.n)
select n from t where exists (select 1 from s where s.n = t.n)
select n from t where n not in (select n from s)
select n, n in (select n from s) as b from t
select n, n in (select n from s where v is not null and n is not null) as b from t
select n, n in (select n from s where v > 100) as b from t
select n from t where n in (select n from s)
select n from t where n = (select max(n) from s) or i is null
select t.n, v from t left join s on t.n = s.n and s.v > 3
select t.n, s.n as m, v from t right join s on t.n = s.n
select t.n, s.n as m, v from t full join s on t.n = s.n
select t.n, s.n as m from t join s on t.n < s.n
select t.n, s.n as m from t join s on t.n = s.n and t.i < s.v
select t.n, s.n as m from t, s
select t.n, s.n as m from t join s on t.n is not distinct from s.n
select t.word, s.v from t, s where t.n = s.n or t.i = s.v
with a as materialized (select n from t) select a.n, b.n as m from a, a b where a.n = b.n
select distinct word from t union all select 'x'
select distinct i, word from t
select n, f from t order by f desc, n
select n, f from t order by f, n desc nulls first
select word from t order by word
select n, i from t order by word nulls first, n limit 3 offset 2
select n, case when i in (1, 2, 3) then 'a' when i is null then 'b' end, coalesce(i, 0), -i, -n, i::bigint from t
select word || 'x', substring(word, 1, 2), length(word), abs(i), nullif(i, 2), not (i = 2 or f <> 1.5) from t
select i % 2, (i - 3) % 2, n % 7, mod(i, 3), (0 - n) % 1000 from t
select i / 2, f / 0, f / f, f / i, f + 1, f * 2, -f from t
select d + 1, d - d, d * d, d * 2, -d, abs(d), d / 3 from t where d < 100
select d::double, d::decimal(18, 4), d::decimal(38, 10), i::decimal(10, 2), n::double,
    wide::double, (d > 1)::int from t where d < 100
select year(day), extract(month from day), day(day), quarter(day), year(ts) from t
select day < date '1990-01-01', day >= timestamp '1990-01-01 00:00:01', ts > timestamp '1970-01-01 00:00:00' from t
select n from t where day <= date '1998-12-01' - interval '90' day and day >= '1900-01-01'
select word from t where d between 0.06 - 0.01 and 0.06 + 0.01 and i < 24 and d < 24
select word from t where f < 3 or f > 1000
select word from t where f <> 1.5
select word from t where word in ('a', 'b') and word = 'a'
select n from t where n in (1, null) or n not in (2, null)
select n from t where n not in (2, 3) and not (i is distinct from 3)
select word from t where word like 'a%' or word like '%s'
select word from t where word like '%special%requests%'
select word, word not like '%e%q%e%' from t
select word from t where word like '_😀%' or word like 'a.b\\%'
select word from t where contains(word, 'b') or starts_with(word, 'x') or suffix(word, 'q')
select word > 'a', word < 'ß', word <> 'a' from t
select sum(i)::bigint, sum(i)::double, sum(i) > 4 from t
select count(*) from (select 1 from t limit 3)
values (1, 'a'), (2, null)
select 1 as one, 'x' as x, true as yes, 1.5 as z, date '2020-01-01' as day, 0.1::double as tenth
select i from t limit 0
"""
ANSWERED = re.split(r"\n(?! )", _ANSWERED.strip())  # an indented line goes on with the statement

REFUSED = {
    "select row_number() over (order by n) from t": "'window'",
    "select i, count(*) from t group by rollup (i)": "ROLLUP",
    "select upper(word) from t": "'upper'",
    "select word ilike 'A%' from t": "'~~*'",
    "select f, count(*) from t group by f": "groups of floats",
    "select count(distinct f) from t": "DISTINCT over floats",
    "select a.n from t a join t b on a.f = b.f": "joins on floats",
    "select stddev(f) from t": "'stddev'",
    "select list(n) from t": "LIST",
    "select i // 2 from t": "'//'",
    "select day + interval 1 month from t": "INTERVAL",
    "select word::int from t": "cast of VARCHAR to INTEGER",
    "select f::int from t": "cast of DOUBLE to INTEGER",
    "select round(f) from t": "'round'",
    "select random() from t": "'random'",
    "select sum(n) + 1 from t": "HUGEINT",
    "select substring(word, -1, 2) from t": "substring",
    "select n from t except select n from s": "'except'",
    "select distinct on (i) i, n from t": "DISTINCT ON",
    "select n from t limit 10 percent": "LIMIT",
    "select n from t tablesample 10 percent": "'sample'",
    "with recursive r as (select 1 as k union all select k + 1 from r where k < 3) select * from r": "recursive",
    "select unnest([1, 2])": "'unnest'",
    "select i % 0 from t": "'%' by anything but",
    "select i % (0 - 1) from t": "'%' by anything but",
    "select 5 % i from t": "'%' by anything but",
    "select d % 2 from t": "'%' over",
    "select k from range(3) r(k)": "'range'",
}
TOO_LARGE = (
    "select n * 2 from t",
    "select n + n from t",
    "select i * 1000000000 from t",
    "select d * d from t",
    "select n::int from t",
)


@pytest.fixture(scope="module")
def both():
    engines = DuckDBEngine(threads=1), PolarsEngine()
    yield engines
    for engine in engines:
        engine.close()


def run(engine, sql, **streams):
    query = engine.query(sql, streams=streams or {"t": T, "s": S})
    return pa.Table.from_batches(query.batches(), query.schema)


@pytest.mark.parametrize("sql", ANSWERED)
def test_the_answer_is_duckdbs(both, sql):
    expected, found = (run(engine, sql) for engine in both)
    assert difference(found, expected, ordered=" order by " in sql) is None


@pytest.mark.parametrize("sql", REFUSED)
def test_what_it_does_not_do_exactly_is_refused_by_name_before_anything_runs(both, sql):
    with pytest.raises(SqlError, match="the polars engine") as raised:
        both[1].query(sql, streams={"t": T, "s": S})
    assert REFUSED[sql] in raised.value.message
    assert "engine: duckdb" in raised.value.message


@pytest.mark.parametrize("sql", TOO_LARGE)
def test_what_overflows_there_is_an_error_here(both, sql):
    for engine in both:
        with pytest.raises(SqlError) as raised:
            run(engine, sql)
        assert "\n" not in raised.value.message
    assert "out of the range of" in raised.value.message


def test_random_queries_get_the_same_answer_or_are_refused(both):
    cluster = cluster_of(0)
    answered = 0
    try:
        for seed in range(70):
            query = random_query(seed)
            try:
                found = run(both[1], query.sql, **cluster.rows)
            except SqlError:
                continue
            assert difference(found, cluster.single(query.sql), ordered=query.ordered) is None, query.sql
            answered += 1
    finally:
        cluster.close()
    assert answered >= 12


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("ns"), pa.list_(pa.int32()), pa.map_(pa.string(), pa.int64()), pa.float16(), pa.time64("ns")],
)
def test_a_column_that_it_cannot_hold_is_named_when_the_table_is_made(both, kind):
    with pytest.raises(SchemaMismatch, match=r"'odd'.*engine: duckdb"):
        both[1].create_table("odd_one", pa.schema([("n", pa.int64()), ("odd", kind)]))


def test_a_query_that_was_cancelled_never_ends_like_a_short_answer():
    engine = PolarsEngine()
    rows = pa.table({"n": range(400_000)})
    batches = iter((query := engine.query("select n + 1 as m from r", streams={"r": rows})).batches())
    assert next(batches).num_rows <= 65_536
    query.cancel()
    query.cancel()
    with pytest.raises(TransportError, match="cancelled"):
        list(batches)
    batches = iter(engine.query("select n from r", streams={"r": rows}).batches())
    next(batches)
    engine.close()
    with pytest.raises(TransportError, match="cancelled"):
        list(batches)
