"""What a scheduler committed and could not bring to its end is brought there by another one."""

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.undecided import attempt_by
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.store import open_store
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.manifest import Prepared
from ballista_py.storage.partition_storage import PartitionStorage

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


def test_a_statement_whose_scheduler_died_after_its_commit_is_settled_everywhere(wait_until):
    with LocalCluster(schedulers=2, executors=1, ttl_ms=1_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"])
        cluster.ingest("t", pa.table([[1, 2, 3]], schema=SCHEMA))
        store = open_store(cluster.state_location)
        pmap = PartitionStore(store).read("t")
        folder = next(store.list("snapshots/")).key.split("/")[1]
        gone = attempt_by("an instance that is no member", "a1")
        storage = PartitionStorage(store, folder, pmap.path(0))
        file = write_data_file(store, f"snapshots/{folder}/data/left.parquet", pa.table([[9]], schema=SCHEMA))
        storage.prepare(Prepared(attempt=gone, token="left", add=(file,), affected=1), epoch=pmap.epoch(0))
        statements = TableDecisions(store, folder)
        assert statements.commit(gone, "left", affected=1).committed
        cluster.kill("scheduler-1")
        wait_until(lambda: statements.read().on(gone).settled)
        assert storage.read().document.prepared == ()
        assert cluster.sql("select sum(id) as s from t")["s"].to_pylist() == [15]
