"""A cluster of real processes gives the answers of a single node."""

import time

import pytest

from ballista_py.engines.same_answer import difference
from ballista_py.errors import SqlError
from ballista_py.node.demo.demo import QUERIES

pytestmark = pytest.mark.cluster

SMALL = {
    "nothing but constants": "select 1 as one, 'x' as x",
    "a point": "select * from orders where o_orderkey = 7",
    "a point that is not there": "select * from orders where o_orderkey = 8",
    "an aggregate over nothing": "select count(*), sum(l_quantity), max(l_comment) from lineitem where l_orderkey = -1",
    "a replicated table alone": "select n_name from nation order by n_name limit 3",
    "a replicated table, preserved": (
        "select n_name, count(c_custkey) from nation left join customer on c_nationkey = n_nationkey group by n_name"
    ),
    "a table with itself": (
        "select count(*) from orders a join orders b on a.o_custkey = b.o_custkey and a.o_orderkey < b.o_orderkey"
    ),
    "a subquery": "select count(*) from orders where o_totalprice > (select avg(o_totalprice) from orders)",
    "a union": "select o_custkey as k from orders union select c_custkey from customer order by k limit 20",
    "a window": (
        "select o_custkey, o_orderkey, row_number() over (partition by o_custkey order by o_orderkey) as n "
        "from orders qualify n = 3"
    ),
    "a common table": (
        "with spent as (select o_custkey, sum(o_totalprice) as total from orders group by 1) "
        "select count(*) from spent a join spent b on a.total = b.total"
    ),
    "two names alike": "select o_orderkey, o_orderkey from orders where o_orderkey < 10",
}


@pytest.mark.parametrize("name", QUERIES)
def test_tpch_is_answered_as_by_one_node(cluster, duck, name):
    expected = duck.sql(QUERIES[name]).to_arrow_table()
    assert difference(cluster.sql(QUERIES[name]), expected) is None


@pytest.mark.parametrize("name", SMALL)
def test_a_query_is_answered_as_by_one_node(cluster, duck, name):
    expected = duck.sql(SMALL[name]).to_arrow_table()
    assert difference(cluster.sql(SMALL[name]), expected) is None


def test_a_point_lookup_touches_one_partition_and_one_executor(cluster):
    with cluster.client() as client:
        stats = client.query("select * from orders where o_orderkey = 7").stats
    assert (stats["partitions"], stats["partitions_total"], len(stats["executors"])) == (1, 16, 1)


def test_a_join_in_one_group_ships_results_and_not_rows(cluster):
    sql = "select o_orderpriority, sum(l_quantity) from orders join lineitem on o_orderkey = l_orderkey group by 1"
    until = time.monotonic() + 60
    with cluster.client() as client:
        # While partitions move, those of one value may have two owners for a moment.
        while "not joined in place" in client.explain(sql)["text"] and time.monotonic() < until:
            time.sleep(0.2)
        result = client.query(sql)
    assert result.table.num_rows == 5
    assert result.stats["shipped_bytes"] < 10_000


def test_explain_says_what_is_pruned_and_which_executor_reads_what(cluster):
    text = cluster.explain("select count(*) from orders where o_orderkey in (1, 2, 3)")
    assert "of 16 partitions, pruned by" in text
    assert "executor-" in text


def test_another_dialect_is_translated(cluster):
    assert cluster.sql("select `n_name` from nation where n_name like 'FR%'", dialect="spark").num_rows == 1


def test_an_error_comes_from_the_tree_and_the_cluster_goes_on(cluster):
    with cluster.client() as client:
        with pytest.raises(SqlError, match="line 1"):
            client.sql("select nope from orders")
        with pytest.raises(SqlError):
            client.sql("select l_orderkey / 0, cast(l_comment as integer) from lineitem")
        assert client.sql("select count(*) as n from region").to_pylist() == [{"n": 5}]


def test_every_scheduler_answers(cluster):
    from ballista_py.transport.client.client import connect

    for address in cluster.addresses():
        with connect(address) as client:
            assert client.sql("select count(*) as n from nation").to_pylist() == [{"n": 25}]


def test_people_see_members_in_a_notebook(cluster):
    assert "executor-2" in cluster._repr_html_()


def test_a_small_side_of_a_join_goes_to_the_legs_of_the_large_one(cluster, duck):
    sql = (
        "select p_brand, sum(l_quantity) as total from lineitem join part on l_partkey = p_partkey "
        "where p_size < 10 group by p_brand"
    )
    assert "broadcast b0" in cluster.explain(sql)
    with cluster.client() as client:
        result = client.query(sql)
    assert difference(result.table, duck.sql(sql).to_arrow_table()) is None
    assert result.stats["shipped_bytes"] < 200_000


@pytest.mark.long
@pytest.mark.spark
def test_the_same_statement_runs_on_spark_over_the_same_partitions(cluster, duck):
    sql = QUERIES["Q3"]
    expected = duck.sql(sql).to_arrow_table()
    with cluster.client() as client:
        result = client.query(sql, engine="spark")
        assert difference(result.table, expected) is None
        assert result.stats["engine"] == "spark"
        assert "engine" not in client.query(sql, engine="auto").stats
