"""The 22 TPC-H queries give the single-node answer, however the tables are cut."""

from __future__ import annotations

from typing import Any

import pytest

from ballista_py.node.demo.tpch_queries import QUERIES

LAYOUTS = ("together", "together, replicated twice", "apart", "one bucket", "one executor")


@pytest.mark.share(3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", QUERIES)
def test_every_tpch_query_gives_the_single_node_answer(tpch: Any, name: str, layout: str) -> None:
    plan = tpch(layout).check(QUERIES[name], ordered=True)
    assert not any("everything" in note for note in plan.notes), plan.notes
