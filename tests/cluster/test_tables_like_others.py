"""CREATE TABLE … LIKE: the columns of another table, with what each dialect says is copied, and nothing else of it."""

from __future__ import annotations

import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError, SqlError, UnsupportedExpression

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        cluster.sql(
            'create table s (k bigint not null default 7, "A b" decimal(9, 2) default 1.5, c varchar[], '
            "primary key (k), check (k > 0)) partitioned by (bucket(2, k)) with (file_format = 'vortex')"
        )
        cluster.sql("comment on column s.c is 'words'")
        cluster.sql("insert into s (k) values (1)")
        cluster.sql("alter table s rename column c to d")
        yield cluster


def made(cluster, name: str) -> str:
    return cluster.sql(f"show create table {name}")["statement"][0].as_py()


def comment(cluster, name: str) -> str | None:
    asked = f"select column_name, COLUMN_COMMENT as c from information_schema.columns where table_name = '{name}'"
    return next(row["c"] for row in cluster.sql(asked).to_pylist() if row["column_name"] == "d")


DEFAULTS = '"k" BIGINT NOT NULL DEFAULT 7, "A b" DECIMAL(9,2) DEFAULT 1.5, "d" VARCHAR[]'
PLAIN = '"k" BIGINT NOT NULL, "A b" DECIMAL(9,2), "d" VARCHAR[]'


@pytest.mark.parametrize("dialect", [None, "spark"])
def test_the_form_of_spark_takes_columns_partitions_and_files(cluster, dialect):
    cluster.sql("create table t like main.s", dialect=dialect)
    assert made(cluster, "t") == (
        f"CREATE TABLE \"t\" ({DEFAULTS}) PARTITIONED BY (bucket(2, k)) WITH (file_format = 'vortex')"
    )
    assert comment(cluster, "t") == "words"
    cluster.sql("insert into t (k, d) values (-1, ['x'])")  # the condition is not copied
    cluster.sql("insert into t (d) values (['y'])")
    assert cluster.sql("select k, d from t order by k").to_pylist() == [
        {"k": -1, "d": ["x"]},
        {"k": 7, "d": ["y"]},
    ]
    assert cluster.sql("select count(*) as n from s")["n"].to_pylist() == [1]
    cluster.sql("create table if not exists t like nothing_there", dialect=dialect)
    cluster.sql("drop table t")


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ("", PLAIN, None),
        (" including defaults", DEFAULTS, None),
        (" including comments", PLAIN, "words"),
        (" including constraints including indexes", f'{PLAIN}, PRIMARY KEY ("k"), CHECK (k > 0)', None),
        (" including all excluding indexes", f"{DEFAULTS}, CHECK (k > 0)", "words"),
    ],
)
@pytest.mark.parametrize("dialect", [None, "postgres"])
def test_the_form_of_postgresql_takes_what_it_includes(cluster, options, columns, said, dialect):
    cluster.sql(f"create table t (like s{options})", dialect=dialect)
    try:
        # PostgreSQL's dialect names conditions as its tables are told apart, text and all.
        assert made(cluster, "t") == f'CREATE TABLE "t" ({columns})'
        assert comment(cluster, "t") == said
        cluster.sql("insert into t values (1, 2.5, ['z'])")
        assert cluster.sql("select d from t")["d"].to_pylist() == [["z"]]
    finally:
        cluster.sql("drop table t")


def test_more_columns_and_keys_stand_beside_those_of_other_tables(cluster):
    cluster.sql(
        "create table u (x int, like s including constraints, check (x < k)) partitioned by (bucket(3, x))"
    )
    assert made(cluster, "u") == (
        f'CREATE TABLE "u" ("x" INTEGER, {PLAIN}, CHECK (k > 0), CHECK (x < k)) PARTITIONED BY (bucket(3, x))'
    )
    with pytest.raises(BallistaError, match="violates CHECK"):
        cluster.sql("insert into u (x, k) values (5, 3)")
    cluster.sql("drop table u")


def test_a_statement_sent_again_makes_nothing_anew_though_the_other_table_is_gone(cluster):
    client = cluster.client()
    cluster.sql("create table first (a int)")
    client.sql("create table again (like first)", token="like-1")
    cluster.sql("drop table first, again")
    client.sql("create table again (like first)", token="like-1")
    assert "again" not in cluster.sql("show tables")["name"].to_pylist()


@pytest.mark.parametrize(
    ("statement", "dialect", "named"),
    [
        ("create table t like nothing", None, "'nothing' does not exist"),
        ("create table t (like nothing)", None, "'nothing' does not exist"),
        ("create table t (like s including identity)", None, "INCLUDING IDENTITY"),
        ("create table t (like s including everything)", None, "INCLUDING EVERYTHING"),
        ("create table t (like s including)", None, "INCLUDING"),
        ("create table t (like s including storage)", "postgres", "INCLUDING STORAGE"),
        ("create table t (like s without defaults)", None, "'without' behind LIKE"),
        ("create table t like s partitioned by (k)", None, "behind LIKE"),
        ("create table t like s with (file_format = 'parquet')", None, "behind LIKE"),
        ("create table t like s using parquet", "spark", "LIKE with USING"),
        ("create table t like s tblproperties ('a' = 'b')", "spark", "LIKE with TBLPROPERTIES"),
        ("create table t like s location 'x'", "spark", "LOCATION"),
        ("create table t like other.s", None, "other.s"),
        ("create table t like 's'", None, "name of a table"),
        ("create table t (like s, k int)", None, "k"),
        ("create table t (like s including indexes, primary key (k))", None, "primary key"),
        ("create table t (like s, check (nothing > 0))", None, "nothing"),
        ("create temp table t (like s)", None, "TEMPORARY"),
        ("create table s like s", None, "exists already"),
        ("create view t like s", None, "VIEW"),
        ("create table t (like s) as select 1", None, "syntax error at or near"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(cluster, statement, dialect, named):
    with pytest.raises(
        (SqlError, BallistaError, UnsupportedExpression), match=r"(?i)" + named.replace("(", r"\(")
    ):
        cluster.sql(statement, dialect=dialect)
    assert cluster.sql("show tables")["name"].to_pylist() == ["s"]


def test_by_flight_sql(cluster):
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with dbapi.connect(cluster.flight_sql_url()) as connection, connection.cursor() as cursor:
        for text in (
            "create table t like s",
            "create table if not exists t (like s)",
            "create or replace table t like s",
        ):
            cursor.execute(text)
        assert PLAIN.split(",")[0] in made(cluster, "t")
        cursor.execute("drop table t")


@pytest.mark.parametrize("text", ["(k int)", "as select 1 as k", "(like s)", "like s"])
def test_a_name_that_is_taken_is_what_is_wrong_whatever_the_keys_are(cluster, text):
    cluster.sql("create table taken (k int) partitioned by (k)")
    with pytest.raises(ConfigError, match=r"^table 'taken' exists already$"):
        cluster.sql(f"create table taken {text}")
    cluster.sql("drop table taken")
