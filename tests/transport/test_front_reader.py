"""What a front passes on of HTTP/2 that clients send, and what it refuses, without any socket."""

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.transport.front import http2
from ballista_py.transport.front.client_reader import ClientBounds, ClientReader, Offence
from ballista_py.transport.front.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Head,
    frame,
    settings_frame,
    settings_of,
)
from ballista_py.transport.front.server_reader import ServerReader
from ballista_py.transport.front.turnstile import Pace, Turnstile

WHO = b"ipv4:10.0.0.7:4711"
GREETING = PREFACE + settings_frame({4: 65_535})
CALL = [(b":method", b"POST"), (b":path", b"/x"), (b"te", b"trailers"), (b"authorization", b"Bearer of somebody")]


def reader(**bounds):
    made = ClientReader(ClientBounds(**bounds), WHO)
    made.may_unpack = 1 << 30
    return made


def fed(data, one=None, now_ms=0.0):
    """What is passed on of `data`, what the connection to gRPC begins with included."""
    one = one or reader()
    was_open = one.opening is not None
    rest = b"".join(map(bytes, one.feed(memoryview(data), now_ms)))
    return (b"" if was_open or one.opening is None else one.opening) + rest


def frames(data):
    """The frames of `data`, as heads and payloads."""
    data = data.removeprefix(PREFACE)
    found = []
    while data:
        head = Head.of(data)
        found.append((head, data[9 : 9 + head.length]))
        data = data[9 + head.length :]
    return found


def headers_in(data):
    """The headers of each call in what was passed on; no table of HPACK may be needed for them."""
    found, block = [], b""
    for head, payload in frames(data):
        if head.kind in (HEADERS, CONTINUATION):
            block += payload
            if head.flags & END_HEADERS:
                found.append([tuple(one) for one in Decoder(1 << 20).decode(block, raw=True)])
                block = b""
    return found


def call(stream=1, flags=END_HEADERS, encoder=None, headers=CALL):
    return frame(HEADERS, flags, stream, (encoder or Encoder()).encode(headers))


def test_nothing_is_passed_on_before_the_first_call_and_the_client_is_answered_meanwhile():
    one = reader()
    window = frame(WINDOW_UPDATE, 0, 0, (1_000).to_bytes(4, "big"))
    more = settings_frame({4: 99, 3: 7}) + frame(PING, 0, 0, b"12345678") + frame(SETTINGS, ACK, 0) + window
    assert fed(GREETING + more + window, one) == b""
    assert bytes(one.replies) == frame(SETTINGS, ACK, 0) * 2 + frame(PING, ACK, 0, b"12345678")
    assert one.greeted
    assert one.confirmed
    passed = fed(call(), one)
    assert passed.startswith(PREFACE)
    kinds = [(head.kind, head.flags) for head, _ in frames(passed)]
    assert kinds == [(SETTINGS, 0), (WINDOW_UPDATE, 0), (SETTINGS, ACK), (HEADERS, END_HEADERS)]
    assert settings_of(frames(passed)[0][1]) == {4: 99, 3: 7}
    assert int.from_bytes(frames(passed)[1][1], "big") == 2_000
    assert fed(window + frame(PING, 0, 0, bytes(8)), one) == window + frame(PING, 0, 0, bytes(8))


def test_headers_are_written_anew_without_a_table_and_with_who_calls():
    one, encoder = reader(), Encoder()
    passed = fed(GREETING + call(1, encoder=encoder), one)
    passed += fed(call(3, END_HEADERS | END_STREAM, encoder) + frame(DATA, END_STREAM, 1), one)
    assert headers_in(passed) == [[*CALL, (b"x-ballista-link", WHO)]] * 2
    assert [head.flags for head, _ in frames(passed) if head.kind == HEADERS] == [
        END_HEADERS,
        END_HEADERS | END_STREAM,
    ]
    assert one.unpacked == 2 * sum(len(name) + len(value) + 32 for name, value in CALL)


