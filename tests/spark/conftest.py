"""One Spark for the whole run, and small tables on disk."""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.session import embedded_session, stop_session
from ballista_py.state.stores.local import LocalStore
from ballista_py.storage.formats.parquet import read_batches
from ballista_py.storage.manifest import ManifestDocument
from ballista_py.storage.partition_storage import PartitionStorage

CONNECT_PORT = "spark.connect.grpc.binding.port"


@pytest.fixture(scope="session")
def spark():
    """A session of two cores that tries a failed task once more and is a Spark Connect server too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = {
        "spark.sql.shuffle.partitions": "4",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        CONNECT_PORT: port,
    }
    session = embedded_session(master="local[2,2]", memory="1g", options=options)
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def connect_url(spark) -> str:
    """Where the session of this run is to be had by Spark Connect."""
    return f"sc://127.0.0.1:{spark.conf.get(CONNECT_PORT)}"


@pytest.fixture(scope="session")
def agreement() -> ModuleType:
    """The module `agreement`, which also runs by itself as a client of Spark Connect."""
    path = Path(__file__).with_name("agreement.py")
    spec = importlib.util.spec_from_file_location("agreement", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "state"))


def spawn(target: Callable[[], None]) -> None:
    threading.Thread(target=target, daemon=True).start()


@pytest.fixture
def pipeline(spark, store) -> SparkPipeline:
    return SparkPipeline(spark, store, spawn=spawn)


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., str]:
    """Writes a Parquet file from columns; those named in `required` cannot hold nulls."""

    def write(file: str, required: tuple[str, ...] = (), /, **columns: pa.Array) -> str:
        fields = [pa.field(name, column.type, name not in required) for name, column in columns.items()]
        pq.write_table(pa.table(list(columns.values()), schema=pa.schema(fields)), tmp_path / file)
        return str(tmp_path / file)

    return write


@pytest.fixture
def declare(pipeline) -> Callable[..., TableSpec]:
    """A table over a source, described by the pipeline; without keys it is replicated."""

    def of(source, *partition_by, name: str = "events") -> TableSpec:
        schema = pipeline.describe(name, source)
        spec = PartitionSpec.parse(partition_by, schema) if partition_by else PartitionSpec.whole()
        kept = source if isinstance(source, dict) else {"path": source} if isinstance(source, str) else None
        distribution = "partitioned" if partition_by else "replicated"
        return TableSpec(name=name, schema=schema, spec=spec, source=kept, distribution=distribution)

    return of


class Partitions:
    """What the manifests of a table say, and the rows that they name."""

    def __init__(self, store) -> None:
        self._store = store

    def manifest(self, table: TableSpec, value) -> ManifestDocument:
        return PartitionStorage(self._store, table.name, table.spec.path(value)).read().document

    def rows(self, table: TableSpec, value) -> pa.Table:
        return self.rows_at(table, table.spec.path(value))

    def rows_at(self, table: TableSpec, path: str) -> pa.Table:
        files = PartitionStorage(self._store, table.name, path).read().document.files
        parts = [
            pa.table(batch.columns, schema=table.schema)
            for file in files
            for batch in read_batches(pa.py_buffer(self._store.get(file.path).data), table.schema, file.path)
        ]
        return pa.concat_tables([table.schema.empty_table(), *parts])

    def every_row(self, table: TableSpec) -> pa.Table:
        """The rows of all partitions that have a manifest."""
        keys = [entry.key for entry in self._store.list(f"snapshots/{table.name}/")]
        found = [self.rows_at(table, key.split("/")[2]) for key in keys if key.endswith("/manifest.json")]
        return pa.concat_tables([table.schema.empty_table(), *found])

    def all(self, table: TableSpec, values) -> Iterator[tuple[tuple, pa.Table]]:
        for value in values:
            yield value, self.rows(table, value)


@pytest.fixture
def reads() -> type[Partitions]:
    return Partitions


@pytest.fixture
def partitions(store) -> Partitions:
    return Partitions(store)
