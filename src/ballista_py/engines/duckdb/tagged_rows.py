"""The rows of data files on their way into a native table: each tagged, counted and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ballista_py.engines.apart.large import LargeByFile
from ballista_py.storage.formats.deletion_vector import Places
from ballista_py.storage.formats.local_file import Loadable

FILE_ID = "__file_id"  # of a row: the label above, its place in the data file below
PLACE_BITS = 32


def tags(label: int, places: Places) -> Places:
    """What rows at these places of a file are tagged with, under a label."""
    return (np.int64(label) << PLACE_BITS) + places


class TaggedRows:
    """The rows of files as one stream, each with its tag in front. Keeps the error that a file raised."""

    def __init__(
        self, schema: pa.Schema, files: Sequence[Loadable], labels: Mapping[int, int], counts: dict[int, int]
    ) -> None:
        self.error: BaseException | None = None
        self._schema = schema
        self._files = files
        self._labels = labels
        self._counts = counts
        self.large = LargeByFile()

    @property
    def rows(self) -> int:
        return sum(self._counts.values())

    def reader(self) -> pa.RecordBatchReader:
        fields = [(FILE_ID, pa.int64()), *zip(self._schema.names, self._schema.types, strict=True)]
        return pa.RecordBatchReader.from_batches(pa.schema(fields), self._batches(pa.schema(fields)))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for file in self._files:
                for places, batch in file.numbered(self._schema):
                    tag = pa.array(tags(self._labels[file.file_id], places))
                    self._counts[file.file_id] += batch.num_rows
                    self.large.note(file.file_id, batch)
                    yield pa.RecordBatch.from_arrays([tag, *batch.columns], schema=schema)
        except GeneratorExit:  # nobody reads on, which is no error of the rows
            raise
        except BaseException as error:
            self.error = error
            raise
