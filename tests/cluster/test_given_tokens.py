"""A token that a client gave stands for one statement: all others are refused, wherever their rows would go."""

from __future__ import annotations

import urllib.error
import urllib.request

import orjson
import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.errors import InvalidData, SqlError
from ballista_py.runtime import SystemRuntime

pytestmark = pytest.mark.cluster
SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string())])
USED = "token '{}' was used for another statement, or for other rows: nothing was changed, take a new token"


@pytest.fixture(scope="module")
def small():
    with LocalCluster(schedulers=2, executors=2) as cluster:
        yield cluster


@pytest.fixture
def table(small, request):
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    small.create_table(name, schema=SCHEMA, partition_by=["id"])
    small.sql(f"insert into {name} select n, 'there' from range(6) r(n)")
    yield name
    small.drop_table(name)


def rows(*ids: int) -> pa.Table:
    return pa.table([list(ids), [f"k{n}" for n in ids]], schema=SCHEMA)


def kinds(cluster, table: str) -> list[tuple[int, str]]:
    return sorted((row["id"], row["kind"]) for row in cluster.sql(f"select * from {table}").to_pylist())


@pytest.mark.parametrize("ids", [(0, 1, 2, 3), (4, 5), (1, 3, 2), (70, 71), (0,)])
def test_another_insert_is_refused_whole_whichever_partitions_it_is_for(small, table, ids):
    first = f"insert into {table} values (0, 'a'), (1, 'a'), (2, 'a')"
    small.sql(first, token="one")
    before = kinds(small, table)
    for _ in range(2):
        with pytest.raises(SqlError, match=USED.format("one")):
            small.sql(
                f"insert into {table} values {', '.join(f'({n}, {chr(39)}b{chr(39)})' for n in ids)}", token="one"
            )
        assert small.sql(first, token="one").to_pylist() == [{"affected_rows": 3}]
    assert kinds(small, table) == before


@pytest.mark.parametrize(
    "change",
    [
        "update {} set kind = 'b' where id = 4",
        "update {} set kind = 'b'",
        "delete from {}",
        "truncate {}",
        "insert into {} select id + 100, kind from {}",
        "merge into {} t using (select 5 as id) s on t.id = s.id when matched then delete",
    ],
)
def test_every_other_change_is_refused(small, table, change):
    small.sql(f"insert into {table} values (0, 'a')", token="two")
    before = kinds(small, table)
    with pytest.raises(SqlError, match=USED.format("two")):
        small.sql(change.replace("{}", table), token="two")
    assert kinds(small, table) == before
    small.sql(change.replace("{}", table))
    assert kinds(small, table) != before


@pytest.mark.parametrize(
    "options", [{}, {"atomic": True}, {"mode": "replace"}], ids=["plain", "atomic", "replace"]
)
def test_other_rows_are_refused_and_the_same_in_another_order_are_known(small, table, options):
    assert small.ingest(table, rows(0, 1, 2, 40), token="load", **options) == 4
    before = kinds(small, table)
    for other in (rows(0, 1, 2), rows(0, 1, 2, 41), rows(4), rows(0, 1, 2, 40, 40), rows(50, 51)):
        with pytest.raises(SqlError, match=USED.format("load")):
            small.ingest(table, other, token="load", **options)
        with small.client() as client, pytest.raises(SqlError, match=USED.format("load")):
            client.ingest(table, other.to_reader(), token="load", **options)
    turned = pa.concat_tables([rows(40), rows(2, 1), rows(0)])
    assert small.ingest(table, turned, token="load", **options) == 4
    assert kinds(small, table) == before


def test_a_token_that_the_client_makes_is_not_claimed(small, table, tmp_path):
    from ballista_py.state.documents.token_claims import TOKENS_PREFIX
    from ballista_py.state.stores.store import open_store

    store = open_store(small.state_location)
    known = {entry.key for entry in store.list(TOKENS_PREFIX)}
    small.sql(f"insert into {table} values (0, 'a'), (1, 'a')")
    small.ingest(table, rows(0, 1))
    assert {entry.key for entry in store.list(TOKENS_PREFIX)} == known
    small.ingest(table, rows(0, 1), token="claimed")
    assert len({entry.key for entry in store.list(TOKENS_PREFIX)} - known) == 1


