"""What read jobs and places ask of the store: each object once."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.reads.answers import ReadAnswers
from ballista_py.coordinator.reads.changes import EVERY_FILE
from ballista_py.coordinator.reads.places import TablePlaces
from ballista_py.coordinator.reads.service import TableReads
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Catalog
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.reads.files import PartFile, ReadFiles
from ballista_py.transport.security.signed_tickets import TicketSigner
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.tickets import READ_PURPOSE

SCHEMA = pa.schema([("a", pa.int8())])


class Counting(MemoryStore):
    def __init__(self):
        super().__init__()
        self.got = []

    def get(self, key, max_bytes=1 << 30):
        self.got.append(key.rpartition(".")[2])
        return super().get(key, max_bytes)


@pytest.fixture
def store():
    return Counting()


@pytest.fixture
def reads(store):
    runtime = SystemRuntime()
    nobody = ClusterView(catalog=Catalog(tables={}, maps={}), members=frozenset(), addresses={})
    queries = SimpleNamespace(views=SimpleNamespace(refresh=lambda names: nobody))
    signer = TicketSigner(purpose=READ_PURPOSE, cluster_id="c", runtime=runtime)
    return TableReads(queries, store, runtime, signer)


def files_of(plan):
    part = (PartFile(partition=0, file=DataFile(path="snapshots/t/data/1", rows=3, bytes=9)),)
    return ReadFiles(
        table="t",
        folder="t",
        incarnation="",
        schema=SCHEMA,
        parts=(part,),
        plan=plan,
        columns=("a",),
        given=SCHEMA,
    )


def test_how_busy_executors_are_is_told_with_where_they_are(reads):
    view = ClusterView(
        catalog=Catalog(tables={}, maps={}),
        members=frozenset({("a", "1"), ("b", "2")}),
        addresses={"a": "a:1", "b": "b:1"},
        locations={"a": "grpc://a:1", "b": "grpc://b:1"},
    )
    reads.queries.views.refresh = lambda names: view
    reads.loads = lambda: {"b": 75, "gone": 30}
    read_id, _ = reads.leases.take(files_of("select a from t"), "ada", reads.runtime.monotonic_ms())
    (part,) = reads.located(read_id, [0], "ada")
    assert dict(zip(part.locations, part.loads, strict=True)) == {"grpc://a:1": 0, "grpc://b:1": 75}
    located = ReadAnswers(reads).locate(pb.Locate(read_id=read_id, partitions=[0]), "ada")
    (said,) = located.partitions
    assert {one.uri: one.hints.load for one in said.locations} == {"grpc://a:1": 0, "grpc://b:1": 75}


def test_where_parts_are_is_told_by_one_look_at_the_lease(reads, store):
    read_id, digest = reads.leases.take(files_of("select a from t"), "ada", reads.runtime.monotonic_ms())
    assert reads.leases.read(read_id).digest == digest
    store.got.clear()
    assert len(reads.located(read_id, [0], "ada")) == 1
    assert sorted(store.got) == ["files", "json"]


def test_what_changed_is_told_without_a_look_at_the_lease_that_was_just_taken(reads, store):
    place, _ = reads.leases.take(files_of(EVERY_FILE), "ada", reads.runtime.monotonic_ms())
    store.got.clear()
    changed, former = TablePlaces(reads).between("", place, "ada")
    assert (len(changed.parts), former) == (1, (0,))
    assert sorted(store.got) == ["files", "json"]
    assert reads.files_of(changed.read_id, "ada")[0].parts == files_of("").parts
