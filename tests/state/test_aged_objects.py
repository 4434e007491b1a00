"""Objects that are removed by their age, as one process has known them."""

from ballista_py.state.documents import aged_objects
from ballista_py.state.documents.aged_objects import AgedObjects
from ballista_py.state.stores.memory import MemoryStore


def test_no_more_are_known_at_once_than_there_is_room_for_and_all_go_in_the_end(runtime, monkeypatch):
    monkeypatch.setattr(aged_objects, "MAX_KNOWN", 4)
    store = MemoryStore(runtime=runtime)
    aged = AgedObjects(store, runtime, "old/", 100.0)
    for name in "abc":
        store.create(f"old/{name}", b"")
    assert aged.tick() == 0
    for name in "defg":
        store.create(f"old/{name}", b"")
    store.create("new/a", b"")
    runtime.sleep_ms(50)
    assert aged.tick() == 0
    assert len(aged._known_ms) == 4
    runtime.sleep_ms(50)
    assert aged.tick() == 3  # those that were known for long enough
    assert sorted(entry.key for entry in store.list("old/")) == ["old/d", "old/e", "old/f", "old/g"]
    assert aged.tick() == 0
    runtime.sleep_ms(100)
    assert aged.tick() == 4
    assert [entry.key for entry in store.list("")] == ["new/a"]
