"""The page about what a cluster shows of itself lists all of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ballista_py.coordinator.queries.runtime_tables import HISTORY, RUNTIME_SCHEMAS
from ballista_py.node.status.figure_names import FIGURES, NOT_YET
from ballista_py.node.status.tasks import SPANS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide-observing.md").read_text()
GAUGE = re.compile(r'(?:gauge|counter)\(\s*"([a-z_]+)"')


def named_in_source() -> set[str]:
    """Counters, histograms and gauges."""
    found = {name for figures in FIGURES.values() for name in figures}
    for path in (ROOT / "src" / "ballista_py" / "node").rglob("*.py"):
        found |= set(GAUGE.findall(path.read_text()))
    return found


def test_every_figure_is_in_the_table_and_no_other():
    listed = set(re.findall(r"^\| `([a-z_]+)` \| (?:gauge|counter|histogram|up-down)", PAGE, re.MULTILINE))
    assert listed == named_in_source()
    assert len(listed) > 45
    assert not [name for name in NOT_YET if f"`{name}`" not in PAGE]


def test_every_table_column_and_span_is_named():
    for name in (*RUNTIME_SCHEMAS, *HISTORY.names, *SPANS, *SPANS.values()):
        assert f"`{name}`" in PAGE, name


@pytest.mark.parametrize("path", sorted((ROOT / "deploy" / "grafana").glob("*.json")), ids=lambda path: path.stem)
def test_a_dashboard_shows_figures_that_there_are(path):
    board = json.loads(path.read_text())
    known = named_in_source()
    for panel in board["panels"]:
        assert panel["title"]
        for target in panel["targets"]:
            names = set(re.findall(r"\b(?:node|scheduler|executor|store|dataset)_[a-z_]+", target["expr"]))
            bare = {re.sub(r"_(?:total|bucket|sum|count)$", "", name) for name in names} - {"node_id"}
            assert names, target["expr"]
            assert all(one in known or f"{one}_total" in known or f"{one}_count" in known for one in bare), names
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
