"""What is in quotes stays what it is: texts, names and comments are told apart as the engine does."""

import random
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ballista_py.engines.duckdb.change import run_change
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import SqlError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.own_words import own_places
from ballista_py.sql.parse.kind import engine_sql, statement_kind
from ballista_py.sql.parse.parameters import bound
from ballista_py.sql.parse.quotes import first_place, pieces_of, require_settled, settled
from ballista_py.sql.parse.session_statements import read_verb
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query

ENGINE = duckdb.connect()
ODD = "\u00a0\u2000\u200a\u200b\u202f\u205f\u2060\u3000\ufeff"
COMMENTS = [
    "/* don't touch */", "/*'*/", '/*"*/', "-- it's\n", '-- " $$ \r', "/* -- */", "/*$$*/", "/* /* ' */ */", "/*$a$*/",
    "/*\u00a0'*/", "/* e'\\' */", "/*+ hint's */", " ", "\n",
]  # fmt: skip
HOSTILE = st.text(st.sampled_from([*ODD, *"'\"-/*$a\\\n\r?#`;{}é😀"]), max_size=8)
BEFORE = st.lists(st.sampled_from(COMMENTS), max_size=3).map("".join)


def written(value, form):
    """The value as a literal in one of the forms that the engine knows."""
    for tag in ("$$", "$q$"):
        if form == tag and tag not in value + "$" and tag not in (value + tag)[:-1]:
            return f"{tag}{value}{tag}"
    if form == "e":
        return "e'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + value.replace("'", "''") + "'"


@given(*[HOSTILE] * 2, HOSTILE, *[BEFORE] * 4, st.tuples(*[st.sampled_from(["'", "e", "$$", "$q$"])] * 2))
def test_literals_and_names_are_what_was_written_whatever_the_comments_hold(one, two, name, c1, c2, c3, c4, forms):
    name += "n"
    called = name.replace('"', '""')
    text = f'{c1}select {c2}{written(one, forms[0])} as "{called}"{c3},{written(two, forms[1])}{c4}'
    try:
        made = engine_sql(text)
    except SqlError as error:
        assume("cannot be told" not in error.message)
        raise
    assert made.count("\n") == text.count("\n")
    done = ENGINE.execute(made)
    assert (done.description[0][0], done.fetchall()) == (name, [(one, two)])


@given(HOSTILE, BEFORE, BEFORE, BEFORE)
def test_values_of_parameters_are_what_was_bound_whatever_the_comments_hold(value, before, inside, after):
    text = engine_sql(f"{before}select {inside} ?, 'x', ?{after}")
    sql = bound(text, {"1": pa.scalar(value), "2": pa.scalar(value[::-1])})
    require_settled(sql)
    assert ENGINE.execute(sql).fetchall() == [(value, "x", value[::-1])]


@pytest.mark.parametrize("comment", COMMENTS)
@pytest.mark.parametrize("literal", ["'{}'", "e'{}\\''", "$${}$$", "$x${}$x$"])
def test_the_engine_makes_no_character_another_one(comment, literal):
    """Whatever blanks a later DuckDB calls odd."""
    characters = "".join(
        chr(n)
        for n in (*range(32, 0x3100), *range(0xD7F0, 0x10010))
        if not 0xD800 <= n < 0xE000 and chr(n) not in "'\\$"
    )
    text = engine_sql(f"{comment}select {comment} {literal.format(characters)} as c, '{characters}'{comment}")
    ((first, second),) = ENGINE.execute(text).fetchall()
    assert (first.rstrip("'"), second) == (characters, characters)


@pytest.mark.parametrize("text", [
    "/* don't */ select '\u00a0'",
    "select e'\\'', '\u00a0'",
])  # fmt: skip
def test_the_engine_refuses_a_text_that_it_would_read_otherwise(text):
    """Where one comes from a definition of long ago, or by a way that nobody knew."""
    assert ENGINE.execute(text).fetchone()[-1] == " ", "DuckDB reads it as it is written: this can go"
    with closing(DuckDBEngine()) as engine:
        for ask in (lambda: list(engine.query(text).batches()), lambda: engine.describe(text, {})):
            with pytest.raises(SqlError, match="otherwise than it is written"):
                ask()
        found = engine.query(engine_sql(text)).batches()
        assert next(iter(found)).to_pylist()[0].popitem()[1] == "\u00a0"
    rows = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), [])
    with (
        pytest.raises(SqlError, match="otherwise than it is written"),
        run_change(f"insert into t {text}", "t", rows, {}),
    ):
        pass


@pytest.mark.parametrize("dialect", [None, "spark", "postgres"])
def test_a_dialect_leaves_no_comment_that_counts_quotes(dialect):
    made = engine_sql("-- don't\nselect /* it's */ '\u00a0' as a /* ' */", dialect)
    assert ENGINE.execute(made).fetchall() == [("\u00a0",)]


def test_fragments_and_merges_hold_what_was_written():
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    spec = PartitionSpec.parse(["bucket(2, id)"], schema)
    table = TableSpec(name="t", schema=schema, spec=spec)
    catalog = Catalog(tables={"t": table}, maps={"t": PartitionMap.build("t", spec, spec.static_values())})
    columns = pa.schema([("v", pa.string()), ("n", pa.int64()), ("c", pa.string())])
    text = "select v, count(*) as n, '\u00a0' as c from t where v <> '\u200b' /* don't */ group by v -- it's"
    for sql in (text, engine_sql(text)):
        plan = plan_query(sql, catalog, columns)
        for made in (plan.merge_sql, *(fragment.sql for fragment in plan.fragments)):
            require_settled(made or "")
        assert any("'\u200b'" in fragment.sql for fragment in plan.fragments)


def test_what_stands_before_a_statement_is_passed_over_as_the_engine_does():
    for before in ("-- x\r", "/* /* select */ update */", "\u00a0\ufeff", "--\n/**/\t"):
        text = f"{before}delete from t\n where a = (\nselect 1)"
        assert text[first_place(text) :].startswith("delete")
        assert statement_kind(text) == "change"
        assert read_verb(f"{before}set dialect = spark") == "SET"
        assert statement_kind(engine_sql(f"{before}explain select 1")) == "explain"
    assert first_place("/* open") == 0


def test_a_sign_in_a_name_begins_no_text_and_an_escape_only_behind_its_letter():
    found = {
        "select a$b$c, 'x', d$b$e": ["'x'"],
        "select date'it\\', 'x'": ["'it\\'", "'x'"],
        "select _e'it\\', é'\\'": ["'it\\'", "'\\'"],
        "select (E'it\\'s')": ["'it\\'s'"],
        "select $$a$$$$b$$": ["$$a$$", "$$b$$"],
        "select 'a\n": [],
    }
    for text, expected in found.items():
        assert [text[piece.start : piece.stop] for piece in pieces_of(text)] == expected


def test_an_error_still_tells_its_place_behind_a_comment():
    wrote = "/* it's */ select\nx"
    with pytest.raises(SqlError, match="line 2"), own_places(wrote, settled(wrote)):
        raise SqlError("no x (line 2, column 1)", line=2, column=1)
    with pytest.raises(SqlError) as caught, own_places(wrote, "select other"):
        raise SqlError("no x (line 2, column 1)", line=2, column=1)
    assert "line" not in caught.value.message


def test_a_long_text_takes_no_long_time():
    randomly = random.Random(1)
    for signs in ("'", "$", "e'\\", "/*", "--", "\u00a0", "$a$'\"", "a" * 50):
        text = "".join(randomly.choices([*signs, signs, " "], k=300_000))
        assert len(settled(text)) >= len(text)
