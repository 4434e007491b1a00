"""Every link of a cluster is cut, stalled and throttled in turn: no answer is wrong, and every link comes back."""

from __future__ import annotations

import random
import re
import shutil
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress

import psutil
import pyarrow as pa
import pytest
from attrs import define, field

from ballista_py import LocalCluster, connect
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError
from ballista_py.node.demo.demo import QUERIES
from ballista_py.testing.faults.tcp_proxy import TcpProxy

pytestmark = pytest.mark.cluster
TTL_MS = 2_000
BACK_WITHIN_S = 15
FAULT_S = 3
SETTLED_WITHIN_S = 20
SPARE = 32  # threads and files that pools and both gRPC libraries (of Arrow and its own) may take the first time
OUTSIDE = "127.0.0.2"
LINKS = ("flight", "control", "data")
FAULTS = ("cut", "stall", "throttle")
LEDGER = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("statement", pa.int64())])
ROWS_A_STATEMENT = 20


def spawn(run):
    threading.Thread(target=run, daemon=True).start()


@define
class Proxied:
    """A cluster whose nodes reach each other, and are reached, through proxies only."""

    cluster: LocalCluster
    proxies: dict[str, list[TcpProxy]] = field(factory=dict)
    statements: dict[int, bool] = field(factory=dict)  # those that were sent, and whether each is acknowledged

    def url(self):
        return ",".join(
            f"{OUTSIDE}:{ports['flight']}" for ports in self.cluster.ports.values() if "flight" in ports
        )

    def client(self):
        return connect(self.url(), tls=self.cluster.tls, retry_reads=True)

    def spoil(self, link, mood):
        for proxy in self.proxies[link]:
            proxy.mood = mood

    def write(self, client, statement):
        """Send a statement, perhaps again; only what was acknowledged is marked so."""
        self.statements[statement] = False
        first = statement * ROWS_A_STATEMENT
        rows = pa.table(
            {"id": range(first, first + ROWS_A_STATEMENT), "statement": [statement] * ROWS_A_STATEMENT},
            schema=LEDGER,
        )
        assert client.ingest("ledger", rows, token=f"statement-{statement}", atomic=statement % 2 == 0) == len(
            rows
        )
        self.statements[statement] = True

    def connected(self):
        """Whether every executor hears both schedulers."""
        with suppress(BallistaError):
            return all(
                self.cluster.shown(name)["schedulers"] == ["scheduler-1", "scheduler-2"]
                for name in self.cluster.node_ids
                if name.startswith("executor")
            )
        return False


@pytest.fixture(scope="module", params=[pytest.param(False, marks=pytest.mark.long), True], ids=["plain", "mtls"])
def proxied(request, tpch_state, tmp_path_factory):
    folder = tmp_path_factory.mktemp("links") / "state"
    shutil.copytree(tpch_state, folder)
    cluster = LocalCluster(
        schedulers=2,
        executors=2,
        state_location=folder.as_uri(),
        ttl_ms=TTL_MS,
        tls=request.param,
        node_options={"node-advertise-address": OUTSIDE},
    )
    found = Proxied(cluster)
    with ExitStack() as stack:
        for ports in cluster.ports.values():
            for link, port in ports.items():
                proxy = stack.enter_context(TcpProxy(f"127.0.0.1:{port}", spawn, f"{OUTSIDE}:{port}"))
                found.proxies.setdefault(link, []).append(proxy)
        stack.enter_context(cluster)
        cluster.wait_until_loaded()
        cluster.create_table("ledger", schema=LEDGER, partition_by=["bucket(4, id)"])
        yield found


def asked_while(proxied, duck, fault):
    """Ask and write again and again while `fault` goes on; every answer must be right."""
    expected = duck.sql(QUERIES["Q3"]).to_arrow_table()
    over, wrong, right = threading.Event(), [], []

    def ask():
        while not over.is_set():
            try:
                with proxied.client() as client:
                    answer = client.sql(QUERIES["Q3"])
            except BallistaError:
                over.wait(0.05)
                continue
            (wrong if difference(answer, expected) else right).append(answer)

    def write():
        while not over.is_set():
            with suppress(BallistaError), proxied.client() as client:
                proxied.write(client, len(proxied.statements))
            over.wait(0.05)

    threads = [*(threading.Thread(target=ask) for _ in range(2)), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    try:
        fault()
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads), "a query or a write hangs"


