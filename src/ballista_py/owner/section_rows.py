"""The rows of a part of a read job as they lie in its files, from a position on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from ballista_py.errors import InvalidData
from ballista_py.transport.table_read.exchange import PartAnswer
from ballista_py.transport.table_read.tokens.positions import START, Position

S = TypeVar("S")


def section_rows(
    number: int,
    sections: Sequence[S],
    read: Callable[[S], Iterator[pa.RecordBatch]],
    begin: Position,
    schema: pa.Schema,
) -> PartAnswer:
    """All rows of the sections of part `number` from `begin` on, one section after the other, under `schema`.

    Raises `InvalidData` for a section that there is not; the batches raise what reading them raises.
    """
    if begin.section >= len(sections) and begin != START:
        raise InvalidData(
            f"partition {number} of the read job has {len(sections)} sections, and none {begin.section}"
        )

    def rows() -> Iterator[tuple[Position, pa.RecordBatch]]:
        for section in range(begin.section, len(sections)):
            skipped = begin.row if section == begin.section else 0
            at = 0
            for batch in read(sections[section]):
                if at + batch.num_rows > skipped:
                    first = max(skipped - at, 0)
                    shown = pa.RecordBatch.from_arrays(batch.slice(first).columns, schema=schema)
                    yield Position(section, at + first), shown
                at += batch.num_rows

    return PartAnswer(schema=schema, batches=rows(), processed=False)
