"""How a file differs from the catalog: what is changed, what is refused, and that nothing loses a row."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.app.application import Application, DatasetColumn, DeclaredDataset
from ballista_py.coordinator.app.plan import plan_of
from ballista_py.partitions.refresh import Refresh, Retention

ID = DatasetColumn(name="id", kind="bigint", nullable=False)


def dataset(name, *more, **options):
    return DeclaredDataset(name=name, columns=(ID, *more), partition_by=["bucket(2, id)"], **options)


def application(revision, *datasets, **options):
    digest = options.pop("digest", f"{revision:064d}")
    return Application(name="shop", revision=revision, digest=digest, datasets=datasets, **options)


KIND = DatasetColumn(name="kind", kind="varchar")
EVENTS = dataset("events", KIND)
FORGET = Retention(sql="delete from events where id < 7", every="10m")


def plan_after(cluster, before, after):
    """What a second revision changes, once the first is applied."""
    assert cluster.applier("one").apply(application(1, before)).standing == "applied"
    return plan_of(application(2, after), cluster.now, cluster.declarations)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (dataset("events", KIND, DatasetColumn(name="n", kind="int", default="7")), "add column n int default 7"),
        (dataset("events", evolve(KIND, default="'a'")), "default of kind becomes 'a'"),
        (dataset("events", evolve(KIND, description="which")), "comment on kind"),
        (dataset("events", KIND, description="what happened"), "comment on the table"),
        (dataset("events", KIND, file_format="vortex"), "file_format becomes vortex"),
        (dataset("events", KIND, retention=FORGET), "no refresh, retention every 10m"),
    ],
)
def test_what_alter_can_do_is_one_change_of_the_table(cluster, after, what):
    plan = plan_after(cluster, EVENTS, after)
    assert not plan.refused
    assert [(change.kind, change.dataset, change.what) for change in plan.changes] == [
        ("alter", "events", (what,))
    ]


def test_a_wider_type_and_null_are_let_in(cluster):
    small = dataset("events", DatasetColumn(name="n", kind="int", nullable=False))
    wide = dataset("events", DatasetColumn(name="n", kind="bigint"))
    plan = plan_after(cluster, small, wide)
    assert [change.what for change in plan.changes] == [("column n becomes bigint", "column n may be null")]


@pytest.mark.parametrize(
    ("after", "path", "said"),
    [
        (
            dataset("events"),
            ".columns",
            "whose values would be lost: name it here, or drop it first with ALTER TABLE",
        ),
        (
            dataset("events", evolve(KIND, kind="bigint")),
            ".columns[1].type",
            "VARCHAR, which cannot become BIGINT",
        ),
        (
            dataset("events", evolve(KIND, nullable=False)),
            ".columns[1].nullable",
            "SET NOT NULL looks at its rows",
        ),
        (
            dataset("events", KIND, DatasetColumn(name="n", kind="int", nullable=False)),
            ".columns[2]",
            "give it a default",
        ),
        (evolve(EVENTS, partition_by=["bucket(4, id)"]), ".acceleration.partition_by", "would move rows"),
        (evolve(EVENTS, partition_by=[], distribution="replicated"), ".distribution", "is partitioned"),
        (
            evolve(EVENTS, primary_key=("id",)),
            ".acceleration.primary_key",
            "the primary key of table 'events' is none",
        ),
        (evolve(EVENTS, checks=("id > 0",)), ".checks", "has other checks"),
        (evolve(EVENTS, columns=(), source={"path": "/x"}), "", "has columns, and this says a source"),
    ],
)
def test_what_would_lose_rows_or_is_not_done_in_place_is_refused_with_a_way_out(cluster, after, path, said):
    plan = plan_after(cluster, EVENTS, after)
    assert [problem.path for problem in plan.refused] == [f"datasets[0]{path}"]
    assert said in plan.refused[0].text
    before = cluster.now
    found = cluster.applier("one").apply(application(2, after))
    assert (found.standing, cluster.now) == ("refused", before)


def test_another_source_is_refused_and_the_same_one_agrees(cluster):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    spec = evolve(dataset("orders"), columns=(), source={"path": "/data/orders"})
    cluster.maker.create("orders", None, ["bucket(2, id)"], schema=schema)
    cluster.state.update(
        lambda now: evolve(now, tables={"orders": evolve(now.tables["orders"], source={"path": "/data/orders"})})
    )
    same = plan_of(application(1, spec), cluster.now, cluster.declarations)
    assert (same.changes, same.refused, [*same.agreeing]) == ((), (), ["orders"])
    other = evolve(spec, source={"path": "/data/orders", "header": "true"})
    refused = plan_of(application(1, other), cluster.now, cluster.declarations).refused
    assert [problem.path for problem in refused] == ["datasets[0].from"]


def test_a_table_that_is_not_named_any_more_stays_unless_the_file_says_prune(cluster):
    one, two = dataset("one"), dataset("two")
    cluster.applier("one").apply(application(1, one, two))
    cluster.maker.create("by_hand", None, ["bucket(2, id)"], schema=pa.schema([("id", pa.int64())]))
    kept = plan_of(application(2, one), cluster.now, cluster.declarations)
    assert (kept.changes, kept.left) == ((), ("two",))
    pruned = plan_of(application(2, one, prune=True), cluster.now, cluster.declarations)
    assert [(change.kind, change.dataset) for change in pruned.changes] == [("drop", "two")]


def test_co_located_datasets_are_made_in_order_and_others_are_refused(cluster):
    lines = dataset("lines", colocate_with="orders")
    plan = plan_of(application(1, lines, dataset("orders")), cluster.now, cluster.declarations)
    assert [change.dataset for change in plan.changes] == ["orders", "lines"]
    cluster.applier("one").apply(application(1, lines, dataset("orders")))
    alone = plan_of(application(2, dataset("lines"), dataset("orders")), cluster.now, cluster.declarations)
    assert [problem.path for problem in alone.refused] == ["datasets[0].colocate_with"]


def test_settings_that_differ_are_told(cluster):
    app = application(1, settings={"replicas": "2"})
    (change,) = plan_of(app, cluster.now, cluster.declarations).changes
    assert change.to_json() == {
        "change": "settings",
        "dataset": "",
        "what": ["replicas: the default becomes 2", "each scheduler takes them when it starts next"],
    }
    cluster.applier("one").apply(app)
    assert plan_of(evolve(app, revision=2), cluster.now, cluster.declarations).changes == ()


def test_a_type_that_says_more_than_a_type_is_refused(cluster):
    for kind in ("bigint, b bigint", "bigint default 5", "bigint not null", "bigint primary key", "bigint) --"):
        wrong = application(1, dataset("events", DatasetColumn(name="n", kind=kind)))
        assert plan_of(wrong, cluster.now, cluster.declarations).refused, kind
    for check in ("id > 0) , check (id > 1", "id > 0), n bigint, check (id > 1"):
        wrong = application(1, dataset("events", checks=(check,)))
        assert plan_of(wrong, cluster.now, cluster.declarations).refused, check


@pytest.mark.parametrize("key", ["bucket(8, n)", "n"])
def test_what_only_alter_finds_out_is_refused_before_anything_is_begun(cluster, key):
    small = evolve(dataset("events", DatasetColumn(name="n", kind="int", nullable=False)), partition_by=[key])
    wide = evolve(dataset("events", DatasetColumn(name="n", kind="bigint", nullable=False)), partition_by=[key])
    plan = plan_after(cluster, small, wide)
    assert not plan.changes
    assert [problem.path for problem in plan.refused] == ["datasets[0]"]
    before = cluster.now
    assert cluster.applier("one").apply(application(2, wide)).standing == "refused"
    assert cluster.now == before
    assert cluster.applier("one").apply(application(1, small)).standing == "applied"


def test_what_it_forgets_is_altered_in_place_and_a_retention_of_others_is_refused(cluster):
    assert plan_after(cluster, EVENTS, dataset("events", KIND, retention=FORGET)).changes
    applied = cluster.applier("one").apply(application(2, dataset("events", KIND, retention=FORGET)))
    assert (applied.standing, cluster.now.tables["events"].retention) == ("applied", FORGET)
    other = dataset("more", retention=Retention(sql="delete from events where id < 7"))
    (refused,) = plan_of(application(3, other), cluster.now, cluster.declarations).refused
    assert "deletes from 'events'" in refused.text
    managed = dataset("more", refresh=Refresh(every="5m"))
    (refused,) = plan_of(application(3, managed), cluster.now, cluster.declarations).refused
    assert "has no source" in refused.text
