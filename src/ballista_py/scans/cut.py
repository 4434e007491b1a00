"""From the files of a scan to tasks of about one size: large files are cut at row groups, small ones packed; pure.

The same files give the same tasks, in whatever order they came.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa
from attrs import evolve

from ballista_py.errors import InvalidData
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import FileSlice, ScanCondition, ScanTask

TARGET_BYTES = 64 << 20
OPEN_BYTES = 256 << 10  # what a store sends in the time in which it answers a question
MAX_TASK_FILES = 1_000

GroupBytes = Mapping[str, Sequence[int]]
Slices = tuple[FileSlice, ...]


def cut(
    files: Iterable[FileSlice],
    target_bytes: int = TARGET_BYTES,
    group_bytes: GroupBytes | None = None,
    *,
    open_bytes: int = OPEN_BYTES,
    most_files: int = MAX_TASK_FILES,
) -> tuple[Slices, ...]:
    """The files in groups, each for one task: every row group of them is in exactly one.

    `group_bytes` has, by the path of a file, what the columns that are read take in each row group of the file, as its
    footer says; a file that is not in it is not cut. No group costs more than `target_bytes`, opening each file at
    `open_bytes`, unless it is one file that cannot be cut, or one row group. The dearest group comes first.

    Raises `InvalidData` where two slices have a row group in common, or one has a row group that its footer has not.

    >>> [file.row_groups for (file,) in cut([FileSlice(path="a", size=30)], 20, {"a": [10, 10, 10]}, open_bytes=0)]
    [(0, 1), (2,)]
    """
    known = group_bytes or {}
    pieces = sorted(
        (piece for file in files for piece in _pieces(file, target_bytes - open_bytes, known)),
        key=lambda piece: (-piece.cost, *_place(piece)),
    )
    _require_apart(pieces)
    groups = [_joined(group) for group in _packed(pieces, target_bytes, open_bytes, most_files)]
    return tuple(
        sorted(groups, key=lambda group: (-sum(piece.cost + open_bytes for piece in group), _place(group[0])))
    )


def tasks_of(
    fragment_id: str,
    groups: Iterable[Slices],
    schema: pa.Schema,
    filter: Sequence[ScanCondition] = (),  # noqa: A002 - the name that tasks have for it
    credentials_of: Callable[[str], StorageCredentials | None] = lambda _path: None,
) -> tuple[ScanTask, ...]:
    """The tasks of a fragment, one a group, numbered in their order; credentials are those of a group's first path."""
    return tuple(
        ScanTask(
            fragment_id=fragment_id,
            number=number,
            files=group,
            columns=tuple(schema.names),
            schema=schema,
            filter=tuple(filter),
            credentials=credentials_of(group[0].path) if group else None,
        )
        for number, group in enumerate(groups)
    )


def _pieces(file: FileSlice, room: int, known: GroupBytes) -> Iterator[FileSlice]:
    """The file, cut where it costs more than there is room for."""
    sizes = known.get(file.path)
    if sizes is None:
        yield file
        return
    groups = tuple(range(len(sizes))) if file.row_groups is None else file.row_groups
    if not groups:
        return
    if not 0 <= groups[0] <= groups[-1] < len(sizes):
        raise InvalidData(f"a row group of '{file.path}' is to be read, and its footer has {len(sizes)} of them")
    deletes = evolve(file, read_bytes=0).cost
    if deletes + sum(sizes[group] for group in groups) <= room:
        yield evolve(file, read_bytes=sum(sizes[group] for group in groups))
        return
    taken: list[int] = []
    held = 0
    for group in groups:
        if taken and deletes + held + sizes[group] > room:
            yield evolve(file, row_groups=tuple(taken), read_bytes=held)
            taken, held = [], 0
        taken.append(group)
        held += sizes[group]
    yield evolve(file, row_groups=tuple(taken), read_bytes=held)


def _packed(pieces: Sequence[FileSlice], target: int, open_bytes: int, most_files: int) -> list[list[FileSlice]]:
    """Each piece into the fullest group that has room for it, the dearest first."""
    groups: list[list[FileSlice]] = []
    rooms: list[tuple[int, int]] = []  # what is left of each group that takes more, and its number; ascending
    for piece in pieces:
        cost = piece.cost + open_bytes
        place = bisect_left(rooms, (cost, -1))
        if place == len(rooms):
            room, number = target, len(groups)
            groups.append([])
        else:
            room, number = rooms.pop(place)
        groups[number].append(piece)
        if len(groups[number]) < most_files and room > cost:
            insort(rooms, (room - cost, number))
    return groups


def _joined(group: Sequence[FileSlice]) -> Slices:
    """By path; pieces of one file that came together are one again, whose deletes are read once."""
    found: list[FileSlice] = []
    for piece in sorted(group, key=_place):
        both = _both(found[-1], piece) if found else None
        if both is None:
            found.append(piece)
        else:
            found[-1] = both
    return tuple(found)


def _both(one: FileSlice, other: FileSlice) -> FileSlice | None:
    """Two pieces as one, if they are of one file and differ in their row groups alone."""
    if one.row_groups is None or other.row_groups is None:
        return None
    if evolve(one, row_groups=other.row_groups, read_bytes=other.read_bytes) != other:
        return None
    return evolve(
        one,
        row_groups=tuple(sorted(one.row_groups + other.row_groups)),
        read_bytes=_sum(one.read_bytes, other.read_bytes),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _place(piece: FileSlice) -> tuple[str, tuple[int, ...]]:
    return piece.path, piece.row_groups or ()


def _require_apart(pieces: Iterable[FileSlice]) -> None:
    """Raise `InvalidData` if rows would be read twice."""
    ordered = sorted(pieces, key=_place)
    for one, other in pairwise(ordered):
        if one.path == other.path and (one.row_groups is None or other.row_groups is None):
            raise InvalidData(f"'{one.path}' is to be read twice")
    seen: dict[str, set[int]] = {}
    for piece in ordered:
        if piece.row_groups is not None:
            before = seen.setdefault(piece.path, set())
            if before.intersection(piece.row_groups):
                raise InvalidData(f"a row group of '{piece.path}' is to be read twice")
            before.update(piece.row_groups)
