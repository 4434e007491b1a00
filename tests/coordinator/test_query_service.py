"""The query service over legs that run in this process: stages, stale views, stale estimates, errors, ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from xml.etree import ElementTree

import attrs
import pyarrow as pa
import pytest

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries import statement_turns
from ballista_py.coordinator.queries.on_spark import MAX_AT_ONCE, SparkQueries
from ballista_py.coordinator.queries.running_statement import RunningStatement
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.spark_process import SparkProcess
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, MergeTooLarge, NotOwner, SqlError, TimeLimit, TransportError
from ballista_py.node.scheduler.observed import ObservedQueries
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.tasks import Tasks
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import BroadcastLimits, Leg, LegProgress
from ballista_py.sql.plan_drawing import ExplainedPlan
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing.sql.single_node import InProcessCluster
from ballista_py.threads import spawn
from ballista_py.transport.arrow.door import read_rows
from ballista_py.work import Work, working

JOIN = "select kind, sum(amount) as total from sales join items on sales.item = items.item group by kind"


class Legs:
    """The streams of legs that run in this process; notes whether they were cancelled."""

    def __init__(self, cluster: InProcessCluster, legs: Sequence[Leg], fails: BaseException | None) -> None:
        read = {name: read_rows(data, compressed=True) for name, data in legs[0].relations.items()}
        self.tables = [cluster.run_leg(leg, read) for leg in legs]
        self.schema = self.tables[0].schema
        self.error = fails
        self.cancelled = False

    def say(self, lie: Callable[[pa.Table], pa.Table]) -> None:
        """Give what `lie` makes of the rows."""
        self.tables = [lie(table) for table in self.tables]
        self.schema = self.tables[0].schema

    @property
    def bytes_received(self) -> int:
        return sum(table.nbytes for table in self.tables)

    @property
    def progress(self) -> tuple[LegProgress, ...]:
        return tuple(LegProgress(rows=t.num_rows, bytes=t.nbytes, took_ms=1.0) for t in self.tables)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for table in self.tables:
            if self.error is not None:
                raise self.error
            yield from table.to_batches()

    def cancel(self) -> None:
        self.cancelled = True


class Hurried(SystemRuntime):
    """A machine on which waiting takes no time but on its clock."""

    waited_ms = 0.0

    def sleep_ms(self, duration_ms: float) -> None:
        self.waited_ms += duration_ms

    def monotonic_ms(self) -> float:
        return self.waited_ms


class Site:
    """A query service, its views and what it opened."""

    def __init__(self, cluster: InProcessCluster, engine: DuckDBEngine) -> None:
        self.cluster, self.refreshed, self.opened = cluster, 0, list[Legs]()
        self.fails: dict[int, BaseException] = {}
        self.rounds: list[list[str]] = []
        self.lie: Callable[[pa.Table], pa.Table] = lambda table: table
        self.view = ClusterView(catalog=cluster.catalog, members=frozenset(cluster.owners), addresses={})
        self.clock = Hurried()
        self.service = QueryService(self, engine, self.open, self.clock)

    def current(self, words=None) -> ClusterView:
        return self.view

    def refresh(self, words=None) -> ClusterView:
        self.refreshed += 1
        return self.view

    def open(
        self, fragments: Sequence[Sequence[Leg]], addresses: Mapping[str, str], elsewhere: object
    ) -> list[Legs]:
        self.rounds.append([legs[0].fragment for legs in fragments])
        found = []
        for legs in fragments:
            error = self.fails.get(len(self.opened))
            self.opened.append(Legs(self.cluster, legs, error))
            self.opened[-1].say(self.lie)
            if isinstance(error, NotOwner | TransportError):
                raise error
            found.append(self.opened[-1])
        return found

    def answer(self, sql: str) -> tuple[pa.Table, dict]:
        statement = self.service.run(sql)
        rows = pa.Table.from_batches(statement.batches(), statement.schema)
        return rows, statement.stats()


@pytest.fixture
def site() -> Iterator[Site]:
    sales = pa.table({"shop": range(4_000), "item": [n % 50 for n in range(4_000)], "amount": range(4_000)})
    items = pa.table({"item": range(50), "kind": [f"kind {n % 5}" for n in range(50)]})
    engine = DuckDBEngine(threads=1)
    with InProcessCluster(3, broadcasts=BroadcastLimits(worth_bytes=1_000)) as cluster:
        cluster.add("sales", sales, "bucket(6, shop)")
        cluster.add("items", items, "bucket(2, item)")
        yield Site(cluster, engine)
    engine.close()


def test_a_broadcast_is_complete_before_the_legs_that_read_it_start(site: Site) -> None:
    rows, stats = site.answer(JOIN)
    assert difference(rows, site.cluster.single(JOIN)) is None
    assert len(site.opened) == 2
    assert stats["shipped_bytes"] < 10_000


def test_who_watches_sees_the_legs_of_a_broadcast_while_it_is_computed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, seen = [], []
    monkeypatch.setattr(QueryService, "begins", lambda _service, run: runs.append(run))
    opened = site.open

    def watched(fragments, addresses, elsewhere):
        assert len(runs) == 1  # told before the first leg is sent
        running = runs[0].so_far()
        seen.append((len(running.legs), [leg.fragment for legs in running.of_streams for leg in legs]))
        return opened(fragments, addresses, elsewhere)

    site.service.open_legs = watched
    site.answer(JOIN)
    assert len(seen) == 2  # a round for the broadcast, then one for the legs that read it
    assert seen[0][1] == []
    assert len(seen[1][1]) > 0  # before the statement gave anything
    assert seen[0][0] == seen[1][0] == len(runs[0].legs)


FOUR = """select name, kind, sum(amount) as total from sales, items, shops, towns where sales.item = items.item
    and sales.shop = shops.shop and shops.town = towns.town group by name, kind"""


def add_places(site: Site) -> None:
    shops = pa.table({"shop": range(40), "town": [n % 9 for n in range(40)]})
    site.cluster.add("shops", shops, "bucket(3, town)")
    site.cluster.add("towns", pa.table({"town": range(9), "name": list("abcdefghi")}), "bucket(2, name)")
    site.view = attrs.evolve(site.view, catalog=site.cluster.catalog)


def test_legs_start_together_unless_one_reads_what_another_gives(site: Site) -> None:
    add_places(site)
    plan = site.service.plan(FOUR)[0]
    uses = {fragment.name: fragment.uses for fragment in plan.fragments}
    rows, _ = site.answer(FOUR)
    assert difference(rows, site.cluster.single(FOUR)) is None
    rounds = [names for names in site.rounds if names]
    assert len(plan.broadcasts) > 1
    assert len(rounds) < len(plan.broadcasts) + 1
    assert len(rounds[0]) > 1
    assert [uses[name] for name in rounds[0]] == [()] * len(rounds[0])
    assert sorted(name for names in rounds for name in names) == sorted(uses)


def test_what_two_parts_of_a_statement_need_is_fetched_once_and_not_computed_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = "from sales, items where sales.item = items.item and items.kind = 'kind 1'"
    sql = f"select shop, sum(amount) as a {some} group by shop having sum(amount) > (select avg(amount) {some})"
    plan = site.service.plan(sql)[0]
    assert len(plan.broadcasts) == 2
    assert plan.repeated
    asked, query = [], site.service.engine.query
    monkeypatch.setattr(
        site.service.engine, "query", lambda text, **more: (asked.append(text), query(text, **more))[1]
    )
    rows, _ = site.answer(sql)
    assert difference(rows, site.cluster.single(sql)) is None
    assert asked == [plan.merge_sql]
    assert sorted(name for names in site.rounds for name in names) == [one.name for one in plan.fragments]


def test_a_broadcast_pruned_to_nothing_is_empty(site: Site) -> None:
    sql = "select count(*) as n from sales, items where sales.item = items.item and items.item = 7 and items.item = 8"
    site.view = attrs.evolve(
        site.view, catalog=attrs.evolve(site.view.catalog, broadcasts=BroadcastLimits(worth_bytes=-(1 << 60)))
    )
    assert any(one.plain for one in site.service.plan(sql)[0].broadcasts)
    rows, _ = site.answer(sql)
    assert rows.to_pydict() == {"n": [0]}


def test_a_leg_that_fails_stops_what_was_started_with_it(site: Site) -> None:
    add_places(site)
    site.fails = {0: SqlError("no")}
    with pytest.raises(SqlError, match="no"):
        site.answer(FOUR)
    assert len(site.opened) > 1
    assert all(legs.cancelled for legs in site.opened)


def test_a_broadcast_that_outgrew_its_estimate_is_given_up_for_a_plan_without(site: Site) -> None:
    stale = attrs.evolve(site.cluster.maps["items"], weights=site.cluster.maps["items"].weights * 0.01)
    catalog = attrs.evolve(
        site.view.catalog,
        maps={**site.cluster.maps, "items": stale},
        broadcasts=BroadcastLimits(max_bytes=200, worth_bytes=1_000),
    )
    site.view = attrs.evolve(site.view, catalog=catalog)
    assert site.service.explain(JOIN)["broadcasts"]
    rows, stats = site.answer(JOIN)
    assert difference(rows, site.cluster.single(JOIN)) is None
    assert stats["shipped_bytes"] > 30_000
    assert site.opened[0].cancelled
    assert site.refreshed == 0


def test_an_owner_that_is_none_any_more_makes_a_new_plan_of_a_fresh_view(site: Site) -> None:
    site.fails = {1: NotOwner("no longer")}
    rows, stats = site.answer(JOIN)
    assert difference(rows, site.cluster.single(JOIN)) is None
    assert (stats["replans"], site.refreshed) == (1, 1)
    assert site.opened[0].cancelled


@pytest.mark.parametrize(("error", "waits_ms"), [(NotOwner("loading"), 10_000), (TransportError("gone"), 900)])
def test_an_owner_that_refuses_is_waited_for_longer_than_one_that_cannot_be_reached(
    site: Site, error: BallistaError, waits_ms: float
) -> None:
    sql = "select sum(amount) as n from sales"
    site.fails = dict.fromkeys(range(100), error)
    with pytest.raises(type(error)):
        site.answer(sql)
    assert waits_ms <= site.clock.waited_ms < waits_ms + 1_000
    site.fails = {len(site.opened) + n: error for n in range(3)}
    rows, stats = site.answer(sql)
    assert difference(rows, site.cluster.single(sql)) is None
    assert stats["replans"] == 3


def test_stages_and_retries_are_counted_and_each_stage_ends_once(site: Site) -> None:
    metrics = NodeMetrics("s1", "scheduler")
    site.service.figures = metrics

    def counts() -> dict[str, float]:
        lines = metrics.text().decode().splitlines()
        found = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in found if "_bucket" not in name and not name.endswith("_sum")}

    broadcasts = site.service.explain(JOIN)["broadcasts"]
    site.fails = {len(broadcasts): NotOwner("no longer")}
    _, stats = site.answer(JOIN)
    shown = counts()
    assert stats["replans"] == 1
    assert shown['node_task_retries_total{node_id="s1",role="scheduler"}'] == 1
    assert shown["scheduler_stage_retries_total"] == 1
    for kind, times in (("broadcast", 2 * len(broadcasts)), ("legs", 2), ("merge", 1)):
        labels = f'{{kind="{kind}"}}'
        assert shown[f"scheduler_stages_total{labels}"] == times, kind
        assert shown[f"scheduler_stage_duration_ms_count{labels}"] == times, kind
    assert shown['scheduler_stage_failures_total{kind="legs"}'] == 1
    site.fails = {len(site.opened) + len(broadcasts): SqlError("a leg failed")}
    with pytest.raises(SqlError):
        site.answer(JOIN)
    shown = counts()
    assert shown['scheduler_stage_failures_total{kind="legs"}'] == 2
    assert shown["scheduler_stage_retries_total"] == 1


@pytest.mark.parametrize("stage", [0, 1])
def test_the_error_of_a_leg_comes_out_as_it_is_whatever_read_it(site: Site, stage: int) -> None:
    site.fails = {stage: SqlError("a leg failed")}
    with pytest.raises(SqlError, match="a leg failed"):
        site.answer(JOIN)
    assert site.opened[0].cancelled or stage == 1


def test_a_client_that_is_gone_ends_a_broadcast(site: Site) -> None:
    with pytest.raises(TransportError, match="cancelled"):
        site.service.run(JOIN, cancelled=lambda: True)
    assert all(legs.cancelled for legs in site.opened)
    assert len(site.opened) == 1


def test_a_broadcast_of_pruned_partitions_is_empty_and_has_its_columns(site: Site) -> None:
    sql = "select kind, sum(amount) from sales join items on sales.item = items.item where items.item = null group by 1"
    rows, _ = site.answer(sql)
    assert difference(rows, site.cluster.single(sql)) is None


def test_a_relation_that_the_merge_reads_twice_is_kept_by_the_engine(site: Site) -> None:
    sql = "select count(*) from sales a join sales b on a.item = b.item where a.amount < 40"
    rows, _ = site.answer(sql)
    assert difference(rows, site.cluster.single(sql)) is None


def spark_queries(site: Site, max_merge_bytes: int) -> SparkQueries:
    runtime = SystemRuntime()
    return SparkQueries(site.service, SparkProcess(MemoryStore(), runtime), runtime, max_merge_bytes)


def test_a_merge_that_would_be_too_large_goes_to_spark_if_the_client_lets_it(site: Site) -> None:
    def goes(sql: str, engine: object, max_merge_bytes: int) -> bool:
        return spark_queries(site, max_merge_bytes).takes(sql, engine)

    large = "select a.amount, max(b.amount) from sales a join sales b on a.item = b.item group by 1"
    assert goes(large, "auto", 10_000)
    assert not goes(large, "auto", 10_000_000)
    assert not goes("select amount from sales", "auto", 10)  # streams pass through
    refused = large.replace("max", "median")
    assert not goes(refused, "auto", 10_000)  # what Spark would refuse runs here
    assert goes(refused, "spark", 10_000)  # and is refused by name where nothing else was asked for
    assert not goes(large, None, 10)
    assert goes("select 1", "spark", 1 << 40)
    with pytest.raises(SqlError, match="no engine 'presto'"):
        goes(large, "presto", 10)


def test_explain_says_which_engine_takes_a_statement_and_why(site: Site) -> None:
    large = "select a.amount, max(b.amount) from sales a join sales b on a.item = b.item group by 1"
    spark = spark_queries(site, 10_000)
    assert spark.explain(large, "auto")["engine"] == "spark"
    assert "engine: spark, because the merge is guessed at" in spark.explain(large, "auto")["text"]
    assert "more than max_merge_bytes (10,000)" in spark.explain(large, "auto")["text"]
    assert spark.explain("select amount from sales", "auto")["engine"] == "cluster"
    assert spark.explain("select amount from sales", "spark")["engine"] == "spark"
    assert "engine" not in spark.explain(large, None)
    with pytest.raises(SqlError, match="no legs to analyse"):
        spark.explain(large, "auto", analyze=True)


def test_a_query_for_spark_that_is_cancelled_before_its_turn_starts_nothing(site: Site) -> None:
    spark = spark_queries(site, 1)
    for _ in range(MAX_AT_ONCE):
        spark.enter(lambda: False)
    query = spark.open("select count(*) as n from sales")
    assert query.schema.names == ["n"]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: list(query.batches()))
        assert not wait([waiting], timeout=0.3).done
        query.cancel()
        with pytest.raises(TransportError, match="cancelled"):
            waiting.result(timeout=30)
    spark.leave()
    other = spark.open("select count(*) as n from sales")
    other.cancel()
    with pytest.raises(TransportError, match="cancelled"):
        list(other.batches())


class HungSpark:
    """A Spark that neither answers nor hears that it is to stop until `go` is set."""

    ended = False

    def __init__(self) -> None:
        self.go, self.asked, self.closed = Event(), Event(), Event()

    def jobs(self):
        return self

    def go_on_cancelled(self) -> bool:
        return True

    def cancel(self) -> None:
        self.go.wait()

    def run(self, *_arguments, **_more):
        self.asked.set()
        self.go.wait()
        return self

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("how", ["limit", "cancel"])
def test_who_waits_for_a_spark_that_does_not_answer_goes_when_his_time_is_over(site: Site, how: str) -> None:
    hung, spark = HungSpark(), spark_queries(site, 1)
    spark.process.spawn = spawn
    spark.process._spark = hung
    query, work = spark.open("select count(*) as n from sales"), Work(SystemRuntime())

    def read() -> list:
        with working(work):
            return list(query.batches())

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(read)
        assert hung.asked.wait(60)
        if how == "cancel":
            query.cancel()
        else:
            work.limit_to(1)  # not before Spark is asked, however busy the machine is
        with pytest.raises(TransportError if how == "cancel" else TimeLimit):
            waiting.result(timeout=60)
        assert not hung.closed.is_set()
        hung.go.set()
        assert hung.closed.wait(60)  # nobody reads the answer, so it is given up when it comes


def test_a_statement_is_planned_once_unless_its_moment_matters(site: Site) -> None:
    plans, catalog = site.service.plans, site.service.views.current().catalog
    assert plans.plan(JOIN, catalog) is plans.plan(JOIN, catalog, timed=True)
    assert plans.plan(JOIN, attrs.evolve(catalog)) is not plans.plan(JOIN, catalog)
    sql = "select amount from sales where now() > timestamp '2020-01-01'"
    first = plans.plan(sql, catalog, timed=True)
    assert first.moment_ms is not None
    assert plans.plan(sql, catalog).moment_ms is None
    assert plans.plan(sql, catalog, timed=True) is not first


def test_the_bytes_that_statements_ship_are_counted(site: Site) -> None:
    service, metrics = site.service, NodeMetrics("s1", "scheduler")
    tasks = Tasks("s1", SystemRuntime())
    observed = ObservedQueries(
        service.views, service.engine, service.open_legs, service.runtime, tasks, shipped=metrics.shipped
    )
    running = observed.run(JOIN)
    list(running.batches())
    assert f"scheduler_shipped_bytes_total {running.stats()['shipped_bytes']:.1f}" in metrics.text().decode()


def test_an_analysed_plan_says_what_every_leg_gave(site: Site) -> None:
    plan = ExplainedPlan(site.service.explain(JOIN, analyze=True))
    (large,) = (one for one in plan["fragments"] if one["tables"][-1]["table"] == "sales")
    assert sum(leg["ran"]["rows"] for leg in large["legs"]) == 5 * len(large["legs"])
    assert plan["stats"]["shipped_bytes"] > 0
    assert "gave 5 rows" in str(plan)
    assert "5 rows" in plan._repr_html_()
    drawn = ElementTree.fromstring(plan._repr_html_())
    assert "broadcast b0" in "".join(drawn.itertext())
    assert "ran" not in site.service.explain(JOIN)["fragments"][0]["legs"][0]


def test_a_statement_that_neither_engine_can_run_says_why_of_both(site: Site) -> None:
    def rows():
        yield from ()
        raise MergeTooLarge("The query needs more memory than this node has")

    spark = spark_queries(site, 10)
    refused = "select a.amount, median(b.amount) from sales a join sales b on a.item = b.item group by 1"
    with pytest.raises(MergeTooLarge, match=r"more memory than this node has; and Spark cannot run it: 'MEDIAN"):
        list(spark.with_both_reasons(refused, rows()))
    with pytest.raises(MergeTooLarge, match=r"this node has$"):
        list(spark.with_both_reasons("select amount from sales", rows()))


def _each(change: Callable[[pa.ChunkedArray], object]) -> Callable[[pa.Table], pa.Table]:
    return lambda table: pa.table({name: change(table[name]) for name in table.column_names})


LIES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no columns": lambda table: table.select([]),
    "one too few": lambda table: table.select(table.column_names[1:]),
    "one too many": lambda table: table.append_column("more", pa.nulls(len(table))),
    "other names": lambda table: table.rename_columns(
        [f"{name}_{n}" for n, name in enumerate(table.column_names)]
    ),
    "texts": _each(lambda column: pa.array(["x"] * len(column))),
    "lists": _each(lambda column: pa.array([[1]] * len(column), pa.list_(pa.int64()))),
    "structs": _each(lambda column: pa.array([{"a": "b"}] * len(column), pa.struct([("a", pa.string())]))),
    "fractions": _each(
        lambda column: pa.array([1.5] * len(column)) if pa.types.is_integer(column.type) else column
    ),
}
ASKED = {
    "one leg": "select item, amount from sales where item = 1",
    "rows of several": "select item, amount from sales",
    "ordered": "select item, amount from sales order by amount desc, item limit 3",
    "grouped": "select item % 2 as g, sum(amount) as total from sales group by 1 order by 1",
    "joined": JOIN,
}


@pytest.mark.share(3)
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("asked", ASKED)
def test_legs_with_other_columns_than_were_asked_for_are_named_or_give_what_can_be_used(
    site: Site, lie: str, asked: str
) -> None:
    site.lie = LIES[lie]
    error, rows = None, None
    try:
        rows, _ = site.answer(ASKED[asked])
    except BallistaError as raised:
        error = raised
    if rows is not None:
        assert lie in ("other names", "fractions", "texts", "one too many"), rows.schema
        rows.validate(full=True)
    else:
        assert "answered with other columns than it was asked for" in str(error)
        assert "executor" in str(error)


def test_statements_of_one_client_that_merge_wait_for_each_others_first_rows(site: Site, monkeypatch) -> None:
    monkeypatch.setattr(statement_turns, "OF_CLIENT", 1)
    first, second = (Work(SystemRuntime(), client="a") for _ in range(2))
    turns, looked = site.service._turns.turns, Event()

    def other() -> RunningStatement:
        with working(second):
            return site.service.run(JOIN)

    with ThreadPoolExecutor(1) as pool:
        with working(first):
            statement = site.service.run(JOIN)
        waiting = pool.submit(other)
        while not (waiting.done() or turns.waiting("a")):
            looked.wait(0.01)
        assert turns.waiting("a") == 1
        with working(first):
            next(iter(statement.batches()))
        waiting.result(60).cancel()
    statement.cancel()
    first.over()
    second.over()
    assert not turns.taken("a")


@pytest.mark.parametrize("how", ["run", "describe", "types", "plan"])
def test_others_wait_while_the_engine_of_the_scheduler_begins_anew(site: Site, monkeypatch, how: str) -> None:
    """A statement of one client broke it: `select 1` of another one was told NotOwner, and had to be sent again."""
    engine = site.service.engine

    def look(duration_ms: float) -> None:
        site.clock.waited_ms += duration_ms
        if site.clock.waited_ms > 500:
            engine.watch()

    monkeypatch.setattr(site.clock, "sleep_ms", look)
    engine._lost = True
    statement = "select count(*) as n from sales"
    if how == "run":
        assert site.answer(statement)[0].to_pylist() == [{"n": 4_000}]
    elif how == "describe":
        assert site.service.describe(statement).names == ["n"]
    elif how == "types":
        assert site.service.types(statement) == (("n", "BIGINT"),)
    else:
        assert site.service.plan(statement)[0].output.names == ["n"]
    assert engine.begun == 1


def test_who_waits_for_an_engine_that_does_not_begin_is_told_so(site: Site) -> None:
    site.service.engine._lost = True
    with pytest.raises(NotOwner, match="begins anew"):
        site.answer("select count(*) as n from sales")
