"""The rows of a part of a read job as they lie in its files, from a position on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from ballista_py.errors import InvalidData
from ballista_py.transport.table_read.exchange import PartAnswer
from ballista_py.transport.table_read.tokens.positions import START, Position

S = TypeVar("S")


def sections_from(number: int, sections: Sequence[S], begin: Position) -> list[tuple[int, S, int]]:
    """The sections of part `number` from `begin` on, each with its number and its first row that is wanted.

    Raises `InvalidData` for a section that there is not.
    """
    if begin.section >= len(sections) and begin != START:
        raise InvalidData(
            f"partition {number} of the read job has {len(sections)} sections, and none {begin.section}"
        )
    return [
        (section, sections[section], begin.row if section == begin.section else 0)
        for section in range(begin.section, len(sections))
    ]


def rows_from(
    batches: Iterable[pa.RecordBatch], first: int, schema: pa.Schema
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows from the row `first` on under `schema`, each batch with the number of its first row."""
    at = 0
    for batch in batches:
        if at + batch.num_rows > first:
            skipped = max(first - at, 0)
            yield at + skipped, pa.RecordBatch.from_arrays(batch.slice(skipped).columns, schema=schema)
        at += batch.num_rows


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
    wanted = sections_from(number, sections, begin)

    def rows() -> Iterator[tuple[Position, pa.RecordBatch]]:
        for section, one, first in wanted:
            for at, batch in rows_from(read(one), first, schema):
                yield Position(section, at), batch

    return PartAnswer(schema=schema, batches=rows(), processed=False)
