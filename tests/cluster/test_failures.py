"""Nodes die, pause and come back: every answer is right or an error, and the survivors take over."""

import os
import shutil
import signal
import time

import pytest

from ballista_py import LocalCluster
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, ConfigError, PartitionsUnassigned
from ballista_py.node.demo.demo import QUERIES

pytestmark = pytest.mark.cluster
TTL_MS = 2_000


@pytest.fixture
def own(tpch_state, tmp_path):
    """A cluster of three executors that a test may break."""
    folder = tmp_path / "state"
    shutil.copytree(tpch_state, folder)
    with LocalCluster(schedulers=2, executors=3, state_location=folder.as_uri(), ttl_ms=TTL_MS) as cluster:
        cluster.wait_until_loaded()
        yield cluster


def answers_until(cluster, duck, is_over, name="Q3", at_most_s=60):
    """Ask again and again until `is_over`; every answer must be right. Returns how many came, and the errors."""
    expected = duck.sql(QUERIES[name]).to_arrow_table()
    right, errors = 0, []
    until = time.monotonic() + at_most_s
    while not is_over():
        assert time.monotonic() < until, f"not over after {at_most_s} s: {errors[-1:]}"
        try:
            with cluster.client() as client:
                answer = client.sql(QUERIES[name])
        except BallistaError as error:
            errors.append(error)
            continue
        assert difference(answer, expected) is None
        right += 1
    return right, errors


def member_ids(cluster):
    try:
        return {row["node_id"] for row in cluster.members()}
    except BallistaError:
        return {"unknown"}


def instance_of(cluster, node_id):
    return next((row["instance_id"] for row in cluster.members() if row["node_id"] == node_id), None)


def served_without(cluster, *gone):
    """Whether the named nodes are no members any more and everything is served."""
    if member_ids(cluster) & {*gone, "unknown"}:
        return False
    cluster.wait_until_loaded(timeout_ms=30_000)
    return True


def test_survivors_take_over_from_a_killed_scheduler_and_executor_and_no_answer_is_short(own, duck):
    own.kill("scheduler-1")
    own.kill("executor-1")
    answers_until(own, duck, lambda: served_without(own, "scheduler-1", "executor-1"))
    for name, query in QUERIES.items():
        assert difference(own.sql(query), duck.sql(query).to_arrow_table()) is None, name


def test_an_executor_paused_beyond_its_lease_comes_back_as_another_instance_and_never_answers_for_the_old(
    own, duck
):
    before = instance_of(own, "executor-2")
    os.kill(own.pid("executor-2"), signal.SIGSTOP)
    try:
        answers_until(own, duck, lambda: served_without(own, "executor-2"))
    finally:
        os.kill(own.pid("executor-2"), signal.SIGCONT)
    answers_until(own, duck, lambda: instance_of(own, "executor-2") not in (None, before))
    right, _ = answers_until(own, duck, iter([False] * 5 + [True]).__next__)
    assert right >= 1


def test_a_scheduler_paused_beyond_its_lease_is_evicted_and_joins_again(own, duck):
    before = instance_of(own, "scheduler-2")
    os.kill(own.pid("scheduler-2"), signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 30
        from ballista_py.transport.client.client import connect

        with connect(own.addresses()[0]) as client:
            while any(row["node_id"] == "scheduler-2" for row in client.members()):
                assert time.monotonic() < deadline
                time.sleep(0.1)
    finally:
        os.kill(own.pid("scheduler-2"), signal.SIGCONT)
    answers_until(own, duck, lambda: instance_of(own, "scheduler-2") not in (None, before))


def test_an_executor_that_is_killed_and_started_again_serves_again(own, duck):
    own.kill("executor-3")
    own.start("executor-3")
    own.wait_until_loaded()
    answers_until(own, duck, iter([False] * 3 + [True]).__next__)
    assert "executor-3" in member_ids(own)


def test_an_executor_that_is_told_to_stop_hands_over_at_once(own):
    started = time.monotonic()
    os.kill(own.pid("executor-1"), signal.SIGTERM)
    while "executor-1" in member_ids(own):
        assert time.monotonic() - started < 30
        time.sleep(0.02)
    own.wait_until_loaded(timeout_ms=30_000)
    assert own.sql("select count(*) as n from orders").to_pylist() == [{"n": 15_000}]


def test_without_executors_a_query_is_refused_and_not_answered_short(events):
    with LocalCluster(schedulers=1, executors=1, ttl_ms=1_000) as cluster:
        cluster.create_table("events", source=events, partition_by=["bucket(4, id)"])
        cluster.kill("executor-1")
        while "executor-1" in member_ids(cluster):
            time.sleep(0.05)
        with pytest.raises(PartitionsUnassigned, match=r"Cannot execute query: 5 partition\(s\) not assigned"):
            cluster.sql("select count(*) from events")


def test_a_second_node_with_a_live_id_is_refused(own, cli):
    said = cli(
        *("node", "--role", "scheduler", "--node-id", "scheduler-1", "--state-location", own.state_location),
        *("--flight-port", "0", "--control-port", "0", "--ttl-ms", str(TTL_MS), "--skew-ms", "500"),
        *("--allow-insecure-connections", "--http-port", "0", "--metrics-port", "0"),
    )
    assert said.returncode == 1
    assert "error: scheduler id scheduler-1 is already registered" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_node_that_does_not_come_up_says_why(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"holds something else than a cluster's state \(holiday.jpg\)"):
        LocalCluster(schedulers=1, executors=0, state_location=tmp_path.as_uri()).start()
