"""Rows that go from large files by deletion vectors: what is kept, served, read back, compacted and collected."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.keyed_owner import Owner

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.errors import BallistaError, ConfigError, DocumentUnreadable, ObjectMissing
from ballista_py.owner import files as owner_files
from ballista_py.owner.writes import OwnerWrites
from ballista_py.partitions.spec import PARTITION_COLUMN
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.deletion_vector import FORMAT, original_of
from ballista_py.storage.formats.files import (
    read_data_file,
    read_places,
    require_known_format,
    write_data_file,
    write_deletion_vector,
)
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.files import LoadedFiles
from ballista_py.storage.held.hydration import HydrationMeter
from ballista_py.storage.upkeep.compaction import CompactionPolicy
from ballista_py.storage.upkeep.garbage import MIN_AGE_MS, find_garbage
from ballista_py.storage.upkeep.verify import verify_table
from ballista_py.transport.flight.commands import GONE_COLUMN

ROWS = pa.table({"k": range(100), "v": [f"v{n}" if n % 3 else None for n in range(100)]})
TEN = np.arange(0, 100, 10)


@pytest.fixture(params=["parquet", "vortex"])
def kept(request):
    store = MemoryStore()
    return store, write_data_file(store, "snapshots/t/data/a", ROWS, request.param)


@given(st.sets(st.integers(0, 99), max_size=100))
@settings(max_examples=50, deadline=None)
def test_what_a_vector_names_is_what_is_gone(gone):
    store = MemoryStore()
    file = write_data_file(store, "a", ROWS)
    vector = write_deletion_vector(store, "b", file, np.array(sorted(gone), np.int64))
    assert vector.rows == 100 - len(gone)
    assert read_places(store, vector).tolist() == sorted(gone)
    assert read_data_file(store, vector, ROWS.schema)["k"].to_pylist() == [n for n in range(100) if n not in gone]
    assert original_of(vector) == evolve(file, columns=vector.columns)


def test_a_vector_of_a_vector_is_of_the_original(kept):
    store, file = kept
    first = write_deletion_vector(store, "b", file, TEN)
    second = write_deletion_vector(store, "c", first, np.union1d(TEN, [1]))
    assert second.original == first.original
    assert second.paths == ("c", file.path)
    assert second.bytes_to_read == second.bytes + file.bytes
    assert len(read_data_file(store, second, ROWS.schema)) == second.rows == 89


def test_a_vector_is_of_the_definition_of_its_original():
    """Who knows an older one cannot tell what is in the file."""
    store = MemoryStore()
    file = write_data_file(store, "a", ROWS, "parquet", 3)
    first = write_deletion_vector(store, "b", file, TEN)
    assert (first.definition, original_of(first).definition) == (3, 3)
    assert write_deletion_vector(store, "c", first, TEN).definition == 3


@pytest.mark.parametrize("places", [[5, 3], [3, 3], [-1, 3], [3, 100]])
def test_places_that_no_row_has_or_out_of_order_are_refused(places):
    store = MemoryStore()
    file = write_data_file(store, "a", ROWS)
    vector = write_deletion_vector(store, "b", file, np.array(places))
    with pytest.raises(DocumentUnreadable, match="names rows that 'a' does not have"):
        read_places(store, vector)


def test_no_statistic_says_more_than_is_true_of_the_rest():
    store = MemoryStore()
    file = write_data_file(store, "a", ROWS)
    assert file.columns["v"].null_count == 34
    vector = write_deletion_vector(store, "b", file, TEN)
    assert vector.columns["v"].null_count is None
    assert vector.columns["k"] == file.columns["k"]  # no value is null, and bounds hold


@pytest.mark.parametrize("spoil", ["flipped", "short", "gone", "others", "original gone", "another original"])
def test_what_is_spoilt_is_named_and_gives_no_rows(spoil):
    store = MemoryStore()
    file = write_data_file(store, "a", ROWS)
    vector = write_deletion_vector(store, "b", file, TEN)
    data = store.get("b").data
    if spoil == "flipped":
        store.delete("b")
        store.create("b", data[:40] + bytes([data[40] ^ 1]) + data[41:])
    elif spoil == "short":
        store.delete("b")
        store.create("b", data[:-1])
    elif spoil == "gone":
        store.delete("b")
    elif spoil == "others":  # of another file, as a checksum that was made up would let through
        other = write_deletion_vector(store, "c", write_data_file(store, "d", ROWS.slice(0, 50)), TEN[:5])
        vector = evolve(vector, path="c", bytes=other.bytes, checksum=other.checksum)
    elif spoil == "original gone":
        store.delete("a")
    else:
        store.delete("a")
        write_data_file(store, "a", ROWS.slice(1))
    with pytest.raises((DocumentUnreadable, ObjectMissing)):
        read_data_file(store, vector, ROWS.schema)
    cache = FileCache(store)
    with pytest.raises((DocumentUnreadable, ObjectMissing)):
        cache.acquire(vector, ROWS.schema)
    assert cache.stats().files <= 1
    cache.clear()


def test_an_entry_that_is_half_a_vector_is_refused():
    store = MemoryStore()
    file = write_data_file(store, "a", ROWS)
    vector = write_deletion_vector(store, "b", file, TEN)
    with pytest.raises(ConfigError, match=FORMAT):
        require_known_format(evolve(vector, original=None))
    assert vector.original is not None
    unknown = evolve(vector, original=evolve(vector.original, format="avro"))
    with pytest.raises(ConfigError, match="avro"):
        require_known_format(unknown)
    with pytest.raises(DocumentUnreadable, match="parquet"):
        read_data_file(store, evolve(vector, format="parquet"), ROWS.schema)


def test_programs_that_know_no_vectors_get_a_file_without_the_rows(kept):
    import pyarrow.parquet as pq

    store, file = kept
    vector = write_deletion_vector(store, "b", file, TEN)
    cache = FileCache(store)
    copy = cache.acquire(vector, ROWS.schema, as_table=True)
    assert pq.read_table(copy.path)["k"].to_pylist() == [n for n in range(100) if n % 10]
    cache.release([copy])
    cache.clear()


class Counted:
    """An engine that notes how rows came to it."""

    def __init__(self, engine):
        self.engine, self.loads, self.derived = engine, 0, 0

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def load(self, table, files):
        self.loads += len(files)
        return self.engine.load(table, files)

    def derive(self, *arguments):
        done = self.engine.derive(*arguments)
        self.derived += done
        return done


@pytest.mark.parametrize("make", [DuckDBEngine, PolarsEngine])
@pytest.mark.parametrize("order", ["one by one", "at once", "the newest alone"])
def test_every_engine_serves_a_vector_whatever_it_has_of_the_original(kept, make, order):
    store, file = kept
    first = write_deletion_vector(store, "b", file, TEN)
    second = write_deletion_vector(store, "c", first, np.union1d(TEN, [1, 2]))
    engine, runtime = Counted(make()), SystemRuntime()
    loaded = LoadedFiles(engine, FileCache(store), HydrationMeter(runtime), map, runtime)
    loaded.prepare("t", ROWS.schema)
    wanted = [second] if order == "the newest alone" else [file, first, second]
    for files in [[one] for one in wanted] if order == "one by one" else [wanted[::-1]]:
        loaded.load("t", files)
    for one in wanted:
        batches = engine.query("select k from t", {"t": [loaded.ids("t")[one.path]]}).batches()
        assert sum(batch.num_rows for batch in batches) == one.rows
    assert engine.loads + engine.derived == len(wanted)
    assert engine.derived == (len(wanted) - 1 if make is DuckDBEngine else 0)
    loaded.keep_only({"t": [second.path]})
    batches = engine.query("select k from t", {"t": [loaded.ids("t")["c"]]}).batches()
    kept_rows = sorted(k for batch in batches for k in batch.column(0).to_pylist())
    assert kept_rows == [n for n in range(100) if n % 10 and n not in (1, 2)]
    assert loaded.gone("t", "c").tolist() == sorted({*TEN.tolist(), 1, 2})
    assert loaded.gone("t", "b") is None
    engine.close()


def test_a_vector_is_not_derived_from_one_that_lacks_other_rows(kept):
    """As those of two attempts at one statement are, the first of which came to nothing."""
    store, file = kept
    other = write_deletion_vector(store, "b", file, TEN)
    vector = write_deletion_vector(store, "c", file, np.array([10, 11]))
    engine, runtime = Counted(DuckDBEngine()), SystemRuntime()
    loaded = LoadedFiles(engine, FileCache(store), HydrationMeter(runtime), map, runtime)
    loaded.prepare("t", ROWS.schema)
    for known in (other, file, vector):
        loaded.load("t", [known])
    batches = engine.query("select k from t", {"t": [loaded.ids("t")["c"]]}).batches()
    assert sorted(k for batch in batches for k in batch.column(0).to_pylist()) == [
        n for n in range(100) if n not in (10, 11)
    ]
    assert engine.derived == 1
    engine.close()


def test_a_vector_is_derived_from_nothing_but_its_original():
    store, engine, runtime = MemoryStore(), DuckDBEngine(), SystemRuntime()
    loaded = LoadedFiles(engine, FileCache(store), HydrationMeter(runtime), map, runtime)
    loaded.prepare("t", ROWS.schema)
    for place, name in enumerate("ab"):
        rows = ROWS.set_column(0, "k", pa.array(range(1_000 * place, 1_000 * place + 100)))
        file = write_data_file(store, name, rows)
        loaded.load("t", [write_deletion_vector(store, f"{name}.deletions", file, np.arange(place + 1))])
    batches = engine.query("select min(k) as k from t", {"t": [loaded.ids("t")["b.deletions"]]}).batches()
    assert [k for batch in batches for k in batch.column(0).to_pylist()] == [1_002]
    engine.close()


def test_a_large_file_that_loses_few_rows_is_not_written_anew(owner):
    owner.apply(1, put=range(40), told="old")
    (before,) = owner.files
    assert owner.apply(1, put=[3, 100], gone=[7])["affected"] == 3
    assert {key: owner.rows()[key] for key in (2, 3, 100)} == {2: "old", 3: "new", 100: "new"}
    assert owner.rows().keys() == {*range(40), 100} - {7}
    (vector,) = owner.vectors
    assert vector.original.path == before.path
    assert read_places(owner.world.store, vector).tolist() == [3, 7]
    owner.apply(1, gone=[8, 100])
    (again,) = owner.vectors
    assert read_places(owner.world.store, again).tolist() == [3, 7, 8]
    assert owner.rows().keys() == set(range(40)) - {7, 8}


def test_what_is_gone_stays_gone_by_vectors_upon_vectors_whatever_is_loaded_of_them(owner):
    owner.apply(1, put=range(40), told="old")
    for key in (1, 2, 3):
        owner.apply(1, gone=[key])
    loaded = owner.world.holder.files
    assert loaded.gone("t", owner.vectors[0].path).tolist() == [1, 2, 3]
    loaded._vectors.clear()  # as after a reload in between
    owner.apply(1, gone=[4])
    assert owner.rows().keys() == {*range(40)} - {1, 2, 3, 4}
    assert read_places(owner.world.store, owner.vectors[0]).tolist() == [1, 2, 3, 4]


def test_what_came_to_nothing_leaves_everything_as_it_was(owner):
    owner.apply(1, put=range(40), told="old")
    files = owner.files
    owner.apply(1, put=[3], gone=[7], settled=False)
    assert owner.files == files
    assert owner.rows() == dict.fromkeys(range(40), "old")
    owner.apply(1, put=[5], gone=[7])
    assert owner.rows() == {k: "new" if k == 5 else "old" for k in range(40) if k != 7}


def test_a_file_that_loses_a_quarter_is_written_anew(owner):
    owner.apply(1, put=range(40))
    owner.apply(1, gone=range(10))
    assert len(owner.vectors) == 1
    owner.apply(1, gone=[10])
    assert not owner.vectors
    assert owner.rows().keys() == set(range(11, 40))
    owner.apply(1, gone=range(11, 40))
    assert owner.rows() == {}
    assert owner.files == ()


def test_another_executor_reads_the_rows_that_are_left(owner, make_world):
    owner.apply(1, put=range(40), told="old")
    owner.apply(1, put=[1, 50], gone=[2])
    other = DuckDBEngine()
    try:
        world = make_world(other)
        table = owner.world.holder.holdings("t").table
        world.holder.apply(world.update(1, (1, 2, "owner"), table=table))
        world.holder.tick()
        assert world.read((1, 2)) == sorted({*range(40), 50} - {2})
    finally:
        other.close()


def test_compaction_takes_vectors_in(owner):
    for n in range(4):
        owner.apply(1, put=range(100 * n, 100 * n + 20), told="old")
        owner.apply(1, gone=[100 * n])
    rows = owner.rows()
    assert len(owner.vectors) == 4
    assert owner.writes.compact() is not None
    assert not owner.vectors
    assert owner.rows() == rows
    assert rows.keys() == {100 * n + k for n in range(4) for k in range(1, 20)}


def test_statements_see_what_vectors_leave_and_leave_vectors_themselves(owner):
    owner.apply(1, put=range(40), told="old")
    (original,) = owner.files
    owner.apply(1, gone=[0, 5])
    assert owner.rewrite("update t set v = 'set' where k < 4") == 3
    assert owner.rewrite("update t set v = v || '!', k = k + 100 where k in (2, 39)") == 2
    assert owner.rewrite("delete from t where k = 20 or v = 'nothing'") == 1
    assert owner.rewrite("delete from t where k = 20") == 0
    assert owner.rewrite("update t set v = 'x' where k = 5") == 0
    (vector,) = owner.vectors
    assert vector.original.path == original.path
    assert owner.rows() == {
        **{k: "old" for k in range(4, 39) if k not in (5, 20)},
        1: "set",
        3: "set",
        102: "set!",
        139: "old!",
    }


def test_what_is_another_the_next_time_is_asked_once(owner):
    """And so puts the file anew."""
    owner.apply(1, put=range(40), told="old")
    before = owner.rows()
    count = owner.rewrite("delete from t where random() < 0.1")
    assert len(owner.rows()) == 40 - count
    assert not owner.vectors
    assert owner.rows().items() <= before.items()


def test_values_that_do_not_fit_are_refused_and_nothing_is_left(owner):
    owner.apply(1, put=range(40), told="old")
    rows = owner.rows()
    with pytest.raises(BallistaError):
        owner.rewrite("update t set k = null where k = 3")
    with pytest.raises(BallistaError):
        owner.rewrite("update t set k = cast(v as bigint) where k = 3")
    assert owner.rows() == rows
    keys = {entry.key for entry in owner.world.store.list("snapshots/t/data/")}
    assert not [key for key in keys if key.endswith(".deletions")]


def test_no_null_is_missed_where_rows_without_one_went(owner):
    """Statistics of the original count nulls; of the rest nobody has counted them."""
    target = owner.target(1)
    keys = list(range(40))
    rows = pa.record_batch(
        {
            "k": pa.array(keys, pa.int64()),
            "v": [None if k < 30 else "there" for k in keys],
            GONE_COLUMN: [False] * 40,
            PARTITION_COLUMN: pa.array([1] * 40, pa.int32()),
        }
    )
    owner.send(target, rows)
    owner.apply(1, gone=range(10))  # of 30 nulls, and 30 rows are left
    assert len(owner.vectors) == 1
    assert owner.rewrite("delete from t where v is not null") == 10
    assert owner.rows().keys() == set(range(10, 30))


def test_the_collector_spares_the_original_and_verification_reads_it(owner):
    owner.apply(1, put=range(40), told="old")
    owner.apply(1, put=[1], gone=[2])
    owner.world.clock.ahead_ms = 10 * 60_000
    owner.apply(1, put=[60])  # by now nobody reads the original as it was
    assert not any(
        old.file.original is None and old.file.rows == 40 for old in owner.world.storage(1).read().document.retired
    )
    named = {path for file in owner.files for path in file.paths}
    store = owner.world.store
    assert owner.vectors[0].original.path in named
    garbage = find_garbage(store, ["t"], min_age_ms=MIN_AGE_MS, runtime=owner.world.clock)
    unnamed = {entry.key for entry in store.list("snapshots/t/data/")} - named
    assert garbage.young == len(unnamed) + len([e for e in store.list("snapshots/t/") if "tokens" in e.key])
    table = owner.world.holder.holdings("t").table
    assert verify_table(store, table, ["expr0=1"]).problems == ()
    store.delete(owner.vectors[0].original.path)
    (problem,) = verify_table(store, table, ["expr0=1"]).problems
    assert problem.file == owner.vectors[0].path


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_changes_come_to_what_they_come_to_in_a_dict(data):
    from tests.storage.conftest import HandClock, World

    patched = pytest.MonkeyPatch()
    engine = DuckDBEngine()
    try:
        world = World(MemoryStore(), engine, HandClock())
        world.grant()
        made = Owner(world, None)
        patched.setattr(owner_files, "SMALL_ROWS", 6)
        schema = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
        table = evolve(world.table(), primary_key=("k",), schema=schema)
        world.storage(1).create()
        world.holder.apply(world.update(1, (1, 1, "owner"), table=table))
        world.holder.tick()
        made.writes = OwnerWrites(
            world.holder, world.store, engine, world.clock, map, lambda: "me", CompactionPolicy(min_files=3)
        )
        model: dict[int, str] = {}
        for step in range(data.draw(st.integers(1, 12))):
            put = data.draw(st.sets(st.integers(0, 40), max_size=25))
            gone = data.draw(st.sets(st.integers(0, 40), max_size=4)) - put
            settled = data.draw(st.sampled_from([True, True, True, False]))
            made.apply(1, sorted(put), sorted(gone), settled=settled, told=f"s{step}")
            if settled:
                model.update(dict.fromkeys(put, f"s{step}"))
                for key in gone:
                    model.pop(key, None)
            match data.draw(st.sampled_from(["", "compact", "later", "tick"])):
                case "compact":
                    made.writes.compact()
                case "later":
                    world.clock.ahead_ms += 10 * 60_000
                case "tick":
                    world.holder.tick()
            assert made.rows() == model
    finally:
        patched.undo()
        engine.close()
