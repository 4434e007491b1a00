"""Snapshots by their names, and declarations: what is lost, changed, dropped or sent again between two looks."""

import pyarrow as pa
import pytest
from attrs import evolve, field, frozen

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.lake.definitions import ScannedTables, declare, require_allowed
from ballista_py.coordinator.lake.snapshots import LakeSnapshots, moment_of, name_of
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.errors import ConfigError, SourceUnfit, SqlError, StoreUnavailable
from ballista_py.partitions.scanned_table import scanned_name
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.sql.parse.external_tables import CreateScanned
from ballista_py.state.documents.codec import DocumentCodec
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.stores.store import open_store

RUNTIME = SystemRuntime()
SCHEMA = pa.schema([("id", pa.int64())])


@frozen
class Snapshot:
    id: str
    schema: pa.Schema = SCHEMA
    rows: int | None = 10
    bytes: int | None = 100


@frozen
class Lake:
    """What lies there: `newest` of a path, and all that were."""

    newest: dict[str, Snapshot] = field(factory=dict)
    asked: list = field(factory=list)
    failing: list = field(factory=list)

    def open(self, scan, _opener):
        lake = self

        class Table:
            def credentials(self):
                return None

            def snapshot(self, version, moment_ms):
                lake.asked.append((scan, version, moment_ms))
                if lake.failing:
                    raise lake.failing[0]
                return lake.newest[scan["path"]] if version is None else Snapshot(str(version))

        return Table()


@pytest.fixture
def store(tmp_path):
    store = open_store((tmp_path / "state").as_uri())
    catalogs = Catalogs(store, RUNTIME)
    from ballista_py.state.documents.object_state import ObjectState

    ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=RUNTIME).create(ClusterDocument())
    assert catalogs.refresh().scanned == {}
    return store


@pytest.fixture
def lake():
    return Lake({"/t": Snapshot("5"), "/u": Snapshot("9")})


@pytest.fixture
def lakes(lake):
    return LakeSnapshots(RUNTIME, {"key": Secret("hunter2")}, open=lake.open)


def make(store, lakes, name="t", fmt="delta", path="/t", mark=None, **said):
    change = CreateScanned(table=name, scan={"format": fmt, "path": path, **said.pop("more", {})}, **said)
    return declare(TableMaker(store, RUNTIME), lakes, change, mark)


def view_of(store):
    return Catalogs(store, RUNTIME).refresh()


def test_a_name_means_one_snapshot_whatever_comes_after(store, lake, lakes):
    table = make(store, lakes)
    name = lakes.pinned(table)
    lake.newest["/t"] = Snapshot("6")
    assert lakes.named(name, view_of(store)).snapshot.id == "5"
    assert lakes.pinned(table) == f"t@{table.named}-6"


def test_one_that_is_not_remembered_is_opened_by_its_id(store, lake, lakes):
    name = lakes.pinned(make(store, lakes))
    lake.newest["/t"] = Snapshot("6")
    other = LakeSnapshots(RUNTIME, open=lake.open)
    assert other.named(name, view_of(store)).snapshot.id == "5"
    assert lake.asked[-1][1] == "5"


def test_plain_files_that_changed_are_no_longer_that_snapshot(store, lake, lakes):
    name = lakes.pinned(make(store, lakes, fmt="parquet"))
    other = LakeSnapshots(RUNTIME, open=lake.open)
    assert other.named(name, view_of(store)).snapshot.id == "5"
    lake.newest["/t"] = Snapshot("6")
    with pytest.raises(SqlError, match="have changed since"):
        LakeSnapshots(RUNTIME, open=lake.open).named(name, view_of(store))


def test_a_table_that_was_dropped_or_lies_elsewhere_has_none_of_the_names_it_had(store, lakes):
    name = lakes.pinned(make(store, lakes))
    make(store, lakes, path="/u", replaces=True)
    with pytest.raises(SqlError, match="Table 't' does not exist any more"):
        lakes.named(name, view_of(store))
    TableMaker(store, RUNTIME).drop("t")
    assert lakes.with_snapshots(view_of(store), {name}, None).catalog.scanned == {}


