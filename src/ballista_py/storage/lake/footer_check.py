"""Whether a Parquet footer can be looked at: what pyarrow would end the whole process for is refused here; pure.

pyarrow's own reader tells of a spoilt footer by errors, but its objects for single column chunks throw where nobody
catches: for a chunk without its metadata or of another type than its column, for bounds that are no values of it, and
for histograms of another length than its levels. So the footer is walked through before, in Thrift's compact form, as
far as these lie in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, frozen

from ballista_py.errors import DocumentUnreadable, Unsupported

MAX_DEPTH = 24
_ROW_GROUPS, _COLUMNS, _METADATA, _CRYPTO, _SIZES, _REPETITIONS, _DEFINITIONS = 4, 1, 3, 8, 16, 2, 3
_BOOLEANS, _BYTE, _DOUBLE, _BINARY, _LISTS, _STRUCT, _UUID = (1, 2), 3, 7, 8, (9, 10), 12, 13
_VARINTS = (4, 5, 6)
_TYPE = 1
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_STATISTICS, _BOUNDS = 12, (1, 2, 5, 6)
Field = Callable[[int, int], None]


@frozen
class Leaf:
    """A leaf column by the schema: its physical type, the bytes of one value of a fixed length, and its highest
    repetition and definition levels."""

    kind: str
    length: int
    levels: tuple[int, int]


def require_sound(footer: bytes, leaves: Sequence[Leaf], file: str) -> None:
    """Raises `DocumentUnreadable` for a footer that cannot be looked at, `Unsupported` for encrypted columns."""
    try:
        _Footer(footer, leaves, file).check()
    except (IndexError, RecursionError):
        raise _spoilt(file) from None


@define
class _Footer:
    """A footer and where it is being read."""

    data: bytes
    leaves: Sequence[Leaf]
    file: str
    at: int = 0
    leaf: int = 0

    def check(self) -> None:
        def in_file(number: int, kind: int) -> None:
            if number == _ROW_GROUPS and kind in _LISTS:
                self._each(lambda: self._struct(in_group, 1), 1)
            else:
                self._skip(kind, 1)

        def in_group(number: int, kind: int) -> None:
            if number == _COLUMNS and kind in _LISTS:
                if self._each(self._chunk, 2) != len(self.leaves):
                    raise _spoilt(self.file)
            else:
                self._skip(kind, 2)

        self._struct(in_file, 0)

    def _chunk(self) -> None:
        """One column chunk of a row group; they come in the order of the leaf columns."""
        seen: set[int] = set()
        typed: set[int] = set()
        leaf = self.leaves[self.leaf % max(1, len(self.leaves))]
        self.leaf += 1

        def in_chunk(number: int, kind: int) -> None:
            seen.add(number)
            if number == _METADATA and kind == _STRUCT:
                self._struct(in_metadata, 4)
            else:
                self._skip(kind, 4)

        def in_metadata(number: int, kind: int) -> None:
            if number == _TYPE and kind in _VARINTS:
                if self._zigzag() != _TYPES.index(leaf.kind):
                    raise _spoilt(self.file)
                typed.add(number)
            elif number == _STATISTICS and kind == _STRUCT:
                self._struct(in_statistics, 5)
            elif number == _SIZES and kind == _STRUCT:
                self._struct(in_sizes, 5)
            else:
                self._skip(kind, 5)

        def in_statistics(number: int, kind: int) -> None:
            if number in _BOUNDS and kind == _BINARY:
                size = self._varint()
                if size != _WIDTHS.get(leaf.kind, size) or (leaf.kind == _TYPES[-1] and size != leaf.length):
                    raise _spoilt(self.file)
                self._move(size)
            else:
                self._skip(kind, 6)

        def in_sizes(number: int, kind: int) -> None:
            if number in (_REPETITIONS, _DEFINITIONS) and kind in _LISTS:
                count = self._each(None, 6)
                if count not in (0, leaf.levels[number - _REPETITIONS] + 1):
                    raise _spoilt(self.file)
            else:
                self._skip(kind, 6)

        self._struct(in_chunk, 3)
        if _CRYPTO in seen:
            raise Unsupported(f"file '{self.file}' has encrypted columns, which are not read here", file=self.file)
        if _METADATA not in seen or not typed:
            raise _spoilt(self.file)

    def _struct(self, field: Field, depth: int) -> None:
        """Each field of a struct is given its number and its type."""
        if depth > MAX_DEPTH:
            raise _spoilt(self.file)
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            field(number, kind)

    def _each(self, read: Callable[[], None] | None, depth: int) -> int:
        """The elements of a list, one after the other, and how many they are."""
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self._varint() if count == 15 else count
        if count > len(self.data) - self.at:
            raise _spoilt(self.file)
        for _ in range(count):
            if read is not None and kind == _STRUCT:
                read()
            elif kind in _BOOLEANS:
                self._move(1)
            else:
                self._skip(kind, depth)
        return count

    def _skip(self, kind: int, depth: int) -> None:
        if kind in _VARINTS:
            self._varint()
        elif kind == _BINARY:
            self._move(self._varint())
        elif kind == _STRUCT:
            self._struct(lambda _, inner: self._skip(inner, depth + 1), depth + 1)
        elif kind in _LISTS:
            if depth > MAX_DEPTH:
                raise _spoilt(self.file)
            self._each(None, depth + 1)
        elif kind in (_BYTE, _DOUBLE, _UUID):
            self._move({_BYTE: 1, _DOUBLE: 8, _UUID: 16}[kind])
        elif kind not in _BOOLEANS:  # maps are in no footer
            raise _spoilt(self.file)

    def _byte(self) -> int:
        found = self.data[self.at]
        self.at += 1
        return found

    def _varint(self) -> int:
        found, shift = 0, 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise _spoilt(self.file)

    def _zigzag(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _move(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise _spoilt(self.file)


def _spoilt(file: str) -> DocumentUnreadable:
    return DocumentUnreadable(f"the footer of file '{file}' is damaged", file=file)
