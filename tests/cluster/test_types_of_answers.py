"""CREATE TABLE AS keeps each type that a query gives, or says by which cast a table keeps it."""

from __future__ import annotations

import re

import duckdb
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import SqlError
from ballista_py.sql.column_types import INSTEAD, KEPT, kept_form, parts_of

pytestmark = pytest.mark.cluster
# A value of each type that tables do not keep, alone and in others.
REFUSED = {
    "UUID": "'6a38a79b-ede6-4be6-9a8d-502ba3561d9f'::uuid",
    "JSON": "'{\"a\": 1}'::json",
    "ENUM": "'it''s)'::enum('it''s)', 'b')",
    "BIT": "'101'::bit",
    "GEOMETRY": "'POINT(1 2)'::geometry",
    "VARIANT": "1::variant",
    "HUGEINT": "sum(1)",
    "UHUGEINT": "1::uhugeint",
    "BIGNUM": "1::bignum",
    "INTERVAL": "interval 3 days",
    "TIME WITH TIME ZONE": "'12:00:00+02'::timetz",
    "TIME_NS": "'12:00:00'::time_ns",
    "TIMESTAMPTZ_NS": "'2024-02-29 12:00:00+00'::timestamptz_ns",
    "UNION": "union_value(a := 1)",
    "TUPLE": "row(1, 'a')",
    "NULL": "null",
    "TYPE": "get_type(1)",
}
NOT_COMPUTED = ("GEOMETRY", "VARIANT")  # refused in every statement
NESTED = (
    "list({})",
    "[[{}]]",
    "struct_pack(\"a b\" := {}, b := 'x')",
    "map {{1: {}}}",
    "array_value({}, {})",
    "row({}, 1)",
    "struct_pack(a := [{}], b := row({}))",
)


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        yield cluster


def returned_types(single) -> set[str]:
    """The types that calls of all functions give, for arguments of the types that they declare."""
    found = set()
    for name, types in single.execute(
        "select distinct function_name, parameter_types from duckdb_functions() where function_type in ('scalar', "
        "'aggregate') and regexp_full_match(function_name, '[a-z_][a-z0-9_]*')"
    ).fetchall():
        arguments = ", ".join(f"cast(null as {'INTEGER' if kind in ('ANY', 'T') else kind})" for kind in types)
        try:
            found.add(str(single.sql(f'select "{name}"({arguments}) as c').types[0]))
        except duckdb.Error:
            continue
    return found


def test_every_type_that_functions_give_is_kept_or_can_be_cast_as_is_said(cluster):
    with duckdb.connect() as single:
        unknown = {"STRUCT", "TUPLE", "PARQUET_VARIANT", "TYPE", *NOT_COMPUTED}  # what no cast may name
        kinds = sorted(returned_types(single) - unknown | (KEPT - {"LIST", "ARRAY", "STRUCT", "MAP"}))
        assert {name for kind in kinds for name in parts_of(kind)} >= KEPT - {"STRUCT"} | {
            "HUGEINT",
            "INTERVAL",
            "UUID",
        }
        kept = [kind for kind in kinds if not {*parts_of(kind)} - KEPT]
        shown = ", ".join(f"cast(null as {kind}) as c{n}" for n, kind in enumerate(kept))
        shown += "".join(
            f", cast(cast(null as {kind}) as {kept_form(kind)}) as d{n}"
            for n, kind in enumerate(kinds)
            if kind not in kept
        )
        statement = f"create table every as select {shown}"
        cluster.sql(statement)
        single.execute(statement)
        wanted = single.sql("describe every").to_arrow_table().to_pylist()
        assert cluster.sql("describe every").to_pylist() == wanted


@pytest.mark.parametrize("name", REFUSED)
def test_the_error_names_column_and_type_and_a_cast_that_can_be_written(cluster, name):
    assert REFUSED.keys() == INSTEAD.keys()
    casts = []
    with duckdb.connect() as single:
        single.execute("set TimeZone = 'UTC'")
        for number, form in enumerate(("{}", *NESTED)):
            if (name, form) in (("NULL", "array_value({}, {})"), ("HUGEINT", "list({})")):
                continue  # no such call
            value = form.format(*([REFUSED[name]] * 2))
            kind = str(single.sql(f"select {value} as c").types[0])
            with pytest.raises(SqlError) as caught:
                cluster.sql(f"create table refused as select 1 as one, {value} as c")
            if name in NOT_COMPUTED:
                assert f"Type '{name.lower()}' cannot be used here" in caught.value.message
                return
            table = "" if name in ("TYPE", "BIGNUM") else " of table 'refused'"  # which no answer holds either
            assert f"column 'c'{table} would be {kind}, " in caught.value.message
            target = re.search(r"with CAST\(… AS (.*?)\)(?:, or CAST.*)?$", caught.value.message)[1]
            casts.append(f"cast({value} as {target}) as c{number}")
        statement = f"create or replace table made as select {', '.join(casts)}"
        cluster.sql(statement)
        single.execute(statement)
        query = "select columns(*)::varchar from made"
        assert cluster.sql(query).to_pylist() == single.sql(query).to_arrow_table().to_pylist()
        wanted = single.sql("describe made").to_arrow_table().to_pylist()
        assert cluster.sql("describe made").to_pylist() == wanted
    assert "refused" not in cluster.sql("show tables")["name"].to_pylist()


def test_a_sum_is_told_by_the_name_that_it_has(cluster):
    with pytest.raises(
        SqlError, match=r"column 'sum\(i\)' of table 'sums' would be HUGEINT, which a table does not"
    ):
        cluster.sql("create or replace table sums as select sum(i) from range(3) as r(i)")
    cluster.sql("create table sums as select cast(sum(i) as decimal(38, 0)) as s from range(3) as r(i)")
    assert cluster.sql("select s::int as s from sums")["s"].to_pylist() == [3]


def test_a_number_that_only_the_engine_can_read_is_refused_with_a_way_out(cluster):
    with pytest.raises(SqlError, match=r"column 'v' would be BIGNUM, .* with CAST\(… AS VARCHAR\)"):
        cluster.sql("select 1 as k, 5::bignum as v")
    with pytest.raises(SqlError, match=r"column 'v' would be BIGNUM\[\], "):
        cluster.sql("select [5::bignum] as v")
    assert cluster.sql("select cast(5::bignum as varchar) as v").to_pylist() == [{"v": "5"}]