def comes_back(proxied, duck):
    """Within the promised time every control stream is back, and a query is answered, rightly."""
    expected = duck.sql(QUERIES["Q3"]).to_arrow_table()
    until = time.monotonic() + BACK_WITHIN_S
    last: object = "control streams are missing"
    while time.monotonic() < until:
        if proxied.connected():
            try:
                with proxied.client() as client:
                    assert difference(client.sql(QUERIES["Q3"]), expected) is None
                return
            except BallistaError as error:
                last = error
        time.sleep(0.1)
    raise AssertionError(f"not back within {BACK_WITHIN_S} s: {last}")


def every_row_is_there_once(proxied):
    """What was acknowledged is there once; what was not is, too, after it was sent again under its token."""
    count = "select count(*) as n, count(distinct id) as ids from ledger"
    with proxied.client() as client:
        acknowledged = [number for number, done in proxied.statements.items() if done]
        assert acknowledged, "nothing was written"
        listed = ", ".join(map(str, acknowledged))
        expected = len(acknowledged) * ROWS_A_STATEMENT
        found = client.sql(f"{count} where statement in ({listed})").to_pylist()
        assert found == [{"n": expected, "ids": expected}]
        for number in proxied.statements:
            proxied.write(client, number)
        expected = len(proxied.statements) * ROWS_A_STATEMENT
        assert client.sql(count).to_pylist() == [{"n": expected, "ids": expected}]


def under_way(proxied):
    """Calls, statements and legs that any node still works on."""
    found = {}
    for node_id in proxied.cluster.node_ids:
        text = proxied.cluster.shown(node_id, "/metrics")
        for name in ("node_open_calls", "node_tasks_active"):
            for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M):
                found[node_id, name] = float(value)
    assert len(found) >= 2 * len(proxied.cluster.node_ids)
    return {where: value for where, value in found.items() if value}


def nothing_is_left(proxied, before):
    """Soon after a fault no call is open any more, and threads and files are about as many as before it."""
    until = time.monotonic() + SETTLED_WITHIN_S
    while True:
        now, busy = sizes(proxied.cluster), under_way(proxied)
        grown = {
            (node_id, what): (before[node_id][place], now[node_id][place])
            for node_id in now
            for place, what in enumerate(("threads", "files"))
            if now[node_id][place] > before[node_id][place] + SPARE
        }
        if not grown and not busy:
            return
        assert time.monotonic() < until, (grown, busy)
        time.sleep(0.2)


def try_fault(proxied, duck, link, mood):
    before = sizes(proxied.cluster)
    with proxied.client() as client:
        proxied.write(client, len(proxied.statements))  # there is one in any case that the fault must not touch

    def fault():
        proxied.spoil(link, mood)
        time.sleep(FAULT_S)
        proxied.spoil(link, "pass")

    try:
        asked_while(proxied, duck, fault)
    finally:
        proxied.spoil(link, "pass")
    comes_back(proxied, duck)
    every_row_is_there_once(proxied)
    nothing_is_left(proxied, before)


def test_a_link_of_each_kind_fails_and_comes_back_and_no_answer_is_wrong(proxied, duck):
    for link, mood in (("data", "cut"), ("control", "stall"), ("flight", "throttle")):
        try_fault(proxied, duck, link, mood)


@pytest.mark.long
@pytest.mark.parametrize("mood", FAULTS)
@pytest.mark.parametrize("link", LINKS)
def test_every_link_fails_in_every_way_and_comes_back(proxied, duck, link, mood):
    try_fault(proxied, duck, link, mood)


def running_legs(cluster):
    return [
        task
        for node_id in cluster.node_ids
        if node_id.startswith("executor")
        for task in cluster.shown(node_id, "/tasks")["tasks"]
        if task["outcome"] == "running"
    ]


