"""What an engine has loaded: rows at hand are not read back, and none outlive the table they were staged for."""

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.errors import ObjectMissing, StoreError
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import write_data_file, write_deletion_vector
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.files import LoadedFiles
from ballista_py.storage.held.hydration import HydrationMeter

ROWS = pa.table({"n": [1, 2, 3]})
KEY = "snapshots/t/data/a.parquet"


class Loader:
    """Notes what is loaded; `lost` rows are not there."""

    def __init__(self):
        self.loaded, self.lost = {}, 0

    def create_table(self, table, schema):
        pass

    def drop_table(self, table):
        self.loaded.clear()

    def derive(self, table, file_id, of, gone):
        self.loaded[file_id] = "derived"
        return True

    def load(self, table, files):
        self.loaded |= {file.file_id: type(file).__name__ for file in files}
        return sum(batch.num_rows for file in files for batch in file.batches(ROWS.schema)) - self.lost

    def unload(self, table, file_ids):
        for file_id in file_ids:
            del self.loaded[file_id]


@pytest.fixture
def world():
    runtime, store, loader = SystemRuntime(), MemoryStore(), Loader()
    files = LoadedFiles(loader, FileCache(store), HydrationMeter(runtime), map, runtime)
    files.prepare("t", ROWS.schema)
    return files, loader, write_data_file(store, KEY, ROWS)


def test_rows_at_hand_are_not_read_back(world):
    files, loader, file = world
    files.stage("t", [(file, ROWS)])
    files.load("t", [file])
    assert list(loader.loaded.values()) == ["RowsAtHand"]
    assert files.ids("t").keys() == {KEY}


def test_what_was_staged_for_a_table_that_was_dropped_is_read_anew(world):
    files, loader, file = world
    files.stage("t", [(file, ROWS)])
    files.keep_only({})
    files.prepare("t", ROWS.schema)
    files.load("t", [file])
    assert list(loader.loaded.values()) == ["LocalFile"]


def test_a_table_dropped_while_rows_are_staged_gets_none_of_them(world):
    files, loader, file = world
    load = loader.load

    def drop_meanwhile(table, loadable):
        count = load(table, loadable)
        loader.load = load
        files.keep_only({})
        loader.loaded |= {one.file_id: "late" for one in loadable}
        return count

    loader.load = drop_meanwhile
    files.stage("t", [(file, ROWS)])
    assert loader.loaded == {}
    files.prepare("t", ROWS.schema)
    files.load("t", [file])
    assert list(loader.loaded.values()) == ["LocalFile"]


def test_a_table_dropped_while_a_vector_is_staged_gets_none_of_it(world):
    files, loader, file = world
    files.load("t", [file])
    gone = np.array([1])
    vector = write_deletion_vector(MemoryStore(), "snapshots/t/data/a.deletions", file, gone)
    derive = loader.derive

    def drop_meanwhile(table, file_id, of, gone):
        files.keep_only({})
        return derive(table, file_id, of, gone)

    loader.derive = drop_meanwhile
    files.stage_vector("t", vector, files.ids("t")[KEY], gone, gone)
    assert loader.loaded == {}
    assert files.gone("t", vector.path) is None


@pytest.mark.parametrize("lost", [1, -1])
def test_a_file_with_fewer_or_more_rows_than_its_manifest_says_is_refused_and_unloaded(world, lost):
    files, loader, file = world
    loader.lost = lost
    with pytest.raises(StoreError, match=f"hold {3 - lost} rows where manifests say 3"):
        files.load("t", [file])
    assert loader.loaded == {}
    assert files.ids("t") == {}


def test_a_file_that_is_gone_is_named_and_nothing_else_is_loaded(world):
    files, loader, file = world
    gone = evolve(file, path="snapshots/t/data/gone.parquet")
    with pytest.raises(ObjectMissing, match=r"gone\.parquet"):
        files.load("t", [file, gone])
    assert loader.loaded == {}


def test_copies_are_let_go_whether_a_load_succeeds_or_another_file_of_it_is_gone():
    runtime, store = SystemRuntime(), MemoryStore()
    file = write_data_file(store, KEY, ROWS)
    cache = FileCache(store, max_bytes=0)
    files = LoadedFiles(Loader(), cache, HydrationMeter(runtime), map, runtime)
    files.prepare("t", ROWS.schema)
    with pytest.raises(ObjectMissing):
        files.load("t", [file, evolve(file, path="snapshots/t/data/gone.parquet")])
    assert cache.stats().files == 0
    files.load("t", [file])
    assert (cache.stats().files, cache.stats().fetched) == (0, 2)


def test_a_loader_that_began_anew_has_nothing_and_says_so_once(world):
    files, loader, file = world
    files.load("t", [file])
    assert not files.were_lost()
    loader.begun = 1
    assert files.were_lost()
    assert not files.were_lost()
    assert (files.schema("t"), dict(files.ids("t"))) == (None, {})
    files.prepare("t", ROWS.schema)
    files.load("t", [file])
    assert files.ids("t").keys() == {KEY}


@pytest.mark.parametrize("meanwhile", [False, True])
def test_what_was_staged_with_a_loader_that_began_anew_is_read_anew(world, meanwhile):
    files, loader, file = world
    load = loader.load

    def begin_anew():
        loader.begun = 1
        assert files.were_lost()
        loader.loaded.clear()

    def load_meanwhile(table, loadable):
        loader.load = load
        begin_anew()
        return load(table, loadable)

    if meanwhile:
        loader.load = load_meanwhile
    files.stage("t", [(file, ROWS)])
    if not meanwhile:
        begin_anew()
    files.prepare("t", ROWS.schema)
    files.load("t", [file])
    assert list(loader.loaded.values()) == ["LocalFile"]
