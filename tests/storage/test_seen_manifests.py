"""A manifest that went back while every executor was down is refused, because those before had noted what they saw."""

from __future__ import annotations

import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import DocumentOlder, DocumentUnreadable
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.lost_documents import DocumentMemory, Seen
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.held.seen import LOOK_EVERY_MS, SeenManifests, forget_dropped, seen_key
from ballista_py.storage.manifest import manifest_key
from ballista_py.storage.upkeep.garbage import find_garbage

KEY = manifest_key("t", "expr0=1")
PATHS = ["expr0=1"]


def put_back(store, key: str, data: bytes) -> None:
    store.delete(key)
    store.create(key, data)


@pytest.fixture
def went_back(world, make_world):
    """An executor that begins anew; the manifest is as it was before the last row that the one before it loaded."""
    world.put(1, 1)
    copy = world.store.get(KEY).data
    world.put(1, 2)
    world.holder.apply(world.update(1, (1, 1, "owner")))
    world.holder.tick()
    assert world.read((1, 1)) == [1, 2]
    world.holder.seen.tick()
    world.newest = world.store.get(KEY).data
    put_back(world.store, KEY, copy)
    engine = DuckDBEngine()
    after = make_world(engine)
    after.copy, after.newest = copy, world.newest
    yield after
    engine.close()


def load(world, epoch: int) -> None:
    world.holder.apply(world.update(epoch, (1, epoch, "owner")))
    world.holder.tick()


def test_it_is_named_and_nothing_is_written_to_it(went_back):
    world = went_back
    load(world, 2)
    with pytest.raises(
        DocumentOlder, match=r"manifest\.json' is at revision 2, and was at \d before.*storage repair"
    ):
        world.read((1, 2))
    assert world.store.get(KEY).data == world.copy


def test_it_is_served_again_once_the_newest_copy_is_back(went_back):
    world = went_back
    load(world, 2)
    put_back(world.store, KEY, world.newest)
    world.clock.now_ms += 60_000
    world.grant(120_000)
    world.holder.tick()
    assert world.read((1, 2)) == [1, 2]


def test_without_the_notes_rows_are_missing(went_back):
    """What they are for."""
    world = went_back
    world.store.delete(seen_key("t", "e1"))
    load(world, 2)
    assert world.read((1, 2)) == [1]


class Clock(SystemRuntime):
    """Time passes when it is told to."""

    passed_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.passed_ms

    def pass_ms(self, ms: float) -> None:
        self.passed_ms += ms


class Notes:
    """The notes of executors on one store, each with a memory of its own."""

    def __init__(self, runtime: SystemRuntime | None = None) -> None:
        self.store = MemoryStore()
        self.runtime = runtime or SystemRuntime()

    def of(self, executor_id: str) -> tuple[SeenManifests, DocumentMemory]:
        memory = DocumentMemory()
        return SeenManifests(self.store, memory, executor_id, self.runtime, map), memory


def test_whoever_noted_the_newest_is_believed_and_an_older_memory_takes_nothing_back():
    notes = Notes()
    for executor_id, revision in (("e1", 7), ("e2", 5), ("e1", 6)):
        seen, memory = notes.of(executor_id)
        memory.learn(KEY, Seen(revision, f"c{revision}"))
        assert seen.tick() == 1
    after, memory = notes.of("e3")
    after.take_in("t", PATHS)
    assert memory.of(KEY) == Seen(7, "c7")


def test_a_tick_without_changes_asks_the_store_for_nothing():
    notes = Notes()
    seen, memory = notes.of("e1")
    assert seen.tick() == 0
    memory.learn(KEY, Seen(1, "a"))
    memory.learn("cluster.json", Seen(9, "x"))
    assert (seen.tick(), seen.tick()) == (1, 0)
    before = notes.store.get(seen_key("t", "e1")).version
    memory.learn(KEY, Seen(2, "b"))
    assert seen.tick() == 1
    assert notes.store.get(seen_key("t", "e1")).version != before
    assert [entry.key for entry in notes.store.list("")] == [seen_key("t", "e1")]


