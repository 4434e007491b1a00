"""A text that a client sends, as a value or in a statement, comes back byte for byte, by every way into a cluster."""

import json
import urllib.request

import adbc_driver_flightsql.dbapi as flightsql
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import SchemaMismatch

pytestmark = pytest.mark.cluster

ODD = "".join(
    map(chr, (0xA0, *range(0x2000, 0x200C), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF, 0x180E, 0x85))
)
TEXTS = [
    *(f"a{blank}b" for blank in ODD), *ODD, ODD, f"'{ODD}\"", f"/*{ODD}*/", f"--{ODD}\n{ODD}", f"$${ODD}$$ $a$'$a$",
    f"\\'{ODD}\\", f"e'{ODD}", "".join(map(chr, range(1, 160))), "{# ' #}", "😀\u200d😀",
]  # fmt: skip
# What stands before, inside of and behind a statement.
COMMENTS = [
    ("/* don't touch */", "", ""),
    ("-- it's\n /* /* ' */ */", '/* " $$ -- */', "/* e'\\' */ -- '"),
]


@pytest.fixture(scope="module")
def served():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        cluster.sql("create table lit (n bigint not null, v varchar, x varchar) partitioned by (bucket(2, n))")
        yield cluster


@pytest.fixture
def table(served):
    served.sql("delete from lit where true")
    return served


def stored(cluster):
    return [tuple(row.values()) for row in cluster.sql("select v, x from lit order by n").to_pylist()]


def posted(cluster, sql, **more):
    body = json.dumps({"sql": sql, **more}).encode()
    request = urllib.request.Request(
        cluster.http_url("scheduler-1") + "/v1/sql", body, {"content-type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def literal(value):
    return "'" + value.replace("'", "''") + "'"


@pytest.mark.parametrize(("before", "inside", "behind"), COMMENTS)
def test_values_and_literals_come_back_as_they_were_sent(table, before, inside, behind):
    """Prepared statements, HTTP with parameters, and literals in the text itself, in Spark's dialect too."""
    expected = [(text, text[::-1]) for text in TEXTS]
    insert = f"{before} insert into lit {inside} values (?, ?, ? {inside}) {behind}"
    with flightsql.connect(table.flight_sql_url(), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.executemany(insert, [(n, *pair) for n, pair in enumerate(expected)])
        assert stored(table) == expected
        for n in (0, len(TEXTS) - 4):
            text = expected[n][0]
            cursor.execute(f"{before} select {inside} ?, {literal(text)} {behind}", (text,))
            assert cursor.fetchall() == [(text, text)]
            cursor.execute(f"{before} select {inside} v from lit where v = ? {behind}", (text,))
            assert cursor.fetchall() == [(text,)]
            cursor.execute(
                f"{before} update lit set {inside} x = ? where v = {literal(text)} {behind}", ("x" + text,)
            )
            assert cursor.rowcount == 1
            expected[n] = (text, "x" + text)
    assert stored(table) == expected
    table.sql("delete from lit where true")
    few = [pair for pair in expected if "\x0b" not in pair[0]][::9]
    for n, (one, two) in enumerate(few):
        answer = posted(
            table, f"{before} insert into lit values ({n}, {inside} ?, ?) {behind}", parameters=[one, two]
        )
        assert answer == [{"affected": 1}]
        answer = posted(table, f"{before} select {inside} ? as a, {literal(two)} as b {behind}", parameters=[one])
        assert answer == [{"a": one, "b": two}]
    assert stored(table) == few
    table.sql("delete from lit where true")
    rows = ", ".join(f"({n}, {literal(one)}, {literal(two)}) {inside}" for n, (one, two) in enumerate(expected))
    with table.client() as client:
        client.sql(f"{before} insert into lit values {rows} {behind}")
        assert stored(table) == expected
        text = expected[13][0].replace("\\", "\\\\").replace("'", "\\'")
        comment = inside if "$" not in inside else ""
        found = client.sql(f"select {comment} '{text}' as v -- it's\n", dialect="spark")
        assert found.to_pylist() == [{"v": expected[13][0]}]


def test_a_value_with_nul_is_refused_and_nothing_is_stored(table):
    with flightsql.connect(table.flight_sql_url(), autocommit=True) as connection:
        cursor = connection.cursor()
        with cursor, pytest.raises(Exception, match="NUL"):
            cursor.execute("/* don't */ insert into lit values (1, ?, 'x')", ("a\x00b",))
    assert stored(table) == []


def test_what_a_definition_keeps_is_what_was_written(table):
    """A view's query, a default and a condition are text that statements are made of later."""
    table.sql("/* don't */ create view odd as select /* it's */ '\u200b' as v, e'it\\'s' as w, '\u00a0' as x -- '")
    table.sql(
        "create table kept (n int /* don't */ default 7, v varchar default '\u00a0', "
        "check (v <> '\u200b' /* ' */)) -- it's"
    )
    try:
        assert table.sql("select /* don't */ * from odd").to_pylist() == [
            {"v": "\u200b", "w": "it's", "x": "\u00a0"}
        ]
        table.sql("insert into kept (n /* ' */) values (1)")
        table.sql("insert into kept values (2, ' ') -- don't")
        with pytest.raises(SchemaMismatch):
            table.sql("insert into kept values (3, '\u200b') -- don't")
        assert [row["v"] for row in table.sql("select v from kept order by n").to_pylist()] == ["\u00a0", " "]
    finally:
        table.sql("drop view odd")
        table.sql("drop table kept")
