"""The 22 TPC-H queries give the single-node answer, however the tables are cut."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("tpch_queries", Path(__file__).with_name("tpch_queries.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_QUERIES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_QUERIES)


LAYOUTS = ("together", "together, replicated twice", "apart", "one bucket", "one executor")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", _QUERIES.QUERIES)
def test_every_tpch_query_gives_the_single_node_answer(tpch: Any, name: str, layout: str) -> None:
    plan = tpch(layout).check(_QUERIES.QUERIES[name], ordered=True)
    assert not any("everything" in note for note in plan.notes), plan.notes
