"""The rows of an immutable data file, ready to be loaded: as a plain file of this machine, or still at hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.columns import in_fills, is_same, restored, stored_names
from ballista_py.storage.formats.deletion_vector import NONE_GONE, Places, numbered
from ballista_py.storage.formats.formats import file_format


@frozen(kw_only=True)
class LocalFile:
    """An immutable data file on this machine. `file_id` is unique in the process for the life of the engine.

    `name` is what errors call it: the key on the object store, never a path of this machine. The rows at the places
    `gone` are not of it any more.
    """

    file_id: int
    path: str
    format: str = "parquet"
    name: str = ""
    gone: Places = field(default=NONE_GONE, eq=False, repr=False)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows under exactly `schema`. Raises `DocumentUnreadable`, `SchemaMismatch`."""
        return (batch for _, batch in self.numbered(schema))

    def numbered(self, schema: pa.Schema) -> Iterator[tuple[Places, pa.RecordBatch]]:
        """The same with the places of the rows in the file."""
        return numbered(file_format(self.format, self.name).read_batches(self.path, schema, self.name), self.gone)


@frozen(kw_only=True, eq=False)
class RowsAtHand:
    """The rows that were just written to a data file, which need not be read back. `rows` have the schema that the
    table had then."""

    file_id: int
    rows: pa.Table

    def numbered(self, schema: pa.Schema) -> Iterator[tuple[Places, pa.RecordBatch]]:
        """As `batches`, with the places of the rows."""
        return numbered(self.batches(schema))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows under exactly `schema`. Raises `SchemaMismatch` where that is the schema of another table."""
        if is_same(self.rows.schema, schema):
            yield from self.rows.to_batches()
            return
        held = stored_names(self.rows.schema)
        try:
            for batch in self.rows.to_batches():
                for part in in_fills(batch, held, schema):
                    yield restored(part, schema)
        except (KeyError, pa.ArrowException):  # which took the place of theirs
            raise SchemaMismatch("the rows were made for another table of that name") from None


Loadable: TypeAlias = LocalFile | RowsAtHand
