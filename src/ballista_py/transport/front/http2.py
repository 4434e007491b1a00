"""The frames of HTTP/2 as far as a front reads and makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
SETTING_BYTES = 6
MAX_FRAME_SIZE, FIRST_MAX_FRAME_SIZE = 5, 16_384
MAX_WINDOW = (1 << 31) - 1
LINK_HEADER = "x-ballista-link"  # of a front alone: who is at the other end of the link
ENTRY_BYTES = 32  # what HTTP/2 counts of each header besides its name and value


@frozen
class Head:
    """The nine bytes before the payload of a frame."""

    length: int
    kind: int
    flags: int
    stream: int

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, at: int = 0) -> Head:
        """The head that begins `at` there.

        >>> Head.of(frame(PING, ACK, 0, bytes(8)))
        Head(length=8, kind=6, flags=1, stream=0)
        """
        return cls(
            data[at] << 16 | data[at + 1] << 8 | data[at + 2],
            data[at + 3],
            data[at + 4],
            int.from_bytes(data[at + 5 : at + HEAD_BYTES], "big") & MAX_WINDOW,
        )


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings_of(payload: bytes) -> dict[int, int]:
    """The settings in the payload of a SETTINGS frame; of one that is named twice the last value."""
    return {
        int.from_bytes(payload[at : at + 2], "big"): int.from_bytes(payload[at + 2 : at + SETTING_BYTES], "big")
        for at in range(0, len(payload), SETTING_BYTES)
    }


def settings_frame(settings: Mapping[int, int]) -> bytes:
    """A SETTINGS frame that says these.

    >>> settings_of(settings_frame({4: 65_535})[9:])
    {4: 65535}
    """
    payload = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in settings.items())
    return frame(SETTINGS, 0, 0, payload)


def literal(name: bytes, value: bytes) -> bytes:
    """A header as it stands, which no table of HPACK is needed for and none remembers.

    >>> literal(b"te", b"trailers")
    b'\\x00\\x02te\\x08trailers'
    """
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def header_frames(stream: int, ends: bool, block: bytes, max_frame: int) -> Iterable[bytes]:
    """The frames that carry a whole block of headers; `ends`: nothing follows on the stream."""
    first = END_STREAM if ends else 0
    parts = [block[at : at + max_frame] for at in range(0, len(block), max_frame)] or [b""]
    for number, part in enumerate(parts):
        last = END_HEADERS if number == len(parts) - 1 else 0
        yield frame(CONTINUATION if number else HEADERS, last | (0 if number else first), stream, part)


def _length(number: int) -> bytes:
    """An integer as HPACK writes it behind a bit that says "not in Huffman's code"."""
    if number < 127:
        return bytes((number,))
    out, number = bytearray((127,)), number - 127
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
