"""Which rows of a part have places, so that a grant of them can be cut."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ballista_py.owner.part_reads import PartReads


@pytest.mark.parametrize(
    ("plan", "process", "wanted"),
    [
        ("SELECT id FROM t WHERE v > 3", True, True),
        ("SELECT count(*) AS n FROM t", True, False),
        ("SELECT id, row_number() OVER (ORDER BY id) AS n FROM t", True, False),
        ("SELECT count(*) AS n FROM t", False, True),
    ],
)
def test_rows_have_places_unless_a_plan_looks_at_several_of_them(plan, process, wanted):
    assert PartReads.has_places(None, SimpleNamespace(plan=plan), process) is wanted
