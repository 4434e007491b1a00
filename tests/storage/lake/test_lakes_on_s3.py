"""Lakes on S3: a real server, which refuses keys that have expired and objects that are other ones by now."""

from __future__ import annotations

import io
import logging
import re
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.lake.lakes import IcebergDeletes, bag, task_of

from ballista_py.errors import ConfigError, SnapshotGone, StoreUnavailable
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import ScanCondition
from ballista_py.secret import Secret
from ballista_py.storage.lake.opening import LakeOpener
from ballista_py.storage.lake.reading import task_rows
from ballista_py.storage.lake.table import open_table

pytest.importorskip("moto")
pytest.importorskip("s3fs")


class Server:
    """moto; `expired` keys are refused, `asked` are the keys, methods and paths of requests."""

    def __init__(self) -> None:
        self.expired: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []
        self.url = ""
        self.client = None

    def options(self, key: str = "key-1") -> dict[str, str]:
        return {
            "s3.endpoint": self.url, "s3.access-key-id": key, "s3.secret-access-key": "hunter2",
            "s3.region": "us-east-1",
        }  # fmt: skip

    def credentials(self, key: str, location: str = "s3://lake/") -> StorageCredentials:
        values = {name: Secret(value) for name, value in self.options(key).items()}
        return StorageCredentials(location=location, values=values)

    def put(self, key: str, rows: pa.Table) -> None:
        sink = io.BytesIO()
        pq.write_table(rows, sink, row_group_size=1_000)
        self.client.put_object(Bucket="lake", Key=key, Body=sink.getvalue())


@pytest.fixture(scope="module")
def server():
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application, lock, found = DomainDispatcherApplication(create_backend_app), threading.Lock(), Server()

    def answer(environment, start):
        key = re.search(r"Credential=([^/]+)/", environment.get("HTTP_AUTHORIZATION", ""))
        name = key[1] if key else ""
        found.asked.append((name, environment["REQUEST_METHOD"], environment["PATH_INFO"]))
        if name in found.expired:
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>ExpiredToken</Code></Error>"]
        with lock:
            return list(application(environment, start))

    class Prompt(WSGIRequestHandler):
        disable_nagle_algorithm = True

    listening = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=Prompt)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{listening.server_port}"
    found.client = boto3.client(
        "s3", endpoint_url=found.url, aws_access_key_id="maker", aws_secret_access_key="s", region_name="us-east-1"
    )
    found.client.create_bucket(Bucket="lake")
    yield found
    listening.shutdown()
    thread.join()


