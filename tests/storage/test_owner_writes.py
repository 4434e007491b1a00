"""Writes at an owner, with a real engine and real files: applied once, fenced, prepared and settled, compacted."""

import time
from functools import partial

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.errors import DocumentLost, DocumentOlder, LeaseExpired, NotOwner, TransportError, TryLater
from ballista_py.owner.compaction import Compacted
from ballista_py.owner.writes import OwnerWrites
from ballista_py.partitions.alterations import set_required
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.plan import LegTable
from ballista_py.sql.prune.changes import local_rewrite
from ballista_py.sql.rewrite import Rewrite
from ballista_py.state.documents.decisions import TableDecisions, statements_key
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, SchedulerInfo
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.undecided import GIVEN_MS, LOOK_AFTER_MS, attempt_by
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import DataFile, Prepared, manifest_key
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.compaction import CompactionPolicy
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS
from ballista_py.transport.flight.commands import WriteTarget
from ballista_py.work import Work, working


def deletes(condition: str) -> Rewrite:
    """What owners are asked for a DELETE from the table `t` of these tests."""
    count = f"select count(*) from t where {condition}"
    return Rewrite(rows=f"select k, v, coalesce({condition}, false) from t", count=count, deletes=True)


DELETE_1 = deletes("k = 1")


@pytest.fixture
def writes(world):
    for partition in (1, 2):
        world.storage(partition).create()
    world.holder.apply(world.update(1, (1, 1, "owner"), (2, 1, "owner")))
    world.holder.tick()
    alive = SchedulerInfo(scheduler_id="s1", instance_id="alive")
    ObjectState(world.store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument(schedulers={"s1": alive}))
    policy = CompactionPolicy(min_files=4)
    return OwnerWrites(world.holder, world.store, world.engine, world.clock, map, lambda: "me", policy)


def target(token: str, *partitions: int, epoch: int = 1, **more) -> WriteTarget:
    table = LegTable(table="t", revision=1, partitions=partitions, epochs=(epoch,) * len(partitions))
    return WriteTarget(table=table, incarnation="", token=token, **more)


def batch(partition: int, *keys: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "k": pa.array(keys, pa.int64()),
            "v": [f"v{k}" for k in keys],
            "__partition": pa.array([partition] * len(keys), pa.int32()),
        }
    )


def test_rows_are_applied_once_and_served(world, writes):
    said = [writes.write(target("a", 1, 2), [batch(1, 1, 2), batch(2, 3)]) for _ in range(2)]
    assert said == [{"1": {"affected": 2}, "2": {"affected": 1}}] * 2
    assert world.read((1, 1), (2, 1)) == [1, 2, 3]


def test_a_stream_that_breaks_off_applies_nothing_and_leaves_no_file(world, writes):
    def broken():
        yield batch(1, 1)
        raise TransportError("broke off")

    with pytest.raises(TransportError):
        writes.write(target("a", 1), broken())
    assert world.read((1, 1)) == []
    assert not list(world.store.list("snapshots/t/data/"))


def test_an_owner_of_another_epoch_or_without_a_lease_writes_nothing(world, writes):
    said = writes.write(target("a", 1, epoch=2), [batch(1, 1)])
    assert said["1"]["error"]["code"] == "ownership.not_owner"
    world.clock.now_ms += 60_000
    with pytest.raises(LeaseExpired):
        writes.write(target("a", 1), [batch(1, 1)])


def test_a_commit_after_a_newer_owner_was_activated_is_refused(world, writes):
    def late():
        yield batch(1, 1)
        world.storage(1).activate(2)

    assert writes.write(target("a", 1), late())["1"]["error"]["code"] == "ownership.fenced"
    assert world.storage(1).read().document.files == ()


