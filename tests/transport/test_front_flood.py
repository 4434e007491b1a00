"""The floods and bombs of `test_flood.py`, and more of them, at ports that have a front: node and front together."""

import importlib.util
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import psutil
import pytest

from ballista_py.runtime import SystemRuntime
from ballista_py.testing.hostile.raw_flight import RawFlight
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.credentials import Tls

_SPEC = importlib.util.spec_from_file_location("flood", Path(__file__).with_name("test_flood.py"))
flood = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(flood)

GROWTH_MIB = 100
CATALOGS = pack(message("CommandGetCatalogs"))


def over_many_frames(each, frames, *, token=None, first=b"", calls=20, pause_s=0.0):
    """Calls with headers that go on over so many frames."""
    headers = flood.block(**({} if token is None else {"authorization": f"Bearer {token}"}))
    yield flood.frame(flood.HEADERS, flood.END_HEADERS, 1, headers + first)
    for number in range(1, calls + 1):
        yield flood.frame(flood.HEADERS, 0, 2 * number + 1, headers)
        for _ in range(frames):
            time.sleep(pause_s)
            yield flood.frame(flood.CONTINUATION, 0, 2 * number + 1, each)
        yield flood.frame(flood.CONTINUATION, flood.END_HEADERS, 2 * number + 1)


def within_bounds(*, token=None, calls=4_000):
    """Calls as large as they may be, that take next to nothing on the wire."""
    headers = flood.block(**({} if token is None else {"authorization": f"Bearer {token}"}))
    yield flood.frame(flood.HEADERS, flood.END_HEADERS, 1, headers + flood.LONG)
    for number in range(1, calls):
        yield flood.frame(flood.HEADERS, flood.END_HEADERS, 2 * number + 1, headers + b"\xbe" * 3)


UPDATES = b"\x20\x3f\xe1\x1f" * 3_000
MANY_FRAMES = {
    "HPACK's own table, one connection": (1, lambda: over_many_frames(flood.STATIC, 30)),
    "the same, 8 connections": (8, lambda: over_many_frames(flood.STATIC, 30)),
    "the same, 64 connections": (64, lambda: over_many_frames(flood.STATIC, 30, calls=2)),
    "the same, 200 connections": (200, lambda: over_many_frames(flood.STATIC, 16, calls=1)),
    "the same with a token": (8, lambda: over_many_frames(flood.STATIC, 30, token=flood.TOKEN)),
    "the same, slowly": (8, lambda: islice(over_many_frames(flood.STATIC, 30, pause_s=0.3), 12)),
    "in pieces of a byte": (8, lambda: over_many_frames(b"\x8f", 10_000)),
    "in empty pieces": (8, lambda: over_many_frames(b"", 50_000)),
    "a header that was kept": (8, lambda: over_many_frames(flood.NAMED, 12, first=flood.LONG)),
    "tiny headers": (8, lambda: over_many_frames(flood.TINY, 16)),
    "Huffman's code": (8, lambda: over_many_frames(flood.HUFFMAN, 16)),
    "sizes of the table": (8, lambda: over_many_frames(UPDATES, 8)),
    "as much as is allowed": (8, lambda: within_bounds()),
    "as much as is allowed, with a token": (8, lambda: within_bounds(token=flood.TOKEN)),
    "as much as is allowed, 64 connections": (64, lambda: within_bounds(calls=500)),
}
BOMBS = {**flood.BOMBS, **{f"frames: {name}": bomb for name, bomb in MANY_FRAMES.items()}}


