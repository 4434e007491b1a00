"""Few bytes that stand for many: what a port takes in for them, seen from outside its process."""

import subprocess
import sys
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from ballista_py.errors import InvalidData
from ballista_py.testing import hostile_client
from ballista_py.testing.hostile.messages import MESSAGES
from ballista_py.testing.hostile.raw_flight import Data, RawFlight, ipc_messages
from ballista_py.transport.flight.wire import has_more_values, to_json
from ballista_py.transport.flight_sql.statement import SqlStatement

TEXTS = pa.record_batch({"c": ["text"] * 10_000})
TOKEN = "0123456789abcdef"
GROWTH_MIB = 300
NODE = """
import sys
from functools import partial
from ballista_py.node.front_process import FrontProcess
from ballista_py.threads import spawn
from ballista_py.runtime import SystemRuntime
from ballista_py.testing.hostile.wire_fuzz_child import Echo
from ballista_py.transport.security.access import PARTS, PUBLIC
from ballista_py.transport.security.callers import Clients, TicketHolders
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.flight.server import FlightServer
from ballista_py.transport.flight_sql.legs import PartsService
from ballista_py.transport.flight_sql.port import FlightSqlService
class Known:
    def verify(self, token):
        from ballista_py.errors import Unauthenticated
        if not token.startswith(sys.argv[1]):
            raise Unauthenticated("the token is not valid")
        return token
echo = Echo()
tls = Tls(certificate_file=sys.argv[2], key_file=sys.argv[3]) if len(sys.argv) > 2 else None
public = FlightServer("127.0.0.1:0", echo, SystemRuntime(), access=PUBLIC, callers=Clients(Known()), spawn=spawn,
    caller_limit=128, tls=tls, front=FrontProcess,
    service=partial(FlightSqlService, ready=lambda: echo, runtime=SystemRuntime()))
parts = FlightServer("127.0.0.1:0", echo, SystemRuntime(), access=PARTS, callers=TicketHolders(), spawn=spawn,
    tls=tls, front=FrontProcess, service=partial(PartsService, command_of=lambda ticket, _digest: dict(ticket)))
print(public.port, parts.port, flush=True)
def tick():
    while True:
        SystemRuntime().sleep_ms(200)
        public.tick(), parts.tick()
spawn(tick)
sys.stdin.read()
"""


class Node:
    """Two ports in a process of their own."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE, TOKEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.public, self.parts = map(int, self.process.stdout.readline().split())

    def mib(self, what):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{what}:")[2].split()[0]) >> 10

    def begin(self):
        """Count from here on."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        self.before = self.mib("VmRSS")

    def grown_mib(self):
        """How far its memory was ever above what it was then."""
        return self.mib("VmHWM") - self.before

    def flight(self, port, token=TOKEN):
        return RawFlight(f"ballista://127.0.0.1:{port}", token, answer_s=120)


@pytest.fixture(scope="module")
def started():
    made = Node()
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture
def node(started):
    started.begin()
    yield started
    assert started.process.poll() is None
    assert started.grown_mib() < GROWTH_MIB


@pytest.mark.parametrize("door", ["ingest", "own-ingest", "bind", "handle"])
@pytest.mark.parametrize("lie", ["zstd-frames", "schema-one-field", "schema-one-remark"])
def test_a_message_is_measured_before_arrow_reads_it(node, lie, door):
    with node.flight(node.public) as flight, pytest.raises(grpc.RpcError) as raised:
        hostile_client.DOORS[door](MESSAGES[lie].make(), flight)
    assert "internal error" not in raised.value.details()


@pytest.mark.parametrize("port", ["public", "parts"])
@pytest.mark.parametrize("how", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_what_says_that_it_is_compressed_is_not_unpacked_for_anybody(node, port, how):
    for token in (None, TOKEN):
        with node.flight(getattr(node, port), token) as flight, pytest.raises(grpc.RpcError) as raised:
            flight.raw("DoGet", [bytes(512 << 20)], how)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_is_not_read_before_its_sender_is_known(node):
    for method in ("DoExchange", "DoPut", "DoAction", "GetFlightInfo", "DoGet"):
        with node.flight(node.public, None) as flight, pytest.raises(grpc.RpcError) as raised:
            flight.raw(method, [bytes(120 << 20)])
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert node.grown_mib() < GROWTH_MIB


def test_a_message_beyond_the_bound_is_refused_by_its_first_bytes(node):
    for port in (node.public, node.parts):
        with node.flight(port) as flight, pytest.raises(grpc.RpcError) as raised:
            flight.raw("DoGet", [bytes(600 << 20)])
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert node.grown_mib() < GROWTH_MIB


def test_small_things_in_great_number_are_refused_before_they_are_things(node):
    fields = b"\x08\x01" * (8 << 20)
    with node.flight(node.public) as flight:
        for requests in ([fields], [Data(said=b"{}").encoded(b"{}"), fields]):
            with pytest.raises(grpc.RpcError) as raised:
                flight.raw("DoExchange", requests)
            assert "internal error" not in raised.value.details()
        with pytest.raises(grpc.RpcError):
            flight.exchange(
                to_json({"kind": "sql", "query": "x"})[:-1] + b', "a": [' + b"[]," * (5 << 20) + b"0]}", []
            )
        with pytest.raises(grpc.RpcError):
            flight.action("SetSessionOptions", b"\x0a\x00" * (7 << 20))


def test_an_honest_ingest_of_any_compression_is_taken(node):
    with node.flight(node.public) as flight:
        for compression in (None, "zstd", "lz4"):
            assert hostile_client.ingest(ipc_messages(TEXTS, compression), flight)


@pytest.mark.parametrize("piece", [b"[]", b"{}", b"1", b'""', b'"a"', b'"\\\\"', b'"\\""', b"[[[1]]]"])
def test_json_of_very_many_values_is_refused_before_it_is_read(piece):
    data = b'{"query":"x","part":{"leg":[' + b",".join([piece] * 200_000) + b"]}}"
    with pytest.raises(InvalidData, match="more than 100,000 values"):
        SqlStatement.from_handle(data)


@pytest.mark.parametrize("text", ["a,b:[{" * 100_000, '","' * 100_000, "\\" * 100_000, '\\"' * 100_000, "ä" * 10])
def test_a_long_text_is_one_value(text):
    assert SqlStatement.from_handle(SqlStatement(query=text).handle()).query == text
    assert not has_more_values(to_json({text: [text, {"b": text}]}), 8)
