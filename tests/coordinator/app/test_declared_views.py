"""The views of a file are made after what they read, once, whoever applies it and wherever he dies."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from attrs import evolve

from ballista_py.coordinator.app.application import Application, DatasetColumn, DeclaredDataset, DeclaredView
from ballista_py.errors import ConfigError, StoreError
from ballista_py.partitions.refresh import Refresh
from ballista_py.testing.faults.store import FaultyStore, StoreFaults

from .test_applying import Killed, SeededChance, Watched

EVENTS = DeclaredDataset(
    name="events",
    columns=(DatasetColumn(name="id", kind="bigint", nullable=False), DatasetColumn(name="n", kind="int")),
    partition_by=["bucket(2, id)"],
)
LARGE = DeclaredView(name="large", sql="select * from events where n > 5 -- of all\n", description="large ones")
COUNTED = DeclaredView(name="a_count", sql="select count(*) as rows, n from large group by n")


def application(revision, *views, datasets=(EVENTS,), **options):
    digest = options.pop("digest", f"{revision:064d}")
    return Application(name="shop", revision=revision, digest=digest, datasets=datasets, views=views, **options)


FIRST = application(1, COUNTED, LARGE)


def test_views_are_made_after_what_they_read(cluster):
    applied = cluster.applier("one").apply(FIRST)
    assert applied.standing == "applied", applied
    assert [(change.kind, change.dataset) for change in applied.changes] == [
        ("create", "events"), ("view", "large"), ("view", "a_count"),
    ]  # fmt: skip
    assert cluster.now.views["large"].schema.names == ["id", "n"]
    assert cluster.now.views["large"].comment == "large ones"
    assert cluster.now.views["a_count"].types == ("BIGINT", "INTEGER")
    standing, plan, _ = cluster.applier("two").look(FIRST)
    assert (standing, plan.changes, plan.refused) == ("applied", (), ())


def test_another_query_is_given_and_what_a_person_did_stays(cluster):
    cluster.applier("one").apply(FIRST)
    other = evolve(LARGE, sql="select id, n from events where n > 50")
    assert cluster.applier("one").apply(application(2, COUNTED, other)).standing == "applied"
    assert cluster.now.views["large"].sql == "select id, n from events where n > 50"
    cluster.state.update(lambda now: now.without_view("a_count"))
    again = cluster.applier("two").apply(application(2, COUNTED, other))
    assert again.standing == "applied"
    assert "a_count" not in cluster.now.views


def test_a_view_that_the_file_names_no_more_is_left_unless_it_says_prune(cluster):
    cluster.applier("one").apply(FIRST)
    left = cluster.applier("one").apply(application(2, LARGE))
    assert left.left == ("a_count",)
    pruned = cluster.applier("one").apply(application(3, LARGE, prune=True))
    assert pruned.standing == "applied"
    assert [*cluster.now.views] == ["large"]


def test_a_view_that_a_person_gave_another_query_is_not_pruned(cluster):
    cluster.applier("one").apply(FIRST)
    cluster.state.update(lambda now: now.with_view(evolve(now.views["a_count"], sql="select 1 as rows, 2 as n")))
    cluster.applier("one").apply(application(2, LARGE, prune=True))
    assert "a_count" in cluster.now.views


@pytest.mark.parametrize(
    ("views", "datasets", "said"),
    [
        ((evolve(LARGE, sql="select nope from events"),), (EVENTS,), "nope"),
        ((evolve(LARGE, sql="select * from elsewhere"),), (EVENTS,), "reads 'elsewhere', which is no table"),
        ((evolve(LARGE, name="events"),), (), "'events' is a table"),
        ((evolve(LARGE, sql="from large"),), (EVENTS,), "would read itself"),
        ((evolve(LARGE, sql="from a_count"), COUNTED), (EVENTS,), "large reads a_count reads large"),
        ((evolve(LARGE, sql="select 1; drop table events"),), (EVENTS,), "one by one|more than one"),
        ((evolve(LARGE, sql="select * from events where n = ?"),), (EVENTS,), "parameter"),
    ],
)
def test_a_view_that_cannot_be_made_is_refused_before_anything_is_begun(cluster, views, datasets, said):
    cluster.applier("one").apply(application(1))
    refused = cluster.applier("one").apply(application(2, *views, datasets=datasets))
    assert refused.standing == "refused"
    assert "views[0]" in [problem.path.partition(".")[0] for problem in refused.problems]
    with pytest.raises(ConfigError, match=said):
        raise ConfigError(next(one.text for one in refused.problems if one.path.startswith("views[0]")))
    assert cluster.now.app.revision == 1


def test_a_view_of_a_column_that_the_same_file_adds(cluster):
    above, wide = (
        DeclaredView(name="above", sql="from wide"),
        DeclaredView(name="wide", sql="select id from events"),
    )
    cluster.applier("one").apply(application(1, COUNTED, LARGE, above, wide))
    wider = evolve(EVENTS, columns=(*EVENTS.columns, DatasetColumn(name="more", kind="varchar")))
    above = DeclaredView(name="above", sql="select more from wide")
    wide = DeclaredView(name="wide", sql="select more from events")
    done = cluster.applier("one").apply(application(2, COUNTED, LARGE, above, wide, datasets=(wider,)))
    assert done.standing == "applied", done.problems
    assert cluster.now.views["above"].schema.names == ["more"]


class ActsAtRead(Watched):
    """A store in which others do something while somebody has read what he is about to replace."""

    def get(self, key, max_bytes=1 << 26):
        return self._passed(lambda: self.store.get(key, max_bytes))

    def get_if_changed(self, key, version, max_bytes=1 << 26):
        return self._passed(lambda: self.store.get_if_changed(key, version, max_bytes))

    def create(self, key, data):
        return self.store.create(key, data)

    def replace(self, key, data, version):
        return self.store.replace(key, data, version)


@pytest.mark.parametrize("at", range(1, 24))
def test_a_newer_file_that_is_begun_meanwhile_counts(new_cluster, at):
    cluster = new_cluster()
    cluster.applier("one").apply(FIRST)
    second = application(2, evolve(LARGE, sql="select 2 as two"), DeclaredView(name="new", sql="select 2 as two"))
    third = application(3, evolve(LARGE, sql="select 3 as three, 3 as n"), COUNTED, prune=True)
    store = ActsAtRead(cluster.store, at, lambda: cluster.applier("two").apply(third))
    with suppress(ConfigError):  # the file counts no more
        cluster.applier("one", store).apply(second)
    assert cluster.applier("two").apply(third).standing == "applied"
    assert cluster.now.views["large"].sql == "select 3 as three, 3 as n"
    assert [*cluster.now.views] == ["large", "a_count"]


@pytest.mark.parametrize("at", range(1, 16))
def test_a_view_that_a_person_replaces_meanwhile_is_not_pruned(new_cluster, at):
    cluster = new_cluster()
    cluster.applier("one").apply(FIRST)

    def person():
        view = evolve(cluster.now.views.get("a_count", cluster.now.views["large"]), name="a_count")
        cluster.state.update(lambda now: now.with_view(view, f"by a person {at}"))

    store = ActsAtRead(cluster.store, at, person)
    cluster.applier("one", store).apply(application(2, LARGE, prune=True))
    assert ("a_count" in cluster.now.views) == (f"by a person {at}" in cluster.now.definitions)


@pytest.mark.parametrize("at", range(1, 30))
def test_whoever_is_killed_after_a_write_the_next_one_ends_it(new_cluster, at):
    cluster = new_cluster()
    cluster.applier("one").apply(FIRST)
    second = application(2, evolve(LARGE, sql="select id from events"), DeclaredView(name="new", sql="from large"))

    def die():
        raise Killed

    try:
        cluster.applier("one", Watched(cluster.store, at, die)).apply(second)
    except Killed:
        cluster.evict("one")
    done = cluster.applier("two").apply(second)
    assert done.standing == "applied", done.problems
    assert cluster.now.views["new"].schema.names == ["id"]
    assert cluster.now.app.complete
    assert set(cluster.now.app.datasets) == {"events", "large", "new", "a_count"}


KEPT = DeclaredView(
    name="kept",
    sql="select n, count(*) as rows from large group by n",
    description="how many",
    keeps_rows=True,
    partition_by=["bucket(2, n)"],
)
OF_KEPT = DeclaredView(name="above_kept", sql="select n from kept")
ROWS = application(1, OF_KEPT, KEPT, LARGE)


def test_a_view_with_rows_is_made_after_what_it_reads_and_before_what_reads_it(cluster):
    applied = cluster.applier("one").apply(ROWS)
    assert applied.standing == "applied", applied
    assert [(change.kind, change.dataset) for change in applied.changes] == [
        ("create", "events"), ("view", "large"), ("create", "kept"), ("view", "above_kept"),
    ]  # fmt: skip
    table = cluster.now.tables["kept"]
    assert (table.query, table.comment, table.refresh.every) == (KEPT.sql, "how many", "10s")
    assert (table.schema.names, [key.expression for key in table.spec.keys]) == (["n", "rows"], ["bucket(2, n)"])
    standing, plan, _ = cluster.applier("two").look(ROWS)
    assert (standing, plan.changes, plan.refused) == ("applied", (), ())


def test_its_interval_and_its_comment_are_altered_and_another_query_or_key_is_refused(cluster):
    cluster.applier("one").apply(ROWS)
    other = evolve(KEPT, refresh=Refresh(every="5m"), description="so many")
    done = cluster.applier("one").apply(application(2, OF_KEPT, other, LARGE))
    assert (done.standing, [change.kind for change in done.changes]) == ("applied", ["alter"])
    assert (cluster.now.tables["kept"].refresh.every, cluster.now.tables["kept"].comment) == ("5m", "so many")
    for wrong, path in (
        (evolve(other, sql="select 1 as n, 2 as rows"), "views[1].sql"),
        (evolve(other, partition_by=["bucket(4, n)"]), "views[1].acceleration.partition_by"),
        (evolve(other, keeps_rows=False), "views[1]"),
    ):
        refused = cluster.applier("one").apply(application(3, OF_KEPT, wrong, LARGE))
        assert (refused.standing, [problem.path for problem in refused.problems]) == ("refused", [path])
    pruned = cluster.applier("one").apply(application(4, LARGE, prune=True))
    assert pruned.standing == "applied"
    assert ("kept" in cluster.now.tables, "above_kept" in cluster.now.views) == (False, False)


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (evolve(KEPT, sql="select n, now() as at from large"), "another time"),
        (evolve(KEPT, sql="select n, sum(n) as s from large group by n"), "HUGEINT"),
        (evolve(KEPT, sql="select id from large"), "no column 'n'"),
        (evolve(KEPT, sql="select n from above_kept"), "reads itself|would read itself"),
        (evolve(KEPT, sql="select n from nothing"), "nothing"),
        (evolve(KEPT, sql="insert into events values (1, 2)"), "syntax error"),
        (evolve(KEPT, name="events"), "take another name|events"),
    ],
)
def test_a_view_with_rows_that_cannot_be_made_is_refused_before_anything_is_begun(cluster, view, said):
    cluster.applier("one").apply(application(1))
    refused = cluster.applier("one").apply(application(2, OF_KEPT, view, LARGE))
    assert refused.standing == "refused", refused
    assert any(re.search(said, problem.text) for problem in refused.problems), refused.problems
    assert set(cluster.now.tables) == {"events"}
    assert cluster.now.views == {}


@pytest.mark.parametrize("at", range(1, 40))
def test_whoever_is_killed_amid_views_with_rows_the_next_one_ends_it(new_cluster, at):
    cluster = new_cluster()

    def die():
        raise Killed

    with suppress(Killed):
        cluster.applier("one", Watched(cluster.store, at, die)).apply(ROWS)
    cluster.evict("one")
    done = cluster.applier("two").apply(ROWS)
    assert done.standing == "applied", done.problems
    assert (set(cluster.now.tables), set(cluster.now.views)) == ({"events", "kept"}, {"large", "above_kept"})
    assert cluster.now.app.complete


def test_lost_replies_make_no_view_twice(new_cluster):
    for seed in range(6):
        cluster = new_cluster()
        faults = StoreFaults(lost_replies=0.15, lost_requests=0.1, throttled=0.1)
        store = FaultyStore(cluster.store, faults, runtime=SeededChance(seed))
        for _ in range(600):
            try:
                if cluster.applier("one", store).apply(FIRST).standing == "applied":
                    break
            except StoreError:
                continue
        assert cluster.now.app.complete
        assert [*cluster.now.views] == ["large", "a_count"]
        assert cluster.now.namings == 3
