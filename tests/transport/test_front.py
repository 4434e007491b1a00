"""A front before a real port: honest clients notice nothing of it, and it lives and ends with its node."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress

import psutil
import pyarrow.flight as flight
import pytest

from ballista_py.errors import BallistaError, ConfigError, Unauthenticated
from ballista_py.node.front_process import FrontProcess
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.endpoints import Address
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.front.front import SILENT_MS, Front
from ballista_py.transport.front.http2 import PREFACE, SETTINGS, Head, frame, settings_frame
from ballista_py.transport.security.callers import Clients
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.connection_guard import Calls, ConnectionLimits
from ballista_py.transport.security.credentials import Tls


@pytest.fixture
def folder(tmp_path):
    made = CertificateFolder(tmp_path / "tls", SystemRuntime())
    made.init()
    made.add("executor-1", "executor")
    return made


@pytest.fixture
def fronted(serve, folder):
    """Start a port with a front; its process is `front_of` it."""

    def start(handler=None, **options):
        return serve(handler, tls=folder.tls("executor-1"), front=FrontProcess, **options)

    return start


@pytest.fixture
def trusting(folder):
    with FlightPool(SystemRuntime(), tls=Tls(ca_file=str(folder.ca_file))) as made:
        yield made


def front_of(served):
    return served.server._front._process


def at(served):
    return f"localhost:{served.server.port}"


def connect(served, folder, alpn="h2", **options):
    context = ssl.create_default_context(cafile=folder.ca_file)
    context.set_alpn_protocols([alpn])
    for name, value in options.items():
        setattr(context, name, value)
    plain = socket.create_connection(("127.0.0.1", served.server.port), timeout=30)
    return context.wrap_socket(plain, server_hostname="localhost")


def pyarrow_client(served, folder):
    return flight.connect(f"grpc+tls://{at(served)}", tls_root_certs=folder.ca_file.read_bytes())


def test_an_answer_comes_whole_also_to_a_reader_that_is_slow(fronted, trusting, kit):
    served = fronted()
    memory = psutil.Process(front_of(served).pid).memory_info
    assert trusting.call(at(served), "echo", {"a": 1})["body"] == {"a": 1}
    before = memory().rss
    slow = [trusting.open_stream(at(served), {"batches": 40, "rows": 200_000, "name": str(n)}) for n in range(4)]
    readers = [one.batches() for one in slow]
    seen = [next(reader) for reader in readers]
    kit.still(lambda: served.handler.sent.total())
    assert memory().rss - before < 32 << 20
    rows = sum(batch.num_rows for batch in seen) + sum(batch.num_rows for reader in readers for batch in reader)
    assert rows == 4 * 40 * 200_000


def test_rows_that_come_in_wait_for_a_handler_that_is_slow(fronted, trusting, kit):
    class Slow(kit.Numbers):
        def write(self, command, rows, context):
            iterator = iter(rows)
            first = next(iterator)
            go_on.wait(60)
            return {"affected": first.num_rows + sum(batch.num_rows for batch in iterator)}

    go_on, sent, result = threading.Event(), [], []
    served = fronted(Slow())
    stream = trusting.open_write(at(served), {"kind": "ingest", "table": "t"}, kit.NUMBERS)
    batch = kit.numbers(0, 500_000)

    def write():
        for _ in range(20):
            stream.write(batch)
            sent.append(1)
        result.append(stream.finish())

    kit.spawn(write)
    kit.wait_until(lambda: sent)
    assert kit.still(lambda: len(sent)) < 20
    go_on.set()
    kit.wait_until(lambda: result, 120)
    assert result[0]["affected"] == 10_000_000


def test_calls_go_both_ways_over_one_connection_at_once(fronted, trusting):
    served = fronted()
    answers = []

    def ask():
        bodies = ({"n": number, "x": "y" * 50_000} for number in range(50))
        answers.extend(trusting.call(at(served), "echo", body)["body"]["n"] for body in bodies)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(answers) == sorted(list(range(50)) * 8)


def test_a_call_is_known_by_the_address_of_its_client(fronted, trusting, kit):
    served = fronted()
    stream = trusting.open_stream(at(served), {"batches": 50, "rows": 1, "pause_s": 0.05})
    next(stream.batches())
    (peer,) = served.server._calls.peers()
    assert peer.startswith("ipv4:127.0.0.1:")
    assert kit.wait_until(lambda: served.server._calls.known().busy)
    assert served.server._calls.sever([peer]) == 1
    with pytest.raises(BallistaError):
        list(stream.batches())
    kit.wait_until(lambda: not served.server.open_calls())


class Nobody:
    """Tokens of nobody."""

    def verify(self, token):
        raise Unauthenticated("the token is not valid")


def test_who_has_no_token_is_refused_under_his_own_address_and_sends_little(fronted, folder, caplog):
    served = fronted(callers=Clients(Nobody()))
    with pyarrow_client(served, folder) as client, pytest.raises(flight.FlightUnauthenticatedError):
        list(client.do_action(flight.Action("echo", b"{}")))
    assert "a call was refused, from ipv4:127.0.0.1:" in caplog.text
    headers = b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":path", b"/arrow.flight.protocol.FlightService/DoAction"),
            (b":authority", b"a"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    sent = 0
    with connect(served, folder) as link:
        link.sendall(PREFACE + settings_frame({}) + frame(1, 4, 1, headers))
        with suppress(OSError):
            while sent < 64 << 20:
                sent += link.send(frame(0, 0, 1, bytes(16_384)))
    assert sent < 16 << 20  # what is on the way in the system


def test_a_client_that_only_connects_is_greeted_and_answered(fronted, folder, trusting):
    served = fronted()
    with connect(served, folder) as link:
        link.sendall(PREFACE + settings_frame({}) + frame(SETTINGS, 1, 0) + frame(6, 0, 0, b"12345678"))
        said = b""
        while b"12345678" not in said:
            said += link.recv(1_000)
        head = Head.of(said)
        assert (head.kind, head.flags) == (SETTINGS, 0)
        assert said.endswith(frame(SETTINGS, 1, 0) + frame(6, 1, 0, b"12345678"))
        assert trusting.call(at(served), "echo", {})
    backends = [one for one in psutil.Process().net_connections("unix") if served.server._front._home in one.laddr]
    assert len(backends) <= 3  # that which listens, and that of the pool


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", PREFACE + bytes(9) + b"\xff" * 9])
def test_who_does_not_speak_http2_is_sent_away(fronted, folder, said):
    served = fronted()
    with connect(served, folder) as link:
        link.sendall(said)
        with suppress(OSError):
            while link.recv(1_000):
                pass
    with suppress(OSError), connect(served, folder, alpn="http/1.1") as link:
        assert link.recv(10) == b""


def test_tls_before_1_2_is_refused(fronted, folder):
    served = fronted()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"), pytest.raises(OSError):
        connect(served, folder, maximum_version=ssl.TLSVersion.TLSv1_1)
    with connect(served, folder, maximum_version=ssl.TLSVersion.TLSv1_2) as link:
        assert link.version() == "TLSv1.2"


def test_a_renewed_certificate_is_shown_and_half_a_replacement_is_not(fronted, folder, trusting, kit):
    served = fronted()

    def serial():
        with connect(served, folder) as link:
            return link.getpeercert()["serialNumber"]

    before = serial()
    stream = trusting.open_stream(at(served), {"batches": 20, "rows": 5, "pause_s": 0.1})
    batches = stream.batches()
    next(batches)
    folder.add("executor-1", "executor")
    kit.wait_until(lambda: serial() != before)
    assert sum(batch.num_rows for batch in batches) == 95
    after = serial()
    (folder.folder / "nodes" / "executor-1" / "key.pem").write_text("nonsense")
    assert serial() == serial() == after


def test_a_front_that_is_killed_is_started_again_and_nobody_is_refused(fronted, trusting, kit, caplog):
    served = fronted()
    for _ in range(3):
        assert trusting.call(at(served), "echo", {})
        before = front_of(served)
        os.kill(before.pid, signal.SIGKILL)
        with socket.create_connection(("127.0.0.1", served.server.port), timeout=30):
            pass
        kit.wait_until(lambda before=before: front_of(served) is not before)
        kit.wait_until(lambda: answers(trusting, served))
    assert "another one takes its place" in caplog.text


def answers(pool, served):
    try:
        return pool.call(at(served), "echo", {})
    except BallistaError:
        return None


def test_a_front_that_cannot_start_is_tried_again_ever_later(serve, folder, kit, caplog):
    started = []

    def fails(connected, listeners):
        started.append(1)
        raise OSError(12, "Cannot allocate memory")

    clock = kit.HandClock()
    served = serve(tls=folder.tls("executor-1"), front=fails, clock=clock)
    for _ in range(100):
        clock.now_ms += 200
        served.server.tick()
    assert 5 < len(started) < 12
    assert "could not be started: Cannot allocate memory" in caplog.text


class Hung:
    """A process that is there and says nothing, as one that was stopped."""

    def __init__(self, connected, _listeners):
        self.told = connected.dup()
        self.killed = False

    def returncode(self):
        return -9 if self.killed else None

    def kill(self):
        self.killed = True
        self.told.close()


def test_a_front_that_says_nothing_for_long_is_ended_and_another_one_started(folder, kit, caplog):
    started = []

    def start(connected, listeners):
        started.append(Hung(connected, listeners))
        return started[-1]

    clock = kit.HandClock()
    made = Front(
        Address("127.0.0.1", 0), folder.tls("executor-1"), ConnectionLimits(), start, clock,
        name="executor-1/front", silent_ms=700,
    )  # fmt: skip
    made.open()
    clock.now_ms += 700
    made.tick(Calls)
    assert [one.killed for one in started] == [False]
    assert json.loads(started[0].told.recv(65_536).split(b"\n")[0])["name"] == "executor-1/front"
    clock.now_ms += 1
    made.tick(Calls)
    assert [one.killed for one in started] == [True, False]
    assert "said nothing for long" in caplog.text
    started[1].told.sendall(b'{"links": 0}\n')  # one that says something lives
    clock.now_ms += 699
    made.tick(Calls)
    clock.now_ms += 699
    made.tick(Calls)
    assert [one.killed for one in started] == [True, False]
    assert SILENT_MS == 30_000
    clock.now_ms += 10_000
    started[1].kill()
    made.close()


def test_a_front_has_nothing_of_its_node_but_its_sockets(fronted, trusting, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with open(os.devnull) as inheritable:
        os.set_inheritable(inheritable.fileno(), True)
        served = fronted()
        assert trusting.call(at(served), "echo", {})
        child = psutil.Process(front_of(served).pid)
        assert "secret" not in child.environ().values()
        files = [one.path for one in child.open_files()]
        assert not [path for path in files if path.endswith(".pem")]
        unix = child.net_connections("unix")
        assert len(unix) <= 3  # to its node, to gRPC
        assert child.num_fds() < 16
    home = served.server._front._home
    assert os.stat(home).st_mode & 0o777 == 0o700
    served.stop()
    assert not os.path.exists(home)
    assert front_of(served).returncode() is not None


NODE = """
import sys
from ballista_py.node.front_process import FrontProcess
from ballista_py.runtime import SystemRuntime
from ballista_py.testing.hostile.wire_fuzz_child import Echo
from ballista_py.threads import spawn
from ballista_py.transport.flight.server import FlightServer
from ballista_py.transport.security.access import PUBLIC
from ballista_py.transport.security.credentials import Tls
tls = Tls(certificate_file=sys.argv[1], key_file=sys.argv[2])
server = FlightServer("127.0.0.1:0", Echo(), SystemRuntime(), access=PUBLIC, spawn=spawn, tls=tls, front=FrontProcess)
print(server._front._process.pid, server._front._home, flush=True)
sys.stdin.read()
"""


def test_a_front_ends_when_its_node_is_killed_and_leaves_nothing(folder, kit):
    tls = folder.tls("executor-1")
    node = subprocess.Popen(
        [sys.executable, "-c", NODE, tls.certificate_file, tls.key_file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    pid, home = node.stdout.readline().decode().split()
    front = psutil.Process(int(pid))
    kit.wait_until(lambda: front.net_connections("tcp"))
    node.kill()
    node.wait()
    kit.wait_until(lambda: not psutil.pid_exists(int(pid)) or front.status() == psutil.STATUS_ZOMBIE)
    kit.wait_until(lambda: not os.path.exists(home))


def test_names_of_certificates_are_those_of_the_folder_of_the_node(serve, folder, trusting, monkeypatch):
    """`cluster tls add` prints such names; the front works in another folder, and ended over them for ever."""
    tls = folder.tls("executor-1")
    monkeypatch.chdir(os.path.dirname(tls.certificate_file))
    near = Tls(certificate_file=os.path.relpath(tls.certificate_file), key_file=os.path.relpath(tls.key_file))
    served = serve(tls=near, front=FrontProcess)
    assert trusting.call(f"localhost:{served.server.port}", "echo", {"a": 1})["body"] == {"a": 1}


def test_what_cannot_be_listened_at_or_shown_is_said_in_one_line(fronted, serve, folder, tmp_path):
    served = fronted()
    with pytest.raises(ConfigError, match=r"cannot listen on 127.0.0.1:\d+: the port is in use"):
        fronted(address=f"127.0.0.1:{served.server.port}")
    with pytest.raises(ConfigError, match=r"cannot listen on nowhere\.invalid:1"):
        fronted(address="nowhere.invalid:1")
    good = folder.tls("executor-1")
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    for tls in (Tls(certificate_file=str(wrong), key_file=good.key_file), Tls(ca_file=good.ca_file)):
        with pytest.raises(ConfigError):
            serve(tls=tls, front=FrontProcess)


def test_connections_beyond_the_limits_are_cut_and_those_with_a_call_stay(fronted, trusting, folder, kit):
    served = fronted(connections=ConnectionLimits(connections=60, per_address=40))
    stream = trusting.open_stream(at(served), {"batches": 40, "rows": 1, "pause_s": 0.05})
    batches = stream.batches()
    next(batches)
    threads = len(os.listdir("/proc/self/task"))

    def connections():
        child = psutil.Process(front_of(served).pid)
        return sum(one.status == psutil.CONN_ESTABLISHED for one in child.net_connections("tcp"))

    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.server.port), timeout=60))
        kit.wait_until(lambda: connections() <= 40)
        assert sum(batch.num_rows for batch in batches) == 39
        assert len(os.listdir("/proc/self/task")) < threads + 20
        assert answers(trusting, served)


CLIENT = """
import sys
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.security.credentials import Tls
stream = FlightPool(SystemRuntime(), tls=Tls(ca_file=sys.argv[2])).open_stream(
    sys.argv[1], {"batches": 100000, "rows": 100000}
)
rows = stream.batches()
next(rows)  # which ends the call when it goes
print("reading", flush=True)
sys.stdin.read()
"""


def test_a_client_that_is_killed_ends_its_call(fronted, folder, kit):
    served = fronted()
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, at(served), str(folder.ca_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdout.readline()
    assert served.server.open_calls() == 1
    client.kill()
    client.wait()
    kit.wait_until(lambda: not served.server.open_calls())
    kit.wait_until(served.handler.cancelled.is_set)


def test_a_node_that_stops_sends_what_it_has_and_lets_go_of_its_port(fronted, trusting, kit):
    served = fronted()
    stream = trusting.open_stream(at(served), {"think": 1})
    kit.wait_until(lambda: served.server.open_calls() == 1)
    served.stop()
    with pytest.raises(BallistaError, match="shutting down"):
        list(stream.batches())
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", served.server.port), timeout=10)


def test_a_port_without_tls_or_between_nodes_has_no_front(serve, folder):
    assert serve(front=FrontProcess).server._front is None
    assert serve(front=FrontProcess, tls=folder.tls("executor-1"), ask_client=True).server._front is None


def test_messages_of_megabytes_come_whole_from_another_client(fronted, folder):
    served = fronted()
    with pyarrow_client(served, folder) as client:
        big = {"text": "x" * (5 << 20)}
        (answer,) = client.do_action(flight.Action("echo", json.dumps(big).encode()))
        assert json.loads(answer.body.to_pybytes())["body"] == big
