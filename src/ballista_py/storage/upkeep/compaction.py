"""Which small files of a partition to write together as one; pure.

Many small writes make many small files, and every hydration and every rewrite pays for each. Files are merged once
there are enough of them, so a row is rewritten about log(rows) times in its life and not with every write.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ballista_py.storage.manifest import DataFile, Prepared


@frozen(kw_only=True)
class CompactionPolicy:
    """Merge when `min_files` files of a like size are there; a merged file is about `max_bytes` at most.

    Sizes are alike within a factor of `ratio`, and all files below `small_bytes` are. Who changes rows of the table
    waits while files are merged, so `max_bytes` is what takes about a second.
    """

    min_files: int = 8
    small_bytes: int = 64 << 10
    ratio: int = 8
    max_bytes: int = 32 << 20


def to_compact(
    files: Sequence[DataFile], prepared: Sequence[Prepared] = (), policy: CompactionPolicy | None = None
) -> tuple[DataFile, ...]:
    """The files to merge into one now, in their order; none if there is nothing to gain.

    The smallest of a tier, as many as `max_bytes` holds: fewer than `min_files` are not worth it, so those of a bulk
    load stay as they came. Files that a prepared statement would remove stay, and none is merged while one waits that
    was made from all.

    >>> files = [DataFile(path=f"{n}.parquet", rows=1, bytes=700) for n in range(9)]
    >>> len(to_compact(files)), len(to_compact(files[:7]))
    (9, 0)
    """
    policy = policy or CompactionPolicy()
    if any(waiting.exclusive for waiting in prepared):
        return ()
    reserved = {path for waiting in prepared for path in waiting.remove}
    tiers: dict[int, list[DataFile]] = {}
    for file in files:
        if file.path not in reserved and file.bytes_to_read < policy.max_bytes:
            tiers.setdefault(_tier(file.bytes_to_read, policy), []).append(file)
    for _, tier in sorted(tiers.items()):
        found = _within(tier, policy.max_bytes)
        if len(found) >= policy.min_files:
            return found
    return ()


def _tier(size: int, policy: CompactionPolicy) -> int:
    tier, bound = 0, policy.small_bytes
    while size >= bound:
        tier, bound = tier + 1, bound * policy.ratio
    return tier


def _within(files: Sequence[DataFile], max_bytes: int) -> tuple[DataFile, ...]:
    chosen: set[str] = set()
    size = 0
    for file in sorted(files, key=lambda file: file.bytes_to_read):
        if size + file.bytes_to_read > max_bytes:
            break
        chosen.add(file.path)
        size += file.bytes_to_read
    return tuple(file for file in files if file.path in chosen)
