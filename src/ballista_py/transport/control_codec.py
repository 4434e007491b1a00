"""The values of the control stream as protobuf messages, and back.

Reading back gives the value that was written. A message or a choice from a newer release that this one does not
know reads as None, which means: ignore it.
"""

from __future__ import annotations

from typing import get_args

from ballista_py.state.codec import table_from_json, table_to_json
from ballista_py.state.control import (
    ExecutorInfo,
    Grant,
    Heartbeat,
    HeldPartitions,
    PartitionAssignment,
    Refusal,
    RefusalReason,
    Role,
    UpdatePartitions,
)
from ballista_py.state.documents import SchedulerInfo
from ballista_py.transport.grpc_door import messages as pb

ToExecutor = Grant | Refusal | UpdatePartitions

_ROLES: dict[Role, str] = {role: f"ROLE_{role.upper()}" for role in get_args(Role)}
_REASONS: dict[RefusalReason, str] = {reason: f"REASON_{reason.upper()}" for reason in get_args(RefusalReason)}
_ROLE_OF = {pb.PartitionAssignment.Role.Value(name): role for role, name in _ROLES.items()}
_REASON_OF = {pb.Refusal.Reason.Value(name): reason for reason, name in _REASONS.items()}


def heartbeat_to_message(heartbeat: Heartbeat) -> pb.ExecutorMessage:
    """The heartbeat as an executor sends it."""
    executor = heartbeat.executor
    return pb.ExecutorMessage(
        heartbeat=pb.Heartbeat(
            executor=pb.ExecutorInfo(
                executor_id=executor.executor_id,
                instance_id=executor.instance_id,
                data_address=executor.data_address,
                capacity=executor.capacity,
                labels=executor.labels,
            ),
            sequence=heartbeat.sequence,
            lapsed=heartbeat.lapsed,
            admitted=heartbeat.admitted,
            held=[
                pb.HeldPartitions(
                    table=held.table,
                    revision=held.revision,
                    active=held.active,
                    epochs=held.epochs,
                    loaded=held.loaded,
                    failed=held.failed,
                )
                for held in heartbeat.held
            ],
        )
    )


def heartbeat_from_message(message: pb.ExecutorMessage) -> Heartbeat | None:
    """The heartbeat in the message; None for a message from a newer release."""
    if message.WhichOneof("body") != "heartbeat":
        return None
    heartbeat = message.heartbeat
    executor = heartbeat.executor
    return Heartbeat(
        executor=ExecutorInfo(
            executor_id=executor.executor_id,
            instance_id=executor.instance_id,
            data_address=executor.data_address,
            capacity=executor.capacity,
            labels=dict(executor.labels),
        ),
        sequence=heartbeat.sequence,
        lapsed=heartbeat.lapsed,
        admitted=heartbeat.admitted,
        held=tuple(
            HeldPartitions(
                table=held.table,
                revision=held.revision,
                active=tuple(held.active),
                epochs=tuple(held.epochs),
                loaded=tuple(held.loaded),
                failed=dict(held.failed),
            )
            for held in heartbeat.held
        ),
    )


def to_executor_message(value: ToExecutor) -> pb.SchedulerMessage:
    """The value as a scheduler sends it."""
    if isinstance(value, Grant):
        return pb.SchedulerMessage(grant=pb.Grant(sequence=value.sequence, lease_ms=value.lease_ms))
    if isinstance(value, Refusal):
        return pb.SchedulerMessage(
            refusal=pb.Refusal(sequence=value.sequence, reason=_REASONS[value.reason], message=value.message)
        )
    return pb.SchedulerMessage(
        update_partitions=pb.UpdatePartitions(
            instance_id=value.instance_id,
            table_json=table_to_json(value.table),
            revision=value.revision,
            partitions=[
                pb.PartitionAssignment(
                    partition=assignment.partition,
                    path=assignment.path,
                    epoch=assignment.epoch,
                    role=_ROLES[assignment.role],
                )
                for assignment in value.partitions
            ],
        )
    )


def heard_message(sequence: int) -> pb.SchedulerMessage:
    """That a heartbeat arrived and nothing is decided yet."""
    return pb.SchedulerMessage(heard=pb.Heard(sequence=sequence))


def from_scheduler_message(message: pb.SchedulerMessage) -> ToExecutor | None:
    """The value in the message; None for one that asks nothing of the executor, or is from a newer release.

    Raises `DocumentUnreadable` for a table spec that this release cannot read.
    """
    body = message.WhichOneof("body")
    if body == "grant":
        return Grant(sequence=message.grant.sequence, lease_ms=message.grant.lease_ms)
    if body == "refusal":
        reason = _REASON_OF.get(message.refusal.reason)
        if reason is None:
            return None
        return Refusal(sequence=message.refusal.sequence, reason=reason, message=message.refusal.message)
    if body == "update_partitions":
        return _update_from_message(message.update_partitions)
    return None


def _update_from_message(update: pb.UpdatePartitions) -> UpdatePartitions | None:
    if any(assignment.role not in _ROLE_OF for assignment in update.partitions):
        return None
    return UpdatePartitions(
        instance_id=update.instance_id,
        table=table_from_json(update.table_json),
        revision=update.revision,
        partitions=tuple(
            PartitionAssignment(
                partition=assignment.partition,
                path=assignment.path,
                epoch=assignment.epoch,
                role=_ROLE_OF[assignment.role],
            )
            for assignment in update.partitions
        ),
    )


def scheduler_to_message(scheduler: SchedulerInfo) -> pb.SchedulerInfo:
    """A scheduler as `GetSchedulers` names it; its labels stay at home."""
    return pb.SchedulerInfo(
        scheduler_id=scheduler.scheduler_id,
        instance_id=scheduler.instance_id,
        flight_address=scheduler.flight_address,
        control_address=scheduler.control_address,
    )


def scheduler_from_message(message: pb.SchedulerInfo) -> SchedulerInfo:
    """The scheduler that `scheduler_to_message` described."""
    return SchedulerInfo(
        scheduler_id=message.scheduler_id,
        instance_id=message.instance_id,
        flight_address=message.flight_address,
        control_address=message.control_address,
    )
