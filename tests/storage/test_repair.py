"""A location is repaired from its manifests: all rows again, and nothing that was given out is given out again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.errors import TryLater
from ballista_py.partitions.alterations import rename_table
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.decisions import TableDecisions, statements_key
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    HeartbeatDocument,
    TableDocument,
    heartbeat_key,
    partition_map_key,
    table_key,
)
from ballista_py.state.documents.lost_documents import DocumentMemory
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import ExecutorInfo
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.held.seen import SeenManifests, seen_key
from ballista_py.storage.manifest import Prepared, manifest_key
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.repair import Repairs, find_repairs, require_nobody_alive

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
E1 = Executor("e1", "i1")


class Location:
    """A location with a table of buckets and one of values, both with rows, epochs and statements behind them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.cluster = ObjectState(self.store, CLUSTER_KEY, ClusterDocument)
        info = ExecutorInfo(executor_id="e1", instance_id="i1", data_address="h:1")
        self.cluster.create(ClusterDocument().admit(info))
        self.maker = TableMaker(self.store, SystemRuntime())
        self.buckets = self.maker.create("b", None, ["bucket(2, k)"], schema=SCHEMA)
        self.values = self.maker.create("w", None, ["v"], schema=SCHEMA)
        self.files = 0
        for value in ("x", "y/ü"):
            self.add_value(value)
        for table in (self.buckets, self.values):
            self.assign(table.name)
        for path in ("expr0=0", "expr0=1"):
            self.decide(self.buckets, path)

    def maps(self) -> PartitionStore:
        return PartitionStore(self.store)

    def assign(self, name: str) -> None:
        pmap = self.maps().read(name)
        self.maps().commit(PartitionAssigner().assign(pmap, [E1]))
        pmap = self.maps().read(name)
        table = self.cluster.read().document.tables[name]
        for partition in range(len(pmap)):
            storage = self.storage(table, pmap.path(partition))
            storage.create()
            storage.activate(pmap.epoch(partition))

    def storage(self, table, path: str) -> PartitionStorage:
        return PartitionStorage(self.store, table.folder, path, committed_by="i1")

    def file(self, table, key: int, value: str):
        self.files += 1
        rows = pa.table({"k": [key], "v": [value]}, schema=SCHEMA)
        return write_data_file(self.store, f"snapshots/{table.folder}/data/{self.files}.parquet", rows)

    def add_value(self, value: str) -> None:
        from ballista_py.partitions.discovery import added_partitions

        pmap = self.maps().read("w")
        storage = self.storage(self.values, self.values.spec.path((value,)))
        storage.create()
        self.maps().commit(PartitionAssigner().assign(pmap, ()), diff=added_partitions(pmap, [(value,)]))
        storage.commit(add=[self.file(self.values, 1, value)], epoch=0, token=f"row-{value}")

    def decide(self, table, path: str, *, fold: bool = True) -> str:
        """One statement over that partition; its attempt."""
        storage = self.storage(table, path)
        attempt = f"a{self.files}"
        add = (self.file(table, 2, "z"),)
        storage.prepare(
            Prepared(attempt=attempt, token=f"s{self.files}", add=add), epoch=storage.read().document.epoch
        )
        if fold:
            decision = TableDecisions(self.store, table.folder).commit(attempt, f"s{self.files}", affected=1)
            storage.fold(attempt, epoch=None, sequence=decision.sequence)
        return attempt

    def lose(self, key: str, copy: bytes | None = None) -> None:
        self.store.delete(key)
        if copy is not None:
            self.store.create(key, copy)

    def repair(self) -> list[str]:
        found = find_repairs(self.store)
        for one in found.repairs:
            one.apply()
        assert find_repairs(self.store).repairs == ()
        return [one.key for one in found.repairs]


@pytest.fixture
def location():
    return Location()


def test_an_empty_location_has_nothing_to_repair():
    assert find_repairs(MemoryStore()) == Repairs()


def test_a_whole_location_has_nothing_to_repair(location):
    found = find_repairs(location.store)
    assert (found.repairs, found.beyond) == ((), ())


@pytest.mark.parametrize("name", ["b", "w"])
def test_a_map_comes_back_with_every_value_and_epochs_above_those_in_manifests(location, name):
    before = location.maps().read(name)
    location.lose(partition_map_key(name))
    assert location.repair() == [partition_map_key(name)]
    after = location.maps().read(name, location.cluster.read().document.tables[name].incarnation)
    assert {after.value(p) for p in range(len(after))} == {before.value(p) for p in range(len(before))}
    epochs = {before.path(p): before.epoch(p) for p in range(len(before))}
    assert all(after.epoch(p) > epochs[after.path(p)] and after.owner(p) is None for p in range(len(after)))


