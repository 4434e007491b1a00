"""The 99 TPC-DS queries give the single-node answer, however the tables are cut."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

LAYOUTS = ("together", "apart", "one bucket")
QUERIES = tuple(f"q{number:02}" for number in range(1, 100))
SHAPES = ((1, 1), (2, 1), (5, 1), (3, 2))  # executors, replicas


@pytest.mark.share(3)
@pytest.mark.parametrize("name", QUERIES)
def test_every_query_gives_the_single_node_answer(cut: Any, texts: dict[str, str], name: str) -> None:
    layout = LAYOUTS[QUERIES.index(name) % 3]
    plan = cut(layout, 0.01, 3, 1).check(texts[name])
    assert not any("everything" in note for note in plan.notes), plan.notes


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(("layout", "shape"), list(product(LAYOUTS, SHAPES)))
def test_every_query_in_every_layout(cut: Any, texts: dict[str, str], layout: str, shape: tuple[int, int]) -> None:
    cluster = cut(layout, 0.1, *shape)
    for name in QUERIES:
        plan = cluster.check(texts[name])
        assert not any("everything" in note for note in plan.notes), (name, plan.notes)
