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


WAYS = [over_http, job_over_http, submitted, by_driver]


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


@pytest.mark.parametrize("ask", [over_http, job_over_http, submitted])
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
