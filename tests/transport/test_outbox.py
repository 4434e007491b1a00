"""What waits for a slow executor is the newest of everything, and bounded."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from ballista_py.errors import TryLater
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.control import Grant, Refusal, UpdatePartitions
from ballista_py.transport.control.codec import from_scheduler_message
from ballista_py.transport.control.service import MAX_TABLES_WAITING, Letter, Outbox


def update(revision, table="t", instance_id="i"):
    spec = TableSpec(name=table, schema=pa.schema([]), spec=PartitionSpec.whole(), distribution="replicated")
    return UpdatePartitions(instance_id=instance_id, table=spec, revision=revision, partitions=())


def taken(*values):
    """What comes out after `values` were put in without a reader."""

    async def run():
        box = Outbox()
        for value in values:
            box.put(Letter.of(value))
        out = []
        while True:
            try:
                message = await asyncio.wait_for(box.take(), 0.01)
            except TimeoutError:
                return out
            out.append(message.heard.sequence if message.HasField("heard") else from_scheduler_message(message))

    return asyncio.run(run())


def test_the_newest_revision_of_each_table_is_sent_once():
    assert taken(update(1), update(2), update(1, "u"), update(1)) == [update(2), update(1, "u")]


def test_an_update_for_a_new_instance_replaces_one_for_the_old():
    assert taken(update(5), update(2, instance_id="j")) == [update(2, instance_id="j")]


def test_answers_overtake_updates_and_the_newest_is_sent():
    old, new = Grant(sequence=1, lease_ms=1), Grant(sequence=2, lease_ms=1)
    assert taken(update(1), old, new) == [new, update(1)]
    assert taken(new, old) == [new]


def test_that_a_heartbeat_was_heard_never_hides_a_real_answer():
    refusal = Refusal(sequence=1, reason="lost", message="")
    assert taken(refusal, 7) == [refusal]
    assert taken(7, refusal) == [refusal]
    assert taken(7, 8) == [8]


def test_a_full_box_is_refused_and_known_tables_still_fit():
    letters = [Letter.of(update(1, f"t{n}")) for n in range(MAX_TABLES_WAITING)]

    async def fill():
        box = Outbox()
        for letter in letters:
            box.put(letter)
        box.put(Letter.of(update(2, "t0")))
        with pytest.raises(TryLater, match="reads too slowly"):
            box.put(Letter.of(update(1, "one_more")))

    asyncio.run(fill())
