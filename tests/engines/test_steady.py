"""Which statements run in the process of a node: those of which DuckDB counts the memory, and which it interrupts."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from ballista_py.engines.apart import steady
from ballista_py.engines.duckdb.guard import Guard
from ballista_py.errors import SqlError
from ballista_py.node.demo.tpch_queries import QUERIES

TABLES = ["t", "lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region"]


def up_to(count: int) -> range:
    return range(1, count + 1)


def _doubled(kind: str) -> str:
    names = "".join(f", a{i} as {kind} (select p.x from a{i - 1} p, a{i - 1} q)" for i in up_to(22))
    return f"with a0 as {kind} (select 1 x){names} select count(*) from a22"


MULTIPLY = {
    "a value repeated": "select len(repeat(s, 3)) from t",
    "a list of any length": "select len(generate_series(1, n)) from t",
    "a value in the limit": "select 1 limit length(repeat('x', 3))",
    "text joined to itself again and again": "with recursive r(s) as (select 'x' union all select s || s from r)"
    " select max(len(s)) from r",
    "text joined by many names": "with "
    + ", ".join(f"a{i} as (select s || s as s from {f'a{i - 1}' if i else 't'})" for i in range(7))
    + " select s from a6",
    "columns joined by a star": "select concat(*columns(*)) from t",
    "a long constant in every row": f"select '{'x' * 5_000}' || s from t",
    "a list of everything": "select list(n) from t",
    "text of everything": "select string_agg(s, ',') from t",
    "text of everything in every row": "select string_agg(s, ',') over (order by n) from t",
    "a sample as large as it is told": "select reservoir_quantile(n, 0.5, 50000000) from t",
    "the largest so many": "select max(n, 1000) from t",
    "values of a large fixed size": "select cast(null as integer[100000]) from t",
    "a function per element": "select list_transform(l, x -> x + 1) from t",
    "a name that is doubled": "select n as a0"
    + "".join(f", a{i - 1} + a{i - 1} as a{i}" for i in up_to(26))
    + " from t",
    "a with that is doubled": _doubled("not materialized"),
    "many joins": "select count(*) from t a0" + "".join(f" join t a{i} on a{i}.n = a{i - 1}.n" for i in up_to(60)),
    "every combination of groups": "select count(*) from t group by cube(n, s, n + 1, n + 2, n + 3, n + 4, n + 5)",
    "a pivot": "select * from t pivot (max(n) for s in ('a', 'b'))",
    "a format with any width": "select printf('%1000000000d', n) from t",
    "many rows of a sample": "select * from t using sample reservoir(50000000 rows)",
    "many rows of a table's sample": "select n from t tablesample reservoir(3000)",
    "digits of any number": "select count(*) from t where s::bignum is not null",
    "lists of digits of any number": "select s::struct(a varint[]) from t",
    "a text of lists": "select try_cast(s as varchar[][]) from t",
    "a pattern that is written out": r"select s ~ '[0-7][0-9a-f]{14}X' from t",
    "a pattern with all letters": r"select regexp_matches(s, '\pL\pL') from t",
    "a pattern of many choices": "select s similar to 'a.........X' from t",
    "a pattern from a column": "select regexp_full_match(s, u) from t",
    "many patterns": "select " + ", ".join(f"s ~ 'x{i}'" for i in up_to(17)) + " from t",
    "a long text in another": f"select contains(s, '{'a' * 65}') from t",
    "a text of a column in another": "select strpos(s, u) from t",
    "a pattern of LIKE from a column": "select s like u from t",
    "very many calls": "select " + ", ".join(f"md5(left(s, {i}))" for i in up_to(501)) + " from t",
    "a function that nobody knows": "select brand_new_function(n) from t",
}


@pytest.fixture(scope="module")
def guard():
    with duckdb.connect() as connection:
        yield Guard(connection)


@pytest.mark.parametrize("sql", MULTIPLY.values(), ids=MULTIPLY)
def test_what_may_take_memory_without_being_counted_runs_apart_or_not_at_all(guard, sql):
    try:
        found = guard.check(sql, TABLES)
    except SqlError:
        return
    assert not found.steady


@pytest.mark.parametrize(
    "sql",
    [
        *QUERIES.values(),
        "select * from t where n = 5",
        "select n, first.s || ', ' || s as whole from t first",
        "select s, count(distinct n), median(n), quantile_cont(n, 0.9) from t group by rollup(s, n)",
        "select row_number() over (partition by s order by n), lag(n) over (order by n) from t",
        "select date_trunc('month', d), d + interval 1 day, strpos(lower(s), 'x'), s like '%a%' from t",
        "with recursive r(i) as (select 1 union all select i + 1 from r where i < 9) select i from r",
        "select i from range(1000000000000) as r(i)",
        "select n from t using sample 5",
        r"select s ~ '^[0-9]+-\d+$', regexp_matches(s, 'a.*b', 'i'), s similar to 'x|y', s not like '%special%' from t",
        "select n from t tablesample bernoulli(10%)",
        "select cast(n as varchar), n::decimal(18, 2), try_cast(s as integer), coalesce(n, 0), [n, 1][1] from t",
        "select null::integer[] from t",
    ],
)
def test_what_duckdb_counts_and_interrupts_runs_in_the_process(guard, sql):
    assert guard.check(sql, TABLES).steady


def test_statements_that_differ_in_constants_only_are_told_apart_where_it_matters(guard):
    assert guard.check("select s || 'x' from t where n = 1", TABLES).steady
    assert not guard.check(f"select s || '{'x' * 5_000}' from t where n = 1", TABLES).steady


def test_every_steady_function_is_one_of_duckdbs_and_gives_no_list():
    with duckdb.connect() as connection:
        rows = connection.execute(
            "select lower(function_name), list(distinct return_type) from duckdb_functions() group by 1"
        ).fetchall()
    returned = {name: [kind for kind in kinds if kind] for name, kinds in rows}
    syntax = {"!", "->", "coalesce", "current_timestamp", "ifnull", "position", "try"}
    assert steady.STEADY_FUNCTIONS - syntax <= returned.keys()
    # They give values of what they read, as many as there are paths in their arguments.
    of_paths = {name for name in returned if name.startswith("json_")} | {"->", "->>", "element_at", "map_extract"}
    for name in (steady.STEADY_FUNCTIONS & returned.keys()) - of_paths - steady.FEW_ARGUMENTS.keys():
        assert not [kind for kind in returned[name] if str(kind).endswith("[]")], name


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select repeat(s, 2) from t where n > 1", ["n", "s"]),
        ("select repeat('x', 2) from t", ["n"]),
        ("select repeat(S, 2) from t", ["s"]),
        ("select *, repeat(s, 2) from t", ["n", "s", "u"]),
        ("select repeat(s, 2), t from t", ["n", "s", "u"]),
        ("select repeat(x.s, 2), x from t as x", ["n", "s", "u"]),
        ("select repeat(a.s, 2) from t a join t b using (u)", ["s", "u"]),
        ("select repeat(a.s, 2) from t a natural join t b", ["n", "s", "u"]),
        ("select count(columns('n')), max(repeat(s, 1)) from t", ["n", "s", "u"]),
    ],
)
def test_only_columns_that_a_statement_may_read_are_given_to_it(guard, sql, columns):
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("u", pa.string())])
    assert guard.check(sql, ["t"]).columns_of(schema) == columns
