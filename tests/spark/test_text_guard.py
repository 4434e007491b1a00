"""Text for Spark is one query over registered tables, whatever stands in it, or it is refused before it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import ConfigError, SqlError
from ballista_py.spark.text.guard import TextGuard
from ballista_py.spark.text.settings import PLAIN_TEXT, require_settings
from ballista_py.sql.parse.spark_sql import spark_sql

pytestmark = pytest.mark.spark

ROWS = pa.table({"a": pa.array(["x", "it's", "${env:PATH}", "\\", '"`']), "n": pa.array(range(5), pa.int64())})


@pytest.fixture(scope="module")
def guard(spark) -> TextGuard:
    return TextGuard(spark)


@pytest.fixture(scope="module")
def session(spark, guard):
    """A session of the guard with the view `t`; the catalog has a table `others` too, which nobody registered."""
    spark.sql("create table others using parquet as select 1 as secret").collect()
    session = guard.session()
    session.createDataFrame(ROWS).createOrReplaceTempView("t")
    yield session
    spark.sql("drop table others").collect()


@pytest.fixture(scope="module")
def tables(spark, session):
    """The tables of the session: `others`, and what other tests of the run have left there."""
    found = spark.sql("show tables").collect()
    assert "others" in [row.tableName for row in found]
    return found


HOSTILE = [
    "select transform(a) using 'touch {mark}' as (b) from t",
    "from t map a using 'touch {mark}' as (b)",
    "select java_method('java.lang.System', 'getProperty', 'user.home')",
    "select reflect('java.lang.System', 'getenv', 'PATH')",
    "select try_reflect('java.lang.System', 'getenv', 'PATH') from t",
    "select a from t where n in (select java_method('java.lang.System', 'nanoTime'))",
    "select a from t order by (select max(reflect('java.lang.System', 'nanoTime')) from t)",
    "select system.builtin.java_method('java.lang.System', 'getProperty', 'user.home')",
    "select identifier('java_' || 'method')('java.lang.System', 'getProperty', 'user.home')",
    "select * from text.`/etc/passwd`",
    "select * from csv.`file:///etc/passwd`",
    "select * from identifier('text.`/etc/passwd`')",
    "select n from t where exists (select * from text.`/etc/passwd`)",
    "select * from others",
    "select * from spark_catalog.default.others",
    "select * from (with others as (select 2) select 1 as one) x, others",
    "select * from t join others on true",
    "select current_user()",
    "select user",
    "select `session_user` from t",
    "select current_catalog(), current_database()",
    "select version()",
    "select input_file_name() from t",
    "select from_avro(a, 'x') from t",
    "select xpath(a, 'x') from t",
    "select * from python_worker_logs()",
    "select * from sql_keywords()",
    "select secret from t lateral view json_tuple(a, 'x') v as secret",
    "create table {name} as select 1",
    "insert into others select 2",
    "drop table others",
    "truncate table others",
    "cache table t",
    "set spark.sql.variable.substitute=true",
    "add jar '/tmp/x.jar'",
    "list jars",
    "show tables",
    "describe others",
    "explain select 1",
    "refresh '/etc'",
    "execute immediate 'select java_method(''java.lang.System'', ''nanoTime'')'",
    "declare variable x int default 1",
    "begin create table {name} as select 1; end",
    "create function f as 'x.Y'",
    "insert overwrite directory '{mark}' using csv select 1",
    "from t insert into others select n",
    "analyze table others compute statistics",
    "with x as (select 1) insert into others select * from x",
]


@pytest.mark.share(3)
@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_query_over_registered_tables_is_refused_and_does_nothing(
    spark, guard, session, tables, tmp_path, text
):
    mark = tmp_path / "touched"
    with pytest.raises(SqlError) as refused:
        guard.rows(session, text.format(mark=mark, name=f"made_{len(text)}"), ["t"]).collect()
    assert "\n" not in str(refused.value)
    assert not mark.exists()
    assert spark.sql("show tables").collect() == tables
    assert spark.table("others").collect() == [(1,)]


FINE = [
    "select a, count(*) as n, sum(n) over (order by n rows between 1 preceding and current row) from t group by a, n",
    "with t2 as (select * from t) select x.a from t2 x join t2 y using (n) where x.n in (select n from t)",
    "select * from (values (1, 'a'), (2, 'b')) v(i, s) union all select n, a from t limit 3",
    "select transform(array(1, 2), i -> i + 1), explode(array(n)) from t",
    "select grouping(a), a from t group by rollup(a) having count(*) > 1",
    "select date_trunc('month', current_timestamp()), cast(n as decimal(10, 2)), a like '%!_' escape '!' from t",
    "select n from t x where n > (select avg(n) from t y where y.a = x.a) or not exists (select 1 from t where n = 9)",
]


@pytest.mark.parametrize("text", FINE)
def test_queries_over_registered_tables_pass(guard, session, text):
    guard.rows(session, text, ["t"]).collect()


# What a text could mean to any of those who read it.
SHARP = [
    "'", "''", '"', "`", "``", "\\", "\\'", "${", "}", "${env:PATH}", "${spark.app.name}", "$", "--", "/*", "*/", "/*+",
    ";", "\n", "\r\n", "\0", "\x01", "\u2028", "é", "😀", "{{", "%", "_", "\\u0027", "\\x27", "\\047", ":a", "?", "@x",
    ") using 'sh' --", "' , java_method('java.lang.System', 'nanoTime'), '", "` from text.`/etc/passwd` --", "x",
]  # fmt: skip
# A statement takes Spark a second: what fails is shown as it is.
few = settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
hostile_text = st.lists(st.sampled_from(SHARP), max_size=4).map("".join)
names = hostile_text.map(lambda text: "c" + text.replace("\0", ""))


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def every_place(text: str, other: str, one: str) -> str:
    """A statement with these texts wherever a client can put one."""
    said, also, called = literal(text), literal(other), name(one)
    return f"""
        with {called} as (select a as {called}, a, n from t where a <> {said} /* {one.replace("/", "")} */)
        select {said} as v, {said} || {also} as {called}, {called} as w, length({said}) as l,
               case when {called} = {also} then {said} else {also} end as x, {said} in ({also}, 'x', {said}) as i,
               {called} like {said} escape '!' as k, replace({said}, 'x', {also}) as r, n
        from {called} as "q{one.replace('"', '""')}"
        where coalesce({called}, {said}) <> {also}
              and n + 0 in (select v.i from (values (0, {said}), (3, {also})) v(i, s))
        order by n, a || {said} -- {one.splitlines()[0]}
    """


@few
@example("'", "\\", 'c"`${env:PATH}')
@example("", "$", "c\x01''${spark.app.name}")
@example("x", "y", "t\x02java.lang.String")
@example("${env:PATH}", "' || java_method('java.lang.System', 'nanoTime') || '", "c`, java_method('a', 'b') as `")
@given(hostile_text, hostile_text, names)
def test_texts_of_a_client_stay_what_they_are_in_every_place(guard, session, text, other, one):
    if re.search(r"![^!%_]|!\Z", text):
        return
    statement = every_place(text, other, one)
    engine = DuckDBEngine(threads=1)
    try:
        running = engine.query(statement, streams={"t": ROWS})
        expected = pa.Table.from_batches(running.batches(), running.schema)
    finally:
        engine.close()
    actual = guard.rows(session, spark_sql(statement), ["t"]).toDF(*(f"c{place}" for place in range(9))).toArrow()
    assert list(actual.to_pydict().values()) == [column.to_pylist() for column in expected.columns]


@few
@given(st.lists(hostile_text, min_size=40, max_size=40))
def test_strings_come_back_as_they_were_sent(guard, session, texts: Sequence[str]):
    statement = f"select {', '.join(map(literal, texts))}"
    row = guard.rows(session, spark_sql(statement), ["t"]).toDF(*(f"c{n}" for n in range(40))).collect()[0]
    assert list(row) == texts


def test_a_session_that_replaces_variables_gets_a_guarded_one_that_does_not(spark, guard):
    spark.conf.set("spark.sql.variable.substitute", "true")
    try:
        assert guard.rows(guard.session(), "select '${env:PATH}'", []).collect() == [("${env:PATH}",)]
    finally:
        spark.conf.set("spark.sql.variable.substitute", "false")
    assert spark.sql("select '${env:PATH}'").collect() == [("${env:PATH}",)]


class _Stubborn:
    """The settings of a session that somebody else decides."""

    def __init__(self, value: str | None) -> None:
        self.conf = self
        self._value = value

    def set(self, name: str, value: str) -> None:
        if self._value is None:
            raise RuntimeError(f"cannot modify {name} = {value}")

    def get(self, _name: str) -> str | None:
        return self._value


@pytest.mark.parametrize("kept", ["true", None])
def test_a_session_that_keeps_replacing_variables_is_refused_by_the_name_of_the_setting(kept):
    with pytest.raises(ConfigError, match=r"spark\.sql\.variable\.substitute") as refused:
        require_settings(_Stubborn(kept), PLAIN_TEXT)
    assert "\n" not in str(refused.value)
