"""Statements of one shape: the engine's parser and ours see the same in them, but for the constants."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import duckdb
import pytest

from ballista_py.engines.duckdb.guard import Guard
from ballista_py.errors import SqlError
from ballista_py.node.demo.tpch_queries import QUERIES
from ballista_py.sql.parse.parsing import ENGINE
from ballista_py.sql.parse.shape import INTEGER, LONG, MAX_CONSTANTS, TEXT, Shape, shape_of
from ballista_py.testing.sql.fuzz import random_query

OTHERS = {
    INTEGER: ["0", "1", "2147483647", "70000"],
    LONG: ["2147483648", "999999999999999999"],
    TEXT: ["''", "'x'", "' union select 1 '", "'1) from hidden'", "'x y = 5'", "'\n'", "'a \"b'"],
}
WRITTEN = [
    "select a from t where b = 5",
    "select a from t where b=5 and 'x' <> c or (d)>='it' and \"e f\"< 12 and g[1]!= 3",
    "select a = 5 as x, b > 'y' from t group by 1 order by a = 5 limit 3",
    "select 'a = 5', \"b = 6\" from t where c = 'd'''",
    "select case when a = 1 then 'b' = 'c' end from t where x[1] = 2 and y <= 0 and z = 12345678901",
    "select * from t where a = 5::int and b = 6 + c and d = -1 and e = .5 and f = 1e5 and g = 1_000",
    "select e'a' = 'b', x'00' = 'c' from t where a = 'b'\n'c'",
    "select * from unnest([1]) where a = 7 and list_filter(b, lambda x: x = 3) = []",
    "select a from t where b = date '2020-01-01' and c = interval 5 day and d > '5' and e between 1 and 2",
    "select count(*) filter (where a = 5), sum(a) over (order by b = 'x') from t qualify row_number() over () = 1",
    "with c as (select * from t where a = 1) select * from c where b = (select max(n) from u where m = 2)",
    "select {'a': 5 = 6, 'b': a == 7} from t where (a, b) = (1, 2) and a is distinct from 3 and b <=> 4",
    "pivot t on a in (1, 2) using sum(b = 3)",
    "from t select b where a=0",
    "select a from t where b in (1, 2,3 , 'x') and c not in ('y') and d IN(5) and e in (4, f, 5) and g in ( 6 )",
    "select a between 1 and 2 from t where b BETWEEN 'x' and 'y' and c between 5 and d and e between f and 6 and 7 > g",
    "select a from t where not b between 1 and 2 or c between 3 and 4 and 5 = d order by a limit 10",
    "select a from t where b in (select c from u where d in (1, 2) limit 3) LIMIT 4 offset 5",
    "select a from t where b in (1.5, 2) and c in (3, 4.5, 5) and d in ('x' || 'y', 'z') and e in ('v', 'w')",
    "select [x for x in (1, 2)], a in ('(', ')', ', ') from t limit 20 %",
    "select a from t where b between 1 and 2.5 and c between 3.5 and 4 and d between -1 and 5 and e between 6 and -7",
    "select a, count(*) over (order by b rows between 1 preceding and 2 following) from t where a in (7)",
]
NO_SHAPE = [
    "select a from t where b = 5 -- and c = 6",
    "select a /* = 5 */ from t",
    "select $$a = 5$$ from t",
    "select e'\\' = 5' from t",
    "select a from t where b = 5; select 1",
    "select `a` from t",
    "select #1 = 5 from t",
    "select ü = 5 from t",
    "select a from t where b = 5\0",
    "select 'a = 5",
    'select "a = 5',
    "select a from t where " + " and ".join(f"b = {n}" for n in range(MAX_CONSTANTS + 1)),
]
STATEMENTS = [*WRITTEN, *QUERIES.values(), *(random_query(seed).sql for seed in range(150))]


def others_of(shape: Shape) -> list[str]:
    """Statements of the same shape with very different constants."""
    return [shape.filled([OTHERS[kind][n % len(OTHERS[kind])] for kind in shape.kinds]) for n in range(7)]


def tree(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """What the engine's parser sees, without places and without constants."""
    row = connection.execute("select json_serialize_sql(?)", [sql]).fetchone()
    assert row is not None
    return without_constants(json.loads(row[0]))


