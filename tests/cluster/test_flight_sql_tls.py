"""The ADBC driver over TLS, with a token: what is shut to others stays shut to it."""

from pathlib import Path

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions

import ballista_py
from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def shut(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"ada {TOKEN}\n")
    options = {"flight-tokens-file": str(tokens)}
    with LocalCluster(schedulers=1, executors=2, tls=True, node_options=options) as cluster:
        yield cluster


def connect(cluster, token=TOKEN, authority=None):
    options = {DatabaseOptions.TLS_ROOT_CERTS.value: authority or Path(cluster.tls.ca_file).read_text()}
    if token is not None:
        options[DatabaseOptions.AUTHORIZATION_HEADER.value] = f"Bearer {token}"
    return flightsql.connect(cluster.flight_sql_url(), db_kwargs=options, autocommit=True)


def test_statements_streams_and_parts_go_through_the_scheduler(shut):
    with ballista_py.connect(shut.addresses()[0], tls=shut.tls, token=TOKEN) as client:
        executors = [row["address"] for row in client.members() if row["role"] == "executor"]
    assert len(executors) == 2
    with connect(shut) as connection, connection.cursor() as cursor:
        cursor.execute("create table items (id bigint not null) partitioned by (bucket(8, id))")
        cursor.adbc_ingest("items", pa.table({"id": range(1_000)}), mode="append")
        cursor.execute("select count(*), sum(id) from items where id >= ?", (500,))
        assert cursor.fetchall() == [(500, sum(range(500, 1_000)))]
        partitions, _schema = cursor.adbc_execute_partitions("select id from items")
        found = []
        for partition in partitions:
            assert not any(address.encode() in partition for address in executors)
            cursor.adbc_read_partition(partition)
            found += [row for (row,) in cursor.fetchall()]
    assert sorted(found) == list(range(1_000))


@pytest.mark.parametrize("token", [None, "another-token-of-nobody"])
def test_without_a_token_that_is_known_nothing_is_answered(shut, token):
    with pytest.raises(adbc_driver_manager.Error, match="token"), connect(shut, token) as connection:
        connection.cursor().execute("select 1")


def test_a_client_that_does_not_know_the_authority_does_not_connect(shut, tmp_path):
    from ballista_py.runtime import SystemRuntime
    from ballista_py.transport.certificates import CertificateFolder

    other = CertificateFolder(tmp_path / "other", SystemRuntime())
    other.init()
    authority = Path(other.ca_file).read_text()
    with pytest.raises(adbc_driver_manager.Error), connect(shut, authority=authority) as connection:
        connection.cursor().execute("select 1")
