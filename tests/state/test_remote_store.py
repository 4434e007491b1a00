"""What a store over a network makes of the answers of its client, decided without a network."""

from __future__ import annotations

import asyncio

import pytest

from ballista_py.errors import (
    BallistaError,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreUnavailable,
    UnsafeStore,
    VersionConflict,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.remote import (
    BUSY_RETRY_MS,
    LOST_RETRY_MS,
    READ_TRIES,
    Meaning,
    Page,
    RemoteStore,
    TooLargeError,
    Trouble,
    meaning_of_status,
    read_bounded,
)
from ballista_py.state.stores.store import ObjectEntry, StoredObject

FOUND = StoredObject(data=b"1", version="v1")


class Saying(Exception):
    """An error of the client, which means that."""


class Patient(SystemRuntime):
    """Sleeps take no time and are remembered; chance is as large as it can be."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept.append(duration_ms)

    def random(self) -> float:
        return 0.5


class Scripted(RemoteStore):
    """Each request takes the next of `answers`: an error to raise, or what to return."""

    def __init__(self, *answers: object, prefix: str = "p") -> None:
        self.runtime = Patient()
        super().__init__(prefix, runtime=self.runtime)
        self.answers, self.sent = list(answers), []

    def _next(self, *request: object):
        self.sent.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Meaning):
            raise Saying(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _send_get(self, path, max_bytes):
        return self._next("get", path, max_bytes)

    def _send_create(self, path, data):
        return self._next("create", path, data)

    def _send_replace(self, path, data, version):
        return self._next("replace", path, data, version)

    def _send_delete(self, path):
        return self._next("delete", path)

    def _send_list(self, path, token):
        return self._next("list", path, token)

    def _trouble(self, error):
        assert isinstance(error, Saying)
        return Trouble(error.args[0], "code")


@pytest.mark.parametrize(("meaning", "unit_ms"), [(Meaning.BUSY, BUSY_RETRY_MS), (Meaning.UNKNOWN, LOST_RETRY_MS)])
def test_a_read_is_repeated_after_waits_that_grow_and_then_given_up(meaning, unit_ms):
    store = Scripted(*[meaning] * (READ_TRIES - 1), FOUND)
    assert store.get("a", 7) == FOUND
    assert store.runtime.slept == [unit_ms * (2**tries - 1) * 0.5 for tries in range(READ_TRIES - 1)]
    assert store.sent == [("get", "p/a", 7)] * READ_TRIES
    store = Scripted(*[meaning] * READ_TRIES)
    with pytest.raises(StoreUnavailable, match=r"'a' cannot be read: .*code"):
        store.get("a")
    assert len(store.runtime.slept) == READ_TRIES - 1


def test_what_is_missing_refused_or_too_large_is_said_at_once():
    for answer, error in (
        (Meaning.MISSING, ObjectMissing),
        (Meaning.REFUSED, StoreUnavailable),
        (UnsafeStore("no"), UnsafeStore),
    ):
        store = Scripted(answer)
        with pytest.raises(error):
            store.get("a")
        assert (store.runtime.slept, len(store.sent)) == ([], 1)
    with pytest.raises(BallistaError, match="more than 5 bytes"):
        Scripted(TooLargeError()).get("a", 5)


@pytest.mark.parametrize("meaning", Meaning)
def test_a_write_is_sent_once_and_what_became_of_it_is_told(meaning):
    create = {Meaning.MISMATCH: ObjectExists, Meaning.UNKNOWN: OutcomeUnknown}
    conflicts = dict.fromkeys((Meaning.MISMATCH, Meaning.RACED, Meaning.MISSING), VersionConflict)
    replace = {**conflicts, Meaning.UNKNOWN: OutcomeUnknown}
    for expected, write in (
        (create, lambda store: store.create("a", b"1")),
        (replace, lambda store: store.replace("a", b"1", "v")),
    ):
        store = Scripted(meaning)
        with pytest.raises(expected.get(meaning, StoreUnavailable)):
            write(store)
        assert len(store.sent) == 1
    for write in (lambda s: s.create("a", b"1"), lambda s: s.replace("a", b"1", "v")):
        assert write(Scripted("v2")) == "v2"
        with pytest.raises(UnsafeStore):
            write(Scripted(UnsafeStore("no")))


@pytest.mark.parametrize("version", ["", "*"])
def test_a_version_that_no_store_gave_is_a_conflict_without_a_request(version):
    store = Scripted()
    with pytest.raises(VersionConflict):
        store.replace("a", b"1", version)
    assert store.sent == []


def test_a_delete_is_repeated_and_what_is_gone_is_deleted():
    store = Scripted(Meaning.UNKNOWN, Meaning.MISSING)
    store.delete("a")
    assert store.sent == [("delete", "p/a")] * 2


def test_a_listing_goes_on_page_by_page_and_leaves_out_what_is_no_key():
    def entry(key):
        return ObjectEntry(key=key, size=3, version="v", modified_ms=7)

    pages = (Page((entry("p/a"), entry("p/a//b")), token="next"), Meaning.BUSY, Page((entry("p/c"),)))
    store = Scripted(*pages)
    assert list(store.list("")) == [entry("a"), entry("c")]
    assert [request[2] for request in store.sent] == [None, "next", "next"]
    assert list(Scripted(Meaning.MISSING, prefix="").list("x/")) == []


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (400, Meaning.REFUSED),
        (403, Meaning.REFUSED),
        (404, Meaning.MISSING),
        (408, Meaning.UNKNOWN),
        (412, Meaning.MISMATCH),
        (429, Meaning.BUSY),
        (499, Meaning.REFUSED),
        (500, Meaning.UNKNOWN),
        (503, Meaning.UNKNOWN),
    ],
)
def test_what_a_bare_status_means(status, meaning):
    assert meaning_of_status(status) is meaning


def test_a_body_is_read_up_to_its_bound():
    async def parts():
        for part in (b"ab", b"cd", b"e"):
            yield part

    assert asyncio.run(read_bounded(parts(), 5)) == b"abcde"
    with pytest.raises(TooLargeError):
        asyncio.run(read_bounded(parts(), 4))
