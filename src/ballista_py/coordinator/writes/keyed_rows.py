"""Changes by primary key on their way to owners: rows that come, and keys whose rows go, in one form; pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ballista_py.partitions.map import NOBODY, PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.transport.flight.commands import GONE_COLUMN

BATCH_ROWS = 65_536


def keyed_schema(table: TableSpec) -> pa.Schema:
    """The columns of the rows: those of the table, null but for the key where the row goes, and whether it does."""
    kept = set(table.primary_key)
    columns = [column if column.name in kept else column.with_nullable(True) for column in table.schema]
    return pa.schema([*columns, pa.field(GONE_COLUMN, pa.bool_(), nullable=False)])


def keyed_rows(table: TableSpec, come: pa.Table, gone: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows that come (of the table's schema), then those of the keys that are `gone`, in batches."""
    schema = keyed_schema(table)
    for rows, goes in ((come, False), (gone, True)):
        for batch in rows.to_batches(BATCH_ROWS):
            columns = [
                batch.column(field.name) if field.name in rows.schema.names else pa.nulls(len(batch), field.type)
                for field in table.schema
            ]
            flags = pa.repeat(pa.scalar(goes), len(batch))
            yield pa.RecordBatch.from_arrays([*columns, flags], schema=schema)


def in_known_partitions(pmap: PartitionMap, keys: pa.Table) -> pa.Table:
    """The keys whose partitions there are: nothing can be there under the others, which need none for that."""
    if not pmap.spec.keys:
        return keys
    found = [
        batch.filter(pc.not_equal(pa.array(pmap.lookup(pmap.spec.evaluate(batch), batch.num_rows)), NOBODY))
        for batch in keys.to_batches()
    ]
    return pa.Table.from_batches(found, schema=keys.schema)