def test_padding_priorities_and_frames_that_nobody_knows_are_taken_off():
    block = Encoder().encode(CALL)
    padded = frame(HEADERS, END_HEADERS | PADDED | WITH_PRIORITY, 1, bytes([3]) + bytes(5) + block + bytes(3))
    odd = frame(PRIORITY, 0, 1, bytes(5)) + frame(77, 255, 9, b"what") + frame(10, 0, 0)
    passed = fed(GREETING + odd + padded + odd)
    assert headers_in(passed) == [[*CALL, (b"x-ballista-link", WHO)]]
    assert {head.kind for head, _ in frames(passed)} == {SETTINGS, HEADERS}


def test_headers_over_several_frames_and_larger_than_one_are_whole():
    headers = [*CALL, (b"x-large", bytes(range(33, 127)) * 170)]
    block = Encoder().encode(headers, huffman=False)
    parts = [block[at : at + 5_000] for at in range(0, len(block), 5_000)]
    data = frame(HEADERS, 0, 1, parts[0]) + b"".join(frame(CONTINUATION, 0, 1, part) for part in parts[1:])
    passed = fed(GREETING + data + frame(CONTINUATION, END_HEADERS, 1))
    assert headers_in(passed) == [[*headers, (b"x-ballista-link", WHO)]]
    assert max(head.length for head, _ in frames(passed)) <= 16_384


def block_of(*parts, stream=1):
    """Headers over these frames."""
    first, *rest = parts
    data = frame(HEADERS, 0 if rest else END_HEADERS, stream, first)
    for number, part in enumerate(rest):
        data += frame(CONTINUATION, END_HEADERS if number == len(rest) - 1 else 0, stream, part)
    return data


LARGE = b"\x40\x03x-a\x7f\xbd\x1d" + b"x" * 3_900  # a header that HPACK's table keeps
BAD = {
    "no HTTP/2": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "no settings first": PREFACE + call(),
    "an acknowledgement first": PREFACE + frame(SETTINGS, ACK, 0),
    "settings of an odd length": PREFACE + frame(SETTINGS, 0, 0, bytes(7)),
    "a thousand settings": PREFACE + settings_frame(dict.fromkeys(range(1_000), 1)),
    "other settings again and again": PREFACE + b"".join(settings_frame({n: 1}) for n in range(40)),
    "rows before a call": GREETING + frame(DATA, 0, 1, b"x"),
    "rows of no stream": GREETING + call() + frame(DATA, 0, 0, b"x"),
    "a reset before a call": GREETING + frame(RST_STREAM, 0, 1, bytes(4)),
    "a frame beyond the bound": GREETING + frame(DATA, 0, 1, bytes(16_385)),
    "an unknown frame beyond the bound": GREETING + frame(99, 0, 1, bytes(16_385)),
    "a ping of nine bytes": GREETING + frame(PING, 0, 0, bytes(9)),
    "a ping on a stream": GREETING + frame(PING, 0, 1, bytes(8)),
    "headers on no stream": GREETING + call(0),
    "a push": GREETING + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(8)),
    "a long farewell": GREETING + frame(GOAWAY, 0, 0, bytes(2_000)),
    "headers that go on from nowhere": GREETING + frame(CONTINUATION, END_HEADERS, 1),
    "headers that go on elsewhere": GREETING + frame(HEADERS, 0, 1) + frame(CONTINUATION, END_HEADERS, 3),
    "headers that are interrupted": GREETING + frame(HEADERS, 0, 1) + frame(PING, 0, 0, bytes(8)),
    "headers that are interrupted by something unknown": GREETING + frame(HEADERS, 0, 1) + frame(99, 0, 0),
    "headers over nine frames": GREETING + block_of(*[b""] * 9),
    "headers of 17 kB on the wire": GREETING + block_of(b"\x00\x01x\x7f\xc9\x3e" + b"x" * 8_136, bytes(9_000)),
    "HPACK's own table again and again": GREETING + call() + block_of(b"\x8f" * 600),
    "a large one again and again": GREETING + block_of(LARGE) + block_of(b"\xbe" * 5, stream=3),
    "a large one in Huffman's code": GREETING
    + block_of(b"\x00\x01x\xff\xe1\x7c" + b"\x18\xc6\x31\x8c\x63" * 3_200),
    "an index that is not there": GREETING + block_of(b"\xff\x00"),
    "headers that break off": GREETING + block_of(b"\x00\x7fab"),
    "a number without an end": GREETING + block_of(b"\xff" * 100),
    "a table beyond the bound": GREETING + block_of(b"\x3f\xe2\x1f"),
    "sizes of the table again and again": GREETING + block_of(b"\x20" * 3 + Encoder().encode(CALL)),
    "padding beyond the frame": GREETING + frame(HEADERS, END_HEADERS | PADDED, 1, bytes([9]) + bytes(5)),
    "who it is": GREETING + call(headers=[*CALL, (b"X-Ballista-Link", b"ipv4:10.0.0.8:1")]),
    "a window beyond all": GREETING + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
}