def without_constants(element: Any) -> Any:
    if isinstance(element, list):
        return [without_constants(item) for item in element]
    if not isinstance(element, dict):
        return element
    if element.get("class") == "CONSTANT":
        return "constant"
    return {
        k: without_constants(v) for k, v in element.items() if k not in ("query_location", "query_location_length")
    }


def test_two_parsers_see_the_same_in_statements_of_one_shape() -> None:
    tried = 0
    with duckdb.connect() as connection:
        for sql in STATEMENTS:
            shape = shape_of(sql)
            if shape is None or not shape.constants:
                continue
            assert shape.filled(shape.constants) == sql
            seen, tokens = tree(connection, sql), [token.token_type for token in ENGINE.tokenize(sql)]
            for other in others_of(shape):
                assert shape_of(other) == shape
                assert not seen["error"], sql
                assert tree(connection, other) == seen, other
                assert [token.token_type for token in ENGINE.tokenize(other)] == tokens, other
                assert [kind for _, kind in duckdb.tokenize(other)] == [kind for _, kind in duckdb.tokenize(sql)]
                tried += 1
    assert tried > 500


@pytest.mark.parametrize("sql", NO_SHAPE)
def test_text_that_somebody_might_read_differently_has_no_shape(sql: str) -> None:
    assert shape_of(sql) is None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("select a from t where b = 5", "select a from t where b = 5000000000"),
        ("select a from t where b = 5", "select a from t where b = '5'"),
        ("select a from t where b = 5", "select a from t where c = 5"),
        ("select a from t where b = 5", "select a from t where b < 5"),
        ('select a from "t = 5" where b = 5', 'select a from "t = 6" where b = 5'),
        ("select a from 't = 5' where b = 5", "select a from 't = 6' where b = 5"),
        ("select f(a => 5) from t", "select f(a => 6) from t"),
        ("select f(a := 5) from t", "select f(a := 6) from t"),
        ("select a from t limit 5 offset 5", "select a from t limit 5 offset 6"),
        ("select a from t limit 5%", "select a from t limit 6%"),
        ("select a from t where b in (1, 2)", "select a from t where b in (1, 2, 3)"),
        ("select a from t where b between 1 and c", "select a from t where b between 1 and 2"),
        ("pivot t on a in (1, 2) using sum(b)", "pivot t on a in (1, 3) using sum(b)"),
        ("select a::decimal(5, 2) from t", "select a::decimal(6, 2) from t"),
        ("select a from t where b = 5.5", "select a from t where b = 6.5"),
        ("select a from t where b = 05", "select a from t where b = 06"),
        ("select a from t where b = 5", "select a from t where b = \0integer\0"),
    ],
)
def test_what_may_mean_something_else_is_another_shape(one: str, two: str) -> None:
    assert shape_of(one) != shape_of(two)


def test_the_guard_reads_one_statement_of_a_shape_and_judges_the_others_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    inspect = Guard._inspect

    def noted(guard: Guard, sql: str) -> Any:
        read.append(sql)
        return inspect(guard, sql)

    monkeypatch.setattr(Guard, "_inspect", noted)
    with duckdb.connect() as connection:
        guard = Guard(connection)
        for n in range(5):
            assert guard.check(f"select a from t where b = {n}", ["t"]).once == {"t"}
        assert read == ["select a from t where b = 0"]
        with pytest.raises(SqlError):
            guard.check("select a from t where b = 5", ["u"])
        for n in range(3):  # what did not pass is read again, whatever its shape
            with pytest.raises(SqlError):
                guard.check(f"select getenv('x') from t where b = {n}", ["t"])
        odd = "select a from t where b = \0integer\0"  # what the shape of others goes by; this one has none
        with suppress(SqlError):
            guard.check(odd, ["t"])
        assert read[-1] == odd


def test_an_unknown_table_is_reported_where_it_stands_in_this_statement() -> None:
    with duckdb.connect() as connection:
        guard = Guard(connection)
        for n in (1, 1_000_000):
            with pytest.raises(SqlError) as raised:
                guard.check(f"select a from t where b = {n} and c in (from nope)", ["t"])
            found = re.search(r"column (\d+)", raised.value.message)
            assert found is not None
            assert f"select a from t where b = {n} and c in (from nope)"[int(found[1]) - 1 :].startswith("nope")
