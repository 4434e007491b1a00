"""Empty unions as they come out of IPC messages, made such as pyarrow survives.

Reading a union of no values, at the top or inside a list, leaves it without its buffer of type codes; that is valid,
and pyarrow ends the process when it is asked for `nbytes` or the offsets of such an array.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.lib as lib

_UNIONS = (lib.Type_SPARSE_UNION, lib.Type_DENSE_UNION)


def with_whole_unions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch itself, unless it has unions: then the same rows, in which an empty one has all its buffers."""
    if not any(has_union(kind) for kind in batch.schema.types):
        return batch
    return pa.RecordBatch.from_arrays([_whole(column) for column in batch.columns], schema=batch.schema)


def has_union(kind: pa.DataType) -> bool:
    """Whether arrays of the type hold unions, at any depth."""
    return kind.id in _UNIONS or any(has_union(kind.field(number).type) for number in range(kind.num_fields))


def _whole(array: Any) -> pa.Array:
    kind = array.type
    if not has_union(kind):
        return array
    own = array.buffers()[: kind.num_buffers]
    if kind.id in _UNIONS and not len(array):
        own = [None, *(pa.py_buffer(b"") for _ in own[1:])]
    if kind.id in _UNIONS or kind.id == lib.Type_STRUCT:
        children = [_whole(array.field(number)) for number in range(kind.num_fields)]
    else:
        children = [_whole(array.values)]
    return pa.Array.from_buffers(kind, len(array), own, offset=array.offset, children=children)
