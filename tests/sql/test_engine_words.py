"""What the engine's parser reads in changes and definitions is read here, too, or refused by a name."""

import pyarrow as pa
import pytest
from hypothesis import given, strategies

from ballista_py.errors import SqlError
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.copies import read_copy
from ballista_py.sql.parse.engine_words import for_parser
from ballista_py.sql.parse.kind import engine_sql, read_by_the_engine_alone
from ballista_py.sql.parse.parameters import places_of
from ballista_py.sql.parse.parsing import tokenized

MERGE = "merge into t using s using (i) when matched then "
TABLES = {"t": pa.schema({"i": pa.int64(), "s": pa.string()})}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (MERGE + "error", MERGE + "DO NOTHING"),
        (MERGE + "error 'x' when not matched then error", MERGE + "DO NOTHING when not matched then DO NOTHING"),
        (
            MERGE + "error case when i > 1 then x'00' end returning i",
            MERGE.replace("then", "AND (case when i > 1 then unhex('00') end IS NULL OR TRUE) then")
            + "DO NOTHING returning i",
        ),
        (MERGE + "update by name", MERGE + "update SET *"),
        ("insert into t by position select x '00'", "insert into t  select x '00'"),
        ("insert into t select 'error' as position, i as by", "insert into t select 'error' as position, i as by"),
        ("update t set s = 'x''then error'", "update t set s = 'x''then error'"),
    ],
)
def test_words_of_the_engine_are_said_in_others(text, read):
    assert for_parser(text) == read


def test_a_comma_behind_the_last_column_ends_the_list():
    change = read_change("create table n (a int default 1, b varchar default 'x', check (a > 0),)")
    assert change.defaults == (("a", "1"), ("b", "'x'"))
    assert [name for name, _ in change.columns] == ["a", "b"]


def test_a_primary_key_names_its_columns_without_regard_to_case():
    assert read_change('create table n (Ab int, "C" int, constraint k primary key (aB, c))').primary_key == (
        "Ab",
        "C",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "create table n (a, b) as select 5, 6",
            "'a' cannot be declared here: say its type, or behind AS its name",
        ),
        ("alter table t drop column s.a", "not fields of the column 's': add a column of the new type"),
        ("alter table t add column s.a.b int", "not fields of the column 's': add a column of the new type"),
        ("alter table t rename column s.a to b", "not fields of the column 's': add a column of the new type"),
        ("alter table t", "^ALTER TABLE ends too early: it has ADD COLUMN"),
        ("comment on table t", "^COMMENT ends too early: COMMENT ON TABLE t IS 'text'"),
        ("alter table t drop constraint x", "ALTER TABLE with DROP CONSTRAINT cannot be run here"),
    ],
)
def test_what_is_refused_says_what_to_write(text, message):
    with pytest.raises(SqlError, match=message):
        read_change(text)


@pytest.mark.parametrize("dialect", ["postgres", "spark"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("insert into nope values ('a')", "Table 'nope' does not exist"),
        ("update nope set i = 3", "Table 'nope' does not exist"),
        ("delete from nope where i = 'a'", "Table 'nope' does not exist"),
        ("select * from nope where i = 'a'", "Table 'nope' does not exist"),
        ("merge into t using nope on t.i = nope.i when matched then delete", "Table 'nope' does not exist"),
        ("insert into t values (1, 'a', 2)", "INSERT has 3 value"),
        ("insert into t (i, x) values (1, 'a')", "no column 'x'"),
        ("update t set x = 1", "no column 'x'"),
    ],
)
def test_in_other_dialects_a_wrong_name_is_what_is_wrong(dialect, text, message):
    with pytest.raises(SqlError, match=message):
        engine_sql(text, dialect, TABLES)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("values($1,$2)", ["$1", "$2"]),
        ("select $a||$b,\n$a+1", ["$a", "$b", "$a"]),
        ("select ?::int, ?", ["?", "?"]),
        ("select ?1 + ?2::int", ["?1", "?2"]),
        ("select '$1,$2', \"$1,$2\", /* $1,/* $2*/ */ $1,$2 -- $3,$4\n,$5", ["$1", "$2", "$5"]),
        ("select E'it\\'s $1,$2', $t$ $3,$4 $t$, $1,$2", ["$1", "$2"]),
        ("select $1,'unclosed", []),
    ],
)
def test_parameters_are_seen_whatever_stands_behind_them(text, places):
    if not places:
        with pytest.raises(SqlError, match="does not parse"):
            places_of(text)
        return
    assert [text[place.start : place.stop] for place in places_of(text)] == places
    first = tokenized(text)[0]
    assert text[first.start : first.end + 1] in ("values", "select")


_QUOTED = {
    "spark": (r"'it\'s'", "`it's`", '"it\'s"', r"r'it\'", "'$5,$6'", "'?::int'", "/* it's */ 1", r"'\\'", "$1,$2"),
    "postgres": ("'it''s'", r"e'it\'s'", '"it\'s"', "$$it's$$", "'$5,$6'", "'?::int'", r"'it\'", "$1,$2,?::int"),
    "duckdb": ("'it''s'", r"e'it\'s'", '"it\'s"', "$q$it's$q$", "'$5,$6'", "'?::int'", r"'it\'", "$1,$2,?::int"),
}


@pytest.mark.parametrize("dialect", _QUOTED)
@given(data=strategies.data())
def test_no_text_and_no_name_is_changed_because_parameters_are_looked_for(dialect, data):
    items = data.draw(strategies.lists(strategies.sampled_from(_QUOTED[dialect]), min_size=1, max_size=8))
    kinds = ("STRING", "IDENTIFIER", "RAW_STRING", "BYTE_STRING", "HEREDOC_STRING")

    def texts(sql):
        tokens = tokenized(sql, dialect)
        return [
            (token.text, sql[token.start : token.end + 1]) for token in tokens if token.token_type.name in kinds
        ]

    assert texts(f"select {', '.join(items)}") == [said for item in items for said in texts(item)]


@pytest.mark.parametrize(
    "text",
    [
        "delete from t returning *",
        "with x as (select 1) insert into t select 1 returning i",
        "truncate t",
        "drop table t",
    ],
)
def test_a_change_is_not_copied_into_a_file(text):
    with pytest.raises(SqlError, match="COPY of a change cannot be run here"):
        read_copy(f"copy ({text}) to 'rows.csv'")
    assert read_copy("copy (from t) to 'rows.csv'").query.strip() == "from t"


def test_what_the_engine_alone_reads_is_not_called_wrong():
    with pytest.raises(SqlError) as refused:
        read_change("insert into t select 1 order by all nulls")
    said = read_by_the_engine_alone(refused.value)
    assert said.message.startswith("this form of the statement cannot be run here, say it in other words: ")
    assert said.details == refused.value.details
    other = SqlError("something else")
    assert read_by_the_engine_alone(other) is other
