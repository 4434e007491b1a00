"""Every acknowledged row exactly once, while nodes are killed. `make soak` does it for ten minutes."""

import importlib.util
from pathlib import Path

import pytest

from ballista_py.runtime import SystemRuntime
from ballista_py.testing.soak.ledger import Ledger
from ballista_py.testing.soak.soak import Load
from ballista_py.testing.soak.soak_report import BEGIN, END

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


def test_a_soak_notices_rows_that_are_lost_doubled_or_changed_and_counts_that_cannot_be():
    ledger = Ledger(SystemRuntime())
    ledger.keep({1: (0, 1), 2: (0, 1), 3: (0, 1)})
    assert ledger.compare([(1, 0, 1), (2, 0, 1), (3, 0, 1)]) == []
    assert [line.split(",")[0] for line in ledger.compare([(1, 0, 1), (1, 0, 1), (2, 0, 9), (4, 0, 1)])] == [
        "1 row(s) missing",
        "1 row(s) never acknowledged",
        "1 row(s) of another version",
        "1 row(s) doubled",
    ]
    before = ledger.sums()
    ledger.begin(added=5)
    assert ledger.wrong_count(5, before) is None
    ledger.done(added=5)
    assert ledger.wrong_count(4, ledger.sums()) is not None
    during = ledger.sums()
    ledger.begin(removed=2)
    assert [ledger.wrong_count(rows, during) is None for rows in (2, 3, 5, 6)] == [False, True, True, False]
