"""Runs of the pipeline as an executor meets them: whole at every leg, whoever published them and died."""

from __future__ import annotations

import pytest
from attrs import evolve

from ballista_py.errors import NotOwner
from ballista_py.owner.pipeline_runs import UNDECIDED_MS, OutsideRuns
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.manifest import RETIRED_MS, Prepared
from ballista_py.storage.publication import Publication

OWNED = ((1, 1), (2, 1))


class Died(BaseException):
    """The publishing process is no more."""


@pytest.fixture
def served(world):
    """Two partitions of a table with a source, published once and held."""
    table = evolve(world.table(), source={"path": "s3://elsewhere"})
    publish(world, "old", 1)
    world.holder.apply(world.update(1, (1, 1, "owner"), (2, 1, "owner"), table=table))
    world.holder.tick()
    return OutsideRuns(world.holder, world.store, world.clock, lambda: "me")


def publish(world, run: str, key: int, done=lambda _count: None) -> None:
    """A run that gives partition p the key `10 * p + key`."""
    files = {
        f"expr0={p}": [
            write_data_file(world.store, f"snapshots/t/data/{run}/{p}.parquet", world.rows(10 * p + key))
        ]
        for p in (1, 2)
    }
    runs = Publication(world.store, "t", world.clock)
    begun = runs.begin(token=run)
    runs.publish(begun, files, attempt=run, token=run, position=run, done=done)


def leg(world, sequence: int):
    found = world.leg(*OWNED)
    return evolve(found, tables=tuple(evolve(table, sequence=sequence) for table in found.tables))


def read(world, runs: OutsideRuns, sequence: int) -> list[int]:
    asked = leg(world, sequence)
    runs.catch_up(asked)
    query = world.engine.query(asked.sql, world.holder.files_for(asked))
    return sorted(key for batch in query.batches() for key in batch.column(0).to_pylist())


def decide_and_die(world, monkeypatch) -> None:
    """Publish a second run by a process that dies right after the decision."""

    def die(*_arguments) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Publication, "finish", die)
        with pytest.raises(Died):
            publish(world, "new", 2)


def test_a_leg_reads_a_run_from_its_sequence_on_and_not_before(world, served):
    publish(world, "new", 2)
    assert read(world, served, 1) == [11, 21]
    assert read(world, served, 2) == [12, 22]
    assert read(world, served, 1) == [11, 21]  # a query that began earlier


def test_a_decided_run_whose_driver_died_is_folded_in_by_the_first_leg_that_needs_it(world, served, monkeypatch):
    decide_and_die(world, monkeypatch)
    assert [len(world.storage(p).read().document.prepared) for p in (1, 2)] == [1, 1]
    assert read(world, served, 1) == [11, 21]
    assert read(world, served, 2) == [12, 22]
    assert [world.storage(p).read().document.prepared for p in (1, 2)] == [(), ()]
    assert world.storage(1).read().document.epoch == 1


def test_an_executor_that_only_now_takes_a_partition_over_sees_the_decided_run(world, served, monkeypatch):
    decide_and_die(world, monkeypatch)
    world.holder.apply(world.update(2, (1, 2, "owner"), (2, 1, "owner"), table=world.holder.holdings("t").table))
    world.holder.tick()
    asked = evolve(leg(world, 2).tables[0], epochs=(2, 1))
    served.catch_up(evolve(leg(world, 2), tables=(asked,)))
    assert world.read((1, 2), (2, 1)) == [12, 22]


def test_replicas_catch_up_as_owners_do(world, served, monkeypatch):
    table = world.holder.holdings("t").table
    world.holder.apply(world.update(2, (1, 1, "replica"), (2, 1, "replica"), table=table))
    world.holder.tick()
    decide_and_die(world, monkeypatch)
    assert read(world, served, 2) == [12, 22]


def test_nothing_is_read_from_the_store_when_there_is_nothing_new(world, served):
    publish(world, "new", 2)
    assert read(world, served, 2) == [12, 22]
    world.store.calls.clear()
    assert read(world, served, 2) == [12, 22]
    assert world.store.calls == []


def test_an_undecided_run_of_a_dead_driver_is_given_up_after_a_while(world, served):
    for p in (1, 2):
        prepared = Prepared(attempt="dead", token="dead", add=())
        world.storage(p).prepare_run(prepared, world.storage(p).read().document.mark, replaces=True)
    world.holder.refresh("t")
    world.holder.tick()
    served.tick()
    assert not TableDecisions(world.store, "t").read().on("dead")
    world.clock.now_ms += UNDECIDED_MS - 1
    served.tick()
    assert not TableDecisions(world.store, "t").read().on("dead")
    world.clock.now_ms += 1
    world.grant()
    served.tick()
    assert not TableDecisions(world.store, "t").read().on("dead").committed
    assert [world.storage(p).read().document.prepared for p in (1, 2)] == [(), ()]
    assert read(world, served, 1) == [11, 21]


def test_a_run_in_a_partition_that_was_given_away_meanwhile_is_left_to_its_new_owner(world, served, monkeypatch):
    waiting = [("t", 7, "elsewhere"), ("gone", 1, "elsewhere")]
    monkeypatch.setattr(world.holder, "prepared", lambda **_outside: waiting)
    served.tick()
    world.clock.now_ms += UNDECIDED_MS
    world.store.calls.clear()
    served.tick()
    assert world.store.calls == []


def test_replaced_files_are_unloaded_once_no_query_can_need_them(world, served):
    publish(world, "new", 2)
    assert read(world, served, 2) == [12, 22]
    assert read(world, served, 1) == [11, 21]
    world.clock.now_ms += RETIRED_MS + 1
    world.clock.ahead_ms += RETIRED_MS + 1
    world.grant()
    assert world.holder.tick().unloaded_files == 2
    assert read(world, served, 2) == [12, 22]
    with pytest.raises(NotOwner):
        read(world, served, 1)
    assert world.holder.tick().unloaded_files == 0


def test_the_very_first_run_of_a_table_that_is_held_empty_is_seen(world):
    table = evolve(world.table(), source={"path": "s3://elsewhere"})
    for partition in (1, 2):
        world.storage(partition).create()
    world.holder.apply(world.update(1, (1, 1, "owner"), (2, 1, "owner"), table=table))
    world.holder.tick()
    runs = OutsideRuns(world.holder, world.store, world.clock, lambda: "me")
    publish(world, "first", 1)
    assert read(world, runs, 1) == [11, 21]
