"""Which rows of a part have places, so that a grant of them can be cut."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ballista_py.owner.part_reads import PartReads


@pytest.mark.parametrize(
    ("row_by_row", "process", "wanted"),
    [(True, True, True), (False, True, False), (False, False, True), (True, False, True)],
)
def test_rows_have_places_unless_a_plan_looks_at_several_of_them(row_by_row, process, wanted):
    assert PartReads.has_places(None, SimpleNamespace(row_by_row=row_by_row), process) is wanted
