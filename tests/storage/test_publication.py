"""Runs of the pipeline published while everything stops, resumes and meets: all of a run is seen, or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from greenlet import greenlet

from ballista_py.errors import BallistaError, OutcomeUnknown, TryLater, VersionConflict
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.decisions import StatementsDocument, TableDecisions, statements_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import DataFile, Prepared
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import Publication, caught_up, visible_files
from ballista_py.testing import Chance, FaultyStore, StoreFaults

PATHS = ["expr0=0", "expr0=1", "expr0=2"]


def data(name: str, rows: int = 1) -> DataFile:
    return DataFile(path=f"snapshots/t/data/{name}.parquet", rows=rows, bytes=10)


def files(run: str, paths: list[str] = PATHS) -> dict[str, list[DataFile]]:
    return {path: [data(f"{run}/{path}")] for path in paths}


def publish(store, run: str, *, token: str | None = None, wanted=None, replaces: bool = True):
    """What a run of the pipeline does with the store."""
    runs = Publication(store, "t", Quick())
    token = token or run
    begun = runs.begin(PATHS, token=token)
    wanted = files(run) if wanted is None else wanted
    return runs.publish(begun, wanted, attempt=run, token=token, position=f"after {run}", replaces=replaces)


def read(store) -> dict[str, list[str]]:
    """What a reader sees: the runs of the files of each partition."""
    decisions = TableDecisions(store, "t").read()
    found = {}
    for path in PATHS:
        manifest = PartitionStorage(store, "t", path).read().document
        found[path] = sorted(file.path.split("/")[3] for file in visible_files(manifest, decisions))
    return found


def only(run: str) -> dict[str, list[str]]:
    return {key: [run] for key in PATHS}


class Quick(SystemRuntime):
    """The real machine, with waiting that takes no time and chance that replays."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = Chance(seed)

    def sleep_ms(self, duration_ms: float) -> None:
        return None

    def random(self) -> float:
        return self._chance.random()


class Stopped(BaseException):
    """The process is no more."""


class Watched:
    """A store that calls `hook(number)` before and after each request."""

    def __init__(self, store, hook: Callable[[int], None]) -> None:
        self._store, self._hook = store, hook
        self.count = 0

    def _step(self) -> None:
        self.count += 1
        self._hook(self.count)

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name not in ("get", "get_if_changed", "create", "replace", "delete", "list"):
            return verb

        def watched(*arguments):
            self._step()
            answer = verb(*arguments)
            self._step()
            return answer

        return watched


def old_table() -> MemoryStore:
    store = MemoryStore()
    publish(store, "old")
    assert read(store) == only("old")
    return store


def steps_of_a_run() -> int:
    watched = Watched(old_table(), lambda _: None)
    publish(watched, "new")
    return watched.count


def dying_at(step: int) -> Callable[[int], None]:
    def hook(number: int) -> None:
        if number >= step:
            raise Stopped

    return hook


@pytest.mark.parametrize("same_token", [True, False])
def test_wherever_a_driver_dies_readers_see_all_old_or_all_new_and_a_rerun_completes(same_token):
    outcomes = []
    for step in range(1, steps_of_a_run() + 1):
        store = old_table()
        with pytest.raises(Stopped):
            publish(Watched(store, dying_at(step)), "new", token="load")
        seen = read(store)
        assert seen in (only("old"), only("new")), step
        outcomes.append(seen == only("new"))
        publish(store, "again", token="load" if same_token else "load-2")
        wanted = "new" if same_token and outcomes[-1] else "again"
        assert read(store) == only(wanted), step
        assert all(not PartitionStorage(store, "t", path).read().document.prepared for path in PATHS)
        assert all(decision.settled for decision in TableDecisions(store, "t").read().decisions)
        publish(store, "third")
        assert read(store) == only("third"), step
    assert outcomes == sorted(outcomes)  # there is one instant
    assert {True, False} == set(outcomes)