@pytest.mark.parametrize("attempt", [None, "a"])
def test_rows_that_waited_for_longer_than_files_are_spared_are_not_committed(world, writes, attempt):
    def stand_still():
        world.store.before.clear()
        world.clock.now_ms += MAX_WRITE_MS + 1
        world.grant(2 * MAX_WRITE_MS)

    world.grant(2 * MAX_WRITE_MS)
    world.store.before[manifest_key("t", "expr0=1")] = stand_still  # the files are written by then
    said = writes.write(target("w", 1, attempt=attempt, replace=True), [batch(1, 5)])
    assert said["1"]["error"]["code"] == "transport.try_later"
    assert world.storage(1).read().document.prepared == ()
    assert world.read((1, 1)) == []


def test_a_rewrite_touches_only_files_that_hold_matching_rows(world, writes):
    writes.write(target("a", 1), [batch(1, 1, 2)])
    writes.write(target("b", 1), [batch(1, 5)])
    before = world.storage(1).read().document.files
    assert [writes.rewrite(target("c", 1), DELETE_1)["1"] for _ in range(2)] == [{"affected": 1}] * 2
    after = world.storage(1).read().document.files
    assert before[1] in after
    assert before[0] not in after
    assert world.read((1, 1)) == [2, 5]


def test_a_rewrite_does_not_look_into_files_that_their_statistics_rule_out(world, writes, monkeypatch):
    for n in range(3):
        writes.write(target(f"s{n}", 1), [batch(1, *range(10 * n, 10 * n + 10))])
    files = world.storage(1).read().document.files
    looked: list[list[int]] = []
    query = world.engine.query

    def noted(sql, scans=None, streams=None):
        looked.extend(list(ids) for ids in (scans or {}).values())
        return query(sql, scans, streams)

    monkeypatch.setattr(world.engine, "query", noted)
    change = local_rewrite(read_change("delete from t where k between 12 and 14"), world.table(), {})
    assert writes.rewrite(target("d", 1), change)["1"] == {"affected": 3}
    middle = world.holder.holdings("t").held[1]
    assert len({file_id for ids in looked for file_id in ids}) == 1
    after = world.storage(1).read().document.files
    assert [file in after for file in files] == [True, False, True]
    assert sorted(middle.files) == sorted(file.path for file in after)
    monkeypatch.undo()
    assert world.read((1, 1)) == [k for k in range(30) if not 12 <= k <= 14]


@pytest.mark.parametrize("committed", [True, False])
def test_prepared_rows_are_seen_once_it_is_decided(world, writes, committed):
    attempt = target("a", 1, 2, attempt="a1")
    assert writes.write(attempt, [batch(1, 1), batch(2, 2)]) == {"1": {"affected": 1}, "2": {"affected": 1}}
    assert world.read((1, 1), (2, 1)) == []
    for _ in range(2):
        writes.settle(attempt, 1 if committed else None)
    writes.tick()
    assert world.read((1, 1), (2, 1)) == ([1, 2] if committed else [])
    assert world.storage(1).read().document.prepared == ()


@pytest.mark.parametrize(
    ("scheduler", "decided", "after_ms"),
    [("alive", True, LOOK_AFTER_MS), ("dead", False, LOOK_AFTER_MS), ("alive", False, GIVEN_MS)],
)
def test_what_was_left_prepared_is_ended_by_its_owner(world, writes, scheduler, decided, after_ms):
    attempt = attempt_by(scheduler, "a1")
    writes.write(target("a", 1, attempt=attempt), [batch(1, 1)])
    if decided:
        TableDecisions(world.store, "t").commit(attempt, "a", affected=1)
    writes.tick()
    world.clock.now_ms += after_ms - 1
    world.grant()
    writes.tick()
    assert len(world.storage(1).read().document.prepared) == 1
    world.clock.now_ms += 1
    writes.tick()
    assert world.read((1, 1)) == ([1] if decided else [])
    assert world.storage(1).read().document.prepared == ()
    assert TableDecisions(world.store, "t").commit(attempt, "a", affected=1).committed is decided


