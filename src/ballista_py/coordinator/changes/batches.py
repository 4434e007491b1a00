"""Batches of changes as they come: looked at, and held against the table that they are for; pure.

A batch has the columns `op` (`insert`, `update`, `delete` or `truncate`), `old` (a struct: at least the primary key
that the row had), `new` (a struct: the columns of the table), and, if need be, `unchanged` (a list: columns of `new`
that are as they were, and null there because the source did not send them).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, field, frozen

from ballista_py.errors import SchemaMismatch, SqlError
from ballista_py.partitions.conform import check_columns, conform
from ballista_py.partitions.table import TableSpec

OPS: Final = ("insert", "update", "delete", "truncate")
COLUMNS: Final = ("op", "old", "new", "unchanged")
_SHOWN = 40
Places = npt.NDArray[np.int64]


@frozen(kw_only=True)
class Changes:
    """Changes of one table in their order.

    `ops` are numbers of `OPS`. Change `n` has the key `old[old_at[n]]` before it and the row `new[new_at[n]]` after it;
    -1 where there is none, or the key stays. `unchanged` names, by change, columns that are as they were.
    """

    ops: Places = field(eq=False)
    old: pa.Table
    old_at: Places = field(eq=False)
    new: pa.Table
    new_at: Places = field(eq=False)
    unchanged: dict[int, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.ops)


def keys_of(table: TableSpec) -> TableSpec:
    """The table as if it had no columns but its primary key."""
    columns = [table.schema.field(name).with_nullable(False) for name in table.primary_key]
    return evolve(table, schema=pa.schema(columns), checks=())


def require_key(table: TableSpec) -> None:
    """Raise `SqlError` for a table without a primary key, whose rows no change can name."""
    if not table.primary_key:
        raise SqlError(
            f"table '{table.name}' has no primary key by which changes could name its rows: declare primary_key=[…] "
            "when it is made"
        )


def puts(table: TableSpec, rows: pa.Table) -> Changes:
    """Rows (of the table's schema) that take the place of those of their keys, or come to the table."""
    places = np.arange(len(rows), dtype=np.int64)
    return Changes(
        ops=np.zeros(len(rows), np.int64),
        old=keys_of(table).schema.empty_table(),
        old_at=np.full(len(rows), -1, np.int64),
        new=rows,
        new_at=places,
        unchanged={},
    )


def read_changes(table: TableSpec, batches: Iterable[pa.RecordBatch]) -> Changes:
    """The changes of some batches, in the columns of the table; nothing is left to be found wrong with them but what
    only the rows of the table tell, or its checks.

    Raises `SqlError` for a table without a primary key, and `SchemaMismatch` naming column and row.
    """
    require_key(table)
    whole = [_checked(table, batch) for batch in batches]
    if not whole:
        return puts(table, table.schema.empty_table())
    given = pa.Table.from_batches(whole)
    ops = np.asarray(pc.index_in(given.column("op"), pa.array(OPS)).fill_null(-1), dtype=np.int64)
    _require(table, ops < 0, "has an op that is none of insert, update, delete and truncate")
    has_old, has_new = (np.asarray(pc.is_valid(given.column(name))) for name in ("old", "new"))
    insert, update, delete, truncate = (ops == number for number in range(len(OPS)))
    _require(table, (insert | update) & ~has_new, "puts a row in, and has none in 'new'")
    _require(table, delete & ~has_old, "deletes a row, and has no key in 'old'")
    _require(table, (insert | truncate) & has_old, "needs no key in 'old', and has one")
    _require(table, (delete | truncate) & has_new, "leaves no row, and has one in 'new'")
    return Changes(
        ops=ops,
        old=_rows(keys_of(table), given, "old", has_old),
        old_at=_places(has_old),
        new=_rows(_lenient(table), given, "new", has_new),
        new_at=_places(has_new),
        unchanged=_unchanged(table, given, has_new & update),
    )


def _checked(table: TableSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
    names = batch.schema.names
    unknown = next((name for name in names if name not in COLUMNS or names.count(name) > 1), None)
    lacking = next((name for name in COLUMNS[:3] if name not in names), None)
    if unknown is not None or lacking is not None:
        wrong = f"a column '{unknown}' too many" if lacking is None else f"no column '{lacking}'"
        raise SchemaMismatch(f"changes of table '{table.name}' have the columns op, old, new; these have {wrong}")
    for name in ("old", "new"):
        kind = batch.schema.field(name).type
        if not pa.types.is_struct(kind):
            raise SchemaMismatch(f"column '{name}' of changes is a struct of columns of the table, not {kind}")
    try:
        op = batch.column("op").cast(pa.string())
        unchanged = (
            batch.column("unchanged").cast(pa.list_(pa.string()))
            if "unchanged" in names
            else pa.nulls(len(batch), pa.list_(pa.string()))
        )
    except pa.ArrowException:
        raise SchemaMismatch("column 'op' of changes is a text, and 'unchanged' a list of texts") from None
    return pa.record_batch([op, batch.column("old"), batch.column("new"), unchanged], names=list(COLUMNS))


def _require(table: TableSpec, wrong: npt.NDArray[np.bool_], what: str) -> None:
    if wrong.any():
        raise SchemaMismatch(f"change {int(wrong.argmax())} of table '{table.name}' {what}")


def _places(has: npt.NDArray[np.bool_]) -> Places:
    return np.where(has, np.cumsum(has) - 1, -1).astype(np.int64)


def _lenient(table: TableSpec) -> TableSpec:
    """The table as if its columns could be null, but for the key: what is unchanged is not there yet."""
    key = set(table.primary_key)
    columns = [column if column.name in key else pa.field(column.name, column.type) for column in table.schema]
    return evolve(table, schema=pa.schema(columns), checks=())


def _rows(wanted: TableSpec, given: pa.Table, name: str, has: npt.NDArray[np.bool_]) -> pa.Table:
    """The structs that there are, as rows of the columns that are wanted."""
    structs = given.column(name).combine_chunks().filter(pa.array(has))
    fields = [structs.type.field(place) for place in range(structs.type.num_fields)]
    rows = pa.RecordBatch.from_arrays(structs.flatten(), schema=pa.schema(fields))
    if name == "old":  # sources that say more than the key are welcome to
        lacking = next((key for key in wanted.schema.names if rows.schema.names.count(key) != 1), None)
        if lacking is not None and len(rows):
            raise SchemaMismatch(
                f"'old' has no column '{lacking}', which the primary key of table '{wanted.name}' has"
            )
        if lacking is not None:
            return wanted.schema.empty_table()
        rows = rows.select(wanted.schema.names)
    if not len(rows) and not fields:
        return wanted.schema.empty_table()
    check_columns(wanted, rows.schema)
    return pa.Table.from_batches([conform(wanted, rows)], schema=wanted.schema)


def _unchanged(table: TableSpec, given: pa.Table, may: npt.NDArray[np.bool_]) -> dict[int, tuple[str, ...]]:
    lists = given.column("unchanged")
    if lists.null_count == len(lists):
        return {}
    free = set(table.schema.names) - set(table.primary_key)
    found = {}
    for number, names in enumerate(lists.to_pylist()):
        if not names:
            continue
        wrong = next((name for name in names if name not in free), None)
        if wrong is not None or not may[number]:
            shown = "something" if wrong is None else f"'{str(wrong)[:_SHOWN]}'"
            raise SchemaMismatch(
                f"change {number} of table '{table.name}' says that {shown} is unchanged: only an update has that, of "
                "columns that are not in the primary key"
            )
        found[number] = tuple(dict.fromkeys(names))
    return found
