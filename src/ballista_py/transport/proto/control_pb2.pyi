from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetSchedulersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSchedulersReply(_message.Message):
    __slots__ = ("scheduler_id", "schedulers", "cluster_id")
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULERS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    scheduler_id: str
    schedulers: _containers.RepeatedCompositeFieldContainer[SchedulerInfo]
    cluster_id: str
    def __init__(self, scheduler_id: _Optional[str] = ..., schedulers: _Optional[_Iterable[_Union[SchedulerInfo, _Mapping]]] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class SchedulerInfo(_message.Message):
    __slots__ = ("scheduler_id", "instance_id", "flight_address", "control_address")
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    FLIGHT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    scheduler_id: str
    instance_id: str
    flight_address: str
    control_address: str
    def __init__(self, scheduler_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., flight_address: _Optional[str] = ..., control_address: _Optional[str] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("executor_id", "instance_id")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    instance_id: str
    def __init__(self, executor_id: _Optional[str] = ..., instance_id: _Optional[str] = ...) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetAppDefinitionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetAppDefinitionReply(_message.Message):
    __slots__ = ("revision", "tables_json", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TABLES_JSON_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    tables_json: _containers.RepeatedScalarFieldContainer[bytes]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, revision: _Optional[int] = ..., tables_json: _Optional[_Iterable[bytes]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ExpandSecretRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class ExpandSecretReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class AllocateInitialPartitionsRequest(_message.Message):
    __slots__ = ("executor_id", "instance_id")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    instance_id: str
    def __init__(self, executor_id: _Optional[str] = ..., instance_id: _Optional[str] = ...) -> None: ...

class AllocateInitialPartitionsReply(_message.Message):
    __slots__ = ("updates",)
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[UpdatePartitions]
    def __init__(self, updates: _Optional[_Iterable[_Union[UpdatePartitions, _Mapping]]] = ...) -> None: ...

class GetTaskHistoryRequest(_message.Message):
    __slots__ = ("limit", "own_only")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OWN_ONLY_FIELD_NUMBER: _ClassVar[int]
    limit: int
    own_only: bool
    def __init__(self, limit: _Optional[int] = ..., own_only: _Optional[bool] = ...) -> None: ...

class GetTaskHistoryReply(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskRecord]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskRecord, _Mapping]]] = ...) -> None: ...

