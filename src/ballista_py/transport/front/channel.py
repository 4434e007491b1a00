"""What a node and its front say to each other: lines of JSON over a pair of sockets that neither ever waits for."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

MOST_UNREAD = 4 << 20  # a line is not longer; who sends more is not one of ours
_AT_ONCE = 64 << 10


class Channel:
    """One end. `send` keeps what cannot be sent yet, `flush` tries again; for one thread at a time.

    All raise `EOFError` when the other end is gone.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self._unsent = bytearray()
        self._unread = bytearray()

    @property
    def is_behind(self) -> bool:
        """Whether the other end has not taken everything yet."""
        return bool(self._unsent)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send JSON-ready values."""
        self._unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what is left, as far as the other end takes it."""
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            raise EOFError from None

    def receive(self) -> list[dict[str, Any]]:
        """All messages that have come since."""
        try:
            while piece := self.socket.recv(_AT_ONCE):
                self._unread += piece
                if len(self._unread) > MOST_UNREAD:
                    raise EOFError
        except BlockingIOError:
            pass
        except OSError:
            raise EOFError from None
        else:
            raise EOFError
        *lines, rest = bytes(self._unread).split(b"\n")
        self._unread = bytearray(rest)
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