@pytest.mark.parametrize("lost", ["older", "gone"])
def test_nothing_is_given_up_by_decisions_that_another_partition_alone_proves_older(world, writes, lost):
    """Half of a statement was left for good: the copy knew all that was folded in at this owner."""
    attempt, statements = attempt_by("dead", "a1"), TableDecisions(world.store, "t")
    writes.write(target("a", 1, attempt=attempt), [batch(1, 1)])
    statements.abort("an earlier one")
    older = world.store.get(statements_key("t")).data
    decision = statements.commit(attempt, "a", affected=2)
    elsewhere = PartitionStorage(world.store, "t", "expr0=7")
    elsewhere.create()
    elsewhere.prepare(Prepared(attempt=attempt, token="a"), epoch=0)
    elsewhere.fold(attempt, epoch=None, sequence=decision.sequence)
    newest = world.store.get(statements_key("t")).data
    world.store.delete(statements_key("t"))
    if lost == "older":
        world.store.create(statements_key("t"), older)
    writes.tick()
    world.clock.now_ms += GIVEN_MS
    world.grant()
    (ended,) = writes.tick()
    assert isinstance(ended.error, DocumentOlder if lost == "older" else DocumentLost)
    assert world.storage(1).read().document.waits_for(attempt)
    world.store.delete(statements_key("t"))
    world.store.create(statements_key("t"), newest)
    assert [(one.partition, one.committed) for one in writes.tick()] == [(1, True)]
    assert world.read((1, 1)) == [1]


def test_what_is_decided_is_ended_though_another_partition_cannot_be_asked(world, writes):
    decided, left = (attempt_by("dead", name) for name in ("a1", "b1"))
    writes.write(target("a", 1, attempt=decided), [batch(1, 1)])
    writes.write(target("b", 1, attempt=left), [batch(1, 2)])
    TableDecisions(world.store, "t").commit(decided, "a", affected=1)
    world.store.create(manifest_key("t", "expr0=7"), b"spoilt")
    writes.tick()
    world.clock.now_ms += GIVEN_MS
    world.grant()
    ended = writes.tick()
    assert [(one.partition, one.committed) for one in ended if one.error is None] == [(1, True)]
    assert len([one for one in ended if one.error is not None]) == 1
    assert world.storage(1).read().document.waits_for(left)
    assert world.read((1, 1)) == [1]


def test_an_abort_by_decisions_that_went_back_meanwhile_is_refused():
    statements = TableDecisions(MemoryStore(), "t")
    statements.commit("a", "a", affected=1)
    with pytest.raises(DocumentOlder, match="at statement 1, but a manifest of its table knows of 2"):
        statements.abort("b", folded=2)
    assert statements.read().on("b") is None
    assert not statements.abort("b", folded=1).committed


def test_what_was_prepared_a_moment_ago_and_what_nothing_waits_for_cost_no_request(world, writes):
    world.clock.now_ms += 10_000
    world.grant()
    writes.write(target("a", 1, attempt=attempt_by("dead", "a1")), [batch(1, 1)])
    leg = world.leg((1, 1), (2, 1))
    nothing_waits = evolve(leg.tables[0], partitions=(2,), epochs=(1,), sequence=1)
    world.store.calls.clear()
    for wanted in (leg.tables[0], nothing_waits, evolve(nothing_waits, table="elsewhere")):
        writes.catch_up(evolve(leg, tables=(wanted,)))
    assert writes.tick() == []
    world.clock.now_ms += LOOK_AFTER_MS - 1
    assert writes.tick() == []
    assert world.store.calls == []
    world.clock.now_ms += 1
    assert [(one.partition, one.committed) for one in writes.tick()] == [(1, False)]


def test_two_statements_made_from_the_same_rows_cannot_both_be_prepared(world, writes):
    writes.write(target("a", 1), [batch(1, 1)])
    (file,) = world.storage(1).read().document.files
    first = target("b", 1, attempt="b1", remove={1: (file.path,)}, base={1: (file.path,)})
    second = target("c", 1, attempt="c1", remove={1: (file.path,)}, base={1: (file.path,)})
    assert "affected" in writes.write(first, [batch(1, 7)])["1"]
    assert writes.write(second, [batch(1, 8)])["1"]["error"]["code"] == "transport.try_later"
    assert writes.rewrite(target("d", 1), DELETE_1)["1"]["error"]["code"] == "transport.try_later"
    assert writes.write(target("e", 1), [batch(1, 9)])["1"] == {"affected": 1}
    writes.settle(first, 1)
    assert world.read((1, 1)) == [7, 9]