def test_folders_of_parquet_on_s3_are_read_and_pruned(server):
    for number in range(3):
        server.put(f"p/y={number}/a.parquet", pa.table({"n": range(number * 10, number * 10 + 10)}))
    scan = {"format": "parquet", "path": "s3://lake/p/", "options": server.options()}
    lake = open_table(scan)
    snapshot = lake.snapshot()
    assert "hunter2" not in f"{lake!r}{snapshot!r}{snapshot.files()!r}{lake.credentials()!r}"
    asked = [ScanCondition(column="n", operator=">", values=(pa.scalar(25),))]
    assert len(snapshot.files(asked)) == 1
    task = task_of(snapshot, snapshot.files())
    found = pa.Table.from_batches(task_rows(task, LakeOpener(), lake.credentials), schema=task.schema)
    assert bag(found) == bag([{"n": n, "y": n // 10} for n in range(30)])


def test_delta_and_iceberg_on_s3_are_read(server):
    deltalake = pytest.importorskip("deltalake")
    storage = {
        "AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "maker", "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag",
    }  # fmt: skip
    rows = pa.table({"n": [1, 2], "k": ["a b", None]})
    deltalake.write_deltalake("s3://lake/d", rows, partition_by=["k"], storage_options=storage)
    options = server.options()
    lake = open_table({"format": "delta", "path": "s3://lake/d", "options": options})
    snapshot = lake.snapshot()
    task = task_of(snapshot, snapshot.files())
    assert bag(pa.Table.from_batches(task_rows(task, LakeOpener(), lake.credentials))) == bag(rows)


def test_iceberg_with_deletes_on_s3_is_read(server, tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog")
    declared = {
        "name": "c",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": "s3://lake/w",
        **server.options(),
    }
    properties = {name: value for name, value in declared.items() if name != "name"}
    catalog = catalogs.load_catalog("c", **properties)
    catalog.create_namespace("ns")
    rows = pa.table({"n": pa.array([1, 2, 3], pa.int64())})
    table = catalog.create_table("ns.t", rows.schema)
    table.append(rows)
    (path,) = [one.file.file_path for one in table.scan().plan_files()]
    deletes = IcebergDeletes(table)
    deletes.folder = tmp_path
    gone = deletes.values(pa.table({"n": pa.array([2], pa.int64())}), [1])
    local = tmp_path / "data" / gone["file_path"].rpartition("/")[2]
    server.client.upload_file(
        str(local), "lake", path.removeprefix("s3://lake/").rpartition("/")[0] + "/gone.parquet"
    )
    deletes.commit({**gone, "file_path": path.rpartition("/")[0] + "/gone.parquet"})
    for scan in (
        {"format": "iceberg", "catalog": declared, "table": "ns.t"},
        {"format": "iceberg", "path": table.metadata.location, "options": server.options()},
    ):
        lake = open_table(scan)
        snapshot = lake.snapshot()
        credentials = lake.credentials()
        assert credentials.location.startswith(table.metadata.location)
        task = task_of(snapshot, snapshot.files())
        found = pa.Table.from_batches(task_rows(task, LakeOpener(), lake.credentials))
        assert sorted(found.column("n").to_pylist()) == [1, 3]


def test_new_credentials_are_taken_before_the_next_file_and_old_ones_are_refused(server):
    for number in range(3):
        server.put(f"renewed/{number}.parquet", pa.table({"n": [number]}))
    lake = open_table({"format": "parquet", "path": "s3://lake/renewed", "options": server.options("key-old")})
    snapshot = lake.snapshot()
    task = task_of(snapshot, snapshot.files())
    held = [server.credentials("key-old")]
    found = task_rows(task, LakeOpener(), lambda: held[0])
    assert next(found).column("n").to_pylist() == [0]
    server.expired.add("key-old")
    held[0] = server.credentials("key-new")
    del server.asked[:]
    assert [batch.column("n").to_pylist() for batch in found] == [[1], [2]]
    assert {key for key, _, _ in server.asked} == {"key-new"}
    with pytest.raises(StoreUnavailable) as told:
        list(task_rows(task, LakeOpener(), lambda: server.credentials("key-old")))
    assert "hunter2" not in str(told.value)
    assert "key-old" not in str(told.value)


def test_an_object_that_is_another_one_by_now_gives_no_rows(server):
    server.put("changed/a.parquet", pa.table({"n": range(60_000)}))
    lake = open_table({"format": "parquet", "path": "s3://lake/changed", "options": server.options()})
    snapshot = lake.snapshot()
    task = task_of(snapshot, snapshot.files())
    server.put("changed/a.parquet", pa.table({"n": range(60_000, 120_000)}))
    with pytest.raises(SnapshotGone, match="ask again"):
        list(task_rows(task, LakeOpener(), lake.credentials))
    server.client.delete_object(Bucket="lake", Key="changed/a.parquet")
    with pytest.raises(SnapshotGone, match="ask again"):
        list(task_rows(task, LakeOpener(), lake.credentials))


def test_credentials_are_for_their_own_place_alone(server):
    server.put("own/a.parquet", pa.table({"n": [1]}))
    lake = open_table({"format": "parquet", "path": "s3://lake/own", "options": server.options()})
    snapshot = lake.snapshot()
    task = task_of(snapshot, snapshot.files())
    with pytest.raises(ConfigError, match="not for"):
        list(task_rows(task, LakeOpener(), lambda: server.credentials("key-1", "s3://lake/other/")))


def test_only_reading_need_be_allowed_for_files_that_are_named(server):
    server.put("head/a.parquet", pa.table({"n": [1]}))
    del server.asked[:]
    with LakeOpener().open("s3://lake/head/a.parquet", server.credentials("key-1")) as opened:
        assert opened.file.size > 0
        assert pq.read_table(opened.source).column("n").to_pylist() == [1]
    assert {(method, path) for _, method, path in server.asked} <= {
        ("HEAD", "/lake/head/a.parquet"), ("GET", "/lake/head/a.parquet"),
    }  # fmt: skip


def test_rows_of_many_files_are_planned_at_the_same_time_where_there_is_a_pool(server):
    from concurrent.futures import ThreadPoolExecutor

    for number in range(40):
        server.put(f"many/{number:03}.parquet", pa.table({"n": [number]}))
    with ThreadPoolExecutor(8) as pool:
        opener = LakeOpener(pool=pool)
        lake = open_table(
            {"format": "parquet", "path": "s3://lake/many", "options": server.options()}, opener=opener
        )
        asked = [ScanCondition(column="n", operator="in", values=(pa.scalar(7), pa.scalar(39)))]
        assert len(lake.snapshot().files(asked)) == 2
