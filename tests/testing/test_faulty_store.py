"""The faulty store does what it is told, to the callers and not to the objects."""

from __future__ import annotations

import pytest

from ballista_py.errors import ObjectExists, OutcomeUnknown, StoreUnavailable
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing import Chance, FaultyStore, StoreContract, StoreFaults


class SeededRuntime(SystemRuntime):
    """Chance from a seed; sleeping only takes note."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed)
        self.slept_ms = []

    def random(self) -> float:
        return self.chance.random()

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)


class TestWithoutFaults(StoreContract):
    @pytest.fixture
    def store(self):
        return FaultyStore(MemoryStore(), StoreFaults(), runtime=SystemRuntime())


def test_a_lost_reply_hides_a_write_that_landed_and_a_lost_request_one_that_did_not():
    store = FaultyStore(MemoryStore(), StoreFaults(lost_replies=1.0), runtime=SeededRuntime(1))
    with pytest.raises(OutcomeUnknown, match="'a' may be written"):
        store.create("a", b"1")
    assert store.store.get("a").data == b"1"
    with pytest.raises(OutcomeUnknown):
        store.create("a", b"2")  # the refusal is lost, too
    store.faults = StoreFaults(lost_requests=1.0)
    with pytest.raises(OutcomeUnknown):
        store.create("b", b"1")
    store.faults = StoreFaults()
    with pytest.raises(ObjectExists):
        store.create("a", b"1")
    store.create("b", b"1")


def test_a_throttled_request_is_surely_not_carried_out():
    store = FaultyStore(MemoryStore(), StoreFaults(throttled=1.0), runtime=SeededRuntime(1))
    for send in (lambda: store.create("a", b"1"), lambda: store.get("a"), lambda: list(store.list(""))):
        with pytest.raises(StoreUnavailable):
            send()
    assert list(store.store.list("")) == []


def test_a_read_without_a_reply_is_unavailable_and_never_unknown():
    store = FaultyStore(MemoryStore(), StoreFaults(), runtime=SeededRuntime(1))
    version = store.create("a", b"1")
    for faults in (StoreFaults(lost_requests=1.0), StoreFaults(lost_replies=1.0)):
        store.faults = faults
        for read in (lambda: store.get("a"), lambda: store.get_if_changed("a", version)):
            with pytest.raises(StoreUnavailable):
                read()


def test_one_seed_is_one_course_of_events():
    def course(seed: int) -> list[str]:
        faults = StoreFaults(
            throttled=0.2, lost_requests=0.2, lost_replies=0.2, latency_ms=5, slow=0.1, slow_ms=900
        )
        runtime = SeededRuntime(seed)
        store = FaultyStore(MemoryStore(), faults, runtime=runtime)
        said = []
        for number in range(50):
            try:
                store.create(f"k{number}", b"1")
                said.append("done")
            except (OutcomeUnknown, StoreUnavailable) as error:
                said.append(error.code)
        return [*said, *map(str, runtime.slept_ms)]

    assert course(1) == course(1)
    assert course(1) != course(2)
    assert {"done", "store.outcome_unknown", "store.unavailable"} <= set(course(1))
    assert any(float(text) >= 900 for text in course(1) if text[0].isdigit())
