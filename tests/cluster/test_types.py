"""A type comes back as it went in, with its values and its text, or a table cannot be made with it."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import duckdb
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError, PlanningError, SqlError, WriteError
from ballista_py.sql.column_types import INSTEAD, KEPT

pytestmark = pytest.mark.cluster

# For every type that is kept: how it is declared, and values at its edges.
SAMPLES = {
    "BOOLEAN": ("boolean", ("true", "false")),
    "TINYINT": ("tinyint", ("-128", "127")),
    "SMALLINT": ("smallint", ("-32768", "32767")),
    "INTEGER": ("integer", ("-2147483648", "2147483647")),
    "BIGINT": ("bigint", ("-9223372036854775808", "9223372036854775807")),
    "UTINYINT": ("utinyint", ("0", "255")),
    "USMALLINT": ("usmallint", ("0", "65535")),
    "UINTEGER": ("uinteger", ("0", "4294967295")),
    "UBIGINT": ("ubigint", ("0", "18446744073709551615")),
    "FLOAT": ("float", ("'nan'", "'-inf'", "3.4028235e38", "-0.0", "1e-45")),
    "DOUBLE": ("double", ("'nan'", "'inf'", "1.7976931348623157e308", "-0.0", "5e-324")),
    "DECIMAL": ("decimal(38, 3)", ("-99999999999999999999999999999999999.999", "0.001")),
    "VARCHAR": ("varchar", ("''", "'Ünï 🦆'", "'a''b'", "'NULL'")),
    "BLOB": ("blob", ("''", "'\\x00\\xFF'")),
    "DATE": ("date", ("'1969-12-31'", "'0001-01-01'", "'9999-12-31'")),
    "TIME": ("time", ("'00:00:00'", "'23:59:59.999999'")),
    "TIMESTAMP": ("timestamp", ("'1969-12-31 23:59:59.999999'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'")),
    "TIMESTAMP_S": ("timestamp_s", ("'1969-12-31 23:59:59'", "'2024-02-29 12:00:00'")),
    "TIMESTAMP_MS": ("timestamp_ms", ("'1969-12-31 23:59:59.999'", "'2024-02-29 12:00:00'")),
    "TIMESTAMP_NS": ("timestamp_ns", ("'1969-12-31 23:59:59.999999999'", "'2024-02-29 12:00:00.000000001'")),
    "TIMESTAMP WITH TIME ZONE": ("timestamptz", ("'2024-02-29 12:00:00+02'", "'0001-01-01 00:00:00+00'")),
    "LIST": ("integer[]", ("[]", "[1, null]")),
    "ARRAY": ("integer[2]", ("[1, 2]", "[null, 2]")),
    "STRUCT": ('struct("a b" integer, c varchar[])', ("{'a b': 1, 'c': ['x', null]}", "{'a b': null, 'c': []}")),
    "MAP": ("map(varchar, date)", ("map {}::map(varchar, date)", "map {'a': date '2024-02-29', 'b': null}")),
}
REFUSED_AS = {"ENUM": "enum('a', 'b')", "UNION": "union(a integer, b varchar)", "NULL": '"NULL"', "TUPLE": None}
BEYOND = {
    "date": ("'infinity'", "'-infinity'", "'0044-03-15 (BC)'", "'10000-01-01'"),
    "timestamp": ("'infinity'", "'-infinity'", "'0044-03-15 (BC) 12:00:00'", "'10000-01-01 00:00:00'"),
    "timestamptz": ("'infinity'", "'0044-03-15 (BC) 12:00:00+00'"),
    "date[]": ("['infinity'::date]",),
}


NOT_IN: dict[str, set[str]] = {"parquet": set(), "vortex": set()}


def is_written(cluster: LocalCluster, statement: str) -> bool:
    """Whether a statement succeeds; what fails must say why in its own words."""
    try:
        cluster.sql(statement)
    except (PlanningError, WriteError) as error:
        return not error.message
    return True


@pytest.fixture(scope="module")
def site():
    with LocalCluster(schedulers=1, executors=1) as cluster, duckdb.connect() as single:
        single.execute("set TimeZone = 'UTC'")
        yield cluster, single


def logical_types() -> set[str]:
    with duckdb.connect() as single:
        rows = single.execute("select distinct logical_type from duckdb_types()").fetchall()
    return {name for (name,) in rows} | {"JSON"}


def test_every_type_of_the_engine_is_kept_or_refused_by_name():
    assert logical_types() == KEPT | INSTEAD.keys()
    assert not KEPT & INSTEAD.keys()
    assert SAMPLES.keys() == KEPT


def test_the_table_of_types_in_the_guide_is_that_of_the_code():
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    rows = dict(re.findall(r"^\| `([A-Z_ ]+)` \| (.*) \|$", guide, re.MULTILINE))
    assert rows == dict.fromkeys(KEPT, "kept") | {name: f"refused: {text}" for name, text in INSTEAD.items()}


@pytest.mark.share(3)
@pytest.mark.parametrize("file_format", ["parquet", "vortex"])
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_kept_comes_back_as_it_went_in(site, name, file_format):
    cluster, single = site
    kind, values = SAMPLES[name]
    table = f"{name.lower().replace(' ', '_')}_{file_format}"
    single.execute(f"create table {table} (i int, c {kind})")
    declared = f"create table {table} (i int, c {kind}) with (file_format = '{file_format}')"
    if name in NOT_IN[file_format]:
        with pytest.raises(BallistaError, match="does not hold"):
            cluster.sql(declared)
        return
    cluster.sql(declared)
    for number, value in enumerate((*values, "null")):
        insert = f"insert into {table} values ({number}, {value})"
        single.execute(insert)
        cluster.sql(insert)
    cluster.sql(f"update {table} set i = i + 1 - 1")
    query = f"select i, typeof(c) as kind, c::varchar as text from {table} order by i"
    assert cluster.sql(query).to_pylist() == single.sql(query).to_arrow_table().to_pylist()
    query = f"select c from {table} order by i"
    assert str(cluster.sql(query)["c"].to_pylist()) == str(single.sql(query).to_arrow_table()["c"].to_pylist())
    assert (
        cluster.sql(f"describe {table}").to_pylist()
        == single.sql(f"describe {table}").to_arrow_table().to_pylist()
    )


def test_what_is_not_kept_is_refused_by_name_and_nothing_is_made(site):
    cluster, _ = site
    for name in sorted(INSTEAD):
        kind = REFUSED_AS.get(name, name)
        if kind is None:
            continue
        for declared in (kind, f"{kind}[]", f"struct(a {kind})"):
            with pytest.raises(BallistaError) as caught:
                cluster.sql(f"create table refused (c {declared})")
            assert "cannot be" in str(caught.value) or "yntax error" in str(caught.value) or name == "TYPE", (
                declared
            )
    for query in (
        "select uuid() as c",
        "select 1::hugeint as c",
        "select [interval 1 day] as c",
        "select null as c",
    ):
        with pytest.raises(BallistaError, match=r"which a table does not keep|is not kept by a table"):
            cluster.sql(f"create table refused as {query}")
    assert "refused" not in cluster.sql("show tables")["name"].to_pylist()


@pytest.mark.parametrize("kind", BEYOND)
def test_a_date_that_files_cannot_hold_is_refused_or_comes_back(site, kind):
    cluster, single = site
    table = "beyond_" + kind.strip("[]") + str(kind.count("["))
    for place in (cluster.sql, single.execute):
        place(f"create table {table} (c {kind})")
    for value in BEYOND[kind]:
        insert = f"insert into {table} values ({value})"
        if is_written(cluster, insert):
            single.execute(insert)
    query = f"select c::varchar as text from {table} order by all"
    assert cluster.sql(query).to_pylist() == single.sql(query).to_arrow_table().to_pylist()


NOT_ON_POLARS = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "LIST", "ARRAY", "STRUCT", "MAP")
FEW = ("DECIMAL", "TIMESTAMP_NS", "LIST", "STRUCT")
WIDER = {"TINYINT": "bigint", "INTEGER": "double", "UINTEGER": "decimal(20, 2)", "FLOAT": "double"}


@pytest.fixture(scope="module", params=["polars", "duckdb"])
def either(request):
    with LocalCluster(schedulers=1, executors=1, engine=request.param) as cluster, cluster.client() as client:
        client.engine = request.param
        yield client


def succeeds(client, statement, name):
    """Whether a statement is run, as it must be unless the engine of the executors cannot hold the type."""
    if client.engine == "polars" and name in NOT_ON_POLARS:
        with pytest.raises(
            (SqlError, ConfigError), match=r"executor-1', which runs the polars engine: column 'c'"
        ):
            client.sql(statement)
        return False
    client.sql(statement)
    return True


def check(client, file_format, name):
    kind, values = SAMPLES[name]
    options = f"with (file_format = '{file_format}')"
    table = f"{name.lower().replace(' ', '_')}_{file_format}"
    if succeeds(client, f"create table made_{table} (c {kind}) {options}", name):
        client.sql(f"insert into made_{table} values ({values[0]}), (null)")
        assert sorted(map(str, client.sql(f"from made_{table}")["c"].is_null().to_pylist())) == ["False", "True"]
    if succeeds(client, f"create table filled_{table} {options} as select cast({values[0]} as {kind}) as c", name):
        assert client.sql(f"from filled_{table}").num_rows == 1
    client.sql(f"create table {table} (id int, i int) {options}")
    client.sql(f"insert into {table} values (1, 1)")
    if succeeds(client, f"alter table {table} add column c {kind} default {values[0]}", name):
        client.sql(f"insert into {table} (id) values (2)")
        found = client.sql(f"from {table} order by id")["c"].to_pylist()
        assert str(found[0]) == str(found[1])
        if name in WIDER:
            client.sql(f"alter table {table} alter c type {WIDER[name]}")
            assert client.sql(f"from {table}").num_rows == 2
        client.sql(f"alter table {table} drop column c")
    with pytest.raises(SqlError, match=r"cannot become|cannot be held") if name not in (
        "INTEGER", "BIGINT", "DOUBLE", "DECIMAL",
    ) else nullcontext():  # fmt: skip
        client.sql(f"alter table {table} alter i type {kind}")
    rows = client.sql(f"from {table} order by id").to_pylist()
    assert [row["id"] for row in rows] == [1, 2][: len(rows)]
    assert float(rows[0]["i"]) == 1
    client.sql(f"drop table if exists made_{table}, filled_{table}, {table}")


@pytest.mark.parametrize("name", FEW)
def test_a_type_is_held_by_all_executors_or_refused_by_name(either, name):
    check(either, "parquet", name)


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "vortex"])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_is_held_by_all_executors_or_refused_by_name(either, name, file_format):
    check(either, file_format, name)


def test_rows_that_make_a_table_are_refused_by_name_too(either):
    rows = either.sql("select [1, 2] as c")
    for mode in ("create", "create_append"):
        if either.engine == "polars":
            with pytest.raises(ConfigError, match="polars engine: column 'c'"):
                either.ingest("came", rows, mode=mode)
        else:
            either.ingest("came", rows, mode=mode)
            assert either.sql("from came").num_rows == 1
            either.sql("drop table came")
    assert "came" not in either.sql("show tables")["name"].to_pylist()


@pytest.mark.long
def test_executors_of_another_engine_that_come_later_say_why_they_do_not_serve(tmp_path):
    place = tmp_path.as_uri()
    with LocalCluster(schedulers=1, executors=1, state_location=place) as cluster:
        cluster.sql("create table t (id int, c int[]) partitioned by (bucket(2, id))")
        cluster.sql("insert into t values (1, [1]), (2, [2])")
    with LocalCluster(schedulers=1, executors=1, state_location=place, engine="polars") as cluster:
        with pytest.raises(BallistaError, match=r"polars engine: column 'c' is list<"):
            cluster.sql("from t")
        cluster.sql("alter table t drop column c")
        assert cluster.sql("from t order by id").to_pylist() == [{"id": 1}, {"id": 2}]