def test_a_statement_made_from_rows_that_changed_is_not_prepared(world, writes):
    writes.write(target("a", 1), [batch(1, 1)])
    (file,) = world.storage(1).read().document.files
    writes.write(target("b", 1), [batch(1, 2)])
    late = target("c", 1, attempt="c1", remove={1: (file.path,)}, base={1: (file.path,)})
    assert writes.write(late, [batch(1, 8)])["1"]["error"]["code"] == "transport.try_later"


def test_many_small_files_become_one_with_the_same_rows(world, writes):
    for n in range(6):
        writes.write(target(f"s{n}", 1), [batch(1, n)])
    assert writes.compact() == Compacted(table="t", partition=1, files=6, into=1)
    assert writes.compact() is None
    assert len(world.storage(1).read().document.files) == 1
    assert world.read((1, 1)) == list(range(6))
    assert writes.write(target("s3", 1), [batch(1, 3)])["1"] == {"affected": 1}
    assert world.read((1, 1)) == list(range(6))


def test_no_compaction_takes_files_from_under_a_prepared_statement(world, writes):
    for n in range(6):
        writes.write(target(f"s{n}", 1), [batch(1, n)])
    files = [file.path for file in world.storage(1).read().document.files]
    world.storage(1).prepare(Prepared(attempt="x", token="x", remove=tuple(files)), epoch=1, base=files)
    assert writes.compact() is None


def test_a_compaction_that_lost_its_files_changes_nothing(world, writes):
    for n in range(4):
        writes.write(target(f"s{n}", 1), [batch(1, n)])
    storage = world.storage(1)
    files = [file.path for file in storage.read().document.files]
    storage.commit(remove=files[:1], epoch=1, token="gone")
    assert not storage.compact(add=[DataFile(path="merged", rows=4, bytes=9)], remove=files, epoch=1)
    assert len(storage.read().document.files) == 3


def read_as_of(world, writes, sequence: int) -> list[int]:
    leg = world.leg((1, 1), (2, 1))
    leg = evolve(leg, tables=tuple(evolve(table, sequence=sequence) for table in leg.tables))
    writes.catch_up(leg)
    query = world.engine.query(leg.sql, world.holder.files_for(leg))
    return sorted(key for rows in query.batches() for key in rows.column(0).to_pylist())


def test_a_statement_is_seen_in_all_partitions_from_its_commit_on_and_in_none_before(world, writes):
    writes.write(target("old", 1, 2), [batch(1, 1), batch(2, 2)])
    attempt = target("new", 1, 2, attempt="a1", replace=True)
    writes.write(attempt, [batch(1, 10), batch(2, 20)])
    assert read_as_of(world, writes, 0) == [1, 2]
    decision = TableDecisions(world.store, "t").commit("a1", "new", affected=2)
    assert decision.sequence == 1
    writes.settle(target("new", 1, attempt="a1"), 1)
    assert read_as_of(world, writes, 0) == [1, 2]
    assert read_as_of(world, writes, 1) == [10, 20]
    assert world.storage(2).read().document.prepared == ()
    writes.rewrite(target("later", 1), deletes("true"))
    assert read_as_of(world, writes, 0) == [1, 2]
    assert read_as_of(world, writes, 1) == [20]


