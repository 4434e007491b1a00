"""What is remembered of statements: the plan is always the one that the statement would get by itself."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import attrs
import pyarrow as pa
import pytest

from ballista_py.coordinator.queries.plan_cache import MAX_REMEMBERED, Plans
from ballista_py.coordinator.queries.statement_turns import LARGE_CHARACTERS, planned_bytes
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import MergeTooLarge, SqlError, TimeLimit, TryLater
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Catalog, QueryPlan
from ballista_py.sql.planner import plan_query
from ballista_py.testing.sql.single_node import InProcessCluster
from ballista_py.work import Work, working

ROWS = pa.table({"id": range(100), "kind": [f"k{n % 5}" for n in range(100)]})


class Counting(DuckDBEngine):
    """Notes what was bound."""

    bound: tuple[str, ...] = ()

    def describe(self, sql: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        self.bound += (sql,)
        return super().describe(sql, schemas)


@pytest.fixture
def engine() -> Iterator[Counting]:
    made = Counting()
    yield made
    made.close()


@pytest.fixture(scope="module")
def catalog() -> Iterator[Catalog]:
    with InProcessCluster(executors=2) as cluster:
        cluster.add("t", ROWS, "bucket(4, id)")
        yield cluster.catalog


def planned(plans: Plans, sql: str, catalog: Catalog) -> QueryPlan:
    """The plan, which is the one that is made of the text alone."""
    plan = plans.plan(sql, catalog)
    assert plan == plan_query(sql, catalog, plans.engine.describe(sql, catalog.schemas))
    assert plans.output(sql, catalog) == plan.output
    return plan


def bound(engine: Counting) -> int:
    """How many texts were bound since the last time, but for those that `planned` compares with."""
    found, engine.bound = len(engine.bound), ()
    return found


def test_the_third_statement_of_a_shape_is_not_bound(engine: Counting, catalog: Catalog) -> None:
    plans = Plans(engine, SystemRuntime())
    counts = []
    for n in range(6):
        bound(engine)
        plans.plan(f"select kind from t where id = {n}", catalog)
        counts.append(bound(engine))
    assert counts == [1, 2, 0, 0, 0, 0]
    for n in range(100, 120):
        planned(plans, f"select kind from t where id = {n}", catalog)
        planned(plans, f"select count(*) as n from t where id < {n} and kind = 'k{n % 7}'", catalog)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("select a.kind from t a join t b using (id) where a.id in ({}, 77) limit 10{}", [1, 2, 0, 0, 0]),
        ("select kind from t where id between {} and 50 and kind = 'k{}'", [1, 2, 0, 0, 0]),
        # What may differ in a list that is given back may not; what is compared with may, nevertheless.
        ("select kind, id in (4, 5) as i from t where id = {} and kind <> 'k{}' limit 9", [1, 3, 0, 0, 0]),
    ],
)
def test_constants_of_lists_ranges_and_limits_are_shared_where_they_may_be(
    engine: Counting, catalog: Catalog, text: str, counts: list[int]
) -> None:
    plans, found = Plans(engine, SystemRuntime()), []
    for n in range(5):
        bound(engine)
        plans.plan(text.format(n, n), catalog)
        found.append(bound(engine))
    assert found == counts
    for n in range(5, 9):
        planned(plans, text.format(n, n), catalog)


def test_another_catalog_is_learnt_anew(engine: Counting, catalog: Catalog) -> None:
    plans = Plans(engine, SystemRuntime())
    other = attrs.evolve(catalog)
    for n in range(12):
        planned(plans, f"select kind from t where id = {n}", catalog if n % 6 < 3 else other)


def test_what_has_no_template_is_bound_each_time_and_tried_once(engine: Counting, catalog: Catalog) -> None:
    plans = Plans(engine, SystemRuntime())
    counts = []
    for n in range(5):
        plans.plan(f"select a.kind from t a join t b using (kind) where a.id = {n}", catalog)
        counts.append(bound(engine))
    assert counts == [1, 2, 1, 1, 1]


def test_statements_that_do_not_bind_raise_and_teach_nothing(engine: Counting, catalog: Catalog) -> None:
    plans = Plans(engine, SystemRuntime())
    for n in range(4):
        with pytest.raises(SqlError):
            plans.plan(f"select nope from t where id = {n}", catalog)
    assert bound(engine) == 4


def test_the_moment_is_never_of_another_statement(engine: Counting, catalog: Catalog) -> None:
    plans = Plans(engine, SystemRuntime())
    for n in range(4):
        timed = plans.plan(f"select kind from t where id = {n} and now() is not null", catalog, timed=True)
        assert timed.moment_ms is not None
        planned(plans, f"select id from t where kind = 'k{n}'", catalog)
    assert planned(plans, "select id from t where kind = 'today'", catalog).moment_ms is None


def test_many_shapes_and_threads_mix_nothing_up(engine: Counting, catalog: Catalog) -> None:
    plans = Plans(engine, SystemRuntime())

    def ask(n: int) -> None:
        planned(plans, f"select kind as k{n % 7} from t where id = {n}", catalog)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(200)))
    for n in range(MAX_REMEMBERED + 10):
        plans.plan(f"select kind as k{n} from t where id = 1", catalog)
    assert len(plans._shared) == MAX_REMEMBERED


def test_nothing_is_kept_of_catalogs_that_were_used_longer_ago(engine: Counting, catalog: Catalog) -> None:
    plans = Plans(engine, SystemRuntime())
    older = [weakref.ref(old) for old in (attrs.evolve(catalog) for _ in range(4)) if asked(plans, old)]
    assert asked(plans, catalog)
    bound(engine)
    assert asked(plans, catalog)
    assert asked(plans, attrs.evolve(catalog), "id")  # as without broadcasts
    bound(engine)
    assert asked(plans, catalog)
    assert bound(engine) == 0
    gc.collect()
    assert [one() for one in older] == [None] * 4


def asked(plans: Plans, catalog: Catalog, column: str = "kind") -> bool:
    """Ask until there is a template."""
    return all(plans.plan(f"select {column} from t where id = {n}", catalog) for n in range(4))


def test_large_statements_are_planned_one_at_a_time_and_small_ones_beside_them(engine, catalog):
    plans, inside, go_on = Plans(engine, SystemRuntime()), threading.Event(), threading.Event()
    large = [f"select id + {number}, '{'x' * LARGE_CHARACTERS}' as t from t" for number in range(3)]
    describe, began = engine.describe, []

    def slow(sql, schemas):
        if len(sql) >= LARGE_CHARACTERS:
            began.append(sql)
            inside.set()
            go_on.wait(60)
        return describe(sql, schemas)

    def planned(sql):
        with working(Work(SystemRuntime())):
            return plans.plan(sql, catalog)

    engine.describe = slow
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(planned, large[0])
        assert inside.wait(60)
        others = [pool.submit(planned, sql) for sql in large[1:]]
        assert plans.output("select id from t", catalog).names == ["id"]
        work = Work(SystemRuntime())
        work.limit_to(1.0)
        with pytest.raises(TimeLimit), working(work):
            plans.plan(large[1], catalog)
        assert began == large[:1]
        engine.describe = describe
        with working(Work(SystemRuntime(), client="another")):
            assert len(plans.plan(large[2], catalog).output) == 2
        engine.describe = slow
        go_on.set()
        assert {len(one.result().output) for one in (first, *others)} == {2}


def test_large_statements_of_all_clients_have_their_place_in_the_memory_of_the_node(engine, catalog):
    """Each client has its own turn, so without it they would all be planned beside each other."""
    text = f"select id, '{'+ ' * (LARGE_CHARACTERS // 2)}' as t from t"
    size = planned_bytes(text)
    budget = MemoryBudget(2 * size + (1 << 20), SystemRuntime(), wait_ms=50.0)
    plans, inside, go_on = Plans(engine, SystemRuntime(), budget), threading.Semaphore(0), threading.Event()
    describe = engine.describe

    def slow(sql, schemas):
        if len(sql) >= LARGE_CHARACTERS:
            inside.release()
            go_on.wait(60)
        return describe(sql, schemas)

    def planned(client):
        with working(Work(SystemRuntime(), client=client)):
            return plans.plan(text.replace("id", f"id + {len(client)}"), catalog)

    engine.describe = slow
    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(planned, "a")
            assert inside.acquire(timeout=60)
            assert budget.ledger.held_bytes >= size
            second = pool.submit(planned, "bc")
            assert inside.acquire(timeout=60)
            with pytest.raises(TryLater):
                planned("def")
            assert plans.output("select id from t", catalog).names == ["id"]  # and small ones ask for nothing
        finally:
            go_on.set()
        assert {len(one.result().output) for one in (first, second)} == {2}
    assert budget.ledger.held_bytes == 0
    with pytest.raises(MergeTooLarge, match="may take more memory than this node has"):
        plans.plan(text.replace("+ '", "+ " * len(text) + "'"), catalog)
    literal = f"select id, '{'x' * len(text)}' as t from t"  # nothing to plan, though it is as long
    assert len(plans.plan(literal, catalog).output) == 2