def test_a_cancelled_query_stops_its_legs_though_their_link_is_stuck(proxied):
    until = time.monotonic() + 20
    proxied.spoil("data", "throttle")
    try:
        with proxied.client() as client:
            stream = client.stream("select * from lineitem order by l_comment")
            while not running_legs(proxied.cluster):
                assert time.monotonic() < until
                time.sleep(0.05)
            proxied.spoil("data", "stall")
            stream.cancel()
            while running_legs(proxied.cluster):
                assert time.monotonic() < until
                time.sleep(0.05)
    finally:
        proxied.spoil("data", "pass")


def junk(chance, plain):
    """Bytes that no client of ours sends; one connection's worth."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randrange(1, 5_000))
    if kind == 1:
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + chance.randbytes(chance.randrange(2_000))
    if kind == 2:
        return b"\x16\x03\x01" + chance.randbytes(chance.randrange(600))
    if kind == 3:
        return b"GET /status HTTP/1.1\r\nHost: x\r\n" + chance.randbytes(100)
    return b""


def test_garbage_and_half_a_conversation_on_every_port_harm_nobody(proxied, duck):
    chance = random.Random(7)
    cluster = proxied.cluster
    ports = [port for ports in cluster.ports.values() for port in ports.values()]
    for node_id in cluster.node_ids:
        ports += map(int, re.findall(r" parts=grpc\+tls://[\d.]+:(\d+)", cluster.log(node_id)))
        ports += [
            int(cluster.status_url(node_id, metrics).split(":")[2].split("/")[0]) for metrics in (False, True)
        ]
    for port in ports:
        for _ in range(12):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as link:
                if cluster.tls is not None and chance.random() < 0.3:
                    context = ssl.create_default_context(cafile=cluster.tls.ca_file)
                    context.set_alpn_protocols(["h2"])
                    link = context.wrap_socket(link, server_hostname="localhost")
                link.sendall(junk(chance, cluster.tls is None))
                if chance.random() < 0.5:
                    link.settimeout(0.05)
                    link.recv(1_000)
    for node_id in cluster.node_ids:
        assert psutil.pid_exists(cluster.pid(node_id))
        assert cluster.shown(node_id, "/ready")["ready"]
        crashes = [line for line in cluster.log(node_id).splitlines() if "Traceback" in line]
        assert not crashes, crashes[0]
    comes_back(proxied, duck)


def sizes(cluster):
    """Threads, file descriptors and memory of every node."""
    found = {}
    for node_id in cluster.node_ids:
        process = psutil.Process(cluster.pid(node_id))
        found[node_id] = (process.num_threads(), process.num_fds(), process.memory_info().rss)
    return found


def rounds(proxied, count):
    for number in range(count):
        with proxied.client() as client:
            assert client.sql("select count(*) as n from orders").num_rows == 1
            if number % 5 == 0:
                client.stream("select * from lineitem").cancel()


def grown(proxied, count):
    rounds(proxied, max(20, count // 5))  # until what is remembered of tasks, and what malloc keeps, is there
    before = sizes(proxied.cluster)
    rounds(proxied, count)
    time.sleep(2)
    return before, sizes(proxied.cluster)


@pytest.mark.parametrize("count", [40, pytest.param(1_000, marks=pytest.mark.long)])
def test_clients_that_come_and_go_leave_no_threads_files_or_memory_behind(proxied, count):
    before, after = grown(proxied, count)
    for node_id, (threads, files, memory) in before.items():
        now_threads, now_files, now_memory = after[node_id]
        assert now_threads <= threads + 12, node_id
        assert now_files <= files + 12, node_id
        assert now_memory <= memory + (48 << 20), node_id


def test_nodes_end_by_themselves_while_a_client_does_not_read(tpch_state, tmp_path):
    folder = tmp_path / "state"
    shutil.copytree(tpch_state, folder)
    cluster = LocalCluster(schedulers=1, executors=1, state_location=folder.as_uri(), ttl_ms=TTL_MS)
    with cluster:
        cluster.wait_until_loaded()
        client = cluster.client()
        stream = client.stream("select a.* from lineitem a, lineitem b")
        next(iter(stream))
        cluster.stop()
        assert {node_id: node.returncode for node_id, node in cluster._nodes.processes.items()} == dict.fromkeys(
            cluster.node_ids, 0
        )
        with suppress(BallistaError):
            stream.cancel()
