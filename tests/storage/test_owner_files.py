"""What an owner writes for a statement: held to what it was made from, bounded, and taken back where it fails."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.errors import InvariantViolated, SchemaMismatch, StoreUnavailable, TransportError, TryLater
from ballista_py.owner import files as owner_files
from ballista_py.owner.files import OwnerFiles
from ballista_py.partitions.conform import conform, require_small_values
from ballista_py.partitions.spec import PARTITION_COLUMN
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS

OLD = dict.fromkeys(range(40), "old")


def batch(*keys: int) -> pa.RecordBatch:
    """Rows of partition 1."""
    return pa.record_batch(
        {
            "k": pa.array(keys, pa.int64()),
            "v": ["x"] * len(keys),
            PARTITION_COLUMN: pa.array([1] * len(keys), pa.int32()),
        }
    )


@pytest.fixture
def filled(owner):
    """The owner with one large file."""
    owner.apply(1, put=range(40), told="old")
    return owner


def test_what_a_statement_was_made_from_is_held_to_where_none_of_its_rows_go(owner):
    """Its rows go to partition 1, and were computed from 2: nobody may change 2 meanwhile."""
    target = evolve(owner.target(1, 2), base={1: (), 2: ()})
    said = owner.writes.write(target, [batch(1)])
    assert said.keys() == {"1", "2"}
    assert not any("idle" in one for one in said.values())
    assert [one.attempt for one in owner.world.storage(2).read().document.prepared] == [target.attempt]


def test_no_key_is_taken_as_free_while_a_file_of_the_partition_is_not_loaded(filled, monkeypatch):
    holder = filled.world.holder
    whole = holder.holdings("t")
    lacking = evolve(whole, held={**whole.held, 1: evolve(whole.held[1], files={})})
    monkeypatch.setattr(holder, "holdings", lambda _table: lacking)
    new = filled.world.put_file(1)
    with pytest.raises(TryLater, match="is being loaded"):
        filled.writes._files.check_primary_key(whole.table, 1, [new], filled.files)


def test_a_file_of_exactly_so_many_rows_as_a_large_one_loses_those_that_go(owner):
    """Whatever is said of the small ones beside it."""
    owner.apply(1, put=range(owner_files.SMALL_ROWS), told="old")
    owner.apply(1, put=[-1, 100], told="old")
    owner.apply(1, put=[-2, 101], told="old")
    assert owner.rewrite("delete from t where k = 4") == 1
    assert 4 not in owner.rows()


def test_a_statement_that_finds_fewer_rows_when_it_asks_again_is_broken_off(filled):
    change = filled.change("update t set v = 'x' where k in (3, 4)")
    fewer = evolve(change, rows=change.rows.replace("(3, 4)", "(3)"))
    assert fewer != change
    with pytest.raises(InvariantViolated, match="affects 2 rows of a file, and 1 when asked again"):
        filled.writes._files.rewritten(filled.target(1), filled.table, 1, filled.files, fewer)
    assert filled.rows() == OLD


@pytest.mark.parametrize("where", ["k = 3", "k between 3 and 30"])  # by a vector, and put anew
def test_a_value_that_an_update_makes_too_large_is_refused(filled, monkeypatch, where):
    monkeypatch.setattr(owner_files, "require_small_values", partial(require_small_values, max_bytes=50))
    with pytest.raises(SchemaMismatch, match="50 are the most"):
        filled.rewrite(f"update t set v = repeat('x', 51) where {where}")
    assert filled.rows() == OLD


def test_values_that_an_update_leaves_may_be_larger_than_what_comes_in_today(owner, monkeypatch):
    owner.apply(1, put=range(40), told="x" * 100)
    monkeypatch.setitem(conform.__kwdefaults__, "max_value_bytes", 50)
    assert owner.rewrite("update t set v = 'small' where k between 3 and 30") == 28
    assert owner.rewrite("update t set k = k + 100 where k = 2") == 1
    assert owner.rows()[102] == "x" * 100


def test_rows_that_took_too_long_to_come_are_refused_before_their_files_are_garbage(owner):
    def slow():
        yield batch(1)
        owner.world.clock.now_ms += MAX_WRITE_MS + 1

    with pytest.raises(TryLater, match="took too long"):
        owner.writes._files.written(owner.table, slow())
    assert not owner.stored


def test_rows_that_break_off_leave_nothing_of_the_files_that_were_written_by_then(owner):
    world = owner.world
    files = OwnerFiles(world.holder, world.store, world.engine, world.clock, map, spool_bytes=1)
    seen = []

    def broken():
        for key in range(5):
            yield batch(key)
        seen.append((len(owner.stored), len(owner.staged)))
        raise TransportError("broke off")

    with pytest.raises(TransportError):
        files.written(owner.table, broken())
    assert all(count > 0 for count in seen[0])
    assert (owner.stored, owner.staged) == (set(), set())


def test_a_statement_that_by_chance_affects_nothing_leaves_nothing(filled):
    files, stored = filled.files, filled.stored
    assert filled.rewrite("delete from t where random() < -1") == 0
    assert (filled.files, filled.stored, filled.staged) == (files, stored, set())


@pytest.fixture(params=[MemoryError, KeyboardInterrupt])
def failing(filled, monkeypatch, request):
    """A change fails after its first file got a vector: of the error that is given."""
    filled.apply(1, put=range(100, 105), told="old")  # a small file, which is put anew

    def fails(*_):
        raise request.param

    monkeypatch.setattr(owner_files.OwnerFiles, "_put_anew", fails)
    return request.param


def test_a_change_that_fails_leaves_no_vector_at_the_store_and_none_in_the_engine(filled, failing):
    stored = filled.stored
    with pytest.raises(failing):
        filled.apply(1, gone=[1, 101])
    assert {key for key in filled.stored - stored if key.endswith(".deletions")} == set()
    assert filled.staged == set()
    assert filled.rows() == {**OLD, **dict.fromkeys(range(100, 105), "old")}


def test_what_a_change_met_is_told_though_the_store_fails_while_it_is_taken_back(filled, failing, monkeypatch):
    def away(_key):
        raise StoreUnavailable("away")

    monkeypatch.setattr(filled.world.store, "delete", away, raising=False)
    with pytest.raises(failing):
        filled.apply(1, gone=[1, 101])


@pytest.mark.parametrize(("verb", "apply"), [("load", {"put": [50]}), ("derive", {"gone": [3]})])
def test_what_the_engine_cannot_take_now_is_read_back(filled, monkeypatch, verb, apply):
    def fails(*_):
        monkeypatch.undo()
        raise TryLater("no memory now")

    monkeypatch.setattr(filled.world.engine, verb, fails)
    filled.apply(1, **apply)
    assert filled.rows().keys() == {*range(40), *apply.get("put", ())} - {*apply.get("gone", ())}


def test_what_waits_for_a_decision_stays_loaded_and_what_nobody_decides_is_unloaded(owner):
    files, loaded = owner.writes._files, owner.world.holder.files
    for attempt in ("one", "other"):
        rows = pa.Table.from_batches([batch(1)]).select(["k", "v"])
        loaded.stage("t", [(DataFile(path=attempt, rows=1, bytes=1), rows)])
        files.done_with(evolve(owner.target(1), attempt=attempt), [attempt])
    files.forget_but({("t", "one")})
    assert owner.staged == {"one"}
    files.decided("t", "one")
    assert owner.staged == set()
