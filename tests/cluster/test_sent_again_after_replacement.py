"""What was decided in a table that was replaced since is told when it is sent again, and done in no other table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.errors import SqlError
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken
from ballista_py.state.stores.store import open_store
from ballista_py.transport.flight.commands import execute_command

pytestmark = pytest.mark.cluster
SENT = {
    "plain": ("insert into t values (100, 'p'), (101, 'p'), (102, 'p')", False),
    "computed": ("insert into t select i, 'c' from range(200, 205) r(i)", False),
    "atomic": ("insert into t values (300, 'a'), (301, 'a')", True),
    "changed": ("update t set v = 'x' where k < 2", False),
    "returned": ("delete from t where k = 3 returning k, v", False),
}
NEVER = "insert into t values (900, 'n')"
ROWS = pa.table({"k": pa.array([400, 401], pa.int64()), "v": ["i", "i"]})


def made(client, token):
    """A statement under a token that the client's library made, as it is sent again when a reply was lost."""
    command = execute_command("insert into t values (500, 'm'), (501, 'm')", None, token, made=True)
    return client._pool.ask(client._schedulers.addresses[0], command)["affected"]


def test_what_the_old_table_knows_is_told_and_the_rest_is_done(tmp_path):
    """The scheduler that decided it is killed before its client heard of it."""
    with LocalCluster(schedulers=2, executors=2, ttl_ms=3_000, state_location=tmp_path.as_uri()) as cluster:
        cluster.sql("create table t (k bigint not null, v varchar) partitioned by (bucket(3, k))")
        cluster.sql("insert into t select i, 'old' from range(10) r(i)")
        urls = [f"grpc://{one['address']}" for one in cluster.members() if one["role"] == "scheduler"]
        with connect(urls[0]) as one:
            told = {token: one.sql(text, token=token, atomic=atomic) for token, (text, atomic) in SENT.items()}
            taken = one.ingest("t", ROWS, token="rows")
            assert made(one, "made-1") == 2
        (folder,) = {path.parent.parent.name for path in tmp_path.glob("snapshots/t*/*/manifest.json")}
        claims = TokenClaims(open_store(tmp_path.as_uri()), SystemRuntime())
        claims.claim(folder, WriteToken("never", ("execute", NEVER, False), given=True).kept)
        cluster.kill("scheduler-1")
        with cluster.client() as client:
            client.sql(
                "create or replace table t partitioned by (bucket(2, k)) as select 1::bigint as k, 'new' as v"
            )
            new = [{"k": 1, "v": "new"}]
            for token, (text, atomic) in SENT.items():
                assert client.sql(text, token=token, atomic=atomic).equals(told[token]), token
            assert client.ingest("t", ROWS, token="rows") == taken
            with pytest.raises(SqlError, match="'rows' was used for a table that was called 't' before"):
                client.ingest("t", ROWS.slice(1), token="rows")
            assert client.sql("from t").to_pylist() == new
            client.sql(
                "create or replace table t (k bigint, v varchar, w int default 1) partitioned by (bucket(2, k))"
            )
            assert client.sql(SENT["plain"][0], token="plain").to_pylist() == [
                {"affected_rows": 3}
            ]  # two tables ago
            assert made(client, "made-1") == 2
            assert client.sql("from t").num_rows == 0
            for _ in range(2):  # begun on the old one, and nothing of it was done there
                with pytest.raises(SqlError, match="has 2 value"):
                    client.sql(NEVER, token="never")
            client.sql("create or replace table t (k bigint, v varchar) partitioned by (bucket(2, k))")
            for _ in range(2):
                assert client.sql(NEVER, token="never").to_pylist() == [{"affected_rows": 1}]
            assert client.sql(NEVER, token="fresh").to_pylist() == [{"affected_rows": 1}]
            assert client.sql("from t").to_pylist() == 2 * [{"k": 900, "v": "n"}]
