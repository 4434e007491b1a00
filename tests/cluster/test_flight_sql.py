"""Clients that know nothing of ballista_py: the ADBC driver for Arrow Flight SQL on a cluster of real processes."""

import datetime as dt
import threading
import time
import warnings

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pandas
import polars
import pyarrow as pa
import pytest

from ballista_py.engines.same_answer import difference
from ballista_py.node.demo.demo import QUERIES

pytestmark = pytest.mark.cluster

ORDERS = "select * from orders"


@pytest.fixture
def connection(cluster):
    with flightsql.connect(cluster.flight_sql_url(), autocommit=True) as made:
        yield made


def rows(connection, query, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetch_arrow_table()


def wait_until_shared(cluster, wait_until):
    """Return when both executors own orders: right after a start one of them may have all."""
    wait_until(lambda: "2 legs" in cluster.explain(ORDERS))


@pytest.mark.parametrize("name", QUERIES)
def test_tpch_is_answered_to_the_driver_as_by_one_node(connection, duck, name):
    assert difference(rows(connection, QUERIES[name]), duck.sql(QUERIES[name]).to_arrow_table()) is None


def test_the_same_answer_comes_as_arrow_pandas_and_polars(connection, duck):
    expected = duck.sql(ORDERS).to_arrow_table()
    assert difference(rows(connection, ORDERS), expected) is None
    frame = pandas.read_sql(ORDERS, connection)
    assert (len(frame), list(frame.columns)) == (expected.num_rows, expected.column_names)
    frame = polars.read_database(ORDERS, connection)
    assert (
        difference(
            frame.sort("o_orderkey").select("o_orderkey").to_arrow(),
            duck.sql("select o_orderkey from orders order by 1").to_arrow_table(),
        )
        is None
    )
    with connection.cursor() as cursor:
        cursor.execute(ORDERS + " where o_orderkey < 100")
        assert len(cursor.fetchall()) == duck.sql(ORDERS + " where o_orderkey < 100").to_arrow_table().num_rows


def test_parameters_are_values_and_prune(connection, cluster):
    query = "select o_orderkey, ? as text from orders where o_orderkey = ? and o_orderdate > ?"
    found = rows(connection, query, ("it's; -- ?", 7, dt.date(1990, 1, 1)))
    assert found.to_pylist() == [{"o_orderkey": 7, "text": "it's; -- ?"}]
    assert rows(connection, query, ("x", 7, dt.date(2020, 1, 1))).num_rows == 0
    for values in [("x", 7, dt.date(2020, 1, 1), 4), ("x", 7)]:
        with pytest.raises(Exception, match=rf"3 parameter\(s\), {len(values)} values were bound"):
            rows(connection, query, values)
    with pytest.raises(Exception, match=r"no parameter, 1 value\(s\) were bound"):
        rows(connection, "select 1 as one", (1,))
    with cluster.client() as client:
        stats = client.query("select * from orders where o_orderkey = cast(7 as bigint)").stats
    assert stats["partitions"] == 1


def test_a_prepared_statement_says_what_it_gives_and_takes(connection):
    with connection.cursor() as cursor:
        taken = cursor.adbc_prepare(
            "select o_orderdate from orders where o_orderkey = ? and o_totalprice < ? limit ?"
        )
        assert taken.types == [pa.int64(), pa.decimal128(15, 2), pa.int64()]
        assert cursor.adbc_execute_schema("select o_orderdate from orders").types == [pa.date32()]


def test_each_partition_is_read_from_an_executor_and_together_they_are_the_answer(
    connection, cluster, duck, wait_until
):
    query = "select o_orderkey, o_comment from orders where o_orderkey % 3 = 0"
    wait_until_shared(cluster, wait_until)
    with connection.cursor() as cursor:
        partitions, schema = cursor.adbc_execute_partitions(query)
        tables = []
        for partition in partitions:
            cursor.adbc_read_partition(partition)
            tables.append(cursor.fetch_arrow_table())
    executors = {row["address"] for row in cluster.members() if row["role"] == "executor"}
    named = {address for address in executors for partition in partitions if address.encode() in partition}
    assert named == executors
    assert all(table.schema == schema for table in tables)
    assert min(table.num_rows for table in tables) > 0
    assert difference(pa.concat_tables(tables), duck.sql(query).to_arrow_table()) is None


def test_what_needs_a_merge_is_one_partition(connection):
    with connection.cursor() as cursor:
        partitions, _schema = cursor.adbc_execute_partitions("select count(*) from orders")
        assert len(partitions) == 1
        cursor.adbc_read_partition(partitions[0])
        assert cursor.fetchone() == (15_000,)


def test_a_partition_can_be_read_at_any_scheduler(cluster, duck, wait_until):
    """The second place that a partition names is the scheduler that is asked; the handle holds what it needs."""
    import pyarrow.flight as flight

    from ballista_py.transport.flight_sql.messages import message, pack

    wait_until_shared(cluster, wait_until)
    first, second = (flight.connect(f"grpc://{address}") for address in cluster.addresses())
    command = pack(message("CommandStatementQuery", query=ORDERS))
    info = first.get_flight_info(flight.FlightDescriptor.for_command(command))
    assert len(info.endpoints) == 2
    tables = [second.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert difference(pa.concat_tables(tables), duck.sql(ORDERS).to_arrow_table()) is None


def test_the_cluster_describes_itself(connection, duck):
    assert connection.adbc_get_info()["vendor_name"] == "ballista_py"
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
    (catalog,) = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    (schema,) = catalog["catalog_db_schemas"]
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert (catalog["catalog_name"], schema["db_schema_name"], len(tables)) == ("ballista", "main", 8)
    names = [column["column_name"] for column in tables["nation"]["table_columns"]]
    assert names == ["n_nationkey", "n_name", "n_regionkey", "n_comment"]
    assert connection.adbc_get_table_schema("nation").names == names


def test_transactions_and_substrait_are_refused_with_the_standard_status(cluster, connection):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        flightsql.connect(cluster.flight_sql_url()).close()
    assert any("Cannot disable autocommit" in str(warning.message) for warning in told)
    with pytest.raises(adbc_driver_manager.NotSupportedError, match="transaction support"):
        connection.adbc_connection.set_autocommit(False)
    with connection.cursor() as cursor, pytest.raises(adbc_driver_manager.NotSupportedError, match="Substrait"):
        cursor.execute(b"\x12\x00")


@pytest.mark.parametrize(
    ("query", "state"),
    [
        ("select nope from orders", "42703"),
        ("select * from nope", "42P01"),
        ("selec 1", "42601"),
        ("select cast(o_comment as integer) from orders", "22"),
        ("select * from orders where o_orderkey = ?", "42000"),
    ],
)
def test_an_error_is_one_line_with_an_sqlstate(connection, query, state):
    with pytest.raises(adbc_driver_manager.ProgrammingError, match=rf"\[SQLSTATE {state}") as caught:
        rows(connection, query)
    text = str(caught.value)
    assert "\n" not in text
    assert not any(word in text for word in ("Traceback", ".py", "File "))
    assert rows(connection, "select 1 as one").to_pylist() == [{"one": 1}]


def test_a_cancelled_query_stops_its_legs(cluster, connection):
    endless = "select count(*) from lineitem a, lineitem b where a.l_orderkey + b.l_partkey < 0"
    failed = []
    with connection.cursor() as cursor:

        def run():
            try:
                cursor.execute(endless)
                cursor.fetchall()
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.5)
        cursor.adbc_cancel()
        thread.join(60)
        assert not thread.is_alive()
    assert failed
    assert rows(connection, "select count(*) as n from region").to_pylist() == [{"n": 5}]


def test_explain_is_a_statement_too(connection, cluster):
    query = "select * from orders where o_orderkey = 7"
    found = rows(connection, "EXPLAIN " + query.replace("7", "?"), (7,))
    lines = found["plan"].to_pylist()
    assert any("1 of 16 partitions" in line for line in lines)


def test_our_own_client_gives_the_same_frames(cluster, connection):
    query = "select n_name, n_regionkey from nation order by n_name"
    with cluster.client() as client:
        result = client.query(query)
    assert result.to_polars().rows() == [tuple(row.values()) for row in result.table.to_pylist()]
    assert result.to_pandas().equals(pandas.read_sql(query, connection))


def test_a_column_of_a_parameter_has_one_name_whatever_is_bound(connection, duck):
    query = "select o_orderkey + ?, ? from orders where o_orderkey < ? order by 1"
    asked = duck.execute(query, [1, "a", 3])
    expected = [name for name, *_ in asked.description]
    asked.fetchall()  # else nobody can ask anything else over this connection, which all tests share
    assert rows(connection, query, (1, "a", 3)).column_names == expected == ["(o_orderkey + $1)", "$2"]
    with connection.cursor() as cursor:
        assert cursor.adbc_execute_schema(query).names == expected
    several = pa.record_batch([pa.array([1, 2]), pa.array(["a", "b"]), pa.array([2, 2])], names=["0", "1", "2"])
    found = rows(connection, query, several)  # of which each row is an answer with these columns
    assert found.to_pylist() == [dict(zip(expected, row, strict=True)) for row in ((2, "a"), (3, "b"))]
