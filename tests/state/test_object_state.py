"""One document, many writers, lost replies: no update lost, none applied twice, nobody told a falsehood."""

from __future__ import annotations

import json
import random
import threading

import orjson
import pytest
from attrs import Factory, evolve, frozen

from ballista_py.errors import (
    ConfigError,
    DocumentUnreadable,
    InvariantViolated,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    RetriesExhausted,
    SchemaVersionUnsupported,
    StoreUnavailable,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.object_state import ObjectState, Retry
from ballista_py.state.stores.memory import MemoryStore


@frozen
class Counter:
    value: int = 0
    names: tuple[str, ...] = ()


@frozen
class Item:
    size: int = 0


@frozen
class Box:
    items: dict[str, Item] = Factory(dict)
    best: Item | None = None


def plus_one(counter: Counter) -> Counter:
    return evolve(counter, value=counter.value + 1)


def add(name: str):
    return lambda counter: evolve(counter, names=(*counter.names, name))


@pytest.fixture
def counter(unreliable, runtime):
    return ObjectState(unreliable, "counter.json", Counter, runtime=runtime, committed_by="me")


def test_every_commit_adds_one_to_the_revision_and_stamps_a_fresh_id(counter, unreliable):
    created = counter.create(Counter())
    assert (created.header.revision, created.header.committed_by, created.header.kind) == (1, "me", "Counter")
    for expected in range(2, 50):
        landed = counter.update(plus_one)
        assert landed.header.revision == expected
        assert landed.header.recent_commits[-1] == landed.header.commit_id
        assert len(landed.header.recent_commits) == min(32, expected)
        assert counter.read() == landed
    assert counter.read().document == Counter(48)


def test_an_equal_document_writes_nothing(counter, unreliable):
    before = counter.create(Counter(7))
    writes = unreliable.writes
    assert counter.update(lambda document: Counter(7)) == before
    assert unreliable.writes == writes


def test_an_error_of_the_change_passes_through_and_writes_nothing(counter, unreliable):
    counter.create(Counter())
    writes = unreliable.writes
    with pytest.raises(ZeroDivisionError):
        counter.update(lambda document: Counter(1 // document.value))
    assert unreliable.writes == writes
    assert counter.update(plus_one).document == Counter(1)


def test_a_missing_document_cannot_be_updated_and_an_existing_one_not_created(counter):
    with pytest.raises(ObjectMissing):
        counter.update(plus_one)
    with pytest.raises(ObjectMissing):
        counter.read()
    counter.create(Counter())
    with pytest.raises(ObjectExists):
        counter.create(Counter())


def test_a_change_is_applied_to_the_fresh_document_after_a_conflict(counter, unreliable):
    other = ObjectState(unreliable.store, "counter.json", Counter)
    counter.create(Counter())
    seen = []

    def change(document):
        seen.append(document.value)
        if len(seen) <= 3:
            other.update(plus_one)
        return add("mine")(document)

    landed = counter.update(change)
    assert seen == [0, 1, 2, 3]
    assert landed.document == Counter(3, ("mine",))


def test_endless_conflicts_end_in_a_named_error_and_apply_nothing(counter, unreliable):
    other = ObjectState(unreliable.store, "counter.json", Counter)
    counter.create(Counter())

    def change(document):
        other.update(plus_one)
        return add("mine")(document)

    with pytest.raises(RetriesExhausted, match=r"counter\.json.*8 attempts") as caught:
        counter.update(change)
    assert caught.value.details == {"key": "counter.json", "attempts": 8}
    assert counter.read().document == Counter(8)


@pytest.mark.parametrize("fault", ["lost_reply", "conflict_echo"])
@pytest.mark.parametrize("others", [0, 1, 31])
def test_a_lost_reply_never_applies_a_change_twice(counter, unreliable, fault, others):
    counter.create(Counter())
    other = ObjectState(unreliable.store, "counter.json", Counter)
    unreliable.plan = {2: fault}

    def before_read(key):
        if unreliable.writes == 2:
            unreliable.before_get = lambda key: None
            for _ in range(others):
                other.update(plus_one)

    unreliable.before_get = before_read
    landed = counter.update(add("mine"))
    assert landed.document == Counter(0, ("mine",))
    assert landed.header.revision == 2
    assert (landed.version != "") == (others == 0)
    assert unreliable.writes == 2
    assert counter.read().document == Counter(others, ("mine",))


@pytest.mark.parametrize("fault", ["lost_reply", "lost_request"])
def test_an_outcome_that_can_no_longer_be_told_is_said_to_be_unknown(counter, unreliable, fault):
    counter.create(Counter())
    other = ObjectState(unreliable.store, "counter.json", Counter)
    unreliable.plan = {2: fault}

    def before_read(key):
        if unreliable.writes == 2:
            unreliable.before_get = lambda key: None
            for _ in range(33):
                other.update(plus_one)

    unreliable.before_get = before_read
    with pytest.raises(OutcomeUnknown, match="may have been changed: more than 32 commits followed"):
        counter.update(add("mine"))


def test_a_lost_request_is_sent_again(counter, unreliable):
    counter.create(Counter())
    unreliable.plan = {2: "lost_request", 3: "unavailable", 4: "lost_request"}
    assert counter.update(plus_one).document == Counter(1)
    assert counter.read().header.revision == 2


def test_a_request_that_lands_late_lands_once(counter, unreliable):
    """The reply is lost, the request is still under way, the next attempt is refused or overtakes it."""
    counter.create(Counter())
    unreliable.plan = {2: "delayed"}
    unreliable.before_write = lambda number: unreliable.deliver() if number == 3 else None
    assert counter.update(plus_one).document == Counter(1)
    unreliable.plan = {unreliable.writes + 1: "delayed"}
    unreliable.before_write = lambda number: None
    assert counter.update(plus_one).document == Counter(2)
    unreliable.deliver()
    assert counter.read().document == Counter(2)


def test_a_change_is_not_asked_again_while_its_first_result_may_still_land(counter, unreliable):
    """Else it could be refused the second time, and yet be applied."""
    counter.create(Counter())
    calls = []

    def once(document):
        calls.append(document)
        assert len(calls) == 1
        return plus_one(document)

    unreliable.plan = {2: "delayed", 3: "lost_request"}
    assert counter.update(once).document == Counter(1)


def test_retries_are_not_said_to_be_exhausted_while_an_attempt_may_still_land(counter, unreliable):
    counter.create(Counter())
    unreliable.plan = {2: "delayed", **dict.fromkeys(range(3, 20), "unavailable")}
    with pytest.raises(OutcomeUnknown):
        counter.update(plus_one)
    unreliable.deliver()
    assert counter.read().document == Counter(1)


def test_an_echoed_conflict_is_known_as_ours_however_long_the_wait_is(counter, unreliable):
    """The read back comes before the wait, so that few commits can have followed."""
    counter.create(Counter())
    other = ObjectState(unreliable.store, "counter.json", Counter)
    waited = []

    def meanwhile(milliseconds):
        waited.append(milliseconds)
        for _ in range(40):
            other.update(plus_one)

    counter._runtime.sleep_ms = meanwhile
    unreliable.plan = {2: "conflict_echo"}
    assert counter.update(add("mine")).document == Counter(0, ("mine",))
    assert waited == []


def test_a_lost_race_is_known_as_lost_however_long_the_wait_is(counter, unreliable):
    counter.create(Counter())
    other = ObjectState(unreliable.store, "counter.json", Counter)

    def meanwhile(_milliseconds):
        for _ in range(40):
            other.update(plus_one)

    counter._runtime.sleep_ms = meanwhile
    first = []

    def change(document):
        if not first:
            first.append(document)
            other.update(plus_one)
        return add("mine")(document)

    assert counter.update(change).document == Counter(41, ("mine",))


def test_free_races_do_not_count_as_attempts_but_trouble_does(unreliable, runtime):
    shared = ObjectState(
        unreliable, "counter.json", Counter, runtime=runtime, retry=Retry(attempts=3, free_races=5)
    )
    other = ObjectState(unreliable.store, "counter.json", Counter)
    shared.create(Counter())

    def lose(document):
        other.update(plus_one)
        return add("mine")(document)

    with pytest.raises(RetriesExhausted) as caught:
        shared.update(lose)
    assert caught.value.details["attempts"] == 3 + 5
    writes = unreliable.writes
    unreliable.plan = dict.fromkeys(range(writes + 1, writes + 30), "unavailable")
    with pytest.raises(RetriesExhausted):
        shared.update(plus_one)
    assert unreliable.writes == writes + 3


def test_the_last_attempt_is_read_back_too(counter, unreliable):
    counter.create(Counter())
    unreliable.plan = {**dict.fromkeys(range(2, 9), "unavailable"), 9: "lost_reply"}
    assert counter.update(plus_one).document == Counter(1)


def test_a_store_in_trouble_ends_in_a_named_error(counter, unreliable):
    counter.create(Counter())
    unreliable.plan = dict.fromkeys(range(2, 30), "unavailable")
    with pytest.raises(RetriesExhausted):
        counter.update(plus_one)
    assert unreliable.writes == 1 + 8


@pytest.mark.parametrize("fault", ["lost_reply", "conflict_echo", "lost_request"])
def test_a_lost_reply_to_create_is_read_back(counter, unreliable, fault):
    unreliable.plan = {1: fault}
    assert counter.create(Counter(5)).document == Counter(5)
    with pytest.raises(ObjectExists):
        counter.create(Counter(6))
    assert counter.read().document == Counter(5)


def test_a_document_that_vanishes_after_a_lost_reply_leaves_the_outcome_unknown(counter, unreliable):
    counter.create(Counter())
    unreliable.plan = {2: "lost_reply"}
    unreliable.before_get = lambda key: unreliable.delete(key) if unreliable.writes == 2 else None
    with pytest.raises(OutcomeUnknown):
        counter.update(plus_one)


@pytest.mark.parametrize("seed", range(30))
def test_with_one_reply_in_three_lost_every_acknowledged_change_is_there_exactly_once(unreliable, runtime, seed):
    chance = random.Random(seed)
    faults = ["lost_reply", "lost_request", "delayed", "unavailable", "conflict_echo"]
    unreliable.chance = lambda: chance.choice(faults) if chance.random() < 0.35 else None
    unreliable.before_write = lambda number: unreliable.deliver() if chance.random() < 0.3 else None
    writers = [
        ObjectState(unreliable, "counter.json", Counter, runtime=runtime.another(), committed_by=str(n))
        for n in range(3)
    ]
    ObjectState(unreliable.store, "counter.json", Counter).create(Counter())
    acknowledged, unknown, refused = [], [], []
    for number in range(60):
        name = str(number)
        try:
            chance.choice(writers).update(add(name))
            acknowledged.append(name)
        except OutcomeUnknown:
            unknown.append(name)
        except RetriesExhausted:
            refused.append(name)
    unreliable.deliver()
    names = writers[0].read().document.names
    assert len(set(names)) == len(names)
    assert set(acknowledged) <= set(names)
    assert not set(refused) & set(names)
    assert set(names) <= set(acknowledged) | set(unknown)
    assert len(acknowledged) > 40


class Gate(MemoryStore):
    """Lets one writer stand at the store until the others have queued up behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.open, self.replaced = threading.Event(), threading.Event(), 0

    def replace(self, key, data, version):
        self.replaced += 1
        self.entered.set()
        assert self.open.wait(10)
        return super().replace(key, data, version)


def _in_threads(state, changes):
    outcomes = [None] * len(changes)

    def work(place):
        try:
            outcomes[place] = state.update(changes[place])
        except Exception as error:
            outcomes[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(changes))]
    return threads, outcomes


def _queue_up(state, store, changes):
    """Run the changes: the first is at the store while all others wait behind it."""
    threads, outcomes = _in_threads(state, changes)
    threads[0].start()
    assert store.entered.wait(10)
    for place, thread in enumerate(threads[1:]):
        thread.start()
        while len(state._waiting) <= place:
            pass
    store.open.set()
    for thread in threads:
        thread.join(60)
    return outcomes


def test_changes_that_wait_together_share_one_commit():
    store = Gate()
    state = ObjectState(store, "counter.json", Counter)
    state.create(Counter())
    outcomes = _queue_up(state, store, [add(str(n)) for n in range(20)])
    assert store.replaced == 2
    assert state.read().document.names == tuple(map(str, range(20)))
    assert [outcome.header.revision for outcome in outcomes] == [2] + [3] * 19


def test_one_failing_change_does_not_fail_the_others_of_its_group():
    store = Gate()
    state = ObjectState(store, "counter.json", Counter)
    state.create(Counter())
    outcomes = _queue_up(state, store, [plus_one, plus_one, lambda c: 1 // 0, lambda c: c, plus_one])
    assert isinstance(outcomes[2], ZeroDivisionError)
    assert state.read().document == Counter(3)
    assert outcomes[3] == outcomes[4] == state.read()


def test_a_change_that_offends_only_together_with_another_is_tried_by_itself():
    """Each step may add two names at most; two changes of two names each are two commits."""
    store = Gate()

    def at_most_two(old, new):
        return "more than two names at once" if len(new.names) - len(old.names) > 2 else None

    state = ObjectState(store, "counter.json", Counter, invariant=at_most_two)
    state.create(Counter())

    def add_two(name):
        return lambda counter: evolve(counter, names=(*counter.names, name, name))

    outcomes = _queue_up(
        state, store, [plus_one, add_two("a"), add_two("b"), lambda c: evolve(c, names=("x",) * 9)]
    )
    assert isinstance(outcomes[3], InvariantViolated)
    assert state.read().document == Counter(1, ("a", "a", "b", "b"))
    assert store.replaced == 3


def test_the_conclusion_of_a_change_counts_only_if_what_it_saw_was_committed(unreliable, runtime):
    """The second change is refused because of the first one, which never lands."""
    from ballista_py.state.documents.group_commit import Ticket

    state = ObjectState(unreliable, "counter.json", Counter, runtime=runtime)
    state.create(Counter())
    unreliable.plan = dict.fromkeys(range(2, 30), "unavailable")

    def only_if_new(document):
        if document.names:
            raise ObjectExists("there already")
        return document

    group = [Ticket(add("a")), Ticket(only_if_new)]
    state._commit(group)
    assert [type(ticket.error) for ticket in group] == [RetriesExhausted, RetriesExhausted]


def test_threads_that_share_a_state_lose_no_update():
    state = ObjectState(MemoryStore(), "counter.json", Counter, runtime=SystemRuntime())
    state.create(Counter())
    threads, outcomes = _in_threads(state, [plus_one] * 64)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert state.read().document == Counter(64)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]


def test_an_invariant_is_checked_before_every_commit(unreliable, runtime):
    def grows(old, new):
        return None if new.value >= old.value else f"the value fell from {old.value} to {new.value}"

    state = ObjectState(unreliable, "counter.json", Counter, runtime=runtime, invariant=grows)
    state.create(Counter(3))
    with pytest.raises(InvariantViolated, match=r"counter\.json.*fell from 3 to 2"):
        state.update(lambda document: Counter(2))
    assert state.update(lambda document: Counter(4)).header.revision == 2


def test_fields_that_this_release_does_not_know_survive_a_change(unreliable, runtime):
    state = ObjectState(unreliable, "box.json", Box, runtime=runtime)
    state.create(Box({"a": Item(1), "b": Item(2)}, Item(3)))
    stored = unreliable.get("box.json")
    raw = orjson.loads(stored.data)
    raw["future"] = {"deep": [1, 2]}
    raw["items"]["a"]["colour"] = "red"
    raw["best"]["colour"] = "blue"
    unreliable.store.replace("box.json", orjson.dumps(raw), stored.version)
    state.update(lambda box: evolve(box, items={"a": Item(10), "c": Item(4)}))
    raw = orjson.loads(unreliable.get("box.json").data)
    assert raw["future"] == {"deep": [1, 2]}
    assert raw["items"] == {"a": {"size": 10, "colour": "red"}, "c": {"size": 4}}
    assert raw["best"] == {"size": 3, "colour": "blue"}


@pytest.mark.parametrize("data", [b"", b"hello", b"[1]", b"{}", b'{"header": 1}', b"\xff\xfe", b'{"header": {}}'])
def test_foreign_content_is_refused_and_left_alone(unreliable, runtime, data):
    unreliable.create("counter.json", data)
    state = ObjectState(unreliable, "counter.json", Counter, runtime=runtime)
    for act in (state.read, lambda: state.update(plus_one)):
        with pytest.raises(DocumentUnreadable, match=r"'counter\.json' is not a 'Counter' document"):
            act()
    with pytest.raises((ObjectExists, DocumentUnreadable)):
        state.create(Counter())
    assert unreliable.get("counter.json").data == data


def test_a_document_of_another_kind_is_refused(unreliable, runtime):
    ObjectState(unreliable, "a.json", Box, runtime=runtime).create(Box())
    with pytest.raises(DocumentUnreadable, match="is a 'Box' document, not 'Counter'"):
        ObjectState(unreliable, "a.json", Counter, runtime=runtime).read()


def test_a_document_of_another_schema_version_is_refused(counter, unreliable):
    counter.create(Counter())
    stored = unreliable.get("counter.json")
    newer = json.loads(stored.data)
    newer["header"]["schema_version"] = 2
    unreliable.store.replace("counter.json", orjson.dumps(newer), stored.version)
    with pytest.raises(SchemaVersionUnsupported, match="schema version 2; this release reads and writes 1"):
        counter.update(plus_one)


def test_a_document_above_the_limit_is_not_written(counter, monkeypatch):
    monkeypatch.setattr("ballista_py.state.documents.codec.MAX_DOCUMENT_BYTES", 2_000)
    counter.create(Counter())
    with pytest.raises(InvariantViolated, match="2000 is the limit"):
        counter.update(add("x" * 2_000))
    assert counter.update(plus_one).document == Counter(1)


def test_a_type_that_is_no_document_is_refused(unreliable):
    with pytest.raises(ConfigError, match="int is no document"):
        ObjectState(unreliable, "a", int)


def test_waits_grow_like_fibonacci_numbers_and_are_random_from_zero():
    retry = Retry(unit_ms=10)
    assert [retry.delay_ms(tries, 1.0) for tries in range(1, 9)] == [10, 10, 20, 30, 50, 80, 130, 210]
    assert retry.delay_ms(5, 0.0) == 0


class Full(MemoryStore):
    """A store without room."""

    def replace(self, key, data, version):
        raise StoreUnavailable(f"object '{key}' was not written: No space left on device", key=key)


def test_a_store_in_trouble_is_named_with_its_trouble():
    store = Full()
    state = ObjectState(store, "counter.json", Counter, retry=Retry(unit_ms=0.01))
    state.create(Counter())
    with pytest.raises(
        RetriesExhausted, match=r"8 attempts met a store in trouble \(.*No space left on device\); try"
    ):
        state.update(lambda counter: evolve(counter, value=1))
