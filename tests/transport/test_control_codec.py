"""Control messages: what was written is read back, and what a newer release adds is ignored."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import (
    ExecutorInfo,
    Grant,
    Heartbeat,
    HeldPartitions,
    PartitionAssignment,
    Refusal,
    UpdatePartitions,
)
from ballista_py.transport.control.codec import (
    from_scheduler_message,
    heard_message,
    heartbeat_from_message,
    heartbeat_to_message,
    scheduler_from_message,
    scheduler_to_message,
    to_executor_message,
)
from ballista_py.transport.control.grpc import messages as pb

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("Größe", pa.decimal128(12, 2))])
TABLE = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["bucket(4, id)"], SCHEMA), group="g")
HEARTBEAT = Heartbeat(
    executor=ExecutorInfo(
        executor_id="e1",
        instance_id="i1",
        data_address="h:1",
        capacity=2.5,
        labels={"zone": "ä"},
        engine="polars",
    ),
    sequence=2**40,
    lapsed=True,
    admitted=True,
    load=75,
    held=(
        HeldPartitions(
            table="t",
            revision=7,
            active=(0, 3),
            epochs=(1, 2**33),
            loaded=(2,),
            failed={1: "no file"},
            rows=(4, 0),
            bytes=(2**40, 7),
            ranges={"id": (-4.0, 2.0**60), "Größe": (0.25, 9.75)},
        ),
        HeldPartitions(table="u", revision=0),
    ),
)
UPDATE = UpdatePartitions(
    instance_id="i1",
    table=TABLE,
    revision=9,
    partitions=tuple(
        PartitionAssignment(partition=n, path=f"expr0={n}", epoch=n, role=role)
        for n, role in enumerate(("owner", "target", "replica"))
    ),
)


def over_the_wire(message):
    return type(message).FromString(message.SerializeToString())


def test_a_heartbeat_is_read_back_as_it_was():
    assert heartbeat_from_message(over_the_wire(heartbeat_to_message(HEARTBEAT))) == HEARTBEAT


@pytest.mark.parametrize(
    "value",
    [
        Grant(sequence=3, lease_ms=1234.5),
        *(
            Refusal(sequence=4, reason=reason, message="weg")
            for reason in ("lost", "already_registered", "not_admitted", "scheduler_lapsed")
        ),
        UPDATE,
    ],
)
def test_what_a_scheduler_says_is_read_back_as_it_was(value):
    assert from_scheduler_message(over_the_wire(to_executor_message(value))) == value


def test_a_scheduler_is_read_back_as_it_was():
    scheduler = SchedulerInfo(scheduler_id="s", instance_id="i", flight_address="a:1", control_address="a:2")
    assert scheduler_from_message(over_the_wire(scheduler_to_message(scheduler))) == scheduler


def test_messages_fields_and_choices_from_the_future_are_ignored():
    unknown_message = b"\xfa\x06\x02\x08\x01"  # field 111, a message
    assert heartbeat_from_message(pb.ExecutorMessage.FromString(unknown_message)) is None
    assert from_scheduler_message(pb.SchedulerMessage.FromString(unknown_message)) is None
    grant = pb.Grant(sequence=1, lease_ms=2).SerializeToString() + unknown_message
    message = pb.SchedulerMessage.FromString(b"\x0a" + bytes([len(grant)]) + grant)
    assert from_scheduler_message(message) == Grant(sequence=1, lease_ms=2)
    refusal = to_executor_message(Refusal(sequence=1, reason="lost", message=""))
    refusal.refusal.reason = 99
    assert from_scheduler_message(over_the_wire(refusal)) is None
    update = to_executor_message(UPDATE)
    update.update_partitions.partitions[0].role = 99
    assert from_scheduler_message(over_the_wire(update)) is None


def test_that_a_heartbeat_was_heard_asks_nothing_of_the_executor():
    assert from_scheduler_message(heard_message(5)) is None
