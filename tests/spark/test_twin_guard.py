"""Texts for a server of Spark Connect: a JVM here looks at each before the server gets it, or the server gets none."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pyspark
import pytest
from py4j import protocol
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import install_exception_handler
from pyspark.sql import types

from ballista_py.errors import ConfigError, SqlError
from ballista_py.spark.reasons import reason_of
from ballista_py.spark.text.settings import PLAIN_TEXT
from ballista_py.spark.text.twin import TwinGuard

pytestmark = pytest.mark.spark


COLUMNS = (
    types.StructType()
    .add("a", types.LongType())
    .add("b c", types.StringType())
    .add("m", types.MapType(types.StringType(), types.ArrayType(types.IntegerType())))
)


class Server:
    """A session of a server that notes what text it gets."""

    def __init__(self, release: str = pyspark.__version__, **settings: str) -> None:
        self.version = release
        self.got: list[str] = []
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.conf = SimpleNamespace(
            getAll=dict(self.settings), set=self.settings.__setitem__, get=self.settings.get
        )

    def cloneSession(self):
        return self

    def table(self, name):
        assert name == "`odd name`"
        return SimpleNamespace(schema=COLUMNS)

    def sql(self, text):
        self.got.append(text)
        return text


@pytest.fixture(scope="module")
def guards():
    made = []

    def of(server):
        made.append(TwinGuard(server))
        return made[-1]

    yield of
    for guard in made:
        guard.close()


@pytest.fixture(scope="module")
def plain(guards):
    server = Server()
    return server, guards(server)


def test_a_query_over_the_views_goes_to_the_server(plain):
    server, guard = plain
    text = "select a + 1 as n, `b c`, m['x'][0] as x from `odd name` where `b c` like 'x%'"
    session = guard.session()
    assert PLAIN_TEXT.items() <= server.settings.items()
    assert guard.rows(session, text, ["odd name"]) == text
    assert server.got.pop() == text


@pytest.mark.parametrize(
    "text",
    [
        "drop view `odd name`",
        "create table x as select 1 as n",
        "set spark.sql.ansi.enabled = false",
        "select java_method('java.lang.System', 'exit', 1) as n",
        "select * from parquet.`/etc/passwd`",
        "select * from other",
        "select * from read_files('/etc/passwd')",
        "select transform(a) using 'cat' as (b) from `odd name`",
        "select a from `odd name`; select 1",
        "select current_user() as n",
    ],
)
def test_what_is_no_query_over_them_never_reaches_the_server(plain, text):
    server, guard = plain
    with pytest.raises(Exception) as raised:
        guard.rows(guard.session(), text, ["odd name"])
    assert isinstance(raised.value, SqlError) or "Parse" in str(raised.value) or "PARSE" in str(raised.value)
    assert server.got == []


def test_the_settings_of_the_server_count_here_too(guards):
    server = Server(spark_sql_parser_quotedRegexColumnNames="true", spark_sql_no_such="x", spark_master="local")
    guard = guards(server)
    pattern = "select `a|z` from `odd name`"
    assert guard.rows(guard.session(), pattern, ["odd name"]) == pattern


def test_without_them_the_same_text_means_something_else(plain):
    server, guard = plain
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        guard.rows(guard.session(), "select `a|z` from `odd name`", ["odd name"])
    assert server.got == []


@pytest.fixture(params=["never", "ended", "another"])
def own_spark(request, monkeypatch):
    """What this process had of a Spark of its own: after one, py4j asks it what an error of any JVM means."""
    if request.param != "never":
        monkeypatch.setattr("py4j.java_gateway.get_return_value", protocol.get_return_value)
        install_exception_handler()
    if request.param == "another":
        request.getfixturevalue("spark")
    else:
        monkeypatch.setattr(SparkContext, "_gateway", None)
        monkeypatch.setattr(SparkContext, "_jvm", None)


@pytest.mark.usefixtures("own_spark")
def test_an_error_is_what_its_own_jvm_says(plain):
    _, guard = plain
    for text, said in (("select a + )", "Syntax error"), ("select b from `odd name`", "`b`")):
        with pytest.raises(Exception) as raised:
            guard.rows(guard.session(), text, ["odd name"])
        assert said in reason_of(raised.value)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Server("4.0.1"), "has Spark 4.0.1, and pyspark here is"),
        (Server(spark_sql_extensions="org.example.Extensions"), "has extensions of SQL"),
    ],
)
def test_a_server_that_may_read_texts_otherwise_runs_none(server, said):
    with pytest.raises(ConfigError, match=said):
        TwinGuard(server)


def test_the_jvm_ends_with_it():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    guard = TwinGuard(Server())
    (made,) = [c for c in psutil.Process().children(recursive=True) if c.pid not in before and "java" in c.name()]
    guard.close()
    guard.close()
    assert not made.is_running() or made.status() == psutil.STATUS_ZOMBIE
