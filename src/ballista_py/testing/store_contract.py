"""What every `ConditionalStore` must do, as a test class that pytest runs on a store of yours.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore(…)  # empty, or under a fresh prefix

Every test gets a store in which nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar

from ballista_py.errors import (
    BallistaError,
    ConfigError,
    DocumentUnreadable,
    ObjectExists,
    ObjectMissing,
    VersionConflict,
)
from ballista_py.state.stores.check import RACERS, check_store
from ballista_py.state.stores.store import ConditionalStore

_KEYS = ("plain", "folder/a b-ü.json", "a/%41/b+c&d=e?f#g", "deep/" * 20 + "x", "tilde~/(paren)'quote';,@!$*=:")
_BAD_KEYS = (
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
)
_SAME_REFUSED = 200


class StoreContract:
    """The tests. A subclass brings the fixture `store`, and may lower what its store cannot do.

    `bytes_decide_versions`: the version of an object may be a hash of its bytes, as ETags of S3 are.
    `racers`, `increments`: the size of the race. `whole_check`: the last test runs the whole of `check_store`, about
    4,000 requests, which finds a store that breaks a promise now and then; else the quick half.
    """

    bytes_decide_versions: ClassVar[bool] = False
    racers: ClassVar[int] = 6
    increments: ClassVar[int] = 5
    whole_check: ClassVar[bool] = True

    def test_an_object_is_read_back_whole_under_the_version_it_was_written_with(
        self, store: ConditionalStore
    ) -> None:
        for key in _KEYS:
            version = store.create(key, b'{"a": 1}')
            found = store.get(key)
            assert (found.data, found.version) == (b'{"a": 1}', version), key
            newer = store.replace(key, b"", version)
            found = store.get(key)
            assert (found.data, found.version) == (b"", newer), key
            assert newer != version
        assert sorted(entry.key for entry in store.list("")) == sorted(_KEYS)

    def test_bytes_come_back_exactly_whatever_they_look_like(self, store: ConditionalStore) -> None:
        for number, data in enumerate((b"\r\n", b"\x00\xff\xfe", bytes(range(256)) * 4_096, b" " * 200)):
            version = store.create(f"object{number}", data)
            assert store.get(f"object{number}").data == data
            store.replace(f"object{number}", data + b"\n", version)
            assert store.get(f"object{number}").data == data + b"\n"

    def test_create_never_writes_over_an_object(self, store: ConditionalStore) -> None:
        store.create("a", b"first")
        with _raises(ObjectExists, "'a'"):
            store.create("a", b"second")
        assert store.get("a").data == b"first"

    def test_replace_never_writes_over_another_version(self, store: ConditionalStore) -> None:
        old = store.create("a", b"1")
        new = store.replace("a", b"2", old)
        with _raises(VersionConflict, "'a'"):
            store.replace("a", b"3", old)
        assert store.get("a").data == b"2"
        store.replace("a", b"3", new)

    def test_replace_never_takes_what_is_no_version_for_any_version(self, store: ConditionalStore) -> None:
        store.create("a", b"1")
        for version in ("", "*", "0", '"*"', "whatever"):
            with _raises(VersionConflict, "'a'"):
                store.replace("a", b"2", version)
        assert store.get("a").data == b"1"

    def test_replace_of_a_missing_object_is_a_conflict(self, store: ConditionalStore) -> None:
        version = store.create("a", b"1")
        with _raises(VersionConflict, "'b'"):
            store.replace("b", b"1", version)
        store.delete("a")
        with _raises(VersionConflict, "'a'"):
            store.replace("a", b"2", version)
        assert list(store.list("")) == []

    def test_the_same_bytes_written_again_are_another_version(self, store: ConditionalStore) -> None:
        versions = [store.create("a", b"same")]
        for _ in range(3):
            versions.append(store.replace("a", b"same", versions[-1]))
        assert store.get("a").version == versions[-1]
        assert self.bytes_decide_versions or len(set(versions)) == len(versions)

    def test_a_missing_object_is_said_to_be_missing(self, store: ConditionalStore) -> None:
        with _raises(ObjectMissing, "'no/such'"):
            store.get("no/such")
        store.delete("no/such")
        version = store.create("folder/object", b"1")
        with _raises(ObjectMissing, "'folder'"):
            store.get("folder")
        store.delete("folder/object")
        with _raises(ObjectMissing, "'folder/object'"):
            store.get_if_changed("folder/object", version)

    def test_an_object_is_as_large_as_the_caller_takes_and_no_larger(self, store: ConditionalStore) -> None:
        version = store.create("a", b"12345678")
        assert store.get("a", 8).data == b"12345678"
        with _raises(DocumentUnreadable, "'a'"):
            store.get("a", 7)
        store.replace("a", b"123456789", version)
        assert store.get("a", 9).data == b"123456789"
        with _raises(DocumentUnreadable, "'a'"):
            store.get("a", 8)

    def test_a_deleted_object_can_be_created_again(self, store: ConditionalStore) -> None:
        store.create("a", b"1")
        store.delete("a")
        store.create("a", b"2")
        assert store.get("a").data == b"2"

    def test_get_if_changed_returns_only_what_is_new(self, store: ConditionalStore) -> None:
        version = store.create("a", b"1")
        assert store.get_if_changed("a", version) is None
        newer = store.replace("a", b"2", version)
        found = store.get_if_changed("a", version)
        assert found is not None
        assert (found.data, found.version) == (b"2", newer)

    def test_a_listing_shows_all_keys_of_a_prefix_in_order(self, store: ConditionalStore) -> None:
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
            if entry.version is not None:
                assert entry.version == store.get(entry.key).version

    def test_a_key_that_climbs_out_or_is_malformed_is_refused(self, store: ConditionalStore) -> None:
        verbs: tuple[Callable[[str], Any], ...] = (
            store.get,
            store.delete,
            lambda key: store.create(key, b""),
            lambda key: store.replace(key, b"", "version"),
        )
        for key in _BAD_KEYS:
            for verb in verbs:
                with _raises(ConfigError, "is not usable"):
                    verb(key)

    def test_one_of_many_creators_wins(self, store: ConditionalStore) -> None:
        def create(number: int) -> bool:
            try:
                store.create("lock", str(number).encode())
            except ObjectExists:
                return False
            return True

        won = _together(self.racers, create)
        assert won.count(True) == 1
        assert store.get("lock").data == str(won.index(True)).encode()

    def test_a_race_of_threads_loses_no_update(self, store: ConditionalStore) -> None:
        store.create("counter", b"0")

        def count(number: int) -> None:
            done = 0
            refused, times = "", 0
            while done < self.increments:
                assert times < _SAME_REFUSED, "what is read cannot be replaced"
                found = store.get("counter")
                data = f"{int(found.data.split()[0]) + 1} {number}.{done}".encode()
                try:
                    store.replace("counter", data, found.version)
                except VersionConflict:
                    refused, times = found.version, times + 1 if found.version == refused else 1
                    continue
                done += 1

        _together(self.racers, count)
        assert int(store.get("counter").data.split()[0]) == self.racers * self.increments

    def test_coordination_on_it_is_safe(self, store: ConditionalStore) -> None:
        with ThreadPoolExecutor(RACERS) as executor:
            check_store(store, quick=not self.whole_check, executor=executor).require_safe()
        assert list(store.list("")) == []


def _together(racers: int, run: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(racers) as executor:
        return list(executor.map(run, range(racers)))


@contextmanager
def _raises(kind: type[BallistaError], part: str) -> Iterator[None]:
    said = None
    try:
        yield
    except kind as error:
        said = str(error)
    assert said is not None, f"{kind.__name__} was not raised"
    assert part in said, f"{said} does not say {part}"
