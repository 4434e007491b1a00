"""The command line looks at what tables keep, names damage, and removes nothing unasked."""

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([("id", pa.int64())])


def test_damage_is_named_and_the_other_partitions_go_on_answering(tmp_path, cli):
    state = tmp_path / "state"
    with LocalCluster(schedulers=1, executors=1, state_location=state.as_uri(), ttl_ms=1_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["id"])
        cluster.ingest("t", pa.table({"id": [1, 2, 3]}), token="first")
        done = cli("storage", "verify", state.as_uri())
        assert (done.returncode, "3 partitions, 3 files, 3 rows" in done.stdout) == (0, True)
        done = cli("storage", "history", state.as_uri(), "t", "expr0=2")
        assert "+1 -0 first" in done.stdout
        done = cli("storage", "collect", state.as_uri())
        assert done.stdout.startswith("0 objects")
        cluster.kill("executor-1")
        (manifest,) = state.glob("snapshots/*/expr0=2/manifest.json")
        manifest.write_text("torn")
        done = cli("storage", "verify", state.as_uri())
        assert (done.returncode, "DAMAGED partition expr0=2" in done.stdout) == (1, True)
        cluster.start("executor-1")
        with cluster.client() as client:
            rows = _until(lambda: client.sql("select id from t where id in (1, 3) order by id").to_pylist())
            assert rows == [{"id": 1}, {"id": 3}]
            with pytest.raises(BallistaError, match="manifest"):
                client.sql("select * from t")
            assert client.ingest("t", pa.table({"id": [3]})) == 1


def _until(ask):
    """The first answer; executors that have just started may not serve yet."""
    import time

    for _ in range(100):
        try:
            return ask()
        except BallistaError:
            time.sleep(0.2)
    return ask()


def test_writes_go_through_a_cluster_that_proves_its_nodes(tmp_path):
    with LocalCluster(schedulers=1, executors=2, tls=True) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        assert cluster.ingest("t", pa.table({"id": list(range(100))})) == 100
        assert cluster.sql("update t set id = id + 100 where id < 10").to_pylist() == [{"affected_rows": 10}]
        assert cluster.sql("select sum(id) as s from t").to_pylist() == [{"s": 4_950 + 1_000}]
