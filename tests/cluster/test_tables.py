"""Tables from sources, their bad inputs, and what stays after a restart."""

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError, PartitionKeysMissing, UnsupportedExpression

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def small():
    with LocalCluster(schedulers=1, executors=2) as cluster:
        yield cluster


def test_a_table_is_loaded_when_create_table_returns(small, events):
    small.create_table("loaded", source=events, partition_by=["bucket(4, id)"])
    assert small.sql("select count(*) as n, sum(id) as s from loaded").to_pylist() == [{"n": 1_000, "s": 499_500}]


def test_a_table_may_be_split_by_a_column(small, events):
    small.create_table("by_kind", source=events, partition_by=["kind"])
    with small.client() as client:
        result = client.query("select count(*) as n from by_kind where kind = 'k3'")
    assert result.table.to_pylist() == [{"n": 143}]
    assert (result.stats["partitions"], result.stats["partitions_total"]) == (1, 7)


def test_a_managed_table_is_empty_and_readable(small):
    small.create_table("managed", schema=pa.schema([("id", pa.int64())]), partition_by=["bucket(4, id)"])
    assert small.sql("select count(*) as n, max(id) as m from managed").to_pylist() == [{"n": 0, "m": None}]


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (
            {},
            PartitionKeysMissing,
            "table 'bad' has no partition keys: say how its rows are split (partition_by=",
        ),
        ({"partition_by": ["bucket(4, nope)"]}, UnsupportedExpression, "no column 'nope'"),
        ({"partition_by": ["bucket(0, id)"]}, UnsupportedExpression, "not 0"),
        ({"partition_by": ["rand()"]}, UnsupportedExpression, "rand"),
        ({"source": "/does/not/exist.parquet"}, ConfigError, "exist.parquet"),
        ({"source": None}, ConfigError, "either a source, or a schema"),
        ({"distribution": "replicated", "partition_by": ["bucket(4, id)"]}, ConfigError, "replicated"),
        ({"partition_by": ["bucket(4, id)"], "colocate_with": "nope"}, ConfigError, "co-located"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_a_bad_table_is_one_clear_error_and_leaves_nothing(small, events, arguments, kind, said):
    with pytest.raises(kind, match=said.replace("(", r"\(").replace(")", r"\)").replace("[", r"\[")) as raised:
        small.create_table("bad", **{"source": events, **arguments})
    assert "\n" not in str(raised.value)
    with small.client() as client:
        assert "bad" not in {row["table"] for row in client.tables()}


def test_an_unreadable_source_is_named(small, tmp_path):
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 this is no Parquet file")
    with pytest.raises(ConfigError, match=r"broken\.parquet") as raised:
        small.create_table("bad", source=str(path), partition_by=["bucket(4, id)"])
    assert "\n" not in str(raised.value)


def test_a_name_is_taken_once(small, events):
    small.create_table("taken", source=events, partition_by=["bucket(2, id)"])
    with pytest.raises(ConfigError, match="'taken' exists already"):
        small.create_table("taken", source=events, partition_by=["bucket(2, id)"])
    with pytest.raises(UnsupportedExpression, match=r"'taken'.*would move rows.*bucket\(4, id\) instead of"):
        small.create_table("taken", source=events, partition_by=["bucket(4, id)"])
    assert small.sql("select count(*) as n from taken").to_pylist() == [{"n": 1_000}]


def test_tables_outlive_the_processes_that_served_them(tmp_path, events):
    location = (tmp_path / "state with spaces and ü").as_uri()
    with LocalCluster(schedulers=1, executors=1, state_location=location, ttl_ms=1_000) as cluster:
        cluster.create_table("kept", source=events, partition_by=["bucket(4, id)"])
        for node in cluster.node_ids:
            cluster.kill(node)
    with LocalCluster(schedulers=1, executors=2, state_location=location, ttl_ms=1_000) as cluster:
        cluster.wait_until_loaded("kept")
        assert cluster.sql("select count(*) as n from kept").to_pylist() == [{"n": 1_000}]


def test_an_unknown_node_is_named(small):
    with pytest.raises(BallistaError, match="no node 'executor-9'"):
        small.kill("executor-9")
