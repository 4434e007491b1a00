"""How large a statement may be, however it nests, in whatever dialect, by whatever way it came."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress

import pyarrow as pa
import pytest
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from ballista_py.errors import BallistaError, SqlError, UnsupportedExpression
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.sql.parse import measures as elements
from ballista_py.sql.parse import parsing
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.kind import engine_sql, statement_kind
from ballista_py.sql.parse.parameter_types import parameter_schema
from ballista_py.sql.parse.parameters import bound, places_of
from ballista_py.sql.parse.parsing import (
    MAX_ELEMENTS,
    MAX_NESTING,
    MAX_OPERATORS,
    MAX_STATEMENT_BYTES,
    measure,
    parsed,
)
from ballista_py.sql.parse.spark_sql import spark_sql
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query

NOTHING = Catalog(tables={}, maps={})
ANY = pa.schema([("a", pa.int64())])
NESTED = {
    "brackets": ("(", "1", ")"),
    "queries": ("(select ", "1", ")"),
    "relations": ("* from (select ", "1", ") as r"),
    "calls": ("abs(", "1", ")"),
    "lists": ("[", "1", "]"),
    "structs": ("{'a': ", "1", "}"),
    "cases": ("case when true then ", "1", " end"),
    "other branches": ("case when true then 1 else ", "1", " end"),
    "negations": ("not ", "true", ""),
    "signs": ("- ", "1", ""),
    "complements": ("~ ", "1", ""),
    "existence": ("exists(select ", "1", ")"),
    "casts": ("", "1", "::int"),
    "types": ("null::struct(a ", "int", ")"),
    "lambdas": ("list_transform([1], lambda x: ", "1", ")"),
    "tables of their own": ("(with a as (select ", "1", ") select 1)"),
    "windows": ("sum(1) over (order by ", "1", ")"),
    "units": ("interval ", "'1' day", ""),
}
LONG = {
    "sums": "+1",
    "products": "*1",
    "concatenations": "||'a'",
    "conjunctions": " and true",
    "disjunctions": " or not a",
    "unions": " union all select 1",
    "comparisons": " = 1",
    "powers": " ** 1",
    "paths": "->'a'",
    "joins": " join t",
    "words": " distinct",
}


def nested(kind: str, levels: int) -> str:
    before, middle, after = NESTED[kind]
    return "select " + before * levels + middle + after * levels


@pytest.mark.turn(3)
@pytest.mark.parametrize("dialect", ["duckdb", "spark", "postgres"])
@pytest.mark.parametrize("kind", NESTED)
def test_nesting_of_every_kind_is_refused_with_one_line_before_it_is_parsed(kind, dialect):
    with pytest.raises(SqlError, match=rf"nested more than {MAX_NESTING} levels|does not parse") as raised:
        plan_query(engine_sql(nested(kind, 5_000), dialect), NOTHING, ANY)
    assert "\n" not in raised.value.message


@pytest.mark.turn(3)
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("kind", LONG)
def test_operators_in_a_row_are_refused_with_one_line_before_they_are_parsed(kind, dialect):
    with pytest.raises(SqlError, match=r"operators in a row|nested more than") as raised:
        plan_query(engine_sql("select 1 from t" + LONG[kind] * 20_000, dialect), NOTHING, ANY)
    assert "\n" not in raised.value.message


WAYS = {
    "a query": lambda sql: plan_query(sql, NOTHING, ANY),
    "a query in another dialect": lambda sql: engine_sql(sql, "spark"),
    "a change": lambda sql: read_change(f"insert into t {sql}"),
    "a condition of a change": lambda sql: read_change(f"delete from t where a in ({sql})"),
    "a check of a table": lambda sql: read_change(f"create table t (a int check (a = ({sql})))"),
    "a table made of a query": lambda sql: read_change(f"create table t as {sql}"),
    "the first words": lambda sql: statement_kind(f"with a as ({sql}) insert into t from a"),
    "a text for Spark": spark_sql,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_measures(way):
    text = nested("queries", 10_000)
    try:
        WAYS[way](text)
    except SqlError as error:
        assert "nested" in error.message  # noqa: PT017
    else:
        assert way == "the first words"


def test_a_prepared_statement_and_a_change_are_told_without_a_parse():
    text = nested("queries", 10_000)
    assert parameter_schema(text + " where a = ?", {}) == pa.schema([("1", pa.null())])
    assert statement_kind(f"insert into t {text}") == "change"


@pytest.mark.turn(3)
def test_the_process_survives_whatever_nests():
    texts = [nested(kind, 30_000) for kind in NESTED] + ["select 1" + more * 30_000 for more in LONG.values()]
    program = (
        "import sys, threading\n"
        "from ballista_py.errors import BallistaError\n"
        "from ballista_py.sql.parse.kind import engine_sql\n"
        "def run():\n"
        "    for text in sys.stdin.read().split('\\0'):\n"
        "        for dialect in ('duckdb', 'spark', 'postgres', 'snowflake'):\n"
        "            try: engine_sql(text, dialect)\n"
        "            except BallistaError: pass\n"
        "    print('alive')\n"
        "thread = threading.Thread(target=run); thread.start(); thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input="\0".join(texts), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


@pytest.mark.parametrize("kind", NESTED)
def test_what_nests_a_little_is_planned(kind):
    for dialect in ("duckdb", "spark"):
        try:
            engine_sql(nested(kind, 60), dialect)
        except BallistaError as error:
            assert "nested" not in error.message  # noqa: PT017


def test_length_elements_and_their_limits_are_named():
    with pytest.raises(SqlError, match=f"more than {MAX_STATEMENT_BYTES:,} bytes"):
        engine_sql("select '" + "x" * MAX_STATEMENT_BYTES + "'")
    with pytest.raises(SqlError, match=f"more than {MAX_STATEMENT_BYTES:,} bytes"):
        engine_sql("select '" + "ü" * (MAX_STATEMENT_BYTES // 2) + "'")
    with pytest.raises(SqlError, match=f"more than {MAX_ELEMENTS:,}"):
        engine_sql("select 1" + ",1" * MAX_ELEMENTS)
    with pytest.raises(SqlError, match=f"more than {MAX_OPERATORS:,} operators"):
        engine_sql("select 1" + "+1" * (MAX_OPERATORS + 1))


@pytest.mark.turn(3)
@pytest.mark.parametrize("dialect", ["duckdb", "spark", "postgres"])
@pytest.mark.parametrize(
    "text",
    [
        "select " + "1," * 500_000 + "1",
        "call f(" + "a," * 500_000 + "1)",
        ";" * MAX_STATEMENT_BYTES,
        "select 1" + "('a')" * 200_000,
    ],
    ids=["list", "command", "semicolons", "strings"],
)
def test_a_text_of_too_many_elements_is_refused_before_it_is_read_to_its_end(monkeypatch, dialect, text):
    read = []
    tokens = elements._tokens
    monkeypatch.setattr(elements, "_tokens", lambda piece, one: read.append(len(piece)) or tokens(piece, one))
    monkeypatch.setattr(parsing, "_tokens", lambda *_: pytest.fail("the whole text was cut into elements"))
    with pytest.raises(SqlError, match=f"has more than {MAX_ELEMENTS:,} elements"):
        measure(text, dialect)
    assert max(read) == elements.PIECE_CHARACTERS
    assert sum(read) < len(text) * 3 // 4


@pytest.mark.turn(3)
@pytest.mark.parametrize("dialect", ["duckdb", "spark", "postgres"])
def test_pieces_count_what_the_whole_text_has(dialect):
    """Whatever is cut in two: texts, names, numbers, comments of all lengths."""
    pieces = [
        " 12.5e3",
        " 'it''s'",
        ' "a b"',
        " /* , */",
        " -- ,\n",
        " abc",
        "<=",
        ",",
        " e'x'",
        " 10",
        "\n",
        f" '{'y' * 70_000}'",
    ]
    chance = random.Random(5)
    for _ in range(5):
        text = "select " + "".join(chance.choices(pieces, [9] * 11 + [0.01], k=60_000))
        exact = len(parsing.tokenized(text, dialect))
        known = Dialect.get_or_raise(dialect)
        elements.require_few_elements(text, known, exact)
        with pytest.raises(SqlError, match="elements"):
            elements.require_few_elements(text, known, exact - 4 * (len(text) // elements.PIECE_CHARACTERS + 8))


def test_comments_count_as_elements():
    with pytest.raises(SqlError, match="elements"):
        measure("select 1 " + "--\n" * 300_000)


def test_what_stands_in_texts_and_comments_is_not_counted():
    measure("select '" + "(" * 5_000 + "' /* " + "[" * 5_000 + " */, " + "1, " * 5_000 + "1")


def test_a_statement_grows_by_its_values_beyond_the_limits_of_its_text():
    text = bound("select ?, ?", {"1": pa.scalar("x" * (2 * MAX_STATEMENT_BYTES)), "2": pa.scalar([1] * 30_000)})
    assert len(text) > MAX_STATEMENT_BYTES
    assert places_of(text) == ()
    plan_query(text, NOTHING, pa.schema([("a", pa.string()), ("b", pa.list_(pa.int64()))]))


@pytest.mark.parametrize("key", ["id" + " + id" * 50_000, "(" * 10_000 + "id" + ")" * 10_000, "id + " * 2_000])
def test_a_partition_key_is_measured(key):
    with pytest.raises(UnsupportedExpression):
        PartitionSpec.parse([key], pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize("dialect", [None, "spark", "postgres"])
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select " + ".".join(["a"] * 66) + " from t", "a name in the statement has more than 64 dots"),
        ("select " + " . ".join(['"a"'] * 3_900) + " from t", "a name in the statement has more than 64 dots"),
        ("update t set v = " + ".".join(["t", *["v"] * 3_900]), "a name in the statement has more than 64 dots"),
        ("create table z (a decimal(" + "9" * 900_000 + ", 2))", "a number in the statement has more than 1,100"),
        ("select $" + "9" * 1_101, "a number in the statement has more than 1,100 digits"),
        ("select 1." + "9" * 1_101, "a number in the statement has more than 1,100 digits"),
    ],
    ids=["dots", "spaced dots", "dots of a change", "a type", "a parameter", "a fraction"],
)
def test_names_of_endless_parts_and_endless_numbers_are_refused_before_they_are_read(sql, said, dialect):
    """DuckDB's parser and binder take the square of their parts, and are not to be stopped."""
    with pytest.raises(SqlError, match=said):
        measure(sql, dialect)


