"""Every acknowledged row exactly once, while nodes are killed. `make soak` does it for ten minutes."""

import importlib.util
from pathlib import Path

import pytest

from ballista_py.testing.soak import Load
from ballista_py.testing.soak_report import BEGIN, END

pytestmark = pytest.mark.cluster


def soak_script():
    path = Path(__file__).parents[2] / "scripts" / "soak.py"
    spec = importlib.util.spec_from_file_location("soak_script", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_acknowledged_rows_are_there_once_after_kills(tmp_path):
    document = tmp_path / "guarantees.md"
    script = soak_script()
    report = script.soak(Load(duration_ms=10_000, kill_every_ms=3_000))
    print(report.text(), report.said)
    assert report.wrong == []
    assert min(report.kills, report.takeovers, report.inserts, report.queries, report.rows_left) > 0
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    report.write(document, "2 schedulers")
    written = document.read_text()
    assert written.startswith(f"before\n{BEGIN}\n2 schedulers")
    assert written.endswith(f"{END}\nafter\n")
    assert "old" not in written
    assert f"{report.inserts:,} rows in" in written
