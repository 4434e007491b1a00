"""What is remembered of statements has bounds in bytes, and one client's do not push out another's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.coordinator.queries import plan_cache
from ballista_py.coordinator.queries.plan_cache import Plans
from ballista_py.coordinator.writes import checks as bound_shapes
from ballista_py.coordinator.writes.checks import BoundShapes
from ballista_py.engines.duckdb.broken_database import MAX_REMEMBERED, Offenders
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.remembered import Remembered
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse import identifiers
from ballista_py.testing.sql.single_node import InProcessCluster
from ballista_py.work import Work, working

RUNTIME = SystemRuntime()


def by(client):
    return working(Work(RUNTIME, client=client))


def test_what_was_used_longest_ago_goes_first_by_number_and_by_bytes():
    last = Remembered(3, 800)
    for number in range(3):
        last.put(number, f"v{number}", 10)
    assert last.get(0) == "v0"
    last.put(3, "v3", 10)
    assert [last.get(n) for n in range(4)] == ["v0", None, "v2", "v3"]
    last.put(0, "larger", 100)
    assert (last.get(0), last.nbytes, len(last)) == ("larger", 120, 3)
    last.put(9, "too large", 101)
    assert (last.get(9), len(last)) == (None, 3)
    last.keep(lambda value: value == "larger")
    assert (len(last), last.nbytes) == (1, 100)
    for number in range(50):
        last.put(number, "x", 90)
        assert last.nbytes <= 800


@pytest.mark.parametrize(("number", "nbytes"), [(500, 1), (30, 100)], ids=["many", "large"])
def test_a_client_that_fills_the_room_makes_his_own_be_forgotten(number, nbytes):
    last = Remembered(20, 900)
    with by("ada"):
        for one in range(5):
            last.put(("ada", one), "hers", 10)
    with by("bob"):
        for one in range(number):
            last.put(("bob", one), "his", nbytes)
    assert all(last.get(("ada", one)) == "hers" for one in range(5))
    assert last.get(("bob", number - 1)) == "his"
    assert last.nbytes <= 900
    assert len(last) <= 20


def test_plans_of_long_statements_are_bounded_by_their_bytes(monkeypatch):
    engine = DuckDBEngine()
    with InProcessCluster(executors=1) as cluster:
        cluster.add("t", pa.table({"id": range(3)}), "bucket(2, id)")
        plans, catalog = Plans(engine, RUNTIME), cluster.catalog
        long = f"select id from t where id in ({', '.join(map(str, range(10_000, 12_500)))}) and id > "
        assert len(long) < plan_cache.MAX_REMEMBERED_CHARACTERS * 1.2
        for number in range(12):
            plans.plan(long[:14_000].rpartition(",")[0] + f") and id > {number}", catalog)
        assert plans._known.nbytes <= plan_cache.MAX_REMEMBERED_BYTES
        before = len(plans._shared)
        plans.plan(f"select '{'x' * 20_000}' as x, id from t", catalog)
        plans.plan(f"select '{'y' * 20_000}' as x, id from t", catalog)
        assert len(plans._shared) == before
    engine.close()


def test_no_other_memory_of_statements_grows_with_their_length():
    known, schema = BoundShapes(), pa.schema([("v", pa.int64())])
    for number in range(40):
        known.add(f"update t set v = {number} where 'x' <> '{'x' * 900_000}{number}'", schema)
    assert known._known.nbytes <= bound_shapes.MAX_REMEMBERED_BYTES
    before = identifiers._quoted.cache_info().currsize
    assert identifiers.needs_quotes("A" * 900_000)
    assert not identifiers.needs_quotes("a" * 900_000)
    assert identifiers._quoted.cache_info().currsize == before
    offenders, text = Offenders(SystemRuntime()), "select 1" + " " * 9_000
    for number in range(MAX_REMEMBERED + 5):
        offenders.note(f"{text}x{number}", f"client {number}", RuntimeError("INTERNAL Error: x"))
    assert offenders.may_break(f"{text}x{MAX_REMEMBERED}", "another")
    assert not offenders.may_break(f"{text}x1", "another")
    assert sum(len(kept) for kept in offenders._kinds) < 10_000
    assert len(offenders._clients) == MAX_REMEMBERED
