"""What a statement may name: the reviewed lists, whole, against the DuckDB that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ballista_py.engines.duckdb import passing as reviewed
from ballista_py.engines.duckdb.change import run_change
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.duckdb.guard import MAX_LEVELS, Guard, require_readable
from ballista_py.errors import ConfigError, SqlError
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.bind import engine_functions as lists
from ballista_py.testing.sql.guard_fuzz import RELATIONS, attempts, passes

ROOT = Path(__file__).parents[2]
ROWS = pa.table({"k": [1, 2], "v": ["a", "b"]})


@pytest.fixture(scope="module")
def guard():
    return Guard(duckdb.connect(":memory:"))


def test_every_function_and_type_of_the_installed_duckdb_was_reviewed():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "review_functions.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_function_that_is_not_allowed_is_refused_wherever_a_function_may_stand(guard):
    names = [row[0] for row in duckdb.sql("select distinct function_name from duckdb_functions()").fetchall()]
    refused = sorted(name for name in names if name.lower() not in lists.allowed_calls() | {"unnest"})
    assert len(refused) > 100
    places = [
        'select "{}"(a) from t',
        "select (a).\"{}\"('x') from t",
        'select list_transform([1], lambda x: "{}"()) from t',
    ]
    for name in refused:
        for place in places:
            with pytest.raises(SqlError, match=r"cannot be used here|does not exist"):
                guard.check(place.format(name.replace('"', '""')), RELATIONS)
    reading = {one.name for one in lists.engine_functions() if one.kind in ("table", "table_macro", "pragma")}
    for name in sorted(reading - lists.allowed_relations()):
        with pytest.raises(SqlError):
            guard.check(f"""select * from "{name.replace('"', '""')}"('x')""", RELATIONS)


def test_no_generated_statement_gets_out_and_its_harmless_twin_passes(guard):
    seed = int(os.environ.get("BALLISTA_SIM_FIRST_SEED", SystemRuntime().wall_ms()))
    for attempt in attempts(seed, 600):
        assert not passes(guard, attempt.hostile), f"seed {attempt.seed}: {attempt.hostile}"
        assert passes(guard, attempt.harmless), f"seed {attempt.seed}: {attempt.harmless}"


def test_a_duckdb_with_a_function_that_nobody_reviewed_is_refused_at_start(monkeypatch):
    without = tuple(one for one in lists.engine_functions() if one.name not in ("sha256", "blob"))
    monkeypatch.setattr(reviewed, "engine_functions", lambda: without)
    reviewed.require_reviewed.cache_clear()
    try:
        with pytest.raises(ConfigError, match="blob, sha256") as raised:
            DuckDBEngine()
        assert "\n" not in raised.value.message
        assert "not reviewed" in raised.value.message
    finally:
        reviewed.require_reviewed.cache_clear()


def test_the_refusal_names_at_most_five_functions():
    with pytest.raises(ConfigError, match="a, b, c, d, e and 2 more"):
        reviewed.require_known(list("abcdefg"), "9.9")


@pytest.mark.parametrize(
    "sql",
    [
        "select sum(a) export_state from t",
        "from t at (version => 1)",
        "select default from t",
        "select list_aggregate([1], a) from t",
        "select list_aggregate([1], 'combine' || '_aggr') from t",
        "select list_aggregate([1], 'combine_aggr') from t",
        "select list_aggr([1], 'query') from t",
        "select from_json('[]', a) from t",
        "select json_transform('[]', repeat('[', 300000) || repeat(']', 300000)) from t",
        f"select json_transform('[]', '{'[' * 101}1{']' * 101}') from t",
        "select json_contains(a, '1') from t",
        "select a::json::variant from t",
        "select json_serialize_sql('select 1')",
        "select stats(a) from t",
        "select current_query() from t",
        "select current_connection_id() from t",
        "select sleep_ms(100000)",
        "select pg_get_viewdef(1)",
        "select format_type(1, 2)",
        "select setseed(0.5)",
    ],
)
def test_what_is_not_on_the_lists_is_refused_in_one_line(guard, sql):
    with pytest.raises(SqlError) as raised:
        guard.check(sql, RELATIONS)
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    "sql",
    [
        "select list_aggregate([1], 'sum'), [1].list_aggr('max') from t",
        'select json_transform(a, \'{"x": "INT"}\') from t',
        "select version(), current_schema(), current_database()",
        "select unnest([1]), generate_subscripts([1], 1)",
        "from t select columns('a'), * exclude (t.a)",
        "select a ^@ b, a ~ b, @a, a ** 2, ~a, a // 2, -a from t",
        "select a collate de, a at time zone 'UTC', extract(year from a) from t",
    ],
)
def test_what_is_on_the_lists_passes(guard, sql):
    guard.check(sql, RELATIONS)


