"""INSERT OVERWRITE at a scheduler: which partitions it replaces. All of them, or those with the values of PARTITION.

The values are those of columns that partitions are made of, so these partitions hold all rows with them and no others.
"""

from __future__ import annotations

from collections.abc import Callable

from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.errors import SqlError
from ballista_py.partitions.key import PartitionKey
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.inserts import Insert

Replaced = Callable[[PartitionMap], list[int]]


def every_partition(pmap: PartitionMap) -> list[int]:
    """All partitions of a table."""
    found: list[int] = pmap.ids().tolist()
    return found


def replaced_by(change: Insert, table: TableSpec, checks: RowChecks) -> Replaced:
    """Which partitions the statement replaces, in whatever map there is then. Raises `SqlError`."""
    if not change.fixed:
        return every_partition
    keys = _keys_of_columns(table)
    named = dict(change.fixed)
    for name in named:
        if name not in keys:
            raise SqlError(
                f"INSERT OVERWRITE with PARTITION ({name}) cannot be run here: partitions of table '{table.name}' are "
                f"not made of this column itself; {_AT_ONCE}"
            )
    lacking = [name for name in keys if name not in named]
    if lacking:
        raise SqlError(
            f"INSERT OVERWRITE with PARTITION needs a value for each column that partitions of table '{table.name}' "
            f"are made of: {', '.join(lacking)} has none; {_AT_ONCE}"
        )
    wanted = {keys[name].name: [_key_value(table, keys[name], text, checks)] for name, text in named.items()}

    def matching(pmap: PartitionMap) -> list[int]:
        found: list[int] = pmap.matching(wanted).tolist()
        return found

    return matching


_AT_ONCE = (
    "to replace other rows at one instant use MERGE INTO … ON false WHEN NOT MATCHED BY SOURCE AND … THEN DELETE "
    "WHEN NOT MATCHED THEN INSERT …"
)


def _keys_of_columns(table: TableSpec) -> dict[str, PartitionKey]:
    return {key.column.lower(): key for key in table.spec.keys if key.kind == "column" and key.column is not None}


def _key_value(table: TableSpec, key: PartitionKey, text: str, checks: RowChecks) -> object:
    """The value in partition maps of a constant of the column."""
    assert key.column is not None
    column = table.schema.field(key.column)
    value = checks.constant(column, text)
    return key.evaluate({key.column: value}, 1, table.spec.time_zone)[0].as_py()