@pytest.mark.parametrize("name", BAD)
def test_what_no_honest_client_sends_is_refused(name):
    with pytest.raises(Offence) as raised:
        fed(BAD[name])
    assert 10 < len(str(raised.value)) < 80


def test_what_is_refused_is_not_passed_on_in_part():
    one = reader()
    for at in range(len(GREETING + block_of(LARGE))):
        assert (
            fed((GREETING + block_of(LARGE))[at : at + 1], one) in (b"",)
            or at == len(GREETING + block_of(LARGE)) - 1
        )
    with pytest.raises(Offence):
        fed(block_of(b"\xbe" * 5, stream=3), one)


@pytest.mark.parametrize(
    "idle",
    [
        frame(PING, 0, 0, bytes(8)),
        settings_frame({}),
        frame(RST_STREAM, 0, 1, bytes(4)),
        frame(DATA, 0, 1),
        frame(42, 0, 0),
        frame(PRIORITY, 0, 1, bytes(5)),
    ],
)
def test_frames_that_carry_nothing_have_a_pace(idle):
    one = reader(idle_frames=10, idle_frames_per_s=100)
    fed(GREETING + call(), one)
    for second in range(1, 20):
        fed(idle * 9, one, second * 1e3)
    with pytest.raises(Offence, match="again and again"):
        fed(idle * 11, one, 20e3)


def test_answers_to_pings_and_ends_of_streams_have_no_bound():
    one = reader(idle_frames=10)
    fed(GREETING + call(), one)
    for data in (frame(PING, ACK, 0, bytes(8)), frame(DATA, END_STREAM, 1), frame(WINDOW_UPDATE, 0, 1, bytes(4))):
        assert fed(data * 1_000, one) == data * 1_000


def test_all_headers_together_are_bounded_by_who_feeds():
    one, encoder = reader(), Encoder()
    fed(GREETING + call(1, encoder=encoder), one)
    one.may_unpack = one.unpacked * 4
    fed(call(3, encoder=encoder) + call(5, encoder=encoder) + call(7, encoder=encoder), one)
    with pytest.raises(Offence, match="too many headers"):
        fed(call(9, encoder=encoder), one)


