"""A document says whose it is: one that lies in the place of another is named at every way in, and never written to."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from ballista_py.errors import BallistaError, DocumentUnreadable, InvariantViolated
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.claims import ClaimDocument
from ballista_py.state.documents.decisions import StatementsDocument, TableDecisions, statements_key
from ballista_py.state.documents.documents import (
    HeartbeatDocument,
    PartitionMapDocument,
    TableDocument,
    heartbeat_key,
    partition_map_key,
    table_key,
)
from ballista_py.state.documents.fence import activate
from ballista_py.state.documents.jobs import JobDocument, JobRequest, job_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.token_claims import TokenClaim, token_key
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import TAIL_TOKENS, DataFile, ManifestDocument, Prepared, manifest_key
from ballista_py.storage.partition_storage import PartitionStorage

SCHEMA = pa.schema([("k", pa.int64())])


def table(name: str, incarnation: str = "") -> TableSpec:
    return TableSpec(
        name=name, schema=SCHEMA, spec=PartitionSpec.parse(["bucket(2, k)"], SCHEMA), incarnation=incarnation
    )


def map_of(name: str) -> PartitionMapDocument:
    spec = table(name).spec
    return PartitionMapDocument(map=PartitionMap.build(name, spec, spec.static_values()))


FIRST, SECOND = table("t", "1"), table("t", "2")
# By kind, two documents and where they belong.
KINDS = {
    "manifests of one table": [
        (manifest_key("t", path), ManifestDocument(table="t", partition=path)) for path in ("p=0", "p=1")
    ],
    "manifests of one name": [
        (manifest_key(spec.folder, "p=0"), ManifestDocument(table=spec.folder, partition="p=0"))
        for spec in (FIRST, SECOND)
    ],
    "maps": [(partition_map_key(name), map_of(name)) for name in ("t", "u")],
    "decisions": [(statements_key(name), StatementsDocument(sequence=n)) for n, name in enumerate("tu")],
    "tables": [(table_key(spec.folder), TableDocument(table=spec)) for spec in (FIRST, SECOND)],
    "heartbeats": [
        (heartbeat_key(name), HeartbeatDocument(scheduler_id=name, instance_id="i")) for name in ("s1", "s2")
    ],
    "jobs": [
        (job_key(name), JobDocument(job_id=name, request=JobRequest(sql="select 1"))) for name in ("j1", "j2")
    ],
    "claims": [(f"accelerations/claims/{name}.json", ClaimDocument(prefix=name)) for name in ("c1", "c2")],
    "tokens": [(token_key("t", name), TokenClaim(token=name)) for name in ("load-1", "load-2")],
}
UNSAID = {"decisions", "claims", "tokens"}  # only the header says whose these are


def swap(store, one: str, other: str) -> dict[str, bytes]:
    """Put each of two objects in the place of the other; what lies where then."""
    here, there = store.get(one).data, store.get(other).data
    for key, data in ((one, there), (other, here)):
        store.delete(key)
        store.create(key, data)
    return {one: there, other: here}


def refused(store, lies: dict[str, bytes], *verbs) -> None:
    """Every verb names the document, the second time too, and nothing is written."""
    for verb in (*verbs, *verbs):
        with pytest.raises(DocumentUnreadable, match="belongs to") as raised:
            verb()
        assert raised.value.details["key"] in lies
    assert {key: store.get(key).data for key in lies} == lies


@pytest.mark.parametrize(
    ("kind", "headers"),
    [(kind, "as written") for kind in KINDS]
    + [(kind, "of an earlier release") for kind in KINDS if kind not in UNSAID],
)
def test_two_documents_that_were_swapped_are_named_at_every_read_and_change(kind, headers):
    store = MemoryStore()
    for key, document in KINDS[kind]:
        ObjectState(store, key, type(document)).create(document)
    (one, document), (other, _) = KINDS[kind]
    if headers != "as written":
        for key in (one, other):
            raw = orjson.loads(store.get(key).data)
            del raw["header"]["key"]
            store.delete(key)
            store.create(key, orjson.dumps(raw))
        assert ObjectState(store, one, type(document)).read().document == document
    lies = swap(store, one, other)
    for key in lies:
        state = ObjectState(store, key, type(document))
        refused(store, lies, state.read, lambda state=state: state.update(lambda same: same))
    if hasattr(document, "epoch"):
        refused(store, lies, lambda: activate(ObjectState(store, one, type(document)), 9))


def test_a_document_is_not_written_where_another_belongs():
    (one, document), (other, _) = KINDS["maps"]
    store = MemoryStore()
    with pytest.raises(InvariantViolated, match="would become"):
        ObjectState(store, other, PartitionMapDocument).create(document)
    ObjectState(store, one, PartitionMapDocument).create(document)
    with pytest.raises(InvariantViolated):
        ObjectState(store, one, PartitionMapDocument).update(lambda _: map_of("u"))


def test_no_verb_of_a_partition_touches_the_manifest_of_another(store, clock):
    file = DataFile(path="snapshots/t/data/a", rows=1, bytes=1)
    parts = []
    for path in ("p=0", "p=1"):
        parts.append(PartitionStorage(store, "t", path, runtime=clock, committed_by="i1"))
        parts[-1].create()
        parts[-1].activate(1)
    lies = swap(store, manifest_key("t", "p=0"), manifest_key("t", "p=1"))
    prepared = Prepared(attempt="a", token="s", add=(file,))
    for part in (*parts, PartitionStorage(store, "t", "p=0", runtime=clock, committed_by="i2")):
        refused(
            store,
            lies,
            part.read,
            part.create,
            lambda part=part: part.activate(1),
            lambda part=part: part.activate(2),
            lambda part=part: part.commit(add=[file], epoch=1, token="s"),
            lambda part=part: part.prepare(prepared, epoch=1),
            lambda part=part: part.prepare_run(prepared, (None, None), replaces=True),
            lambda part=part: part.fold("a", epoch=None),
            lambda part=part: part.abandon("a", epoch=None),
            lambda part=part: part.compact(add=[], remove=[], epoch=1),
        )


@pytest.mark.parametrize("role", ["owner", "target", "replica"])
def test_an_executor_serves_nothing_of_swapped_manifests_whatever_it_is_told(world, role):
    for partition, key in ((1, 10), (2, 20)):
        world.put(partition, key)
    lies = swap(world.store, manifest_key("t", "expr0=1"), manifest_key("t", "expr0=2"))
    for revision in (1, 2, 3):  # with every start the epochs are higher
        world.holder.apply(world.update(revision, (1, revision, role), (2, revision, role)))
        world.holder.tick()
        (report,) = world.holder.held()
        assert (report.active, report.loaded, sorted(report.failed)) == ((), (), [1, 2])
        assert all("belongs to" in reason for reason in report.failed.values())
        with pytest.raises(BallistaError, match="belongs to"):
            world.holder.files_for(world.leg((1, revision), (2, revision)))
    assert {key: world.store.get(key).data for key in lies} == lies


def test_no_verb_on_maps_and_decisions_takes_those_of_another_table():
    store = MemoryStore()
    for name in ("t", "u"):
        PartitionStore(store).create(map_of(name).map)
        TableDecisions(store, name).commit(f"a-{name}", f"s-{name}", affected=1)
    lies = swap(store, partition_map_key("t"), partition_map_key("u"))
    maps = PartitionStore(store)
    refused(store, lies, lambda: maps.read("t"), lambda: maps.ensure(map_of("t").map))
    lies = swap(store, statements_key("t"), statements_key("u"))
    decided = TableDecisions(store, "t")
    refused(
        store,
        lies,
        decided.read,
        lambda: decided.commit("b", "s", affected=1),
        lambda: decided.abort("a-t"),
        lambda: decided.supersede("b", "a-t"),
        lambda: decided.settle("a-t"),
    )


def test_a_page_of_tokens_in_the_place_of_another_proves_nothing_and_nothing_is_applied_twice(store, clock):
    def owner(path: str) -> PartitionStorage:
        return PartitionStorage(store, "t", path, runtime=clock)

    pages = []
    for path in ("p=0", "p=1"):
        storage = owner(path)
        storage.create()
        storage.activate(1)
        for n in range(TAIL_TOKENS + 1):
            storage.commit(epoch=1, token=f"{path}-{n}")
        pages.append(storage.read().document.pages[0].path)
    swap(store, *pages)
    before = {path: store.get(manifest_key("t", path)).data for path in ("p=0", "p=1")}
    for _ in range(2):
        for path in ("p=0", "p=1"):
            with pytest.raises(DocumentUnreadable, match="not the page of tokens"):
                owner(path).commit(epoch=1, token=f"{path}-0")
    assert {path: store.get(manifest_key("t", path)).data for path in before} == before
