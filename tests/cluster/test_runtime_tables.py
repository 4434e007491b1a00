"""What the cluster does, as tables of the schema `runtime`, by every way in."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.coordinator.queries.runtime_tables import HISTORY, RUNTIME_SCHEMAS
from ballista_py.errors import NodeSilent, SqlError

pytestmark = pytest.mark.cluster
COUNT = "select count(*) as n, sum(id) as s from events"


@pytest.fixture(scope="module")
def small():
    options = {"task-history-table": "task log", "task-history-interval": "300"}
    with LocalCluster(schedulers=2, executors=2, node_options=options) as cluster:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string())])
        cluster.create_table("events", schema=schema, partition_by=["bucket(4, id)"])
        cluster.ingest("events", pa.table({"id": list(range(100)), "kind": ["a"] * 100}, schema=schema))
        with cluster.client() as client:
            client.submit("select 1 as n").wait()
        yield cluster


@contextmanager
def cursor_of(cluster):
    with flightsql.connect(cluster.flight_sql_url(), autocommit=True) as connection, connection.cursor() as cursor:
        yield cursor


def history(cluster, where="true"):
    return cluster.sql(f"select * from runtime.task_history where {where} order by start_time").to_pylist()


def test_every_table_has_its_columns_by_every_way_in(small):
    for name, schema in RUNTIME_SCHEMAS.items():
        answer = small.sql(f"select * from {name}")
        assert answer.schema.names == schema.names, name
        assert answer.num_rows, name
    with cursor_of(small) as cursor:
        cursor.execute("select * from ballista.runtime.task_history")
        assert cursor.fetch_arrow_table().schema.names == HISTORY.names


def test_the_history_has_a_statement_and_its_legs_under_one_trace(small):
    small.sql(f"{COUNT} where kind = 'traced'")
    (statement,) = history(small, "task = 'statement' and input like '%traced%'")
    legs = history(small, f"task = 'leg' and trace_id = '{statement['trace_id']}'")
    assert statement["node_id"] in ("scheduler-1", "scheduler-2")
    assert {leg["node_id"] for leg in legs} == {"executor-1", "executor-2"}
    assert {leg["parent_span_id"] for leg in legs} == {statement["span_id"]}
    assert len(statement["trace_id"]) == 32
    assert len({leg["span_id"] for leg in legs} | {statement["span_id"]}) == 1 + len(legs)
    assert (statement["rows"], statement["outcome"], statement["engine"]) == (1, "done", "duckdb")
    assert statement["bytes"] > 0
    assert statement["execution_duration_ms"] >= 0
    assert statement["end_time"] >= statement["start_time"]
    assert statement["error_message"] is None


def test_the_newest_comes_first_without_an_order_by(small):
    for number in range(3):
        small.sql(f"select {number} as n from events limit 1")
    starts = small.sql("select start_time from runtime.task_history")["start_time"].to_pylist()
    assert len(starts) > 3
    assert starts == sorted(starts, reverse=True)


def test_a_change_is_a_task_with_what_its_owners_wrote(small):
    small.sql("insert into events values (1000, 'new'), (1001, 'new')")
    (change,) = history(small, "task = 'change' and input like '%1000%'")
    written = history(small, f"task = 'write' and trace_id = '{change['trace_id']}'")
    assert change["rows"] == sum(one["rows"] for one in written) == 2
    small.sql("delete from events where id >= 1000")
    (deleted,) = history(small, "task = 'change' and input like 'delete from events%'")
    rewritten = history(small, f"trace_id = '{deleted['trace_id']}' and node_id like 'executor%'")
    assert rewritten
    assert deleted["rows"] == 2


def test_what_fails_says_why_and_secrets_are_replaced(small):
    with pytest.raises(SqlError):
        small.sql(
            "select nonsense, 'hunter2' as password_is from events where 'token' = 'abc' and secret_key = 'xyz'"
        )
    (failed,) = history(small, "input like '%nonsense%'")
    assert failed["outcome"] == "planning.sql"
    assert "nonsense" in failed["error_message"] or "secret_key" in failed["error_message"]
    assert "xyz" not in failed["input"]
    assert "secret_key = '***'" in failed["input"]


def test_a_trace_that_a_client_is_in_goes_on(small):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with cursor_of(small) as cursor:
        cursor.adbc_statement.set_options(
            **{"adbc.flight.sql.rpc.call_header.traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        )
        cursor.execute(f"{COUNT} where id < 7")
        cursor.fetch_arrow_table()
    found = history(small, f"trace_id = '{trace}'")
    assert {row["task"] for row in found} == {"statement", "leg"}
    assert [row["parent_span_id"] for row in found if row["task"] == "statement"] == ["00f067aa0ba902b7"]


def test_tables_of_runtime_are_joined_with_each_other_and_with_no_others(small):
    sql = """select n.role, count(*) as tasks from runtime.task_history h join runtime.nodes n using (node_id)
        group by 1 order by 1"""
    assert [row["role"] for row in small.sql(sql).to_pylist()] == ["executor", "scheduler"]
    both = "select count(*) as n from runtime.partitions p join information_schema.columns c using (table_name)"
    both = f"{both} where p.table_name = 'events'"
    assert small.sql(both).to_pylist() == [{"n": 8}]
    for sql, said in (
        ("select * from runtime.nodes, events", "runtime cannot be read together with table 'events'"),
        ("select * from runtime.tables, information_schema.tables", "'tables' of two schemas"),
        ("select * from runtime.nothing", "'runtime.nothing' does not exist: there are runtime.task_history"),
        ("select * from other.runtime.nodes", "name it as runtime.nodes"),
        ("create table z as select * from runtime.nodes", "named with a schema that there is not here"),
    ):
        with pytest.raises(SqlError, match=said):
            small.sql(sql)


def test_nodes_tables_partitions_and_settings_say_what_is(small):
    nodes = {row["node_id"]: row for row in small.sql("select * from runtime.nodes").to_pylist()}
    assert {name: row["role"] for name, row in nodes.items()} == {
        "scheduler-1": "scheduler", "scheduler-2": "scheduler", "executor-1": "executor", "executor-2": "executor",
    }  # fmt: skip
    everything = small.sql("select count(*) as n from runtime.partitions").to_pylist()[0]["n"]
    assert sum(row["partitions"] for row in nodes.values()) == everything > 4
    (table,) = small.sql("select * from runtime.tables where table_name = 'events'").to_pylist()
    assert (table["table_name"], table["partitions"], table["ready"]) == ("events", 4, True)
    assert table["partition_by"] == ["bucket(4, id)"]
    partitions = small.sql("select * from runtime.partitions where table_name = 'events'").to_pylist()
    assert [row["partition"] for row in partitions] == [0, 1, 2, 3]
    assert {row["owner"] for row in partitions} == {"executor-1", "executor-2"}
    assert {row["state"] for row in partitions} == {"serving"}
    settings = {row["name"]: row["value"] for row in small.sql("select * from runtime.settings").to_pylist()}
    assert settings["role"] == "scheduler"
    assert "store_options" not in settings


def test_parameters_reach_the_history(small):
    with cursor_of(small) as cursor:
        cursor.execute("select node_id from runtime.nodes where role = ? order by 1", ("executor",))
        assert cursor.fetchall() == [("executor-1",), ("executor-2",)]


def test_the_history_of_one_node_is_its_alone(small):
    for address in small.addresses():
        with connect(address) as client:
            found = client.sql("select distinct node_id from runtime.local_task_history").to_pylist()
            assert len(found) <= 1
    assert HISTORY.names[:3] == ["trace_id", "span_id", "parent_span_id"]


def test_the_history_is_in_a_table_of_the_cluster_too_each_task_once(small, wait_until):
    marked = "select 'kept' as kept, count(*) from events"
    with small.client() as client:
        for _ in range(3):
            client.sql(marked)
    wanted = {row["span_id"] for row in history(small, "input like '%''kept'' as kept%' and task = 'statement'")}
    assert len(wanted) == 3
    kept = "select span_id, \"user\", outcome from \"task log\" where input like '%''kept'' as kept, count%'"
    wait_until(lambda: small.sql(kept).num_rows >= len(wanted))
    assert set(small.sql(kept)["span_id"].to_pylist()) >= wanted
    doubled = small.sql('select span_id from "task log" group by 1 having count(*) > 1')
    assert doubled.num_rows == 0
    of = small.sql('select distinct node_id from "task log"')["node_id"].to_pylist()
    assert all(name.startswith("scheduler-") for name in of)


def test_nodes_that_do_not_answer_fail_the_whole_history_and_are_named(small):
    """Last: it kills two nodes."""
    first, _ = small.addresses()
    small.kill("executor-2")
    small.kill("scheduler-2")
    with connect(first) as client:
        with pytest.raises(NodeSilent, match="'executor-2', 'scheduler-2' did not say what it did"):
            client.sql("select * from runtime.task_history")
        assert client.sql("select * from runtime.local_task_history").num_rows > 0


@pytest.mark.long
def test_a_node_that_stands_still_is_waited_for_and_named():
    with LocalCluster(schedulers=1, executors=2) as cluster:
        os.kill(cluster.pid("executor-2"), signal.SIGSTOP)
        try:
            with pytest.raises(NodeSilent, match="'executor-2' did not say what it did"):
                cluster.sql("select * from runtime.task_history")
        finally:
            os.kill(cluster.pid("executor-2"), signal.SIGCONT)
        assert cluster.sql("select * from runtime.task_history").num_rows >= 0
