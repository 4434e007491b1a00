"""What a client of HTTP/2 sends, read before gRPC reads it: what of it is passed on, or why nothing more is.

Rows (DATA frames) pass as they come. Headers are collected whole, unpacked within bounds and written anew, each as it
stands: so what gRPC reads is no larger than what was measured here, and there is no table that both would have to keep
alike. Pure: bytes in, bytes out, and the time as an argument.
"""

from __future__ import annotations

from attrs import frozen
from hpack import Decoder, HPACKError, OversizedHeaderListError

from ballista_py.transport.front.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENTRY_BYTES,
    FIRST_MAX_FRAME_SIZE,
    GOAWAY,
    HEAD_BYTES,
    HEADERS,
    LINK_HEADER,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING_BYTES,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Head,
    frame,
    header_frames,
    literal,
    settings_frame,
    settings_of,
)

MOST_SETTINGS = 32
GOAWAY_BYTES = 1_024
TABLE_UPDATES = 2
LENGTHS = {PING: (8,), RST_STREAM: (4,), WINDOW_UPDATE: (4,), PRIORITY: (5,)}
OF_THE_CONNECTION = (SETTINGS, PING, GOAWAY)


@frozen(kw_only=True)
class ClientBounds:
    """What one client may send: the size of a frame, the frames and bytes of a block of headers as they come and as
    they are unpacked, and how many frames that carry nothing in a burst and a second.
    """

    frame_bytes: int = FIRST_MAX_FRAME_SIZE
    header_frames: int = 8
    header_bytes: int = 16 << 10
    idle_frames: int = 1_000
    idle_frames_per_s: int = 500


_OWN = LINK_HEADER.encode()


class Offence(Exception):
    """A client did what none does that speaks HTTP/2 as it must. Its text says what, in words of our own."""


