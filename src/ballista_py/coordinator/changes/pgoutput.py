"""The messages of PostgreSQL's output plugin `pgoutput`, protocol version 1, as values; pure.

Bytes of a database are from outside: whatever is cut short, or is of a kind that is not known here, raises.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from attrs import frozen

from ballista_py.errors import SourceUnfit

UNCHANGED: Final = object()
Cell: TypeAlias = "bytes | object | None"  # its text, NULL, or `UNCHANGED`: a long value that was not sent
Cells: TypeAlias = tuple[Cell, ...]
_IGNORED: Final = frozenset(b"OY")  # where a change came from first, types of other schemas
MAX_COLUMNS: Final = 1_664  # of a table of PostgreSQL


@frozen
class LoggedColumn:
    """A column as a `LoggedRelation` has it. An `identifying` one is told of rows that go."""

    name: str
    identifying: bool
    type_id: int
    modifier: int


@frozen
class LoggedRelation:
    """What a table is from here on; `identity` is `d`, `n`, `f` or `i`, as in `pg_class.relreplident`."""

    relation_id: int
    name: str
    identity: str
    columns: tuple[LoggedColumn, ...]


@frozen
class Begin:
    """The begin of a transaction that was committed."""

    final: int


@frozen
class LoggedCommit:
    """The end of a transaction; the log goes on at `end`."""

    end: int


class RowChange(NamedTuple):
    """One row of a relation: what is told of it before (all of it if `whole`, else its key), and what it is now.

    There is one of it for each row that changes, which is why it is a tuple.
    """

    relation_id: int
    old: Cells | None
    new: Cells | None
    whole: bool = False
    inserts: bool = False


@frozen
class LoggedTruncate:
    """All rows of these relations go."""

    relation_ids: tuple[int, ...]


@frozen
class LoggedMessage:
    """What an application said in the log; no row changes by it."""

    prefix: str
    content: bytes


Message: TypeAlias = LoggedRelation | Begin | LoggedCommit | RowChange | LoggedTruncate | LoggedMessage


def read_message(data: bytes) -> Message | None:
    """The message in `data`; None for one that says nothing of rows. Raises `SourceUnfit` for what is none.

    >>> read_message(b"B" + (24).to_bytes(8, "big") + bytes(12))
    Begin(final=24)
    """
    try:
        return _read(data)
    except (struct.error, IndexError, UnicodeDecodeError, KeyError):
        raise SourceUnfit("the source sent a message of its log that is cut short or garbled") from None


def lsn(text: str) -> int:
    """The number of a place in the log that is written as `0/16B3748`.

    >>> lsn("1/0"), lsn_text(lsn("0/16B3748"))
    (4294967296, '0/16B3748')
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(number: int) -> str:
    """The place in the log as PostgreSQL writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def _read(data: bytes) -> Message | None:
    kind = data[0]
    if kind in _ROWS:
        return _row(data)
    cursor = _Cursor(data, 1)
    if kind == ord("B"):
        return Begin(cursor.int64())
    if kind == ord("C"):
        cursor.skip(1 + 8)
        return LoggedCommit(cursor.int64())
    if kind == ord("R"):
        return _relation(cursor)
    if kind == ord("T"):
        count = cursor.int32()
        cursor.skip(1)
        return LoggedTruncate(tuple(cursor.int32() for _ in range(min(count, len(data)))))
    if kind == ord("M"):
        cursor.skip(1 + 8)
        return LoggedMessage(cursor.text(), cursor.bytes())
    if kind in _IGNORED:
        return None
    raise SourceUnfit(f"the source sent a message of kind {bytes([kind])!r} in its log, which is not known here")


def _relation(cursor: _Cursor) -> LoggedRelation:
    relation_id, schema, name = cursor.int32(), cursor.text(), cursor.text()
    identity, count = chr(cursor.byte()), cursor.int16()
    columns = []
    for _ in range(min(count, MAX_COLUMNS)):
        flags = cursor.byte()
        columns.append(LoggedColumn(cursor.text(), bool(flags & 1), cursor.int32(), cursor.signed32()))
    return LoggedRelation(relation_id, f"{schema}.{name}", identity, tuple(columns))


def _row(data: bytes) -> RowChange:
    """A row that changes. Without `_Cursor`, whose calls took most of the time that a batch of changes took."""
    found: dict[int, Cells] = {}
    place, end = 5, len(data)
    while place < end:
        part = data[place]
        if part not in _PARTS or part in found:
            raise KeyError(part)
        (count,) = _COUNT(data, place + 1)
        place += 3
        cells: list[Cell] = []
        for _ in range(count):
            kind = data[place]
            if kind == _TEXT:
                (size,) = _SIZE(data, place + 1)
                begin, place = place + 5, place + 5 + size
                if place > end:
                    raise IndexError
                cells.append(data[begin:place])
            else:
                cells.append(_NO_TEXTS[kind])
                place += 1
        found[part] = tuple(cells)
    old = found.get(_OLD)
    return RowChange(
        _SIZE(data, 1)[0],
        found.get(_KEY) if old is None else old,
        found.get(_NEW),
        old is not None,
        data[0] == _INSERT,
    )


_COUNT, _SIZE = struct.Struct(">H").unpack_from, struct.Struct(">I").unpack_from
_KEY, _OLD, _NEW, _TEXT, _INSERT = b"KONtI"
_PARTS: Final = frozenset((_KEY, _OLD, _NEW))
_NO_TEXTS: Final[dict[int, Cell]] = {ord("n"): None, ord("u"): UNCHANGED}
_ROWS: Final = frozenset(b"IUD")


class _Cursor:
    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place

    def skip(self, count: int) -> None:
        self._place += count

    def byte(self) -> int:
        self._place += 1
        return self._data[self._place - 1]

    def _number(self, form: str, size: int) -> int:
        found = struct.unpack_from(form, self._data, self._place)[0]
        self._place += size
        return int(found)

    def int16(self) -> int:
        return self._number(">H", 2)

    def int32(self) -> int:
        return self._number(">I", 4)

    def signed32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">Q", 8)

    def text(self) -> str:
        end = self._data.find(b"\0", self._place)
        if end < 0:
            raise IndexError
        found = self._data[self._place : end].decode()
        self._place = end + 1
        return found

    def bytes(self) -> bytes:
        size = self.int32()
        found = self._data[self._place : self._place + size]
        if len(found) != size:
            raise IndexError
        self._place += size
        return found
