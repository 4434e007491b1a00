"""Every kind of document of a state location is destroyed in turn: no query ever gives fewer rows without an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string())])
TTL_MS = 1_500
ROWS = 60
CATALOG = "cluster.json"
MAP = "accelerations/partitions/t.json"
MAP_OF_VALUES = "accelerations/partitions/v.json"
DECISIONS = "accelerations/commits/d-*.json"
HEARTBEAT = "heartbeats/scheduler-1.json"
OTHERS = ("snapshots/t-*/table.json", "accelerations/garbage.json", HEARTBEAT)
MANIFEST = "snapshots/d-*/expr0=1/manifest.json"
TABLES = ("t", "v", "d", "late")


def rows(first: int, count: int) -> pa.Table:
    return pa.table(
        {"id": range(first, first + count), "kind": [f"k{n % 3}" for n in range(count)]}, schema=SCHEMA
    )


def cluster_of(state: Path) -> LocalCluster:
    return LocalCluster(schedulers=1, executors=2, state_location=state.as_uri(), ttl_ms=TTL_MS)


@pytest.fixture(scope="module")
def states(tmp_path_factory, cli) -> tuple[Path, Path]:
    """A location as it was at some time, and as it is: more rows, more partitions, another table, other owners."""
    folder = tmp_path_factory.mktemp("lost")
    before, now = folder / "before", folder / "now"
    with cluster_of(now) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        cluster.create_table("d", schema=SCHEMA, partition_by=["bucket(4, id)"])
        cluster.create_table("v", schema=SCHEMA, partition_by=["kind"])
        with cluster.client() as client:
            client.ingest("t", rows(0, 20), atomic=True)
            client.ingest("d", rows(0, 20), atomic=True)
            client.ingest("v", rows(0, 1))
        cli("storage", "collect", now.as_uri())
        shutil.copytree(now, before)
        cluster.kill("executor-1")
        cluster.start("executor-1")
        cluster.wait_until_loaded()
        cluster.create_table("late", schema=SCHEMA, partition_by=["bucket(2, id)"])
        with cluster.client() as client:
            client.ingest("t", rows(20, 40))
            client.ingest("d", rows(20, 40), atomic=True)
            client.ingest("v", rows(1, ROWS - 1))
            client.ingest("late", rows(0, ROWS))
        cli("storage", "collect", now.as_uri())
    return before, now


def destroy(state: Path, pattern: str, older: Path | None) -> None:
    """Delete a document, or put the copy of it over it that lies in `older`."""
    (path,) = state.glob(pattern)
    if older is None:
        path.unlink()
        return
    (copy,) = older.glob(pattern)
    shutil.copyfile(copy, path)


def outcome(client, table: str) -> int | str:
    """How many rows a table gives, or the name of the error."""
    try:
        return client.sql(f"select count(distinct id) as n from {table}").to_pylist()[0]["n"]
    except BallistaError as error:
        MESSAGES[table] = error.message
        return type(error).__name__


MESSAGES: dict[str, str] = {}  # what the last error of each table said, for who reads why a test failed


def outcomes(cluster: LocalCluster) -> dict[str, int | str]:
    with cluster.client() as client:
        return {table: outcome(client, table) for table in TABLES}


def repair(state: Path, cli) -> None:
    shown = cli("storage", "repair", state.as_uri())
    assert "nothing was changed" in shown.stdout
    done = cli("storage", "repair", state.as_uri(), "--apply", "--patience-seconds", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert cli("storage", "repair", state.as_uri()).stdout.startswith("0 document(s)")


ALL = dict.fromkeys(TABLES, ROWS)
NAMED = {None: "DocumentLost", "older": "DocumentOlder"}


@pytest.fixture(params=[pytest.param(None, marks=pytest.mark.long), "older"], ids=["deleted", "older"])
def way(request) -> str | None:
    return request.param


def test_no_node_starts_under_a_catalog_that_knows_less_than_what_lies_there(states, tmp_path, cli, way):
    before, now = states
    state = tmp_path / "state"
    shutil.copytree(now, state)
    destroy(state, CATALOG, before if way else None)
    with pytest.raises(BallistaError, match=r"'cluster.json' is (gone|at revision).*storage repair"):
        cluster_of(state).start()
    assert cli("storage", "collect", state.as_uri(), "--remove").returncode != 0
    repair(state, cli)
    with cluster_of(state) as cluster:
        cluster.wait_until_loaded()
        assert outcomes(cluster) == ALL


def test_with_nodes_down_lost_and_older_documents_are_named_and_repaired(states, tmp_path, cli, way):
    before, now = states
    state = tmp_path / "state"
    shutil.copytree(now, state)
    for pattern in (MAP, MAP_OF_VALUES, DECISIONS, *OTHERS):
        destroy(state, pattern, before if way else None)
    with cluster_of(state) as cluster:
        said = outcomes(cluster)
    assert said == {**dict.fromkeys(TABLES, NAMED[way]), "late": ROWS}
    repair(state, cli)
    with cluster_of(state) as cluster:
        cluster.wait_until_loaded()
        assert outcomes(cluster) == ALL
        with cluster.client() as client:
            for table in TABLES:
                client.ingest(table, rows(ROWS, 5), atomic=True)
        assert outcomes(cluster) == dict.fromkeys(TABLES, ROWS + 5)


def test_with_nodes_up_nobody_goes_by_a_document_that_went_back(states, tmp_path, wait_until):
    """The one cluster sees every kind deleted and older in turn; each is put back, and all goes on."""
    before, now = states
    state = tmp_path / "state"
    shutil.copytree(now, state)
    full = {"t": ROWS + 1, "v": ROWS, "d": ROWS + 1, "late": ROWS}

    def all_is_well(client):
        return {table: outcome(client, table) for table in TABLES} == full

    with cluster_of(state) as cluster, cluster.client() as client:
        cluster.wait_until_loaded()
        client.ingest("t", rows(ROWS, 1))
        client.ingest("d", rows(ROWS, 1), atomic=True)
        for older in (None, before):
            for pattern in (CATALOG, MAP, MAP_OF_VALUES, DECISIONS, MANIFEST, *OTHERS):
                (path,) = wait_until(lambda pattern=pattern: list(state.glob(pattern)))
                kept = path.read_bytes()
                if pattern == MANIFEST:  # whose loss is named only by a partition that nothing else is wrong with
                    wait_until(lambda: all_is_well(client))
                destroy(state, pattern, older)
                with pytest.raises(BallistaError):
                    client.sql("select * from nothing")  # lets the scheduler look at the store
                said = {table: outcome(client, table) for table in TABLES}
                wrong = {t: n for t, n in said.items() if n not in (full[t], "DocumentLost", "DocumentOlder")}
                assert not wrong, (pattern, older, said, MESSAGES)
                if pattern == MANIFEST:
                    with pytest.raises(BallistaError, match=r"manifest\.json"):
                        client.sql("update d set kind = 'k' where true")
                if pattern != HEARTBEAT:  # whose scheduler joins anew
                    path.write_bytes(kept)
        wait_until(lambda: all_is_well(client))
