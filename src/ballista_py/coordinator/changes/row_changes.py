"""What a statement comes to at a source: rows that come, rows that are other rows, keys of rows that go; pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from ballista_py.coordinator.changes.postgres_values import same_values
from ballista_py.errors import SqlError
from ballista_py.partitions.same_key import Key, keys_of_rows

MAX_ROWS = 250_000  # of one statement: its source applies them in one transaction, which the table takes whole
MAX_BYTES = 64 << 20


@frozen(kw_only=True)
class RowChanges:
    """Rows that `come`, with the `columns` that are given of them (the others are the source's to fill); rows as they
    were `before` and, in the same order, are `after`; and rows that are `gone`. `affected` is what a client is told.
    """

    come: pa.Table = field(repr=False)
    before: pa.Table = field(repr=False)
    after: pa.Table = field(repr=False)
    gone: pa.Table = field(repr=False)
    columns: tuple[str, ...]
    affected: int

    @property
    def locked(self) -> pa.Table:
        """The rows that must be there as they were."""
        return pa.concat_tables([self.before, self.gone])


def require_few(table: str, *parts: pa.Table) -> None:
    """Raise `SqlError` for more rows than one transaction of the source may change."""
    rows, size = sum(map(len, parts)), sum(part.nbytes for part in parts)
    if rows > MAX_ROWS or size > MAX_BYTES:
        raise SqlError(
            f"the statement changes {rows} rows ({size >> 20} MiB) of table '{table}', which is written through: at "
            f"most {MAX_ROWS} rows and {MAX_BYTES >> 20} MiB go to its source at once, send it in parts"
        )


def comes(rows: pa.Table, columns: Sequence[str]) -> RowChanges:
    """Rows that come, and nothing else."""
    none = rows.schema.empty_table()
    return RowChanges(come=rows, before=none, after=none, gone=none, columns=tuple(columns), affected=len(rows))


def row_changes(
    table: str, old: pa.Table, new: pa.Table, key: Sequence[str], affected: int, columns: Sequence[str] = ()
) -> RowChanges:
    """What leads from some rows to others, told apart by the `key` that the source has. Both have the same columns.

    Rows that stay as they are are left out. Raises `SqlError` where two rows would have one key.

    >>> old, new = pa.table({"id": [1, 2, 3], "v": [1, 1, 1]}), pa.table({"id": [2, 3, 4], "v": [5, 1, 1]})
    >>> found = row_changes("t", old, new, ["id"], 3)
    >>> [part.to_pydict() for part in (found.come, found.after, found.gone)]
    [{'id': [4], 'v': [1]}, {'id': [2], 'v': [5]}, {'id': [1], 'v': [1]}]
    """
    require_few(table, old, new)
    places = places_by_key(old, key)
    keys = keys_of_rows(new, key)
    if len(set(keys)) < len(keys):
        raise SqlError(
            f"two rows of the statement have one key ({', '.join(key)}) of table '{table}' at its source"
        )
    met = [places.get(one) for one in keys]
    stays = np.array([place for place in met if place is not None], np.int64)
    is_new = pa.array([place is None for place in met], pa.bool_())
    before, after = old.take(stays), new.filter(pc.invert(is_new))
    changed = pc.invert(equal_rows(before, after))
    is_gone = np.ones(len(old), np.bool_)
    is_gone[stays] = False
    return RowChanges(
        come=new.filter(is_new),
        before=before.filter(changed),
        after=after.filter(changed),
        gone=old.filter(pa.array(is_gone)),
        columns=tuple(columns) or tuple(new.schema.names),
        affected=affected,
    )


def equal_rows(left: pa.Table, right: pa.Table) -> pa.ChunkedArray:
    """By row, whether two tables of the same columns have the same values."""
    same = pa.chunked_array([pa.array(np.ones(len(left), np.bool_))])
    for one, other in zip(left.columns, right.columns, strict=True):
        same = pc.and_(same, same_values(one, other))
    return same


def is_as_read(read: pa.Table, there: pa.Table, key: Sequence[str]) -> bool:
    """Whether the rows that are there are those that were read, in whatever order."""
    places = places_by_key(there, key)
    found = [places.get(one) for one in keys_of_rows(read, key)]
    if len(there) != len(read) or any(place is None for place in found):
        return False
    return bool(pc.all(equal_rows(read, there.take(pa.array(found, pa.int64())))).as_py() in (True, None))


def places_by_key(rows: pa.Table, key: Sequence[str]) -> dict[Key, int]:
    """The place of each row, by its key."""
    return {one: place for place, one in enumerate(keys_of_rows(rows, key))}


def changed_columns(changes: RowChanges, key: Sequence[str]) -> list[str]:
    """The columns that an update sets: those that differ in some row, and are not in the key."""
    return [
        name
        for name in changes.after.schema.names
        if name not in key
        and pc.any(pc.invert(same_values(changes.before.column(name), changes.after.column(name)))).as_py()
    ]