class TaskRecord(_message.Message):
    __slots__ = ("node_id", "task_id", "kind", "text", "started_at_ms", "took_ms", "rows", "outcome", "trace_id", "span_id", "parent_span_id", "error_message", "user", "job_id", "bytes", "engine", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    task_id: str
    kind: str
    text: str
    started_at_ms: int
    took_ms: float
    rows: int
    outcome: str
    trace_id: str
    span_id: str
    parent_span_id: str
    error_message: str
    user: str
    job_id: str
    bytes: int
    engine: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, node_id: _Optional[str] = ..., task_id: _Optional[str] = ..., kind: _Optional[str] = ..., text: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., took_ms: _Optional[float] = ..., rows: _Optional[int] = ..., outcome: _Optional[str] = ..., trace_id: _Optional[str] = ..., span_id: _Optional[str] = ..., parent_span_id: _Optional[str] = ..., error_message: _Optional[str] = ..., user: _Optional[str] = ..., job_id: _Optional[str] = ..., bytes: _Optional[int] = ..., engine: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetMetricsRequest(_message.Message):
    __slots__ = ("include_executors",)
    INCLUDE_EXECUTORS_FIELD_NUMBER: _ClassVar[int]
    include_executors: bool
    def __init__(self, include_executors: _Optional[bool] = ...) -> None: ...

class GetMetricsReply(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[NodeReport]
    def __init__(self, reports: _Optional[_Iterable[_Union[NodeReport, _Mapping]]] = ...) -> None: ...

class NodeReport(_message.Message):
    __slots__ = ("request_id", "node_id", "metrics_text", "tasks")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    METRICS_TEXT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    node_id: str
    metrics_text: bytes
    tasks: _containers.RepeatedCompositeFieldContainer[TaskRecord]
    def __init__(self, request_id: _Optional[int] = ..., node_id: _Optional[str] = ..., metrics_text: _Optional[bytes] = ..., tasks: _Optional[_Iterable[_Union[TaskRecord, _Mapping]]] = ...) -> None: ...

class ExecutorMessage(_message.Message):
    __slots__ = ("heartbeat", "report")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    heartbeat: Heartbeat
    report: NodeReport
    def __init__(self, heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., report: _Optional[_Union[NodeReport, _Mapping]] = ...) -> None: ...

class SchedulerMessage(_message.Message):
    __slots__ = ("grant", "refusal", "update_partitions", "heard", "poll_now", "refresh_dataset", "cancel_tasks", "report_request")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    UPDATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    POLL_NOW_FIELD_NUMBER: _ClassVar[int]
    REFRESH_DATASET_FIELD_NUMBER: _ClassVar[int]
    CANCEL_TASKS_FIELD_NUMBER: _ClassVar[int]
    REPORT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    grant: Grant
    refusal: Refusal
    update_partitions: UpdatePartitions
    heard: Heard
    poll_now: PollNow
    refresh_dataset: RefreshDataset
    cancel_tasks: CancelTasks
    report_request: ReportRequest
    def __init__(self, grant: _Optional[_Union[Grant, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., update_partitions: _Optional[_Union[UpdatePartitions, _Mapping]] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ..., poll_now: _Optional[_Union[PollNow, _Mapping]] = ..., refresh_dataset: _Optional[_Union[RefreshDataset, _Mapping]] = ..., cancel_tasks: _Optional[_Union[CancelTasks, _Mapping]] = ..., report_request: _Optional[_Union[ReportRequest, _Mapping]] = ...) -> None: ...

class PollNow(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RefreshDataset(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class CancelTasks(_message.Message):
    __slots__ = ("task_ids",)
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("request_id", "tasks")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    tasks: int
    def __init__(self, request_id: _Optional[int] = ..., tasks: _Optional[int] = ...) -> None: ...

class ExecutorInfo(_message.Message):
    __slots__ = ("executor_id", "instance_id", "data_address", "capacity", "labels", "parts_location", "engine")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PARTS_LOCATION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    instance_id: str
    data_address: str
    capacity: float
    labels: _containers.ScalarMap[str, str]
    parts_location: str
    engine: str
    def __init__(self, executor_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., data_address: _Optional[str] = ..., capacity: _Optional[float] = ..., labels: _Optional[_Mapping[str, str]] = ..., parts_location: _Optional[str] = ..., engine: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("executor", "sequence", "lapsed", "admitted", "held", "load")
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAPSED_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    executor: ExecutorInfo
    sequence: int
    lapsed: bool
    admitted: bool
    held: _containers.RepeatedCompositeFieldContainer[HeldPartitions]
    load: int
    def __init__(self, executor: _Optional[_Union[ExecutorInfo, _Mapping]] = ..., sequence: _Optional[int] = ..., lapsed: _Optional[bool] = ..., admitted: _Optional[bool] = ..., held: _Optional[_Iterable[_Union[HeldPartitions, _Mapping]]] = ..., load: _Optional[int] = ...) -> None: ...

class HeldPartitions(_message.Message):
    __slots__ = ("table", "revision", "active", "epochs", "loaded", "failed", "rows", "bytes", "ranges", "parting")
    class FailedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    class RangesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Range
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Range, _Mapping]] = ...) -> None: ...
    class PartingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TABLE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    PARTING_FIELD_NUMBER: _ClassVar[int]
    table: str
    revision: int
    active: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    loaded: _containers.RepeatedScalarFieldContainer[int]
    failed: _containers.ScalarMap[int, str]
    rows: _containers.RepeatedScalarFieldContainer[int]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    ranges: _containers.MessageMap[str, Range]
    parting: _containers.ScalarMap[int, int]
    def __init__(self, table: _Optional[str] = ..., revision: _Optional[int] = ..., active: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[int]] = ..., loaded: _Optional[_Iterable[int]] = ..., failed: _Optional[_Mapping[int, str]] = ..., rows: _Optional[_Iterable[int]] = ..., bytes: _Optional[_Iterable[int]] = ..., ranges: _Optional[_Mapping[str, Range]] = ..., parting: _Optional[_Mapping[int, int]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: float
    high: float
    def __init__(self, low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("sequence", "lease_ms")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    lease_ms: float
    def __init__(self, sequence: _Optional[int] = ..., lease_ms: _Optional[float] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("sequence", "reason", "message")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Refusal.Reason]
        REASON_LOST: _ClassVar[Refusal.Reason]
        REASON_ALREADY_REGISTERED: _ClassVar[Refusal.Reason]
        REASON_NOT_ADMITTED: _ClassVar[Refusal.Reason]
        REASON_SCHEDULER_LAPSED: _ClassVar[Refusal.Reason]
    REASON_UNSPECIFIED: Refusal.Reason
    REASON_LOST: Refusal.Reason
    REASON_ALREADY_REGISTERED: Refusal.Reason
    REASON_NOT_ADMITTED: Refusal.Reason
    REASON_SCHEDULER_LAPSED: Refusal.Reason
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    reason: Refusal.Reason
    message: str
    def __init__(self, sequence: _Optional[int] = ..., reason: _Optional[_Union[Refusal.Reason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Heard(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class UpdatePartitions(_message.Message):
    __slots__ = ("instance_id", "table_json", "revision", "partitions", "parting")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_JSON_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTING_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    table_json: bytes
    revision: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionAssignment]
    parting: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, instance_id: _Optional[str] = ..., table_json: _Optional[bytes] = ..., revision: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionAssignment, _Mapping]]] = ..., parting: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionAssignment(_message.Message):
    __slots__ = ("partition", "path", "epoch", "role")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[PartitionAssignment.Role]
        ROLE_OWNER: _ClassVar[PartitionAssignment.Role]
        ROLE_TARGET: _ClassVar[PartitionAssignment.Role]
        ROLE_REPLICA: _ClassVar[PartitionAssignment.Role]
    ROLE_UNSPECIFIED: PartitionAssignment.Role
    ROLE_OWNER: PartitionAssignment.Role
    ROLE_TARGET: PartitionAssignment.Role
    ROLE_REPLICA: PartitionAssignment.Role
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    path: str
    epoch: int
    role: PartitionAssignment.Role
    def __init__(self, partition: _Optional[int] = ..., path: _Optional[str] = ..., epoch: _Optional[int] = ..., role: _Optional[_Union[PartitionAssignment.Role, str]] = ...) -> None: ...