@pytest.mark.parametrize("lost", ["gone", "older"])
def test_notes_that_are_lost_while_nothing_changes_are_noted_anew_within_a_minute(lost):
    clock = Clock()
    notes = Notes(clock)
    seen, memory = notes.of("e1")
    memory.learn(KEY, Seen(1, "a"))
    seen.tick()
    older = notes.store.get(seen_key("t", "e1")).data
    memory.learn(KEY, Seen(2, "b"))
    seen.tick()
    clock.pass_ms(LOOK_EVERY_MS)
    assert seen.tick() == 0
    notes.store.delete(seen_key("t", "e1"))
    if lost == "older":
        notes.store.create(seen_key("t", "e1"), older)
    assert seen.tick() == 0
    clock.pass_ms(LOOK_EVERY_MS)
    assert seen.tick() == 1
    after, remembered = notes.of("e2")
    after.take_in("t", PATHS)
    assert remembered.of(KEY) == Seen(2, "b")
    clock.pass_ms(LOOK_EVERY_MS)
    assert seen.tick() == 0


def test_notes_of_other_partitions_are_not_kept_in_memory_and_later_ones_are_read():
    notes = Notes()
    seen, memory = notes.of("e1")
    memory.learn(KEY, Seen(1, "a"))
    memory.learn(manifest_key("t", "expr0=2"), Seen(1, "b"))
    seen.tick()
    after, remembered = notes.of("e2")
    after.take_in("t", PATHS)
    assert list(remembered.below("")) == [KEY]
    memory.learn(KEY, Seen(4, "d"))
    seen.tick()
    after.take_in("t", PATHS)
    assert remembered.of(KEY) == Seen(4, "d")


def test_what_cannot_be_read_proves_nothing():
    notes = Notes()
    notes.store.create(seen_key("t", "e1"), b"torn")
    after, memory = notes.of("e2")
    after.take_in("t", PATHS)
    assert memory.of(KEY) is None


def test_notes_that_cannot_be_read_are_made_anew_by_whose_they_are():
    notes = Notes()
    seen, memory = notes.of("e1")
    memory.learn(KEY, Seen(1, "a"))
    seen.tick()
    put_back(notes.store, seen_key("t", "e1"), b"torn")
    memory.learn(KEY, Seen(2, "b"))
    assert seen.tick() == 1
    after, remembered = notes.of("e2")
    after.take_in("t", PATHS)
    assert remembered.of(KEY) == Seen(2, "b")


def test_notes_in_the_place_of_others_are_named_and_nothing_is_loaded_or_written_by_them(went_back):
    """They say nothing of this table; those that do may prove that a manifest is an older copy."""
    world, store = went_back, went_back.store
    key, other = seen_key("t", "e1"), seen_key("u", "e1")
    seen, memory = SeenManifests(store, DocumentMemory(), "e1", SystemRuntime(), map), DocumentMemory()
    memory.learn(manifest_key("u", "expr0=1"), Seen(1, "a"))
    SeenManifests(store, memory, "e1", SystemRuntime(), map).tick()
    mine, theirs = store.get(key).data, store.get(other).data
    put_back(store, key, theirs)
    load(world, 2)
    with pytest.raises(DocumentUnreadable, match=f"'{key}' is the document that belongs to '{other}'"):
        world.read((1, 2))
    memory.learn(KEY, Seen(9, "i"))
    with pytest.raises(DocumentUnreadable, match="belongs to"):
        SeenManifests(store, memory, "e1", SystemRuntime(), map).tick()
    with pytest.raises(DocumentUnreadable, match="belongs to"):
        seen.take_in("t", PATHS)
    assert (store.get(KEY).data, store.get(key).data) == (world.copy, theirs)
    put_back(store, key, mine)
    load(world, 3)
    with pytest.raises(DocumentOlder):
        world.read((1, 3))


def test_notes_on_tables_that_are_gone_are_removed_and_those_of_others_are_no_garbage():
    notes = Notes()
    seen, memory = notes.of("e1")
    memory.learn(KEY, Seen(1, "a"))
    memory.learn(manifest_key("u", "expr0=1"), Seen(1, "b"))
    seen.tick()
    assert find_garbage(notes.store, {"t"}).files == ()
    assert forget_dropped(notes.store, {"t"}) == 1
    assert [entry.key for entry in notes.store.list("accelerations/seen/")] == [seen_key("t", "e1")]
