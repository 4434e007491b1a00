from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_APPEND: _ClassVar[Mode]
    MODE_OVERWRITE: _ClassVar[Mode]
MODE_APPEND: Mode
MODE_OVERWRITE: Mode

class BeginWrite(_message.Message):
    __slots__ = ("table", "mode", "token", "lease_ms")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    table: str
    mode: Mode
    token: str
    lease_ms: int
    def __init__(self, table: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., token: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class WriteBegun(_message.Message):
    __slots__ = ("write_id", "lease_ms", "schema", "keys", "locations", "ticket", "committed", "rows")
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    write_id: str
    lease_ms: int
    schema: bytes
    keys: _containers.RepeatedScalarFieldContainer[str]
    locations: _containers.RepeatedScalarFieldContainer[str]
    ticket: bytes
    committed: bool
    rows: int
    def __init__(self, write_id: _Optional[str] = ..., lease_ms: _Optional[int] = ..., schema: _Optional[bytes] = ..., keys: _Optional[_Iterable[str]] = ..., locations: _Optional[_Iterable[str]] = ..., ticket: _Optional[bytes] = ..., committed: _Optional[bool] = ..., rows: _Optional[int] = ...) -> None: ...

class RenewWrite(_message.Message):
    __slots__ = ("write_id",)
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    write_id: str
    def __init__(self, write_id: _Optional[str] = ...) -> None: ...

class WriteRenewed(_message.Message):
    __slots__ = ("lease_ms", "locations", "ticket")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    locations: _containers.RepeatedScalarFieldContainer[str]
    ticket: bytes
    def __init__(self, lease_ms: _Optional[int] = ..., locations: _Optional[_Iterable[str]] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class PutRows(_message.Message):
    __slots__ = ("ticket",)
    TICKET_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    def __init__(self, ticket: _Optional[bytes] = ...) -> None: ...

class PutEnd(_message.Message):
    __slots__ = ("rows", "crc32", "complete")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    rows: int
    crc32: int
    complete: bool
    def __init__(self, rows: _Optional[int] = ..., crc32: _Optional[int] = ..., complete: _Optional[bool] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("write_id", "sender", "digest", "rows")
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    write_id: str
    sender: str
    digest: str
    rows: int
    def __init__(self, write_id: _Optional[str] = ..., sender: _Optional[str] = ..., digest: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class CommitWrite(_message.Message):
    __slots__ = ("table", "mode", "token", "receipts")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    table: str
    mode: Mode
    token: str
    receipts: _containers.RepeatedCompositeFieldContainer[Receipt]
    def __init__(self, table: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., token: _Optional[str] = ..., receipts: _Optional[_Iterable[_Union[Receipt, _Mapping]]] = ...) -> None: ...

class WriteCommitted(_message.Message):
    __slots__ = ("rows", "repeated")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    rows: int
    repeated: bool
    def __init__(self, rows: _Optional[int] = ..., repeated: _Optional[bool] = ...) -> None: ...

class AbortWrite(_message.Message):
    __slots__ = ("write_ids",)
    WRITE_IDS_FIELD_NUMBER: _ClassVar[int]
    write_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, write_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class WriteAborted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
