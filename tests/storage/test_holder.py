"""The executor's holder, driven by hand."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

from ballista_py.errors import Fenced, LeaseExpired, NotOwner
from ballista_py.state.members.control import PartitionAssignment, Refusal
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.held.holdings import MOST_EMPTY, Held, Holdings
from ballista_py.storage.held.hydration import HydrationProgress
from ballista_py.storage.manifest import Prepared, manifest_key


def held(world, table="t"):
    return next(h for h in world.holder.held() if h.table == table)


def test_an_owner_loads_what_the_manifests_name_and_serves_it(world):
    for p in range(4):
        world.put(p, 10 * p, 10 * p + 1)
    world.put(0, 2)
    assert world.holder.apply(world.update(1, *[(p, 1, "owner") for p in range(4)]))
    report = world.holder.tick()
    assert (report.hydrated, report.failed, report.waiting) == (4, 0, 0)
    assert world.read((0, 1), (2, 1)) == [0, 1, 2, 20, 21]
    assert world.read(*[(p, 1) for p in range(4)]) == [0, 1, 2, 10, 11, 20, 21, 30, 31]
    assert (held(world).revision, held(world).active, held(world).epochs) == (1, (0, 1, 2, 3), (1, 1, 1, 1))
    manifests = [world.storage(p).read().document for p in range(4)]
    assert held(world).rows == (3, 2, 2, 2)
    assert held(world).bytes == tuple(manifest.bytes for manifest in manifests)
    assert held(world).ranges == {"k": (0.0, 31.0)}
    assert world.holder.tick().hydrated == 0


def test_an_empty_partition_is_served_as_empty(world):
    world.storage(0).create()
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    assert world.read((0, 1)) == []


def test_the_fence_is_raised_before_anything_is_loaded_and_served(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 7, "owner")))
    served, epochs = [], []

    def look():
        try:
            world.holder.files_for(world.leg((0, 7)))
            served.append(True)
        except NotOwner:
            served.append(False)
        epochs.append(world.storage(0).read().document.epoch)

    load = world.engine.load
    world.engine.load = lambda table, files: (look(), load(table, files))[1]
    world.holder.tick()
    assert (served, epochs) == ([False], [7])
    assert world.read((0, 7)) == [1]


def test_a_former_owner_is_fenced_once_the_new_one_serves(world):
    world.put(0, 1)
    former = world.storage(0)
    former.activate(1)
    world.holder.apply(world.update(2, (0, 2, "owner")))
    world.holder.tick()
    assert world.read((0, 2)) == [1]
    with pytest.raises(Fenced):
        former.commit(epoch=1, token="late")


def test_what_a_former_owner_committed_before_the_fence_is_served(world):
    """A target loads early; the old owner commits again; as owner it must serve that commit too."""
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "target")))
    world.holder.tick()
    world.put(0, 2)
    world.holder.apply(world.update(2, (0, 2, "owner")))
    world.holder.tick()
    assert world.read((0, 2)) == [1, 2]


def test_an_owner_whose_epoch_is_over_never_serves(world):
    world.put(0, 1)
    world.storage(0).activate(9)
    world.write_map(9)
    world.holder.apply(world.update(1, (0, 8, "owner")))
    assert world.holder.tick().failed == 1
    with pytest.raises(NotOwner, match="refuses epoch 8"):
        world.read((0, 8))
    assert "epoch 8" in held(world).failed[0]


def test_a_target_loads_without_serving_and_without_a_fence(world):
    world.put(3, 30)
    world.holder.apply(world.update(1, (3, 5, "target")))
    assert world.holder.tick().hydrated == 1
    assert (held(world).active, held(world).loaded) == ((), (3,))
    assert world.storage(3).read().document.epoch == 0
    with pytest.raises(NotOwner):
        world.read((3, 5))
    world.holder.apply(world.update(2, (3, 6, "owner")))
    with pytest.raises(NotOwner):
        world.read((3, 6))
    loads = []
    load = world.engine.load
    world.engine.load = lambda table, files: (loads.append(files), load(table, files))[1]
    world.holder.tick()
    assert world.read((3, 6)) == [30]
    assert loads == []  # the files of the target were already here


def test_a_replica_serves_reads_and_never_touches_the_fence(world):
    world.put(0, 1, 2)
    world.storage(0).activate(4)
    before = world.storage(0).read().header.revision
    world.holder.apply(world.update(1, (0, 4, "replica")))
    world.holder.tick()
    assert world.read((0, 4)) == [1, 2]
    assert world.read((0, 3)) == [1, 2]
    with pytest.raises(NotOwner):
        world.read((0, 5))
    assert world.storage(0).read().header.revision == before
    assert held(world).active == (0,)


@pytest.mark.parametrize("asked", [[(0, 1)], [(0, 3)], [(1, 2)], [(0, 2), (1, 2)]])
def test_only_the_very_epoch_and_partitions_are_answered_for(world, asked):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 2, "owner")))
    world.holder.tick()
    with pytest.raises(NotOwner, match=r"partition.* of table 't'") as raised:
        world.read(*asked)
    assert raised.value.details["table"] == "t"
    assert raised.value.details["partitions"] == [p for p, epoch in asked if (p, epoch) != (0, 2)]


def test_a_leg_over_an_unknown_table_is_not_owner(world):
    with pytest.raises(NotOwner, match="table 'elsewhere'"):
        world.holder.files_for(world.leg((0, 1), table="elsewhere"))


def test_a_leg_without_partitions_reads_nothing(world):
    world.holder.apply(world.update(1))
    world.holder.tick()
    assert world.holder.files_for(world.leg()) == {"t": []}


def test_a_table_of_which_nothing_is_held_can_be_read_as_empty(world):
    world.holder.apply(world.update(1))
    with pytest.raises(NotOwner):
        world.read()
    world.holder.tick()
    assert world.read() == []


def test_older_updates_after_newer_ones_are_ignored(world):
    world.put(0, 1)
    world.put(1, 2)
    assert world.holder.apply(world.update(5, (0, 3, "owner")))
    world.holder.tick()
    assert not world.holder.apply(world.update(4, (0, 2, "owner"), (1, 1, "owner")))
    world.holder.tick()
    assert world.read((0, 3)) == [1]
    assert held(world).active == (0,)


def test_epochs_never_fall(world):
    world.put(0, 1)
    world.holder.apply(world.update(5, (0, 3, "owner")))
    world.holder.tick()
    world.holder.apply(world.update(6, (0, 2, "owner")))
    world.holder.tick()
    assert (held(world).revision, held(world).epochs) == (6, (3,))
    assert world.read((0, 3)) == [1]


def test_an_update_for_another_instance_is_ignored(world):
    world.put(0, 1)
    assert not world.holder.apply(world.update(9, (0, 1, "owner"), instance="somebody else"))
    world.holder.tick()
    assert world.holder.held() == ()
    assert world.storage(0).read().document.epoch == 0


def test_what_is_no_longer_named_is_not_served_at_once_and_unloaded_by_the_tick(world):
    world.put(0, 1)
    world.put(1, 2)
    world.holder.apply(world.update(1, (0, 1, "owner"), (1, 1, "owner")))
    world.holder.tick()
    files = world.holder.files_for(world.leg((1, 1)))
    world.holder.apply(world.update(2, (0, 1, "owner")))
    with pytest.raises(NotOwner):
        world.read((1, 1))
    assert world.holder.tick().unloaded_files == 1
    with pytest.raises(NotOwner):
        world.engine.query("select k from t", files)
    assert world.read((0, 1)) == [1]
    assert held(world).revision == 2


def test_a_query_between_its_check_and_its_start_fails_or_is_whole(world):
    """Files that were handed out and unloaded since make the query fail, never give a short answer."""
    world.put(0, 1)
    world.put(1, 2)
    world.holder.apply(world.update(1, (0, 1, "owner"), (1, 1, "owner")))
    world.holder.tick()
    leg = world.leg((0, 1), (1, 1))
    files = world.holder.files_for(leg)
    world.holder.apply(world.update(2, (0, 1, "owner")))
    world.holder.tick()
    with pytest.raises(NotOwner):
        world.engine.query(leg.sql, files)


def test_without_a_lease_nothing_is_served(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    world.clock.now_ms += 30_001
    with pytest.raises(LeaseExpired):
        world.read((0, 1))
    world.grant()
    assert world.read((0, 1)) == [1]


def test_without_a_lease_no_fence_is_raised_and_nothing_counts_as_failed(world):
    world.put(0, 1)
    world.put(1, 2)
    world.clock.now_ms += 30_001
    world.holder.apply(world.update(1, (0, 1, "owner"), (1, 1, "replica")))
    report = world.holder.tick()
    assert (report.hydrated, report.failed, report.waiting) == (1, 0, 1)
    assert world.storage(0).read().document.epoch == 0
    assert held(world).failed == {}
    world.grant()
    assert world.holder.tick().hydrated == 1
    assert world.read((0, 1), (1, 1)) == [1, 2]


def test_a_lease_that_runs_out_while_partitions_load_stops_the_rest(world):
    for p in range(3):
        world.put(p, p)
    world.holder.apply(world.update(1, *[(p, 1, "owner") for p in range(3)]))

    def expire():
        world.clock.now_ms += 30_001
        world.store.before.clear()

    world.store.before[manifest_key("t", "expr0=1")] = expire
    world.holder.tick()
    assert world.storage(2).read().document.epoch == 0
    assert held(world).failed == {}
    world.grant()
    world.holder.tick()
    assert world.read((0, 1), (1, 1), (2, 1)) == [0, 1, 2]


def test_a_failure_is_kept_per_partition_and_tried_again_later(world):
    for p in range(3):
        world.put(p, p)
    world.store.broken.add(manifest_key("t", "expr0=1"))
    world.holder.apply(world.update(1, *[(p, 1, "owner") for p in range(3)]))
    report = world.holder.tick()
    assert (report.hydrated, report.failed, report.waiting) == (2, 1, 1)
    assert world.read((0, 1), (2, 1)) == [0, 2]
    assert list(held(world).failed) == [1]
    with pytest.raises(NotOwner, match="could not be loaded"):
        world.read((1, 1))
    world.store.broken.clear()
    assert world.holder.tick().hydrated == 0  # not yet
    world.clock.now_ms += 1_000
    assert world.holder.tick().hydrated == 1
    assert held(world).failed == {}
    assert world.read((1, 1)) == [1]


def test_retries_come_later_and_later_up_to_half_a_minute(world):
    world.holder.apply(world.update(1, (0, 1, "owner")))  # it has no manifest
    waits, last = [], None
    world.grant(10**9)
    for _ in range(4_000):
        if world.holder.tick().failed:
            waits += [world.clock.now_ms - last] if last is not None else []
            last = world.clock.now_ms
        world.clock.now_ms += 50
    assert waits[:5] == [1_000, 2_000, 4_000, 8_000, 16_000]
    assert set(waits[5:]) == {30_000}
    assert "does not exist" in held(world).failed[0]


@pytest.mark.parametrize("damage", ["missing", "truncated", "one bit", "other rows", "wrong columns"])
def test_a_damaged_file_is_contained_to_its_partition(world, damage):
    for p in range(3):
        world.put(p, p)
    storage = world.storage(1)
    file = storage.read().document.files[0]
    data = world.store.get(file.path).data
    world.store.delete(file.path)
    if damage == "truncated":
        world.store.create(file.path, data[:-20])
    elif damage == "one bit":
        middle = len(data) // 3
        world.store.create(file.path, data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :])
    elif damage == "other rows":
        other = world.store.get(world.put(5, 50, 51)).data
        world.store.create(file.path, other)
    elif damage == "wrong columns":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"z": [1]}), sink)
        world.store.create(file.path, bytes(sink.getvalue()))
    world.holder.apply(world.update(1, *[(p, 1, "owner") for p in range(3)]))
    report = world.holder.tick()
    assert (report.hydrated, report.failed) == (2, 1)
    assert world.read((0, 1), (2, 1)) == [0, 2]
    assert list(held(world).failed) == [1]
    assert "\n" not in held(world).failed[1]
    world.store.delete(file.path)
    world.store.create(file.path, data)
    world.clock.now_ms += 1_000
    world.holder.tick()
    assert world.read((0, 1), (1, 1), (2, 1)) == [0, 1, 2]


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_file_with_fewer_or_more_rows_than_its_manifest_says_is_not_served(world, difference):
    file = world.put_file(1, 2, 3)
    storage = world.storage(1)
    storage.create()
    storage.commit(add=[evolve(file, rows=file.rows + difference)], epoch=0, token="t")
    world.holder.apply(world.update(1, (1, 1, "owner")))
    report = world.holder.tick()
    assert (report.hydrated, report.failed) == (0, 1)
    assert "hold 3 rows where manifests say" in held(world).failed[1]


def test_a_new_epoch_of_a_held_partition_is_served_under_the_new_epoch_alone(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    world.holder.apply(world.update(2, (0, 2, "owner")))
    for epoch in (1, 2):
        with pytest.raises(NotOwner):
            world.read((0, epoch))
    world.holder.tick()
    assert world.read((0, 2)) == [1]
    with pytest.raises(NotOwner):
        world.read((0, 1))


def test_a_lost_executor_drops_everything_and_comes_back_as_a_new_instance(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    old_instance = world.lease.info.instance_id
    answer = Refusal(sequence=world.lease.heartbeat().sequence, reason="lost", message="")
    assert world.lease.answered(answer)
    world.holder.drop_all()
    assert world.holder.held() == ()
    world.lease.rejoin()
    world.grant()
    with pytest.raises(NotOwner):
        world.read((0, 1))
    assert not world.holder.apply(world.update(1, (0, 1, "owner"), instance=old_instance))
    assert world.holder.tick().unloaded_files == 1
    world.holder.apply(world.update(3, (0, 2, "owner")))
    world.holder.tick()
    assert world.read((0, 2)) == [1]


def test_dropping_everything_during_a_tick_publishes_nothing_of_it(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    load = world.engine.load
    world.engine.load = lambda table, files: (load(table, files), world.holder.drop_all())[0]
    world.holder.tick()
    world.engine.load = load
    assert world.holder.held() == ()
    world.holder.apply(world.update(2, (0, 2, "owner")))
    world.holder.tick()
    assert world.read((0, 2)) == [1]


def test_an_update_during_a_tick_wins_over_what_the_tick_loaded(world):
    world.put(0, 1)
    world.put(1, 2)
    world.holder.apply(world.update(1, (0, 1, "owner"), (1, 1, "owner")))
    load = world.engine.load

    def racing(table, files):
        done = load(table, files)
        world.holder.apply(world.update(2, (1, 2, "owner")))
        return done

    world.engine.load = racing
    assert world.holder.tick().unloaded_files == 2
    world.engine.load = load
    for asked in ((0, 1), (1, 1), (1, 2)):
        with pytest.raises(NotOwner):
            world.read(asked)
    world.holder.tick()
    assert world.read((1, 2)) == [2]


def made_anew(world):
    """Another table of the same name and columns, whose partition 0 holds the key 2."""
    table = evolve(world.table(), incarnation="anew")
    world.put(0, 2, table=table.folder)
    return table


def read_at(world, revision, *partitions):
    """The keys that a leg reads which was planned from that revision of the map."""
    leg = world.leg(*partitions)
    leg = evolve(leg, tables=(evolve(leg.tables[0], revision=revision),))
    query = world.engine.query(leg.sql, world.holder.files_for(leg))
    return sorted(key for batch in query.batches() for key in batch.column(0).to_pylist())


def test_a_table_made_anew_during_a_tick_is_not_served_with_the_rows_of_the_dropped_one(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    table, load = made_anew(world), world.engine.load

    def racing(name, files):
        done = load(name, files)
        world.holder.apply(world.update(2, (0, 1, "owner"), table=table))
        return done

    world.engine.load = racing
    world.holder.tick()
    world.engine.load = load
    with pytest.raises(NotOwner):
        read_at(world, 2, (0, 1))
    world.holder.tick()
    assert read_at(world, 2, (0, 1)) == [2]
    with pytest.raises(NotOwner):
        read_at(world, 1, (0, 1))


def test_a_table_made_anew_before_its_turn_in_a_tick_keeps_its_own_fence(world):
    """The tick had listed what was due of the dropped one, whose epochs were higher."""
    for name in ("a", "t"):
        world.put(0, 1, table=name)
    table = made_anew(world)
    world.holder.apply(world.update(1, (0, 1, "owner"), table=world.table("a")))
    world.holder.apply(world.update(1, (0, 7, "owner")))
    told = world.update(2, (0, 1, "owner"), table=table)
    world.store.before["snapshots/a/expr0=0/manifest.json"] = lambda: world.holder.apply(told)
    world.holder.tick()
    world.store.before.clear()
    assert world.storage(0, table.folder).read().document.epoch == 0
    world.holder.tick()
    assert read_at(world, 2, (0, 1)) == [2]


def test_what_an_owner_committed_to_a_dropped_table_is_not_published_in_the_one_made_anew(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    dropped = world.storage(0)
    for _ in range(5):
        dropped.commit(add=[world.put_file(1)], epoch=1, token=str(world._files))
    landed = dropped.read()
    table = made_anew(world)
    world.holder.apply(world.update(2, (0, 1, "owner"), table=table))
    world.holder.tick()
    world.holder.publish({0: landed})
    assert read_at(world, 2, (0, 1)) == [2]


def test_what_is_known_of_replicas_of_a_dropped_table_says_nothing_of_the_one_made_anew(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "replica")))
    world.holder.tick()
    dropped = world.holder.holdings("t").table
    table = made_anew(world)
    world.holder.apply(world.update(2, (0, 1, "replica"), table=table))
    world.holder.tick()
    world.clock.now_ms += 1_000
    world.holder.confirm(dropped, [0], world.clock.now_ms, 50)
    assert world.holder.holdings("t").held[0].known_to < 50
    world.holder.confirm(table, [0], world.clock.now_ms, 50)
    assert world.holder.holdings("t").held[0].known_to == 50


def test_refresh_shows_the_new_files_and_serves_the_old_ones_until_then(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    storage = world.storage(0)
    world.put(0, 2)
    storage.commit(remove=[storage.read().document.files[0].path], epoch=1, token="rewrite")
    assert world.read((0, 1)) == [1]
    world.holder.refresh("t")
    assert world.read((0, 1)) == [1]
    report = world.holder.tick()
    assert (report.hydrated, report.unloaded_files) == (1, 1)
    assert world.read((0, 1)) == [2]
    assert world.holder.tick().hydrated == 0


def test_a_table_with_other_columns_is_loaded_anew(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    wider = pa.schema([("k", pa.int32()), ("v", pa.string())])
    world.holder.apply(world.update(2, (0, 1, "owner"), table=world.table(schema=wider)))
    with pytest.raises(NotOwner):
        world.read((0, 1))
    world.holder.tick()
    query = world.engine.query("select k from t", world.holder.files_for(world.leg((0, 1))))
    assert query.schema.types == [pa.int32()]
    assert pa.Table.from_batches(query.batches()).to_pydict() == {"k": [1]}


def test_columns_that_change_during_a_tick_are_never_served_as_they_were(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    wider = pa.schema([("k", pa.int32()), ("v", pa.string())])
    load = world.engine.load

    def racing(table, files):
        done = load(table, files)
        world.holder.apply(world.update(2, (0, 1, "owner"), table=world.table(schema=wider)))
        return done

    world.engine.load = racing
    world.holder.tick()
    world.engine.load = load
    with pytest.raises(NotOwner):
        world.read((0, 1))
    world.holder.tick()
    query = world.engine.query("select k from t", world.holder.files_for(world.leg((0, 1))))
    assert query.schema.types == [pa.int32()]


def test_a_forgotten_table_may_start_anew_from_revision_one(world):
    world.put(0, 1)
    world.holder.apply(world.update(8, (0, 6, "owner")))
    world.holder.tick()
    world.holder.forget("t")
    with pytest.raises(NotOwner):
        world.read((0, 6))
    assert world.holder.tick().unloaded_files == 1
    assert world.holder.held() == ()
    assert world.holder.apply(world.update(1, (0, 7, "owner")))
    world.holder.tick()
    assert world.read((0, 7)) == [1]


def test_tables_of_which_nothing_is_here_are_forgotten_beyond_a_number_and_those_that_are_served_never(world):
    world.put(0, 1)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    for number in range(MOST_EMPTY + 50):
        dropped = evolve(world.table(), name=f"dropped_{number}")
        assert world.holder.apply(world.update(5, table=dropped))
    names = [report.table for report in world.holder.held()]
    assert len(names) == MOST_EMPTY + 1
    assert world.read((0, 1)) == [1]
    assert world.holder.holdings("dropped_49") is None
    assert not world.holder.apply(world.update(4, table=evolve(world.table(), name="dropped_50")))  # still known


def test_several_tables_are_answered_for_in_one_leg(world):
    world.put(0, 1)
    world.put(0, 5, table="u")
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.apply(world.update(3, (0, 2, "owner"), table=world.table("u")))
    world.holder.tick()
    tables = world.leg((0, 1)).tables + world.leg((0, 2), table="u").tables
    leg = world.leg()
    files = world.holder.files_for(type(leg)(fragment="f", executor_id="e1", sql="", tables=tables))
    query = world.engine.query("select t.k as a, u.k as b from t, u", files)
    assert pa.Table.from_batches(query.batches()).to_pylist() == [{"a": 1, "b": 5}]


def test_hundreds_of_partitions_load_in_parallel_and_in_few_transactions(world_in_memory, engine, clock):
    world = world_in_memory
    with ThreadPoolExecutor(4) as pool:
        world.holder = PartitionHolder(world.lease, world.store, engine, runtime=clock, mapper=pool.map)
        for p in range(200):
            world.put(p, p)
        loads = []
        load = engine.load
        engine.load = lambda table, files: (loads.append(len(files)), load(table, files))[1]
        world.holder.apply(world.update(1, *[(p, 1, "owner") for p in range(200)]))
        assert world.holder.tick().hydrated == 200
    assert sum(loads) == 200
    assert len(loads) <= 4
    assert world.read(*[(p, 1) for p in range(200)]) == list(range(200))


def test_legs_are_answered_and_updates_heard_while_a_tick_loads(world):
    world.put(0, 1)
    world.put(1, 2)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    loading, go_on = threading.Event(), threading.Event()
    load = world.engine.load

    def slow(table, files):
        loading.set()
        assert go_on.wait(10)
        return load(table, files)

    world.engine.load = slow
    world.holder.apply(world.update(2, (0, 1, "owner"), (1, 1, "owner")))
    ticker = threading.Thread(target=world.holder.tick)
    ticker.start()
    assert loading.wait(10)
    assert world.read((0, 1)) == [1]
    assert held(world).active == (0,)
    assert world.holder.apply(world.update(3, (0, 1, "owner"), (1, 1, "owner")))
    go_on.set()
    ticker.join()
    assert world.read((0, 1), (1, 1)) == [1, 2]


def test_an_unexpected_error_is_contained_and_logged(world, caplog):
    world.put(0, 1)
    world.put(1, 2)
    load = world.engine.load

    def failing(table, files):
        if any(file.name.endswith("/1.parquet") for file in files):
            raise ZeroDivisionError("secret")
        return load(table, files)

    world.engine.load = failing
    world.holder.apply(world.update(1, (0, 1, "owner"), (1, 1, "owner")))
    world.holder.tick()
    assert world.read((1, 1)) == [2]
    assert held(world).failed == {0: "internal error (ZeroDivisionError)"}
    assert "secret" in caplog.text


def test_an_interrupted_hydration_goes_on_with_the_files_that_are_here_already(world_in_memory, tmp_path):
    world = world_in_memory
    for partition in range(6):
        world.put(partition, partition)
    wanted = world.update(1, *((partition, 1, "owner") for partition in range(6)))

    def started_anew():
        cache = FileCache(world.store, str(tmp_path / "cache"))
        return cache, PartitionHolder(world.lease, world.store, world.engine, cache=cache, runtime=world.clock)

    class Stopped(BaseException):
        """The process ends here."""

    asked: list[str] = []

    def get(key, *bound, real=world.store.get):
        asked.append(key)
        if sum(key.endswith(".parquet") for key in asked) == 4:
            raise Stopped
        return real(key, *bound)

    world.store.get = get
    _, first = started_anew()
    first.apply(wanted)
    with pytest.raises(Stopped):
        first.tick()
    assert (first.progress().hydrated, first.progress().files_here) == (0, 3)
    del world.store.get
    cache, holder = started_anew()
    holder.apply(wanted)
    assert holder.progress() == HydrationProgress(partitions=6)
    world.engine.drop_table("t")
    assert holder.tick().hydrated == 6
    progress = holder.progress()
    assert (progress.hydrated, progress.files_asked, progress.files_loaded) == (6, 6, 6)
    assert progress.bytes_asked == progress.bytes_here == progress.bytes_loaded > 0
    assert (cache.stats().reused, cache.stats().fetched) == (3, 3)


@pytest.mark.parametrize(
    ("partition", "epoch", "revision", "behind"),
    [
        (0, 1, 3, True),
        (0, 1, 2, False),
        (0, 1, 1, False),
        (0, 2, 3, False),
        (1, 1, 3, False),
        (2, 1, 3, False),
        (3, 1, 3, False),
    ],
    ids=["older", "the same", "newer", "of another epoch", "held for another epoch", "not held yet", "not wanted"],
)
def test_only_what_is_held_from_before_and_by_this_very_owner_is_behind(world, partition, epoch, revision, behind):
    def owner(number, epoch=1):
        return PartitionAssignment(partition=number, path=f"k={number}", epoch=epoch, role="owner")

    holdings = Holdings(
        table=world.table(),
        wanted={0: owner(0), 1: owner(1), 2: owner(2)},
        held={
            0: Held(assignment=owner(0), revision=2, files={}),
            1: Held(assignment=owner(1, epoch=0), revision=2, files={}),
        },
    )
    assert holdings.is_behind(partition, epoch, revision) is behind


def test_what_the_data_pipeline_prepared_is_listed_apart(world):
    world.put(0, 1)
    storage = world.storage(0)
    storage.prepare(Prepared(attempt="of-a-statement", token="a"), epoch=0)
    world.put(1, 2)
    world.storage(1).prepare_run(Prepared(attempt="of-a-run", token="b"), (None, None), replaces=False)
    world.holder.apply(world.update(1, (0, 1, "owner"), (1, 1, "owner")))
    world.holder.tick()
    assert world.holder.prepared() == [("t", 0, "of-a-statement")]
    assert world.holder.prepared(outside=True) == [("t", 1, "of-a-run")]
