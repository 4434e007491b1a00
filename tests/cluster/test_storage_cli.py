"""The command line looks at what tables keep, names damage, and removes nothing unasked."""

import json
from concurrent.futures import ThreadPoolExecutor

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
        cluster.ingest("t", pa.table({"id": list(range(1, 8))}), token="first")
        done = cli("storage", "verify", state.as_uri())
        assert (done.returncode, "7 partitions, 7 files, 7 rows" in done.stdout) == (0, True)
        done = cli("storage", "history", state.as_uri(), "t", "expr0=2")
        assert "+1 -0 first" in done.stdout
        done = cli("storage", "collect", state.as_uri())
        assert done.stdout.startswith("0 objects")
        assert json.loads(cli("storage", "verify", state.as_uri(), "--json").stdout) == [
            {"table": "t", "partitions": 7, "files": 7, "rows": 7, "problems": []}
        ]
        (told,) = json.loads(cli("storage", "history", state.as_uri(), "t", "expr0=2", "--json").stdout)
        assert (told["added"], told["removed"], told["token"]) == (1, 0, "first")
        found = json.loads(cli("storage", "collect", state.as_uri(), "--json").stdout)
        assert (found["files"], found["bytes"], found["removed"], found["kept"]) == ([], 0, None, {})
        told = json.loads(cli("storage", "repair", state.as_uri(), "--json").stdout)
        assert told == {"repairs": [], "beyond": [], "applied": False}
        cluster.kill("executor-1")
        files = {id_: _file_of(state, id_) for id_ in (5, 6, 7)}
        _manifest(state, 2).write_text("torn")
        _manifest(state, 4).unlink()
        files[5].write_bytes(files[5].read_bytes()[:-20])
        files[6].unlink()
        files[7].write_bytes(b"PAR1" + bytes(200) + b"PAR1")
        done = cli("storage", "verify", state.as_uri())
        named = [id_ for id_ in range(1, 8) if f"DAMAGED partition expr0={id_}" in done.stdout]
        assert (done.returncode, named) == (1, [2, 4, 5, 6, 7])
        done = cli("storage", "verify", state.as_uri(), "--json")
        (table,) = json.loads(done.stdout)
        assert (done.returncode, len(table["problems"])) == (1, 5)
        cluster.start("executor-1")
        with cluster.client() as client:
            rows = _until(lambda: client.sql("select id from t where id in (1, 3) order by id").to_pylist())
            assert rows == [{"id": 1}, {"id": 3}]
            with pytest.raises(BallistaError, match="manifest"):
                client.sql("select * from t")
            assert client.ingest("t", pa.table({"id": [3]})) == 1
            assert client.sql("delete from t where id = 1").to_pylist() == [{"affected_rows": 1}]

            def ask(damaged):
                with pytest.raises(BallistaError, match=f"manifest|partition .* of table 't'|expr0={damaged}"):
                    client.sql(f"select * from t where id = {damaged}")

            with ThreadPoolExecutor() as threads:  # each is tried for a while
                list(threads.map(ask, (2, 4, 5, 6, 7)))
        assert [row["id"] for row in cluster.sql("select id from t where id in (1, 3)").to_pylist()] == [3, 3]


def _manifest(state, id_: int):
    (found,) = state.glob(f"snapshots/*/expr0={id_}/manifest.json")
    return found


def _file_of(state, id_: int):
    (file,) = json.loads(_manifest(state, id_).read_text())["files"]
    return state / file["path"]


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
