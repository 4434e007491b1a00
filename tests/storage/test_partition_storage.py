"""The fence and the tokens of one partition, on both stores."""

from __future__ import annotations

import pytest

from ballista_py.errors import DocumentUnreadable, Fenced, InvariantViolated, ObjectMissing, OutcomeUnknown
from ballista_py.storage.manifest import DataFile, Prepared, manifest_key
from ballista_py.storage.partition_storage import PartitionStorage


def file(name: str, rows: int = 10) -> DataFile:
    return DataFile(path=f"snapshots/t/data/{name}.parquet", rows=rows, bytes=rows * 8)


@pytest.fixture
def partition(store, clock):
    made = PartitionStorage(store, "t", "expr0=1", runtime=clock, committed_by="instance-a")
    made.create()
    return made


def names(storage):
    return [f.path.rpartition("/")[2].removesuffix(".parquet") for f in storage.read().document.files]


def test_after_activation_an_older_epoch_commits_nothing(store, partition):
    partition.activate(1)
    partition.commit(add=[file("a")], epoch=1, token="1")
    newer = PartitionStorage(store, "t", "expr0=1", committed_by="instance-b")
    newer.activate(2)
    with pytest.raises(Fenced, match="refuses epoch 1: epoch 2 is active"):
        partition.commit(add=[file("b")], epoch=1, token="2")
    with pytest.raises(Fenced):
        partition.activate(1)
    newer.commit(add=[file("c")], epoch=2, token="3")
    assert names(partition) == ["a", "c"]
    assert partition.read().document.epoch == 2
    assert partition.read().header.committed_by == "instance-b"


def test_a_manifest_that_saw_many_commits_is_read_where_one_would_be_made(partition):
    for epoch in range(1, 41):
        partition.activate(epoch)
    assert partition.create().document.epoch == 40


def test_activation_shows_every_commit_that_counts(store, partition):
    """Whatever the former owner committed before the fence rose is in the manifest that activation returns."""
    partition.activate(1)
    newer = PartitionStorage(store, "t", "expr0=1")
    original, commits = store._store.replace, iter(["late", None])

    def racing_replace(key, data, version):
        store.before.clear()
        name = next(commits, None)
        if name is not None:  # the former owner is quicker than the activation that was already on its way
            partition.commit(add=[file(name)], epoch=1, token=name)
        return original(key, data, version)

    store._store.replace = racing_replace
    activated = newer.activate(2).document
    store._store.replace = original
    assert [f.path for f in activated.files] == [file("late").path]
    assert names(newer) == ["late"]


def test_two_owners_at_once_one_of_them_is_fenced(store, partition, together):
    for round_ in range(1, 20, 2):
        old = PartitionStorage(store, "t", "expr0=1")
        new = PartitionStorage(store, "t", "expr0=1")
        old.activate(round_)
        results = together(
            lambda old=old, n=round_: old.commit(add=[file(f"o{n}")], epoch=n, token=f"o{n}"),
            lambda new=new, n=round_: new.activate(n + 1),
        )
        committed = not isinstance(results[0], Exception)
        assert committed or isinstance(results[0], Fenced)
        seen_at_activation = file(f"o{round_}").path in {f.path for f in results[1].document.files}
        assert seen_at_activation == committed == (f"o{round_}" in names(partition))


def test_an_epoch_that_was_never_activated_commits_nothing(partition):
    partition.activate(3)
    with pytest.raises(Fenced, match="only epoch 3 is active so far"):
        partition.commit(add=[file("a")], epoch=4, token="1")
    assert names(partition) == []


def test_activating_the_same_epoch_again_writes_nothing(partition):
    first = partition.activate(5)
    assert partition.activate(5).header.revision == first.header.revision


def test_a_token_sent_again_is_applied_once_and_answered_the_same(store, partition):
    partition.activate(1)
    first = partition.commit(add=[file("a", 7)], epoch=1, token="insert-1").document.applied("insert-1")
    revision = partition.read().header.revision
    assert (first.added, first.removed) == (7, 0)
    for name, rows in (("a", 7), ("other", 9)):
        again = partition.commit(add=[file(name, rows)], epoch=1, token="insert-1").document
        assert again.applied("insert-1") == first
    assert partition.read().header.revision == revision
    newer = PartitionStorage(store, "t", "expr0=1")
    newer.activate(2)
    again = newer.commit(add=[file("a", 7)], epoch=2, token="insert-1").document
    assert again.applied("insert-1") == first
    assert names(partition) == ["a"]


