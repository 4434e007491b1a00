"""What an executor is to hold is sent once, and again as long as it does not report that it knows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.control import HeldPartitions, PartitionAssignment, UpdatePartitions
from ballista_py.state.ownership.notifier import Notifier
from ballista_py.state.ownership.notify import farewells, unsettled

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