@pytest.mark.parametrize("lost", [True, False])
def test_a_map_gets_partitions_whose_only_rows_a_decided_statement_waits_to_put_there(location, lost):
    """The client was told that its rows are there; nobody has folded them in yet."""
    table, key = location.values, partition_map_key("w")
    storage = location.storage(table, table.spec.path(("new",)))
    storage.create()
    storage.prepare(Prepared(attempt="a", token="s", add=(location.file(table, 9, "new"),)), epoch=0)
    TableDecisions(location.store, table.folder).commit("a", "s", affected=1)
    if lost:
        location.lose(key)
    assert location.repair() == [key]
    pmap = location.maps().read("w")
    assert ("new",) in {pmap.value(p) for p in range(len(pmap))}


def test_an_older_map_gets_the_values_that_it_lacks_and_keeps_its_own_places(location):
    copy = location.store.get(partition_map_key("w")).data
    location.add_value("late")
    location.assign("w")
    location.lose(partition_map_key("w"), copy)
    assert location.repair() == [partition_map_key("w")]
    pmap = location.maps().read("w")
    assert [pmap.value(p) for p in range(3)] == [("x",), ("y/ü",), ("late",)]


def test_an_older_map_at_the_same_epoch_of_another_owner_is_repaired(location):
    copy = location.store.get(partition_map_key("b")).data
    path = location.maps().read("b").path(0)
    storage = PartitionStorage(location.store, location.buckets.folder, path, committed_by="another")
    epoch = storage.read().document.epoch
    location.lose(partition_map_key("b"), copy)
    storage.activate(epoch + 1)
    assert location.repair() == [partition_map_key("b")]
    assert location.maps().read("b").epoch(0) > epoch + 1


def test_decisions_go_on_from_what_manifests_know_and_open_attempts_are_ended(location):
    attempt = location.decide(location.buckets, "expr0=0", fold=False)
    key = statements_key(location.buckets.folder)
    location.lose(key)
    assert location.repair() == [key]
    decisions = TableDecisions(location.store, location.buckets.folder)
    assert decisions.read().sequence == 2
    assert decisions.read().on(attempt).committed is False
    assert not decisions.commit(attempt, "late", affected=1).committed
    assert not decisions.commit("unheard", "s", affected=1, begun=1).committed  # begun before the repair
    begun = decisions.read().decisions_made
    assert decisions.commit("new", "s-new", affected=1, begun=begun).sequence == 3


def test_an_attempt_that_one_partition_has_applied_counts_in_the_others(location):
    location.decide(location.buckets, "expr0=1", fold=False)
    (waiting,) = location.storage(location.buckets, "expr0=1").read().document.prepared
    other = location.storage(location.buckets, "expr0=0")
    other.prepare(Prepared(attempt=waiting.attempt, token=waiting.token), epoch=other.read().document.epoch)
    other.fold(waiting.attempt, epoch=None, sequence=3)
    location.lose(statements_key(location.buckets.folder))
    location.repair()
    assert TableDecisions(location.store, location.buckets.folder).read().on(waiting.attempt).committed


def test_a_lost_catalog_has_the_tables_that_were_published_and_not_dropped(location):
    gone = location.maker.create("gone", None, ["bucket(2, k)"], schema=SCHEMA)
    location.maker.drop("gone")
    before = location.cluster.read()
    location.lose(CLUSTER_KEY)
    assert location.repair() == [CLUSTER_KEY]
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read()
    assert by_any_number(after.document.tables) == by_any_number(before.document.tables)
    assert after.document.executors == {}
    assert after.header.revision >= before.header.revision
    assert gone.folder in {key.split("/")[1] for key in (e.key for e in location.store.list("snapshots/"))}


def by_any_number(tables):
    """The tables, whatever the numbers of the commits are that named them."""
    return {name: evolve(table, named=0) for name, table in tables.items()}


