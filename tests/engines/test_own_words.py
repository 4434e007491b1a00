"""What engines say of themselves: the catalog by its name, numbers that no client can read, two columns of one name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.change import run_change
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.duckdb.tables import require_held
from ballista_py.errors import ConfigError, SchemaMismatch, SqlError
from ballista_py.partitions.bounds import MAX_COLUMNS, columns_in, require_count
from ballista_py.sql.own_words import own_places
from ballista_py.sql.parse.creates import read_create
from ballista_py.sql.parse.parsing import parsed_one


@pytest.fixture
def engine():
    made = DuckDBEngine()
    yield made
    made.close()


def rows(engine, sql):
    return pa.Table.from_batches(engine.query(sql).batches()).to_pylist()


def test_the_catalog_is_called_what_it_is_called_everywhere(engine):
    asked = "select current_database() as a, current_catalog as b, current_schema() as c, current_schema as d"
    assert rows(engine, asked) == [{"a": "ballista", "b": "ballista", "c": "main", "d": "main"}]


def test_the_catalog_has_its_name_in_a_change_too():
    read = pa.table({"a": ["x"]}).to_reader()
    with run_change("update t set a = current_database()", "t", read, {}) as done:
        assert done.come.to_pylist() == [{"a": "ballista"}]


@pytest.mark.parametrize(
    "sql",
    [
        "select md5_number('a') as a",
        "select [170141183460469231731687303715884105727]",
        "select '-170141183460469231731687303715884105728'::hugeint",
        "select 340282366920938463463374607431768211455::uhugeint",
        "select 170141183460469231731687303715884105728::uhugeint",
        "select {'a': [map {1: 340282366920938463463374607431768211455::uhugeint}]}",
        "select [340282366920938463463374607431768211455::uhugeint]::uhugeint[1]",
        "select 340282366920938463463374607431768211455::uhugeint::union(n uhugeint, s varchar)",
    ],
)
def test_a_number_beyond_what_a_client_can_read_is_refused_with_the_way_out(engine, sql):
    with pytest.raises(SqlError, match=r"does not fit DECIMAL\(38, 0\): cast it to DOUBLE or VARCHAR"):
        rows(engine, sql)


@pytest.mark.parametrize("value", ["'12:00:00+02'::timetz", "[{'a': '12:00:00+02'::timetz}]"])
def test_a_time_that_would_lose_its_offset_is_refused(engine, value):
    with pytest.raises(SqlError, match="TIME WITH TIME ZONE, whose offset cannot be answered: cast it to VARCHAR"):
        rows(engine, f"select {value} as a")
    assert rows(engine, "select '12:00:00+02'::timetz::varchar as a, now() as b")[0]["a"] == "12:00:00+02"


def test_a_number_beyond_it_is_refused_of_a_change_too():
    read = pa.table({"a": [1]}).to_reader()
    sql = "update t set a = 2 returning [340282366920938463463374607431768211455::uhugeint]"
    with pytest.raises(SqlError, match="does not fit DECIMAL"), run_change(sql, "t", read, {}, returning=True):
        pass


def test_a_number_within_it_comes(engine):
    assert [int(one) for one in rows(engine, "select [-1::hugeint, 7::uhugeint::hugeint] as a")[0]["a"]] == [-1, 7]
    largest = 10**38 - 1
    assert [int(value) for value in rows(engine, f"select {largest}::hugeint as a")[0].values()] == [largest]


def test_two_columns_of_one_name_are_named():
    for names, said in (
        (["a", "b", "A"], "'a' and 'A', which are one name"),
        (["a", "a"], "two columns named 'a'$"),
    ):
        with pytest.raises(SchemaMismatch, match=said):
            require_held(pa.schema([(name, pa.int64()) for name in names]), "t")


def test_fields_of_nested_columns_count_as_columns():
    fields = ", ".join(f"f{number} int" for number in range(MAX_COLUMNS))
    with pytest.raises(ConfigError, match=r"table 't' would have 10,001 columns, fields of nested ones counted"):
        read_create(parsed_one(f"create table t (s struct({fields}))"), None)
    require_count("t", columns_in([pa.list_(pa.struct([("a", pa.int64())]))]))


@pytest.mark.parametrize(
    ("wrote", "said"),
    [
        ("select * from ?", "near a parameter, which stands for a value"),
        ("select * from ? where b is null", 'near "NULL"'),
        ("select 1 from NULL", 'near "NULL"'),
    ],
)
def test_a_literal_that_stands_for_a_parameter_is_not_said(wrote, said):
    with pytest.raises(SqlError, match=said), own_places(wrote, "select * from NULL"):
        raise SqlError('Syntax error at or near "NULL" (line 1, column 15)', line=1, column=15)
