"""The rows of a table as PostgreSQL's COPY writes them, in CSV, as batches of a table here; pure.

Arrow's reader takes the lines apart, which costs less than half of what rows one by one do. CSV tells what is null
(nothing) from what is an empty text (two quotes), and keeps ends of lines within quotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.csv as csv

from ballista_py.coordinator.changes.postgres_types import values

BLOCK_BYTES = 4 << 20  # of lines that are taken apart at once
_MARK = "\ufeff".encode()  # the reader leaves one out at the beginning, which may be the first letter of a value


def rows_of_copy(there: str, schema: pa.Schema, lines: Iterable[bytes | memoryview]) -> Iterator[pa.RecordBatch]:
    """The rows of the table `there`, each of which is one of the `lines`: a text for each column of `schema`.

    Raises `SourceUnfit` naming the column and the value that its type here cannot hold.

    >>> lines = [b'1,"a, b"\\n', b'2,\\n', b'3,""\\n']
    >>> schema = pa.schema({"id": pa.int64(), "word": pa.string()})
    >>> [batch.to_pydict() for batch in rows_of_copy("public.t", schema, lines)]
    [{'id': [1, 2, 3], 'word': ['a, b', None, '']}]
    """
    block = bytearray(_MARK)
    for line in lines:
        block += line
        if len(block) >= BLOCK_BYTES:
            yield _rows_of_block(there, schema, bytes(block))
            block = bytearray(_MARK)
    if len(block) > len(_MARK):
        yield _rows_of_block(there, schema, bytes(block))


def _rows_of_block(there: str, schema: pa.Schema, block: bytes) -> pa.RecordBatch:
    places = [str(place) for place in range(len(schema))]  # names may be anything
    texts = csv.read_csv(
        pa.BufferReader(block),
        csv.ReadOptions(column_names=places, block_size=len(block) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(places, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks()
    columns = [
        values(there, column.name, text, column.type)
        for column, text in zip(schema, texts.to_batches()[0].columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([(c.name, c.type) for c in schema]))
