"""What a scheduler does for executors that ask, without ports and threads of its own."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from ballista_py import open_store
from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.errors import SqlError, TryLater
from ballista_py.node.config import NodeConfig
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import CancelTasks, PollNow, RefreshDataset
from ballista_py.state.members.executor_lease import ExecutorLease

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
BUCKETS = 8
MOST = 9


@pytest.fixture
def pushed():
    return []


@pytest.fixture
def core(pushed, request):
    """A scheduler that moves one partition a cycle, of a cluster with one table."""
    runtime = SystemRuntime()
    store = open_store(f"memory://{request.node.name}")
    config = NodeConfig(
        role="scheduler",
        node_id="s1",
        state_location="memory://x",
        allow_insecure_connections=True,
        max_partition_assignments_per_interval=1,
        max_partitions_per_executor=MOST,
    )
    info = SchedulerInfo(scheduler_id="s1", instance_id="")
    made = SchedulerCore(
        config, info, store, Catalogs(store, runtime), lambda to, said: pushed.append((to, said)), runtime
    )
    made.join()
    TableMaker(store, runtime).create("t", None, [f"bucket({BUCKETS}, id)"], schema=SCHEMA)
    return made


def admitted(core, executor_id):
    """The instance id of an executor that the cluster has just let in."""
    lease = ExecutorLease(executor_id, "h:1", runtime=SystemRuntime())
    core.heard(lease.heartbeat())
    core.admit()
    core.heard(lease.heartbeat())
    return lease.info.instance_id


def test_an_executor_that_asks_gets_all_that_has_no_owner_at_once(core):
    first = admitted(core, "e1")
    (update,) = core.allocate("e1", first)
    assert (update.table.name, len(update.partitions), update.instance_id) == ("t", BUCKETS, first)
    second = admitted(core, "e2")
    moving = [a for u in core.allocate("e2", second) for a in u.partitions if a.role == "owner"]
    assert not moving


def test_an_executor_that_is_no_member_gets_nothing(core):
    with pytest.raises(TryLater, match="not admitted"):
        core.allocate("e1", "unknown")


def test_many_that_ask_at_once_are_answered_by_a_round_or_two(core):
    instances = {f"e{n}": admitted(core, f"e{n}") for n in range(6)}
    found: dict[str, int] = {}

    def ask(executor_id):
        updates = core.allocate(executor_id, instances[executor_id])
        found[executor_id] = sum(len(update.partitions) for update in updates)

    threads = [threading.Thread(target=ask, args=(name,)) for name in instances]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(found.values()) == BUCKETS
    assert len(found) == 6
    assert core._rounds <= 2


def test_what_clients_ask_for_is_said_to_every_executor(core, pushed):
    instances = {admitted(core, "e1"), admitted(core, "e2")}
    pushed.clear()
    assert core.refresh_dataset("t") == 2
    core.cancel_tasks(["a"])
    core.poll_now()
    for said in (RefreshDataset("t"), CancelTasks(("a",)), PollNow()):
        assert {to for to, message in pushed if message == said} == instances
    with pytest.raises(SqlError, match="no table 'u'"):
        core.refresh_dataset("u")


def test_the_definition_is_that_of_the_cluster_document(core):
    definition = core.definition()
    assert [table.name for table in definition.tables] == ["t"]
    assert definition.revision > 0


def test_a_table_for_which_no_executor_has_room_says_so(core):
    TableMaker(core._store, SystemRuntime()).create("u", None, ["bucket(16, id)"], schema=SCHEMA)
    admitted(core, "e1")
    core.reconcile_all()
    failed = {row["table"]: row["failed"] for row in core.tables()}
    way_out = "add executors, or raise max_partitions_per_executor, which is 9"
    assert failed == {"t": {}, "u": {"no owner": f"no executor has room for 7 partition(s): {way_out}"}}
    admitted(core, "e2")
    core.reconcile_all()
    assert not any(row["failed"] for row in core.tables())


def test_every_node_is_a_member_by_its_name(core):
    instance = admitted(core, "e1")
    assert [(node["node_id"], node["role"]) for node in core.members()] == [
        ("s1", "scheduler"),
        ("e1", "executor"),
    ]
    assert core.members()[1]["instance_id"] == instance


def test_a_scheduler_that_was_fenced_joins_again_as_another_instance(core):
    before = core.membership.instance_id
    core.membership.leave()
    core.beat()
    after = core.membership.instance_id
    assert after != before
    assert core.membership.cluster.read().document.schedulers["s1"].instance_id == after
    core.beat()
    assert core.membership.instance_id == after
