"""What changes come to, one after the other: which rows are there afterwards, and which keys are not; pure.

Of each key the last change counts, so the result is the same whether they are applied one by one or at once. Columns
that a source left out because they are unchanged are taken from the change before, or from the row that is there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.coordinator.changes.batches import OPS, Changes, Places, keys_of
from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.same_key import Key, key_numbers, keys_of_rows
from ballista_py.partitions.table import TableSpec

_TRUNCATE = OPS.index("truncate")


@frozen
class Net:
    """Rows that take the place of those of their keys, or come; and keys whose rows go, as far as there are any.

    With `replaces` all rows of the table go first.
    """

    come: pa.Table
    gone: pa.Table
    replaces: bool = False


def net_of(table: TableSpec, changes: Changes) -> Net:
    """What the changes come to. Nothing may be unchanged any more (see `filled`)."""
    begin = _after_truncate(changes)
    numbers = np.arange(len(changes))
    keys = list(table.primary_key)
    had = np.flatnonzero((changes.old_at >= 0) & (numbers >= begin))
    has = np.flatnonzero((changes.new_at >= 0) & (numbers >= begin))
    old, new = changes.old.take(changes.old_at[had]), changes.new.select(keys).take(changes.new_at[has])
    kept = keys_of(table).schema
    order = np.concatenate([2 * had, 2 * has + 1])  # of one change the key that goes, then the row that comes
    events = pa.concat_tables([old.cast(kept), new.cast(kept)])
    last = np.full(len(order), -1)
    np.maximum.at(last, key_numbers(events, keys), order)
    last = np.sort(last[last >= 0])
    come, gone = last[last % 2 == 1] // 2, last[last % 2 == 0] // 2
    return Net(
        come=changes.new.take(changes.new_at[come]),
        gone=changes.old.take(changes.old_at[gone]),
        replaces=begin > 0,
    )


def lacking_keys(table: TableSpec, changes: Changes) -> pa.Table:
    """The keys of rows in the table that lend a column to a change which left it out."""
    wanted = [key for _, _, key, source in _origins(table, changes) if source is None]
    schema = keys_of(table).schema
    places = dict(zip(_keys(table, changes.old), range(len(changes.old)), strict=True))
    rows = changes.new.select(schema.names).cast(schema)
    places |= {key: len(changes.old) + place for place, key in enumerate(_keys(table, changes.new))}
    both = pa.concat_tables([changes.old.cast(schema), rows])
    return both.take(pa.array([places[key] for key in dict.fromkeys(wanted)], pa.int64()))


def filled(table: TableSpec, changes: Changes, base: pa.Table) -> Changes:
    """The changes with the values of what they left out; `base` are rows of the table, those of `lacking_keys` too.

    Raises `SchemaMismatch` where there is no such row.
    """
    if not changes.unchanged:
        return changes
    here = {key: len(changes.new) + place for place, key in enumerate(_keys(table, base))}
    taken = {name: np.arange(len(changes.new)) for name in changes.new.schema.names}
    for number, names, key, source in _origins(table, changes):
        row = here.get(key) if source is None else source
        if row is None:
            shown = ", ".join(f"{name} = {value}" for name, value in zip(table.primary_key, key, strict=True))
            raise SchemaMismatch(
                f"change {number} of table '{table.name}' leaves column '{names[0]}' of the row with {shown} as it "
                "is, and there is no such row"
            )
        for name in names:
            taken[name][changes.new_at[number]] = row if row >= len(changes.new) else taken[name][row]
    columns = []
    for name in changes.new.schema.names:
        both = pa.chunked_array(
            [*changes.new.column(name).chunks, *base.column(name).chunks], changes.new.schema.field(name).type
        )
        columns.append(both.take(taken[name]))
    return evolve(changes, new=pa.Table.from_arrays(columns, schema=changes.new.schema), unchanged={})


def _after_truncate(changes: Changes) -> int:
    """The number of the first change after which no TRUNCATE comes."""
    found = np.flatnonzero(changes.ops == _TRUNCATE)
    return int(found[-1]) + 1 if len(found) else 0


def _origins(table: TableSpec, changes: Changes) -> Iterator[tuple[int, tuple[str, ...], Key, int | None]]:
    """Of each change that leaves columns out: its number, those, the key it finds them under, and the row of `new` that
    has them; None where that is a row of the table."""
    if not changes.unchanged:
        return
    had, has = _keys(table, changes.old), _keys(table, changes.new)
    rows: dict[Key, int | None] = {}  # that changes so far have left; None for keys that have none
    emptied = False
    for number in range(len(changes)):
        old_at, new_at = int(changes.old_at[number]), int(changes.new_at[number])
        if changes.ops[number] == _TRUNCATE:
            rows, emptied = {}, True
            continue
        key = had[old_at] if old_at >= 0 else has[new_at]
        names = changes.unchanged.get(number)
        if names is not None:
            source = rows.get(key)
            if source is None and (emptied or key in rows):
                raise SchemaMismatch(
                    f"change {number} of table '{table.name}' leaves column '{names[0]}' as it is, of a row that an "
                    "earlier change has taken away"
                )
            yield number, names, key, source
        if old_at >= 0:
            rows[key] = None
        if new_at >= 0:
            rows[has[new_at]] = new_at


def _keys(table: TableSpec, rows: pa.Table) -> list[Key]:
    return keys_of_rows(rows, table.primary_key)


__all__ = ["Net", "Places", "filled", "lacking_keys", "net_of"]
