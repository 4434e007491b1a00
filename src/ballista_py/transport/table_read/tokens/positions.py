"""Places in a partition that is read, and the ranges between them.

A place is (section, row) of the input in the order of the manifest: the same at every location that can give
that order, so that one goes on where another stopped. A range is cut only at places that one side named, and
both sides then hold the very same values; so ranges are compared by their ends and nothing is ever rounded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from attrs import field, frozen

from ballista_py.errors import InvalidData


@frozen(order=True)
class Position:
    """A place between two rows: before `row` of `section`, both counted from 0. Places are ordered."""

    section: int
    row: int


START = Position(0, 0)


def _counts(_: object, __: object, rows: tuple[int, ...]) -> None:
    if any(count < 0 for count in rows):
        raise InvalidData("a section of a partition has at least 0 rows")


@frozen
class Sections:
    """How many rows each section of a partition has, in the order of the manifest.

    Every place has one name only: before the row that comes next, and at the end the section after the last one.

    >>> sections = Sections((10, 0, 5))
    >>> sections.at(10), sections.end, sections.offset(Position(2, 1))
    (Position(section=2, row=0), Position(section=3, row=0), 11)
    >>> sections.after(Position(0, 8), 3)
    Position(section=2, row=1)

    Raises `InvalidData` for counts below 0.
    """

    rows: tuple[int, ...] = field(validator=_counts)
    _before: tuple[int, ...] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_before", (0, *accumulate(self.rows)))

    @property
    def total(self) -> int:
        """How many rows the partition has."""
        return self._before[-1]

    @property
    def end(self) -> Position:
        return Position(len(self.rows), 0)

    @property
    def first(self) -> Position:
        """Where the first row is; the end, if there is none."""
        return self.at(0)

    def offset(self, position: Position) -> int:
        """How many rows are before a place. Raises `InvalidData` for a place that the partition does not have."""
        section, row = position.section, position.row
        if position == self.end:
            return self.total
        if not 0 <= section < len(self.rows) or not 0 <= row <= self.rows[section]:
            raise InvalidData(
                f"section {section} row {row} is no place of a partition of {len(self.rows)} sections"
            )
        return self._before[section] + row

    def at(self, offset: int) -> Position:
        """The place with so many rows before it. Raises `InvalidData` if there are not so many."""
        if not 0 <= offset <= self.total:
            raise InvalidData(f"a partition of {self.total} rows has no place behind {offset} of them")
        if offset == self.total:
            return self.end
        section = bisect_right(self._before, offset) - 1
        return Position(section, offset - self._before[section])

    def after(self, position: Position, rows: int) -> Position:
        """The place so many rows further on, or the end. Raises `InvalidData` for a place that there is not."""
        return self.at(min(self.offset(position) + rows, self.total))

    def named(self, position: Position) -> Position:
        """The one name of a place. Raises `InvalidData` for a place that there is not."""
        return self.at(self.offset(position))


@frozen
class RowRange:
    """The rows from `start` up to `end`, without the one behind it; an `end` of None is the end of the partition.

    >>> RowRange(START, Position(0, 5)).is_within(RowRange(START, None))
    True
    """

    start: Position
    end: Position | None

    def is_within(self, other: RowRange) -> bool:
        """Whether it starts where `other` does or later, and ends where that does or before."""
        ends = other.end is None or (self.end is not None and self.end <= other.end)
        return self.start >= other.start and ends

    def rest(self, done: RowRange) -> RowRange | None:
        """What is left of it behind `done`, which starts where it does; None if that is nothing."""
        if done.end is None or done.end == self.end:
            return None
        return RowRange(done.end, self.end)


def is_covered(ranges: Iterable[RowRange], start: Position, end: Position | None) -> bool:
    """Whether ranges are all from `start` to `end`, without gaps and none of it twice.

    >>> halves = [RowRange(Position(0, 5), None), RowRange(START, Position(0, 5))]
    >>> is_covered(halves, START, None), is_covered(halves[1:], START, None)
    (True, False)
    """
    reached: Position | None = start
    for one in sorted(ranges, key=lambda one: one.start):
        if one.start != reached:
            return False
        reached = one.end
    return reached == end
