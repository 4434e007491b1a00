"""Parts of jobs on a cluster that asks who somebody is: pickled, sent to another process, and used there."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, read_job, table_place, write_job
from ballista_py.agents.table_changes import changes_between

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
TOKEN = "somebody-0123456789abcdef"


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def cluster(request, tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"somebody {TOKEN}\n")
    with LocalCluster(
        schedulers=1, executors=1, tls=request.param, token=TOKEN, node_options={"flight-tokens-file": str(tokens)}
    ) as made:
        made.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"])
        made.ingest("t", pa.table({"id": range(100), "v": [f"v{n}" for n in range(100)]}, SCHEMA))
        yield made


@pytest.fixture
def who(cluster):
    scheme = "ballista" if cluster.tls is None else "ballista+tls"
    return {"url": f"{scheme}://{cluster.addresses()[0]}", "token": TOKEN, "tls": cluster.tls}


def elsewhere(what, code: str) -> bytes:
    """What a process prints that is given `what`, as `it`, pickled."""
    program = f"import pickle, sys\nit = pickle.load(sys.stdin.buffer)\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(what), capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_partitions_are_read_by_another_process(who):
    with read_job(table="t", **who) as job:
        ids: list[int] = []
        for one in job.partitions:
            said = elsewhere(one, "print(*[n for b in it.batches() for n in b.column(0).to_pylist()])")
            ids += map(int, said.split())
    assert sorted(ids) == list(range(100))


def test_a_task_writes_in_another_process_and_its_receipt_comes_back(cluster, who):
    url = who["url"]
    with write_job(url, "t", token=TOKEN, tls=who["tls"], write_token="of workers") as job:
        code = (
            "import pyarrow as pa\n"
            "rows = pa.table({'id': [1000], 'v': ['new']}, it.schema)\n"
            "sys.stdout.buffer.write(pickle.dumps(it.write(rows)))"
        )
        job.commit([pickle.loads(elsewhere(job.task(), code))])
    with cluster.client() as client:
        assert client.sql("select count(*) as n from t where id = 1000").to_pylist() == [{"n": 1}]
        client.sql("delete from t where id = 1000")


def test_changes_are_read_by_another_process(cluster, who):
    begin = table_place(who["url"], "t", token=TOKEN, tls=who["tls"])
    cluster.ingest("t", pa.table({"id": [2000], "v": ["later"]}, SCHEMA))
    end = table_place(who["url"], "t", token=TOKEN, tls=who["tls"])
    with changes_between(begin, end) as changes:
        said = b"".join(
            elsewhere(one, "print(*[r['id'] for b in it.batches() for r in b.to_pylist()])")
            for one in changes.partitions
        )
    assert said.split() == [b"2000"]