def test_the_same_snapshots_are_the_same_catalog_and_others_are_others(store, lake, lakes):
    table, view = make(store, lakes), view_of(store)
    first = lakes.pinned(table)
    one = lakes.with_snapshots(view, {first, "x@y.com"}, None).catalog
    assert lakes.with_snapshots(view, {first}, None).catalog is one
    lake.newest["/t"] = Snapshot("6")
    second = lakes.pinned(table)
    both = lakes.with_snapshots(view, {first, second}, None).catalog
    assert both is not one
    assert set(both.scanned) == {first, second}
    assert {scanned_name(known) for known in both.tables} == {"t"}


def test_a_catalog_without_barriers_is_never_given_for_one_with_them(store, lakes):
    table, view = make(store, lakes), view_of(store)
    name = lakes.pinned(table)

    class Gate:
        on = True

        def snapshot_shown(self, spec, _least):
            return spec, f'SELECT * FROM "{spec.name}" WHERE false OFFSET 0'

    plain = lakes.with_snapshots(view, {name}, None).catalog
    guarded = lakes.with_snapshots(view, {name}, Gate()).catalog
    assert plain.barriers == {}
    assert set(guarded.barriers) == {name}
    assert name in plain.sizes
    assert name not in guarded.sizes
    assert lakes.with_snapshots(view, {name}, None).catalog is plain


def test_secrets_are_put_in_where_it_is_opened_and_nowhere_else(store, lake, lakes):
    table = make(store, lakes, more={"options": {"s3.secret-access-key": "${secrets:key}"}})
    assert lake.asked[-1][0]["options"] == {"s3.secret-access-key": "hunter2"}
    assert "hunter2" not in repr(table)
    assert b"hunter2" not in store.get(CLUSTER_KEY).data
    with pytest.raises(ConfigError, match="references the secret"):
        LakeSnapshots(RUNTIME, open=lake.open).pinned(table)


def test_what_cannot_be_read_gets_no_name(store, lake, lakes):
    for error in (SourceUnfit("no table there"), StoreUnavailable("the store does not answer")):
        lake.failing[:] = [error]
        with pytest.raises(type(error)):
            make(store, lakes)
    lake.failing.clear()
    lake.newest["/t"] = Snapshot("5", pa.schema([("a", pa.list_(pa.null()))] * 2))
    with pytest.raises((SqlError, ConfigError, pa.ArrowInvalid)):
        make(store, lakes)
    assert view_of(store).scanned == {}


def test_a_statement_that_is_sent_again_does_nothing_whatever_there_is_by_then(store, lakes):
    maker, shown = TableMaker(store, RUNTIME), []
    tables = ScannedTables(maker, lakes, ["/"], lambda: shown.append(1))
    change = CreateScanned(table="t", scan={"format": "delta", "path": "/t"})
    assert tables.carry_out(change, "token") == 0
    named = view_of(store).scanned["t"].named
    maker.drop("t")
    assert tables.carry_out(change, "token") == 0  # its reply was lost
    assert view_of(store).scanned == {}
    assert tables.carry_out(change, "other") == 0
    assert view_of(store).scanned["t"].named > named
    assert len(shown) == 3
    with pytest.raises(ConfigError, match="exists already"):
        tables.carry_out(change, "third")
    assert tables.carry_out(evolve(change, if_not_exists=True), "fourth") == 0


def test_of_two_that_take_one_name_at_once_one_gets_it(store, lake, lakes):
    made = []

    def meanwhile(scan, opener):
        if not made:
            made.append(1)
            TableMaker(store, RUNTIME).create("t", None, ["bucket(2, id)"], schema=SCHEMA)
        return lake.open(scan, opener)

    with pytest.raises(ConfigError, match="exists already"):
        make(store, LakeSnapshots(RUNTIME, open=meanwhile))
    assert (set(view_of(store).scanned), set(view_of(store).catalog.tables)) == (set(), {"t"})
    make(store, lakes, name="u")
    with pytest.raises(ConfigError, match="scanned where it lies"):
        TableMaker(store, RUNTIME).create("u", None, ["bucket(2, id)"], schema=SCHEMA)


