"""Rows of sections from a position on: each once, with where its batch begins."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import InvalidData
from ballista_py.owner.section_rows import section_rows
from ballista_py.transport.table_read.tokens.positions import START, Position

SCHEMA = pa.schema([("place", pa.string())])
layouts = st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4)  # rows of batches of sections


def read(layout, number):
    """The batches of a section; each row says where it is."""
    at = 0
    for rows in layout[number]:
        yield pa.record_batch([[f"{number}.{at + row}" for row in range(rows)]], SCHEMA)
        at += rows


@given(layouts, st.data())
def test_whoever_goes_on_gets_the_rest_and_knows_where_it_is(layout, data):
    section = data.draw(st.integers(0, len(layout) - 1))
    begin = Position(section, data.draw(st.integers(0, sum(layout[section]))))
    answer = section_rows(0, range(len(layout)), lambda number: read(layout, number), begin, SCHEMA)
    all_places = [(number, row) for number, batches in enumerate(layout) for row in range(sum(batches))]
    wanted = [f"{number}.{row}" for number, row in all_places if (number, row) >= (begin.section, begin.row)]
    found = []
    for at, batch in answer.batches:
        places = batch.column(0).to_pylist()
        assert places == [f"{at.section}.{at.row + row}" for row in range(len(places))]
        found += places
    assert found == wanted
    assert not answer.processed


def test_a_section_that_there_is_not_is_an_error_but_for_the_begin_of_nothing():
    with pytest.raises(InvalidData, match="has 2 sections, and none 2"):
        section_rows(0, range(2), lambda number: iter(()), Position(2, 0), SCHEMA)
    assert list(section_rows(0, [], lambda number: iter(()), START, SCHEMA).batches) == []