def test_what_was_replaced_long_ago_can_no_longer_be_read_and_says_so(world, writes, monkeypatch):
    writes.write(target("old", 1, 2), [batch(1, 1), batch(2, 2)])
    writes.write(target("new", 1, 2, attempt="a1", replace=True), [batch(1, 10), batch(2, 20)])
    TableDecisions(world.store, "t").commit("a1", "new", affected=2)
    writes.settle(target("new", 1, 2, attempt="a1"), 1)
    monkeypatch.setattr("ballista_py.storage.manifest.RETIRED_MS", 0)
    writes.write(target("more", 1), [batch(1, 11)])
    with pytest.raises(NotOwner):
        read_as_of(world, writes, 0)
    assert read_as_of(world, writes, 1) == [10, 11, 20]
    assert world.storage(1).read().document.retired == ()


def test_a_change_takes_what_a_client_saw_of_a_statement_that_is_not_folded_in_yet(world, writes):
    writes.write(target("old", 1, 2), [batch(1, 1), batch(2, 2)])
    writes.write(target("new", 1, 2, attempt="a1"), [batch(1, *range(10, 16)), batch(2, *range(20, 26))])
    TableDecisions(world.store, "t").commit("a1", "new", affected=12)
    assert read_as_of(world, writes, 1) == [
        1,
        2,
        *range(10, 16),
        *range(20, 26),
    ]  # folded in here, at the reader's
    writes.write(target("next", 1, 2, attempt="a2"), [batch(1, *range(30, 36)), batch(2, *range(40, 46))])
    TableDecisions(world.store, "t").commit("a2", "next", affected=12)
    assert writes.rewrite(target("gone", 1, 2), deletes("k >= 30")) == {"1": {"affected": 6}, "2": {"affected": 6}}
    assert read_as_of(world, writes, 2) == [1, 2, *range(10, 16), *range(20, 26)]


@pytest.mark.parametrize("way", ["delete", "truncate", "replace", "base"])
def test_every_change_reads_what_is_committed_and_only_prepared_here(world, writes, way):
    writes.write(target("new", 1, attempt="a1"), [batch(1, 10, 11)])
    TableDecisions(world.store, "t").commit("a1", "new", affected=2)
    if way == "base":
        trailer, read, _ = writes.base(target("c", 1), None, "")
        assert [row for rows in read() for row in rows.column(0).to_pylist()] == [10, 11]
        assert trailer["base"]["1"] == [file.path for file in world.storage(1).read().document.files]
        return
    if way == "replace":
        writes.write(target("c", 1, attempt="c1", replace=True), [batch(1, 7)])
        writes.settle(target("c", 1, attempt="c1"), 2)
    else:
        said = writes.rewrite(target("c", 1), deletes("true") if way == "delete" else Rewrite())
        assert said["1"] == {"affected": 2}
    writes.settle(target("new", 1, attempt="a1"), 1)
    assert world.read((1, 1)) == ([7] if way == "replace" else [])


def test_a_change_reads_every_partition_as_of_its_own_moment(world, writes):
    writes.write(target("old", 1, 2), [batch(1, 1), batch(2, 2)])
    writes.write(target("new", 1, 2, attempt="a1"), [batch(1, 10), batch(2, 20)])
    TableDecisions(world.store, "t").commit("a1", "new", affected=2)  # after the statement below began
    writes.settle(target("new", 1, attempt="a1"), 1)
    late = target("all", 1, 2, attempt="b1")
    late = evolve(late, table=evolve(late.table, sequence=0))
    assert writes.rewrite(late, Rewrite()) == {"1": {"affected": 1}, "2": {"affected": 1}}
    TableDecisions(world.store, "t").commit("b1", "all", affected=2)
    writes.settle(late, 2)
    assert read_as_of(world, writes, 2) == [10, 20]


def test_a_change_whose_moment_is_gone_is_tried_later(world, writes):
    writes.write(target("old", 1), [batch(1, 1)])
    writes.write(target("new", 1, attempt="a1", replace=True), [batch(1, 10)])
    TableDecisions(world.store, "t").commit("a1", "new", affected=1)
    writes.settle(target("new", 1, attempt="a1"), 1)
    late = target("all", 1, attempt="b1")
    late = evolve(late, table=evolve(late.table, sequence=0))
    assert writes.rewrite(late, Rewrite())["1"]["error"]["code"] == "transport.try_later"