@pytest.mark.parametrize("lost", ["catalog", "catalog and map", "older catalog"])
def test_of_a_table_and_the_one_that_took_its_place_only_that_comes_back(location, lost):
    copy = location.store.get(CLUSTER_KEY).data
    new = location.maker.create("b", None, ["bucket(3, k)"], schema=SCHEMA, replaces=True)
    location.maker.create("b", None, ["bucket(3, k)"], schema=SCHEMA, replaces=True, mark="again")
    left = location.maker.create("left", None, ["bucket(3, k)"], schema=SCHEMA, replaces=True)
    location.maker.drop("left")
    before = location.cluster.read().document
    storage = location.storage(before.tables["b"], "expr0=2")
    storage.commit(add=[location.file(before.tables["b"], 2, "x")], epoch=0, token="one")
    location.lose(CLUSTER_KEY, copy if lost == "older catalog" else None)
    if lost == "catalog and map":
        location.lose(partition_map_key(before.tables["b"].map_name))
    assert CLUSTER_KEY in location.repair()
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document
    assert by_any_number(after.tables) == by_any_number(before.tables)
    assert len(location.maps().read(after.tables["b"].map_name, after.tables["b"].incarnation)) == 3
    assert {new.folder, left.folder, location.buckets.folder}.isdisjoint(t.folder for t in after.tables.values())


@pytest.mark.parametrize("lost", ["catalog", "map", "older catalog"])
def test_a_table_that_was_renamed_comes_back_under_its_new_name(location, lost):
    copy = location.store.get(CLUSTER_KEY).data
    definitions = TableDefinitions(location.store, SystemRuntime())
    renamed = definitions.commit(location.buckets, lambda now: rename_table(now, "c"))
    again = location.maker.create("b", None, ["bucket(3, k)"], schema=SCHEMA)
    before = location.cluster.read().document
    assert (again.map_apart, renamed.folder, renamed.map_name) == (True, location.buckets.folder, "b")
    location.lose(
        partition_map_key("b") if lost == "map" else CLUSTER_KEY, copy if lost == "older catalog" else None
    )
    location.repair()
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document
    assert by_any_number(after.tables) == by_any_number(before.tables)
    assert len(location.maps().read("b", renamed.incarnation)) == 2
    assert len(location.maps().read(again.map_name, again.incarnation)) == 3


def test_an_older_catalog_gets_the_tables_that_it_lacks_and_keeps_its_labels(location):
    location.cluster.update(lambda c: ClusterDocument(tables=c.tables, labels={"app": "shop"}))
    copy = location.store.get(CLUSTER_KEY).data
    location.maker.create("new", None, ["bucket(2, k)"], schema=SCHEMA)
    location.maker.drop("w")
    location.lose(CLUSTER_KEY, copy)
    assert location.repair() == [CLUSTER_KEY]
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document
    assert (sorted(after.tables), after.labels) == (["b", "new"], {"app": "shop"})


@pytest.mark.parametrize("is_written", [True, False])
def test_a_table_of_which_an_older_definition_is_left_is_named_and_no_catalog_is_made(location, is_written):
    """An ALTER that was acknowledged was gone without a word, or the table stayed wedged after a repair."""
    copy = location.store.get(CLUSTER_KEY).data
    altered = TableDefinitions(location.store, SystemRuntime()).commit(
        location.buckets, lambda now: evolve(now, definition=now.definition + 1, comment="altered")
    )
    if is_written:
        file = evolve(location.file(altered, 7, "q"), definition=altered.definition)
        storage = location.storage(altered, "expr0=0")
        storage.commit(add=[file], epoch=storage.read().document.epoch, token="later")
    described = location.store.get(table_key(altered.folder)).data
    location.lose(CLUSTER_KEY, copy)
    location.lose(table_key(altered.folder))
    found = find_repairs(location.store)
    assert not {CLUSTER_KEY, table_key(altered.folder)} & {one.key for one in found.repairs}
    (said,) = found.beyond
    assert "table 'b' was altered: there is a definition 1 of it" in said
    location.store.create(table_key(altered.folder), described)
    assert CLUSTER_KEY in location.repair()
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document
    assert after.tables["b"].comment == "altered"


def test_a_definition_that_was_announced_and_came_to_no_end_hinders_no_repair(location):
    copy = location.store.get(CLUSTER_KEY).data
    location.maker.create("new", None, ["bucket(2, k)"], schema=SCHEMA)
    TableDecisions(location.store, location.buckets.folder).announce(1)
    location.lose(CLUSTER_KEY, copy)
    assert location.repair() == [CLUSTER_KEY]
    location.lose(table_key(location.buckets.folder))
    assert location.repair() == [table_key(location.buckets.folder)]


def test_a_lost_description_is_written_again_with_the_catalog_that_is_made_anew(location):
    copy = location.store.get(CLUSTER_KEY).data
    location.maker.create("new", None, ["bucket(2, k)"], schema=SCHEMA)
    location.lose(CLUSTER_KEY, copy)
    location.lose(table_key(location.values.folder))
    assert location.repair() == [CLUSTER_KEY, table_key(location.values.folder)]


