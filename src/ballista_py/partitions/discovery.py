"""What a discovery changed: the values that are new, and those that a table no longer shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import PlanningError
from ballista_py.partitions.map import MISSING, PartitionMap, value_columns
from ballista_py.partitions.value_index import Ids, ValueIndex
from ballista_py.partitions.values import as_key, require_short_values

NO_LOOK = -1


@frozen(kw_only=True)
class PartitionDiff:
    """One successful discovery held against one map.

    `missing` were seen by the discovery before and not by this one; `vanished` were missing already and are
    missing again; `returned` were missing and are back. `empty` says that the discovery found nothing at all.
    `after` is what the map's `discoveries` counted when the discovery began; None: no other can have come between,
    `NO_LOOK`: what it does not show proves nothing.
    """

    table: str
    added: tuple[tuple[Any, ...], ...]
    added_weights: tuple[float, ...]
    missing: Ids = field(eq=False)
    vanished: Ids = field(eq=False)
    returned: Ids = field(eq=False)
    empty: bool
    after: int | None = None

    def __bool__(self) -> bool:
        """Whether the map would change."""
        return bool(len(self.added) + len(self.missing) + len(self.vanished) + len(self.returned))


def diff_partitions(
    pmap: PartitionMap,
    discovered: pa.RecordBatch | pa.Table | Iterable[Sequence[Any]],
    weights: Sequence[float] | npt.NDArray[np.float64] | None = None,
    *,
    after: int | None = None,
) -> PartitionDiff:
    """How the values of a discovery (repeats allowed) differ from the map's.

    `discovered` are tuples in key order, or an Arrow table with one column per key in that order; `weights`, one
    per row, default to 1; `after` as in `PartitionDiff`. Raises `PlanningError` for values that are not of the
    keys' types, `SchemaMismatch` for new ones as `require_short_values`.

    >>> from ballista_py.partitions.spec import PartitionSpec
    >>> spec = PartitionSpec.parse(["region"], pa.schema([("region", pa.string())]))
    >>> diff = diff_partitions(PartitionMap.build("t", spec, [("eu",), ("us",)]), [("us",), (None,)])
    >>> diff.added, diff.missing.tolist()
    (((None,),), [0])
    """
    columns, length = _discovered(pmap, discovered)
    found = pmap.lookup(columns, length)
    seen = np.zeros(len(pmap), np.bool_)
    seen[found[found >= 0]] = True
    first = _first_of_each(columns, np.flatnonzero(found < 0))
    taken = [column.take(pa.array(first)) for column in columns]
    require_short_values(pmap.table, [key.expression for key in pmap.spec.keys], taken)
    added = [column.to_pylist() for column in taken]
    live = pmap.ids()
    marked = (pmap.flags[live] & MISSING) != 0
    return PartitionDiff(
        table=pmap.table,
        added=tuple(zip(*added, strict=True)) if added else ((),) * len(first),
        added_weights=tuple([1.0] * len(first) if weights is None else np.asarray(weights)[first].tolist()),
        missing=live[~seen[live] & ~marked],
        vanished=live[~seen[live] & marked],
        returned=live[seen[live] & marked],
        empty=not length,
        after=after,
    )


def added_partitions(pmap: PartitionMap, values: Iterable[Sequence[Any]]) -> PartitionDiff:
    """The values that the map does not have, as partitions to be added; nothing is missing for it."""
    nothing = np.empty(0, np.int32)
    found = diff_partitions(pmap, values)
    return attrs.evolve(found, missing=nothing, vanished=nothing, returned=found.returned)


def _discovered(pmap: PartitionMap, discovered: Any) -> tuple[tuple[pa.Array, ...], int]:
    if not isinstance(discovered, pa.RecordBatch | pa.Table):
        rows = [tuple(row) for row in discovered]
        return value_columns(pmap.spec, rows), len(rows)
    keys = pmap.spec.keys
    if discovered.num_columns != len(keys):
        raise PlanningError(f"table '{pmap.table}': a discovery needs {len(keys)} column(s), one per key")
    table = pa.table(discovered).combine_chunks()
    try:
        columns = [
            as_key(pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], key.type), key.type)
            for column, key in zip(table.columns, keys, strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PlanningError(f"table '{pmap.table}': a discovery does not have the types of the keys") from error
    return tuple(columns), table.num_rows


def _first_of_each(columns: Sequence[pa.Array], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first of the rows that have the same value, in order."""
    if not len(rows):
        return rows
    values = [column.take(pa.array(rows)) for column in columns]
    codes = ValueIndex.of(values, np.zeros(len(rows), np.int32)).codes(values, len(rows))
    _, first = np.unique(codes, return_index=True)
    return rows[np.sort(first)]