class Node:
    """Two ports with TLS in a process of its own, each with a front."""

    def __init__(self, tls):
        text = Path(__file__).with_name("test_unfolding.py").read_text()
        script = text.partition('NODE = """')[2].partition('"""')[0]
        self.tls = Tls(ca_file=tls.ca_file)
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, flood.TOKEN, tls.certificate_file, tls.key_file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.public, self.parts = map(int, self.process.stdout.readline().split())
        self.client = ssl.create_default_context(cafile=tls.ca_file)
        self.client.set_alpn_protocols(["h2"])
        with self.flight() as first:
            first.info(CATALOGS)

    def processes(self):
        return [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children()]

    def begin(self):
        for one in self.processes():
            Path(f"/proc/{one.pid}/clear_refs").write_text("5")
        self.pids = {one.pid for one in self.processes()}
        self.before = self.mib("VmRSS")

    def mib(self, what):
        return sum(
            int(Path(f"/proc/{one.pid}/status").read_text().partition(f"{what}:")[2].split()[0]) >> 10
            for one in self.processes()
        )

    def grown_mib(self):
        """By how much node and fronts together were at most larger than at the beginning."""
        assert {one.pid for one in self.processes()} == self.pids
        return self.mib("VmHWM") - self.before

    def flight(self):
        return RawFlight(f"ballista://localhost:{self.public}", f"{flood.TOKEN} of another", self.tls, answer_s=60)

    def connect(self, port):
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        return self.client.wrap_socket(plain, server_hostname="localhost")

    def send_all(self, port, pieces):
        """Send them; whatever comes back is read and forgotten."""
        with suppress(OSError), self.connect(port) as link:
            link.sendall(flood.PREFACE)
            link.settimeout(0.01)
            for piece in pieces:
                link.settimeout(20)
                link.sendall(piece)
            link.settimeout(1)  # it stays open for a while
            while link.recv(1 << 16):
                pass


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    folder = CertificateFolder(tmp_path_factory.mktemp("tls"), SystemRuntime())
    folder.init()
    folder.add("executor-1", "executor")
    made = Node(folder.tls("executor-1"))
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture
def node(started):
    started.begin()
    yield started
    assert started.process.poll() is None


def attack(node, port, connections, pieces):
    """Send it over so many connections while another client asks; returns how long an answer took at most."""
    senders = [
        threading.Thread(target=node.send_all, args=(port, pieces()), daemon=True) for _ in range(connections)
    ]
    for sender in senders:
        sender.start()
    worst_s = 0.0
    with node.flight() as flight:
        while any(sender.is_alive() for sender in senders):
            began = time.monotonic()
            assert flight.info(CATALOGS)
            worst_s = max(worst_s, time.monotonic() - began)
            time.sleep(0.05)
        assert flight.info(CATALOGS)
    return worst_s


@pytest.mark.share(4)
@pytest.mark.parametrize("door", ["public", "parts"])
@pytest.mark.parametrize("name", BOMBS)
def test_headers_that_unpack_are_stopped_before_grpc_sees_them(node, name, door):
    connections, pieces = BOMBS[name]
    worst_s = attack(node, getattr(node, door), connections, pieces)
    print(f"{name}: {node.grown_mib()} MiB, others waited {worst_s:.2f} s")
    assert node.grown_mib() < GROWTH_MIB


@pytest.mark.parametrize("name", flood.FLOODS)
def test_a_flood_is_stopped_before_grpc_sees_it(node, name):
    attack(node, node.public, 1, flood.FLOODS[name])
    print(f"{name}: {node.grown_mib()} MiB")
    assert node.grown_mib() < GROWTH_MIB


@pytest.mark.turn(3)
def test_strangers_who_come_again_and_again_cost_little_and_nobody_else_is_dropped(node):
    over = time.monotonic() + 5

    def come_again():
        while time.monotonic() < over:
            with suppress(OSError), node.connect(node.public) as link:
                link.sendall(flood.PREFACE + b"".join(flood.streams(64)))

    senders = [threading.Thread(target=come_again, daemon=True) for _ in range(8)]
    answered = 0
    with node.flight() as flight:
        flight.info(CATALOGS)
        for sender in senders:
            sender.start()
        while any(sender.is_alive() for sender in senders):
            assert flight.info(CATALOGS)
            answered += 1
    print(f"again and again: {node.grown_mib()} MiB, {answered} answered")
    assert node.grown_mib() < GROWTH_MIB