def test_everything_at_once_comes_back_but_manifests(location):
    tables = location.cluster.read().document.tables
    for key in (CLUSTER_KEY, partition_map_key("b"), statements_key(location.buckets.folder)):
        location.lose(key)
    location.lose(partition_map_key("w"), b"torn")
    location.repair()
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document
    assert by_any_number(after.tables) == by_any_number(tables)
    assert min(table.named for table in after.tables.values()) > max(table.named for table in tables.values())
    assert len(location.maps().read("w")) == 2
    location.lose(f"snapshots/{location.buckets.folder}/expr0=0/manifest.json")
    (said,) = find_repairs(location.store).beyond
    assert "partition 'expr0=0' of table 'b'" in said


def test_a_folder_says_again_what_its_table_is(location):
    key = table_key(location.values.folder)
    location.lose(key)
    assert location.repair() == [key]


def test_a_living_scheduler_keeps_everybody_from_repairing(location, monkeypatch):
    beats = ObjectState(location.store, heartbeat_key("s1"), HeartbeatDocument)
    beats.create(HeartbeatDocument(scheduler_id="s1", instance_id="i"))

    class Beaten(SystemRuntime):
        def sleep_ms(self, duration_ms: float) -> None:
            assert duration_ms == 35_000
            beats.update(lambda d: HeartbeatDocument(scheduler_id="s1", instance_id="i", beats=d.beats + 1))

    with pytest.raises(TryLater, match="scheduler 's1' is alive"):
        require_nobody_alive(location.store, 35_000, Beaten())
    monkeypatch.setattr(Beaten, "sleep_ms", lambda *_: None)
    require_nobody_alive(location.store, 35_000, Beaten())


@pytest.mark.parametrize("kind", ["manifests", "maps", "decisions", "tables", "notes"])
def test_swapped_documents_are_named_and_nothing_is_written_before_they_are_put_back(location, kind):
    b, w = location.buckets.folder, location.values.folder
    location.decide(location.values, location.values.spec.path(("x",)))
    keys = {
        "manifests": [manifest_key(b, "expr0=0"), manifest_key(b, "expr0=1")],
        "maps": [partition_map_key("b"), partition_map_key("w")],
        "decisions": [statements_key(b), statements_key(w)],
        "tables": [table_key(b), table_key(w)],
        "notes": [seen_key(b, "e1"), seen_key(w, "e1")],
    }[kind]
    memory = DocumentMemory()
    for table, path in ((location.buckets, "expr0=0"), (location.values, location.values.spec.path(("x",)))):
        PartitionStorage(location.store, table.folder, path, memory=memory).read()
    SeenManifests(location.store, memory, "e1", SystemRuntime(), map).tick()
    here, there = (location.store.get(key).data for key in keys)

    def put(*each: bytes) -> None:
        for key, data in zip(keys, each, strict=True):
            location.lose(key, data)

    put(there, here)
    found = find_repairs(location.store)
    assert (found.repairs, len(found.beyond)) == ((), 2)
    for key in keys:
        assert any(f"'{key}' is the document that belongs to" in problem for problem in found.beyond)
    put(here, there)
    assert find_repairs(location.store).beyond == ()


def test_a_document_in_the_place_of_another_keeps_no_other_table_from_being_repaired(location):
    """One misplaced document of two tables let all others stay lost, unnamed."""
    location.maker.create("new", None, ["bucket(2, k)"], schema=SCHEMA)
    moved = location.store.get(partition_map_key("b")).data
    location.lose(partition_map_key("w"), moved)
    location.lose(partition_map_key("new"))
    found = find_repairs(location.store)
    assert [one.key for one in found.repairs] == [partition_map_key("new")]
    (said,) = found.beyond
    assert said.endswith("if its own place has the newest copy, delete this one: it counts as lost then")
    location.lose(partition_map_key("w"))
    assert location.repair() == [partition_map_key("new"), partition_map_key("w")]


@pytest.mark.parametrize("kind", ["replaced", "made again"])
def test_of_two_folders_of_a_name_the_one_that_was_made_last_comes_back(location, kind):
    """The catalog was made without the table, and the next repair found nothing to do."""
    if kind == "made again":
        location.maker.drop("b")
    again = location.maker.create(
        "b", None, ["bucket(3, k)"], schema=SCHEMA, replaces=kind == "replaced", incarnation="again"
    )
    pmap = PartitionStore(location.store).read(again.map_name, again.incarnation)
    for partition in range(len(pmap)):
        storage = location.storage(again, pmap.path(partition))
        storage.activate(1)
    for key in [entry.key for entry in location.store.list("accelerations/partitions/b")]:
        location.lose(key)
    location.lose(CLUSTER_KEY)
    assert CLUSTER_KEY in location.repair()
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document
    assert after.tables["b"].folder == again.folder


