"""What was applied and is sent again after its table lost its name, or was altered, is told and done in no other."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.errors import SqlError, TransportError, WriteIncomplete
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken
from ballista_py.state.stores.store import open_store
from ballista_py.storage.manifest import ManifestDocument
from ballista_py.storage.partition_storage import PartitionStorage

pytestmark = pytest.mark.cluster
MADE = "create table {} (k varchar{}, b int) partitioned by (bucket(4, k))"
KINDS = {
    "insert": "insert into t values ('a', 1), ('b', 2), ('c', 3), ('d', 4)",
    "one": "insert into t values ('z', 1)",
    "update": "update t set b = b + 1",
    "key": "update t set b = b + 1 where k = 'a'",
    "delete": "delete from t where k = 'b'",
    "returning": "delete from t where b > 3 returning *",
    "merge": "merge into t using (values ('a', 5)) s(k, b) using (k) when matched then update set b = s.b when not "
    "matched then insert",
    "conflict": "insert into t values ('e', 1), ('a', 2) on conflict do update set b = excluded.b + 1",
    "select": "insert into t select k || '2', b from t",
    "truncate": "truncate t",
    "overwrite": "insert overwrite t select 'o', 1",
}
ROWS = pa.table({"k": ["x", "y", "w"], "b": pa.array([7, 8, 9], pa.int32())})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    with LocalCluster(schedulers=2, executors=2, ttl_ms=3_000, state_location=folder.as_uri()) as running:
        yield running


@pytest.fixture
def pair(cluster):
    """Clients of two schedulers."""
    for name in cluster.sql("show tables")["name"].to_pylist():
        cluster.sql(f'drop table "{name}"')
    urls = [f"grpc://{one['address']}" for one in cluster.members() if one["role"] == "scheduler"]
    with connect(urls[0]) as one, connect(urls[1]) as other:
        yield one, other


def rows(client, table):
    return client.sql(f"select * from {table} order by all").to_pylist()


@pytest.mark.parametrize("key", ["", pytest.param(" primary key", marks=pytest.mark.long)])
def test_every_kind_of_change_is_told_after_a_rename_swap_and_drop(pair, key):
    """Through the other scheduler each time: nothing there, then another table there; in the end the table is gone."""
    one, other = pair
    kinds = {name: text for name, text in KINDS.items() if key or name != "conflict"}
    told = {}
    one.sql(MADE.format("t", key))
    for name, text in kinds.items():
        token = f"{name}{key}"
        told[token] = one.sql(text, token=token), text
        left = rows(one, "t")
        one.sql("alter table t rename to u")
        assert other.sql(text, token=token).equals(told[token][0]), name
        with pytest.raises(SqlError, match="'t' does not exist"):
            other.sql(text)
        other.sql(MADE.format("t", key))
        assert one.sql(text, token=token).equals(told[token][0]), name
        assert rows(one, "t") == []
        assert rows(other, "u") == left
        other.sql("drop table t")
        one.sql("alter table u rename to t")
    one.sql("drop table t")
    for made in (False, True):
        for token, (affected, text) in told.items():
            assert other.sql(text, token=token).equals(affected), token
        if not made:
            other.sql(MADE.format("t", key))
    assert rows(one, "t") == []
    for _ in range(2):
        assert one.sql(KINDS["one"], token=f"free{key}").to_pylist() == [{"affected_rows": 1}]
    assert rows(one, "t") == [{"k": "z", "b": 1}]


@pytest.mark.parametrize("dialect", ["spark", "postgres"])
def test_a_statement_of_another_dialect_is_known_by_what_it_was(pair, dialect):
    one, other = pair
    one.sql(MADE.format("t", ""))
    texts = [KINDS["insert"], KINDS["key"], KINDS["update"], KINDS["select"], KINDS["delete"]]
    told = [one.sql(text, dialect, token=f"{dialect}{n}") for n, text in enumerate(texts)]
    left = rows(one, "t")
    one.sql("alter table t rename to u")
    assert [other.sql(text, dialect, token=f"{dialect}{n}") for n, text in enumerate(texts)] == told
    other.sql("create table t (v varchar)")
    assert [one.sql(text, dialect, token=f"{dialect}{n}") for n, text in enumerate(texts)] == told
    assert rows(one, "u") == left


def test_rows_that_were_ingested_are_known_in_every_mode(pair):
    one, other = pair
    for mode in ("append", "create_append", "replace", "upsert"):
        one.sql(MADE.format("t", " primary key"))
        assert one.ingest("t", ROWS, mode=mode, token=mode) == 3
        one.sql("alter table t rename to u")
        assert other.ingest("t", ROWS, mode=mode, token=mode) == 3
        with pytest.raises(SqlError, match=f"'{mode}' was used for a table that was called 't' before"):
            other.ingest("t", ROWS.slice(1), mode=mode, token=mode)
        assert one.sql("show tables")["name"].to_pylist() == ["u"]
        assert len(rows(one, "u")) == 3
        one.sql("drop table u")


def test_what_was_applied_is_told_after_its_columns_changed(pair):
    one, other = pair
    one.sql(MADE.format("t", ""))
    texts = [KINDS["insert"], KINDS["one"], "update t set b = 0 where k = 'a'", "delete from t where k = 'a'"]
    told = [one.sql(text, token=f"altered{n}") for n, text in enumerate(texts)]
    assert one.ingest("t", ROWS, token="altered") == 3
    for definition in ("add column c int", "rename column b to q", "drop column q", "rename to u"):
        one.sql(f"alter table t {definition}")
        assert [other.sql(text, token=f"altered{n}") for n, text in enumerate(texts)] == told, definition
        assert other.ingest("t", ROWS, token="altered") == 3
    assert sorted(row["k"] for row in rows(one, "u")) == ["b", "c", "d", "w", "x", "y", "z"]


def applied_in_one(folder, store, text, token):
    """Have one partition know of an INSERT, as if its scheduler had died before the others heard of it."""
    kept = WriteToken(token, ("execute", text, False), given=True).kept
    TokenClaims(store, SystemRuntime()).claim(folder.name, kept)
    partition = sorted(path.parent.name for path in folder.glob("*/manifest.json"))[0]
    key = f"snapshots/{folder.name}/{partition}/manifest.json"
    epoch = ObjectState(store, key, ManifestDocument, runtime=SystemRuntime()).read().document.epoch
    storage = PartitionStorage(store, folder.name, partition, runtime=SystemRuntime())
    storage.commit(add=(), remove=(), epoch=epoch, token=kept, affected=1)


def test_rows_that_some_partitions_took_are_completed_where_they_are(cluster, pair, wait_until):
    one, other = pair
    one.sql(MADE.format("t", ""))
    store, root = open_store(cluster.state_location), cluster.state_location.removeprefix("file://")
    (folder,) = newest(root, "t")
    half, lost = KINDS["insert"], KINDS["insert"].replace("('a', 1)", "('a', 9)")
    applied_in_one(folder, store, half, "half")
    applied_in_one(folder, store, lost, "lost")
    one.sql("alter table t rename to u")
    other.sql(MADE.format("t", ""))
    affected = other.sql(half, token="half")["affected_rows"].to_pylist()[0]
    there = len(rows(one, "u"))
    assert 0 < there == affected - 1 < 4
    assert rows(one, "t") == []
    one.sql("alter table u add column c int")
    wait_until(lambda: "c" in other.sql("describe u")["column_name"].to_pylist())  # else it completes it
    with pytest.raises(WriteIncomplete, match=r"1 of 4 row\(s\) of the statement are there"):
        other.sql(lost, token="lost")
    assert len(rows(one, "u")) == there


def newest(root, name):
    from pathlib import Path

    found = sorted(Path(root, "snapshots").glob(f"{name}-*"), key=lambda path: path.stat().st_ctime_ns)
    return found[-1:]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_client_that_lost_the_reply_is_told_though_the_table_lost_its_name(pair, swapped):
    """The library sends it again by itself, under a token of its own, and says so."""
    one, other = pair
    one.sql(MADE.format("t", ""))
    sent, real = [], one._pool.ask

    def ask(address, command, **options):
        answer = real(address, command, **options)
        if command.get("kind") == "execute":
            sent.append(command["again"])
            if len(sent) == 1:
                other.sql("alter table t rename to u")
                if swapped:
                    other.sql(MADE.format("t", ""))
                raise TransportError(f"node {address} cannot be reached", peer=address)
        return answer

    one._pool.ask = ask
    try:
        assert one.sql(KINDS["insert"]).to_pylist() == [{"affected_rows": 4}]
    finally:
        one._pool.ask = real
    assert sent == [False, True]
    assert len(rows(one, "u")) == 4
    if swapped:
        assert rows(one, "t") == []


def test_the_scheduler_that_did_it_is_killed_before_the_name_goes(cluster, pair):
    one, other = pair
    one.sql(MADE.format("t", " primary key"))
    kinds = {name: text for name, text in KINDS.items() if name not in ("truncate", "overwrite")}
    told = {name: one.sql(text, token=f"killed {name}") for name, text in kinds.items()}
    left = rows(one, "t")
    address = one._schedulers.addresses[0]
    scheduler = next(m["node_id"] for m in cluster.members() if m["address"] == address)
    cluster.kill(scheduler)
    try:
        other.sql("alter table t rename to u")
        other.sql(MADE.format("t", " primary key"))
        for name, text in kinds.items():
            assert other.sql(text, token=f"killed {name}").equals(told[name]), name
        assert rows(other, "u") == left
        assert rows(other, "t") == []
    finally:
        cluster.start(scheduler)
