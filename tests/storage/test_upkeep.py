"""Garbage is found and nothing else; damage is named and stays where it is; history says who did what."""

import re

import pytest
from attrs import evolve
from tests.storage.conftest import ObservedStore

from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.errors import ConfigError
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, partition_map_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.state.stores.store import local_path
from ballista_py.storage.formats.files import read_data_file, write_data_file
from ballista_py.storage.manifest import DataFile, ManifestDocument, OriginalFile, Prepared, Retired, manifest_key
from ballista_py.storage.upkeep.compaction import CompactionPolicy, to_compact
from ballista_py.storage.upkeep.garbage import (
    GARBAGE_KEY,
    MAX_WRITE_MS,
    GarbageMarks,
    ended_maps,
    find_garbage,
    remove_garbage,
)
from ballista_py.storage.upkeep.verify import history, verify_table

HOUR_MS = 3_600_000


class MovedClock(SystemRuntime):
    """The real machine with a wall clock that can be moved on."""

    moved_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.moved_ms


@pytest.fixture
def aged(world):
    """A world whose store's clock can be moved on."""
    world.store_clock = MovedClock()
    world.store = MemoryStore(runtime=world.store_clock)
    return world


def test_garbage_is_what_no_manifest_names_and_only_once_it_is_old(aged):
    kept = aged.put(1, 1, 2)
    lost = "snapshots/t/data/lost.parquet"
    write_data_file(aged.store, lost, aged.rows(9))
    storage = aged.storage(1)
    storage.activate(1)
    prepared = write_data_file(aged.store, "snapshots/t/data/prepared.parquet", aged.rows(7))
    storage.prepare(Prepared(attempt="a", token="a", add=(prepared,)), epoch=1)
    assert find_garbage(aged.store, {"t"}).files == ()
    aged.store_clock.moved_ms = 2 * HOUR_MS
    assert find_garbage(aged.store, {"t"}).files == ()  # old, and found for the first time
    aged.store_clock.moved_ms = 3 * HOUR_MS
    found = find_garbage(aged.store, {"t"})
    assert [entry.key for entry in found.files] == [lost]
    assert remove_garbage(aged.store, found) == 1
    left = {entry.key for entry in aged.store.list("snapshots/")}
    assert left == {kept, prepared.path, manifest_key("t", "expr0=1")}


def test_a_file_is_unnamed_since_manifests_were_read_and_not_since_a_slow_look_began(aged):
    """Else a look that stood still for half an hour would let another one take what was named a moment ago."""
    kept = aged.put(1, 1)
    aged.store_clock.moved_ms = 2 * HOUR_MS

    slow, key = ObservedStore(aged.store), manifest_key("t", "expr0=1")

    def stand_still() -> None:
        """Amid the look, before the manifest is read; it has named the file until the end."""
        aged.store_clock.moved_ms += 28 * 60_000
        manifests = ObjectState(aged.store, key, ManifestDocument)
        manifests.update(lambda now: evolve(now, files=()))

    slow.before[key] = stand_still
    assert find_garbage(slow, {"t"}, min_age_ms=MAX_WRITE_MS).files == ()
    aged.store_clock.moved_ms += 3 * 60_000
    assert find_garbage(aged.store, {"t"}, min_age_ms=MAX_WRITE_MS).files == ()
    aged.store_clock.moved_ms += 29 * 60_000
    assert [file.key for file in find_garbage(aged.store, {"t"}, min_age_ms=MAX_WRITE_MS).files] == [kept]


def test_the_folder_of_a_dropped_table_goes_as_a_whole(aged):
    aged.put(1, 1)
    assert find_garbage(aged.store, set()).young == 2
    aged.store_clock.moved_ms = 2 * HOUR_MS
    assert find_garbage(aged.store, set()).young == 2
    aged.store_clock.moved_ms = 3 * HOUR_MS
    assert remove_garbage(aged.store, find_garbage(aged.store, set())) == 2
    assert not list(aged.store.list("snapshots/"))


def test_the_folder_of_a_dropped_table_stays_while_statements_may_be_sent_again(aged):
    """An hour from the first look, though files of tables that are there may go sooner."""
    aged.put(1, 1)
    for minutes, gone in ((0, 0), (31, 0), (62, 0), (90, 0), (92, 2)):
        aged.store_clock.moved_ms = minutes * 60_000
        assert len(find_garbage(aged.store, set(), min_age_ms=MAX_WRITE_MS).files) == gone, minutes


