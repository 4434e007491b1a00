"""Documents that were deleted, or replaced by an older copy, are named by whoever has seen or proves a newer one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest
from attrs import evolve, frozen

from ballista_py.errors import DocumentLost, DocumentOlder, OutcomeUnknown, RetriesExhausted
from ballista_py.partitions.assignment.assigner import PartitionAssigner
from ballista_py.partitions.discovery import diff_partitions
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    SchedulerInfo,
    partition_map_key,
)
from ballista_py.state.documents.lost_documents import DocumentMemory, Seen
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import HeldPartitions
from ballista_py.state.members.location import check_location
from ballista_py.state.members.membership import Membership
from ballista_py.state.ownership.catalog_proof import read_catalog
from ballista_py.state.ownership.notify import newer_than
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.ownership.table_status import MAX_AHEAD, newest_heard
from ballista_py.state.stores.memory import MemoryStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
SPEC = PartitionSpec.parse(["id"], SCHEMA)


@frozen
class Counter:
    value: int = 0


def one_more(counter: Counter) -> Counter:
    return evolve(counter, value=counter.value + 1)


def put_back(store, key: str, data: bytes | None) -> None:
    store.delete(key)
    if data is not None:
        store.create(key, data)


@pytest.fixture
def counted():
    """A document that was committed ten times, and its bytes after five."""
    store = MemoryStore()
    state = ObjectState(store, "counter.json", Counter)
    state.create(Counter())
    for _ in range(4):
        state.update(one_more)
    copy = store.get("counter.json").data
    for _ in range(5):
        state.update(one_more)
    return store, state, copy


def test_who_has_seen_a_document_names_it_when_it_is_gone_or_older(counted):
    store, state, copy = counted
    for act in (state.read, lambda: state.update(one_more)):
        put_back(store, "counter.json", None)
        with pytest.raises(DocumentLost, match="was there at revision 10"):
            act()
        put_back(store, "counter.json", copy)
        with pytest.raises(DocumentOlder, match="at revision 5, and was at 10"):
            act()
        assert store.get("counter.json").data == copy


def test_an_older_copy_that_others_went_on_from_is_told_from_the_document_that_was_seen(counted):
    store, state, copy = counted
    put_back(store, "counter.json", copy)
    stranger = ObjectState(store, "counter.json", Counter)
    for _ in range(7):
        stranger.update(one_more)
    with pytest.raises(DocumentOlder, match="goes on from an older copy"):
        state.read()


def test_a_memory_is_shared_by_all_who_read_the_document(counted):
    store, _, copy = counted
    memory = DocumentMemory()
    ObjectState(store, "counter.json", Counter, memory=memory).read()
    put_back(store, "counter.json", copy)
    with pytest.raises(DocumentOlder):
        ObjectState(store, "counter.json", Counter, memory=memory).read()


def test_many_who_read_and_write_at_once_never_take_a_document_for_an_older_one():
    store, memory = MemoryStore(), DocumentMemory()
    ObjectState(store, "counter.json", Counter).create(Counter())

    def work(number: int) -> None:
        state = ObjectState(store, "counter.json", Counter, memory=memory)
        for _ in range(60):
            with suppress(OutcomeUnknown, RetriesExhausted):  # the others were that quick
                state.read() if number % 2 else state.update(one_more)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert ObjectState(store, "counter.json", Counter).read().document.value > 60


def test_a_repair_goes_on_above_every_revision_that_was_seen(counted):
    store, _, copy = counted
    put_back(store, "counter.json", copy)
    fresh = ObjectState(store, "counter.json", Counter)
    assert fresh.restore(Counter(7), above=40).header.revision == 41
    assert fresh.restore(Counter(8)).header.revision == 42
    put_back(store, "counter.json", b"torn")
    assert ObjectState(store, "counter.json", Counter).restore(Counter(9), above=42).document == Counter(9)


@pytest.fixture
def located():
    """A location with a table whose map was committed under revision 4 of the catalog, and the catalog at 3."""
    store = MemoryStore()
    cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument)
    cluster.create(ClusterDocument())
    for number in (2, 3, 4):
        if number == 4:
            store.older = store.get(CLUSTER_KEY).data
        cluster.update(lambda document, number=number: evolve(document, labels={"n": str(number)}))
    partitions = PartitionStore(store)
    pmap = partitions.create(PartitionMap.build("t", SPEC, [(1,)]))
    grown = diff_partitions(pmap, [(1,), (2,)], None, after=None)
    partitions.commit(PartitionAssigner().assign(pmap, ()), diff=grown)
    assert ObjectState(store, partition_map_key("t"), PartitionMapDocument).read().document.catalog_revision == 4
    return store


def member(store, runtime) -> Membership:
    return Membership(store, SchedulerInfo(scheduler_id="s1", instance_id=""), runtime=runtime)


def test_a_scheduler_joins_no_location_whose_catalog_is_gone(located, runtime):
    put_back(located, CLUSTER_KEY, None)
    for act in (lambda: check_location(located, "memory://x"), member(located, runtime).join):
        with pytest.raises(DocumentLost, match="this is no new state location"):
            act()
    assert CLUSTER_KEY not in [entry.key for entry in located.list("")]


def test_a_scheduler_writes_nothing_to_a_catalog_that_is_older_than_a_map_proves(located, runtime):
    put_back(located, CLUSTER_KEY, located.older)
    with pytest.raises(DocumentOlder, match=r"cluster.json' is at revision 3, but the partition map of table 't'"):
        member(located, runtime).join()
    assert located.get(CLUSTER_KEY).data == located.older


def test_no_map_is_committed_under_a_catalog_that_is_older_than_it_proves(located):
    put_back(located, CLUSTER_KEY, located.older)
    pmap = PartitionStore(located).read("t")
    grown = diff_partitions(pmap, [(1,), (2,), (3,)], None, after=None)
    with pytest.raises(DocumentOlder):
        PartitionStore(located).commit(PartitionAssigner().assign(pmap, ()), diff=grown)
    with pytest.raises(DocumentOlder):
        read_catalog(located)


def test_a_map_is_not_made_anew_where_its_partitions_lie(located):
    located.create("snapshots/t/id=1/manifest.json", b"{}")
    put_back(located, partition_map_key("t"), None)
    with pytest.raises(DocumentLost, match=r"partitions/t\.json"):
        PartitionStore(located).ensure(PartitionMap.build("t", SPEC, [(1,)]))


def test_the_newest_revision_that_executors_were_told_of_is_that_of_the_table_asked_for():
    def held(table, revision):
        return HeldPartitions(table=table, revision=revision, active=(), epochs=(), loaded=(), failed={})

    reports = {("e1", "i1"): (held("t", 3), held("u", 9)), ("e2", "i2"): (held("t", 5),)}
    assert [newest_heard(name, reports) for name in "tuv"] == [(5, "e2"), (9, "e1"), (0, "")]
    reports["thief", "i3"] = (held("t", 2**53), held("u", 8 + MAX_AHEAD))
    assert [newest_heard(name, reports, 7) for name in "tu"] == [(5, "e2"), (9, "e1")]
    assert newest_heard("u", reports, 8) == (8 + MAX_AHEAD, "thief")


def test_a_map_is_not_looked_for_that_is_further_ahead_than_one_can_be():
    pmap = PartitionMap.build("t", SPEC, [(1,)])
    table = TableSpec(name="t", schema=SCHEMA, spec=SPEC)

    def asked(revision):
        held = HeldPartitions(table=table.folder, revision=revision)
        return newer_than({"t": pmap}, {"t": table}, [held])

    assert asked(pmap.revision + 1) == asked(pmap.revision + MAX_AHEAD) == {"t"}
    assert asked(pmap.revision) == asked(pmap.revision + MAX_AHEAD + 1) == asked(2**53) == frozenset()


def test_a_process_forgets_first_the_partitions_that_it_used_longest_ago():
    memory = DocumentMemory(most=3)
    for number in range(10):
        memory.learn(f"snapshots/t-{number}/manifest.json", Seen(1, str(number)))
        memory.of("snapshots/t-0/manifest.json")
    memory.learn("snapshots/t-8/manifest.json", Seen(2, "new"))
    memory.learn("snapshots/t-10/manifest.json", Seen(1, "10"))
    found = memory.below("snapshots/")
    assert {seen.commit_id for seen in found.values()} == {"0", "new", "10"}
    assert memory.of("snapshots/t-9/manifest.json") is None


def test_partitions_without_end_make_a_process_forget_neither_catalog_nor_maps():
    memory = DocumentMemory(most=10)
    tables = [CLUSTER_KEY, *(partition_map_key(name) for name in "abc")]
    for key in tables:
        memory.learn(key, Seen(7, "of a table"))
    for number in range(1_000):
        memory.learn(f"snapshots/t/p-{number}/manifest.json", Seen(1, str(number)))
    assert all(memory.of(key) == Seen(7, "of a table") for key in tables)
    assert len(memory.below("snapshots/")) == 6
    for number in range(1_000):
        memory.learn(partition_map_key(f"table_{number}"), Seen(1, str(number)))
    assert memory.of(CLUSTER_KEY) == Seen(7, "of a table")
    assert memory.of(partition_map_key("table_999")) == Seen(1, "999")
    assert len(memory.below("")) == 10


def test_many_threads_remember_at_once_and_within_bounds():
    memory = DocumentMemory(most=50)
    memory.learn(CLUSTER_KEY, Seen(1, "c"))

    def use(thread):
        for number in range(2_000):
            memory.learn(f"snapshots/t/{(number * 7 + thread) % 300}/manifest.json", Seen(number, "x"))
            memory.of(f"snapshots/t/{number % 300}/manifest.json")
            memory.below("snapshots/")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, range(4)))
    assert memory.of(CLUSTER_KEY) == Seen(1, "c")
    assert len(memory.below("snapshots/")) == 49
