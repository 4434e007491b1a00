"""Which deletes of an Iceberg table apply to which of its data files; pure but for the forms of pyiceberg.

By the specification: deletes by position apply to files of the same partition that are as old or older, those by value
to older ones; deletes by value of a spec without partitions apply to all files. Where a deletion vector applies, files
of positions do not: it holds what they say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from typing import Any

from attrs import Factory, define, frozen

from ballista_py.errors import SourceUnfit
from ballista_py.scans.task import Deletes, DeletionVector, EqualityDeletes, PositionDeletes

PATH_ID = 2147483546
POSITIONS, EQUALITY = 1, 2
_PARQUET, _PUFFIN = "PARQUET", "PUFFIN"


@frozen(kw_only=True)
class DeleteEntry:
    """A live entry of a manifest of deletes, as far as it counts here; of which partition, None for all of them."""

    content: int
    format: str
    path: str
    size: int
    rows: int
    sequence: int
    partition: Hashable
    equality_ids: tuple[int, ...] = ()
    referenced: str | None = None
    offset: int | None = None
    length: int | None = None


@define
class _ByAge:
    """Deletes in the order of their sequence numbers."""

    numbers: list[int] = Factory(list)
    deletes: list[Deletes] = Factory(list)

    def add(self, number: int, one: Deletes) -> None:
        at = bisect_right(self.numbers, number)
        self.numbers.insert(at, number)
        self.deletes.insert(at, one)


@define
class DeleteIndex:
    """The deletes of a snapshot, found by data file. `columns` gives the columns of equality ids."""

    there: str
    columns: Callable[[tuple[int, ...]], Any]
    _by_path: dict[str, _ByAge] = Factory(dict)
    _vectors: dict[str, tuple[int, DeletionVector]] = Factory(dict)
    _positions: dict[Hashable, _ByAge] = Factory(dict)
    _values: dict[Hashable, _ByAge] = Factory(dict)

    def add(self, entry: DeleteEntry) -> None:
        """One more. Raises `SourceUnfit` for a kind that is not read."""
        if entry.content == POSITIONS and entry.format == _PUFFIN:
            self._add_vector(entry)
        elif entry.format != _PARQUET:
            raise SourceUnfit(
                f"{self.there} has deletes of the format {entry.format}, which is not read: let its own engine rewrite "
                "them as Parquet"
            )
        elif entry.content == POSITIONS:
            one = PositionDeletes(path=entry.path, size=entry.size, rows=entry.rows)
            if entry.referenced is not None:
                self._by_path.setdefault(entry.referenced, _ByAge()).add(entry.sequence, one)
            else:
                self._positions.setdefault(entry.partition, _ByAge()).add(entry.sequence, one)
        elif entry.content == EQUALITY and entry.equality_ids:
            schema = self.columns(entry.equality_ids)
            values = EqualityDeletes(path=entry.path, size=entry.size, schema=schema, rows=entry.rows)
            self._values.setdefault(entry.partition, _ByAge()).add(entry.sequence, values)
        else:
            raise SourceUnfit(f"{self.there} has deletes of a kind that is not known ({entry.content})")

    def _add_vector(self, entry: DeleteEntry) -> None:
        if entry.referenced is None or entry.offset is None or entry.length is None:
            raise SourceUnfit(f"{self.there} has a deletion vector that does not say where it lies")
        if entry.referenced in self._vectors:
            raise SourceUnfit(f"{self.there} has two deletion vectors for '{entry.referenced}'")
        vector = DeletionVector(
            kind="puffin", path=entry.path, offset=entry.offset, length=entry.length, rows=entry.rows
        )
        self._vectors[entry.referenced] = entry.sequence, vector

    def of(self, path: str, sequence: int, partition: Hashable) -> tuple[Deletes, ...]:
        """All that apply to a data file."""
        found: list[Deletes] = []
        number, vector = self._vectors.get(path, (-1, None))
        if vector is not None and number >= sequence:
            found.append(vector)
        else:
            for positions in (self._by_path.get(path), self._positions.get(partition)):
                if positions is not None:
                    found.extend(positions.deletes[bisect_left(positions.numbers, sequence) :])
        for key in (partition, None):
            values = self._values.get(key)
            if values is not None:
                found.extend(values.deletes[bisect_right(values.numbers, sequence) :])
        return tuple(found)

    @property
    def is_empty(self) -> bool:
        return not (self._by_path or self._vectors or self._positions or self._values)


def referenced_path(referenced: str | None, lower: bytes | None, upper: bytes | None) -> str | None:
    """The one data file that a file of positions is of, where it says so by name or by the bounds of its paths."""
    if referenced is not None:
        return referenced
    if lower is None or lower != upper:
        return None
    try:
        return lower.decode()
    except UnicodeDecodeError:
        return None
