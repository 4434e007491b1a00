"""What a statement in PostgreSQL's dialect gives here is what PostgreSQL gives, or it is refused."""

from __future__ import annotations

import os

import pytest

from ballista_py.testing.sql.dialect_check import Engine, Failed, family, same_rows, unlike
from ballista_py.testing.sql.dialect_expressions import expressions

# A query and the types of its columns; all are ordered whole.
QUERIES = [
    ("select id, i from v order by i", "int int"),
    ("select id, s from v order by s desc, id", "int text"),
    ("select b, count(*), sum(i), sum(l), min(s), max(dt), avg(d), count(distinct h) from v where id < 8 "
     "group by b order by b desc", "boolean bigint bigint numeric text date double bigint"),
    ("select count(*) filter (where i > 0) as c, sum(n), bool_or(b), string_agg(z, '/' order by id) from v",
     "bigint numeric boolean text"),
    ("select id, row_number() over (order by i desc), rank() over (order by b), lag(i, 1, 0) over (order by id), "
     "sum(h) over (order by id rows between 1 preceding and current row) from v order by id",
     "int bigint bigint int bigint"),
    ("with q (a, c) as (select b, count(*) from v group by b) select q.c, v.id from v left join q on q.a = v.b "
     "order by v.id", "bigint int"),
    ("select id from v where i in (select j from v where id < 8) order by id", "int"),
    ("select id, (select max(h) from v w where w.i < v.i) as m from v order by 1", "int smallint"),
    ("select i as a from v where id < 4 union select h from v where id < 3 order by a", "int"),
    ("select b, h % 2 as p, count(*) from v where id < 7 group by rollup (b, h % 2) order by b, p, 3",
     "boolean int bigint"),
    ("select count from (select count(*) from v) q", "bigint"),
    ("select i % 2 as i, count(*) from v where id < 7 group by i order by i, 2", "int bigint"),
    ("select -i as i from v where id < 7 order by i", "int"),
    ("select distinct b from v order by b limit 2 offset 1", "boolean"),
    ("select a.id, b.id from v a join v b on a.dt < b.du and b.ts >= '2024-01-01' order by a.id, b.id", "int int"),
    ("select x.a, x.c from (values (1, 'a'), (2, null)) as x (a, c) order by x.c desc", "int text"),
    ("select right('abc', -2147483648), right('abc', -2147483647), right(null, -2147483648), right('abc', -1)",
     "text text text text"),
    ("select 7 / 2, -7 / 2, 7 % -3, 'a' || 'b', 1.5 * 2", "int int int text numeric"),
    ("select id, h from v where not (i > 2 and b) order by h nulls first, id", "int smallint"),
    ("select id, percent_rank() over (order by id), ntile(3) over (order by id) from v order by id", "int double int"),
    ("select max(n) - min(n), count(*) from v having count(*) > 3", "numeric bigint"),
]  # fmt: skip


def compare(postgres, seed: int, count: int) -> tuple[list[str], int, int]:
    engine = Engine()
    try:
        asked = expressions("postgres", seed, count)
        here = [found for found in (engine.value(one, "postgres") for one in asked) if found is not None]
    finally:
        engine.close()
    there = postgres.values([one.expression for one in here])
    wrong = []
    for one, other in zip(here, there, strict=True):
        if other is not None:  # what only the engine takes has no value there to differ from
            wrong.append(unlike(one, family(other[0]), other[1], "postgres", single=other[0] == "real"))
    values = sum(len(one.rows) for one in here)
    return [reason for reason in wrong if reason], len(asked) - len(here), values


def test_expressions_have_their_value_or_are_refused(postgres):
    wrong, refused, values = compare(postgres, 1, 250)  # fresh seeds: in `make long`
    assert not wrong
    assert refused > 60
    assert values > 1_500


@pytest.mark.long
def test_thousands_of_expressions_have_their_value_or_are_refused(postgres):
    first = int.from_bytes(os.urandom(4))
    for seed in range(first, first + 10):
        wrong, _, _ = compare(postgres, seed, 1_000)
        assert not wrong, f"seed {seed}"


@pytest.mark.parametrize(("sql", "kinds"), QUERIES)
def test_queries_have_their_rows_in_their_order(postgres, sql, kinds):
    engine = Engine()
    try:
        here = engine.query(sql, "postgres")
    finally:
        engine.close()
    assert here is not None
    there = postgres.rows(sql, kinds.split())
    assert there, "PostgreSQL gave no rows"
    assert not any(isinstance(value, Failed) for row in there for value in row)
    assert same_rows(here, there), f"{here} instead of {there}"
