"""What every store promises, on every backend that needs no server."""

from __future__ import annotations

import threading

import pytest

from ballista_py.errors import ConfigError, ObjectExists, ObjectMissing, VersionConflict
from ballista_py.state.nonce import with_nonce
from ballista_py.state.store import open_store


def test_an_object_is_read_back_whole_under_the_version_it_was_written_with(store):
    version = store.create("folder/a b-ü.json", b'{"a": 1}')
    found = store.get("folder/a b-ü.json")
    assert (found.data, found.version) == (b'{"a": 1}', version)
    newer = store.replace("folder/a b-ü.json", b"", version)
    found = store.get("folder/a b-ü.json")
    assert (found.data, found.version) == (b"", newer)
    assert newer != version


def test_create_never_writes_over_an_object(store):
    store.create("a", b"first")
    with pytest.raises(ObjectExists, match="'a'"):
        store.create("a", b"second")
    assert store.get("a").data == b"first"


def test_replace_never_writes_over_another_version(store):
    old = store.create("a", b"1")
    new = store.replace("a", b"2", old)
    with pytest.raises(VersionConflict, match="'a'"):
        store.replace("a", b"3", old)
    assert store.get("a").data == b"2"
    store.replace("a", b"3", new)


def test_replace_of_a_missing_object_is_a_conflict(store):
    with pytest.raises(VersionConflict):
        store.replace("a", b"1", "whatever")
    version = store.create("a", b"1")
    store.delete("a")
    with pytest.raises(VersionConflict):
        store.replace("a", b"2", version)


def test_the_same_bytes_written_again_are_another_version(store):
    versions = [store.create("a", b"same")]
    for _ in range(3):
        versions.append(store.replace("a", b"same", versions[-1]))
    assert len(set(versions)) == 4
    with pytest.raises(VersionConflict):
        store.replace("a", b"x", versions[0])


def test_a_missing_object_is_said_to_be_missing(store):
    with pytest.raises(ObjectMissing, match="'no/such'"):
        store.get("no/such")
    store.delete("no/such")
    store.create("folder/object", b"1")
    with pytest.raises(ObjectMissing):
        store.get("folder")
    with pytest.raises(ObjectMissing):
        store.get("folder/object/below")


def test_a_listing_shows_all_keys_of_a_prefix_in_order_with_usable_versions(store):
    for key in ("b/2", "a-x", "a/2", "a/1/deep", "a.x", "c"):
        version = store.create(key, b"12345")
        store.replace(key, b"123", version)
    assert [entry.key for entry in store.list("")] == ["a-x", "a.x", "a/1/deep", "a/2", "b/2", "c"]
    assert [entry.key for entry in store.list("a")] == ["a-x", "a.x", "a/1/deep", "a/2"]
    assert [entry.key for entry in store.list("a/")] == ["a/1/deep", "a/2"]
    assert list(store.list("zzz/")) == []
    for entry in store.list(""):
        assert entry.size == 3
        assert entry.modified_ms > 1_600_000_000_000
        store.replace(entry.key, b"new", entry.version)


def test_get_if_changed_returns_only_what_is_new(store):
    version = store.create("a", b"1")
    assert store.get_if_changed("a", version) is None
    store.replace("a", b"2", version)
    assert store.get_if_changed("a", version).data == b"2"


@pytest.mark.parametrize("tail", [b"", b"\n", b"\n" + b" " * 128, b"\x00\xff", b" " * 200])
def test_bytes_come_back_exactly_whatever_they_look_like(store, tail):
    for number, data in enumerate([tail, with_nonce(tail, "7" * 32), b"x" * 300 + tail]):
        version = store.create(f"object{number}", data)
        assert store.get(f"object{number}").data == data
        assert store.get(f"object{number}").version == version
        store.replace(f"object{number}", data, version)
        assert store.get(f"object{number}").data == data


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "../up",
        "a/../../up",
        "a//b",
        "a/",
        "./a",
        "a\x00b",
        "a\nb",
        "a\\b",
        "x" * 300,
        "a/" * 600 + "a",
        "\ud800",
    ],
)
def test_a_key_that_climbs_out_or_is_malformed_is_refused(store, key):
    for verb in (store.get, store.delete, lambda k: store.create(k, b""), lambda k: store.replace(k, b"", "v")):
        with pytest.raises(ConfigError, match="is not usable"):
            verb(key)


def test_a_race_of_threads_loses_no_update(store):
    store.create("counter", b"0")

    def work():
        done = 0
        while done < 25:
            found = store.get("counter")
            try:
                store.replace("counter", str(int(found.data) + 1).encode(), found.version)
            except VersionConflict:
                continue
            done += 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("counter").data == b"200"


def test_one_of_many_creators_wins(store):
    winners = []

    def work(number):
        try:
            store.create("lock", str(number).encode())
        except ObjectExists:
            return
        winners.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(winner).encode() for winner in winners] == [store.get("lock").data]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("/plain/path", "take file:///"),
        ("ftp://host/x", "take file:///"),
        ("file://relative/x", "absolute folder"),
        ("file:///proc/cannot/be", "cannot be written"),
    ],
)
def test_an_unusable_location_is_a_configuration_error(url, reason):
    with pytest.raises(ConfigError, match=reason):
        open_store(url)


def test_an_unknown_option_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="takes no option 'colour'"):
        open_store(f"file://{tmp_path}", colour="red")


def test_a_memory_store_of_one_name_is_one_store():
    open_store("memory://shared").create("a", b"1")
    assert open_store("memory://shared").get("a").data == b"1"
    with pytest.raises(ObjectMissing):
        open_store("memory://other").get("a")
