"""HTTP/2 as no client speaks it, sent by hand: what it costs a port, and whether others are answered meanwhile."""

import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

from ballista_py.testing.hostile.raw_flight import RawFlight
from ballista_py.transport.flight_sql.messages import message, pack

TOKEN = "0123456789abcdef"
GROWTH_MIB = 200
BOMB_GROWTH_MIB = 300
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


def remembered(name, value):
    """A header that HPACK's table keeps."""
    return b"\x40" + bytes([len(name)]) + name + b"\x7f" + varint(len(value) - 127) + value


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def bomb(each, *, token=None, confirmed=False, first=b"", pause_s=0.0):
    """Streams with `each` behind their headers. The client says or does not say that it knows the port's bounds."""
    headers = block(**({} if token is None else {"authorization": f"Bearer {token}"}))
    if confirmed:
        yield frame(SETTINGS, 1, 0)
    yield frame(HEADERS, END_HEADERS, 1, headers + first)
    for number in range(1, 700):
        time.sleep(pause_s)
        yield frame(HEADERS, END_HEADERS, 2 * number + 1, headers + each)


LONG = remembered(b"x-a", b"x" * 3_900)
NAMED, STATIC = b"\xbe" * 15_000, b"\x8f" * 15_000
TINY = b"\x00\x01x\x00" * 3_800
HUFFMAN = b"\x00\x01x\xff\xe1\x4e" + bytes([0x18, 0xC6, 0x31, 0x8C, 0x63] * 2_027) + b"\x18\xc6"
BOMBS = {
    "one header named again and again": (4, lambda: bomb(NAMED, first=LONG)),
    "the same over more connections": (6, lambda: bomb(NAMED, first=LONG)),
    "the same with a token": (4, lambda: bomb(NAMED, first=LONG, token=TOKEN)),
    "the same by a client that confirms the bounds": (4, lambda: bomb(NAMED, first=LONG, confirmed=True)),
    "the same, fewer times": (4, lambda: bomb(NAMED[:400], first=LONG)),
    "the same, slowly": (8, lambda: islice(bomb(NAMED, first=LONG, pause_s=0.2), 15)),
    "a header of HPACK's own table": (1, lambda: bomb(STATIC)),
    "tiny headers": (4, lambda: bomb(TINY)),
    "a long header in Huffman's code": (4, lambda: bomb(HUFFMAN)),
}


@pytest.fixture(scope="module")
def node():
    script = (
        Path(__file__).with_name("test_unfolding.py").read_text().partition('NODE = """')[2].partition('"""')[0]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, TOKEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    public, parts = map(int, process.stdout.readline().split())
    yield process, public, parts
    process.kill()
    process.wait()


def memory_mib(process, what):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) >> 10


def threads(process):
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_costs_a_port_little_and_others_are_answered(node, name):
    process, port, _parts = node
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


def send_all(port, pieces):
    """Send them; whatever comes back is read and forgotten."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as link:

        def hear():
            with suppress(OSError):
                while link.recv(1 << 20):
                    pass
            over.set()

        over = threading.Event()
        threading.Thread(target=hear, daemon=True).start()
        link.sendall(PREFACE)
        for piece in pieces:
            link.sendall(piece)
        over.wait(1)  # it stays open for a while


@pytest.mark.turn(3)
@pytest.mark.parametrize("door", ["public", "parts"])
@pytest.mark.parametrize("name", BOMBS)
def test_headers_that_unpack_cost_a_port_little_and_others_are_answered(node, name, door):
    """gRPC keeps its bound on headers only for a client that has confirmed it."""
    process, public, parts = node
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    before = memory_mib(process, "VmRSS")
    connections, pieces = BOMBS[name]
    port = public if door == "public" else parts
    senders = [threading.Thread(target=send_all, args=(port, pieces()), daemon=True) for _ in range(connections)]
    for sender in senders:
        sender.start()
    with RawFlight(f"ballista://127.0.0.1:{public}", f"{TOKEN} of another", answer_s=60) as flight:
        while any(sender.is_alive() for sender in senders):
            assert flight.info(pack(message("CommandGetCatalogs")))
            time.sleep(0.1)
        assert flight.info(pack(message("CommandGetCatalogs")))
    grown = memory_mib(process, "VmHWM") - before
    print(f"{name}: {grown} MiB")
    assert process.poll() is None
    assert grown < BOMB_GROWTH_MIB
