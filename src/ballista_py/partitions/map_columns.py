"""The partition map as named columns, small enough to be a document: constant columns shrink to one number.

Names: `spec` (JSON form), `length`, `values` (one list per key; None if they are the spec's static ones),
`executors` (pairs of executor and instance id), `owners` (one column per replica), `targets` and `formers` (pairs
of partition and place in `executors`), `epochs`, `weights`, `flags`, `discoveries` (a count). A numeric column is
one number if all its rows are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ballista_py.partitions.map import NOBODY, PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.values import from_json_values, to_json_values

MAX_EPOCH = 2**53 - 1  # what every reader of JSON keeps exactly


def to_columns(pmap: PartitionMap) -> dict[str, Any]:
    """See `PartitionMap.to_columns`."""
    return {
        "spec": pmap.spec.to_json(),
        "length": len(pmap),
        "values": None if _is_static(pmap) else [to_json_values(column) for column in pmap.columns],
        "executors": [list(owner) for owner in pmap.executors],
        "owners": [_packed(column) for column in pmap.owner_index.T],
        "targets": _pairs(pmap.target_index),
        "formers": _pairs(pmap.former_index),
        "epochs": _packed(pmap.epochs),
        "weights": _packed(_whole_numbers(pmap.weights)),
        "flags": _packed(pmap.flags),
        "discoveries": pmap.discoveries,
    }


def from_columns(table: str, revision: int, columns: Mapping[str, Any]) -> PartitionMap:
    """See `PartitionMap.from_columns`. Raises `ValueError` for columns that do not fit each other.

    Whoever can write the bucket can write any: no number of theirs is taken for a size before it was compared with
    what is there.
    """
    if not isinstance(table, str):
        raise ValueError("the name of a table is a text")
    spec = PartitionSpec.from_json(columns["spec"])
    length = _count(columns["length"])
    if columns["values"] is None:
        values = spec.static_columns() or ()
    else:
        values = tuple(
            from_json_values(column, key.type) for key, column in zip(spec.keys, columns["values"], strict=True)
        )
    if any(len(column) != length for column in values) or (not values and length > 1):
        raise ValueError(f"{length} partitions, but not as many values")
    executors = tuple((str(owner[0]), str(owner[1])) for owner in columns["executors"])
    return PartitionMap(
        table=table,
        spec=spec,
        revision=revision,
        columns=values,
        executors=executors,
        owner_index=np.stack(
            [
                _within(_unpacked(column, length, np.int32), NOBODY, len(executors) - 1)
                for column in columns["owners"]
            ],
            axis=1,
        ),
        target_index=_places(columns["targets"], length, len(executors)),
        former_index=_places(columns.get("formers", ()), length, len(executors)),
        epochs=_within(_unpacked(columns["epochs"], length, np.int64), 0, MAX_EPOCH),
        weights=_unpacked(columns["weights"], length, np.float64),
        flags=_unpacked(columns["flags"], length, np.uint8),
        discoveries=_count(columns.get("discoveries", 0)),
    )


def _is_static(pmap: PartitionMap) -> bool:
    if not pmap.spec.is_static:
        return False
    static = pmap.spec.static_columns() or ()
    return len(static) == len(pmap.columns) and all(a.equals(b) for a, b in zip(static, pmap.columns, strict=True))


def _pairs(places: npt.NDArray[np.int32]) -> list[list[int]]:
    """The few rows that name somebody, as (row, place)."""
    rows = np.flatnonzero(places != NOBODY)
    found: list[list[int]] = np.stack([rows, places[rows]], axis=1).tolist()
    return found


def _places(pairs: Iterable[Sequence[int]], length: int, executors: int) -> npt.NDArray[np.int32]:
    places = np.full(length, NOBODY, np.int32)
    for row, place in pairs:
        if not (0 <= row < length and NOBODY <= place < executors):
            raise ValueError("a partition or an executor that there is not")
        places[row] = place
    return places


def _packed(column: npt.NDArray[Any]) -> Any:
    if len(column) and (column == column[0]).all():
        return column[0].item()
    return np.ascontiguousarray(column)


def _unpacked(column: Any, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A column of exactly so many numbers, none of which is another one in this type."""
    if isinstance(column, int | float):
        with np.errstate(invalid="raise"):
            one = np.array(column).astype(dtype)
        if one != column:
            raise ValueError(f"{column} is no {one.dtype}")
        return np.full(length, one, dtype)
    found = np.array(column, dtype) if len(column) else np.empty(0, dtype)
    if found.shape != (length,):
        raise ValueError(f"a column of shape {found.shape} for {length} partitions")
    return found


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_EPOCH:
        raise ValueError("it is no count")
    return value


def _within(column: npt.NDArray[Any], least: int, most: int) -> npt.NDArray[Any]:
    if len(column) and not least <= int(column.min()) <= int(column.max()) <= most:
        raise ValueError(f"a number that is not from {least} to {most}")
    return column


def _whole_numbers(weights: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    whole = weights.astype(np.int64) if (np.abs(weights) < 2**53).all() else weights
    return whole if (whole == weights).all() else weights
