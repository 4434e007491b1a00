"""HTTP/2 as no client speaks it, sent by hand: what it costs a port, and whether others are answered meanwhile."""

import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ballista_py.testing.hostile.raw_flight import RawFlight
from ballista_py.transport.flight_sql.messages import message, pack

TOKEN = "0123456789abcdef"
GROWTH_MIB = 200
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_HEADERS = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def block(**extra):
    """The headers of a call, uncompressed."""
    names = {":method": "POST", ":scheme": "http", ":path": "/arrow.flight.protocol.FlightService/DoExchange"}
    names |= {":authority": "a", "content-type": "application/grpc", "te": "trailers"} | extra
    return b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in names.items()
    )


def streams(count, *, token=None, then=lambda stream: b""):
    headers = block(**({} if token is None else {"authorization": f"Bearer {token}"}))
    for number in range(count):
        stream = 2 * number + 1
        yield frame(HEADERS, END_HEADERS, stream, headers) + then(stream)


def long_headers(size):
    """One block of headers that goes on for `size` bytes."""
    yield frame(HEADERS, 0, 1, block())
    for _ in range(size // 16_000):
        value = b"x" * 120
        one = b"\x00\x05x-hey" + bytes([len(value)]) + value
        yield frame(CONTINUATION, 0, 1, one * (16_000 // len(one)))
    yield frame(CONTINUATION, END_HEADERS, 1)


def reset(stream):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


def body(stream):
    return frame(DATA, 0, stream, bytes(16 << 10))


FLOODS = {
    "streams that say nothing": lambda: streams(10_000),
    "streams with a token that say nothing": lambda: streams(10_000, token=TOKEN),
    "streams that are reset at once": lambda: streams(50_000, then=reset),
    "streams with a token that are reset at once": lambda: streams(50_000, token=TOKEN, then=reset),
    "streams that begin a message each": lambda: streams(5_000, token=TOKEN, then=body),
    "headers of 1 MB": lambda: long_headers(1 << 20),
    "headers of 64 MB": lambda: long_headers(64 << 20),
    "settings": lambda: (frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535)) for _ in range(100_000)),
    "pings": lambda: (frame(PING, 0, 0, bytes(8)) for _ in range(100_000)),
    "windows": lambda: (frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) for _ in range(100_000)),
    "resets of nothing": lambda: (reset(1) for _ in range(100_000)),
}


@pytest.fixture(scope="module")
def node():
    script = (
        Path(__file__).with_name("test_unfolding.py").read_text().partition('NODE = """')[2].partition('"""')[0]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, TOKEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield process, int(process.stdout.readline().split()[0])
    process.kill()
    process.wait()


def memory_mib(process, what):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) >> 10


def threads(process):
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_costs_a_port_little_and_others_are_answered(node, name):
    process, port = node
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    before = memory_mib(process, "VmRSS")
    sent, over = 0, threading.Event()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:

        def hear():
            with suppress(OSError):
                while link.recv(1 << 20):
                    pass
            over.set()

        threading.Thread(target=hear, daemon=True).start()
        with suppress(OSError):
            link.sendall(PREFACE)
            for piece in FLOODS[name]():
                link.sendall(piece)
                sent += 1
        with RawFlight(f"ballista://127.0.0.1:{port}", f"{TOKEN} of another", answer_s=60) as flight:
            assert flight.info(pack(message("CommandGetCatalogs")))
        grown = memory_mib(process, "VmHWM") - before
        said = "cut" if over.is_set() else "open"
        print(f"{name}: {sent:,} sent, {said}, {grown} MiB, {threads(process)} threads")
    assert process.poll() is None
    assert grown < GROWTH_MIB