@pytest.mark.parametrize(
    "sql",
    [
        "select " + ".".join(["a"] * 65),
        "values " + ", ".join(["(1.5)"] * 2_000),
        "select '" + "9" * 5_000 + "'",
        "select " + ".".join("f(x)" for _ in range(100)),
    ],
)
def test_dots_and_digits_of_other_things_are_as_many_as_one_likes(sql):
    measure(sql)


@pytest.mark.parametrize("dialect", [None, "postgres", "spark"])
@pytest.mark.parametrize(
    "level",
    [
        "array[",
        "date(",
        "cast(date(",
        "(date(",
        "struct(",
        "int[",
        "x::int[",
        "decimal(((",
        "{'a': date(",
        "1 = any(array[",
    ],
)
def test_what_is_read_again_at_each_level_is_refused_before_it_is_read(dialect, level):
    close = "".join({"(": ")", "[": "]", "{": "}"}[sign] for sign in reversed(level) if sign in "([{")
    with pytest.raises(SqlError, match="stand in each other too deep"):
        parsed(f"select {level * 60}1{close * 60}", dialect)
    with suppress(SqlglotError):  # not every dialect has it; none takes long
        parsed(f"select {level * 5}1{close * 5}", dialect)


@pytest.mark.parametrize(
    "text",
    [
        f"create table t (x {'struct(a ' * 31}int{')' * 31})",
        f"select x::{'map(int, ' * 31}int{')' * 31}",
        f"select {'[' * 150}1{']' * 150}",
        f"select {', '.join(['date(now())'] * 20_000)}",
        f"values {', '.join(['(array[1, 2], date(now()))'] * 5_000)}",
    ],
)
def test_types_and_lists_that_are_read_once_are_read(text):
    assert parsed(text)
