"""Parameters that come as unions, as drivers of JDBC and ODBC bind them: each becomes the values that it holds.

A union says for each row which of its types the value has. A statement takes one type a parameter, so all rows of one
must have the same, but for those that are NULL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ballista_py.errors import SqlError


def without_unions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a valid batch with values instead of unions. Raises `SqlError` for a parameter of several types.

    >>> one = pa.UnionArray.from_dense(
    ...     pa.array([1, 1], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array(["a"]), pa.array([7, 8])]
    ... )
    >>> without_unions(pa.record_batch([one], ["p"])).column(0).to_pylist()
    [7, 8]
    """
    if not any(pa.types.is_union(kind) for kind in batch.schema.types):
        return batch
    columns = [_values(number, column) for number, column in enumerate(batch.columns, 1)]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def combined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of the rows of all; there is one at least. Raises `SqlError` if a parameter has several types.

    Columns are those of a place, whatever they are called: a driver may call all of them alike.
    """
    try:
        table = pa.concat_tables(map(_table, batches), promote_options="default").combine_chunks()
    except pa.ArrowException:
        raise SqlError("a parameter has values of several types: bind rows of one type at a time") from None
    found: pa.RecordBatch = table.to_batches()[0]
    return found.rename_columns(batches[0].schema.names)


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch]).rename_columns([str(place) for place in range(batch.num_columns)])


def _values(number: int, column: Any) -> pa.Array:
    """The values of parameter `number`, of the one type that they have."""
    while pa.types.is_union(column.type):
        codes = np.asarray(column.type_codes)
        dense = column.type.id == pa.lib.Type_DENSE_UNION
        places = np.asarray(column.offsets) if dense else np.arange(len(column))
        used = [index for index, code in enumerate(column.type.type_codes) if (codes == code).any()]
        found = {index: _of_child(column, index, codes, places) for index in used}
        holding = [index for index in used if found[index].null_count < len(column)]
        if len(holding) > 1:
            kinds = " and ".join(str(column.type.field(index).type) for index in holding)
            raise SqlError(
                f"parameter {number} has values of several types ({kinds}): bind rows of one type at a time"
            )
        if not holding and len(used) != 1:
            return pa.nulls(len(column))
        column = found[(holding or used)[0]]
    return column


def _of_child(column: Any, index: int, codes: Any, places: Any) -> pa.Array:
    """What the rows have that are of this type; NULL for the others."""
    mine = codes == column.type.type_codes[index]
    return column.field(index).take(pa.array(np.where(mine, places, 0), pa.int64(), mask=~mine))