def test_a_reader_at_any_moment_sees_all_old_or_all_new_and_never_goes_back():
    store, seen = old_table(), []
    publish(Watched(store, lambda _: seen.append(read(store) == only("new"))), "new")
    assert seen == sorted(seen)
    assert {True, False} == set(seen)


@pytest.mark.parametrize("replaces", [True, False])
def test_a_driver_that_was_paused_does_not_overwrite_a_newer_run(replaces):
    for step in range(1, steps_of_a_run() + 1):
        store = old_table()

        def other(number: int, step: int = step, store: MemoryStore = store) -> None:
            if number == step:
                publish(store, "newer")

        try:
            publish(Watched(store, other), "paused", replaces=replaces)
            published = True
        except VersionConflict:
            published = False
        seen = read(store)
        # The paused one may come later (it had not read anything before), or had come before; never over it.
        after = only("paused") if replaces else {key: ["newer", "paused"] for key in PATHS}
        assert seen in ((only("newer"), after) if published else (only("newer"),)), step
        if published and seen != only("newer"):
            assert step <= 5  # before it had read any manifest
        assert all(not PartitionStorage(store, "t", path).read().document.prepared for path in PATHS)


@pytest.mark.parametrize("seed", range(80))
def test_runs_an_owner_and_a_compaction_that_meet_anywhere_leave_one_whole_run(seed):
    """Every request is a chance for somebody else; at least one run gets through, and no reader sees two."""
    store, chance = old_table(), random.Random(seed)
    published: dict[str, bool] = {}

    def run(name: str) -> None:
        try:
            publish(Watched(store, lambda _: scheduler.switch()), name)
            published[name] = True
        except VersionConflict:
            published[name] = False

    def owner() -> None:
        mine = Watched(store, lambda _: scheduler.switch())
        for epoch in (1, 2):
            for path in PATHS:
                storage = PartitionStorage(mine, "t", path, runtime=Quick())
                here = storage.activate(epoch).document.files
                merged = data(f"{here[0].path.split('/')[3]}/merged-{epoch}-{path}", sum(f.rows for f in here))
                storage.compact(add=[merged], remove=[file.path for file in here], epoch=epoch)

    def reader() -> None:
        mine = Watched(store, lambda _: scheduler.switch())
        for _ in range(6):
            assert read(mine) in [only(name) for name in ("old", "a", "b", "c")]

    scheduler = greenlet.getcurrent()
    alive = [greenlet(lambda name=name: run(name)) for name in "abc"] + [greenlet(owner), greenlet(reader)]
    while alive:
        one = chance.choice(alive)
        one.switch()
        if one.dead:
            alive.remove(one)
    assert any(published.values())
    assert read(store) in [only(name) for name, whole in published.items() if whole]


@pytest.mark.parametrize("seed", range(40))
def test_lost_replies_leave_a_run_published_or_not_and_its_driver_told_right(seed):
    store = old_table()
    faulty = FaultyStore(store, StoreFaults(lost_replies=0.25, throttled=0.1), runtime=Quick(seed))
    try:
        publish(faulty, "new")
        expected = [only("new")]
    except OutcomeUnknown:
        expected = [only("old"), only("new")]
    except BallistaError:
        expected = [only("old")]
    assert read(store) in expected
    publish(store, "again")
    assert read(store) == only("again")


def test_rows_that_came_while_the_source_was_read_are_not_overwritten():
    store = old_table()
    runs = Publication(store, "t")
    begun = runs.begin(PATHS, token="new")
    PartitionStorage(store, "t", PATHS[1]).commit(add=[data("ingest/1")], epoch=0, token="insert")
    with pytest.raises(VersionConflict, match=r"changed by another run in between.*run again"):
        runs.publish(begun, files("new"), attempt="new", token="new", position="p")
    assert read(store) == {**only("old"), PATHS[1]: ["ingest", "old"]}


