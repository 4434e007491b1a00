"""What the planner believes about types is what the engine makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
import sqlglot

from ballista_py.sql.bind.binder import bind
from ballista_py.sql.bind.query import Draft
from ballista_py.sql.bind.types import kind_of

EXPRESSIONS = """
k; a; b; s; d; x; dt; ts; bo; 1; 3000000000; 100000000000000000000; 1.5; 1e3; 'a'; true; interval 1 day
a + b; a + 1; a - k; a * b; a / b; a // b; a % b; -a; d + 1; d + a; d * d; d - 1.5; x + a; x * d; d / a; a ** 2
a + 1.5; a * 1.5; k + x; x % 2; x // 2
sum(a); sum(k); sum(d); sum(x); sum(bo); sum(a * b); sum(a + 1.5); sum(1); sum(2.5); sum(a::hugeint)
avg(a); avg(d); avg(x); count(*); count(a); count(distinct a); count_if(bo); min(s); max(d); max(dt); min(a)
stddev(a); var_pop(d); bool_and(bo); bit_or(a); sum(a) + 1; sum(a) / 2; sum(d) * 2; sum(a) * 2; -sum(a)
sum(a) filter (where bo); sum(a) over (); row_number() over (order by id); rank() over (order by id)
lag(a) over (order by id); first_value(s) over (order by id); ntile(2) over (order by id)
cast(a as varchar); a::hugeint; a::decimal(10, 2); a::double; a::float; s::date; dt::timestamp; a::smallint
a::utinyint
case when bo then 1 else 0 end; case when bo then a end; case when bo then a else 1.5 end; coalesce(a, b)
last_day(dt); last_day(ts); coalesce(ts, dt); coalesce(dt, ts); case when bo then dt else ts end; greatest(ts, dt)
coalesce(d, 0); greatest(a, b); least(d, 1); nullif(a, 2); nullif(d, 2); if(bo, a, 1.5)
case when bo then s else 'x' end
year(dt); month(dt); extract(year from dt); extract(hour from ts); quarter(dt); dayofweek(dt)
date_diff('day', dt, dt)
date_trunc('month', dt); date_trunc('day', ts); dt + 1; dt - 1; dt - dt; dt + interval 1 day
ts + interval 1 hour; ts - ts
upper(s); lower(s); substring(s, 1, 2); s || 'x'; concat(s, 'x'); length(s); left(s, 1); replace(s, 'a', 'b')
trim(s)
round(d, 1); round(x); round(x, 1); ceil(d); floor(x); abs(a); abs(d); sqrt(a); ln(2); pow(a, 2)
strftime(dt, '%Y')
a = 1; s like 'a%'; a in (1, 2); a is null; bo and a = 1; not bo; exists (select 1 from u); (select max(d) from u)
(select sum(a) from u); (select count(*) from u); dayname(dt); md5(s); lpad(s, 3, 'x'); position('a' in s)
"""
TYPES = {
    "int": {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"},
    "huge": {"HUGEINT"},
    "float": {"FLOAT"},
    "double": {"DOUBLE"},
    "bool": {"BOOLEAN"},
    "text": {"VARCHAR"},
    "date": {"DATE"},
    "timestamp": {"TIMESTAMP"},
    "interval": {"INTERVAL"},
}


@pytest.fixture(scope="module")
def engine(small: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, rows in small.rows.items():
            connection.register(name, rows)
        yield connection


@pytest.mark.parametrize("text", [one.strip() for one in EXPRESSIONS.replace("\n", ";").split(";") if one.strip()])
def test_the_kind_of_an_expression_is_that_of_its_engine_type(small: Any, engine: Any, text: str) -> None:
    sql = f"select {text} as v from t"
    (type_name,) = engine.sql(sql).types
    draft = Draft(catalog=small.catalog)
    query = bind(sqlglot.parse_one(sql, dialect="duckdb"), draft)
    kind = kind_of(query.items[0].expr, draft)
    assert kind is not None, f"{text} is {type_name}"
    if kind == "decimal":
        assert str(type_name).startswith("DECIMAL")
    else:
        assert str(type_name) in TYPES[kind]