def test_of_two_that_replace_everything_one_waits_though_nothing_is_there(world, writes):
    first, second = (target(name, 1, attempt=f"{name}1", replace=True) for name in ("a", "b"))
    assert writes.write(first, [batch(1, 1)])["1"] == {"affected": 1}
    assert writes.write(second, [batch(1, 2)])["1"]["error"]["code"] == "transport.try_later"
    TableDecisions(world.store, "t").commit("a1", "a", affected=1)
    writes.settle(first, 1)
    assert writes.write(second, [batch(1, 2)])["1"] == {"affected": 1}
    writes.settle(second, 2)
    assert world.read((1, 1)) == [2]


def test_nothing_is_removed_from_under_a_statement_that_was_made_from_all_rows(world, writes):
    writes.write(target("a", 1), [batch(1, 1)])
    (file,) = world.storage(1).read().document.files
    made = target("b", 1, attempt="b1", base={1: (file.path,)})
    assert writes.write(made, [batch(1, 7)])["1"] == {"affected": 1}
    assert writes.rewrite(target("d", 1), DELETE_1)["1"]["error"]["code"] == "transport.try_later"


def test_a_replacement_that_did_not_see_another_one_is_tried_later(world, writes):
    first, late = (target(name, 1, attempt=f"{name}1", replace=True) for name in ("a", "b"))
    late = evolve(late, table=evolve(late.table, sequence=0))
    writes.write(first, [batch(1, 1)])
    TableDecisions(world.store, "t").commit("a1", "a", affected=1)
    writes.settle(first, 1)
    assert writes.write(late, [batch(1, 2)])["1"]["error"]["code"] == "transport.try_later"


@pytest.mark.parametrize(
    "statement", ["delete from t where random() < 0.5", "update t set v = 'hit' where random() < 0.5"]
)
def test_a_predicate_that_is_another_each_time_is_asked_once_for_each_row(world, writes, statement):
    for partition in (1, 2):
        writes.write(target(f"s{partition}", partition), [batch(partition, *range(1_000))])
    rewrite = local_rewrite(read_change(statement), world.table(), {"k": "bigint", "v": "varchar"})
    assert rewrite.count is None
    said = writes.rewrite(target("c", 1, 2), rewrite)
    affected = sum(said[partition]["affected"] for partition in ("1", "2"))
    leg = world.leg((1, 1), (2, 1))
    hit = "select count(*) as n from t where v = 'hit'"
    changed = next(world.engine.query(hit, world.holder.files_for(leg)).batches()).column(0)[0].as_py()
    changed = changed if statement.startswith("update") else 2_000 - len(world.read((1, 1), (2, 1)))
    assert affected == changed
    assert 700 < affected < 1_300


@pytest.mark.parametrize("predicate", ["1", "k - 2", "'true'", "case when k = 2 then null else k > 0 end"])
def test_a_predicate_that_is_no_boolean_counts_as_in_where(world, writes, predicate):
    writes.write(target("a", 1), [batch(1, 1, 2, 3)])
    leg = world.leg((1, 1))
    asked = f"select k from t where {predicate}"
    met = [
        row
        for one in world.engine.query(asked, world.holder.files_for(leg)).batches()
        for row in one["k"].to_pylist()
    ]
    rewrite = local_rewrite(read_change(f"delete from t where {predicate}"), world.table(), {})
    assert writes.rewrite(target("b", 1), rewrite)["1"]["affected"] == len(met)
    assert world.read((1, 1)) == sorted({1, 2, 3} - set(met))


def test_an_attempt_that_changes_nothing_in_a_partition_leaves_no_trace_there(world, writes):
    writes.write(target("a", 1, 2), [batch(1, 1), batch(2, 2)])
    before = world.storage(2).read().header.revision
    said = writes.rewrite(target("b", 1, 2, attempt="b1"), DELETE_1)
    assert said == {"1": {"affected": 1}, "2": {"affected": 0, "idle": True}}
    assert world.storage(2).read().header.revision == before
    assert [waiting.attempt for waiting in world.storage(1).read().document.prepared] == ["b1"]


