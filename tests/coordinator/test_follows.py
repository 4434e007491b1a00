"""What a table may declare of its source and its old rows, by every way in which it is declared."""

import pyarrow as pa
import pytest

from ballista_py.coordinator.tables.declarations import declare_table
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.alterations import set_option
from ballista_py.partitions.new_table import NewTable
from ballista_py.partitions.refresh import Refresh, Retention, duration_ms
from ballista_py.sql.parse.changes import read_change
from ballista_py.state.documents.documents import ClusterDocument

SCHEMA = pa.schema([("id", pa.int64()), ("seen_at", pa.timestamp("us")), ("name", pa.string())])


def declare(refresh=None, retention=None, source="/data/t.parquet"):
    return declare_table(
        ClusterDocument(), "t", SCHEMA, ["bucket(4, id)"], source=source, refresh=refresh, retention=retention
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"mode": "all"}, "mode: 'all' is none of full, append, changes"),
        ({"every": "often"}, "every: 'often' is no time"),
        ({"every": "10ms"}, "every: '10ms' is not from 1s to 366d"),
        ({"every": "-5s"}, "every: '-5s' is no time"),
        ({"mode": "append"}, "time_column: missing"),
        ({"overlap": "1h"}, "overlap: is of a refresh by 'append'"),
        ({"on_schema_change": "drop"}, "on_schema_change: 'drop' is none of"),
    ],
)
def test_a_refresh_that_says_nothing_usable_is_refused_by_name(given, problem):
    with pytest.raises(ConfigError, match=problem):
        Refresh(**given)


@pytest.mark.parametrize(
    ("refresh", "problem"),
    [
        (Refresh(mode="changes"), "this source is not followed by its changes"),
        (Refresh(mode="append", time_column="gone"), "has no column 'gone'"),
        (Refresh(mode="append", time_column="name"), "a time_column is an integer, a date or a timestamp"),
        (Refresh(mode="append", time_column="id", overlap="1h"), "is a whole number"),
        (Refresh(mode="append", time_column="seen_at", overlap="7"), "is a time, as '1h'"),
    ],
)
def test_a_refresh_that_the_columns_do_not_allow_is_refused_when_it_is_declared(refresh, problem):
    with pytest.raises(ConfigError, match=problem):
        declare(refresh)


def test_a_managed_table_is_not_refreshed():
    with pytest.raises(ConfigError, match="has no source"):
        declare(Refresh(every="5m"), source=None)


def test_one_time_is_one_value_however_it_is_written():
    assert Refresh(every="300s") == Refresh(every="5m") == Refresh(every="300000 ms")
    assert duration_ms("1.5h") == 5_400_000


def test_sql_declares_what_a_value_declares():
    made = read_change(
        "create table t (id bigint) partitioned by (bucket(4, id)) with (refresh_mode = 'append', "
        "refresh_check_interval = '5m', time_column = 'id', refresh_append_overlap = '100', "
        "on_schema_change = 'append', retention_sql = 'delete from t where id < 7', retention_check_interval = '10m')"
    )
    assert made.refresh == Refresh(
        mode="append", every="5m", time_column="id", overlap="100", on_schema_change="append"
    )
    assert made.retention == Retention(sql="delete from t where id < 7", every="10m")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("refresh_mode = 'x'", "refresh_mode: 'x' is none of"),
        ("retention_check_interval = '1h'", "retention_sql: missing"),
        ("every = '1h'", "a table has no option 'every' here"),
        ("partition_by = 'g'", "stands before WITH: PARTITION BY"),
        ("time_column = 'a', time_column = 'b'", "the option 'time_column' is given twice"),
    ],
)
def test_an_option_that_is_not_understood_is_refused(options, problem):
    with pytest.raises(SqlError, match=problem):
        read_change(f"create table t (id bigint) with ({options})")


def test_an_interval_is_altered_and_nothing_else():
    table = declare(Refresh(every="5m"), Retention(sql="delete from t where id < 7"))
    assert set_option(table, "refresh_check_interval", "10s").refresh == Refresh(every="10s")
    assert set_option(table, "retention_check_interval", "2h").retention.every == "2h"
    assert set_option(table, "refresh_check_interval", "300s") is table
    with pytest.raises(SqlError, match="refresh_check_interval: 'soon' is no time"):
        set_option(table, "refresh_check_interval", "soon")
    with pytest.raises(SqlError, match="was made without a refresh"):
        set_option(declare(), "refresh_check_interval", "10s")


def test_a_client_says_both_and_a_cluster_of_an_earlier_release_hears_of_neither():
    new = NewTable(name="t", refresh=Refresh(every="5m"), retention=Retention(sql="delete from t where id < 7"))
    assert NewTable.from_json(new.to_json()) == new
    assert not {"refresh", "retention"} & NewTable(name="t").to_json().keys()
