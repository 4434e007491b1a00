"""A file is applied once, whole, by whoever does it: killed at each step, overtaken at each step, with lost replies."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.app.application import Application, DatasetColumn, DeclaredDataset
from ballista_py.coordinator.app.standing import standing_of
from ballista_py.errors import StoreError
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import CLUSTER_KEY
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing.faults.store import FaultyStore, StoreFaults

ID = DatasetColumn(name="id", kind="bigint", nullable=False)


def dataset(name, *more, **options):
    return DeclaredDataset(name=name, columns=(ID, *more), partition_by=["bucket(2, id)"], **options)


def application(revision, *datasets, **options):
    digest = options.pop("digest", f"{revision:064d}")
    return Application(name="shop", revision=revision, digest=digest, datasets=datasets, **options)


MORE = DatasetColumn(name="more", kind="varchar", default="'x'")
FIRST = application(1, dataset("events"), dataset("old"))
SECOND = application(2, dataset("events", MORE), dataset("new"), dataset("mate", colocate_with="new"), prune=True)


class Killed(BaseException):
    """The process is gone."""


class Watched(MemoryStore):
    """A store that does something after so many writes: the states that others find are those between writes."""

    def __init__(self, store, at, act):
        self.store, self.left, self.act = store, at, act

    def _passed(self, call):
        answer = call()
        self.left -= 1
        if self.left == 0:
            self.act()
        return answer

    def get(self, key, max_bytes=1 << 26):
        return self.store.get(key, max_bytes)

    def create(self, key, data):
        return self._passed(lambda: self.store.create(key, data))

    def replace(self, key, data, version):
        return self._passed(lambda: self.store.replace(key, data, version))

    def delete(self, key):
        return self._passed(lambda: self.store.delete(key))

    def list(self, prefix):
        return self.store.list(prefix)


def kill():
    raise Killed


def is_as_second_says(cluster):
    tables = cluster.now.tables
    assert sorted(tables) == ["events", "mate", "new"]
    assert tables["events"].schema.names == ["id", "more"]
    assert tables["events"].definition == 1, "altered once"
    assert tables["mate"].group == tables["new"].group
    app = cluster.now.app
    assert (app.revision, app.complete) == (2, True)
    assert dict(app.datasets) == {name: tables[name].folder for name in tables}
    for name in tables:  # every table has its map, under its own incarnation
        assert cluster.maker.cluster().tables[name].incarnation == tables[name].incarnation


@pytest.fixture
def first(cluster):
    assert cluster.applier("one").apply(FIRST).standing == "applied"
    return cluster


def test_a_second_time_changes_nothing(first):
    told = []
    assert first.applier("one", told=told.append).apply(SECOND).standing == "applied"
    is_as_second_says(first)
    assert told == [{"events", "mate", "new", "old"}]
    before = first.now
    for instance in ("one", "two", "somebody from outside"):
        again = first.applier(instance, told=told.append).apply(SECOND)
        assert (again.standing, again.changes) == ("applied", ())
    assert (first.now, len(told)) == (before, 1)


@pytest.mark.turn(3)
def test_killed_after_each_write_the_next_completes_it(new_cluster):
    for at in range(1, 1_000):
        cluster = new_cluster()
        cluster.applier("one").apply(FIRST)
        namings = cluster.now.namings
        store = Watched(cluster.store, at, kill)
        try:
            cluster.applier("one", store).apply(SECOND)
            assert store.left > 0, "a kill that nobody noticed"
            break
        except Killed:
            pass
        half = cluster.now.app
        if half.revision == 2 and not half.complete:
            assert cluster.applier("two").apply(SECOND).standing == "elsewhere", (
                "while it is a member it is left to it"
            )
        cluster.evict("one")
        assert cluster.applier("two").apply(SECOND).standing == "applied"
        is_as_second_says(cluster)
        assert cluster.now.namings == namings + 2, "each table was made once"
    assert at > 20


@pytest.mark.turn(3)
def test_overtaken_after_each_write_by_a_newer_file_nothing_of_the_older_is_done_afterwards(new_cluster):
    third = application(3, dataset("events", MORE, DatasetColumn(name="last", kind="int")), dataset("other"))
    for at in range(1, 1_000, 2):
        cluster = new_cluster()
        cluster.applier("one").apply(FIRST)
        seen = []

        def overtake(cluster=cluster, seen=seen):
            result = cluster.applier("two").apply(third)
            seen.append((result.standing, cluster.now))

        store = Watched(cluster.store, at, overtake)
        slow = cluster.applier("one", store).apply(SECOND)
        if not seen:
            break
        standing, then = seen[0]
        assert standing == "applied"
        assert slow.standing in ("older", "applied")
        assert (cluster.now.app, cluster.now.tables) == (then.app, then.tables), f"write {at}"
        assert cluster.now.app.revision == 3
    assert at > 20


def test_overtaken_amid_an_alteration_by_a_file_that_leaves_the_table_alone_it_is_not_altered(new_cluster):
    second = application(2, dataset("events", MORE))
    third = evolve(FIRST, revision=3, digest="3" * 64)
    for at in range(1, 1_000):
        cluster = new_cluster()
        cluster.applier("one").apply(FIRST)
        seen = []

        def overtake(cluster=cluster, seen=seen):
            seen.append((cluster.applier("two").apply(third).standing, cluster.now))

        store = Watched(cluster.store, at, overtake)
        cluster.applier("one", store).apply(second)
        if not seen:
            break
        standing, then = seen[0]
        if then.tables["events"].definition:  # it was altered by then: that would lose the values of a column
            assert standing == "refused"
        else:
            assert standing == "applied"
            assert (cluster.now.app, cluster.now.tables) == (then.app, then.tables), f"write {at}"
    assert at > 5


@pytest.mark.turn(3)
def test_who_counts_as_dead_and_wakes_up_after_another_one_took_over_commits_nothing(new_cluster):
    for at in range(1, 1_000, 3):
        cluster = new_cluster()
        cluster.applier("one").apply(FIRST)
        seen = []

        def take_over(cluster=cluster, seen=seen):
            cluster.evict("one")
            amid = cluster.applier("two")
            amid.tables.create = lambda name, *more, **options: (_ for _ in ()).throw(StoreError("not yet"))
            seen.append((amid.apply(SECOND).standing, cluster.now))

        store = Watched(cluster.store, at, take_over)
        slow = cluster.applier("one", store).apply(SECOND)
        if not seen:
            break
        standing, then = seen[0]
        assert slow.standing in ("elsewhere", "applied")
        assert (cluster.now.app, cluster.now.tables) == (then.app, then.tables), f"write {at}, {standing}"
        assert cluster.applier("two").apply(SECOND).standing == "applied"
        is_as_second_says(cluster)
    assert at > 20


@pytest.mark.turn(3)
def test_with_lost_replies_each_table_is_made_once(new_cluster):
    for seed in range(6):
        cluster = new_cluster()
        store = FaultyStore(
            cluster.store,
            StoreFaults(lost_replies=0.15, lost_requests=0.1, throttled=0.1),
            runtime=SeededChance(seed),
        )
        for app in (FIRST, SECOND):
            for _ in range(600):
                try:
                    if cluster.applier("one", store).apply(app).standing == "applied":
                        break
                except StoreError:
                    continue
            else:
                pytest.fail(f"seed {seed}: not applied")
        is_as_second_says(cluster)
        assert cluster.now.namings == 4


class SeededChance(SystemRuntime):
    """Chance that is the same in every run."""

    def __init__(self, seed):
        super().__init__()
        from ballista_py.runtime import seeded_chance

        self._chance = seeded_chance(seed)

    def random(self):
        return self._chance.random()


def test_an_older_file_and_another_one_of_the_revision_are_never_applied(first):
    first.applier("one").apply(SECOND)
    before = first.now
    other = evolve(SECOND, digest="f" * 64, datasets=())
    renamed = evolve(application(9), name="store")
    for app, standing, said in (
        (FIRST, "older", "shop revision 1 (000000000000) is older than shop revision 2"),
        (
            other,
            "different",
            "differs from shop revision 2 (000000000000), which was applied under the same revision",
        ),
        (renamed, "other", "set name to 'shop'"),
    ):
        found = first.applier("two").apply(app)
        assert found.standing == standing
        assert said in found.problems[0].text
    assert first.now == before


def test_two_schedulers_with_different_files_never_take_turns(first):
    for _ in range(3):
        for instance, app in (("one", FIRST), ("two", SECOND)):
            first.applier(instance).apply(app)
    is_as_second_says(first)
    assert first.now.namings == 4


def test_what_somebody_undoes_stays_undone_until_the_next_revision(first):
    cluster = first
    assert cluster.maker.drop("old")
    assert cluster.applier("two").apply(FIRST).standing == "applied"
    assert "old" not in cluster.now.tables
    standing, plan, _ = cluster.applier("two").look(FIRST)
    assert (standing, [change.dataset for change in plan.changes]) == ("applied", ["old"]), "it is shown"
    assert cluster.applier("two").apply(evolve(FIRST, revision=2, digest="2" * 64)).standing == "applied"
    assert "old" in cluster.now.tables


def test_what_somebody_undoes_amid_an_application_is_not_done_again(first):
    store = Watched(first.store, 0, kill)
    made = first.applier("one", store)

    def drop_once_made():
        if "events" in first.now.tables and first.now.tables["events"].definition:
            first.maker.drop("events")
            raise Killed

    store._passed = lambda call: (call(), drop_once_made())[0]
    with pytest.raises(Killed):
        made.apply(SECOND)
    first.evict("one")
    assert first.applier("two").apply(SECOND).standing == "applied"
    assert "events" not in first.now.tables


def test_prune_drops_no_table_that_somebody_else_has_made_under_the_name(first):
    first.maker.drop("old")
    first.maker.create("old", None, ["bucket(2, id)"], schema=pa.schema([("id", pa.int64())]))
    found = first.applier("one").apply(SECOND)
    assert (found.standing, found.left) == ("applied", ("old",))
    assert "old" in first.now.tables


def test_prune_drops_no_table_that_takes_the_place_of_one_meanwhile(first):
    swapped = []

    def swap():
        first.maker.drop("old")
        first.maker.create("old", None, ["bucket(2, id)"], schema=pa.schema([("id", pa.int64())]))
        swapped.append(first.now.tables["old"].folder)

    real = first.applier("one")
    change = real.tables.drop

    def drop(name, *more):
        swap()
        return change(name, *more)

    real.tables.drop = drop
    found = real.apply(SECOND)
    assert found.standing == "failed"
    assert "is another one by now: it stays" in found.problems[0].text
    assert first.now.tables["old"].folder == swapped[0]


def test_a_dataset_that_cannot_be_made_stops_no_other_and_the_next_try_goes_on(first):
    real = first.applier("one")
    create = real.tables.create

    def fail(name, *more, **options):
        if name == "new":
            raise StoreError("the source is not there yet")
        return create(name, *more, **options)

    real.tables.create = fail
    app = application(2, dataset("new"), dataset("other"))
    found = real.apply(app)
    assert found.standing == "failed"
    assert [str(problem) for problem in found.problems] == ["datasets[0]: the source is not there yet"]
    assert "other" in first.now.tables
    assert not first.now.app.complete
    real.tables.create = create
    assert real.apply(app).standing == "applied"
    assert "new" in first.now.tables


def test_a_catalog_that_was_lost_and_repaired_is_brought_to_the_newest_file_and_loses_nothing(first):
    first.applier("one").apply(SECOND)
    tables = first.now.tables
    first.state.update(lambda now: evolve(now, app=None, definitions=()))  # as repair makes it
    assert standing_of(FIRST, first.now, "one") == "new"
    assert first.applier("one").apply(FIRST).standing == "refused", "it would lose a column"
    assert first.applier("two").apply(SECOND).standing == "applied"
    assert first.now.tables == tables
    assert first.applier("one").apply(FIRST).standing == "older"


def test_an_older_copy_of_the_catalog_is_no_way_back_to_an_older_file(first):
    older = first.store.get(CLUSTER_KEY)
    first.applier("one").apply(SECOND)
    current = first.store.get(CLUSTER_KEY)
    applier = first.applier("two")
    assert applier.apply(SECOND).standing == "applied"
    first.store.replace(CLUSTER_KEY, older.data, current.version)
    with pytest.raises(Exception, match="is at revision") as refused:
        applier.apply(SECOND)
    assert refused.value.code == "document.older"
