"""An older copy of the catalog, or of decisions, put back over an ALTER: found out by what is kept of definitions.

Maps that were put back together with the catalog prove nothing against it; folders and files of the table do.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.errors import DocumentLost, DocumentOlder
from ballista_py.partitions.alterations import add_column, rename_table
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.decisions import TableDecisions, statements_key
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    TableDocument,
    partition_map_key,
    table_key,
)
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.manifest import Prepared
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.garbage import find_garbage
from ballista_py.storage.upkeep.repair import find_repairs

SCHEMA = pa.schema([("k", pa.int64())])


class Location:
    """A location with one table, and copies of its documents as of when it was new."""

    def __init__(self) -> None:
        self.store, self.runtime = MemoryStore(), SystemRuntime()
        ObjectState(self.store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
        self.maker = TableMaker(self.store, self.runtime)
        self.definitions = TableDefinitions(self.store, self.runtime)
        self.table = self.maker.create("t", None, ["bucket(2, k)"], schema=SCHEMA)
        TableDecisions(self.store, self.table.folder).commit("a", "s", affected=1)
        self.decisions = statements_key(self.table.folder)
        self.copies = {entry.key: self.store.get(entry.key).data for entry in self.store.list("")}

    def put_back(self, *keys: str) -> None:
        for key in keys:
            self.store.delete(key)
            self.store.create(key, self.copies[key])

    def alter(self) -> None:
        column, values = pa.field("v", pa.int64()), pa.array([None], pa.int64())
        self.table = self.definitions.commit(
            self.table, lambda now: add_column(now, column, values, None, if_not_exists=False)
        )

    def repair(self) -> list[str]:
        found = find_repairs(self.store)
        assert found.beyond == ()
        for one in found.repairs:
            one.apply()
        assert find_repairs(self.store).repairs == ()
        return [one.key for one in found.repairs]


@pytest.fixture
def location():
    return Location()


def test_decisions_that_lack_what_was_announced_are_named_by_whoever_reads_them(location):
    reader = Catalogs(location.store, location.runtime)
    reader.refresh()
    assert reader.sequences(["t"]) == {"t": 1}
    location.alter()
    location.put_back(location.decisions)
    later = Catalogs(location.store, location.runtime)
    for _ in range(2):
        with pytest.raises(DocumentOlder, match=rf"'{location.decisions}' is at definition 0, but .* knows of 1"):
            later.sequences(["t"])
    assert location.repair() == [location.decisions]
    assert TableDecisions(location.store, location.table.folder).read().announced == 1
    assert Catalogs(location.store, location.runtime).sequences(["t"]) == {"t": 1}


def test_decisions_of_an_altered_table_that_are_gone_are_missed(location):
    location.alter()
    location.store.delete(location.decisions)
    with pytest.raises(DocumentLost, match=location.decisions):
        Catalogs(location.store, location.runtime).sequences(["t"])
    assert location.repair() == [location.decisions]
    assert Catalogs(location.store, location.runtime).sequences(["t"]) == {"t": 0}


@pytest.mark.parametrize("also", [(), ("maps",), ("maps", "decisions")])
@pytest.mark.parametrize("how", ["altered", "renamed"])
def test_a_catalog_as_of_before_an_alter_is_named_altered_no_further_and_repaired(location, also, how):
    if how == "altered":
        location.alter()
    else:
        location.table = location.definitions.commit(location.table, lambda now: rename_table(now, "r"))
    wanted = location.table
    keys = {"maps": partition_map_key("t"), "decisions": location.decisions}
    location.put_back(CLUSTER_KEY, *(keys[name] for name in also))
    if also:  # else the map says it already
        refused = Catalogs(location.store, location.runtime).examine()
        assert isinstance(refused["t"], DocumentOlder)
        assert "is at definition of table 't' 0" in refused["t"].message
        before = location.store.get(CLUSTER_KEY).data
        (older,) = location.maker.cluster().tables.values()
        for change in (location.definitions.conclude, lambda table, _: location.definitions.commit(table, rename)):
            with pytest.raises(DocumentOlder, match=r"cluster\.json"):
                change(older, 1)
        assert location.store.get(CLUSTER_KEY).data == before
    assert CLUSTER_KEY in location.repair()
    (after,) = location.maker.cluster().tables.values()
    assert (after.name, after.schema, after.definition) == (wanted.name, wanted.schema, wanted.definition)
    assert not Catalogs(location.store, location.runtime).examine()


def rename(table):
    return rename_table(table, "other")


def test_a_definition_that_comes_while_it_is_compared_is_no_older_catalog(location, monkeypatch):
    catalogs, read = Catalogs(location.store, location.runtime), ObjectState.read

    def overtaken(state):
        if state.key == table_key(location.table.folder):
            monkeypatch.undo()
            location.alter()
        return read(state)

    monkeypatch.setattr(ObjectState, "read", overtaken)
    assert not catalogs.examine()
    assert (
        ObjectState(location.store, table_key(location.table.folder), TableDocument)
        .read()
        .document.table.definition
        == 1
    )


def test_nothing_is_collected_of_a_table_that_was_made_under_a_newer_catalog(location):
    """The map of its name is that of the one before, put back with the catalog: it says of no table that it ended."""
    location.maker.drop("t")
    new = location.maker.create("t", None, ["bucket(2, k)"], schema=SCHEMA)

    def kept():
        read = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read()
        folders = {table.folder for table in read.document.tables.values()}
        return find_garbage(location.store, folders, revision=read.header.revision).kept

    assert kept() == {}
    location.put_back(CLUSTER_KEY, partition_map_key("t"))
    assert kept() == {new.folder: "it was made under a newer 'cluster.json' than the one that lies here"}
    assert CLUSTER_KEY in {one.key for one in find_repairs(location.store).repairs}
    nodes_join(location)
    assert kept() == {
        new.folder: f"the partition map of its name is that of '{location.table.folder}', which was made before it"
    }


def nodes_join(location) -> None:
    """Commits to the older copy make it look newer."""
    state = ObjectState(location.store, CLUSTER_KEY, ClusterDocument)
    for n in range(9):
        state.update(lambda cluster, n=n: evolve(cluster, labels={"n": str(n)}))


@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize(("served", "joined"), [(True, False), (True, True), (False, False)])
def test_a_name_goes_to_the_table_that_was_made_and_served_last_whatever_older_maps_say(
    location, replaces, served, joined
):
    if not replaces:
        location.maker.drop("t")
    new = location.maker.create("t", None, ["bucket(2, k)"], schema=SCHEMA, replaces=replaces)
    if served:
        for path in ("expr0=0", "expr0=1"):
            storage = PartitionStorage(location.store, new.folder, path, committed_by="i")
            storage.create()
            storage.activate(1)
    location.put_back(CLUSTER_KEY, partition_map_key("t"))
    if replaces:
        location.store.delete(partition_map_key(new.map_name))
    if joined:
        nodes_join(location)
    for one in find_repairs(location.store).repairs:
        one.apply()
    (after,) = ObjectState(location.store, CLUSTER_KEY, ClusterDocument).read().document.tables.values()
    assert after.folder == (new.folder if served else location.table.folder)
    pmap = ObjectState(location.store, partition_map_key(after.map_name), PartitionMapDocument).read().document
    assert pmap.incarnation == after.incarnation
    assert find_repairs(location.store).repairs == ()


def test_a_map_without_a_partition_whose_rows_are_decided_and_not_folded_in_is_older(location):
    table = location.maker.create("w", None, ["k"], schema=SCHEMA)
    storage = PartitionStorage(location.store, table.folder, table.spec.path((7,)))
    storage.create()
    file = write_data_file(location.store, f"snapshots/{table.folder}/data/1.parquet", pa.table({"k": [7]}))
    storage.prepare(Prepared(attempt="a", token="s", add=(file,)), epoch=0)
    assert not Catalogs(location.store, location.runtime).examine()  # it may still be given up
    TableDecisions(location.store, table.folder).commit("a", "s", affected=1)
    refused = Catalogs(location.store, location.runtime).examine()
    assert "lacks partition" in refused["w"].message
    assert location.repair() == [partition_map_key("w")]
    assert not Catalogs(location.store, location.runtime).examine()


def test_what_is_decided_of_a_table_that_was_never_altered_need_not_be_there(location):
    location.store.delete(location.decisions)
    assert Catalogs(location.store, location.runtime).sequences(["t"]) == {"t": 0}
