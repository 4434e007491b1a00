"""A change that owners run share by share has one moment: said as a constant, or else one engine runs all of it."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from ballista_py.partitions.columns import DEFAULT, with_said
from ballista_py.sql.bind.engine_functions import engine_functions
from ballista_py.sql.bind.now import OF_THE_MOMENT, at_one_moment
from ballista_py.sql.parse.changes import Local, read_change
from ballista_py.sql.parse.edits import edited

MOMENT_MS = 1_700_000_000_123
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
CALLS = (
    "now()", "NOW ( )", '"now"()', "get_current_timestamp()", "transaction_timestamp()", "current_timestamp", "today()",
    "current_date", "current_date()", "current_time", "get_current_time()", "localtime", "current_localtime()",
    "localtimestamp", "current_localtimestamp()", "age(timestamp '2020-02-03 04:05:06')",
    "age(coalesce(timestamp '2020-02-03', timestamp '2020-02-04'))", "/* now() ' */ now() -- '",
)  # fmt: skip


def change(text: str) -> Local:
    found = read_change(text)
    assert isinstance(found, Local)
    return found


def said(text: str, schema: pa.Schema = SCHEMA) -> str | None:
    timed = at_one_moment(change(text), schema, MOMENT_MS)
    return None if timed is None else timed.change.text


@pytest.mark.parametrize("call", CALLS)
def test_what_depends_on_the_moment_is_a_constant_of_the_same_type(call):
    text = f"update t set ts = {call}\n, id = 1 where {call}\n is not null and id < 7"
    timed = at_one_moment(change(text), SCHEMA, MOMENT_MS)
    assert timed is not None
    assert timed.change.text == edited(text, timed.edits)
    assert len(timed.edits) == 2
    ((_, value), _), where = timed.change.assignments, timed.change.where
    assert at_one_moment(timed.change, SCHEMA, MOMENT_MS + 1).edits == ()  # nothing of the moment is left
    with duckdb.connect() as engine:
        engine.execute("set TimeZone = 'UTC'")
        query = f"select typeof({call}\n), typeof({value}\n), ({where}\n) is not null from (select 1 as id)"
        before, after, holds = engine.execute(query).fetchone()
    assert (before, holds) == (after, True)


def test_the_constant_is_the_moment():
    assert said("update t set ts = now()") == "update t set ts = cast('2023-11-14 22:13:20.123+00' as TIMESTAMPTZ)"
    assert said("delete from t where age(ts) > interval 1 day") == (
        "delete from t where age(cast(cast('2023-11-14' as DATE) as TIMESTAMP), ts) > interval 1 day"
    )


@pytest.mark.parametrize(
    "text",
    [
        "update t set id = 1 where ts < timestamp '2020-01-01'",
        "update t set id = length('now() current_date')",
        "update t set id = age(ts, ts) is null",
        'delete from t where "id" = 1 /* now() */ -- today()',
    ],
)
def test_a_change_that_depends_on_no_moment_stays_as_it_is(text):
    found = change(text)
    timed = at_one_moment(found, SCHEMA, MOMENT_MS)
    assert timed is not None
    assert timed.change is found


@pytest.mark.parametrize("text", ["update t set ts = main.now()", "update t set ts = ago(interval 1 hour)"])
def test_what_no_constant_stands_for_is_for_one_engine(text):
    assert said(text) is None


def test_columns_are_read_before_words_of_the_engine():
    schema = pa.schema([*SCHEMA, ("current_date", pa.int64()), ("now", pa.int64())])
    assert said("update t set id = current_date + t.now", schema) == "update t set id = current_date + t.now"
    assert said("update t set now = 2 where current_date = 1", schema) == (
        "update t set now = 2 where current_date = 1"
    )


def test_a_default_of_the_moment_is_for_one_engine():
    timed = pa.schema([SCHEMA.field("id"), with_said(SCHEMA.field("ts"), DEFAULT, "now()")])
    assert said("update t set ts = default", timed) is None
    assert said("update t set ts = default, id = 1") == "update t set ts = default, id = 1"


def test_every_function_of_the_engine_that_depends_on_the_moment_is_known():
    with duckdb.connect() as engine:
        found = engine.execute(
            "select lower(function_name), stability, lower(macro_definition) from duckdb_functions()"
        ).fetchall()
    unsteady = {name for name, stability, _ in found if stability == "CONSISTENT_WITHIN_QUERY"}
    unsteady |= {name for name, _, text in found if text and any(word in text for word in ("current_", "now()"))}
    allowed = {one.name for one in engine_functions() if one.allowed}
    sessions = {
        "current_catalog",
        "current_database",
        "current_schema",
        "current_schemas",
        "in_search_path",
        "user",
    }
    assert {"now", "ago", "today"} <= unsteady & allowed
    assert unsteady & allowed - sessions <= OF_THE_MOMENT