def test_releases_that_know_no_scanned_tables_keep_their_names(store, lakes):
    make(store, lakes)
    raw = store.get(CLUSTER_KEY).data
    assert b'"t":{"scanned":{' in raw

    @frozen(kw_only=True)
    class Before(ClusterDocument):
        """As a release without the field."""

    read = DocumentCodec(Before).decode(CLUSTER_KEY, raw.replace(b'"scanned":', b'"of a later release":'))
    assert list(read.document.unreadable) == ["t"]
    assert b"of a later release" in DocumentCodec(Before).encode(CLUSTER_KEY, read.header, read.document, read)


@pytest.mark.parametrize(
    ("scan", "locations", "allowed"),
    [
        ({"path": "/lake/t"}, ["/lake"], True),
        ({"path": "file:///lake/t"}, ["/lake"], True),
        ({"path": "/lake"}, ["/lake/"], True),
        ({"path": "/lakes/t"}, ["/lake"], False),
        ({"path": "/lake/../etc"}, ["/lake"], False),
        ({"path": "/lake//../etc"}, ["/lake"], False),
        ({"path": "/lake/./t"}, ["/lake"], False),
        ({"path": "s3://a/b/c"}, ["s3://a/b"], True),
        ({"path": "s3://a/bc"}, ["s3://a/b"], False),
        ({"path": "s3://a/b/../c"}, ["s3://a/b"], False),
        ({}, ["/"], False),
        ({"table": "n.t", "catalog": "c"}, ["/"], False),
        ({"table": "n.t", "catalog": "c"}, ["c"], True),
        ({"table": "n.t", "catalog": {"uri": "http://c/x"}}, ["http://c"], True),
        ({"table": "n.t", "catalog": {"uri": "http://c", "warehouse": "/etc"}}, ["http://c"], False),
        ({"table": "n.t", "catalog": {"uri": "http://c", "py-io-impl": "os.system"}}, ["http://c"], False),
        ({"path": "/t"}, [], False),
        ({"path": "s3://a/t", "options": {"s3.region": "eu"}}, ["s3://a"], True),
        ({"path": "s3://a/t", "options": {"s3.endpoint": "http://169.254.169.254"}}, ["s3://a"], False),
        ({"path": "s3://a/t", "options": {"s3.endpoint": "http://own:9000"}}, ["s3://a", "http://own:9000"], True),
        ({"path": "s3://a/t", "options": {"s3.proxy-uri": "http://mine"}}, ["s3://a"], False),
        ({"path": "s3://a/t", "options": {"s3.session-token": "${secrets:other}"}}, ["s3://a"], False),
        ({"path": "s3://a/t", "options": {"s3.region": "${secrets:other}"}}, ["s3://a"], False),
    ],
)
def test_a_client_names_what_lies_below_the_locations_and_nothing_else(scan, locations, allowed):
    if allowed:
        require_allowed("t", scan, locations)
        return
    with pytest.raises(ConfigError):
        require_allowed("t", scan, locations)


@pytest.mark.parametrize("options", [{"s3.secret-access-key": "hunter2"}, {"uri": "http://me:hunter2@c"}])
def test_no_declaration_holds_a_secret_itself(store, lakes, options):
    with pytest.raises(ConfigError, match="holds a secret") as refused:
        make(store, lakes, more={"options": options})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("snapshot", "plain"), [("12", True), ("ab_c-1", True), ("A", False), ("a b", False), ("", False)]
)
def test_a_snapshot_is_called_by_its_id_where_that_is_a_word(snapshot, plain):
    assert (name_of(snapshot) == snapshot) is plain
    assert len(name_of("x" * 1_000)) == 16


def test_a_time_says_its_zone_or_is_of_utc():
    assert moment_of("1970-01-01") == 0
    assert moment_of("1970-01-01T01:00:00+01:00") == 0
    for text in ("", "yesterday", "2026-13-01", "3"):
        with pytest.raises(SqlError, match="time of a snapshot"):
            moment_of(text)
