"""What a look at the tables of a materialized view tells apart: every change of them, and nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.refreshes.view_look import look_at_tables
from ballista_py.coordinator.tables.materialized_views import changes_by_itself, require_other_reads
from ballista_py.errors import SqlError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import QUERY, TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Catalog
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage

SCHEMA = pa.schema([pa.field("g", pa.int64(), nullable=False)])
RUNTIME = SystemRuntime()


class Place:
    """Two tables of two partitions in a store, and a view of the first."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        spec = PartitionSpec.parse(["g"], SCHEMA)
        self.tables = {name: TableSpec(name=name, schema=SCHEMA, spec=spec) for name in ("t", "other")}
        self.views = {"v": self.view("select g from t where g > 1")}
        for name in self.tables:
            for value in (1, 2):
                self.partition(name, value).create()

    def view(self, sql: str, reads: tuple[str, ...] = ("t",)) -> SqlView:
        return SqlView(name="v", sql=sql, schema=SCHEMA, types=("BIGINT",), answers=("g",), reads=reads)

    def partition(self, table: str, value: int) -> PartitionStorage:
        path = self.tables[table].spec.path((value,))
        return PartitionStorage(self.store, self.tables[table].folder, path, runtime=RUNTIME)

    def add(self, table: str, value: int, token: str) -> None:
        self.partition(table, value).commit(add=[DataFile(path=token, rows=1, bytes=1)], epoch=0, token=token)

    def seen(self) -> ClusterView:
        catalog = Catalog(tables=self.tables, maps={})
        return ClusterView(catalog=catalog, members=frozenset(), addresses={}, sql_views=self.views)

    def look(self, query: str) -> str:
        return look_at_tables(query, self.seen(), self.store)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize(
    "query", ["select g from t", "select count(*) from v", "with t as (from v) select * from t"]
)
def test_every_change_of_what_it_reads_is_told(place, query):
    seen = [place.look(query)]
    changes = [
        lambda: place.add("t", 1, "a"),
        lambda: place.add("t", 2, "b"),
        lambda: TableDecisions(place.store, "t", runtime=RUNTIME).commit("x@s", "c", affected=1, begun=0),
        lambda: place.tables.update(t=evolve(place.tables["t"], definition=1)),
        lambda: place.tables.update(t=evolve(place.tables["t"], incarnation="5f2a")),
        lambda: place.tables.pop("t"),
    ]
    for change in changes:
        change()
        seen.append(place.look(query))
    assert len(set(seen)) == len(seen)
    assert all(seen)


def test_what_it_does_not_read_is_not_told(place):
    before = place.look("select g from t")
    place.add("other", 1, "a")
    place.tables["third"] = evolve(place.tables["t"], name="third")
    assert place.look("select g from t") == before


def test_a_table_whose_name_begins_alike_is_another_one(place):
    spec = place.tables["t"]
    place.tables["t-2"] = evolve(spec, name="t-2")
    before = place.look("select g from t")
    place.partition("t-2", 1).create()
    place.add("t-2", 1, "a")
    assert place.look("select g from t") == before


def test_another_query_of_a_view_is_told(place):
    before = place.look("from v")
    place.views["v"] = place.view("select g from t where g > 2")
    assert place.look("from v") != before


@pytest.mark.parametrize(
    ("query", "changes"),
    [
        ("select now()", True),
        ("select * from t where at > current_timestamp", True),
        ("select CURRENT_DATE", True),
        ("select age(at) from t", True),
        ("select age from t", False),
        ("select random from t", False),
        ("select random() from t", True),
        ("select gen_random_uuid() as id", True),
        ("select 'now()' as text from t", False),
        ('select "now"() as text from t', True),
        ('select "current_date" from t', False),
        ("select today() from t", True),
        ("select g from t -- now()", False),
        ("select g from t using sample 10%", True),
        ("select g from t tablesample reservoir(20)", True),
    ],
)
def test_a_query_whose_rows_change_by_themselves_is_known(place, query, changes):
    assert changes_by_itself([query]) is changes
    assert (place.look(query) == "") is changes


@pytest.mark.parametrize(
    ("name", "query", "way"),
    [
        ("m", "select g from m", "m reads m"),
        ("m", "select g from above", "m reads above reads m"),
        ("other", "select g from m", "other reads m reads other"),
        ("t", "select g from m", None),
    ],
)
def test_none_reads_itself(place, name, query, way):
    source = {"format": QUERY, "sql": "select g from other"}
    place.tables["m"] = evolve(place.tables["t"], name="m", source=source)
    place.views["above"] = evolve(place.view("select g from m", ("m",)), name="above")
    if way is None:
        require_other_reads(name, query, place.seen())
        return
    with pytest.raises(SqlError, match=f"would read itself: {way}"):
        require_other_reads(name, query, place.seen())


def test_a_view_that_changes_by_itself_is_known(place):
    place.views["v"] = place.view("select g from t where g < epoch(now())")
    assert place.look("select * from v") == ""
