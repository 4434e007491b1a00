"""The values of the control stream as protobuf messages, and back.

Reading back gives the value that was written. A message or a choice from a newer release that this one does not
know reads as None, which means: ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args

from attrs import asdict, fields

from ballista_py.state.documents.codec import table_from_json, table_to_json
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import (
    DEFAULT_ENGINE,
    AppDefinition,
    CancelTasks,
    ExecutorInfo,
    Grant,
    Heartbeat,
    HeldPartitions,
    NodeReport,
    PartitionAssignment,
    PollNow,
    RefreshDataset,
    Refusal,
    RefusalReason,
    ReportRequest,
    Role,
    TaskRecord,
    UpdatePartitions,
)
from ballista_py.transport.control.grpc import messages as pb

Held = tuple[HeldPartitions, ...]
ToExecutor = Grant | Refusal | UpdatePartitions | PollNow | RefreshDataset | CancelTasks | ReportRequest

_TASK_FIELDS = tuple(attribute.name for attribute in fields(TaskRecord))
_ROLES: dict[Role, str] = {role: f"ROLE_{role.upper()}" for role in get_args(Role)}
_REASONS: dict[RefusalReason, str] = {reason: f"REASON_{reason.upper()}" for reason in get_args(RefusalReason)}
_ROLE_OF = {pb.PartitionAssignment.Role.Value(name): role for role, name in _ROLES.items()}
_REASON_OF = {pb.Refusal.Reason.Value(name): reason for reason, name in _REASONS.items()}


def held_to_message(held: HeldPartitions) -> pb.HeldPartitions:
    """What an executor holds of one table."""
    return pb.HeldPartitions(
        table=held.table,
        revision=held.revision,
        active=held.active,
        epochs=held.epochs,
        loaded=held.loaded,
        failed=held.failed,
        rows=held.rows,
        bytes=held.bytes,
        parting=held.parting,
        ranges={name: pb.Range(low=low, high=high) for name, (low, high) in held.ranges.items()},
    )


def held_from_message(held: pb.HeldPartitions) -> HeldPartitions:
    """What `held_to_message` wrote."""
    return HeldPartitions(
        table=held.table,
        revision=held.revision,
        active=tuple(held.active),
        epochs=tuple(held.epochs),
        loaded=tuple(held.loaded),
        failed=dict(held.failed),
        rows=tuple(held.rows),
        bytes=tuple(held.bytes),
        parting=dict(held.parting),
        ranges={name: (one.low, one.high) for name, one in held.ranges.items()},
    )


def _each(messages: Iterable[pb.HeldPartitions]) -> Held:
    return tuple(map(held_from_message, messages))


def heartbeat_to_message(
    heartbeat: Heartbeat, of_one: Callable[[HeldPartitions], pb.HeldPartitions] = held_to_message
) -> pb.ExecutorMessage:
    """The heartbeat as an executor sends it; `of_one` makes what it says of one table."""
    executor = heartbeat.executor
    return pb.ExecutorMessage(
        heartbeat=pb.Heartbeat(
            executor=pb.ExecutorInfo(
                executor_id=executor.executor_id,
                instance_id=executor.instance_id,
                data_address=executor.data_address,
                capacity=executor.capacity,
                labels=executor.labels,
                parts_location=executor.parts_location,
                engine=executor.engine,
            ),
            sequence=heartbeat.sequence,
            lapsed=heartbeat.lapsed,
            admitted=heartbeat.admitted,
            held=[of_one(held) for held in heartbeat.held],
            load=heartbeat.load,
        )
    )


def heartbeat_from_message(
    message: pb.ExecutorMessage, of_all: Callable[[Iterable[pb.HeldPartitions]], Held] = _each
) -> Heartbeat | None:
    """The heartbeat in the message; None for a message from a newer release. `of_all` reads what it says of tables."""
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
            parts_location=executor.parts_location,
            engine=executor.engine or DEFAULT_ENGINE,
        ),
        sequence=heartbeat.sequence,
        lapsed=heartbeat.lapsed,
        admitted=heartbeat.admitted,
        held=of_all(heartbeat.held),
        load=heartbeat.load,
    )


def to_executor_message(value: ToExecutor) -> pb.SchedulerMessage:
    """The value as a scheduler sends it."""
    if isinstance(value, Grant):
        return pb.SchedulerMessage(grant=pb.Grant(sequence=value.sequence, lease_ms=value.lease_ms))
    if isinstance(value, Refusal):
        return pb.SchedulerMessage(
            refusal=pb.Refusal(sequence=value.sequence, reason=_REASONS[value.reason], message=value.message)
        )
    if isinstance(value, UpdatePartitions):
        return pb.SchedulerMessage(update_partitions=update_to_message(value))
    if isinstance(value, PollNow):
        return pb.SchedulerMessage(poll_now=pb.PollNow())
    if isinstance(value, RefreshDataset):
        return pb.SchedulerMessage(refresh_dataset=pb.RefreshDataset(table=value.table))
    if isinstance(value, CancelTasks):
        return pb.SchedulerMessage(cancel_tasks=pb.CancelTasks(task_ids=value.task_ids))
    return pb.SchedulerMessage(report_request=pb.ReportRequest(request_id=value.request_id, tasks=value.tasks))


def update_to_message(update: UpdatePartitions) -> pb.UpdatePartitions:
    """All that an executor is to hold of one table."""
    return pb.UpdatePartitions(
        instance_id=update.instance_id,
        table_json=table_to_json(update.table),
        revision=update.revision,
        parting=update.parting,
        partitions=[
            pb.PartitionAssignment(
                partition=assignment.partition,
                path=assignment.path,
                epoch=assignment.epoch,
                role=_ROLES[assignment.role],
            )
            for assignment in update.partitions
        ],
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
        return update_from_message(message.update_partitions)
    if body == "poll_now":
        return PollNow()
    if body == "refresh_dataset":
        return RefreshDataset(message.refresh_dataset.table)
    if body == "cancel_tasks":
        return CancelTasks(tuple(message.cancel_tasks.task_ids))
    if body == "report_request":
        return ReportRequest(request_id=message.report_request.request_id, tasks=message.report_request.tasks)
    return None


def report_to_message(report: NodeReport, request_id: int = 0) -> pb.NodeReport:
    """What a node says of itself, in answer to that request."""
    return pb.NodeReport(
        request_id=request_id,
        node_id=report.node_id,
        metrics_text=report.metrics_text,
        tasks=[task_to_message(task) for task in report.tasks],
    )


def report_from_message(message: pb.NodeReport) -> NodeReport:
    """What `report_to_message` wrote."""
    return NodeReport(
        node_id=message.node_id,
        metrics_text=message.metrics_text,
        tasks=tuple(task_from_message(task) for task in message.tasks),
    )


def task_to_message(task: TaskRecord) -> pb.TaskRecord:
    """One task."""
    return pb.TaskRecord(**asdict(task))


def task_from_message(message: pb.TaskRecord) -> TaskRecord:
    """What `task_to_message` wrote."""
    found = {name: getattr(message, name) for name in _TASK_FIELDS}
    return TaskRecord(**{**found, "labels": dict(message.labels)})


def definition_to_message(definition: AppDefinition) -> pb.GetAppDefinitionReply:
    """What the cluster serves."""
    return pb.GetAppDefinitionReply(
        revision=definition.revision,
        tables_json=[table_to_json(table) for table in definition.tables],
        labels=definition.labels,
    )


def definition_from_message(message: pb.GetAppDefinitionReply) -> AppDefinition:
    """What `definition_to_message` wrote. Raises `DocumentUnreadable` for a table that this release cannot read."""
    return AppDefinition(
        revision=message.revision,
        tables=tuple(table_from_json(table) for table in message.tables_json),
        labels=dict(message.labels),
    )


def update_from_message(update: pb.UpdatePartitions) -> UpdatePartitions | None:
    """What `update_to_message` wrote; None for one that names a role of a newer release."""
    if any(assignment.role not in _ROLE_OF for assignment in update.partitions):
        return None
    return UpdatePartitions(
        instance_id=update.instance_id,
        table=table_from_json(update.table_json),
        revision=update.revision,
        parting=tuple(update.parting),
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
