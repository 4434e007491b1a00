"""Sets of file ids as ranges, because a few ranges are planned and run faster than a long list."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(file_ids: Iterable[int]) -> list[tuple[int, int]]:
    """The ids as the fewest inclusive ranges, in order.

    >>> ranges({1, 2, 3, 7, 9, 8})
    [(1, 3), (7, 9)]
    """
    found: list[tuple[int, int]] = []
    for file_id in sorted(set(file_ids)):
        if found and found[-1][1] == file_id - 1:
            found[-1] = (found[-1][0], file_id)
        else:
            found.append((file_id, file_id))
    return found