class ClientReader:
    """Reads what one client sends; `who` is said to gRPC with the headers of each call.

    Until the first headers have come (`opening` is then what a connection to gRPC begins with) nothing is passed
    on, and `replies` has what the client is told meanwhile. `unpacked` counts the bytes of headers as they were
    unpacked, `blocks` how many had come. All headers of the connection together may be `may_unpack` bytes: who feeds
    says how many more.
    """

    def __init__(self, bounds: ClientBounds, who: bytes) -> None:
        self.opening: bytes | None = None
        self.replies = bytearray()
        self.confirmed = False
        self.greeted = False
        self.unpacked = 0
        self.may_unpack = bounds.header_bytes
        self.blocks = 0
        self._bounds = bounds
        self._who = literal(LINK_HEADER.encode(), who)
        self._decoder = Decoder(max_header_list_size=bounds.header_bytes)
        self._preface_left = PREFACE
        self._passing = 0  # bytes left of a frame that passes as it comes
        self._dropping = 0
        self._head: Head | None = None  # of the frame that is being collected
        self._held = bytearray()
        self._block: bytearray | None = None  # headers that go on
        self._begun = Head(0, 0, 0, 0)  # the frame that they began with
        self._block_frames = 0
        self._settings: dict[int, int] = {}
        self._window = 0
        self._idle_left = float(bounds.idle_frames)
        self._idle_ms: float | None = None

    def feed(self, data: memoryview, now_ms: float) -> list[bytes | memoryview]:
        """Take in what has come; returns what is passed on, in order. Slices of `data` are among it.

        Raises `Offence`; then nothing more can be read.
        """
        out: list[bytes | memoryview] = []
        at, end = self._after_preface(data), len(data)
        start = at  # of what passes as it is
        while at < end:
            if self._passing:
                taken = min(self._passing, end - at)
                self._passing -= taken
                at += taken
                continue
            if self._dropping:
                taken = min(self._dropping, end - at)
                self._dropping -= taken
                start = at = at + taken
                continue
            if self._head is None and not self._held and end - at >= HEAD_BYTES:
                head = Head.of(data, at)
                if self._passes(head, now_ms):
                    self._passing = head.length
                    at += HEAD_BYTES
                    continue
                if start < at:
                    out.append(data[start:at])
                start = at = at + HEAD_BYTES
                self._begin(head, now_ms, out)
                continue
            if start < at:
                out.append(data[start:at])
            start = at = self._collect(data, at, now_ms, out)
        if start < at:
            out.append(data[start:at])
        return out

    def _after_preface(self, data: memoryview) -> int:
        """Where the frames begin in it."""
        if not self._preface_left:
            return 0
        came = bytes(data[: len(self._preface_left)])
        if not self._preface_left.startswith(came):
            raise Offence("it does not speak HTTP/2")
        self._preface_left = self._preface_left[len(came) :]
        return len(came)

    def _collect(self, data: memoryview, at: int, now_ms: float, out: list[bytes | memoryview]) -> int:
        """Take in what belongs to a head, or to a frame that is read whole; returns where the rest begins."""
        want = HEAD_BYTES if self._head is None else self._head.length
        taken = min(want - len(self._held), len(data) - at)
        self._held += data[at : at + taken]
        if len(self._held) < want:
            return at + taken
        came = bytes(self._held)
        self._held.clear()
        if self._head is not None:
            head, self._head = self._head, None
            self._whole(head, came, now_ms, out)
            return at + taken
        head = Head.of(came)
        if self._passes(head, now_ms):
            out.append(came)
            self._passing = head.length
        else:
            self._begin(head, now_ms, out)
        return at + taken

    def _begin(self, head: Head, now_ms: float, out: list[bytes | memoryview]) -> None:
        """A frame that does not pass as it comes: it is dropped, or collected."""
        if head.kind > CONTINUATION or head.kind == PRIORITY:
            self._dropping = head.length
        elif head.length:
            self._head = head
        else:
            self._whole(head, b"", now_ms, out)

    def _passes(self, head: Head, now_ms: float) -> bool:
        """Whether the frame passes as it comes. Raises `Offence` for a frame that may not come now, or at all."""
        kind, length = head.kind, head.length
        if length > self._bounds.frame_bytes:
            raise Offence("a frame is larger than it was told that one may be")
        if not self.greeted and (kind != SETTINGS or head.flags & ACK):
            raise Offence("it does not begin with its settings")
        if self._block is not None and (kind != CONTINUATION or head.stream != self._begun.stream):
            raise Offence("its headers are interrupted")
        if kind == DATA:
            if self.opening is None or not head.stream:
                raise Offence("it sends something else before a call")
            if not length and not head.flags & END_STREAM:
                self._spend(now_ms)
            return True
        if kind > CONTINUATION or kind == PRIORITY:
            self._spend(now_ms)
            return False
        self._check_form(head)
        return False

    def _check_form(self, head: Head) -> None:
        """Raise `Offence` for a frame whose length or stream is wrong for its kind."""
        kind, length = head.kind, head.length
        if length not in LENGTHS.get(kind, (length,)):
            raise Offence("a frame has not the length of its kind")
        if kind == SETTINGS and (length % SETTING_BYTES or length > MOST_SETTINGS * SETTING_BYTES):
            raise Offence("a frame has not the length of its kind")
        if kind == GOAWAY and not 8 <= length <= GOAWAY_BYTES:
            raise Offence("a frame has not the length of its kind")
        if kind == PUSH_PROMISE or ((kind in OF_THE_CONNECTION) != (not head.stream) and kind != WINDOW_UPDATE):
            raise Offence("a frame is on a stream where it may not be")
        if kind == CONTINUATION and self._block is None:
            raise Offence("headers go on that have not begun")
        if self.opening is None and (kind == RST_STREAM or (kind == WINDOW_UPDATE and head.stream)):
            raise Offence("it sends something else before a call")
        if kind in (HEADERS, CONTINUATION):
            so_far = 0 if self._block is None else len(self._block)
            if so_far + length > self._bounds.header_bytes + 6 + 255:  # priority and padding, taken off later
                raise Offence("its headers are larger than HTTP/2 was told that they may be")

    def _whole(self, head: Head, payload: bytes, now_ms: float, out: list[bytes | memoryview]) -> None:
        """A frame that was collected is there."""
        if head.kind in (HEADERS, CONTINUATION):
            self._headers(head, payload, out)
            return
        if head.kind in (PING, SETTINGS, RST_STREAM) and not (head.kind != RST_STREAM and head.flags & ACK):
            self._spend(now_ms)
        if head.kind == SETTINGS:
            self.greeted = True
        if self.opening is None:
            self._answer(head, payload)
        else:
            out.append(frame(head.kind, head.flags, head.stream, payload))

    def _answer(self, head: Head, payload: bytes) -> None:
        """Answer in the place of gRPC, which is not there yet, and keep what it must be told later."""
        is_ack = bool(head.flags & ACK)
        if head.kind == SETTINGS and is_ack:
            self.confirmed = True
        elif head.kind == SETTINGS:
            self._settings |= settings_of(payload)
            if len(self._settings) > MOST_SETTINGS:
                raise Offence("it has more settings than there are")
            self.replies += frame(SETTINGS, ACK, 0)
        elif head.kind == PING and not is_ack:
            self.replies += frame(PING, ACK, 0, payload)
        elif head.kind == WINDOW_UPDATE:
            self._window += int.from_bytes(payload, "big") & MAX_WINDOW
            if self._window > MAX_WINDOW - 65_535:
                raise Offence("its window is larger than one can be")

    def _headers(self, head: Head, payload: bytes, out: list[bytes | memoryview]) -> None:
        if head.kind == HEADERS:
            self._begun, self._block_frames = head, 0
            self._block = bytearray(_without_padding(head, payload))
        else:
            assert self._block is not None
            self._block += payload
        self._block_frames += 1
        if self._block_frames > self._bounds.header_frames or len(self._block) > self._bounds.header_bytes:
            raise Offence("its headers are larger than HTTP/2 was told that they may be")
        if not head.flags & END_HEADERS:
            return
        block, self._block = bytes(self._block), None
        written = self._written_anew(block)
        self.blocks += 1
        if self.opening is None:
            window = frame(WINDOW_UPDATE, 0, 0, self._window.to_bytes(4, "big")) if self._window else b""
            self.opening = PREFACE + settings_frame(self._settings) + window
            if self.confirmed:
                out.append(frame(SETTINGS, ACK, 0))
        out.extend(
            header_frames(self._begun.stream, bool(self._begun.flags & END_STREAM), written, FIRST_MAX_FRAME_SIZE)
        )

    def _written_anew(self, block: bytes) -> bytes:
        """The headers, each as it stands, and who calls. Raises `Offence`."""
        if _table_updates(block) > TABLE_UPDATES:
            raise Offence("it changes the table of headers again and again")
        try:
            headers = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError:
            raise Offence("its headers are larger than HTTP/2 was told that they may be") from None
        except (HPACKError, IndexError, ValueError):
            raise Offence("its headers cannot be read") from None
        written = bytearray()
        for name, value in headers:
            if name.lower() == _OWN:
                raise Offence("it says who it is in the place of this node")
            self.unpacked += len(name) + len(value) + ENTRY_BYTES
            written += literal(name, value)
        if self.unpacked > self.may_unpack:
            raise Offence("its calls have too many headers")
        return bytes(written) + self._who

    def _spend(self, now_ms: float) -> None:
        """A frame that carries nothing. Raises `Offence` when there are too many of them."""
        if self._idle_ms is not None:
            gained = (now_ms - self._idle_ms) / 1e3 * self._bounds.idle_frames_per_s
            self._idle_left = min(self._bounds.idle_frames, self._idle_left + max(0.0, gained))
        self._idle_ms = now_ms
        self._idle_left -= 1
        if self._idle_left < 0:
            raise Offence("it sends frames that carry nothing, again and again")


def _without_padding(head: Head, payload: bytes) -> bytes:
    """The part of a HEADERS frame that is headers."""
    start, padding = 0, 0
    if head.flags & PADDED:
        start, padding = 1, payload[0] if payload else 256
    if head.flags & WITH_PRIORITY:
        start += 5
    if start + padding > len(payload):
        raise Offence("a frame has not the length of its kind")
    return payload[start : len(payload) - padding]


def _table_updates(block: bytes) -> int:
    """How often a block of headers begins with another size of HPACK's table; it is counted up to a few."""
    at = found = 0
    while at < len(block) and block[at] & 0xE0 == 0x20 and found <= TABLE_UPDATES:
        found += 1
        more = block[at] & 0x1F == 0x1F
        at += 1
        while more and at < len(block):
            more = block[at] >= 0x80
            at += 1
    return found
