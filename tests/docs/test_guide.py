"""Whatever the guide says can be called or sent is taken: the functions of its tables, the statements of its blocks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import adbc_driver_flightsql.dbapi as flightsql
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError
from ballista_py.sql.dialects.translation import function_names
from ballista_py.sql.parse.kind import engine_sql
from ballista_py.sql.parse.scripts import statements_of
from ballista_py.testing.sql.dialect_check import SCHEMA
from ballista_py.testing.sql.dialect_expressions import expressions

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "guide.md", DOCS / "guide-flight-sql.md", DOCS.parent / "README.md")
KINDS = ("texts", "numbers", "dates", "nulls", "aggregates", "windows")
NO_FUNCTIONS = {"and", "_pop", "_samp", "aggregates"}
DIALECTS = (("spark", "postgres"), ("spark",), ("postgres",))
STATEMENT = re.compile(
    r"\s*(select|insert|update|delete|merge|create|drop|alter|explain|describe|show|from)\b", re.IGNORECASE
)

TOLD = re.compile(r"\b(runtime|information_schema)\.", re.IGNORECASE)


def listed() -> list[tuple[str, str]]:
    """The functions of the guide's table of dialects, each with a dialect that is said to have it."""
    found = []
    for kind, row in re.findall(r"^\| (\w+) \| (.*) \|$", PAGES[0].read_text(), re.MULTILINE):
        if kind in KINDS:
            for cell, dialects in zip(re.split(r"(?<!\\)\|", row), DIALECTS, strict=True):
                words = re.findall(r"\b[a-z][a-z_0-9]*|_\w+", cell)
                found += [(d, word) for word in words if word not in NO_FUNCTIONS for d in dialects]
    return found


def is_read(dialect: str, name: str) -> bool:
    if name in function_names(dialect):
        return True
    texts = [text for text in expressions(dialect, 1, 0) if re.search(rf"\b{name}\b", text)]
    for text in (*texts, name):
        try:
            engine_sql(f"select {text} as c from v", dialect, {"v": SCHEMA})
            return True
        except BallistaError:
            continue
    return False


def test_every_function_that_the_guide_lists_is_read_in_its_dialect():
    assert len(listed()) > 120
    assert [pair for pair in listed() if not is_read(*pair)] == []
    assert not is_read("spark", "no_such_function")


def statements() -> list[str]:
    """The statements in the blocks of Python and of the command line that are written out."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            texts = [
                n.value
                for n in ast.walk(ast.parse(block))
                if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            found += [text for text in texts if STATEMENT.match(text)]
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            found += [text for text in re.findall(r'"(.*?)"', block) if STATEMENT.match(text)]
    return [text for text in dict.fromkeys(found) if "…" not in text]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        cluster.sql(
            "create table orders (o_orderkey bigint, o_totalprice decimal(12, 2), o_orderstatus varchar) "
            "partitioned by (o_orderkey)"
        )
        cluster.sql(
            "create table otel_metrics (time timestamp, value double, metric varchar, "
            "attributes map(varchar, varchar)) partitioned by (metric)"
        )
        cluster.sql(
            "create table lineitem (l_orderkey bigint, l_returnflag varchar, l_quantity decimal(12, 2)) "
            "partitioned by (bucket(4, l_orderkey))"
        )
        yield cluster


@pytest.mark.turn(3)
def test_every_statement_of_the_guide_runs(cluster):
    asked = statements()
    assert len(asked) >= 11
    assert any("partitioned by" in text for text in asked)
    made = [text for text in asked if text.startswith("create table events")]
    cluster.sql(made[0])
    with flightsql.connect(cluster.flight_sql_url(), autocommit=True) as connection, connection.cursor() as cursor:
        for text in asked:
            if text in made:
                continue
            if "?" in text:
                cursor.execute(text, (7,))
            else:
                cluster.sql(text)


def blocks() -> list[tuple[str, str]]:
    """The blocks of SQL of every page, with the page's name; and what pages name of the cluster's own in a line."""
    found = []
    for page in (*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"):
        text = page.read_text()
        found += [(page.name, block) for block in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)]
        of_line = [said for said in re.findall(r"`([^`\n]+)`", text) if STATEMENT.match(said)]
        found += [(page.name, said) for said in of_line if TOLD.search(said) and "…" not in said]
    return found


@pytest.mark.parametrize(("page", "block"), blocks())
def test_every_block_of_sql_runs_as_it_stands_there(cluster, page, block):
    """The very first query of the page about what a cluster shows was refused."""
    for statement in statements_of(block):
        assert cluster.sql(statement.text) is not None


def test_there_are_such_blocks_about_what_a_cluster_shows():
    assert [page for page, block in blocks() if TOLD.search(block)]


def test_what_the_guide_says_can_be_shown_is_shown(cluster):
    cluster.sql("create table if not exists shown (a int)")
    for text in (
        *(
            "explain select * from shown",
            "explain analyze select * from shown",
            "describe shown",
            "describe select 1 as a",
        ),
        *("summarize shown", "show tables", "show databases", "show schemas", "show columns from shown"),
        *("show create table shown", "select * from information_schema.tables", "from ballista.main.shown"),
    ):
        assert cluster.sql(text) is not None
