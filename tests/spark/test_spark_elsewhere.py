"""Spark as a cluster of others: processes that share nothing with the driver but the store, and may be killed.

The driver is a process of its own, too (`elsewhere_driver.py`), because a process has one Spark.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("moto")
pytest.importorskip("grpc_status", reason="Spark Connect needs the extra 'connect'")

from tests.cluster.table_servers import s3_server
from tests.spark.spark_servers import Standalone, connect_server, free_port, standalone

from ballista_py.state.stores.store import open_store
from ballista_py.storage.manifest import DataFile, ManifestDocument
from ballista_py.storage.partition_storage import PartitionStorage, partition_paths

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DRIVER = str(Path(__file__).with_name("elsewhere_driver.py"))
SECRET = "s3cr3t-of-s3"
EVENTS = ("spark.eventLog.enabled", "spark.eventLog.compress", "spark.eventLog.dir")
ID = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def s3():
    with s3_server("bucket") as url:
        yield url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with standalone(tmp_path_factory.mktemp("standalone")) as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    events = folder / "events"
    events.mkdir()
    conf = dict(zip(EVENTS, ("true", "false", events.as_uri()), strict=True))
    with connect_server(folder / "server", **conf) as (url, process):
        yield url, process


@pytest.fixture
def store(s3):
    keys = {"key": "testing", "secret": SECRET, "client_kwargs": {"region_name": "us-east-1"}}
    return open_store("s3://bucket/state", endpoint_url=s3, **keys)


@pytest.fixture(params=["master", "remote"])
def place(request):
    if request.param == "master":
        return "master", request.getfixturevalue("cluster").url
    return "remote", request.getfixturevalue("server")[0]


def command(scene: str, place: tuple[str, str], s3: str, *more: str) -> list[str]:
    return [sys.executable, DRIVER, scene, *place, s3, *more]


def drive(scene: str, place: tuple[str, str], s3: str, *more: str) -> dict:
    done = subprocess.run(command(scene, place, s3, *more), capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert SECRET not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def files_of(store, table: str) -> list[DataFile]:
    paths = partition_paths(store, table)
    found: list[ManifestDocument] = [
        PartitionStorage(store, table, path).read().document for path in sorted(paths)
    ]
    return [file for manifest in found for file in manifest.files]


def ids_of(store, table: str) -> list[int]:
    """The column `id` of all rows that manifests name."""
    import pyarrow.parquet as pq

    tables = [
        pq.read_table(pa.BufferReader(store.get(file.path, file.bytes).data), columns=["id"])
        for file in files_of(store, table)
    ]
    return sorted(pa.concat_tables([ID.empty_table(), *tables])["id"].to_pylist())


def unnamed(store, table: str) -> set[str]:
    """Data files of a table that no manifest names."""
    there = {entry.key for entry in store.list(f"snapshots/{table}/data/")}
    return there - {file.path for file in files_of(store, table)}


@pytest.mark.long
def test_the_pipeline_fills_tables_where_nothing_but_the_store_is_shared(place, s3, store):
    said = drive("tables", place, s3)
    assert said.pop("torn").endswith("torn page")
    assert said == {
        "filled": 2_000,
        "appended": [50, 0],
        "found": ["é0", "é1", "é2"],
        "many": 3_000,
        "left": [],
        "claims": [],
        "made": ["", "ballista-spark-"] if place[0] == "master" else ["ballista-sent-"],
    }
    assert ids_of(store, "buckets") == list(range(2_050))
    assert ids_of(store, "values") == [0, 1, *range(2, 100, 3)]
    assert ids_of(store, "ordered") == list(range(3_000))
    assert len(files_of(store, "ordered")) <= 300
    assert not unnamed(store, "buckets") | unnamed(store, "values") | unnamed(store, "ordered")
    assert partition_paths(store, "buckets") == {f"expr0={bucket}" for bucket in range(4)}


@pytest.mark.long
def test_statements_run_over_files_of_the_store_and_their_answers_come_through_it(place, s3):
    said = drive("statements", place, s3)
    assert said.pop("joined") == [{"name": f"t{digit}", "n": 6_000} for digit in range(10)]
    assert "cannot use the function 'java_method'" in said.pop("refused")
    assert "cannot have this" in said.pop("command")
    assert said == {
        "count": [{"n": 60_000}],
        "none": [{"n": 0}],
        "in order": True,
        "types": True,
        "too large": "MergeTooLarge: the answers of Spark would take more than 10,000 bytes of the store",
        "at work": True,
        "cancelled": ["TransportError: The query was cancelled"],
        "left": [],
        "made": ["", *(["ballista-sent-"] if place[0] == "remote" else []), "ballista-spark-"],
    }


@pytest.mark.long
def test_a_worker_that_is_killed_amid_a_run_costs_no_row_and_doubles_none(s3, store, tmp_path):
    with standalone(tmp_path) as cluster:
        driver = subprocess.Popen(
            command("slow", ("master", cluster.url), s3), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            _wait_for(driver, lambda: any(store.list("snapshots/slow/data/")))
            cluster.workers[0].kill()
            out, err = driver.communicate(timeout=400)
        finally:
            driver.kill()
    assert driver.returncode == 0, err[-3_000:]
    assert json.loads(out.splitlines()[-1])["rows"] == 4_000
    assert ids_of(store, "slow") == list(range(4_000))
    assert not unnamed(store, "slow")


@pytest.mark.long
def test_a_server_that_is_killed_amid_a_run_leaves_the_table_as_it_was(s3, store, tmp_path):
    with connect_server(tmp_path / "server") as (url, server):
        driver = subprocess.Popen(
            command("slow", ("remote", url), s3), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            before = {entry.key for entry in store.list("snapshots/slow/data/")}
            _wait_for(driver, lambda: any(e.key not in before for e in store.list("snapshots/slow/data/")))
            held = ids_of(store, "slow")
            server.kill()
            _, err = driver.communicate(timeout=400)
        finally:
            driver.kill()
    assert driver.returncode != 0
    assert "ConfigError" in err.splitlines()[-1]
    assert ids_of(store, "slow") == held
    assert not unnamed(store, "slow")


@pytest.mark.long
def test_a_server_that_is_started_anew_is_used_again(s3, tmp_path):
    port = free_port()
    with connect_server(tmp_path / "first", port) as (url, _):
        driver = subprocess.Popen(
            command("restarted", ("remote", url), s3),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert driver.stdout.readline() == "ready\n", driver.communicate()[1][-3_000:]
    try:
        with connect_server(tmp_path / "second", port):
            out, err = driver.communicate("go\n", timeout=400)
    finally:
        driver.kill()
    assert driver.returncode == 0, err[-3_000:]
    said = json.loads(out.splitlines()[-1])
    assert said.pop("gone").startswith("TryLater: the server of Spark Connect ended")
    assert said.pop("made")
    assert said == {"before": [{"n": 100}], "found": 2, "ended": True, "after": [{"n": 100}], "refreshed": 70}


def _wait_for(driver: subprocess.Popen, happened, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert driver.poll() is None, driver.communicate()[1][-3_000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
def test_a_task_that_runs_twice_doubles_no_row(cluster: Standalone, s3, store):
    conf = (
        "speculation=true",
        "speculation.interval=100ms",
        "speculation.quantile=0.1",
        "speculation.multiplier=1.1",
    )
    conf += ("speculation.minTaskRuntime=10ms", "speculation.efficiency.enabled=false", "ui.enabled=true")
    said = drive("speculated", ("master", cluster.url), s3, *(f"spark.{one}" for one in conf))
    assert said["rows"] == 3_000
    assert said["attempts"] > 6
    assert ids_of(store, "speculated") == list(range(3_000))
    assert not unnamed(store, "speculated")


@pytest.mark.long
def test_what_workers_lack_is_said_before_anything_runs(cluster: Standalone, s3, tmp_path):
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "sitecustomize.py").write_text("import sys\nsys.modules['ballista_py'] = None\n")
    (tmp_path / "old" / "ballista_py" / "spark").mkdir(parents=True)
    for file, text in (("__init__", "__version__ = '0.0.9'"), ("errors", "class BallistaError(Exception): pass")):
        (tmp_path / "old" / "ballista_py" / f"{file}.py").write_text(text)
    (tmp_path / "old" / "ballista_py" / "spark" / "worker_tasks.py").write_text("tell_release = None")
    said = drive("unfit", ("master", cluster.url), s3, str(tmp_path))
    assert "a worker of Spark cannot run tasks of ballista_py" in said["none"]
    assert "install this release of ballista_py" in said["none"]
    assert "it has ballista_py 0.0.9, the driver" in said["old"]
    assert "have no '/nowhere/python3': name their Python as spark.pyspark.python" in said["no python"]
    assert "no worker of the Spark at spark://127.0.0.1" in said["no worker"]


@pytest.mark.long
def test_credentials_of_the_store_are_in_no_log_or_event_of_spark(cluster: Standalone, server, s3, tmp_path):
    conf = [f"{name}={value}" for name, value in zip(EVENTS, ("true", "false", tmp_path.as_uri()), strict=True)]
    assert drive("shown", ("master", cluster.url), s3, *conf, "spark.ui.enabled=true")["shown"] is False
    drive("shown", ("remote", server[0]), s3)
    events = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    events += [
        path.read_bytes() for path in server[1].folder.parent.joinpath("events").rglob("*") if path.is_file()
    ]
    seen = b"\n".join(events)
    assert b"MapInArrow" in seen
    requests = server[1].log.read_text(errors="replace").partition("ExecuteInfo(")[2]
    assert "read_files" in requests  # what tasks get is in it
    for text in (seen, cluster.logs().encode(), server[1].log.read_bytes()):
        assert SECRET.encode() not in text
