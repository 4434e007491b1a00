"""Values of parameters are those that were meant, by every way into a cluster, or nothing is run at all."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import SqlError
from ballista_py.transport.flight.commands import sql_command

pytestmark = pytest.mark.cluster
NAMED, IN_ORDER = "select $name as name, $n + 1 as n", "select ? as name, ? + 1 as n"
WANTED = [{"name": "a", "n": 3}]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=1) as made:
        made.sql("create table kept (name varchar, n bigint) partitioned by (bucket(2, n))")
        yield made


def posted(cluster, path, body):
    request = urllib.request.Request(
        cluster.http_url() + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        raise SqlError(f"{error.code} {error.read().decode()}") from None


def over_http(cluster, sql, parameters):
    return posted(cluster, "/v1/sql", {"sql": sql, "parameters": parameters})


def job_over_http(cluster, sql, parameters):
    job = posted(cluster, "/v1/jobs", {"sql": sql, "parameters": parameters})
    with cluster.client() as client:
        return client.job(job["job_id"]).result(60).to_pylist()


def submitted(cluster, sql, parameters):
    with cluster.client() as client:
        return client.submit(sql, parameters).result(60).to_pylist()


def asked(cluster, sql, parameters):
    with cluster.client() as client:
        assert client.sql(sql, parameters=parameters) == client.query(sql, parameters=parameters).table
        assert client.stream(sql, parameters=parameters).reader().read_all() == cluster.sql(
            sql, parameters=parameters
        )
        return client.sql(sql, parameters=parameters).to_pylist()


def by_driver(cluster, sql, parameters):
    """As ADBC binds: a list as columns `0`, `1`, …; its driver for Flight SQL takes names as those of columns alone."""
    if isinstance(parameters, dict):
        columns = [pa.array([value]) for value in parameters.values()]
        parameters = pa.RecordBatch.from_arrays(columns, names=list(parameters))
    try:
        with flightsql.connect(cluster.flight_sql_url(), autocommit=True) as link, link.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetch_arrow_table().to_pylist()
    except adbc_driver_manager.Error as error:
        raise SqlError(str(error)) from None


WAYS = [over_http, job_over_http, submitted, asked, by_driver]


@pytest.mark.parametrize("ask", WAYS)
def test_values_are_bound_by_their_names_or_in_their_order(cluster, ask):
    assert ask(cluster, NAMED, {"n": 2, "name": "a"}) == WANTED
    assert ask(cluster, NAMED, {"$n": 2, "$name": "a"}) == WANTED
    assert ask(cluster, IN_ORDER, ["a", 2]) == WANTED
    assert ask(cluster, "select $2 as name, $1 + 1 as n", [2, "a"]) == WANTED


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"nmae": "a", "n": 2}, "$name has no value; the statement has no parameter $nmae: did you mean '$name'?"),
        ({"a": "a", "b": 2}, "$name, $n have no value; the statement has no parameter $a, $b"),
        ({"n": 2}, "$name has no value"),
        ({"name": "a", "n": 2, "m": 3}, "the statement has no parameter $m"),
        ({"name": "a", "n": 2, "$n": 3}, "$n was given twice"),
        (["a", 2], "the parameters of the statement have names"),
    ],
)
def test_names_that_are_not_those_of_the_statement_are_refused_by_every_way_in(cluster, ask, parameters, said):
    with pytest.raises(SqlError) as raised:
        ask(cluster, NAMED, parameters)
    assert said in str(raised.value)


@pytest.mark.parametrize("ask", [over_http, job_over_http, submitted, asked])
@pytest.mark.parametrize("parameters", [{"name": "a", "n": 2}, {"1": "a", "2": 2}])
def test_an_object_is_refused_for_parameters_without_names(cluster, ask, parameters):
    with pytest.raises(SqlError, match="have no names, so values for them are given in a list, in order: 2"):
        ask(cluster, IN_ORDER, parameters)


@pytest.mark.parametrize("parameters", ["ab", b"ab", 7, {1, 2}])
def test_a_client_binds_no_letters_of_a_text(cluster, parameters):
    with (
        cluster.client() as client,
        pytest.raises(SqlError, match="parameters are a list of values, or values by"),
    ):
        client.submit(IN_ORDER, parameters)


def test_rows_of_a_driver_are_written_by_what_the_statement_says(cluster):
    """A table that is bound has columns of its own: they count if the statement has names, and else their order."""
    rows = pa.table({"n": [1, 2], "name": ["x", "y"]})
    with flightsql.connect(cluster.flight_sql_url(), autocommit=True) as link, link.cursor() as cursor:
        cursor.executemany("insert into kept values ($name, $n)", rows)
        cursor.executemany("insert into kept (n, name) values (?, ?)", rows.rename_columns(["id", "id"]))
        with pytest.raises(adbc_driver_manager.Error, match="has no parameter \\$nn: did you mean '\\$n'"):
            cursor.executemany("insert into kept values ($name, $n)", rows.rename_columns(["nn", "name"]))
    found = cluster.sql("select name, n, count(*) as times from kept group by all order by n").to_pylist()
    assert found == [{"name": "x", "n": 1, "times": 2}, {"name": "y", "n": 2, "times": 2}]


def test_a_client_binds_parameters_of_every_kind_of_statement(cluster):
    with cluster.client() as client:
        client.sql("create table own (a bigint, b varchar) partitioned by (bucket(2, a))")
        assert client.sql("insert into own values (?, ?)", parameters=[1, "it's"]).to_pylist() == [
            {"affected_rows": 1}
        ]
        changed = client.sql("update own set b = $b where a = $a returning *", parameters={"a": 1, "b": "x"})
        assert changed.to_pylist() == [{"a": 1, "b": "x"}]
        assert client.sql("select `b` from own where a = ?", "spark", parameters=[1]).to_pylist() == [{"b": "x"}]
        assert client.query("select * from own where a = ?", parameters=[1]).stats["partitions"] == 1
        assert "1 of 3 partitions" in str(
            client.sql("explain select * from own where a = ?", parameters=[1]).to_pylist()
        )
        assert client.sql("select 1 as n", parameters=[]).to_pylist() == [{"n": 1}]
        with pytest.raises(
            SqlError, match="second argument is the dialect; values for parameters are given by name"
        ):
            client.sql("select ?", [1])
        with pytest.raises(SqlError, match="COPY takes no parameters"):
            client.sql("copy (select ?) to '/nowhere.parquet'", parameters=[1])
        client.sql("prepare q as select ? as n")
        with pytest.raises(SqlError, match="EXECUTE takes no parameters beside it"):
            client.sql("execute q", parameters=[1])
        client.drop_table("own")


def test_values_of_execute_stand_in_no_text_of_the_cluster(cluster):
    """They were pasted into the text by the client, and the history kept them."""
    with cluster.client() as client:
        client.sql("create table hidden (a varchar, n bigint) partitioned by (bucket(2, n))")
        for made in (
            "add_one as insert into hidden values ($a, $n)",
            "look as select a, ? + n as n from hidden where n = ?",
            "change as update hidden set a = ? where n = ? returning a",
        ):
            client.sql(f"prepare {made}")
        for text in (
            "execute add_one(a := 'opensesame', n := 4711)",
            "execute look(4711, 4711)",
            "execute change('opensesame', 4711)",
            "explain analyze execute look(4711, 4711)",
        ):
            assert client.sql(text).num_rows, text
        assert "opensesame" in str(client.sql("select * from hidden").to_pylist())
        assert client.explain("execute look(4711, 4711)")["text"]
        assert client.submit("execute look(1, 4711)").result(60).to_pylist() == [{"a": "opensesame", "n": 4712}]
        own = client.sql("select * from runtime.task_history where coalesce(job_id, '') = ''").to_pylist()
        written = [row["input"] for row in own if row["task"] in ("statement", "change")]
        assert not [text for text in written if "4711" in text or "opensesame" in text]
        assert "insert into hidden values ($a, $n)" in written
        assert "update hidden set a = ? where n = ? returning a" in written
        client.drop_table("hidden")


@pytest.mark.parametrize("value", ["(select max(n) from kept)", "n", "1) or (true", "1; drop table kept", "?"])
def test_a_scheduler_takes_constants_alone_as_values_beside_a_text(cluster, value):
    """Otherwise a client could run what stands in no text that is shown."""
    command = {**sql_command("select * from kept where n = ?"), "values": {"1": value}}
    with cluster.client() as client, pytest.raises(SqlError, match=r"EXECUTE|2 statements"):
        list(client._pool.open_stream(cluster.addresses()[0], command).batches())
