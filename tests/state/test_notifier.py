"""What an executor is to hold is sent once, and again as long as it does not report that it knows."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.control import HeldPartitions, PartitionAssignment, UpdatePartitions
from ballista_py.state.ownership.notifier import Notifier
from ballista_py.state.ownership.notify import Committed, desired, desired_of, farewells, unsettled

EXECUTOR = ("e1", "i1")
RESEND_MS = 1_000.0


def update(revision: int) -> UpdatePartitions:
    schema = pa.schema([("k", pa.int64())])
    table = TableSpec(name="t", schema=schema, spec=PartitionSpec.parse(["bucket(4, k)"], schema))
    wanted = PartitionAssignment(partition=1, path="expr0=1", epoch=1, role="owner")
    return UpdatePartitions(instance_id="i1", table=table, revision=revision, partitions=(wanted,))


@pytest.fixture
def notifier(runtime):
    return Notifier(runtime, RESEND_MS)


def test_an_update_that_is_not_reported_is_sent_again_after_a_while_and_again(notifier, runtime):
    assert notifier.due(EXECUTOR, [update(3)], [])
    for _ in range(3):
        runtime.advance(RESEND_MS - 1)
        assert notifier.due(EXECUTOR, [update(3)], []) == []
        runtime.advance(1)
        assert notifier.due(EXECUTOR, [update(3)], []) == [update(3)]


def test_a_newer_revision_is_sent_at_once_and_an_older_one_is_not(notifier):
    assert notifier.due(EXECUTOR, [update(3)], [])
    assert notifier.due(EXECUTOR, [update(4)], []) == [update(4)]
    assert notifier.due(EXECUTOR, [update(4)], []) == []


def test_what_an_executor_reports_to_hold_is_not_sent(notifier, runtime):
    held = [HeldPartitions(table="t", revision=3, active=(1,), epochs=(1,))]
    assert notifier.due(EXECUTOR, [update(3)], held) == []
    runtime.advance(2 * RESEND_MS)
    assert notifier.due(EXECUTOR, [update(3)], held) == []


def test_another_instance_and_one_whose_stream_ended_have_heard_nothing(notifier):
    assert notifier.due(EXECUTOR, [update(3)], [])
    assert notifier.due(("e1", "i2"), [update(3)], [])
    notifier.forget(EXECUTOR)
    assert notifier.due(EXECUTOR, [update(3)], [])


@pytest.mark.parametrize("part", ["active", "loaded"])
def test_whoever_still_holds_something_of_a_dropped_table_is_told_to_let_it_go(part):
    table = update(1).table
    epochs = {"epochs": (1,)} if part == "active" else {}
    held = HeldPartitions(table="t", revision=3, **{part: (1,)}, **epochs)
    (told,) = farewells({"t": (table, 8)}, [held], "i1")
    assert (told.instance_id, told.table, told.revision, told.partitions) == ("i1", table, 8, ())
    assert unsettled([told], [held]) == [told]
    assert farewells({"t": (table, 8)}, [HeldPartitions(table="t", revision=8)], "i1") == []
    assert (
        farewells({"t": (table, 8)}, [HeldPartitions(table="u", revision=3, active=(1,), epochs=(1,))], "i1") == []
    )


def test_another_definition_is_sent_once_though_what_is_reported_does_not_tell(notifier):
    """Whoever altered the table died before its map had another revision."""
    before = update(3)
    reported = HeldPartitions(
        table=before.table.folder,
        revision=3,
        active=tuple(a.partition for a in before.partitions),
        epochs=tuple(a.epoch for a in before.partitions),
    )
    assert not notifier.due(EXECUTOR, [before], [reported])
    for table in (evolve(before.table, definition=1), evolve(before.table, definition=2, name="u", made_as="t")):
        altered = evolve(before, table=table, until_heard=True)
        assert notifier.due(EXECUTOR, [altered], [reported]) == [altered]
        assert not notifier.due(EXECUTOR, [altered], [reported])
    notifier.forget(EXECUTOR)
    assert notifier.due(EXECUTOR, [altered], [reported]) == [altered]


def a_table(name, definition):
    schema = pa.schema([("k", pa.int64())])
    spec = PartitionSpec.parse(["bucket(4, k)"], schema)
    return TableSpec(name=name, schema=schema, spec=spec, incarnation=name, definition=definition)


def a_map(table, revision, random):
    """A map of the table in which any partition may have any owner, and be on its way."""
    pmap = PartitionMap.build(table.name, table.spec, table.spec.static_values())
    for ids in (("e1", "e2"), ("e2",), ("e1",)):
        if random.random() < 0.6:
            plan = PartitionAssigner().assign(pmap, [Executor(e, "i1") for e in ids])
            pmap = pmap.apply(plan)
    return pmap.with_revision(revision)


def a_report(table, pmap, random):
    """What the executor may say of a table: all that is committed, some of it, something older, or nothing."""
    update = desired_of(pmap, table, *EXECUTOR)
    kept = [a for a in update.partitions if random.random() < 0.8]
    active = [a for a in kept if a.role != "target"]
    return HeldPartitions(
        table=table.folder,
        revision=update.revision - (random.random() < 0.3),
        active=tuple(a.partition for a in active),
        epochs=tuple(a.epoch for a in active),
        loaded=tuple(a.partition for a in kept if a.role == "target"),
        parting={a.partition: a.epoch for a in active if a.partition in update.parting},
    )


@pytest.mark.parametrize("seed", range(25))
def test_what_is_found_by_looking_at_changes_is_what_is_found_by_looking_at_all(seed, runtime):
    random, all_of, changes = Random(seed), Notifier(runtime, RESEND_MS), Notifier(runtime, RESEND_MS)
    tables = {name: a_table(name, 0) for name in ("t", "u", "v")}
    maps = {name: a_map(table, 1, random) for name, table in tables.items()}
    dropped, held = {}, ()
    for step in range(60):
        name = random.choice(sorted(tables))
        match random.randrange(7):
            case 0:
                maps = {**maps, name: a_map(tables[name], maps[name].revision + 1, random)}
            case 1:
                tables = {**tables, name: evolve(tables[name], definition=step)}
            case 2 if len(tables) > 1:
                dropped = {**dropped, name: (tables[name], maps[name].revision)}
                tables = {n: t for n, t in tables.items() if n != name}
                maps = {n: m for n, m in maps.items() if n != name}
            case 3 | 4:
                others = [report for report in held if report.table != tables[name].folder]
                held = (*others, a_report(tables[name], maps[name], random))
            case 5:
                runtime.advance(RESEND_MS * random.random())
            case 6 if random.random() < 0.3:
                all_of.forget(EXECUTOR)
                changes.forget(EXECUTOR)
        updates = desired(maps, tables, *EXECUTOR) + farewells(dropped, held, EXECUTOR[1])
        expected = all_of.due(EXECUTOR, updates, held)
        committed = Committed(maps, tables, dropped)
        found = [] if changes.is_told(EXECUTOR, committed, held) else changes.news(EXECUTOR, committed, held)
        assert sorted(found, key=lambda u: u.table.name) == sorted(expected, key=lambda u: u.table.name)