def test_a_lost_reply_does_not_double_a_commit(store, partition):
    partition.activate(1)
    original, lose = store._store.replace, [True]

    def losing_replace(key, data, version):
        landed = original(key, data, version)
        if lose.pop() if lose else False:
            raise OutcomeUnknown("the reply was lost")
        return landed

    store._store.replace = losing_replace
    partition.commit(add=[file("a")], epoch=1, token="1")
    assert lose == []
    assert names(partition) == ["a"]


def test_rewriting_replaces_files_in_one_step(partition):
    partition.activate(1)
    partition.commit(add=[file("a", 5), file("b", 6)], epoch=1, token="1")
    removed = [file("a").path, file("b").path]
    applied = partition.commit(add=[file("ab", 11)], remove=removed, epoch=1, token="2").document.applied("2")
    assert (applied.added, applied.removed) == (11, 11)
    assert names(partition) == ["ab"]
    partition.commit(add=[file("ab", 12)], remove=[file("ab").path], epoch=1, token="3")
    assert partition.read().document.rows == 12


@pytest.mark.parametrize(
    ("add", "remove"),
    [(["a"], []), ([], ["unknown"]), (["b", "b"], [])],
    ids=["listed already", "not listed", "named twice"],
)
def test_a_commit_that_contradicts_the_manifest_changes_nothing(partition, add, remove):
    partition.activate(1)
    partition.commit(add=[file("a")], epoch=1, token="1")
    with pytest.raises(InvariantViolated, match="nothing was changed"):
        partition.commit(add=[file(n) for n in add], remove=[file(n).path for n in remove], epoch=1, token="2")
    assert names(partition) == ["a"]


def test_concurrent_writers_of_one_owner_lose_nothing(store, partition, together):
    partition.activate(1)
    other = PartitionStorage(store, "t", "expr0=1")
    calls = [
        lambda k=k: (partition if k % 2 else other).commit(add=[file(f"f{k}")], epoch=1, token=f"{k}")
        for k in range(12)
    ]
    assert not [result for result in together(*calls) if isinstance(result, Exception)]
    assert sorted(names(partition)) == sorted(f"f{k}" for k in range(12))


def test_a_run_of_the_pipeline_replaces_the_files_and_leaves_the_epoch(partition):
    partition.activate(4)
    partition.commit(add=[file("a", 3)], epoch=4, token="1")
    since = partition.read().document.mark
    run = Prepared(attempt="r1", token="run-1", add=(file("x", 8),), source_position="snapshot 17")
    partition.prepare_run(run, since, replaces=True)
    assert names(partition) == ["a"]
    partition.fold("r1", epoch=None, sequence=1)
    document = partition.read().document
    assert (document.epoch, names(partition), document.source_position) == (4, ["x"], "snapshot 17")
    assert (document.tokens[-1].token, document.tokens[-1].removed) == ("run-1", 3)


def test_a_run_of_the_pipeline_makes_a_missing_manifest(store, clock):
    fresh = PartitionStorage(store, "t", "expr0=9", runtime=clock)
    with pytest.raises(ObjectMissing):
        fresh.read()
    with pytest.raises(ObjectMissing):
        fresh.activate(1)
    fresh.prepare_run(Prepared(attempt="r1", token="run-1"), (None, None), replaces=True)
    assert fresh.activate(1).document.files == ()


def test_a_manifest_stays_with_its_partition(store, partition):
    data = store.get(manifest_key("t", "expr0=1")).data
    store.create(manifest_key("t", "expr0=2"), data)
    with pytest.raises(DocumentUnreadable, match=r"belongs to 'snapshots/t/expr0=1/manifest\.json'"):
        PartitionStorage(store, "t", "expr0=2").read()


def test_a_foreign_object_in_place_of_a_manifest_is_named(store, clock):
    store.create(manifest_key("t", "expr0=3"), b"not json")
    with pytest.raises(DocumentUnreadable, match="expr0=3"):
        PartitionStorage(store, "t", "expr0=3", runtime=clock).activate(1)
