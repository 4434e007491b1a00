"""Large tables whose rows change by key at a real cluster: no file is written anew, and everybody sees the same."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import SqlError
from ballista_py.sql.rewrite import PLACE
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.store import open_store
from ballista_py.storage.manifest import ManifestDocument

pytestmark = pytest.mark.cluster

ROWS = 60_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("note", pa.string())])
KEY = pa.struct([SCHEMA.field("id")])
CHANGES = pa.schema([("op", pa.string()), ("old", KEY), ("new", pa.struct(list(SCHEMA)))])


def first_rows() -> pa.Table:
    notes = [None if n % 7 == 0 else f"n{n}" for n in range(ROWS)]
    return pa.table([pa.array(range(ROWS)), pa.array(range(ROWS)), pa.array(notes)], schema=SCHEMA)


def some_changes(chosen: random.Random, model: dict[int, tuple[int, str | None]], count: int) -> pa.Table:
    """Changes of rows that there are, as they are made in the model at the same time."""
    told: list[dict[str, Any]] = []
    for key in chosen.sample(sorted(model), count):
        what = chosen.choice(["update", "update", "delete", "move"])
        if what == "delete":
            told.append({"op": "delete", "old": {"id": key}, "new": None})
            del model[key]
            continue
        new = key if what == "update" else key + 10_000_000
        if new != key and new in model:
            continue
        del model[key]
        model[new] = (chosen.randrange(1_000), chosen.choice([None, "x", "y"]))
        row = {"id": new, "v": model[new][0], "note": model[new][1]}
        told.append({"op": "update", "old": {"id": key}, "new": row})
    return pa.Table.from_pylist(told, schema=CHANGES)


def rows(cluster: LocalCluster, **options: Any) -> dict[int, tuple[int, str | None]]:
    found = cluster.sql("select id, v, note from t", **options).to_pydict()
    assert len(set(found["id"])) == len(found["id"])
    return dict(zip(found["id"], zip(found["v"], found["note"], strict=True), strict=True))


def vectors(cluster: LocalCluster) -> int:
    store = open_store(cluster.state_location)
    keys = [entry.key for entry in store.list("snapshots/t") if entry.key.endswith("/manifest.json")]
    found = [ObjectState(store, key, ManifestDocument).read().document for key in keys]
    return sum(file.original is not None for one in found for file in one.files)


def test_rows_change_by_key_while_executors_die_and_nobody_sees_another_table():
    chosen = random.Random(7)
    with LocalCluster(schedulers=2, executors=3, ttl_ms=2_000, node_options={"replicas": "2"}) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"], primary_key=["id"])
        cluster.ingest("t", first_rows())
        table = first_rows().to_pydict()
        model = dict(zip(table["id"], zip(table["v"], table["note"], strict=True), strict=True))
        with cluster.client() as client:
            for turn in range(5):
                client.apply_changes("t", some_changes(chosen, model, 300))
                assert rows(cluster) == model
                if turn == 1:
                    assert vectors(cluster) == 2
                    cluster.kill("executor-1")
                if turn == 2:
                    cluster.start("executor-1")
                if turn == 3:
                    cluster.sql("alter table t add column more integer default 5")
                    cluster.sql("alter table t drop column more")
            assert vectors(cluster) >= 2
            with pytest.raises(SqlError):  # what owners call the place of a row is no column of a statement
                cluster.sql(f'delete from t where "{PLACE}" < 5')
            for statement in ("update t set v = -1 where id % 1000 = 3", "delete from t where id % 1000 = 4"):
                cluster.sql(statement)
            model = {
                key: (-1 if key % 1000 == 3 else v, note) for key, (v, note) in model.items() if key % 1000 != 4
            }
            assert rows(cluster) == model
            client.apply_changes("t", some_changes(chosen, model, 200))
            assert cluster.sql("select count(*) as n from t where note is not null")["n"].to_pylist() == [
                sum(note is not None for _, note in model.values())
            ]
            assert rows(cluster) == model
            assert cluster.sql("select count(*) as n from t")["n"].to_pylist() == [len(model)]


def test_whoever_starts_anew_reads_the_vectors_from_the_store(tmp_path):
    chosen, location = random.Random(8), (tmp_path / "state").as_uri()
    table = first_rows().to_pydict()
    model = dict(zip(table["id"], zip(table["v"], table["note"], strict=True), strict=True))
    with LocalCluster(executors=2, state_location=location) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"], primary_key=["id"])
        cluster.ingest("t", first_rows())
        with cluster.client() as client:
            for _ in range(2):
                client.apply_changes("t", some_changes(chosen, model, 200))
        assert vectors(cluster) == 2
    for engine in ("duckdb", "polars"):
        with LocalCluster(executors=1, state_location=location, engine=engine) as cluster:
            assert rows(cluster) == model
            with cluster.client() as client:
                client.apply_changes("t", some_changes(chosen, model, 50))
            assert rows(cluster) == model


@pytest.mark.whole
def test_spark_reads_the_rows_that_are_left():
    chosen = random.Random(9)
    with LocalCluster(executors=1) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"], primary_key=["id"])
        cluster.ingest("t", first_rows())
        table = first_rows().to_pydict()
        model = dict(zip(table["id"], zip(table["v"], table["note"], strict=True), strict=True))
        with cluster.client() as client:
            client.apply_changes("t", some_changes(chosen, model, 200))
        assert vectors(cluster) == 2
        assert rows(cluster, engine="spark") == model
