"""A table that cannot be used stops no other: it is left out, named with the reason, and can be dropped."""

from __future__ import annotations

import logging

import orjson
import pyarrow as pa
import pytest

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.queries.plan_cache import Plans
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents import documents
from ballista_py.state.documents.decisions import StatementsDocument, statements_key
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, partition_map_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
TWICE = pa.schema([("a", pa.int32()), ("A", pa.int32())])


@pytest.fixture
def engine():
    made = DuckDBEngine(threads=1)
    yield made
    made.close()


@pytest.fixture
def store():
    """That of a cluster with the tables `good` and `bad`."""
    made = MemoryStore()
    ObjectState(made, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
    for name in ("good", "bad"):
        TableMaker(made, SystemRuntime()).create(name, None, ["bucket(2, id)"], schema=SCHEMA)
    return made


def edit(store, key, change):
    """Change the JSON of a document as nobody of this release would."""
    stored = store.get(key)
    document = orjson.loads(stored.data)
    change(document)
    store.replace(key, orjson.dumps(document), stored.version)


def older_release_made(store):
    """A table that was committed before its columns were looked at."""
    spec = TableSpec(name="bad", schema=TWICE, spec=PartitionSpec.whole(), distribution="replicated")
    ObjectState(store, CLUSTER_KEY, ClusterDocument).update(lambda cluster: cluster.with_table(spec))


BROKEN = {
    "columns that no engine holds": older_release_made,
    "a map of another version": lambda store: edit(
        store, partition_map_key("bad"), lambda found: found["header"].update(schema_version=99)
    ),
    "a map that is something else": lambda store: edit(
        store, partition_map_key("bad"), lambda found: found.clear()
    ),
    "a map without its columns": lambda store: edit(
        store, partition_map_key("bad"), lambda found: found.update(map={"table": "bad"})
    ),
    "a declaration of a newer release": lambda store: edit(
        store, CLUSTER_KEY, lambda found: found["tables"]["bad"].update(file_format="lance")
    ),
    "a declaration of nonsense": lambda store: edit(
        store, CLUSTER_KEY, lambda found: found["tables"].update(bad=[1, 2])
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_table_that_cannot_be_used_stops_no_other_and_is_named_when_it_is_asked_for(store, engine, caplog, how):
    BROKEN[how](store)
    runtime = SystemRuntime()
    catalogs, plans = Catalogs(store, runtime), Plans(engine, runtime)
    with caplog.at_level(logging.ERROR):
        catalog = catalogs.refresh().catalog
        catalogs.refresh()
    assert [record.getMessage() for record in caplog.records] == ["table_left_out"]
    assert list(catalog.tables) == list(catalog.maps) == ["good"]
    assert plans.plan("select count(*) from good", catalog).output.names == ["count_star()"]
    assert len(plans.output("select 1", catalog)) == 1
    for statement in ("select * from bad", 'select * from good join "BAD" using (id)'):
        with pytest.raises(SqlError, match="table 'bad' cannot be used: ") as named:
            plans.output(statement, catalog)
        assert "\n" not in str(named.value)
    with pytest.raises(SqlError, match="'nowhere' does not exist"):
        plans.output("select * from nowhere", catalog)


@pytest.mark.parametrize("how", BROKEN)
def test_a_table_that_cannot_be_used_keeps_its_name_and_can_be_dropped(store, how):
    BROKEN[how](store)
    maker, spread = TableMaker(store, SystemRuntime()), "partitioned"
    if how == "columns that no engine holds":
        spread = "replicated"
    with pytest.raises(ConfigError, match="table 'bad' exists already"):
        maker.create(
            "bad", None, [] if spread == "replicated" else ["bucket(2, id)"], schema=SCHEMA, distribution=spread
        )
    assert maker.drop("bad")
    assert not maker.drop("bad")
    assert list(maker.cluster().tables) == ["good"]


def test_what_cannot_be_read_survives_the_changes_of_others_as_it_is(store):
    strange = {"shape": "new", "deep": [{"er": 1}]}
    edit(store, CLUSTER_KEY, lambda found: found["tables"].update(bad=strange))
    state = ObjectState(store, CLUSTER_KEY, ClusterDocument)
    state.update(lambda cluster: cluster.without_executors(frozenset()))
    TableMaker(store, SystemRuntime()).create("more", None, ["bucket(2, id)"], schema=SCHEMA)
    raw = orjson.loads(store.get(CLUSTER_KEY).data)
    assert raw["tables"]["bad"] == strange
    assert sorted(raw["tables"]) == ["bad", "good", "more"]
    assert "unreadable" not in raw


UNFIT = [
    TWICE,
    pa.schema([("", pa.int32())]),
    pa.schema([("a\0b", pa.int32())]),
    pa.schema([("__file_id", pa.int32())]),
    pa.schema([("__Partition", pa.int32())]),
    pa.schema([("__ballista_row", pa.int32())]),
    pa.schema([("a", pa.decimal256(60, 2))]),
    pa.schema([("a", pa.sparse_union([pa.field("x", pa.int32())]))]),
    pa.schema([]),
]


@pytest.mark.parametrize("schema", UNFIT, ids=lambda schema: ascii(schema.names))
def test_a_table_that_no_engine_could_hold_is_never_committed(store, schema):
    before = store.get(CLUSTER_KEY).data
    with pytest.raises(ConfigError, match="table 'new'") as refused:
        TableMaker(store, SystemRuntime()).create("new", None, [], schema=schema, distribution="replicated")
    assert "\n" not in str(refused.value)
    assert store.get(CLUSTER_KEY).data == before


def test_nothing_is_kept_of_tables_that_were_dropped_long_ago(store, monkeypatch):
    monkeypatch.setattr(documents, "REMEMBERED_DROPS", 3)
    runtime = SystemRuntime()
    catalogs, maker = Catalogs(store, runtime), TableMaker(store, runtime)

    def kept():
        known = (catalogs._maps, catalogs._statements, catalogs._runs, catalogs._refused)
        return max(map(len, known))

    for number in range(8):
        name = f"passing_{number}"
        maker.create(name, None, [], schema=SCHEMA, distribution="replicated")
        folder = maker.cluster().tables[name].folder
        ObjectState(store, statements_key(folder), StatementsDocument).create(StatementsDocument())
        catalogs.refresh()
        catalogs.sequences([name, "good"])
        assert maker.drop(name)
    catalogs.refresh()
    assert kept() <= 3 + 2
    assert catalogs.sequences(["good"]) == {"good": 0}
