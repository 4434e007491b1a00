"""Places in a partition, and ranges between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import InvalidData
from ballista_py.transport.table_read.tokens.positions import START, Position, RowRange, Sections, is_covered

SECTIONS = st.lists(st.integers(0, 4), max_size=6).map(lambda rows: Sections(tuple(rows)))


@given(SECTIONS, st.data())
def test_every_place_has_one_name_and_names_are_in_the_order_of_the_rows(sections, data):
    names = [sections.at(offset) for offset in range(sections.total + 1)]
    assert names == sorted(set(names))
    assert [sections.offset(name) for name in names] == list(range(sections.total + 1))
    assert names[0] == sections.first
    assert names[-1] == sections.end
    offset, rows = data.draw(st.integers(0, sections.total)), data.draw(st.integers(0, 30))
    assert sections.after(names[offset], rows) == names[min(offset + rows, sections.total)]


@given(SECTIONS)
def test_the_other_names_of_a_place_are_understood(sections):
    for number, rows in enumerate(sections.rows):
        for row in range(rows + 1):
            assert sections.offset(Position(number, row)) == sum(sections.rows[:number]) + row
            assert sections.named(Position(number, row)) == sections.at(sections.offset(Position(number, row)))


@pytest.mark.parametrize(
    "place", [Position(2, 1), Position(3, 0), Position(0, 4), Position(-1, 0), Position(1, -1)]
)
def test_a_place_that_there_is_not_is_an_error(place):
    with pytest.raises(InvalidData):
        Sections((3, 2)).offset(place)


def test_there_is_no_place_before_the_first_row_or_behind_the_last():
    for offset in (-1, 6):
        with pytest.raises(InvalidData):
            Sections((3, 2)).at(offset)
    with pytest.raises(InvalidData):
        Sections((3, -1))


def test_a_range_is_within_another_when_no_row_of_it_is_outside():
    five, nine = Position(0, 5), Position(0, 9)
    assert RowRange(five, nine).is_within(RowRange(START, None))
    assert RowRange(five, nine).is_within(RowRange(five, nine))
    assert not RowRange(START, nine).is_within(RowRange(five, None))
    assert not RowRange(five, None).is_within(RowRange(START, nine))
    assert not RowRange(START, nine).is_within(RowRange(START, five))


def test_what_is_left_of_a_range_begins_where_the_done_part_ends():
    five, nine = Position(0, 5), Position(0, 9)
    assert RowRange(START, nine).rest(RowRange(START, five)) == RowRange(five, nine)
    assert RowRange(START, None).rest(RowRange(START, five)) == RowRange(five, None)
    assert RowRange(START, nine).rest(RowRange(START, nine)) is None
    assert RowRange(START, None).rest(RowRange(START, None)) is None


def test_ranges_cover_a_partition_when_none_is_missing_and_none_is_twice():
    five, nine = Position(0, 5), Position(0, 9)
    parts = [RowRange(five, nine), RowRange(nine, None), RowRange(START, five)]
    assert is_covered(parts, START, None)
    assert is_covered(parts[:1] + parts[2:], START, nine)
    assert not is_covered(parts, START, nine)
    assert not is_covered([*parts, RowRange(five, nine)], START, None)
    assert not is_covered(parts[1:], START, None)
    assert not is_covered([], START, None)
    assert is_covered([], START, START)
