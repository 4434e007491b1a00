"""Which files lost a row to a statement, when their rows were brought together one file after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from attrs import frozen


@frozen(kw_only=True)
class TouchedFiles:
    """The files that lost a row, by partition, and the `spans` of places (from, to) that all of their rows have."""

    files: Mapping[int, tuple[str, ...]]
    spans: tuple[tuple[int, int], ...]


def touched_files(read: Sequence[tuple[int, str, int]], gone: npt.NDArray[np.int64]) -> TouchedFiles:
    """The files among `read` (partition, file, rows; in the order of the rows) that hold one of the places `gone`.

    >>> found = touched_files([(0, "a", 10), (0, "b", 5), (1, "c", 5)], np.array([3, 4, 15]))
    >>> found.files, found.spans
    ({0: ('a',), 1: ('c',)}, ((0, 10), (15, 20)))
    """
    ends = np.cumsum([rows for _, _, rows in read], dtype=np.int64)
    assert len(gone) == 0 or gone.max() < ends[-1], "a row went that was not read"
    files: dict[int, tuple[str, ...]] = {}
    spans = []
    for place in np.unique(np.searchsorted(ends, gone, side="right")).tolist():
        partition, path, rows = read[place]
        files[partition] = (*files.get(partition, ()), path)
        spans.append((int(ends[place]) - rows, int(ends[place])))
    return TouchedFiles(files=files, spans=tuple(spans))