def test_a_compaction_while_the_source_was_read_is_no_conflict():
    store = old_table()
    runs = Publication(store, "t")
    begun = runs.begin(PATHS, token="new")
    storage = PartitionStorage(store, "t", PATHS[1])
    here = storage.read().document.files
    assert storage.compact(add=[data("old/merged", here[0].rows)], remove=[here[0].path], epoch=0)
    runs.publish(begun, files("new"), attempt="new", token="new", position="p")
    assert read(store) == only("new")


def test_a_partition_that_a_run_does_not_name_keeps_its_rows():
    store = old_table()
    publish(store, "new", wanted=files("new", PATHS[:1]))
    assert read(store) == {**only("old"), PATHS[0]: ["new"]}


def test_an_attempt_of_owners_that_is_prepared_there_is_ended_first():
    for committed in (True, False):
        store = old_table()
        begun = Publication(store, "t").begin(PATHS, token="new")
        for path in PATHS:
            insert = Prepared(attempt="a1", token="insert", add=(data(f"insert/{path}"),))
            PartitionStorage(store, "t", path).prepare(insert, epoch=0)
        if committed:
            TableDecisions(store, "t").commit("a1", "insert", affected=3)
        arguments = {"attempt": "new", "token": "new", "position": "p"}
        if committed:
            with pytest.raises(VersionConflict):
                Publication(store, "t").publish(begun, files("new"), **arguments)
            assert read(store) == {key: ["insert", "old"] for key in PATHS}
        else:
            Publication(store, "t").publish(begun, files("new"), **arguments)
            assert read(store) == only("new")
            assert not TableDecisions(store, "t").commit("a1", "insert", affected=3).committed


def test_a_run_whose_abortion_was_forgotten_does_not_count():
    store = old_table()
    runs = Publication(store, "t")
    begun = runs.begin(PATHS, token="late")
    decisions = ObjectState(store, statements_key("t"), StatementsDocument)
    # As after a thousand decisions more, of which the first was the abortion of this run.
    decisions.update(lambda found: evolve(found, decisions_made=1_002, floor=2))
    with pytest.raises(VersionConflict, match="another run took the place"):
        runs.publish(begun, files("late"), attempt="late", token="late", position="p")
    assert read(store) == only("old")


def test_a_slow_reader_is_told_that_its_moment_is_gone():
    store = old_table()
    decisions = TableDecisions(store, "t").read()
    publish(store, "new")
    manifest = PartitionStorage(store, "t", PATHS[0]).read().document
    assert [file.path for file in visible_files(manifest, decisions)] == ["snapshots/t/data/old/expr0=0.parquet"]
    with pytest.raises(TryLater, match="was replaced while it was read"):
        visible_files(manifest.current(manifest.retired[0].at_ms + 10_000_000), decisions)


def test_whoever_changes_a_partition_takes_in_what_is_decided_there_and_leaves_the_rest():
    store = MemoryStore()
    storage, statements = PartitionStorage(store, "t", PATHS[0]), TableDecisions(store, "t")
    storage.create()
    storage.activate(1)
    asked = []

    def decisions() -> StatementsDocument:
        asked.append(None)
        return statements.read()

    found, changed = caught_up(storage, decisions, 1)
    assert (found.document, changed, asked) == (storage.read().document, False, [])
    for name in ("open", "good", "bad"):
        storage.prepare(Prepared(attempt=name, token=name, add=(data(name),)), epoch=1)
    found, changed = caught_up(storage, decisions, 1)
    assert (found.document, changed, len(asked)) == (storage.read().document, False, 1)
    statements.commit("good", "good", affected=1)
    statements.abort("bad")
    found, changed = caught_up(storage, decisions, 1)
    assert (found.document, changed) == (storage.read().document, True)
    assert [file.path for file in found.document.files] == [data("good").path]
    assert (found.document.sequence, [one.attempt for one in found.document.prepared]) == (1, ["open"])
    statements.abort("open")
    assert caught_up(storage, decisions, 1)[1]
    assert storage.read().document.prepared == ()
    assert not caught_up(storage, decisions, 1)[1]
