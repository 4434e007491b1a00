"""What a cluster shows of itself after a known workload: to a real Prometheus, to a collector of OTLP, in its logs."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider

from ballista_py import LocalCluster
from ballista_py.errors import SqlError
from ballista_py.node.executor.answers import LEGS_IN_ALL
from ballista_py.node.status.figure_names import FIGURES, NOT_YET

sys.path.insert(0, str(Path(__file__).parent))
from otlp_collector import Collector
from prometheus import Prometheus, program

pytestmark = pytest.mark.cluster
DASHBOARDS = Path(__file__).parents[2] / "deploy" / "grafana"
TOTAL = "select count(*) as n, sum(id) as s from events"
ALL = "select id, kind from events"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string())])
SECOND_PAST = 1.5  # what is asked after the last scrape that may have begun before the workload ended


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    program()
    collector = Collector()
    options = {
        "otlp-endpoint": collector.endpoint,
        "otlp-interval-ms": "500",
        "log-format": "json",
        "log-level": "DEBUG",
    }
    tracer = TracerProvider().get_tracer("an application")
    with LocalCluster(schedulers=1, executors=2, node_options=options) as cluster:
        targets = [cluster.status_url(node, metrics=True).split("/")[2] for node in cluster.node_ids]
        prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), targets)
        try:
            known = workload(cluster, tracer)
            prometheus.wait_for_scrapes(time.time() + SECOND_PAST)
            yield SimpleNamespace(cluster=cluster, prometheus=prometheus, collector=collector, **known)
        finally:
            prometheus.close()
            collector.close()


def workload(cluster, tracer):
    """Do what is known, and say what that was by the history of all nodes."""
    stats, rows, traces = [], 0, {}

    def ask(sql):
        nonlocal rows
        with cluster.client() as client:
            answer = client.query(sql)
        if answer.stats:
            stats.append(answer.stats)
        rows += answer.table.num_rows
        return answer.table

    cluster.create_table("events", schema=SCHEMA, partition_by=["bucket(4, id)"])
    cluster.ingest("events", pa.table({"id": list(range(100)), "kind": ["a"] * 100}, schema=SCHEMA))
    cluster.ingest("kinds", pa.table({"kind": ["a", "b"], "name": ["A", "B"]}), mode="create")
    cluster.wait_until_loaded()
    for _ in range(3):
        ask(TOTAL)
    for name, sql in (("read", ALL), ("read again", ALL)):
        with tracer.start_as_current_span(name) as span:
            ask(sql)
        traces[name] = f"{span.get_span_context().trace_id:032x}", f"{span.get_span_context().span_id:016x}"
    with tracer.start_as_current_span("write") as span, cluster.client() as client:
        client.sql("insert into events values (1000, 'new'), (1001, 'new')")
    traces["write"] = f"{span.get_span_context().trace_id:032x}", f"{span.get_span_context().span_id:016x}"
    with tracer.start_as_current_span("http") as span:
        context = span.get_span_context()
        traces["http"] = f"{context.trace_id:032x}", f"{context.span_id:016x}"
        said = {"content-type": "text/plain", "traceparent": f"00-{'-'.join(traces['http'])}-01"}
        url = f"{cluster.http_url('scheduler-1')}/v1/sql"
        with urllib.request.urlopen(urllib.request.Request(url, TOTAL.encode(), said), timeout=60) as reply:
            answer = json.load(reply)
    assert answer[0]["n"] == 102
    rows += len(answer)
    with pytest.raises(SqlError):
        ask("select nonsense from events")
    history = ask("select * from runtime.task_history where outcome != 'running'").to_pylist()
    partitions = ask("select * from runtime.partitions").to_pylist()
    tables = {row["table_name"]: row for row in ask("select * from runtime.tables").to_pylist()}
    return {
        "history": history,
        "partitions": partitions,
        "tables": tables,
        "stats": stats,
        "rows": rows,
        "traces": traces,
    }


def by(found, *labels):
    """The sums of series by some of their labels."""
    sums = Counter()
    for series, value in found.items():
        named = dict(series)
        sums[tuple(named.get(label, "") for label in labels)] += value
    return {key: value for key, value in sums.items() if value}


def status_of(task):
    return task["outcome"] if task["outcome"] in ("done", "cancelled") else "failed"


def test_every_figure_is_what_was_done(seen):
    ask, history = seen.prometheus.values, seen.history
    of = {
        role: [task for task in history if task["node_id"].startswith(role)] for role in ("scheduler", "executor")
    }
    statements = [task for task in of["scheduler"] if task["task"] == "statement"]
    assert Counter(status_of(task) for task in statements) == {"done": 6, "failed": 1}
    planned = [
        task for task in of["scheduler"] if task["task"] in ("statement", "query") and status_of(task) == "done"
    ]
    legs = [task for task in of["executor"] if task["task"] == "leg"]
    checked = set()

    def figure(name, suffix=""):
        checked.add(name)
        return ask(f"{name}{suffix}" if suffix else name if name.endswith("_total") else f"{name}_total")

    def measured(name):
        return by(
            figure(name, "_count"), *[one for one in ("kind", "verb", "table", "cached") if one in labels(name)]
        )

    def labels(name):
        return next(figures[name].labels for figures in FIGURES.values() if name in figures)

    # tasks
    wanted = Counter((task["node_id"], status_of(task)) for task in history)
    assert by(figure("node_tasks_total"), "node_id", "status") == wanted
    assert by(figure("executor_tasks_total"), "node_id", "status") == Counter(
        (task["node_id"], status_of(task)) for task in of["executor"]
    )
    failed = Counter((task["node_id"], task["outcome"]) for task in history if status_of(task) == "failed")
    assert by(figure("node_task_failures"), "node_id", "error_type") == failed
    assert failed == {("scheduler-1", SqlError.code): 1}
    assert by(figure("executor_task_failures"), "node_id") == {}
    rows_of_kind = Counter()
    for task in history:
        rows_of_kind[(task["task"],)] += task["rows"]
    assert by(figure("node_task_rows"), "kind") == {k: v for k, v in rows_of_kind.items() if v}
    assert measured("executor_task_duration_ms") == Counter((task["task"],) for task in of["executor"])
    assert measured("scheduler_statement_duration_ms") == Counter((task["task"],) for task in of["scheduler"])
    nothing = "node_task_retries", "scheduler_stage_retries", "node_fences_hit"
    for name in (*nothing, "scheduler_collected_objects", "scheduler_history_dropped"):
        assert by(figure(name)) == {}, name  # nothing of it happened

    # planning and stages
    assert sum(measured("scheduler_planning_duration_ms").values()) >= len(planned)
    with_legs = len({task["trace_id"] for task in legs})
    assert by(figure("scheduler_stages_total"), "kind")[("merge",)] >= 3
    stages = by(ask("scheduler_stages_total"), "kind")
    assert stages[("legs",)] == len(planned)
    assert measured("scheduler_stage_duration_ms") == stages
    assert by(figure("scheduler_stage_failures"), "kind") == {}
    assert by(ask("scheduler_tasks_per_stage_sum")) == {(): len(legs)}
    assert measured("scheduler_tasks_per_stage") == {(): len(planned)}  # stages of no legs among them
    assert measured("scheduler_task_scheduling_latency_ms") == {(): with_legs}

    # what clients were given, and what it took
    assert by(figure("scheduler_result_fetch_rows")) == {(): seen.rows}
    chunks = by(figure("scheduler_result_fetch_count"))[()]
    assert measured("scheduler_result_fetch_duration_ms") == {(): chunks}
    given = sum(task["bytes"] for task in statements)
    assert by(figure("scheduler_result_fetch_bytes"))[()] > given > 0
    shipped = sum(one["shipped_bytes"] for one in seen.stats)
    assert by(figure("scheduler_shipped_bytes"))[()] >= shipped > 0

    # assignments, files
    epochs = Counter()
    for row in seen.partitions:
        epochs[(row["table_name"],)] += row["epoch"]
    assert by(figure("scheduler_epochs_raised"), "table") == epochs
    assigned = by(figure("scheduler_executor_assignments"), "table")
    assert assigned.keys() == epochs.keys()
    assert all(assigned[table] >= count for table, count in epochs.items())
    written = by(figure("dataset_acceleration_snapshot_write_bytes"), "table")
    assert written.keys() == {("events",)}  # the first rows of the other are no owner's
    # More was seen once, on a busy machine: most probably a statement was sent again, and its file written again.
    assert written[("events",)] >= seen.tables["events"]["bytes"] > 0
    files = measured("dataset_acceleration_snapshot_write_duration_ms")
    assert files[("events",)] >= 4
    loaded = by(figure("dataset_acceleration_snapshot_bootstrap_bytes"), "table")
    assert loaded == {("kinds",): 2 * seen.tables["kinds"]["bytes"]}  # by both; who writes has loaded already
    assert measured("dataset_acceleration_snapshot_bootstrap_duration_ms") == {("kinds",): 2}
    for failure in ("bootstrap", "write"):
        assert by(figure(f"dataset_acceleration_snapshot_{failure}_failures")) == {}
    for what in (
        "total",
        "failures",
        "rows",
        "bytes",
    ):  # no table here is refreshed: test_refresh_schedule.py is of that
        assert by(figure(f"dataset_acceleration_refresh_{what}"), "table") == {}
    assert measured("dataset_acceleration_refresh_duration_ms") == {}
    for what in ("total", "rows", "conflicts"):  # no table is written through
        assert by(figure(f"dataset_write_through_{what}"), "table") == {}
    for what in ("duration_ms", "visible_duration_ms"):
        assert measured(f"dataset_write_through_{what}") == {}
    assert by(figure("executor_compactions")) == by(figure("executor_compacted_files")) == {}

    # the store: each request is counted and timed, and those that must have been are there
    requests = by(figure("store_requests"), "verb")
    assert measured("store_request_duration_ms").keys() == requests.keys()
    assert requests[("create",)] >= sum(files.values())
    unknown = set(by(ask("store_requests_total"), "outcome")) - {
        ("done",), ("store.missing",), ("store.exists",), ("store.conflict",),
    }  # fmt: skip
    assert not unknown
    assert checked == {name for figures in FIGURES.values() for name in figures}


def test_every_gauge_is_how_it_is(seen):
    ask = seen.prometheus.values
    assert by(ask("node_status"), "node_id", "role") == {
        ("scheduler-1", "scheduler"): 1, ("executor-1", "executor"): 1, ("executor-2", "executor"): 1,
    }  # fmt: skip
    for name in ("node_tasks_active", "executor_tasks_active", "scheduler_task_queue_depth"):
        found = ask(name)
        assert found, name
        assert not any(found.values()), name
    for name, value in (
        ("scheduler_count", 1),
        ("scheduler_active_executors_count", 2),
        ("scheduler_connected_executors_count", 2),
        ("executor_connected_schedulers_count", 1),
        ("executor_task_slots", LEGS_IN_ALL),
    ):
        assert set(ask(name).values()) == {value}, name
    everything = by(ask('node_memory_reserved_bytes{state="all"}'), "instance")
    available = by(ask("executor_memory_available_bytes"), "instance")
    assert len(everything) == len(available) + 1 == 3
    assert all(0 < available[instance] <= everything[instance] for instance in available)
    assert all(0 < value <= 30_000 for value in ask("node_lease_remaining_ms").values())
    assert len(ask("node_lease_remaining_ms")) == len(ask("node_open_calls")) == 3
    tables = seen.tables
    states = {(name, state): tables[name]["partitions"] for name in tables for state in ("all", "serving")}
    assert by(ask("scheduler_partitions"), "table", "state") == states
    assert by(ask("scheduler_map_revision"), "table") == {(n,): table["revision"] for n, table in tables.items()}
    assert set(by(ask("executor_map_revision"), "table")) == {(name,) for name in tables}
    held = by(ask('executor_partitions{state="active"}'), "table")
    assert held == {("events",): 4, ("kinds",): 2}
    assert by(ask("executor_partitions_wanted")) == {(): 6}
    assert by(ask("executor_load_bytes_total"), "state")[("loaded",)] == 2 * tables["kinds"]["bytes"]
    assert by(ask("executor_cache_files_total"), "outcome").get(("damaged",), 0) == 0
    assert ask("executor_cache_bytes")
    assert set(by(ask("executor_replica_age_ms"), "table")) <= {("kinds",)}


def test_what_cannot_move_is_not_exported(seen):
    names = {series["metric"]["__name__"] for series in seen.prometheus.ask('{job="ballista"}')}
    assert not [name for name in names if name.startswith("ballista")]
    for name in NOT_YET:
        assert not [one for one in names if one.startswith(name.rstrip("*"))], name
    assert {
        "node_status",
        "node_tasks_total",
        "scheduler_stages_total",
        "executor_task_duration_ms_count",
    } <= names


BOARDS = sorted(path for path in DASHBOARDS.glob("*.json") if path.stem != "refreshes")  # see test_lake_changes.py


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_expression_of_a_dashboard_gives_data(seen, path):
    board = json.loads(path.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) >= 14
    (values,) = [one for one in board["templating"]["list"] if one["name"] == "node"]
    assert values["query"]["query"] == "label_values(node_status, node_id)"
    for expression in expressions:
        filled = expression.replace("$__rate_interval", "5m").replace("$node", ".*")
        assert "$" not in filled
        assert seen.prometheus.ask(filled), expression


def test_a_statement_is_one_trace_from_the_client_to_the_engine(seen):
    trace, client_span = seen.traces["read"]
    spans = seen.collector.trace(trace, "statement", "plan", "stage", "leg", "leg.run")
    of = {}
    for node, span in spans:
        of.setdefault(span.name, []).append((node, span))
    ids = {span.span_id.hex(): span.name for _, span in spans}
    ((node, statement),) = of["statement"]
    assert node == "scheduler-1"
    assert statement.parent_span_id.hex() == client_span
    assert {ids[span.parent_span_id.hex()] for _, span in of["plan"]} == {"statement"}
    assert {ids[span.parent_span_id.hex()] for _, span in of["stage"]} == {"statement"}
    assert {ids[span.parent_span_id.hex()] for _, span in of["leg"]} == {"stage"}
    assert {ids[span.parent_span_id.hex()] for _, span in of["leg.run"]} == {"leg"}
    assert {node for node, _ in of["leg.run"]} == {"executor-1", "executor-2"}
    (row,) = [task for task in seen.history if task["trace_id"] == trace and task["task"] == "statement"]
    assert row["span_id"] == statement.span_id.hex()
    assert not [span for _, span in spans if any(ALL in str(one.value) for one in span.attributes)]


def test_a_statement_over_http_is_one_trace_from_its_client_to_the_engine(seen):
    trace, client_span = seen.traces["http"]
    spans = seen.collector.trace(trace, "statement", "leg", "leg.run")
    ids = {span.span_id.hex(): span.name for _, span in spans}
    ((node, statement),) = [one for one in spans if one[1].name == "statement"]
    assert (node, statement.parent_span_id.hex()) == ("scheduler-1", client_span)
    legs = [(node, span) for node, span in spans if span.name == "leg.run"]
    assert {node for node, _ in legs} == {"executor-1", "executor-2"}
    assert {ids[span.parent_span_id.hex()] for _, span in legs} == {"leg"}


def test_a_write_is_one_trace_to_its_commits(seen):
    trace, client_span = seen.traces["write"]
    spans = seen.collector.trace(trace, "statement", "route", "owner.write", "commit", "store.replace")
    ids = {span.span_id.hex(): span for _, span in spans}
    parents = {
        (span.name, ids[span.parent_span_id.hex()].name) for _, span in spans if span.parent_span_id.hex() in ids
    }
    assert {("route", "statement"), ("owner.write", "route"), ("commit", "owner.write")} <= parents
    assert ("store.replace", "commit") in parents
    assert client_span in {span.parent_span_id.hex() for _, span in spans}


def test_metrics_come_by_otlp_by_the_names_of_the_contract(seen):
    until = time.monotonic() + 60
    while len(seen.collector.metrics) < 3:
        assert time.monotonic() < until
        time.sleep(0.2)
    for node, names in seen.collector.metrics.items():
        assert {"node_status", "node_tasks_total", "store_requests", "store_request_duration_ms"} <= names, node


def test_logs_are_objects(seen):
    for node in seen.cluster.node_ids:
        lines = [line for line in seen.cluster.log(node).splitlines() if line]
        events = [json.loads(line) for line in lines]
        assert {event["node_id"] for event in events} == {node}
        assert "ports" in {event["event"] for event in events}
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"]) for event in events)


def test_lines_of_a_log_name_the_trace_of_the_statement_that_they_are_about(seen):
    def told(node, trace):
        events = [json.loads(line) for line in seen.cluster.log(node).splitlines() if line]
        return [event for event in events if event.get("trace_id") == trace]

    for name in ("read", "read again", "write"):
        trace, _span = seen.traces[name]
        kinds = Counter(event["kind"] for event in told("scheduler-1", trace) if event["event"] == "task_ended")
        assert kinds["change" if name == "write" else "statement"] == 1
        below = {e["kind"] for node in ("executor-1", "executor-2") for e in told(node, trace) if "kind" in e}
        assert ("write" if name == "write" else "leg") in below
    lines = [json.loads(line) for line in seen.cluster.log("scheduler-1").splitlines() if line]
    assert any("trace_id" not in event for event in lines)  # what belongs to no statement says so
