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
CONSISTENCY_SNAPSHOT: Consistency
CONSISTENCY_DECIDED: Consistency
BEHAVIOUR_DYNAMIC: Behaviour
BEHAVIOUR_ALWAYS_ACCEPT: Behaviour
BEHAVIOUR_ALWAYS_REFUSE: Behaviour

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
    __slots__ = ("plan", "schema", "remainder", "partitions", "relation", "base_schema", "passes_rows")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    BASE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PASSES_ROWS_FIELD_NUMBER: _ClassVar[int]
    plan: str
    schema: bytes
    remainder: Remainder
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    relation: str
    base_schema: bytes
    passes_rows: bool
    def __init__(self, plan: _Optional[str] = ..., schema: _Optional[bytes] = ..., remainder: _Optional[_Union[Remainder, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., relation: _Optional[str] = ..., base_schema: _Optional[bytes] = ..., passes_rows: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("number", "rows", "bytes", "locations", "ticket", "sections", "former")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    number: int
    rows: int
    bytes: int
    locations: _containers.RepeatedCompositeFieldContainer[Location]
    ticket: bytes
    sections: int
    former: int
    def __init__(self, number: _Optional[int] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., locations: _Optional[_Iterable[_Union[Location, _Mapping]]] = ..., ticket: _Optional[bytes] = ..., sections: _Optional[int] = ..., former: _Optional[int] = ...) -> None: ...

class Location(_message.Message):
    __slots__ = ("uri", "hints")
    URI_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    uri: str
    hints: ServingHints
    def __init__(self, uri: _Optional[str] = ..., hints: _Optional[_Union[ServingHints, _Mapping]] = ...) -> None: ...

class ServingHints(_message.Message):
    __slots__ = ("priority", "behaviour", "parallelism")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOUR_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    priority: int
    behaviour: Behaviour
    parallelism: int
    def __init__(self, priority: _Optional[int] = ..., behaviour: _Optional[_Union[Behaviour, str]] = ..., parallelism: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("ticket", "process", "begin", "token", "ancestors", "attempt", "encodings")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ANCESTORS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    process: bool
    begin: Position
    token: str
    ancestors: _containers.RepeatedScalarFieldContainer[str]
    attempt: int
    encodings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ticket: _Optional[bytes] = ..., process: _Optional[bool] = ..., begin: _Optional[_Union[Position, _Mapping]] = ..., token: _Optional[str] = ..., ancestors: _Optional[_Iterable[str]] = ..., attempt: _Optional[int] = ..., encodings: _Optional[_Iterable[str]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("section", "row")
    SECTION_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    section: int
    row: int
    def __init__(self, section: _Optional[int] = ..., row: _Optional[int] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("accepted", "refused", "rejected", "on_hold")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    ON_HOLD_FIELD_NUMBER: _ClassVar[int]
    accepted: Accepted
    refused: Refused
    rejected: Rejected
    on_hold: OnHold
    def __init__(self, accepted: _Optional[_Union[Accepted, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., on_hold: _Optional[_Union[OnHold, _Mapping]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("processed", "encoded")
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    processed: bool
    encoded: bool
    def __init__(self, processed: _Optional[bool] = ..., encoded: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("chunks",)
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    chunks: int
    def __init__(self, chunks: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("at",)
    AT_FIELD_NUMBER: _ClassVar[int]
    at: Position
    def __init__(self, at: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Trailer(_message.Message):
    __slots__ = ("rows", "chunks", "crc32", "complete")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    rows: int
    chunks: int
    crc32: int
    complete: bool
    def __init__(self, rows: _Optional[int] = ..., chunks: _Optional[int] = ..., crc32: _Optional[int] = ..., complete: _Optional[bool] = ...) -> None: ...