@pytest.mark.parametrize(
    "text",
    [
        "select " + "(" * (MAX_LEVELS + 1) + "1" + ")" * (MAX_LEVELS + 1),
        "select * from " + "(select * from " * 70_000 + "t" + ")" * 70_000,
        "select 1" + "+1" * 2_000,
        "select " + "not " * 2_000 + "true",
        "select 'ü', " + "[" * 2_000 + "]" * 2_000,
    ],
    ids=["brackets", "queries", "sums", "nots", "lists"],
)
def test_a_text_that_no_parser_may_meet_is_refused_before_duckdb_reads_it(text):
    engine = DuckDBEngine()
    with pytest.raises(SqlError, match=r"too deeply"):
        engine.describe(text, {})
    engine.close()


def test_brackets_in_texts_and_comments_are_no_levels():
    require_readable("select 'ä" + "(" * 5_000 + "', /* " + "[" * 5_000 + " */ 1")


@pytest.mark.parametrize(
    "sql",
    [
        "update t set v = current_setting('temp_directory')",
        "update t set v = (select max(content) from read_text('/etc/passwd'))",
        "delete from t where sleep_ms(100000) is null",
        "delete from t where k in (select k from duckdb_settings())",
        "merge into t using range(3) r on t.k = r.range when matched then update set v = getvariable('x')",
        "merge into t using hidden h on t.k = h.k when matched then delete",
        "update t set v = k::geometry",
    ],
)
def test_a_change_calls_and_reads_no_more_than_a_query_could(sql):
    with pytest.raises(SqlError, match=r"cannot be used here|does not exist"):  # noqa: SIM117
        with run_change(sql, "t", ROWS.to_reader(), {}):
            pass


def test_a_change_that_a_query_could_compute_runs():
    others = {"u": pa.table({"k": [1]})}
    sql = "merge into t using u on t.k = u.k when matched then update set v = upper(t.v)"
    with run_change(sql, "t", ROWS.to_reader(), others) as changed:
        assert changed.affected == 1
        assert changed.come.to_pydict() == {"k": [1], "v": ["A"]}


@pytest.mark.parametrize("name", ["=", "!=", "<", "<=", ">", ">=", "is distinct from", "IS NOT DISTINCT FROM"])
def test_comparisons_cannot_be_called_by_their_names(guard, name):
    """They take values of two types for values of one then, which ends the process or answers with nonsense."""
    written = [f"select \"{name}\"({{'x': 1}}, 1)", f'select list_transform([1], lambda x: main."{name}"(x, 1))']
    if not name[0].isalpha():
        written.append(f"select {{'x': 1}} operator({name}) 1")
    for sql in written:
        with pytest.raises(SqlError, match="cannot be used here"):
            guard.check(sql, RELATIONS)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('rows.csv')",
        "select * from read_csv_auto('rows.csv')",
        "from read_parquet('rows.parquet')",
        "from glob('*')",
        "select * from 'rows.csv'",
        "from '/srv/rows'",
        "from 'Rows.PARQUET'",
    ],
)
def test_who_asks_for_a_file_is_told_how_its_rows_come_in(guard, sql):
    with pytest.raises(
        SqlError, match=r"a file is read by its client, with COPY table FROM 'file' or Client\.ingest"
    ):
        guard.check(sql, RELATIONS)


def test_a_table_that_there_is_not_is_no_file(guard):
    with pytest.raises(SqlError, match=r"^Table 'nosuch' does not exist \(line 1, column 6\)$|does not exist$"):
        guard.check("from nosuch", RELATIONS)
