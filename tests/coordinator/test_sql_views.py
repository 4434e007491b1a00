"""Views in the catalog: one of several wins, none reads itself, and a lost reply makes nothing twice."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.written_views import Inlining, WrittenViews, cycle_of, depth_of
from ballista_py.coordinator.tables.declarations import declare_table
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.sql_views import (
    SqlViewDefinitions,
    declared_view,
    maker_of,
    view_of_documents,
    with_declared,
)
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import ConfigError, OutcomeUnknown, RetriesExhausted, SqlError, StoreError
from ballista_py.partitions.sql_view import MAX_VIEW_DEPTH, SqlView
from ballista_py.runtime import SystemRuntime, seeded_chance
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.view_statements import CreateView
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing.faults.store import FaultyStore, StoreFaults
from ballista_py.work import Work, working

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32())])


@pytest.fixture(scope="module")
def engine():
    made = DuckDBEngine()
    yield made
    made.close()


@pytest.fixture
def base():
    table = declare_table(ClusterDocument(), "t", SCHEMA, ["bucket(2, id)"], incarnation="one")
    return ClusterDocument().with_table(table)


def made(text, cluster, engine, mark=None):
    """The catalog with the view of a CREATE VIEW."""
    change = read_change(text)
    assert isinstance(change, CreateView)
    return with_declared(cluster, change, declared(change, cluster, engine), mark)


def declared(change, cluster, engine) -> SqlView:
    return declared_view(change, view_of_documents(cluster), WrittenViews(engine))


class Looks:
    """The views of a scheduler, of which `known` is read and `now` would be."""

    def __init__(self, cluster):
        self.known = self.now = cluster

    def current(self, _words=None) -> ClusterView:
        return view_of_documents(self.known)

    def refresh(self, _words=None) -> ClusterView:
        self.known = self.now
        return self.current()


def test_two_statements_at_once_make_no_circle(base, engine):
    """Each was read when the other was not there yet; the commit asks the catalog that it replaces."""
    cluster = made("create view w as from t", made("create view v as from t", base, engine), engine)
    one = read_change("create or replace view v as from w")
    two = read_change("create or replace view w as from v")
    one_view, two_view = declared(one, cluster, engine), declared(two, cluster, engine)
    after = with_declared(cluster, one, one_view, None)
    with pytest.raises(SqlError, match="view 'w' would read itself: w reads v reads w"):
        with_declared(after, two, two_view, None)


def test_a_circle_in_an_old_copy_of_the_catalog_ends(base, engine):
    cluster = made("create view w as from t", made("create view v as from t", base, engine), engine)
    views = {
        "v": evolve(cluster.views["v"], sql="from w", reads=("w",)),
        "w": evolve(cluster.views["w"], sql="from v", reads=("v",)),
    }
    with pytest.raises(SqlError, match="reads itself: v reads w reads v"):
        Inlining(Looks(evolve(cluster, views=views)), WrittenViews(engine)).written_out("from v")


def test_views_that_read_one_another_have_a_depth(base, engine):
    cluster = base
    for number in range(MAX_VIEW_DEPTH):
        cluster = made(f"create view v{number} as from {f'v{number - 1}' if number else 't'}", cluster, engine)
    one = cluster.views["v0"]
    more = read_change(f"create view more as from v{MAX_VIEW_DEPTH - 1}")
    with pytest.raises(SqlError, match="one too many of views that read one another"):
        with_declared(cluster, more, evolve(one, name="more", reads=more.reads), None)
    with pytest.raises(SqlError, match="view 'more' reads views that read views"):
        WrittenViews(engine).query_of("more", more.query, view_of_documents(cluster))
    text = Inlining(Looks(cluster), WrittenViews(engine)).written_out(f"from v{MAX_VIEW_DEPTH - 1}").text
    assert engine.describe(text, {"t": SCHEMA}).names == ["id", "n"]


def test_what_doubles_is_looked_at_once_a_view(base, engine):
    """Two views at each level, of which each reads both below: 2^12 ways, and 24 views to look at."""
    asked: list[str] = []

    class Counted(WrittenViews):
        """One that remembers nothing, as of what is large."""

        def learn(self, key, item):
            pass

        def shaped(self, one, query, view):
            asked.append(one.name)
            return f'(select 1 as id, 2 as n) as "{one.name}"'

    view = SqlView(name="v", sql="", schema=SCHEMA, types=("BIGINT", "INTEGER"), answers=("id", "n"))
    views = {}
    for level in range(12):
        reads = (f"a{level - 1}", f"b{level - 1}") if level else ("t", "t")
        for side in "ab":
            sql = f"select x.* from {reads[0]} x, {reads[1]} y"
            views[f"{side}{level}"] = evolve(view, name=f"{side}{level}", sql=sql, reads=reads, named=level)
    Inlining(Looks(evolve(base, views=views)), Counted(engine)).written_out("from a11")
    assert len(asked) == 23


def test_views_that_grow_are_refused_before_they_are_large(base, engine):
    view = SqlView(name="v", sql="", schema=SCHEMA, types=("BIGINT", "INTEGER"), answers=("id", "n"), named=1)
    long = f"select id, n from t where n in ({', '.join(map(str, range(9_000)))})"
    views = {"v": evolve(view, sql=long, reads=("t",))}
    inlining = Inlining(Looks(evolve(base, views=views)), WrittenViews(engine))
    assert len(inlining.written_out("from v").text) > 40_000
    with pytest.raises(SqlError, match="written out"):
        inlining.written_out("select 1 from " + ", ".join(f"v v{number}" for number in range(30)))


def test_one_name_is_a_table_or_a_view(base, engine):
    cluster = made("create view v as from t", base, engine)
    with pytest.raises(ConfigError, match="'v' is a view"):
        declare_table(cluster, "v", SCHEMA, ["id"])
    with pytest.raises(ConfigError, match="'v' is a view"):
        declare_table(cluster, "v", SCHEMA, ["id"], replaces=True)
    with pytest.raises(ConfigError, match="'t' is a table"):
        made("create or replace view t as select 1", cluster, engine)


class Chance(SystemRuntime):
    """Chance that is the same in every run, and no waiting."""

    def __init__(self, seed):
        super().__init__()
        self._chance = seeded_chance(seed)

    def random(self):
        return self._chance.random()

    def sleep_ms(self, duration_ms):
        pass


def test_with_lost_replies_a_statement_counts_once(base, engine):
    for seed in range(12):
        store = MemoryStore()
        ObjectState(store, CLUSTER_KEY, ClusterDocument).create(base)
        faults = StoreFaults(lost_replies=0.25, lost_requests=0.2, throttled=0.1)
        maker = TableMaker(FaultyStore(store, faults, runtime=Chance(seed)), Chance(seed), spawn=lambda _: None)
        for number in range(3):
            text = f"create or replace view v as select {number} as a from t"
            change = read_change(text)
            view = declared(change, base, engine)
            for _ in range(50):
                try:
                    maker.commit(lambda now, c=change, v=view, n=number: with_declared(now, c, v, f"mark {n}"))
                    break
                except (StoreError, RetriesExhausted, OutcomeUnknown):
                    continue
        found = ObjectState(store, CLUSTER_KEY, ClusterDocument).read().document
        assert found.views["v"].sql == "select 2 as a from t"
        assert found.namings == base.namings + 3
        assert found.definitions == ("mark 0", "mark 1", "mark 2")
        again = read_change("create or replace view v as select 0 as a from t")
        assert with_declared(found, again, declared(again, base, engine), "mark 0") is found


def test_a_view_that_another_scheduler_made_is_found_at_the_second_look(base, engine):
    looks = Looks(base)
    looks.now = made("create view v as select n from t", base, engine)
    inlining = Inlining(looks, WrittenViews(engine))

    def run(text):
        try:
            return engine.describe(text, {"t": SCHEMA}).names
        except SqlError:
            looks.refresh()
            raise

    assert inlining.run("from v", run) == ["n"]


def test_a_name_of_with_is_never_taken_for_a_table_of_a_view(base, engine):
    cluster = made("create view w as from v", made("create view v as from t", base, engine), engine)
    inlining = Inlining(Looks(cluster), WrittenViews(engine))
    for text in (
        "with t as (select 1 as id, 2 as n) from v",
        "with x as (select 1), t as (select 7 as id) select * from x, (select * from w)",
        "with recursive t as (select 1 as n union all select n + 1 from t, v) from t",
        "with t as (select 1 as id) delete from t2 using v where v.id = t2.id",
        "select * from (with t as (select 1 as id) select * from t, w)",
    ):
        with pytest.raises(SqlError, match="reads table 't', and WITH gives that name to a query here"):
            inlining.written_out(text)
    with pytest.raises(SqlError, match="reads table 't', and WITH gives that name"):
        made("create view more as with t as (select 1 as id) from v", cluster, engine)
    for text in ("with v as (select 1 as t) from v", "select * from v, (with t as (select 5) from t)"):
        found = inlining.written_out(text).text
        assert engine.describe(found, {"t": SCHEMA}).names in (["t"], ["id", "n", "5"])


def test_errors_have_their_places_in_what_was_sent(base, engine):
    inlining = Inlining(Looks(made("create view v as select n from t", base, engine)), WrittenViews(engine))
    with pytest.raises(SqlError, match=r"nope.*\(line 2, column 15\)"):
        inlining.run("select * from v\nwhere n = 1 + nope", lambda text: engine.describe(text, {"t": SCHEMA}))


def test_ways_and_depths():
    view = SqlView(name="v", sql="", schema=SCHEMA, types=("", ""), answers=("id", "n"))
    views = {"a": evolve(view, reads=("b", "t")), "b": evolve(view, reads=("t",))}
    assert cycle_of("t2", ("a",), views) is None
    assert cycle_of("b", ("a",), views) == ("b", "a", "b")
    assert (depth_of("c", ("t",), views), depth_of("c", ("a",), views)) == (1, 3)


def test_one_client_has_half_of_the_views_and_leaves_the_rest_to_others(base, engine, monkeypatch):
    monkeypatch.setattr("ballista_py.coordinator.tables.sql_views.MAX_VIEWS", 6)
    monkeypatch.setattr("ballista_py.coordinator.tables.sql_views.MAX_ALL_VIEWS_CHARS", 160)

    def of(client, name, cluster, query="select 1 as id", replaces=False):
        change = read_change(f"create {'or replace ' if replaces else ''}view {name} as {query}")
        return with_declared(cluster, change, evolve(declared(change, base, engine), maker=maker_of(client)), None)

    cluster = base
    for number in range(3):
        cluster = of("ada", f"a{number}", cluster)
    with pytest.raises(
        ConfigError, match="this client has its share of the cluster's views: 3, with 80 characters"
    ):
        of("ada", "more", cluster)
    cluster = of("ada", "a0", cluster, "select 2 as id", replaces=True)  # which is no view more
    with pytest.raises(ConfigError, match="its share"):
        of("ada", "a0", cluster, f"select '{'x' * 50}' as id", replaces=True)
    for number, client in enumerate(["bob", "", ""]):
        cluster = of(client, f"b{number}", cluster)
    with pytest.raises(ConfigError, match="as many views as it can"):
        of("bob", "more", cluster)
    nobody = base
    for number in range(6):  # without tokens all clients are one
        nobody = of("", f"n{number}", nobody)
    assert len(nobody.views) == 6


def test_a_view_says_whose_it_is_by_a_digest(base, engine):
    class Definitions(SqlViewDefinitions):
        def declared(self, change):
            return declared(change, base, engine)

        def _shown(self):
            pass

    store, runtime = MemoryStore(), SystemRuntime()
    ObjectState(store, CLUSTER_KEY, ClusterDocument).create(base)
    definitions = Definitions(queries=None, tables=TableMaker(store, runtime), engine=engine)
    for client in ("ada", ""):
        with working(Work(runtime, client=client)):
            definitions.carry_out(read_change(f"create view v{client} as select 1 as id"), f"token-{client}")
    found = ObjectState(store, CLUSTER_KEY, ClusterDocument).read().document.views
    assert (found["vada"].maker, found["v"].maker) == (maker_of("ada"), "")
    assert "ada" not in found["vada"].maker
