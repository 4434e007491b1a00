"""What a discovery changed: the values that are new, and those that a table no longer shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from ballista_py.planning.partition_index import Ids
from ballista_py.planning.partition_map import MISSING, PartitionMap, value_columns


@frozen(kw_only=True)
class PartitionDiff:
    """One successful discovery held against one map.

    `missing` were seen by the discovery before and not by this one; `vanished` were missing already and are
    missing again; `returned` were missing and are back. `empty` says that the discovery found nothing at all.
    """

    table: str
    added: tuple[tuple[Any, ...], ...]
    added_weights: tuple[float, ...]
    missing: Ids = field(eq=False)
    vanished: Ids = field(eq=False)
    returned: Ids = field(eq=False)
    empty: bool

    def __bool__(self) -> bool:
        """Whether the map would change."""
        return bool(len(self.added) + len(self.missing) + len(self.vanished) + len(self.returned))


def diff_partitions(
    pmap: PartitionMap,
    discovered: Iterable[Sequence[Any]],
    weights: Sequence[float] | None = None,
) -> PartitionDiff:
    """How the values of a discovery (repeats allowed) differ from the map's; `weights` go with `discovered`.

    >>> import pyarrow as pa
    >>> from ballista_py.planning.partition_spec import PartitionSpec
    >>> spec = PartitionSpec.parse(["region"], pa.schema([("region", pa.string())]))
    >>> diff = diff_partitions(PartitionMap.build("t", spec, [("eu",), ("us",)]), [("us",), (None,)])
    >>> diff.added, diff.missing.tolist()
    (((None,),), [0])
    """
    rows = [tuple(row) for row in discovered]
    found = pmap.lookup(value_columns(pmap.spec, rows), len(rows))
    seen = np.zeros(len(pmap), np.bool_)
    seen[found[found >= 0]] = True
    added: dict[tuple[Any, ...], float] = {}
    for place in np.flatnonzero(found < 0).tolist():
        added.setdefault(rows[place], 1.0 if weights is None else float(weights[place]))
    live = pmap.ids()
    marked = (pmap.flags[live] & MISSING) != 0
    return PartitionDiff(
        table=pmap.table,
        added=tuple(added),
        added_weights=tuple(added.values()),
        missing=_only(live, ~seen[live] & ~marked),
        vanished=_only(live, ~seen[live] & marked),
        returned=_only(live, seen[live] & marked),
        empty=not rows,
    )


def _only(ids: Ids, keep: npt.NDArray[np.bool_]) -> Ids:
    return ids[keep]
