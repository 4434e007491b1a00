"""An executor compares what it reads with what it has seen: no document goes back without being named."""

from __future__ import annotations

import pytest
from attrs import evolve

from ballista_py.errors import DocumentLost, DocumentOlder, Fenced
from ballista_py.state.documents.decisions import TableDecisions, statements_key
from ballista_py.state.documents.documents import partition_map_key
from ballista_py.storage.decisions_check import DecisionsCheck
from ballista_py.storage.manifest import Prepared, manifest_key
from ballista_py.storage.publication import Publication

KEY = manifest_key("t", "expr0=1")
LOST = pytest.mark.parametrize("older", [False, True], ids=["deleted", "older"])


def put_back(store, key: str, data: bytes | None) -> None:
    """An older copy in the place of a document, or nothing."""
    store.delete(key)
    if data is not None:
        store.create(key, data)


def error_of(older: bool) -> type[Exception]:
    return DocumentOlder if older else DocumentLost


@pytest.fixture
def decided(world):
    """A partition with two statements folded in, and the decisions as they were after the first."""
    storage = world.storage(1)
    storage.create()
    storage.activate(1)
    copy = b""
    for sequence in (1, 2):
        file = world.put_file(sequence)
        storage.prepare(Prepared(attempt=f"a{sequence}", token=f"s{sequence}", add=(file,)), epoch=1)
        TableDecisions(world.store, "t").commit(f"a{sequence}", f"s{sequence}", affected=1)
        storage.fold(f"a{sequence}", epoch=1, sequence=sequence)
        copy = copy or world.store.get(statements_key("t")).data
    world.older = copy
    return world


def holding(world):
    world.holder.apply(world.update(1, (1, 1, "owner")))
    world.holder.tick()
    return world


def leg_as_of(world, sequence: int):
    leg = world.leg((1, 1))
    return evolve(leg, tables=tuple(evolve(table, sequence=sequence) for table in leg.tables))


@LOST
def test_a_leg_by_decisions_that_went_back_is_refused(decided, older):
    world = holding(decided)
    put_back(world.store, statements_key("t"), world.older if older else None)
    with pytest.raises(error_of(older), match=r"commits/t\.json"):
        world.holder.check_decisions(leg_as_of(world, int(older)))


def test_a_leg_that_began_before_a_statement_is_no_sign_of_a_lost_document(decided):
    world = holding(decided)
    world.holder.check_decisions(leg_as_of(world, 1))
    assert len(world.holder.files_for(leg_as_of(world, 1))["t"]) == 1


@LOST
def test_without_the_comparison_a_leg_gives_fewer_rows(decided, older, monkeypatch):
    """What the rule is for."""
    world = holding(decided)
    put_back(world.store, statements_key("t"), world.older if older else None)
    monkeypatch.setattr(DecisionsCheck, "require", lambda *_: None)
    leg = leg_as_of(world, int(older))
    world.holder.check_decisions(leg)
    assert len(world.holder.files_for(leg)["t"]) == int(older)


@LOST
def test_a_partition_is_not_loaded_by_decisions_that_went_back(decided, older):
    world = decided
    newest = world.store.get(statements_key("t")).data
    put_back(world.store, statements_key("t"), world.older if older else None)
    holding(world)
    with pytest.raises(error_of(older), match="partition 1 of table 't' could not be loaded: document"):
        world.read((1, 1))
    put_back(world.store, statements_key("t"), newest)
    world.clock.now_ms += 60_000
    world.grant(120_000)
    world.holder.tick()
    assert world.read((1, 1)) == [1, 2]


@LOST
def test_the_data_pipeline_begins_no_run_by_decisions_that_went_back(decided, older):
    put_back(decided.store, statements_key("t"), decided.older if older else None)
    with pytest.raises(DocumentOlder, match="knows of 2"):
        Publication(decided.store, "t").begin(token="run")


@LOST
def test_a_manifest_that_went_back_changes_neither_what_is_served_nor_itself(world, older):
    world.put(1, 1)
    copy = world.store.get(KEY).data
    world.put(1, 2)
    holding(world)
    put_back(world.store, KEY, copy if older else None)
    world.holder.refresh("t")
    world.holder.tick()
    assert world.read((1, 1)) == [1, 2]
    assert "manifest.json" in world.holder.holdings("t").failures[1].reason
    if older:
        assert world.store.get(KEY).data == copy


@LOST
def test_a_map_that_gives_out_old_epochs_is_named(world, older):
    world.put(1, 1)
    world.storage(1).activate(5)
    if older:
        world.write_map(3)
    world.holder.apply(world.update(1, (1, 3, "owner")))
    world.holder.tick()
    with pytest.raises(error_of(older), match=partition_map_key("t")):
        world.read((1, 3))


def test_an_owner_that_is_merely_late_is_fenced(world):
    world.put(1, 1)
    world.storage(1).activate(5)
    world.write_map(5)
    world.holder.apply(world.update(1, (1, 3, "owner")))
    world.holder.tick()
    assert "epoch 5 is active" in world.holder.holdings("t").failures[1].reason
    assert world.holder.holdings("t").failures[1].damage is None


def test_an_epoch_that_was_given_out_twice_has_one_owner(world):
    world.put(1, 1)
    manifest = world.storage(1).read().document.activated(4, "first")
    assert manifest.activated(4, "first") == manifest
    with pytest.raises(DocumentOlder, match="another owner at epoch 4"):
        manifest.activated(4, "second")
    assert manifest.activated(5, "second").owner == "second"
    with pytest.raises(Fenced):
        manifest.activated(3, "first")


def test_what_is_spoilt_is_named_at_once_and_what_only_waits_is_not(world):
    world.put(1, 1)
    world.store.create(manifest_key("t", "expr0=2"), b"torn")
    world.store.broken.add(manifest_key("t", "expr0=3"))
    world.holder.apply(world.update(1, (1, 1, "owner"), (2, 1, "owner"), (3, 1, "owner"), (4, 1, "replica")))
    world.holder.tick()
    damage = {p: failure.damage is not None for p, failure in world.holder.holdings("t").failures.items()}
    assert damage == {2: True, 3: False, 4: True}
    assert world.read((1, 1)) == [1]