def test_two_statements_over_other_files_of_a_partition_do_not_wait_for_each_other(world, writes):
    writes.write(target("a", 1), [batch(1, 1)])
    writes.write(target("b", 1), [batch(1, 2)])
    first, second = target("c", 1, attempt="c1"), target("d", 1, attempt="d1")
    assert writes.rewrite(first, DELETE_1)["1"] == {"affected": 1}
    assert writes.rewrite(second, deletes("k = 2"))["1"] == {"affected": 1}
    assert writes.rewrite(target("e", 1, attempt="e1"), DELETE_1)["1"]["error"]["code"] == "transport.try_later"
    for number, attempt in enumerate((second, first), start=1):
        writes.settle(attempt, number)
    assert world.read((1, 1)) == []


def test_a_file_that_a_prepared_statement_will_replace_is_removed_by_nobody_else(world, writes):
    for key in (1, 2):
        writes.write(target(f"s{key}", 1), [batch(1, key)])
    storage = world.storage(1)
    taken, free = (file.path for file in storage.read().document.files)
    storage.prepare(Prepared(attempt="x", token="x", remove=(taken,)), epoch=1)
    before = storage.read().document.files
    for removed in ((taken,), (free, taken)):
        with pytest.raises(TryLater):
            storage.commit(remove=removed, epoch=1, token="y")
    assert storage.read().document.files == before
    storage.commit(remove=(free,), epoch=1, token="z")
    assert [file.path for file in storage.read().document.files] == [taken]


def test_statements_at_the_same_time_change_a_manifest_together(world, writes, together):
    """Each by itself would commit after the others, losing race after race, and some would give up."""
    statements = 16

    def others_come():
        world.store.before.clear()
        until = time.monotonic() + 30
        while len(list(world.store.list("snapshots/t/data/"))) < statements and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(1)  # from a file to its manifest

    before = world.storage(1).read().header.revision
    world.store.before[manifest_key("t", "expr0=1")] = others_come
    said = together(*(partial(writes.write, target(f"s{n}", 1), [batch(1, n)]) for n in range(statements)))
    assert said == [{"1": {"affected": 1}}] * statements
    assert world.storage(1).read().header.revision - before < statements  # one each, and some would have failed
    assert world.read((1, 1)) == list(range(statements))


def test_an_owner_with_little_memory_writes_files_before_it_has_all_rows(world, writes):
    """Statements beside each other would have 128 MiB each otherwise; see `spool_bytes`."""
    small = OwnerWrites(
        world.holder, world.store, world.engine, world.clock, map, lambda: "me", spool_bytes=2 * batch(1, 1).nbytes
    )
    files = []
    for name, owner in (("much", writes), ("little", small)):
        owner.write(target(name, 1), [batch(1, key) for key in range(6)])
        files.append(len(world.storage(1).read().document.files))
    assert files == [1, 1 + 3]
    assert len(world.read((1, 1))) == 12


def test_a_change_leaves_rows_without_a_value_as_they_are_while_new_ones_must_have_one(world, writes):
    """As SET NOT NULL leaves a column if its scheduler dies while it looks."""
    rows = pa.record_batch(
        {
            "k": pa.array([1, 2, 3], pa.int64()),
            "v": pa.nulls(3, pa.string()),
            "__partition": pa.array([1] * 3, pa.int32()),
        }
    )
    writes.write(target("a", 1), [rows])
    required = set_required(world.table(), "v")
    world.holder.apply(world.update(2, (1, 1, "owner"), (2, 1, "owner"), table=required))
    world.holder.tick()

    def asked(token: str) -> WriteTarget:
        found = target(token, 1)
        return evolve(found, table=evolve(found.table, definition=required.definition))

    assert writes.rewrite(asked("d"), DELETE_1)["1"] == {"affected": 1}
    given = Rewrite(rows="select k, case when k = 2 then 'x' else v end, k = 2 from t")
    assert writes.rewrite(asked("u"), given)["1"] == {"affected": 1}
    taken = Rewrite(rows="select k, case when k = 2 then null else v end, k = 2 from t")
    assert writes.rewrite(asked("n"), taken)["1"]["error"]["code"] == "write.schema_mismatch"


