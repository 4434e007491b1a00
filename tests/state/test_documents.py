"""The JSON of every document, held against golden files, so that a change of format is seen."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import orjson
import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.errors import DocumentUnreadable, InvariantViolated
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.refresh import Refresh, Retention
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec, from_keys, in_keys, table_folder
from ballista_py.state.documents.codec import DocumentCodec, Header, table_from_json, table_to_json
from ballista_py.state.documents.documents import (
    REMEMBERED_DEFINITIONS,
    REMEMBERED_DROPS,
    REMEMBERED_NAMES,
    AppliedApp,
    ClusterDocument,
    FormerName,
    HeartbeatDocument,
    PartitionMapDocument,
    SchedulerInfo,
    heartbeat_key,
    map_name_of,
    partition_map_key,
)
from ballista_py.state.documents.jobs import JobChunk, JobDocument, JobRequest, job_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.slots import SlotOutcome, SlotsDocument, slots_key
from ballista_py.state.members.control import ExecutorInfo
from ballista_py.state.stores.memory import MemoryStore

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
BUCKETS = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
REGIONS = PartitionSpec.parse([{"area": "region"}], SCHEMA)
INFO = ExecutorInfo(executor_id="e1", instance_id="i1", data_address="h:3", capacity=2.0, labels={"zone": "a"})


def assigned_map() -> PartitionMap:
    pmap = PartitionMap.build("events", REGIONS, [("eu",), ("us",), (None,)], weights=[3.0, 2.0, 1.0])
    executors = [Executor("e1", "i1"), Executor("e2", "i2")]
    owned = pmap.apply(PartitionAssigner().assign(pmap, executors[:1]))
    return owned.apply(PartitionAssigner().assign(owned, executors))


JOB_ID = "67e5504410b1426f9247bb680e5fe0c8"
DOCUMENTS = {
    "cluster": (
        "cluster.json",
        evolve(
            ClusterDocument(
                schedulers={
                    "s1": SchedulerInfo(
                        scheduler_id="s1", instance_id="i0", flight_address="h:1", control_address="h:2"
                    )
                },
                tables={
                    "events": TableSpec(
                        name="events",
                        schema=SCHEMA,
                        spec=BUCKETS,
                        group="g",
                        source={"path": "/data/*.parquet"},
                        refresh=Refresh(mode="append", every="5m", time_column="at", overlap="1h"),
                        retention=Retention(sql="delete from events where id < 7"),
                    ),
                    "nation": TableSpec(
                        name="nation", schema=SCHEMA, spec=PartitionSpec.whole(), distribution="replicated"
                    ),
                },
                labels={"team": "ünit"},
                lost_instances=("i9",),
                app=AppliedApp(
                    name="shop",
                    revision=3,
                    digest="d1",
                    by="i0",
                    complete=True,
                    datasets={"events": "events-5f2a", "nation": ""},
                    settings={"replicas": "2"},
                ),
            ).admit(INFO)
        ),
    ),
    "heartbeat": (
        heartbeat_key("s1"),
        HeartbeatDocument(
            scheduler_id="s1",
            instance_id="i0",
            beats=7,
            uptime_ms=1234.5,
            silences={"i1": 20.25},
            ended_by="i5",
            last_heartbeat_ms=1_700_000_000_000,
        ),
    ),
    "partition_map_static": (
        partition_map_key("t"),
        PartitionMapDocument(map=PartitionMap.build("t", BUCKETS, BUCKETS.static_values())),
    ),
    "partition_map": (partition_map_key("events"), PartitionMapDocument(map=assigned_map())),
    "slots": (
        slots_key("events-5f2a", "refresh"),
        SlotsDocument(series="refresh-0a")
        .begun("h1", "i0", 1_700_000_000_000)
        .ended(
            "h1",
            SlotOutcome(slot=1, mode="full", at_ms=1_700_000_000_000, took_ms=12.5, rows=3, bytes=99),
            "d1",
            5,
        ),
    ),
    "job": (
        job_key(JOB_ID, "ada"),
        JobDocument(
            job_id=JOB_ID,
            client="ada",
            request=JobRequest(sql="select 1", dialect="spark", name="nightly", priority=7),
            state="SUCCEEDED",
            attempt=2,
            owner="s1",
            instance="i0",
            rows=3,
            bytes=120,
            files="f0",
            chunks=(JobChunk(rows=3, bytes=120, digest="d0"),),
            schema="c2NoZW1h",
            submitted_at_ms=1_700_000_000_000,
        ),
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_json_of_a_document_is_the_golden_one_and_reads_back_equal(name, unreliable, runtime):
    """`GOLDEN_WRITE=1` writes the files anew; look at the difference before you commit it."""
    key, document = DOCUMENTS[name]
    state = ObjectState(unreliable, key, type(document), runtime=runtime, committed_by="i0")
    state.create(document)
    data = orjson.dumps(orjson.loads(unreliable.get(key).data), option=orjson.OPT_INDENT_2) + b"\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("GOLDEN_WRITE"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    assert data == path.read_bytes()
    assert state.read().document == document


def test_a_table_spec_survives_json_exactly():
    table = DOCUMENTS["cluster"][1].tables["events"]
    assert table_from_json(table_to_json(table)) == table
    with pytest.raises(DocumentUnreadable):
        table_from_json(b"{}")


def test_a_catalog_of_a_release_that_knew_no_application_is_read():
    store = MemoryStore()
    written = orjson.loads((GOLDEN / "cluster.json").read_bytes())
    del written["app"]
    store.create("cluster.json", orjson.dumps(written))
    assert ObjectState(store, "cluster.json", ClusterDocument).read().document == evolve(
        DOCUMENTS["cluster"][1], app=None
    )


def test_a_catalog_of_a_release_that_knew_no_refreshes_is_read():
    store = MemoryStore()
    written = orjson.loads((GOLDEN / "cluster.json").read_bytes())
    for table in written["tables"].values():
        del table["refresh"], table["retention"]
    store.create("cluster.json", orjson.dumps(written))
    found = ObjectState(store, "cluster.json", ClusterDocument).read().document.tables["events"]
    assert found == evolve(DOCUMENTS["cluster"][1].tables["events"], refresh=None, retention=None)


def test_an_executor_that_was_removed_is_remembered_within_a_bound():
    cluster = ClusterDocument()
    for number in range(300):
        info = evolve(INFO, instance_id=f"i{number}")
        cluster = cluster.admit(info).without_executors(frozenset({("e1", f"i{number}")}))
    assert cluster.lost_instances == tuple(f"i{number}" for number in range(300 - 256, 300))
    assert (cluster.admissions, cluster.executors) == (300, {})


def test_removing_names_the_instance():
    cluster = ClusterDocument().admit(INFO)
    assert cluster.without_executors(frozenset({("e1", "other")})) is cluster
    listed = evolve(cluster, schedulers={"s1": SchedulerInfo(scheduler_id="s1", instance_id="i0")})
    assert listed.without_scheduler("s1", "other") is listed
    assert listed.without_scheduler("s1", "i0").schedulers == {}


@pytest.mark.parametrize("capacity", [float("nan"), float("inf")])
def test_what_nobody_could_read_afterwards_is_not_written(capacity):
    store = MemoryStore()
    state = ObjectState(store, "cluster.json", ClusterDocument)
    state.create(ClusterDocument())
    before = store.get("cluster.json").data
    with pytest.raises(InvariantViolated, match="nothing was written"):
        state.update(lambda document: document.admit(evolve(INFO, capacity=capacity)))
    assert store.get("cluster.json").data == before
    assert state.update(lambda document: document.admit(INFO)).document.executors


def test_every_kind_of_document_has_its_name_and_version_for_good():
    """Nodes of two releases, and copies that were put back, know documents by these."""
    kinds = {}
    for name in ("state.documents", "storage"):
        package = import_module(f"ballista_py.{name}")
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(import_module(found.name)).values():
                if isinstance(value, type) and "document_kind" in vars(value):
                    kinds[value.document_kind] = value.schema_version
    expected = (
        "claim cluster garbage heartbeat job manifest partition_map policies read seen slots statements table"
    )
    expected += " token_claim write"
    assert kinds == dict.fromkeys(expected.split(), 1)


@pytest.mark.parametrize("name", ["orders", "größe 1", "表-2", "a_b", "1 2", "ü" * 31])
def test_the_name_of_a_table_is_found_again_in_its_keys(name):
    assert from_keys(in_keys(name)) == name
    assert set(in_keys(name)) <= set("abcdefghijklmnopqrstuvwxyz0123456789_~")
    assert map_name_of(partition_map_key(name)) == name
    assert len(partition_map_key(name).rpartition("/")[2]) < 255


def test_no_two_tables_share_a_folder():
    """A name with a sign in it is told from another one with an incarnation."""
    assert table_folder("a", "b") != table_folder("a-b", "") != table_folder("a b", "")


@pytest.mark.parametrize("name", [None, 7, 0.5, True, ["t"], {"t": 1}, "\ud800"], ids=repr)
def test_a_map_whose_table_has_no_name_is_unreadable(name):
    store, key = MemoryStore(), partition_map_key("t")
    state = ObjectState(store, key, PartitionMapDocument)
    state.create(PartitionMapDocument(map=PartitionMap.build("t", BUCKETS, BUCKETS.static_values())))
    stored = store.get(key)
    raw = orjson.loads(stored.data)
    (place,) = [path for path in (raw, raw["map"]) if path.get("table") == "t"]
    place["table"] = name
    store.replace(key, json.dumps(raw).encode(), stored.version)
    with pytest.raises(DocumentUnreadable, match="accelerations/partitions/t"):
        ObjectState(store, key, PartitionMapDocument).read()


def test_the_catalog_remembers_the_names_that_tables_lost():
    def table(name, incarnation):
        return TableSpec(name=name, schema=SCHEMA, spec=BUCKETS, group="g", incarnation=incarnation)

    one, two = table("a", "1"), table("a", "2")
    cluster = ClusterDocument().with_table(one).with_replaced(two)
    assert cluster.former_names == (FormerName(name="a", folder="a-1"),)
    renamed = evolve(cluster.tables["a"], name="b", made_as="a")
    cluster = cluster.with_renamed("a", renamed)
    assert [(lost.name, lost.folder) for lost in cluster.former_names] == [("a", "a-1"), ("a", "a-2")]
    back = cluster.with_renamed("b", two)  # it has its name again
    assert [(lost.name, lost.folder) for lost in back.former_names] == [("a", "a-1"), ("b", "a-2")]
    cluster = back.without_table("a")
    assert [lost.folder for lost in cluster.former_names] == ["a-1", "a-2", "a-2"]
    for number in range(REMEMBERED_NAMES + 5):
        cluster = cluster.with_table(table("c", f"c{number}")).without_table("c")
    assert len(cluster.former_names) == REMEMBERED_NAMES


def test_the_catalog_remembers_marks_of_definitions_once_and_within_a_bound():
    table = TableSpec(name="a", schema=SCHEMA, spec=BUCKETS, incarnation="1")
    cluster = ClusterDocument().with_table(table, "made").with_altered(evolve(table, definition=1), "altered")
    assert cluster.tables["a"].definition == 1
    assert cluster.definitions == ("made", "altered")
    assert cluster.noted("altered") is cluster
    assert cluster.noted("nothing to do").definitions == ("made", "altered", "nothing to do")
    assert cluster.without_table("a", "dropped").definitions == ("made", "altered", "dropped")
    assert cluster.without_table("a").definitions == ("made", "altered")
    assert cluster.without_table("b", "dropped") is cluster
    for number in range(REMEMBERED_DEFINITIONS):
        cluster = cluster.noted(f"m{number}")
    assert cluster.definitions == tuple(f"m{number}" for number in range(REMEMBERED_DEFINITIONS))


def test_the_catalog_remembers_dropped_tables_within_a_bound_until_their_name_is_taken():
    def table(name, incarnation="1"):
        return TableSpec(name=name, schema=SCHEMA, spec=BUCKETS, incarnation=incarnation)

    cluster = ClusterDocument()
    for number in range(REMEMBERED_DROPS + 2):
        cluster = cluster.with_table(table(f"t{number}")).without_table(f"t{number}")
    assert list(cluster.dropped) == [f"t{number}" for number in range(2, REMEMBERED_DROPS + 2)]
    assert cluster.namings == REMEMBERED_DROPS + 2
    cluster = cluster.with_table(table("t5", "2"))
    assert "t5" not in cluster.dropped
    assert cluster.tables["t5"].named == cluster.namings == REMEMBERED_DROPS + 3
    replaced = cluster.with_replaced(table("t5", "3"))
    assert list(replaced.dropped) == [*cluster.dropped, "t5-2"]
    assert list(replaced.with_replaced(table("t5", "4")).dropped) == [*list(cluster.dropped)[1:], "t5-2", "t5-3"]


def test_a_table_that_nobody_can_read_is_dropped_by_its_name():
    cluster = evolve(ClusterDocument(), unreadable={"bad": 1, "other": 2})
    assert cluster.without_table("bad", "mark").unreadable == {"other": 2}
    assert cluster.without_table("bad", "mark").definitions == ("mark",)


def test_a_commit_writes_tables_that_it_did_not_change_as_they_were_read():
    codec, schema = DocumentCodec(ClusterDocument), pa.schema([("k", pa.int64())])
    header = Header(
        kind="cluster",
        schema_version=1,
        revision=1,
        commit_id="c",
        committed_by="",
        updated_at_ms=0,
        recent_commits=("c",),
    )
    tables = {
        f"t{n}": TableSpec(name=f"t{n}", schema=schema, spec=PartitionSpec.parse(["k"], schema)) for n in range(20)
    }
    raw = orjson.loads(codec.encode("cluster.json", header, ClusterDocument(tables=tables)))
    raw["tables"]["t3"]["of_a_newer_release"] = {"a": [1]}
    raw["tables"]["t4"]["of_a_newer_release"] = 7
    before = codec.decode("cluster.json", orjson.dumps(raw))
    dropped = before.document.without_table("t5", "mark")
    changed = dropped.with_altered(evolve(dropped.tables["t4"], definition=1))
    data = codec.encode("cluster.json", header, changed, before)
    after = codec.decode("cluster.json", data)
    assert after.document == changed
    assert after.raw["tables"]["t3"] == raw["tables"]["t3"]
    assert after.raw["tables"]["t4"]["of_a_newer_release"] == 7
    kept = after.document.tables
    assert sum(kept[name] is table for name, table in before.document.tables.items() if name in kept) == 18
    anew = evolve(changed, tables={name: evolve(table) for name, table in changed.tables.items()})
    assert orjson.loads(codec.encode("cluster.json", header, anew, before)) == orjson.loads(data)
