"""Two schedulers with different application files, and one that is killed while it applies: real processes."""

from __future__ import annotations

import time

import pytest

from ballista_py import ClusterDocument, LocalCluster, ObjectState, open_store
from ballista_py.errors import ConfigError

MANY = [f"t{number}" for number in range(4)]


def text(revision: int, *names: str, more: str = "") -> str:
    datasets = "".join(
        f"  - name: {name}\n    columns: [{{name: id, type: bigint}}{more}]\n"
        "    acceleration: {partition_by: ['bucket(2, id)']}\n"
        for name in names
    )
    return f"version: v1\nname: shop\nrevision: {revision}\ndatasets:\n{datasets}"


WHO = ", {name: who, type: varchar, default: \"'me'\"}"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apps")
    made = {name: folder / f"{name}.yaml" for name in ("scheduler-1", "scheduler-2")}
    made["scheduler-1"].write_text(text(1, "events"))
    made["scheduler-2"].write_text(text(2, "events", "clicks", more=WHO))
    return made


@pytest.fixture(scope="module")
def cluster(files):
    with LocalCluster(schedulers=2, executors=1, ttl_ms=2_000, app=files) as made:
        yield made


def catalog(cluster) -> ClusterDocument:
    return ObjectState(open_store(cluster.state_location), "cluster.json", ClusterDocument).read().document


def test_the_newest_revision_counts_and_the_other_scheduler_is_named(cluster, wait_until):
    cluster.sql("insert into clicks (id) values (1), (2)")
    assert cluster.sql("select id, who from clicks order by id").to_pylist() == [
        {"id": 1, "who": "me"},
        {"id": 2, "who": "me"},
    ]
    older, newest = (cluster.shown(name)["app"] for name in ("scheduler-1", "scheduler-2"))
    assert (older["standing"], newest["standing"]) == ("older", "applied")
    assert "is older than shop revision 2" in older["problems"][0]
    assert older["applied"] == newest["applied"] == {**newest["applied"], "revision": 2, "complete": True}
    files = {one["scheduler_id"]: one["file"]["revision"] for one in newest["schedulers"]}
    assert files == {"scheduler-1": 1, "scheduler-2": 2}
    wait_until(lambda: "app_not_applied" in cluster.log("scheduler-1"))
    assert "app_not_applied" not in cluster.log("scheduler-2")
    namings = catalog(cluster).namings
    time.sleep(2.5)  # a tick of both
    assert (catalog(cluster).app.revision, catalog(cluster).namings) == (2, namings)


def test_killed_while_it_applies_another_one_completes_it_and_makes_nothing_twice(cluster, files):
    before = catalog(cluster)
    third = text(3, "events", "clicks", *MANY, more=WHO)
    cluster.kill("scheduler-1")
    files["scheduler-1"].write_text(third)
    cluster.start("scheduler-1", applied=False)
    until = time.monotonic() + 60
    while not (catalog(cluster).app.revision == 3 and set(MANY) & catalog(cluster).tables.keys()):
        assert time.monotonic() < until
        time.sleep(0.02)
    cluster.kill("scheduler-1")
    half = catalog(cluster)
    cluster.kill("scheduler-2")
    files["scheduler-2"].write_text(third)
    cluster.start("scheduler-2")
    after = catalog(cluster)
    assert (after.app.revision, after.app.complete) == (3, True)
    assert after.tables.keys() == before.tables.keys() | set(MANY)
    assert after.namings == before.namings + len(MANY), (
        f"killed after {len(half.tables) - len(before.tables)} tables"
    )
    assert cluster.sql("select count(*) as n from clicks").to_pylist() == [{"n": 2}]
    for name in MANY:
        cluster.sql(f"insert into {name} (id) values (7)")
        assert cluster.sql(f"select id, who from {name}").to_pylist() == [{"id": 7, "who": "me"}]


def test_a_file_that_cannot_be_applied_is_no_start(tmp_path):
    app = tmp_path / "app.yaml"
    app.write_text(text(1, "events").replace("bigint", "bigintt"))
    with (
        pytest.raises(ConfigError, match=r"app.yaml:5:5: datasets\[0\]: .*bigintt"),
        LocalCluster(schedulers=1, executors=1, app=app),
    ):
        pass
