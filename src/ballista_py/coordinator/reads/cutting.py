"""Parts of a read job: which files are read together; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from ballista_py.partitions.map import Owner
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.reads.files import PartFile

TARGET_BYTES = 64 << 20
MAX_PARTS = 100_000

Part = tuple[PartFile, ...]
_Unit = tuple[list[PartFile], int]
"""Files that stay together, and how many bytes they have."""


def parts_of(
    files: Mapping[int, Sequence[DataFile]],
    owners: Mapping[int, Owner | None],
    *,
    target_bytes: int = TARGET_BYTES,
    max_parts: int = MAX_PARTS,
    divides: bool,
) -> tuple[Part, ...]:
    """The files in parts of about `target_bytes`, each of one owner, and at most `max_parts`; every file is in one.

    Unless it `divides`, the files of a partition stay together. Where there are more owners than parts may be, a part
    has files of several. The same arguments give the same parts.

    >>> small = DataFile(path="a", rows=1, bytes=3), DataFile(path="b", rows=1, bytes=3)
    >>> [len(part) for part in parts_of({0: small}, {0: None}, target_bytes=4, divides=True)]
    [1, 1]
    >>> [len(part) for part in parts_of({0: small}, {0: None}, target_bytes=4, divides=False)]
    [2]
    """
    by_owner: dict[Owner | None, list[_Unit]] = {}
    for partition in sorted(files):
        pieces = [PartFile(partition=partition, file=file) for file in files[partition]]
        sizes = [file.bytes_to_read for file in files[partition]]
        together = [(pieces, sum(sizes))] if pieces else []
        units = [([piece], size) for piece, size in zip(pieces, sizes, strict=True)] if divides else together
        by_owner.setdefault(owners.get(partition), []).extend(units)
    most = max(1, max_parts)
    size = sum([size for units in by_owner.values() for _, size in units])
    target = max(1, target_bytes, -(-size // most))
    ordered = [by_owner[owner] for owner in sorted(by_owner, key=lambda owner: owner or ("", ""))]
    parts = [part for units in ordered for part in _filled(units, target)]
    while len(parts) > most and target <= size:
        target *= 2
        parts = [part for units in ordered for part in _filled(units, target)]
    at_once = -(-len(parts) // most)
    return tuple(tuple(chain(*parts[at : at + at_once])) for at in range(0, len(parts), at_once or 1))


def _filled(units: Iterable[_Unit], target: int) -> list[Part]:
    """The units one after the other, a new part wherever the next one would make it larger than the target."""
    parts: list[list[PartFile]] = []
    held = 0
    for unit, size in units:
        if not parts or held + size > target:
            parts.append([])
            held = 0
        parts[-1].extend(unit)
        held += size
    return [tuple(part) for part in parts]
