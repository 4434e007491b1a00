"""The page where there are more tables than it draws: its numbers are of all of them, and the filter finds them all."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from ballista_py import open_store
from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.node.config import NodeConfig
from ballista_py.node.http.feed import Part
from ballista_py.node.http.ports import HttpPorts
from ballista_py.node.http.routes_node import NodeShows
from ballista_py.node.scheduler import page_parts
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import SchedulerInfo

sys.path.insert(0, str(Path(__file__).parent))
from chromium import browser, program

pytestmark = pytest.mark.cluster
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("kind", pa.string())])
TABLES, BUCKETS = 12, 4
PATIENCE_S = 30.0


@pytest.fixture
def tables(monkeypatch, request):
    """The part of a scheduler that knows twelve tables, draws three of them and names five more."""
    program()
    monkeypatch.setattr(page_parts, "MAX_TABLES", 3)
    monkeypatch.setattr(page_parts, "MAX_NAMED", 5)
    runtime, store = SystemRuntime(), open_store(f"memory://{request.node.name}")
    config = NodeConfig(
        role="scheduler",
        node_id="s1",
        state_location="memory://x",
        http_port=0,
        metrics_port=0,
        allow_insecure_connections=True,
    )
    info = SchedulerInfo(scheduler_id="s1", instance_id="")
    core = SchedulerCore(config, info, store, Catalogs(store, runtime), lambda _to, _said: None, runtime)
    core.join()
    maker = TableMaker(store, runtime)
    for number in range(TABLES):
        maker.create(f"t{number:02}", None, [f"bucket({BUCKETS}, id)"], schema=SCHEMA)
    rows = page_parts._PageRows(
        ground=SimpleNamespace(config=config, runtime=runtime), core=core, histories=None, reports=None, jobs=None
    )
    return config, lambda: rows.tables("")


def test_the_totals_are_of_all_tables_and_those_that_are_not_ready_are_drawn(tables, monkeypatch):
    _, look = tables
    found = look()
    assert [table["table_name"] for table in found["tables"]] == ["t00", "t01", "t02"]
    assert [dict(zip(found["named"], row, strict=True))["table_name"] for row in found["others"]] == [
        f"t{number:02}" for number in range(3, 8)
    ]
    assert found["totals"] == {"partitions": TABLES * BUCKETS, "serving": 0, "tables": TABLES}
    of_all = page_parts.RuntimeRows.tables
    monkeypatch.setattr(
        page_parts.RuntimeRows,
        "tables",
        lambda self: ({**row, "ready": row["table_name"] != "t11"} for row in of_all(self)),
    )
    assert [table["table_name"] for table in look()["tables"]] == ["t00", "t01", "t11"]


def test_the_page_counts_all_tables_and_its_filter_finds_those_that_are_not_drawn(tables):
    config, look = tables
    parts = [Part(name="tables", every_ms=100, make=lambda _: look())]
    shows = NodeShows(
        node_id="s1",
        role="scheduler",
        ready=lambda: True,
        status=lambda _client: {},
        tasks=lambda _: [],
        parts=parts,
    )
    ports = HttpPorts(config, lambda: b"", SystemRuntime(), shows)
    try:
        with browser() as opened:
            page = opened.new_page()
            page.goto(f"http://127.0.0.1:{ports.http.port}/")
            page.wait_for_selector("#tables h3")
            assert f"0/{TABLES * BUCKETS}" in page.inner_text("#tiles")
            assert page.locator("#tables h3").count() == 3
            assert "9 tables more are counted and not drawn" in page.inner_text("#tables")
            assert "the filter finds all but 4 of them by name" in page.inner_text("#tables")
            page.fill("#filter", "t07")
            until(lambda: page.locator("#tables h3").all_inner_texts() == ["t07"])
            assert f"0/{BUCKETS}" in page.inner_text("#tables .badge")
            assert "none of them drawn" in page.inner_text("#tables .facts")
            page.fill("#filter", "t0")
            until(lambda: page.locator("#tables h3").count() == 8)
    finally:
        ports.close()


def until(holds) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
