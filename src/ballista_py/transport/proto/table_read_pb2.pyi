from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Consistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSISTENCY_SNAPSHOT: _ClassVar[Consistency]
    CONSISTENCY_DECIDED: _ClassVar[Consistency]

class Behaviour(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BEHAVIOUR_DYNAMIC: _ClassVar[Behaviour]
    BEHAVIOUR_ALWAYS_ACCEPT: _ClassVar[Behaviour]
    BEHAVIOUR_ALWAYS_REFUSE: _ClassVar[Behaviour]

class Worth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORTH_UNSAID: _ClassVar[Worth]
    WORTH_COUNTED: _ClassVar[Worth]
    WORTH_AGAIN: _ClassVar[Worth]
    WORTH_SUPERSEDED: _ClassVar[Worth]
    WORTH_REFUSED: _ClassVar[Worth]
CONSISTENCY_SNAPSHOT: Consistency
CONSISTENCY_DECIDED: Consistency
BEHAVIOUR_DYNAMIC: Behaviour
BEHAVIOUR_ALWAYS_ACCEPT: Behaviour
BEHAVIOUR_ALWAYS_REFUSE: Behaviour
WORTH_UNSAID: Worth
WORTH_COUNTED: Worth
WORTH_AGAIN: Worth
WORTH_SUPERSEDED: Worth
WORTH_REFUSED: Worth

class Plan(_message.Message):
    __slots__ = ("substrait", "sql", "scan", "place", "between", "hints", "client", "consistency", "dialect", "schema_only")
    SUBSTRAIT_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    BETWEEN_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ONLY_FIELD_NUMBER: _ClassVar[int]
    substrait: bytes
    sql: str
    scan: Scan
    place: Place
    between: Between
    hints: Hints
    client: ClientInfo
    consistency: Consistency
    dialect: str
    schema_only: bool
    def __init__(self, substrait: _Optional[bytes] = ..., sql: _Optional[str] = ..., scan: _Optional[_Union[Scan, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., between: _Optional[_Union[Between, _Mapping]] = ..., hints: _Optional[_Union[Hints, _Mapping]] = ..., client: _Optional[_Union[ClientInfo, _Mapping]] = ..., consistency: _Optional[_Union[Consistency, str]] = ..., dialect: _Optional[str] = ..., schema_only: _Optional[bool] = ...) -> None: ...

class Scan(_message.Message):
    __slots__ = ("table", "columns", "filter")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    table: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    filter: str
    def __init__(self, table: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., filter: _Optional[str] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("table", "unless")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    UNLESS_FIELD_NUMBER: _ClassVar[int]
    table: str
    unless: bytes
    def __init__(self, table: _Optional[str] = ..., unless: _Optional[bytes] = ...) -> None: ...

class Between(_message.Message):
    __slots__ = ("since", "until")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    since: str
    until: str
    def __init__(self, since: _Optional[str] = ..., until: _Optional[str] = ...) -> None: ...

class Hints(_message.Message):
    __slots__ = ("max_clients", "max_partitions", "target_bytes", "prefer_client_processing", "lease_ms")
    MAX_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TARGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREFER_CLIENT_PROCESSING_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    max_clients: int
    max_partitions: int
    target_bytes: int
    prefer_client_processing: bool
    lease_ms: int
    def __init__(self, max_clients: _Optional[int] = ..., max_partitions: _Optional[int] = ..., target_bytes: _Optional[int] = ..., prefer_client_processing: _Optional[bool] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class ClientInfo(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Slices(_message.Message):
    __slots__ = ("read_id", "lease_ms", "schema", "slices", "mark")
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    read_id: str
    lease_ms: int
    schema: bytes
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    mark: bytes
    def __init__(self, read_id: _Optional[str] = ..., lease_ms: _Optional[int] = ..., schema: _Optional[bytes] = ..., slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., mark: _Optional[bytes] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("plan", "schema", "remainder", "partitions", "relation", "base_schema", "passes_rows", "row_by_row")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    BASE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PASSES_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_BY_ROW_FIELD_NUMBER: _ClassVar[int]
    plan: str
    schema: bytes
    remainder: Remainder
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    relation: str
    base_schema: bytes
    passes_rows: bool
    row_by_row: bool
    def __init__(self, plan: _Optional[str] = ..., schema: _Optional[bytes] = ..., remainder: _Optional[_Union[Remainder, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., relation: _Optional[str] = ..., base_schema: _Optional[bytes] = ..., passes_rows: _Optional[bool] = ..., row_by_row: _Optional[bool] = ...) -> None: ...

class Remainder(_message.Message):
    __slots__ = ("substrait", "sql", "relation")
    SUBSTRAIT_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    substrait: bytes
    sql: str
    relation: str
    def __init__(self, substrait: _Optional[bytes] = ..., sql: _Optional[str] = ..., relation: _Optional[str] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("number", "rows", "bytes", "locations", "ticket", "sections", "former", "section_rows")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    SECTION_ROWS_FIELD_NUMBER: _ClassVar[int]
    number: int
    rows: int
    bytes: int
    locations: _containers.RepeatedCompositeFieldContainer[Location]
    ticket: bytes
    sections: int
    former: int
    section_rows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., locations: _Optional[_Iterable[_Union[Location, _Mapping]]] = ..., ticket: _Optional[bytes] = ..., sections: _Optional[int] = ..., former: _Optional[int] = ..., section_rows: _Optional[_Iterable[int]] = ...) -> None: ...

class Location(_message.Message):
    __slots__ = ("uri", "hints")
    URI_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    uri: str
    hints: ServingHints
    def __init__(self, uri: _Optional[str] = ..., hints: _Optional[_Union[ServingHints, _Mapping]] = ...) -> None: ...

class ServingHints(_message.Message):
    __slots__ = ("priority", "behaviour", "parallelism", "load")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOUR_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    priority: int
    behaviour: Behaviour
    parallelism: int
    load: int
    def __init__(self, priority: _Optional[int] = ..., behaviour: _Optional[_Union[Behaviour, str]] = ..., parallelism: _Optional[int] = ..., load: _Optional[int] = ...) -> None: ...

class Renew(_message.Message):
    __slots__ = ("read_id",)
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    read_id: str
    def __init__(self, read_id: _Optional[str] = ...) -> None: ...

class Renewed(_message.Message):
    __slots__ = ("lease_ms",)
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ...) -> None: ...

class Locate(_message.Message):
    __slots__ = ("read_id", "partitions")
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    read_id: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, read_id: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class Located(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ("read_id",)
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    read_id: str
    def __init__(self, read_id: _Optional[str] = ...) -> None: ...

class Closed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Request(_message.Message):
    __slots__ = ("ticket", "process", "begin", "token", "ancestors", "attempt", "encodings", "only_matching", "needs_order")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ANCESTORS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    ONLY_MATCHING_FIELD_NUMBER: _ClassVar[int]
    NEEDS_ORDER_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    process: bool
    begin: Position
    token: str
    ancestors: _containers.RepeatedScalarFieldContainer[str]
    attempt: int
    encodings: _containers.RepeatedScalarFieldContainer[str]
    only_matching: bool
    needs_order: bool
    def __init__(self, ticket: _Optional[bytes] = ..., process: _Optional[bool] = ..., begin: _Optional[_Union[Position, _Mapping]] = ..., token: _Optional[str] = ..., ancestors: _Optional[_Iterable[str]] = ..., attempt: _Optional[int] = ..., encodings: _Optional[_Iterable[str]] = ..., only_matching: _Optional[bool] = ..., needs_order: _Optional[bool] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("section", "row")
    SECTION_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    section: int
    row: int
    def __init__(self, section: _Optional[int] = ..., row: _Optional[int] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("accepted", "refused", "rejected", "on_hold", "preempted", "stale", "snapshot_gone")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    ON_HOLD_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_GONE_FIELD_NUMBER: _ClassVar[int]
    accepted: Accepted
    refused: Refused
    rejected: Rejected
    on_hold: OnHold
    preempted: Preempted
    stale: Stale
    snapshot_gone: SnapshotIsGone
    def __init__(self, accepted: _Optional[_Union[Accepted, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., on_hold: _Optional[_Union[OnHold, _Mapping]] = ..., preempted: _Optional[_Union[Preempted, _Mapping]] = ..., stale: _Optional[_Union[Stale, _Mapping]] = ..., snapshot_gone: _Optional[_Union[SnapshotIsGone, _Mapping]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("processed", "encoded", "out_of_order")
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_ORDER_FIELD_NUMBER: _ClassVar[int]
    processed: bool
    encoded: bool
    out_of_order: bool
    def __init__(self, processed: _Optional[bool] = ..., encoded: _Optional[bool] = ..., out_of_order: _Optional[bool] = ...) -> None: ...

class Preempted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Stale(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotIsGone(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Refused(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class OnHold(_message.Message):
    __slots__ = ("retry_after_ms",)
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    retry_after_ms: int
    def __init__(self, retry_after_ms: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("chunks", "until")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    chunks: int
    until: Position
    def __init__(self, chunks: _Optional[int] = ..., until: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("at", "end")
    AT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    at: Position
    end: Position
    def __init__(self, at: _Optional[_Union[Position, _Mapping]] = ..., end: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Trailer(_message.Message):
    __slots__ = ("rows", "chunks", "crc32", "complete", "end")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    rows: int
    chunks: int
    crc32: int
    complete: bool
    end: Position
    def __init__(self, rows: _Optional[int] = ..., chunks: _Optional[int] = ..., crc32: _Optional[int] = ..., complete: _Optional[bool] = ..., end: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class ToAgent(_message.Message):
    __slots__ = ("client", "token", "ask", "report", "cut", "done", "gave_up", "relocate", "snapshot_lost")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    GAVE_UP_FIELD_NUMBER: _ClassVar[int]
    RELOCATE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_LOST_FIELD_NUMBER: _ClassVar[int]
    client: ReaderName
    token: str
    ask: AskForRows
    report: Report
    cut: CutEnd
    done: AllRead
    gave_up: GiveUp
    relocate: Relocate
    snapshot_lost: LostSnapshot
    def __init__(self, client: _Optional[_Union[ReaderName, _Mapping]] = ..., token: _Optional[str] = ..., ask: _Optional[_Union[AskForRows, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., cut: _Optional[_Union[CutEnd, _Mapping]] = ..., done: _Optional[_Union[AllRead, _Mapping]] = ..., gave_up: _Optional[_Union[GiveUp, _Mapping]] = ..., relocate: _Optional[_Union[Relocate, _Mapping]] = ..., snapshot_lost: _Optional[_Union[LostSnapshot, _Mapping]] = ...) -> None: ...

class ReaderName(_message.Message):
    __slots__ = ("name", "instance")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    instance: str
    def __init__(self, name: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class AskForRows(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Report(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: Position
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class CutEnd(_message.Message):
    __slots__ = ("cut_id", "end")
    CUT_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    cut_id: str
    end: Position
    def __init__(self, cut_id: _Optional[str] = ..., end: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class AllRead(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: Rows
    def __init__(self, rows: _Optional[_Union[Rows, _Mapping]] = ...) -> None: ...

class GiveUp(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Relocate(_message.Message):
    __slots__ = ("partition", "snapshot")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    partition: int
    snapshot: str
    def __init__(self, partition: _Optional[int] = ..., snapshot: _Optional[str] = ...) -> None: ...

class LostSnapshot(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    def __init__(self, snapshot: _Optional[str] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: Position
    end: Position
    def __init__(self, start: _Optional[_Union[Position, _Mapping]] = ..., end: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class FromAgent(_message.Message):
    __slots__ = ("grant", "wait", "over", "reported", "counted", "relocated", "noted")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    RELOCATED_FIELD_NUMBER: _ClassVar[int]
    NOTED_FIELD_NUMBER: _ClassVar[int]
    grant: Grant
    wait: Wait
    over: NoMoreRows
    reported: Reported
    counted: Counted
    relocated: Relocated
    noted: Noted
    def __init__(self, grant: _Optional[_Union[Grant, _Mapping]] = ..., wait: _Optional[_Union[Wait, _Mapping]] = ..., over: _Optional[_Union[NoMoreRows, _Mapping]] = ..., reported: _Optional[_Union[Reported, _Mapping]] = ..., counted: _Optional[_Union[Counted, _Mapping]] = ..., relocated: _Optional[_Union[Relocated, _Mapping]] = ..., noted: _Optional[_Union[Noted, _Mapping]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("job", "token", "ancestors", "client", "partition", "rows", "has_sections", "section_rows", "snapshot", "ticket", "locations")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ANCESTORS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HAS_SECTIONS_FIELD_NUMBER: _ClassVar[int]
    SECTION_ROWS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    job: str
    token: str
    ancestors: _containers.RepeatedScalarFieldContainer[str]
    client: ReaderName
    partition: int
    rows: Rows
    has_sections: bool
    section_rows: _containers.RepeatedScalarFieldContainer[int]
    snapshot: str
    ticket: bytes
    locations: _containers.RepeatedCompositeFieldContainer[Location]
    def __init__(self, job: _Optional[str] = ..., token: _Optional[str] = ..., ancestors: _Optional[_Iterable[str]] = ..., client: _Optional[_Union[ReaderName, _Mapping]] = ..., partition: _Optional[int] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., has_sections: _Optional[bool] = ..., section_rows: _Optional[_Iterable[int]] = ..., snapshot: _Optional[str] = ..., ticket: _Optional[bytes] = ..., locations: _Optional[_Iterable[_Union[Location, _Mapping]]] = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ("retry_after_ms",)
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    retry_after_ms: int
    def __init__(self, retry_after_ms: _Optional[int] = ...) -> None: ...

class NoMoreRows(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Reported(_message.Message):
    __slots__ = ("is_live", "cut_id")
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    CUT_ID_FIELD_NUMBER: _ClassVar[int]
    is_live: bool
    cut_id: str
    def __init__(self, is_live: _Optional[bool] = ..., cut_id: _Optional[str] = ...) -> None: ...

class Counted(_message.Message):
    __slots__ = ("worth",)
    WORTH_FIELD_NUMBER: _ClassVar[int]
    worth: Worth
    def __init__(self, worth: _Optional[_Union[Worth, str]] = ...) -> None: ...

class Relocated(_message.Message):
    __slots__ = ("snapshot", "ticket", "locations")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    ticket: bytes
    locations: _containers.RepeatedCompositeFieldContainer[Location]
    def __init__(self, snapshot: _Optional[str] = ..., ticket: _Optional[bytes] = ..., locations: _Optional[_Iterable[_Union[Location, _Mapping]]] = ...) -> None: ...

class Noted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
