import pyarrow as pa
import pytest

from ballista_py.errors import ConfigError
from ballista_py.partitions.policies import ColumnMask, Policies, RowFilter, TableGrant
from ballista_py.partitions.scanned_table import (
    ScannedTable,
    external_table,
    require_alone,
    scanned_name,
    snapshot_map,
    snapshot_of,
    snapshot_spec,
    with_own_names,
)
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import read_change

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string())])
DELTA = {"format": "delta", "path": "/lake/t"}


def test_the_name_of_a_snapshot_is_no_name_of_a_table():
    name = ScannedTable(name="größe 1", scan=DELTA, named=7).snapshot_name("12-a_b")
    assert (scanned_name(name), snapshot_of(name)) == ("größe 1", (7, "12-a_b"))
    with pytest.raises(ConfigError, match="not usable"):
        TableSpec(name=name, schema=SCHEMA, spec=snapshot_spec(name, SCHEMA).spec)


@pytest.mark.parametrize("name", ["t@", "t@x-1", "t@7", "t@7-", "t@7-A", "t@-1-2", "t@²-1", "t@7-a.b", "t@7-a b"])
def test_what_is_no_name_of_a_snapshot_is_told(name):
    assert snapshot_of(name) is None


@pytest.mark.parametrize("snapshot", ["", "A", "a.b", 'a"b', "a/b", "a" * 81])
def test_a_snapshot_cannot_be_called_what_a_name_cannot_hold(snapshot):
    with pytest.raises(ConfigError, match="cannot be called"):
        ScannedTable(name="t", scan=DELTA).snapshot_name(snapshot)


@pytest.mark.parametrize(
    "scan",
    [
        None,
        {},
        "delta",
        {"format": "csv"},
        {"path": "/x"},
        {**DELTA, "options": object()},
        {**DELTA, "x": "y" * 20_000},
    ],
)
def test_a_scan_says_a_format_and_is_bounded(scan):
    with pytest.raises(ConfigError, match="table 't'"):
        ScannedTable(name="t", scan=scan)


def test_a_snapshot_is_split_by_nothing_that_a_statement_can_name():
    spec, pmap = snapshot_spec("t@1-2", SCHEMA), snapshot_map("t@1-2", 5)
    assert not {column.name for column in spec.spec.columns} & set(SCHEMA.names)
    assert (len(pmap), pmap.owner(0)) == (5, None)
    assert [len(snapshot_map("t@1-2", n)) for n in (0, 1, 10**9)] == [2, 2, 64]


def test_rights_on_a_table_are_rights_on_its_snapshots():
    policies = Policies(
        grants=(TableGrant(to=("staff",), may=("select",), tables=("t",)),),
        rows=(RowFilter(tables=("t",), where="id > 1"),),
        masks=(ColumnMask(tables=("t",), columns=("kind",), value="'*'"),),
    )
    anna = policies.of("anna", ["staff"])
    assert anna.may("select", "t@7-3")
    assert anna.is_protected("t@7-3")
    assert (anna.filters("t@7-3"), len(anna.masks("t@7-3"))) == (("id > 1",), 1)
    assert not anna.may("select", "u@7-3")


@pytest.mark.parametrize(
    "scan",
    [
        DELTA,
        {"format": "parquet", "path": "s3://b/it's/", "shared": True},
        {"format": "iceberg", "catalog": {"uri": "http://c", "s3.region": "eu"}, "table": "ns.t"},
        {
            "format": "parquet",
            "path": "s3://b/t",
            "options": {"s3.endpoint": "http://x", "s3.access-key-id": "${secrets:k}"},
        },
    ],
)
def test_the_statement_that_is_written_is_read_as_it_was_meant(scan):
    made = read_change(external_table('od"d', scan))
    assert (made.table, made.scan) == ('od"d', scan)


def test_a_scanned_table_takes_nothing_else():
    require_alone("t", [None, (), [], {}])
    for one in ("/path", ["id"], SCHEMA, {"a": 1}, object()):
        with pytest.raises(ConfigError, match="leave them out"):
            require_alone("t", [one])


def test_columns_that_are_called_by_their_expressions_are_called_as_one_node_does():
    names = ['max("trips@1-2".x)', '(SELECT a FROM "t 1@1-2" AS "t 1")', "plain", '"a@b.c"']
    found = with_own_names(pa.schema([(name, pa.int64()) for name in names])).names
    assert found == ["max(trips.x)", '(SELECT a FROM "t 1")', "plain", '"a@b.c"']
