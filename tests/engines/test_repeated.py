"""Statements whose operands DuckDB writes down several times are refused before their plan is made."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.binder import Binder
from ballista_py.errors import SqlError
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.parsing import measure

SCHEMAS = {"t": pa.schema([("id", pa.int64())])}
MULTIPLY = {
    "between": "(({x}) between 1 and 2)::int",
    "not between": "(({x}) not between 1 and 2)::int",
    "in": "(({x}) in (1, 2))::int",
    "in columns": "(({x}) in (id, 2, 3))::int",
    "lambda": "list_sum(list_transform([1, 2], lambda y: y + ({x})))",
    "list comprehension": "len([y + ({x}) for y in [1, 2]])",
    "case": "case ({x}) when 1 then 2 when 3 then 4 else 5 end",
}


@pytest.fixture(scope="module")
def binder():
    made = Binder(SystemRuntime())
    yield made
    made.close()


def nested(form, levels):
    text = "id"
    for _ in range(levels):
        text = form.format(x=text)
    return f"select {text} as y from t"


def described(binder, sql):
    measure(sql)
    return binder.describe(sql, SCHEMAS).names


@pytest.mark.timeout(120)  # thirty levels would take years, and no time limit would end them
@pytest.mark.parametrize("form", MULTIPLY.values(), ids=MULTIPLY.keys())
def test_deep_ones_are_refused_and_flat_ones_are_not(binder, form):
    assert described(binder, nested(form, 4)) == ["y"]
    for levels in (20, 60):
        with pytest.raises(SqlError, match="stand in each other so deep"):
            described(binder, nested(form, levels))
    many = ", ".join(f"{form.format(x='id')} as y{n}" for n in range(300))
    assert len(described(binder, f"select {many} from t")) == 300


@pytest.mark.timeout(120)
def test_branches_multiply(binder):
    whens = " ".join(f"when {n} then {n + 1}" for n in range(60))
    with pytest.raises(SqlError, match="operands of CASE stand in each other so deep"):
        described(binder, nested("case ({x}) " + whens + " end", 5))
    assert described(binder, nested("case id " + whens + " else ({x}) end", 5)) == ["y"]
    numbers = ", ".join(map(str, range(20_000)))
    assert described(binder, f"select lower(trim(id::varchar))::int in ({numbers}) as y from t") == ["y"]
    with pytest.raises(SqlError, match="stand in each other so deep"):
        described(binder, nested("(({x}) in (" + ", ".join(map(str, range(400))) + "))::int", 3))


CHAINS = {  # statements with lambdas are never steady
    "between": "({x} between 1 and 2)::int",
    "in": "({x} in (1, 2, 3))::int",
    "case": "case {x} when 1 then 2 when 3 then 4 end",
}


def steady(binder, sql):
    try:
        return binder.check(sql, SCHEMAS).steady
    except SqlError:  # so large that nobody plans it
        return False


@pytest.mark.parametrize("form", CHAINS.values(), ids=CHAINS.keys())
def test_columns_that_are_computed_of_each_other_are_planned_where_that_can_be_ended(binder, form):
    def named(levels):
        items = [form.format(x="id") + " as a0"]
        items += [form.format(x=f"A{n - 1}") + f" as a{n}" for n in range(1, levels)]
        return f"select {', '.join(items)} from t"

    def subqueries(levels):
        text = "select id as a from t"
        for level in range(levels):
            text = f"select {form.format(x='a')} as a from ({text}) s{level}"
        return f"select * from ({text}) where a = 1"

    def common(levels):
        names = ["c0 as (select id as a from t)"]
        names += [f"c{n} as (select {form.format(x='a')} as a from c{n - 1})" for n in range(1, levels)]
        return f"with {', '.join(names)} select * from c{levels - 1} where a = 1"

    for chain in (named, subqueries, common):
        assert steady(binder, chain(3))
        assert not steady(binder, chain(16))
    side_by_side = ", ".join(f"{form.format(x='id')} as b{n}" for n in range(100))
    assert steady(binder, f"select {side_by_side} from t where id between 1 and 2 and id in (1, 2)")
