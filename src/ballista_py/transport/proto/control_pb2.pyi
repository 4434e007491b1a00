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
    __slots__ = ("scheduler_id", "schedulers")
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULERS_FIELD_NUMBER: _ClassVar[int]
    scheduler_id: str
    schedulers: _containers.RepeatedCompositeFieldContainer[SchedulerInfo]
    def __init__(self, scheduler_id: _Optional[str] = ..., schedulers: _Optional[_Iterable[_Union[SchedulerInfo, _Mapping]]] = ...) -> None: ...

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

class ExecutorMessage(_message.Message):
    __slots__ = ("heartbeat",)
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    heartbeat: Heartbeat
    def __init__(self, heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class SchedulerMessage(_message.Message):
    __slots__ = ("grant", "refusal", "update_partitions", "heard")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    UPDATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    grant: Grant
    refusal: Refusal
    update_partitions: UpdatePartitions
    heard: Heard
    def __init__(self, grant: _Optional[_Union[Grant, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., update_partitions: _Optional[_Union[UpdatePartitions, _Mapping]] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ...) -> None: ...

class ExecutorInfo(_message.Message):
    __slots__ = ("executor_id", "instance_id", "data_address", "capacity", "labels")
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
    executor_id: str
    instance_id: str
    data_address: str
    capacity: float
    labels: _containers.ScalarMap[str, str]
    def __init__(self, executor_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., data_address: _Optional[str] = ..., capacity: _Optional[float] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("executor", "sequence", "lapsed", "admitted", "held")
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAPSED_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    executor: ExecutorInfo
    sequence: int
    lapsed: bool
    admitted: bool
    held: _containers.RepeatedCompositeFieldContainer[HeldPartitions]
    def __init__(self, executor: _Optional[_Union[ExecutorInfo, _Mapping]] = ..., sequence: _Optional[int] = ..., lapsed: _Optional[bool] = ..., admitted: _Optional[bool] = ..., held: _Optional[_Iterable[_Union[HeldPartitions, _Mapping]]] = ...) -> None: ...

class HeldPartitions(_message.Message):
    __slots__ = ("table", "revision", "active", "epochs", "loaded", "failed")
    class FailedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    TABLE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    table: str
    revision: int
    active: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    loaded: _containers.RepeatedScalarFieldContainer[int]
    failed: _containers.ScalarMap[int, str]
    def __init__(self, table: _Optional[str] = ..., revision: _Optional[int] = ..., active: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[int]] = ..., loaded: _Optional[_Iterable[int]] = ..., failed: _Optional[_Mapping[int, str]] = ...) -> None: ...

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
    __slots__ = ("instance_id", "table_json", "revision", "partitions")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_JSON_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    table_json: bytes
    revision: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionAssignment]
    def __init__(self, instance_id: _Optional[str] = ..., table_json: _Optional[bytes] = ..., revision: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionAssignment, _Mapping]]] = ...) -> None: ...

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
