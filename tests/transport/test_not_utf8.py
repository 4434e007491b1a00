"""A text that has no bytes in UTF-8 is refused by name before anything is sent, wherever a client gives one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import BallistaError, ConfigError, InvalidData, SqlError, TransportError
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.client.client import Client, connect
from ballista_py.transport.endpoints import Address
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.security.tokens import StaticTokens

HALF = "caf\udce9"
SCHEMA = pa.schema([("a", pa.int64())])


@pytest.fixture
def client():
    """Of schedulers that nobody is: what is sent fails as `TransportError`."""
    with Client(["127.0.0.1:1"], FlightPool(SystemRuntime()), retry_reads=False) as client:
        yield client


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda c: c.sql(f"select '{HALF}'"), "the statement is not UTF-8: character 12 .* byte 0xE9"),
        (lambda c: c.sql(f"insert into t values ('{HALF}')"), "the statement is not UTF-8"),
        (lambda c: c.sql(f"prepare q as select '{HALF}'"), "the statement is not UTF-8"),
        (lambda c: c.sql("select 1", HALF), "dialect is not UTF-8: character 4"),
        (lambda c: c.sql("select 1", engine=HALF), "engine is not UTF-8"),
        (lambda c: c.sql("select 1", wait=HALF), "wait is one of source, visible"),
        (lambda c: c.sql("insert into t values (1)", token=HALF), "token is not UTF-8"),
        (lambda c: c.sql("select $a", parameters={HALF: 1}), "a parameter's name is not UTF-8"),
        (lambda c: c.sql("select ?", parameters=[{"a": [HALF]}]), "parameter 1: .* half a character"),
        (lambda c: list(c.stream(f"select '{HALF}'")), "the statement is not UTF-8"),
        (lambda c: c.explain(f"select '{HALF}'"), "the statement is not UTF-8"),
        (lambda c: c.submit(f"select '{HALF}'"), "the statement is not UTF-8"),
        (lambda c: c.submit("select 1", name=HALF), "name is not UTF-8"),
        (lambda c: c.submit("select 1", job_id=HALF), "job_id is not UTF-8"),
        (lambda c: c.submit("select 1", priority=1 << 80), "cannot be sent: Integer exceeds 64-bit range"),
        (lambda c: c.job(HALF), "job_id is not UTF-8"),
        (lambda c: c.jobs(HALF), "state is not UTF-8"),
        (lambda c: c.refresh(HALF), "table is not UTF-8"),
        (lambda c: c.ingest(HALF, pa.table({"a": [1]})), "table is not UTF-8"),
        (
            lambda c: c.create_table("t", schema=SCHEMA, partition_by=[f"bucket(2, {HALF})"]),
            r"partition_by\[0\] is not",
        ),
    ],
)
def test_what_a_client_gives_is_named(client, ask, said):
    with pytest.raises((InvalidData, SqlError), match=said) as caught:
        ask(client)
    caught.value.message.encode()


def test_an_address_and_a_token_are_looked_at_before_anybody_is_called(tmp_path):
    for url in (f"ballista://{HALF}:1", f"127.0.0.1:1{HALF}", "a b:1", "a\n:1", "x:" + "9" * 5_000):
        with pytest.raises(ConfigError, match="is not an address; write host:port") as caught:
            connect(url)
        caught.value.message.encode()
        assert len(caught.value.message) < 300
    assert Address.parse("[fe80::1%eth0]:1").host == "fe80::1%eth0"
    for token in (HALF, "schlüssel-schlüssel", "0123456789abcdef\r\nx: y"):
        with pytest.raises(ConfigError, match="the token has a character that no header can carry") as caught:
            connect("127.0.0.1:1", token=token)
        assert token not in caught.value.message
    file = tmp_path / "tokens"
    file.write_text("ann 0123456789abcdef\nbob schlüssel-schlüssel\n")
    with pytest.raises(ConfigError, match=":2: the token has a character that no header can carry"):
        StaticTokens(str(file), SystemRuntime())


def test_the_place_of_a_text_is_told_however_deep_it_is():
    fine = {"a": ["é", {"b": "\U0001f600"}], 1: None}
    assert from_json(to_json(fine)) == {"a": ["é", {"b": "\U0001f600"}], "1": None}
    for values, place in (
        ({"a": [{"b": "\ud83d"}]}, r"a\[0\].b is not UTF-8: character 1 is half a character$"),
        ({"a": {"b": ("x", "y\udc00")}}, r"a.b\[1\] is not UTF-8: character 2"),
        ({"a": {"\udfff": 1}}, "a name in a is not UTF-8"),
        ({"\udfff": 1}, "a name in what is said is not UTF-8"),
    ):
        with pytest.raises(BallistaError, match=place):
            to_json(values)


def test_a_host_that_there_is_not_was_never_asked():
    with pytest.raises(
        TransportError, match=r"node nosuchhost\.invalid:1 cannot be reached: there is no such host"
    ):
        connect("nosuchhost.invalid:1")
