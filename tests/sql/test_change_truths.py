"""Of `p`, `not p` and `p is null` one is true: three changes touch every row once, on either engine."""

from __future__ import annotations

import os
from contextlib import closing

import attrs
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.testing.sql import single_node_changes as kit
from ballista_py.testing.sql.change_truth import LAYOUTS, compare_truths

FIRST = int(os.environ.get("BALLISTA_CHANGES_SEED", "0"))


@pytest.fixture(params=[DuckDBEngine, PolarsEngine], ids=["duckdb", "polars"])
def engine(request):
    engine = request.param()
    yield engine
    engine.close()


def test_three_changes_touch_every_row_once(engine):
    assert compare_truths(FIRST, 3, engine) >= 9


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(100, 100 + 3 * len(LAYOUTS)))
def test_many_changes_touch_every_row_once(engine, seed):
    assert compare_truths(seed, 60, engine) > 180


def test_rows_that_count_as_hit_though_nobody_knows_are_noticed(monkeypatch):
    real = kit.local_rewrite

    def wrong(*arguments):
        found = real(*arguments)
        return attrs.evolve(found, rows=found.rows and found.rows.replace(", false)", ", true)"))

    monkeypatch.setattr(kit, "local_rewrite", wrong)
    with closing(DuckDBEngine()) as engine, pytest.raises(AssertionError, match="instead of"):
        compare_truths(FIRST, 10, engine)


def test_partitions_that_are_left_out_wrongly_are_noticed(monkeypatch):
    real = kit.touched_partitions
    monkeypatch.setattr(kit, "touched_partitions", lambda *arguments: tuple(real(*arguments))[:1])
    with closing(DuckDBEngine()) as engine, pytest.raises(AssertionError, match="instead of"):
        compare_truths(FIRST, 10, engine)
