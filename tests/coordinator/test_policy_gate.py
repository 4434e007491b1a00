"""Who decides, by which policies, and what becomes of copies of documents that are older, or gone."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.cluster_view import ClientViews, ClusterView
from ballista_py.coordinator.policies.changes import require_change, require_rows
from ballista_py.coordinator.policies.gate import Gate
from ballista_py.coordinator.policies.known import IDLE_LOOK_MS, LOOK_MS, KnownPolicies
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import BallistaError, ConfigError, DocumentLost, DocumentOlder, ObjectMissing, SqlError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.policies import ColumnMask, Policies, RowFilter, TableGrant
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import TableSpec
from ballista_py.principal import Principal
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.plan import Catalog
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.policies import POLICIES_KEY, PoliciesDocument, PolicyShelf
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.work import Work, working

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("email", pa.string())])
POLICIES = Policies(
    operators=("ops",),
    grants=(
        TableGrant(to=("staff",), may=("select",), tables=("orders", "notes", "seen", "mine")),
        TableGrant(to=("staff",), may=("insert", "change", "create"), tables=("notes", "mine", "seen", "view")),
        TableGrant(to=("staff",), may=("create",), tables=("blind",)),
        TableGrant(to=("*",), may=("select",), tables=("public",)),
    ),
    rows=(RowFilter(tables=("orders",), where="region = current_user()", spares=("audit",)),),
    masks=(ColumnMask(tables=("orders",), columns=("email",), value="'*'", spares=("audit",)),),
)


class Clock(SystemRuntime):
    """A clock that is set by hand."""

    now_ms = 0.0

    def monotonic_ms(self):
        return self.now_ms


class Cluster:
    """A store with a catalog, and schedulers that read it."""

    def __init__(self, engine):
        self.store, self.clock, self.engine = MemoryStore(), Clock(), engine
        ObjectState(self.store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
        spec = PartitionSpec.parse(["bucket(2, id)"], SCHEMA)
        names = ("orders", "notes", "secrets", "public", "kept")
        tables = {name: TableSpec(name=name, schema=SCHEMA, spec=spec) for name in names}
        query = {"format": "query", "sql": "select * from seen"}
        tables["kept"] = evolve(tables["kept"], source=query)
        maps = {name: PartitionMap.build(name, spec, spec.static_values()) for name in names}
        types, answers = ("BIGINT", "VARCHAR", "VARCHAR"), tuple(SCHEMA.names)
        view = SqlView(
            name="seen", sql="select * from notes", reads=("notes",), schema=SCHEMA, types=types, answers=answers
        )
        self.view = ClusterView(
            catalog=Catalog(tables=tables, maps=maps), members=frozenset(), addresses={}, sql_views={"seen": view}
        )
        self.gate = self.scheduler()

    def scheduler(self):
        return Gate(KnownPolicies(PolicyShelf(self.store, self.clock), self.clock), self.engine)

    def put(self, policies=POLICIES, revision=1, digest=None, on=True):
        digest = digest or f"of {revision}"
        return PolicyShelf(self.store, self.clock).put(
            PoliciesDocument(number=0, policies=policies, digest=digest, app="shop", revision=revision, on=on)
        )

    def current(self, _words=None):
        mark = ObjectState(self.store, CLUSTER_KEY, ClusterDocument).read().document.policies
        return evolve(self.view, policies=0 if mark is None else mark.number)

    refresh = current

    def seen(self, client, gate=None):
        with working(client_work(client)):
            return ClientViews(self, gate or self.gate).current()


def client_work(client):
    return Work(SystemRuntime(), client=client)


STAFF, AUDIT, OPS = (Principal(name, groups) for name, groups in
                     (("anna", ["staff"]), ("bert", ["staff", "audit"]), ("root", ["ops"])))  # fmt: skip


@pytest.fixture(scope="module")
def engine():
    made = DuckDBEngine(threads=1)
    yield made
    made.close()


@pytest.fixture
def cluster(engine):
    return Cluster(engine)


def test_without_policies_everybody_sees_everything(cluster):
    assert cluster.seen("nobody").catalog is cluster.view.catalog
    assert not cluster.gate.on


def test_each_sees_what_is_granted_and_hidden_parts_stand_behind_a_barrier(cluster):
    cluster.put()
    anna, bert = cluster.seen(STAFF).catalog, cluster.seen(AUDIT).catalog
    assert sorted(anna.tables) == ["notes", "orders", "public"]
    assert "region = 'anna'" in anna.barriers["orders"]
    assert "'*'" in anna.barriers["orders"]
    assert sorted(bert.tables) == ["notes", "orders", "public"]
    assert not bert.barriers
    assert cluster.seen(OPS).catalog is cluster.view.catalog
    for nobody in ("", "anna", Principal("anna", ["other"])):  # a name without its groups gives nothing
        assert sorted(cluster.seen(nobody).catalog.tables) == ["public"]
    assert cluster.seen("nobody").sql_views == {}
    assert list(cluster.seen(STAFF).sql_views) == ["seen"]


def test_the_same_client_sees_the_same_catalog_by_which_plans_are_remembered(cluster):
    cluster.put()
    first = cluster.seen(STAFF).catalog
    cluster.clock.now_ms += LOOK_MS
    assert cluster.seen(STAFF).catalog is first
    assert cluster.seen(Principal("carl", ["staff"])).catalog is not first
    cluster.put(evolve(POLICIES, rows=()), revision=2)
    cluster.clock.now_ms += LOOK_MS
    assert cluster.seen(STAFF).catalog is not first


def test_work_of_the_cluster_itself_and_looks_of_viewers_are_not_filtered(cluster):
    cluster.put()
    own, viewer = client_work("cluster refresh"), client_work("")
    own.is_own = viewer.is_viewer = True
    for work in (None, own, viewer):
        with working(work):
            assert ClientViews(cluster, cluster.gate).current().catalog is cluster.view.catalog
    assert sorted(cluster.seen("cluster refresh").catalog.tables) == ["public"]


def test_a_change_of_policies_counts_at_once_where_the_catalog_tells_and_after_a_second_elsewhere(cluster):
    cluster.put()
    cluster.seen(STAFF)
    cluster.put(evolve(POLICIES, grants=()), revision=2)
    assert not cluster.seen(STAFF).catalog.tables


def test_policies_count_before_the_catalog_knows_of_them(cluster):
    """Who gave them died between the two documents."""
    ObjectState(cluster.store, POLICIES_KEY, PoliciesDocument).create(
        PoliciesDocument(number=1, policies=POLICIES)
    )
    assert sorted(cluster.seen("nobody", cluster.scheduler()).catalog.tables) == ["public"]
    running = cluster.gate
    cluster.clock.now_ms += IDLE_LOOK_MS
    running.known.tick()
    assert running.on
    assert sorted(cluster.seen("nobody").catalog.tables) == ["public"]
    assert cluster.put().number == 2  # and whoever goes on completes it
    assert cluster.current().policies == 2


def test_an_older_copy_of_policies_or_none_opens_nothing(cluster):
    cluster.put(Policies(operators=("ops",), grants=(TableGrant(to=("*",), may=("select",), tables=("*",)),)))
    older = cluster.store.get(POLICIES_KEY).data
    cluster.put(POLICIES, revision=2)
    cluster.seen(STAFF)
    for gate in (cluster.gate, cluster.scheduler()):  # one that knew better, and one that starts
        _replace(cluster.store, POLICIES_KEY, older)
        cluster.clock.now_ms += LOOK_MS
        with pytest.raises(DocumentOlder):
            cluster.seen(STAFF, gate)
        cluster.store.delete(POLICIES_KEY)
        cluster.clock.now_ms += LOOK_MS
        with pytest.raises((DocumentLost, DocumentOlder)):
            cluster.seen(STAFF, gate)
        with pytest.raises(DocumentLost):
            cluster.seen(STAFF, cluster.scheduler())
        with working(client_work(OPS)), pytest.raises(BallistaError):
            gate.require("change", "notes")


@pytest.mark.parametrize("gone", [False, True])
def test_the_file_applied_with_a_higher_revision_mends_it(cluster, gone):
    cluster.put(Policies(operators=("ops",)))
    older = cluster.store.get(POLICIES_KEY).data
    for revision in (2, 3, 4):
        cluster.put(POLICIES, revision=revision, digest=f"of {revision}")
    cluster.store.delete(POLICIES_KEY) if gone else _replace(cluster.store, POLICIES_KEY, older)
    assert cluster.put(POLICIES, revision=5, digest="of 4").number == 5
    for gate in (cluster.gate, cluster.scheduler()):
        assert sorted(cluster.seen("nobody", gate).catalog.tables) == ["public"]


def test_an_older_copy_of_the_catalog_opens_nothing(cluster):
    before = cluster.store.get(CLUSTER_KEY).data
    cluster.put()
    _replace(cluster.store, CLUSTER_KEY, before)
    for gate in (cluster.gate, cluster.scheduler()):
        assert sorted(cluster.seen("nobody", gate).catalog.tables) == ["public"]


def test_policies_of_an_older_file_take_the_place_of_none(cluster):
    cluster.put(revision=3)
    with pytest.raises(ConfigError, match="newer"):
        cluster.put(Policies(), revision=2)
    same = cluster.put(revision=4, digest="of 3")
    assert (same.number, same.revision) == (1, 4)
    assert cluster.put(Policies(), revision=5, on=False).number == 2
    cluster.clock.now_ms += LOOK_MS
    assert len(cluster.seen("nobody").catalog.tables) == len(cluster.view.catalog.tables)


def test_policies_that_do_not_fit_a_table_hide_it_and_nothing_else(cluster):
    cluster.put(evolve(POLICIES, rows=(RowFilter(tables=("orders",), where="gone = 1"),), masks=()))
    seen = cluster.seen(STAFF).catalog
    assert sorted(seen.tables) == ["notes", "public"]
    assert "none of its columns" in seen.left_out["orders"]


ALLOWED = (
    "insert into notes values (1, 'a', 'b')", "update notes set id = 2 where id = 1", "delete from notes",
    "truncate notes",
    "create table mine (id bigint) partitioned by (bucket(2, id))", "drop table mine",
    "create view view as select 1 as one",
    "insert into notes select * from orders", "create table mine as select 1 as id",
)  # fmt: skip
DENIED = (
    "insert into orders values (1, 'a', 'b')", "insert into secrets values (1, 'a', 'b')", "update orders set id = 2",
    "delete from orders where id = 1", "truncate orders", "drop table orders", "alter table orders rename to mine",
    "alter table secrets rename to mine", "alter table mine rename to orders",
    "alter table blind rename to mine",
    "insert into public values (1, 'a', 'b')",
    "create or replace view seen as select * from orders", "drop view seen", "create view notes as select 1 as one",
    "alter table notes rename to mine", "create table mine (like secrets)", "comment on table secrets is 'x'",
    "create materialized view mine partitioned by (bucket(2, id)) as select 1 as id", "refresh materialized view kept",
    "create or replace table notes as select 1 as id",
)  # fmt: skip


@pytest.mark.parametrize("sql", [*ALLOWED, *DENIED])
def test_a_change_needs_all_that_it_does(cluster, sql):
    rights = POLICIES.of("anna", ["staff"])
    if sql in ALLOWED:
        require_change(rights, read_change(sql), cluster.view)
    else:
        with pytest.raises(SqlError, match=r"do not let client 'anna'|is for operators|is not done"):
            require_change(rights, read_change(sql), cluster.view)


@pytest.mark.parametrize(
    ("name", "mode", "exists", "allowed"),
    [
        ("notes", "append", True, True), ("notes", "upsert", True, True), ("notes", "changes", True, True),
        ("notes", "replace", True, True), ("notes", "overwrite", True, True), ("mine", "create", False, True),
        ("mine", "create_append", False, True), ("orders", "append", True, False), ("secrets", "append", True, False),
        ("stolen", "create", False, False), ("stolen", "append", False, False), ("public", "upsert", True, False),
        ("orders", "create", True, False), ("orders", "something new", True, False),
    ],
)  # fmt: skip
def test_rows_are_taken_with_rights_alone(name, mode, exists, allowed):
    rights = POLICIES.of("anna", ["staff"])
    if allowed:
        require_rows(rights, name, mode, exists=exists)
        return
    with pytest.raises(SqlError):
        require_rows(rights, name, mode, exists=exists)


def test_lists_say_nothing_of_how_much_is_hidden(cluster):
    cluster.put()
    rows = [
        {"table": name, "rows": 7, "bytes": 9, "refresh_error": "LEAK", "failed": {"p": "LEAK"},
         "changes": {"error": "LEAK"}}
        for name in cluster.view.catalog.tables
    ]  # fmt: skip
    with working(client_work(STAFF)):
        shown = {row["table"]: row for row in cluster.gate.shown(rows, "table")}
        parts = cluster.gate.shown([{**row, "partition": 0, "path": "LEAK"} for row in rows], "table")
    assert sorted(shown) == ["notes", "orders", "public"]
    assert "LEAK" not in str(shown["orders"])
    assert shown["orders"]["rows"] is None
    assert shown["notes"]["rows"] == 7
    assert sorted(row["table"] for row in parts) == ["notes", "public"]


def _replace(store, key, data):
    with suppress(ObjectMissing):
        store.delete(key)
    store.create(key, data)
