"""Replicas: never older than a leg allows, never between the parts of one statement, nothing written."""

import pytest
from attrs import evolve

from ballista_py.errors import NotOwner
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.held.replicas import ReplicaReads
from ballista_py.storage.manifest import Prepared, manifest_key


@pytest.fixture
def reads(world):
    for partition in (1, 2):
        world.put(partition, partition)
        world.storage(partition).activate(1)
    world.holder.apply(world.update(1, (1, 1, "replica"), (2, 1, "replica")))
    world.holder.tick()
    fresh = ReplicaReads(world.holder, world.store, world.clock)

    def read(max_lag_ms: float = 0.0, sequence: int | None = None) -> list[int]:
        leg = world.leg((1, 1), (2, 1))
        tables = tuple(evolve(table, sequence=sequence) for table in leg.tables)
        leg = evolve(leg, max_replica_lag_ms=max_lag_ms, tables=tables)
        fresh.freshen(leg)
        query = world.engine.query(leg.sql, world.holder.files_for(leg))
        return sorted(key for batch in query.batches() for key in batch.column(0).to_pylist())

    return read


def test_a_replica_gives_what_was_committed_before_it_was_asked(world, reads):
    assert reads() == [1, 2]
    world.put(1, 11)
    world.put(2, 22)
    assert reads() == [1, 2, 11, 22]


def test_a_replica_is_never_older_than_the_lag_that_a_leg_allows(world, reads):
    world.put(1, 11)
    held = world.holder.holdings("t").held.values()
    world.clock.now_ms = min(one.checked_ms for one in held) + 499
    assert reads(max_lag_ms=500) == [1, 2]
    world.clock.now_ms += 501
    assert reads(max_lag_ms=500) == [1, 2, 11]


def test_an_unchanged_partition_is_compared_and_not_loaded_again(world, reads):
    reads()
    before = dict(world.holder.holdings("t").held[1].files)
    world.store.calls.clear()
    assert reads() == [1, 2]
    assert world.holder.holdings("t").held[1].files == before
    assert [key for _, key in world.store.calls if key.endswith(".parquet")] == []


def prepare(world, attempt: str, *keys: int) -> None:
    for partition in (1, 2):
        file = world.put_file(*(key + partition for key in keys))
        prepared = Prepared(attempt=attempt, token=attempt, add=(file,), affected=len(keys))
        world.storage(partition).prepare(prepared, epoch=1)


@pytest.mark.parametrize("folded", [(), (1,), (1, 2)])
def test_a_statement_is_seen_in_all_partitions_or_in_none_and_nothing_is_written(world, reads, folded):
    statements = TableDecisions(world.store, "t")
    prepare(world, "a", 100)
    assert reads(max_lag_ms=1e9, sequence=0) == [1, 2]
    decision = statements.commit("a", "a", affected=2)
    for partition in folded:
        world.storage(partition).fold("a", epoch=1, sequence=decision.sequence)
    world.store.calls.clear()
    assert reads(max_lag_ms=1e9, sequence=0) == [1, 2]
    assert reads(max_lag_ms=1e9, sequence=1) == [1, 2, 101, 102]
    assert {verb for verb, _ in world.store.calls} <= {"get", "get_if_changed"}


def test_a_statement_that_was_aborted_is_never_seen(world, reads):
    prepare(world, "a", 100)
    TableDecisions(world.store, "t").abort("a")
    assert reads() == [1, 2]


def test_without_the_store_a_replica_refuses_what_it_might_not_know(world, reads):
    reads()
    world.store.broken.update(manifest_key("t", f"expr0={partition}") for partition in (1, 2))
    with pytest.raises(NotOwner, match="ask the owners"):
        reads()
    assert reads(max_lag_ms=60_000) == [1, 2]


def test_a_replica_whose_manifest_is_gone_answers_nothing_as_if_it_were_new(world, reads):
    assert reads() == [1, 2]
    world.store.delete(manifest_key("t", "expr0=1"))
    with pytest.raises(NotOwner):
        reads()


def test_a_table_that_is_filled_from_a_source_is_not_asked_for_news(world, reads):
    table = evolve(world.table(), source={"path": "x"})
    world.holder.apply(world.update(2, (1, 1, "replica"), (2, 1, "replica"), table=table))
    world.holder.tick()
    world.put(1, 11)
    assert reads() == [1, 2]


def test_the_age_of_a_replica_counts_from_when_the_store_was_asked(world, reads):
    reads()
    slow = [manifest_key("t", f"expr0={partition}") for partition in (1, 2)]

    def wait():
        world.clock.now_ms += 400

    world.clock.now_ms += 1_000
    world.store.before.update(dict.fromkeys(slow, wait))
    begun_ms = world.clock.now_ms
    assert reads(max_lag_ms=500) == [1, 2]
    world.store.before.clear()
    assert {one.checked_ms for one in world.holder.holdings("t").held.values()} == {begun_ms}
    world.put(1, 11)
    world.clock.now_ms = begun_ms + 500
    assert reads(max_lag_ms=500) == [1, 2, 11]


def test_the_age_of_a_replica_that_is_loaded_counts_from_when_its_manifest_was_asked_for(world):
    world.put(1, 1)
    world.storage(1).activate(1)

    def wait():
        world.clock.now_ms += 400

    world.store.before[manifest_key("t", "expr0=1")] = wait
    world.holder.apply(world.update(1, (1, 1, "replica")))
    begun_ms = world.clock.now_ms
    world.holder.tick()
    assert world.clock.now_ms >= begun_ms + 400
    assert world.holder.holdings("t").held[1].checked_ms == begun_ms


def test_the_age_of_replicas_is_told_by_table(world):
    for partition in (1, 2):
        world.put(partition, partition)
    assert world.holder.replica_ages_ms() == {}
    world.holder.apply(world.update(1, (1, 1, "replica"), (2, 1, "replica")))
    world.holder.tick()
    world.clock.now_ms += 250
    assert world.holder.replica_ages_ms() == {"t": 250}
    world.holder.apply(world.update(2, (1, 2, "owner"), (2, 2, "owner")))
    world.holder.tick()
    assert world.holder.replica_ages_ms() == {}
