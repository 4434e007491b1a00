"""How many modules of ours a statement enters, over all processes: a reader of it has to know these rooms.

The numbers are ceilings that only go down; they went up when history, traces and jobs came, and by three for an
UPDATE when deletion vectors did. Counted are client, scheduler and executors; loops, control streams and the port of
HTTP, which go on without a statement, are not. Each is the least of three runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import ballista_py
from ballista_py import LocalCluster, connect

pytestmark = pytest.mark.cluster
SRC = str(Path(ballista_py.__file__).parent)
CEILINGS = {"select": 136, "ingest": 118, "create": 157, "update": 153}


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """Which modules the statements of a call enter."""
    folder = tmp_path_factory.mktemp("walks")
    hook = str(Path(__file__).parent / "walks")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", os.pathsep.join([hook, *filter(None, [os.environ.get("PYTHONPATH")])]))
        environment.setenv("BALLISTA_WALKS", str(folder))
        environment.setenv("BALLISTA_WALKS_SRC", SRC)
        with LocalCluster(schedulers=1, executors=2, ttl_ms=60_000) as cluster:
            address = next(one["address"] for one in cluster.members() if one["role"] == "scheduler")
            with connect(f"grpc://{address}") as client:
                yield client, lambda call: walked(cluster, folder, call)


def walked(cluster, folder, call) -> set[str]:
    told(cluster, folder)
    entered: set[str] = set()

    def note(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename.startswith(SRC):
            entered.add(frame.f_code.co_filename[len(SRC) + 1 :])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered | told(cluster, folder)


def told(cluster, folder) -> set[str]:
    """What the nodes have entered since they were asked last."""
    found: set[str] = set()
    for node in cluster.members():
        pid = cluster.pid(node["node_id"])
        os.kill(pid, signal.SIGUSR2)
        until = time.monotonic() + 30
        while not (answer := folder / str(pid)).exists():
            assert time.monotonic() < until, "the node does not tell"
            time.sleep(0.01)
        found |= set(answer.read_text().split())
        answer.unlink()
    return found


def test_a_statement_enters_no_more_modules_than_it_did(walks):
    client, walked = walks
    rows = pa.table({"id": [1, 2, 3], "kind": ["a", "b", "a"]})
    client.sql("create table t (id bigint, kind varchar) partitioned by (bucket(4, id))")
    client.ingest("t", rows)
    grouped = "select kind, count(*) from t group by kind"
    counts = dict.fromkeys(CEILINGS, 1_000)
    for turn in range(3):
        calls = {
            "select": partial(client.sql, f"{grouped} having count(*) > {turn}"),
            "ingest": partial(client.ingest, "t", rows),
            "create": partial(client.sql, f"create table n{turn} (id bigint) partitioned by (bucket(4, id))"),
            "update": partial(client.sql, f"update t set kind = 'c{turn}' where id = 2"),
        }
        client.sql(grouped)  # everything is loaded then
        for name, call in calls.items():
            counts[name] = min(counts[name], len(walked(call)))
    print(counts)
    assert {name: count for name, count in counts.items() if count > CEILINGS[name]} == {}
    assert min(counts.values()) > 40  # else something was not counted