def test_a_table_of_the_same_name_made_later_has_tokens_of_its_own(small, table):
    small.ingest(table, rows(0), token="again")
    small.drop_table(table)
    small.create_table(table, schema=SCHEMA, partition_by=["id"])
    small.ingest(table, rows(1), token="again")
    assert kinds(small, table) == [(1, "k1")]


class Impatient(SystemRuntime):
    """The time of a client that has none to wait."""

    def sleep_ms(self, ms):
        raise AssertionError("the client waits, to send something again")


@pytest.mark.parametrize(
    "send",
    [
        lambda client, table, long: client.sql(f"insert into {table} values (7, 'x')", token=long),
        lambda client, table, long: client.sql(f"delete from {table} returning id", token=long),
        lambda client, table, long: client.ingest(table, rows(7), token=long),
        lambda client, table, long: client.ingest(long, rows(7)),
        lambda client, table, long: client.sql(f"insert into {table} values (7, 'x')", dialect=long),
        lambda client, table, long: client.sql(f"select * from {table}", engine=long),
        lambda client, table, long: client.refresh(long),
    ],
    ids=["insert", "returning", "ingest", "table", "dialect", "engine", "question"],
)
def test_a_word_that_is_too_long_is_refused_at_once_and_not_sent_again(small, table, send):
    with connect(",".join(small.addresses()), runtime=Impatient()) as client:
        for chars in (2_000, 100_000):
            with pytest.raises((InvalidData, SqlError)) as refused:
                send(client, table, "x" * chars)
            assert len(refused.value.message) < 1_200
        assert client.sql(f"insert into {table} values (8, 'x')", token="x" * 1_024).num_rows == 1
    assert [number for number, _ in kinds(small, table)] == [0, 1, 2, 3, 4, 5, 8]


def test_a_decided_statement_is_known_by_its_token_though_its_columns_are_gone(cluster):
    """As text it cannot be carried out any more; that it was is what the client asks."""
    client = cluster.client()
    client.sql("create table altered_under (a int, b int) partitioned by (bucket(2, a))")
    statements = (
        "insert into altered_under (a, b) select range, range from range(4)",
        "update altered_under set b = b + 10",
        "delete from altered_under where b > 12 returning b",
    )
    first = [client.sql(text, token=f"under-{n}").to_pylist() for n, text in enumerate(statements)]
    client.sql("alter table altered_under drop column b")
    assert [client.sql(text, token=f"under-{n}").to_pylist() for n, text in enumerate(statements)] == first
    with pytest.raises(SqlError):
        client.sql(statements[1], token="under-another")
    assert sorted(client.sql("select a from altered_under")["a"].to_pylist()) == [0, 1, 2]
    client.sql("drop table altered_under")


def test_an_empty_token_is_refused_wherever_one_is_given(small, table):
    before = kinds(small, table)
    with small.client() as client:
        for run in (
            lambda: client.sql(f"insert into {table} values (70, 'a')", token=""),
            lambda: client.sql(f"insert into {table} values (70, 'a') returning id", token=""),
            lambda: client.ingest(table, rows(70), token=""),
            lambda: client.create_table(f"{table}_other", None, ["id"], schema=SCHEMA, token=""),
        ):
            with pytest.raises(SqlError, match="the token is empty"):
                run()
    body = orjson.dumps({"sql": f"insert into {table} values (70, 'a')", "token": ""})
    asked = urllib.request.Request(
        f"{small.http_url('scheduler-1')}/v1/sql", body, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=30)
    assert refused.value.code == 400
    assert b"'token' must be a text of one character or more" in refused.value.read()
    assert kinds(small, table) == before