@st.composite
def conversations(draw):
    """Frames as honest clients and others send them."""
    encoder, data = Encoder(), b""
    for _ in range(draw(st.integers(1, 6))):
        stream = draw(st.sampled_from([0, 1, 3, 5]))
        kind = draw(st.sampled_from(["call", "parts", "rows", "control", "raw"]))
        if kind == "call":
            data += call(stream or 1, draw(st.sampled_from([END_HEADERS, 5])), encoder)
        elif kind == "parts":
            block = encoder.encode([*CALL, (b"x", draw(st.binary(max_size=60)))])
            cut = draw(st.integers(0, len(block)))
            data += block_of(block[:cut], block[cut:], stream=stream or 1)
        elif kind == "rows":
            data += frame(DATA, draw(st.sampled_from([0, 1])), stream or 1, draw(st.binary(max_size=40)))
        elif kind == "control":
            data += draw(
                st.sampled_from(
                    [
                        frame(PING, 0, 0, bytes(8)),
                        frame(SETTINGS, ACK, 0),
                        settings_frame({4: 9}),
                        frame(WINDOW_UPDATE, 0, stream, bytes(3) + b"\x05"),
                        frame(RST_STREAM, 0, stream or 1, bytes(4)),
                        frame(PRIORITY, 0, 1, bytes(5)),
                        frame(200, 3, 3, b"abc"),
                    ]
                )
            )
        else:
            data += frame(
                draw(st.integers(0, 12)), draw(st.integers(0, 255)), stream, draw(st.binary(max_size=30))
            )
    return (GREETING if draw(st.integers(0, 9)) else b"") + data


def outcome(data, cuts):
    """All that comes out of feeding it in these pieces."""
    one, passed = reader(), b""
    try:
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            passed += fed(data[start:end], one)
    except Offence as offence:
        return str(offence)
    return passed, bytes(one.replies), one.opening, one.unpacked, one.blocks, one.greeted, one.confirmed


@given(conversations(), st.lists(st.integers(0, 2_000), max_size=12))
def test_how_the_bytes_are_cut_changes_nothing(data, cuts):
    whole = outcome(data, [])
    assert outcome(data, sorted(min(cut, len(data)) for cut in cuts)) == whole
    assert outcome(data, list(range(1, len(data)))) == whole


@given(conversations())
def test_what_is_passed_on_can_be_read_and_is_bounded(data):
    one = reader()
    try:
        passed = fed(data, one)
    except Offence:
        return
    for headers in headers_in(passed):
        assert headers[-1] == (b"x-ballista-link", WHO)
        assert [name for name, _ in headers].count(b"x-ballista-link") == 1
    assert len(passed) <= len(data) + one.unpacked + 200 * (one.blocks + 1)


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), max_size=8))
def test_a_literal_header_is_what_hpack_reads(headers):
    block = b"".join(http2.literal(name, value) for name, value in headers)
    assert [tuple(one) for one in Decoder().decode(block, raw=True)] == headers


@given(st.lists(st.integers(0, 200), max_size=6))
def test_what_grpc_says_first_is_taken_out_however_it_is_cut(cuts):
    said = settings_frame({3: 64}) + frame(WINDOW_UPDATE, 0, 0, bytes(4)) + settings_frame({5: 1})
    said += frame(SETTINGS, ACK, 0) + frame(PING, 0, 0, bytes(8)) + frame(SETTINGS, ACK, 0)
    one, out, at = ServerReader(), b"", 0
    for cut in sorted([*(min(cut, len(said)) for cut in cuts), len(said)]):
        out += one.feed(memoryview(said)[at:cut])
        at = cut
    kept = frame(WINDOW_UPDATE, 0, 0, bytes(4)) + settings_frame({5: 1}) + frame(PING, 0, 0, bytes(8))
    assert out == kept + frame(SETTINGS, ACK, 0)
    assert one.settled
    assert one.done


def test_strangers_of_one_address_wait_for_their_turn_and_others_do_not():
    turnstile = Turnstile(own=Pace(burst=10, per_s=5), together=Pace(burst=100, per_s=50))
    for number in range(9):
        turnstile.charge(f"10.0.0.{number}", 11, 0.0)
    assert turnstile.wait_ms("10.0.0.1", 0.0) == 200
    assert turnstile.wait_ms("10.0.1.1", 0.0) == 0
    turnstile.charge("10.0.0.9", 6, 0.0)
    assert turnstile.wait_ms("10.0.1.1", 0.0) == 100
    assert turnstile.wait_ms("10.0.0.1", 1_000.0) == 0
    turnstile.tick(60_000.0)
    assert not turnstile._of
