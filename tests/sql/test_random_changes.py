"""Random changes of partitioned tables do what one node does, in what owners run and in what is run as a whole."""

from __future__ import annotations

import os

import attrs
import pyarrow as pa
import pytest

from ballista_py.sql.prune import changes as local_changes
from ballista_py.testing import assert_single_node_equivalent
from ballista_py.testing.sql import single_node_changes as kit
from ballista_py.testing.sql.change_fuzz import LAYOUTS, compare_changes

FIRST = int(os.environ.get("BALLISTA_CHANGES_SEED", "0"))
ROWS = pa.table({"k": [1, 2, 3, 4], "v": [10, None, 30, 40]})


@pytest.mark.turn(3)
@pytest.mark.parametrize("seed", range(len(LAYOUTS)))
def test_random_changes_do_what_one_node_does(seed):
    assert compare_changes(FIRST + seed, 12).compared >= 6


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_random_changes_do_what_one_node_does(seed):
    assert compare_changes(seed, 200).compared > 100


@pytest.mark.parametrize(
    "sql",
    [
        "update t set v = v + 1 where k in (1, 3) returning *",
        "delete from t where k = 2",
        "insert into t values (9, 9) returning v",
        "insert into t values (1, 0), (7, 7) on conflict (k) do update set v = excluded.v",
        "merge into t using (select 1 as k) s on t.k = s.k when matched then delete",
    ],
)
def test_the_kit_takes_changes(sql):
    given = {"t": ROWS}, {"t": "bucket(4, k)"}
    assert assert_single_node_equivalent(sql, *given, primary_key={"t": ["k"]}) is None


@pytest.mark.parametrize(
    ("name", "wrong", "sql"),
    [
        ("touched_partitions", lambda *_: (0,), "update t set v = 0 where k > 0"),
        ("rows_of_keys", lambda *_: "k > 100", "insert or replace into t values (1, 0)"),
        ("local_rewrite", None, "delete from t where v > 10"),
    ],
)
def test_the_kit_notices_what_is_wrong(monkeypatch, name, wrong, sql):
    if wrong is None:  # rows count as hit whose predicate is not known

        def wrong(*arguments):
            found = local_changes.local_rewrite(*arguments)
            return attrs.evolve(found, rows=found.rows.replace(", false)", ", true)"))

    monkeypatch.setattr(kit, name, wrong)
    with pytest.raises(AssertionError):
        assert_single_node_equivalent(sql, {"t": ROWS}, {"t": "bucket(4, k)"}, primary_key={"t": ["k"]})