def test_a_catalog_is_not_made_anew_while_nobody_can_tell_which_folder_a_table_is(location):
    twin = evolve(location.buckets, incarnation="twin")
    described = ObjectState(location.store, table_key(location.buckets.folder), TableDocument).read().document
    ObjectState(location.store, table_key(twin.folder), TableDocument).create(evolve(described, table=twin))
    storage = location.storage(twin, "expr0=0")
    storage.create()
    storage.activate(1)
    location.lose(CLUSTER_KEY)
    location.lose(partition_map_key("b"))
    for _ in range(2):
        found = find_repairs(location.store)
        assert CLUSTER_KEY not in {one.key for one in found.repairs}
        assert "table 'b': no map says which of these it is" in found.beyond[0]
        assert f"'{CLUSTER_KEY}' is not made anew" in found.beyond[-1]
        for one in found.repairs:
            one.apply()
    location.lose(table_key(twin.folder))
    assert CLUSTER_KEY in location.repair()


def test_a_manifest_that_is_older_than_executors_saw_it_is_named_beyond_repair(location):
    folder = location.buckets.folder
    key = f"snapshots/{folder}/expr0=0/manifest.json"
    copy, memory = location.store.get(key).data, DocumentMemory()
    storage = PartitionStorage(location.store, folder, "expr0=0", memory=memory)
    storage.activate(storage.read().document.epoch + 1)
    SeenManifests(location.store, memory, "e1", SystemRuntime(), map).tick()
    location.lose(key, copy)
    (said,) = find_repairs(location.store).beyond
    assert "partition 'expr0=0' of table 'b'" in said
    assert "and was at" in said
    assert said.endswith("put the newest copy back")  # whoever reads this is repairing already


def test_every_attempt_that_a_repair_ends_has_a_number_of_its_own(location):
    """By their numbers decisions are told apart from those of statements that began before."""
    attempts = [location.decide(location.buckets, path, fold=False) for path in ("expr0=0", "expr0=1")]
    location.lose(statements_key(location.buckets.folder))
    location.repair()
    decisions = TableDecisions(location.store, location.buckets.folder).read()
    numbers = [decisions.on(attempt).number for attempt in attempts]
    assert len(set(numbers)) == 2
    assert decisions.floor > max(numbers)


@pytest.mark.parametrize("lost", ["table", "table and map", "table and catalog"])
def test_a_dropped_table_does_not_come_back_for_the_one_whose_document_is_lost(location, lost):
    """The dropped one was made under some revision of the catalog; of the other one nothing says so any more."""
    location.maker.drop("b")
    again = location.maker.create("b", None, ["bucket(2, k)"], schema=SCHEMA)
    location.assign("b")
    before = location.cluster.read().document
    location.lose(table_key(again.folder))
    if lost == "table and map":
        location.lose(partition_map_key("b"))
    if lost == "table and catalog":
        location.lose(CLUSTER_KEY)
        found = find_repairs(location.store)
        assert f"'{table_key(again.folder)}' is lost" in found.beyond[0]
        assert "is not made anew before each table can be described" in found.beyond[1]
        assert CLUSTER_KEY not in [one.key for one in found.repairs]
        return
    found = find_repairs(location.store)
    assert [one.key for one in found.repairs][-1] == table_key(again.folder)
    assert len(found.beyond) == (lost == "table and map")
    assert all(f"table 'b' is '{again.folder}' to the catalog" in said for said in found.beyond)
    for one in found.repairs:
        one.apply()
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document
    assert after.tables == before.tables
    assert len(location.maps().read("b", again.incarnation)) == 2
    assert find_repairs(location.store).repairs == ()


@pytest.mark.parametrize("is_given_up", [False, True])
def test_a_catalog_is_not_made_anew_without_a_table_that_cannot_be_described_yet(location, is_given_up):
    """It would be taken for one in which the table was dropped, and stay so when its document is back."""
    before = location.cluster.read().document
    key = table_key(location.values.folder)
    copy = location.store.get(key).data
    location.lose(CLUSTER_KEY)
    location.lose(key)
    found = find_repairs(location.store)
    assert CLUSTER_KEY not in [one.key for one in found.repairs]
    assert f"put '{key}' back, or delete the partition map" in found.beyond[-1]
    if is_given_up:
        location.lose(partition_map_key("w"))
    else:
        location.store.create(key, copy)
    assert location.repair() == [CLUSTER_KEY]
    after = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document
    assert sorted(after.tables) == ["b"] if is_given_up else sorted(before.tables)