def test_maps_of_replaced_tables_go_when_their_files_are_gone_but_for_the_newest_proof(aged):
    ObjectState(aged.store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
    maker = TableMaker(aged.store, SystemRuntime())
    schema = aged.rows(1).schema

    def replaced(name):
        return maker.create(name, None, ["bucket(2, k)"], schema=schema, replaces=True)

    def ended():
        return list(ended_maps(aged.store, maker.cluster().tables.values()))

    def emptied(table):
        for entry in list(aged.store.list(f"snapshots/{table.folder}/")):
            aged.store.delete(entry.key)

    plain = maker.create("a", None, ["bucket(2, k)"], schema=schema)
    first, second = replaced("a"), replaced("a")
    assert ended() == []
    emptied(first)
    emptied(plain)  # whose map has the name that a table may get again
    assert ended() == [partition_map_key(first.map_name)]
    maker.drop("a")
    emptied(second)
    assert ended() == [
        partition_map_key(first.map_name)
    ]  # the other one proves that the catalog knows of the drop
    replaced("b")
    assert sorted(ended()) == sorted(partition_map_key(table.map_name) for table in (first, second))


def test_what_an_attempt_to_replace_a_table_leaves_is_garbage(aged, monkeypatch):
    ObjectState(aged.store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
    maker = TableMaker(aged.store, SystemRuntime())

    def fails(_table):
        raise ConfigError("no rows")

    with pytest.raises(ConfigError, match="no rows"):
        maker.create("a", None, ["bucket(2, k)"], schema=aged.rows(1).schema, replaces=True, fill=fails)
    (left,) = {entry.key.split("/")[1] for entry in aged.store.list("snapshots/")}
    find_garbage(aged.store, set())
    for hours in (2, 4):
        aged.store_clock.moved_ms = hours * HOUR_MS
        found = find_garbage(aged.store, set())
    assert not found.kept
    assert {entry.key.split("/")[1] for entry in found.files} == {left}


def test_an_old_file_that_was_just_replaced_stays_for_those_who_read_it(aged):
    old = aged.put(1, 1, 2)
    storage = aged.storage(1)
    aged.store_clock.moved_ms = 50 * HOUR_MS
    find_garbage(aged.store, {"t"})
    pinned = storage.read().document
    storage.commit(add=[aged.put_file(1, 2)], remove=[old], epoch=pinned.epoch, token="rewritten")
    for hours in (50, 50.9):
        aged.store_clock.moved_ms = int(hours * HOUR_MS)
        assert find_garbage(aged.store, {"t"}).files == ()
        assert [read_data_file(aged.store, file, aged.table().schema).num_rows for file in pinned.files] == [2]
    aged.store_clock.moved_ms = 52 * HOUR_MS
    assert [entry.key for entry in find_garbage(aged.store, {"t"}).files] == [old]


def test_what_is_gone_or_named_again_is_forgotten(aged):
    lost = write_data_file(aged.store, "snapshots/t/data/lost.parquet", aged.rows(9))
    aged.put(1, 1)
    aged.store_clock.moved_ms = 2 * HOUR_MS
    find_garbage(aged.store, {"t"})
    storage = aged.storage(1)
    storage.commit(add=[lost], epoch=0, token="named")
    aged.store_clock.moved_ms = 4 * HOUR_MS
    assert find_garbage(aged.store, {"t"}).files == ()
    assert ObjectState(aged.store, GARBAGE_KEY, GarbageMarks).read().document.unnamed == {}


def test_a_table_with_an_unreadable_manifest_keeps_all_its_files(aged):
    aged.put(1, 1)
    write_data_file(aged.store, "snapshots/t/data/lost.parquet", aged.rows(9))
    aged.store.create(manifest_key("t", "expr0=2"), b"torn")
    aged.store_clock.moved_ms = 2 * HOUR_MS
    find_garbage(aged.store, {"t"})
    aged.store_clock.moved_ms = 4 * HOUR_MS
    found = find_garbage(aged.store, {"t"})
    assert (found.files, list(found.kept)) == ((), ["t"])


def test_an_age_that_could_meet_a_write_under_way_is_refused(world):
    with pytest.raises(ConfigError, match="30 minutes"):
        find_garbage(world.store, {"t"}, min_age_ms=MAX_WRITE_MS - 1)


def damage(store, path: str, data: bytes | None) -> None:
    local = local_path(store, path)
    if local is not None and data is not None:
        with open(local, "wb") as file:
            file.write(data)
        return
    store.delete(path)
    if data is not None:
        store.create(path, data)


@pytest.mark.parametrize(
    ("data", "said"),
    [(None, "missing|does not exist"), (b"short", "5 bytes instead of"), (b"x" * 2_000, "more than [0-9]+ bytes")],
)
def test_a_damaged_file_is_named_and_the_others_are_whole(world, data, said):
    bad, _ = world.put(1, 1, 2), world.put(2, 3)
    damage(world.store, bad, data)
    found = verify_table(world.store, world.table(), ["expr0=1", "expr0=2"])
    assert (found.partitions, found.files, found.rows) == (2, 2, 3)
    (problem,) = found.problems
    assert (problem.partition, problem.file) == ("expr0=1", bad)
    assert re.search(said, problem.reason)


def test_files_that_are_prepared_or_still_read_are_verified_too(world):
    old = world.put(1, 1)
    storage = world.storage(1)
    storage.activate(1)
    first, second = world.put_file(2), world.put_file(3)
    storage.prepare(Prepared(attempt="a", token="a", add=(first,), remove=(old,)), epoch=1)
    storage.fold("a", epoch=1, sequence=1)
    storage.prepare(Prepared(attempt="b", token="b", add=(second,)), epoch=1)
    whole = verify_table(world.store, world.table(), ["expr0=1"])
    assert (whole.files, whole.rows, whole.problems) == (3, 1, ())
    for path in (old, second.path):
        damage(world.store, path, b"not the file")
    found = verify_table(world.store, world.table(), ["expr0=1"])
    assert {problem.file for problem in found.problems} == {old, second.path}


def test_a_damaged_manifest_is_a_problem_of_its_partition_alone(world):
    world.put(1, 1)
    world.store.create(manifest_key("t", "expr0=2"), b"{")
    found = verify_table(world.store, world.table(), ["expr0=1", "expr0=2", "expr0=3"])
    assert [problem.partition for problem in found.problems] == ["expr0=2", "expr0=3"]
    assert found.rows == 1


def test_history_tells_the_newest_first(world):
    first, second = world.put(1, 1), world.put(1, 2)
    assert [(a.token, a.added, a.at_ms > 0) for a in history(world.store, world.table(), "expr0=1")] == [
        (second, 1, True),
        (first, 1, True),
    ]


def test_files_of_a_like_size_are_merged_up_to_a_bound():
    small = [DataFile(path=f"s{n}", rows=1, bytes=100_000) for n in range(8)]
    large = [DataFile(path=f"l{n}", rows=1, bytes=100 << 20) for n in range(8)]
    assert to_compact([*large, *small]) == tuple(small)
    assert to_compact(large) == ()
    assert to_compact(small, policy=CompactionPolicy(max_bytes=350_000)) == ()
    assert to_compact([*small, evolve(small[0], path="s9")], policy=CompactionPolicy(max_bytes=800_000)) == tuple(
        small
    )
    assert to_compact(small, [Prepared(attempt="a", token="a", remove=("s1",))]) == ()


def test_files_of_a_bulk_load_stay_and_keep_no_small_ones_from_being_merged():
    bulk = [DataFile(path=f"b{n}", rows=1, bytes=12 << 20) for n in range(40)]
    small = [DataFile(path=f"s{n}", rows=1, bytes=3 << 20) for n in range(8)]
    alike = [DataFile(path=f"a{n}", rows=1, bytes=(4 << 20) - 1) for n in range(8)]
    assert to_compact(bulk) == ()
    assert to_compact([*bulk, *small]) == tuple(small)
    assert to_compact([bulk[0], *alike]) == tuple(alike)
    vectors = [
        evolve(file, original=OriginalFile(path="o", rows=9, bytes=12 << 20, checksum="", format="parquet"))
        for file in small
    ]
    assert to_compact(vectors) == ()


def test_compaction_rewrites_a_byte_a_few_times_however_many_writes_there_are():
    files: list[DataFile] = []
    rewritten = 0
    for n in range(2_000):
        files.append(DataFile(path=f"f{n}", rows=1, bytes=10_000))
        while chosen := to_compact(files):
            size = sum(file.bytes for file in chosen)
            rewritten += size
            files = [file for file in files if file not in chosen]
            files.append(DataFile(path=f"m{n}-{len(files)}", rows=1, bytes=size))
    assert rewritten < 5 * 2_000 * 10_000
    assert len(files) < 5 * 8


def test_a_folder_of_no_table_to_which_a_file_came_lately_keeps_all_of_them(aged):
    aged.put(1, 1)
    for moved in (2, 3):
        aged.store_clock.moved_ms = moved * HOUR_MS
        write_data_file(aged.store, f"snapshots/t/data/new-{moved}.parquet", aged.rows(9))
        assert find_garbage(aged.store, set()).files == ()
    assert find_garbage(aged.store, set()).young == 4


def test_a_replaced_file_can_be_read_for_two_minutes():
    file = DataFile(path="a", rows=1, bytes=1)
    manifest = ManifestDocument(
        table="t", partition="p", sequence=5, retired=(Retired(file=file, removed=5, at_ms=1_000),)
    )
    assert manifest.current(1_000 + 119_999) == manifest
    later = manifest.current(1_000 + 120_000)
    assert (later.retired, later.readable_from) == ((), 5)
