"""One client of a front: its connection, the one to gRPC once it makes a call, and the few bytes on their way."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress

from ballista_py.transport.front.client_reader import ClientBounds, ClientReader
from ballista_py.transport.front.http2 import settings_frame
from ballista_py.transport.front.server_reader import ServerReader
from ballista_py.transport.sockets import Connection, Peer, address_group

RECORD_BYTES = 16 << 10  # of TLS, at most
STRANGER_READ_BYTES = 16 << 10
HEADERS_AT_ONCE = 1 << 20
MOST_PIECES = 512
REPLIES_BEHIND = 16 << 10
HELLO_BYTES = 200  # what a finished handshake counts as
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class LinkOver(Exception):
    """Nothing more can be done for this link."""


class ClientLink:
    """A client's connection, relayed. `bounds`, `settings` (those of gRPC) and `stranger_bytes` are what it may do.

    `is_heard`: a call was let in over it. Methods that read or write raise `LinkOver`, and `Offence` for what the
    client sent; none waits.
    """

    def __init__(
        self,
        client: socket.socket,
        place: Peer,
        bounds: ClientBounds,
        settings: dict[int, int],
        stranger_bytes: int,
    ) -> None:
        self.client: socket.socket | ssl.SSLSocket = client
        self.peer = place
        self.group = address_group(place[0])
        self.backend: socket.socket | None = None
        self.is_heard = False
        self.is_shaken = False
        self.since_ms = self.last_ms = 0.0
        self.resumes_ms = 0.0
        self.turn = 0
        self.reader = ClientReader(bounds, self.name.encode())
        self.backend_ended = False
        self.client_ended = False
        self.client_events = self.backend_events = 0  # what is asked of the system now
        self._settings = settings
        self._stranger_bytes = stranger_bytes
        self._server = ServerReader()
        self._came = 0
        self._up = bytearray()
        self._down = bytearray()

    @property
    def name(self) -> str:
        """Who it is, as gRPC names peers."""
        host, port = self.peer
        return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"

    @property
    def received(self) -> int:
        """The bytes that came, headers as they were unpacked."""
        return self._came + self.reader.unpacked

    @property
    def is_settled(self) -> bool:
        """Whether the client has said what it must at the beginning."""
        return (
            self.is_shaken and self.reader.greeted and self.reader.confirmed
        ) or self.reader.opening is not None

    def as_connection(self, now_ms: float) -> Connection:
        """What the limits are asked about."""
        return Connection(*self.peer, int(now_ms - self.last_ms), self.received + HELLO_BYTES * self.is_shaken)

    def shake(self, context: ssl.SSLContext) -> bool:
        """Go on with the handshake; whether it is done."""
        try:
            if not isinstance(self.client, ssl.SSLSocket):
                self.client = context.wrap_socket(self.client, server_side=True, do_handshake_on_connect=False)
            self.client.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except (ValueError, OSError) as error:
            raise LinkOver(_reason(error)) from None
        if self.client.selected_alpn_protocol() != "h2":
            raise LinkOver("the client does not say that it speaks HTTP/2")
        self.is_shaken = True
        self._to_client(settings_frame(self._settings))
        return True

    def wants_client(self, now_ms: float) -> bool:
        """Whether more of the client may be read now."""
        if self._up or self.client_ended or self.backend_ended or now_ms < self.resumes_ms:
            return False
        if len(self._down) > REPLIES_BEHIND and self.backend is None:
            return False
        return self.is_heard or self.received <= self._stranger_bytes

    def wants_backend(self) -> bool:
        """Whether more of gRPC may be read now."""
        return self.backend is not None and not (self._down or self.backend_ended or self.client_ended)

    @property
    def writes_client(self) -> bool:
        """Whether there is something that the client could not be sent yet."""
        return bool(self._down)

    @property
    def writes_backend(self) -> bool:
        """Whether there is something that gRPC could not be sent yet."""
        return bool(self._up) and self._server.settled

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return (self.client_ended and not self._up) or (self.backend_ended and not self._down)

    def has_more(self) -> bool:
        """Whether bytes were taken from the system that nobody has read, which it will not tell of."""
        return isinstance(self.client, ssl.SSLSocket) and self.is_shaken and self.client.pending() > 0

    def read_client(self, room: memoryview, backend: str, now_ms: float) -> None:
        """Take what the client has sent and pass on what may be passed on."""
        assert isinstance(self.client, ssl.SSLSocket)
        limit, size = len(room) if self.is_heard else STRANGER_READ_BYTES, 0
        try:
            while size < limit:
                got = self.client.recv_into(room[size:limit])
                size += got
                if not got:
                    self.client_ended = True
                    break
                if got < RECORD_BYTES and not self.client.pending():
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (ValueError, OSError):
            self.client_ended = True
        if not size:
            return
        self._came += size
        self.last_ms = now_ms
        left = HEADERS_AT_ONCE if self.is_heard else self._stranger_bytes - self.received
        self.reader.may_unpack = self.reader.unpacked + max(0, left)
        pieces = self.reader.feed(room[:size], now_ms)
        if self.reader.replies:
            self._to_client(self.reader.replies)
            self.reader.replies = bytearray()
        if self.backend is None and self.reader.opening is not None:
            self._open(backend, self.reader.opening)
        if pieces:
            self._to_backend(pieces)

    def read_backend(self, room: memoryview) -> None:
        """Take what gRPC has sent and pass it on."""
        assert self.backend is not None
        try:
            got = self.backend.recv_into(room)
        except BlockingIOError:
            return
        except OSError:
            got = 0
        if not got:
            self.backend_ended = True
            return
        if self._server.done:
            self._to_client(room[:got])
            return
        self._to_client(self._server.feed(room[:got]))
        if self._up and self._server.settled:
            self.flush_backend()

    def flush_client(self) -> None:
        """Send what is left for the client, as far as it is taken."""
        try:
            while self._down:
                del self._down[: self.client.send(self._down)]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return
        except (ValueError, OSError):
            raise LinkOver("the client is gone") from None

    def flush_backend(self) -> None:
        """Send what is left for gRPC, as far as it is taken."""
        assert self.backend is not None
        try:
            while self._up:
                del self._up[: self.backend.send(self._up)]
        except BlockingIOError:
            return
        except OSError:  # what it said last is still to be read
            self._up.clear()

    def close(self, reset: bool = False) -> None:
        """Hang up on both sides; with `reset` what was on its way is dropped."""
        if isinstance(self.client, ssl.SSLSocket) and self.is_shaken and not reset:
            with suppress(ValueError, OSError):
                self.client.unwrap()
        if reset:
            with suppress(OSError):
                self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.client.close()
        if self.backend is not None:
            self.backend.close()

    def _open(self, path: str, opening: bytes) -> None:
        self.backend = socket.socket(socket.AF_UNIX)
        self.backend.setblocking(False)
        try:
            self.backend.connect(path)
            self.backend.send(opening)
        except OSError:
            raise LinkOver("the node takes no more connections now") from None

    def _to_backend(self, pieces: list[bytes | memoryview]) -> None:
        if self.backend is None or self._up or not self._server.settled:
            self._up += b"".join(pieces)
            return
        if len(pieces) > MOST_PIECES:
            pieces = [b"".join(pieces)]
        try:
            sent = self.backend.sendmsg(pieces)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        for piece in pieces:
            if sent < len(piece):
                self._up += piece[sent:]
            sent = max(0, sent - len(piece))

    def _to_client(self, data: bytes | bytearray | memoryview) -> None:
        if self._down:
            self._down += data
            return
        sent, view = 0, memoryview(data)
        try:
            while sent < len(view):
                sent += self.client.send(view[sent:])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            self._down += view[sent:]
        except (ValueError, OSError):
            raise LinkOver("the client is gone") from None


def _reason(error: Exception) -> str:
    """Why a handshake failed, in OpenSSL's words."""
    reason = getattr(error, "reason", None)
    return f"the handshake failed: {str(reason or 'the connection ended').lower().replace('_', ' ')}"
