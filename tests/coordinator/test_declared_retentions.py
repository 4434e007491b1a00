"""A retention that is declared tells old rows from others; what does not is refused, and the error says where."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from ballista_py.coordinator.tables.follows import retention_of
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.retentions import at_this_moment, pruned_by
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.refresh import Retention
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import read_change

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("us")),
        ("seen_at", pa.timestamp("us")),
        ("end", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)


@pytest.fixture(scope="module")
def checks():
    engine = DuckDBEngine()
    yield RowChecks(engine)
    engine.close()


@pytest.mark.parametrize(
    "sql",
    [
        "delete from notes where seen_at < now() - interval 30 day",
        'DELETE FROM notes WHERE "at" < now() - INTERVAL 30 DAY AND id > 7;',
        "delete from notes where notes.seen_at < current_date - 7 and len(tags) > 2",
        "delete from notes where id = '7'",
        "delete from notes where seen_at < '2020-01-01' or seen_at is null",
    ],
)
def test_a_retention_of_old_rows_is_taken(checks, sql):
    checks.require_retention("notes", SCHEMA, Retention(sql=sql))


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("true", "names no column, so it means every row or none"),
        ("now() > '2020-01-01'", "names no column"),
        ("id = 3 or 1 = 1", "deletes every row, whatever the columns hold"),
        ("id = 3 and false", "deletes no row"),
        ("random() < 0.5", "calls random(), so chance says"),
        ("id = 3 and uuid()::varchar < 'a'", "calls uuid(), so chance says"),
        ("gen_random_uuid()::varchar < tags[1]", "calls uuid()"),
        ("id = 'x'", "Could not convert string 'x'"),
        ("seen_at < 'long ago'", "long ago"),
        ("id > 3 or seen_at < now() - cast('1 nothing' as interval)", "nothing"),
    ],
)
def test_one_that_tells_no_old_rows_from_others_is_refused(checks, condition, problem):
    sql = f"delete from notes where {condition}"
    with pytest.raises((ConfigError, SqlError), match=re.escape(problem)) as caught:
        checks.require_retention("notes", SCHEMA, Retention(sql=sql))
    assert "table 'notes'" in caught.value.message
    retention_of("notes", SCHEMA, Retention(sql=sql))  # one that was declared before goes on


def test_an_error_says_where_it_is(checks):
    with pytest.raises(SqlError, match=r"its retention_sql: .*\(line 2, column 16 of it\)") as caught:
        checks.require_retention("notes", SCHEMA, Retention(sql="delete from notes\nwhere id > 1 + len(id)"))
    assert not {"line", "column"} & set(caught.value.details)  # which are of the text that declares it


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("at < now() - interval 1 day", '"at"'),
        ("end < today()", '"end"'),
        ("id > 3 and at < now() and end < today()", '"at", "end"'),
    ],
)
def test_a_column_whose_name_is_a_word_of_sql_is_said_to_need_quotes(checks, condition, words):
    sql = f"delete from notes where {condition}"
    with pytest.raises((ConfigError, SqlError), match=re.escape(f"needs quotes, write {words}")):
        checks.require_retention("notes", SCHEMA, Retention(sql=sql))


@pytest.mark.parametrize(
    ("kind", "is_constant"),
    [(pa.date32(), True), (pa.timestamp("us"), True), (pa.timestamp("us", "UTC"), False)],
    ids=str,
)
def test_a_time_is_worked_out_for_columns_that_mean_one_moment_in_every_session(checks, kind, is_constant):
    """A `timestamptz` is shown by the time zone of a session, and files are told by no text of that."""
    schema = pa.schema([("seen_at", kind)])
    table = TableSpec(name="notes", schema=schema, spec=PartitionSpec.whole(), distribution="replicated")
    change = read_change("delete from notes where seen_at < date '2020-03-01' - 30")
    found = pruned_by(at_this_moment(change, table, checks.engine))
    assert ("2020-01-31" in found) == is_constant