def test_rows_for_a_table_that_is_replaced_meanwhile_are_not_staged_and_fail_nothing(world, writes):
    other = DataFile(path="other.parquet", rows=1, bytes=1)
    world.holder.files.stage("t", [(other, pa.table({"k": pa.array([1], pa.int64())}))])
    writes.write(target("a", 1), [batch(1, 1)])
    assert world.read((1, 1)) == [1]


@pytest.fixture
def keyed(world, writes):
    """The same owner, of a table whose primary key is `k`."""
    table = evolve(world.table(), primary_key=("k",))
    world.holder.apply(world.update(2, (1, 1, "owner"), (2, 1, "owner"), table=table))
    world.holder.tick()
    return writes


def late_insert(token: str) -> WriteTarget:
    """An INSERT that began before anything was committed."""
    late = target(token, 1, attempt=f"{token}1")
    return evolve(late, table=evolve(late.table, sequence=0))


def test_a_key_is_taken_that_was_committed_after_the_statement_began(world, keyed):
    first = target("new", 1, attempt="a1")
    keyed.write(first, [batch(1, 10)])
    TableDecisions(world.store, "t").commit("a1", "new", affected=1)
    keyed.settle(first, 1)
    said = keyed.write(late_insert("same"), [batch(1, 10)])["1"]["error"]
    assert "a row with k = 10 exists already" in said["message"]
    assert keyed.write(late_insert("other"), [batch(1, 11)])["1"] == {"affected": 1}


def test_rows_with_a_key_wait_where_files_came_after_it_was_looked_up(world, keyed):
    """Whoever commits between the look and the commit may have brought the key."""
    looked = keyed._files.check_primary_key

    def overtaken(table, partition, new, here):
        looked(table, partition, new, here)
        world.put(1, 10)

    keyed._files.check_primary_key = overtaken
    said = keyed.write(late_insert("same"), [batch(1, 10)])["1"]["error"]
    assert said["code"] == "transport.try_later"
    assert world.storage(1).read().document.prepared == ()


@pytest.mark.parametrize("attempt", [None, "a"])
def test_what_all_partitions_decide_together_is_not_begun_where_the_statement_has_failed_already(
    world, writes, attempt
):
    """Each of several partitions that fail would take a process of its own; alone each of them says what it met."""
    for partition in (1, 2):
        writes.write(target(f"s{partition}", partition), [batch(partition, partition)])
    asked = []
    query = world.engine.query

    def counted(sql, scans=None, streams=None):
        asked.append(sql)
        return query(sql, scans, streams)

    world.engine.query = counted
    spoilt = Rewrite(rows="select k, error('met ' || k) as v, true from t")
    said = writes.rewrite(target("c", 1, 2, attempt=attempt), spoilt)
    met = [said[partition]["error"]["message"] for partition in ("1", "2")]
    assert met == (["met 1", "met 2"] if attempt is None else ["met 1", "met 1"])
    assert len(asked) == (2 if attempt is None else 1)
    assert world.read((1, 1), (2, 1)) == [1, 2]


@pytest.mark.parametrize("apart", [False, True])
def test_what_runs_apart_is_begun_in_one_partition_alone(world, writes, apart):
    for partition in (1, 2):
        writes.write(target(f"s{partition}", partition), [batch(partition, partition)])
    given = []

    def mapper(call, items):
        items = list(items)
        given.append(len(items))
        return map(call, items)

    writes._commits._map = mapper
    work = Work(world.clock)
    work.is_apart = apart
    with working(work):
        said = writes.rewrite(target("c", 1, 2, attempt="a"), DELETE_1)
    assert said == {"1": {"affected": 1}, "2": {"affected": 0, "idle": True}}
    assert given == [1 if apart else 2]
