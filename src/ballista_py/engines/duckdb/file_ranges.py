"""Sets of file ids as ranges: DuckDB skips whole row groups for a range, and looks at every row for a list."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def ranges(wanted: Collection[int], loaded: Iterable[int]) -> list[tuple[int, int]]:
    """The fewest inclusive ranges that hold all `wanted` and no other of the `loaded` ids, in order.

    >>> ranges({1, 2, 3, 8, 9}, [1, 2, 3, 7, 8, 9])
    [(1, 3), (8, 9)]
    >>> ranges({1, 2, 3, 8, 9}, [1, 2, 3, 8, 9, 20])
    [(1, 9)]
    """
    found: list[tuple[int, int]] = []
    open_range = False
    for file_id in sorted(loaded):
        if file_id not in wanted:
            open_range = False
        elif open_range:
            found[-1] = (found[-1][0], file_id)
        else:
            found.append((file_id, file_id))
            open_range = True
    return found
